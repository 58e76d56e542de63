"""The bundled graph `world`: countries, their capitals, neighbours, languages and more.

A few thousand true facts with readable names, made by `scripts/make_world.py` from the package
countryinfo (MIT) and facts written by hand. A fixed part of the edges is hidden in valid and test.
"""

from importlib.resources import as_file, files

from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import read_triples


def world() -> KnowledgeGraph:
    """Return the bundled graph."""
    with as_file(files("betae") / "datasets" / "world") as folder:
        triples = read_triples(
            folder / "train.tsv", valid=folder / "valid.tsv", test=folder / "test.tsv"
        )
    return KnowledgeGraph.from_triples(triples)
