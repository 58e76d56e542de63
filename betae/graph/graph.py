"""KnowledgeGraph: named entities and relations, three splits, and sorted adjacency.

Relation i of the input becomes two directed relations: 2i as written and 2i + 1, its inverse,
written `~name`. All arrays live in a store of `.npy` files and are memory-mapped, so a graph opens
in milliseconds and processes share its pages.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.errors import (
    AmbiguousName,
    InvalidArgument,
    StoreError,
    UnknownEntity,
    UnknownProperty,
    UnknownRelation,
)
from betae.graph.edges import EDGES, SPLITS, Adjacency, Edges, Ids, Split, are_below
from betae.graph.names import NO_PREFIXES, Label, Names, Prefixes, Vocabulary, local_name, shorten
from betae.remote import address_of, local_folder
from betae.storage import (
    check_parts,
    read_arrays,
    read_manifest,
    write_arrays,
    write_manifest,
    writing_folder,
)

if TYPE_CHECKING:
    import networkx
    import polars as pl

    from betae.exact.select import Selection
    from betae.graph.literals import Literals
    from betae.graph.source import TripleSource
    from betae.graph.triples import Triples
    from betae.queries.ast import Query
    from betae.querysets.query_set import QuerySet

INVERSE = "~"
MINED = "mined"  # folder in that of a graph, for rules mined from it
WITH_LITERALS = 3  # the first version of the format that has them
ADJACENCY_PARTS = ("head_offsets", "relations", "tail_offsets", "tails")


class KnowledgeGraph:
    """Entities, relations and edges; make one with `betae.read`, or open a stored one.

    Ids of relations are those of directed relations, `relation_id`. Only inside the library,
    `written_ids` has relations by their place in `relations`: the edges (n, 3) of train, valid and
    test as stored, sorted. `adjacency(edges)` holds those of train, train+valid or all in both
    directions. `prefixes` are those of the RDF files it was read from: prefix -> beginning of IRIs.
    """

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        written_ids: dict[Split, Ids],
        adjacencies: dict[Edges, Adjacency] | None = None,
        fingerprint: str | None = None,
        ancestors: Sequence[str] = (),
        prefixes: Prefixes = NO_PREFIXES,
        literals: Literals | None = None,
    ):
        self.entities, self.relations = entities, relations
        self.prefixes: Prefixes = dict(prefixes)
        self.written_ids = written_ids
        self._literals = literals  # or None: see `literals`
        self._adjacencies = self._sorted_edges() if adjacencies is None else adjacencies
        self._fingerprint = fingerprint
        self._parts: tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]] | None = None
        self.ancestors = tuple(ancestors)  # fingerprints of the graph before edges were added
        self.folder: Path | None = None  # where it was opened
        # Of a graph with edges held out by itself: the fingerprint and folder of the one it is of.
        self.held_out_of: str | None = None
        self.source: Path | None = None
        self.stores: dict[Edges, Any] = {}  # of `betae.exact.sparql`, opened when they are needed

    def _sorted_edges(self) -> dict[Edges, Adjacency]:
        adjacencies: dict[Edges, Adjacency] = {}
        for edges, splits in EDGES.items():
            if edges != "train" and not len(self.written_ids[splits[-1]]):
                continue  # equal to the choice before: `adjacency` falls back to that
            triples = np.concatenate([self.written_ids[split] for split in splits])
            sizes = len(self.entities), len(self.relations)
            adjacencies[edges] = Adjacency.from_triples(triples, *sizes)
        return adjacencies

    @classmethod
    def from_triples(cls, triples: Triples | TripleSource) -> KnowledgeGraph:
        """Build the graph in memory from `Triples`, or from a source for `read_triples`."""
        from betae.graph.literals import Literals
        from betae.graph.triples import Triples, read_triples

        if not isinstance(triples, Triples):
            triples = read_triples(triples)
        return cls(
            Vocabulary.of(triples.entities, triples.labels),
            Vocabulary.of(triples.relations, triples.labels),
            triples.splits,
            prefixes=triples.prefixes,
            literals=Literals.of(triples.literals, triples.entities, triples.relations),
        )

    # ---- size and parts -------------------------------------------------------------------

    @property
    def num_entities(self) -> int:
        """Number of entities."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """Number of directed relations: twice the number of relation names."""
        return 2 * len(self.relations)

    def adjacency(self, edges: Edges = "train") -> Adjacency:
        """Return the edges of train, train+valid or all, with inverses."""
        check_choice("edges", edges, EDGES)
        choices = list(EDGES)
        for candidate in reversed(choices[: choices.index(edges) + 1]):
            if candidate in self._adjacencies:
                return self._adjacencies[candidate]
        raise StoreError("The graph has no training edges.")

    @cached_property
    def literals(self) -> Literals:
        """What entities have besides edges: numbers, dates, texts."""
        from betae.graph.literals import Literals, literals_of_labels

        if self._literals is not None:
            return self._literals
        if self._parts is None:
            # Made of arrays, or by a betae that kept no literals but labels.
            named = literals_of_labels(self.labels_by_name())
            return Literals.of(named, self.entities, self.relations)
        assert self.folder is not None
        found = Literals.open(self.folder, *self._parts)
        if fault := found.fault(self.num_entities, len(self.relations)):
            raise StoreError(f"{self.folder} is damaged: {fault}. Make the graph again.")
        return found

    @property
    def has_literals(self) -> bool:
        """Whether there are literals, told without reading any of a stored graph."""
        if self._parts is None:
            return self._literals is not None and self._literals.size > 0
        return any(name.endswith(".parquet") for name in self._parts[0])

    @cached_property
    def classes(self) -> Vocabulary:
        """The classes of node tables; those of RDF are entities, the tails of `rdf:type`."""
        return Vocabulary(Names.from_strings(self.literals.classes()))

    def values(self, property: str) -> pl.DataFrame:
        """Return the values of a property: a frame of entity, value, datatype and language.

        Numbers, dates, times and booleans are of those types if all values of the property are;
        otherwise they are text, as written. `datatype` is the IRI of the RDF datatype.

        Args:
            property: its name, or the last part of its IRI if only one property ends in it.
        """
        return self.literals.values(self.property_id(property), self.entities)

    def __repr__(self) -> str:
        return in_words(self._counts())

    def _repr_html_(self) -> str:
        from betae.graph.describe import to_html

        return to_html(self)

    # ---- questions ------------------------------------------------------------------------
    #
    # The front door: these call modules that build on this one, so they import them when called.

    def select(
        self,
        question: str | Query | tuple[Any, ...],
        edges: Edges = "all",
        limit: int | None = None,
    ) -> Selection:
        """Find all exact answers of a question of any shape, as rows of names and labels.

        Args:
            question: logic text, any SPARQL SELECT, a tree, or a release's tuples. It may have
                several answer variables, and cycles.
            edges: the edges that count.
            limit: the most rows to return; SPARQL's LIMIT counts too.
        """
        from betae.exact.select import select

        return select(self, question, edges, limit)

    def sparql(self, text: str, edges: Edges = "all") -> Selection | bool | pl.DataFrame:
        """Answer any SPARQL 1.1 query from the facts, literals included.

        SELECT gives rows, ASK a bool, CONSTRUCT and DESCRIBE a frame of head, relation and tail.

        Args:
            text: the query. Names, labels and the graph's prefixes may be used in it: `<France>`.
            edges: the edges that count.
        """
        from betae.exact.select import sparql

        return sparql(self, text, edges)

    def answers(self, query: str | Query, edges: Edges = "all") -> Ids:
        """Return the ids of the exact answers of a tree, ascending, by compiled loops."""
        from betae.exact.answers import answers

        return answers(self, query, edges)

    def sample(
        self, *structures: str, split: str = "train", count: int = 1000, seed: int = 0
    ) -> QuerySet:
        """Sample queries with easy and hard answers; `sample_queries` has more options.

        Args:
            structures: the paper's names ("1p", "2in"), each with its own count if wanted
                ("1p:20"), or logic text with placeholders. By default, the paper's: those it
                trains on for train, all 14 otherwise.
            split: "train", "valid" or "test": where hard answers come from.
            count: queries per structure.
            seed: of the random stream.
        """
        from betae.querysets.sample import parse_counts, sample_queries

        return sample_queries(self, parse_counts(structures, split, count), split, seed=seed)

    # ---- names ----------------------------------------------------------------------------

    def entity_id(self, name: str) -> int:
        """Return the id of an entity by its name, or by a label if only one entity has it.

        An IRI may be shortened by the graph's prefixes: `schema:Person`. Without a match, case and
        accents are ignored.
        """
        found = self.entities.find(name, self.prefixes)
        found = found or self.entities.find_alike(name, self.prefixes)
        if len(found) > 1:
            raise AmbiguousName(name, [self.entities[i] for i in found], "entities")
        if not found:
            raise UnknownEntity(name, self._closest_entities(name))
        return found[0]

    def _closest_entities(self, name: str) -> list[str]:
        return self.entities.closest(name, self.prefixes, self.adjacency().degrees())

    def relation_id(self, name: str) -> int:
        """Return the id of a directed relation; `~name` is the inverse of `name`.

        It is found as an entity is: see `entity_id`.
        """
        bare = name.removeprefix(INVERSE)
        ways = [(0, name), (1, bare)] if bare != name else [(0, name)]
        finds = self.relations.find, self.relations.find_alike
        for find, (offset, written) in product(finds, ways):
            found = find(written, self.prefixes)
            if len(found) > 1:
                raise AmbiguousName(written, [self.relations[i] for i in found], "relations")
            if found:
                return 2 * found[0] + offset
        raise UnknownRelation(name, self.relations.closest(bare, self.prefixes))

    def relation_name(self, relation: int) -> str:
        """Return the name of a directed relation by its id; that of an inverse begins with `~`."""
        if not 0 <= relation < self.num_relations:
            raise UnknownRelation(f"#{relation}", [f"#0 to #{self.num_relations - 1}"])
        return INVERSE * (relation % 2) + self.relations[relation // 2]

    def property_id(self, name: str) -> int:
        """Return the id of a property by its name, or by the last part of its IRI if unique."""
        properties = self.literals.properties
        found = properties.find(name, self.prefixes)
        found = found or [i for i, each in enumerate(properties) if local_name(each) == name]
        found = found or properties.find_alike(name, self.prefixes)
        if len(found) > 1:
            raise AmbiguousName(name, [properties[i] for i in found], "properties")
        if not found:
            raise UnknownProperty(name, properties.closest(name, self.prefixes))
        return found[0]

    def entity_label(self, entity: int) -> str:
        """Return the label of an entity, or its name, shortened by a prefix."""
        return shorten(self.entities.label(entity), self.prefixes)

    def relation_label(self, relation: int) -> str:
        """Return the label of a directed relation, or its name, whichever direction it has."""
        return shorten(self.relations.label(relation // 2), self.prefixes)

    def edge_labels(self, edge: Sequence[str]) -> tuple[str, str, str]:
        """Return the labels of the head, relation and tail of an edge by name."""
        head, relation, tail = edge
        ends = (self.entity_label(self.entities.find(each)[0]) for each in (head, tail))
        label = self.relation_label(2 * self.relations.find(relation)[0])
        return next(ends), label, next(ends)

    def labels_by_name(self) -> dict[str, list[Label]]:
        """Return the labels of every entity and relation that has any, the one to show first."""
        return self.entities.labels_by_name() | self.relations.labels_by_name()

    # ---- disk -----------------------------------------------------------------------------

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write the graph to `folder`, whole or not at all.

        Rules that were mined there from an earlier state of the graph are kept.
        """
        with writing_folder(Path(folder), overwrite) as partial:
            facts = {
                **self._counts(),
                "fingerprint": self.fingerprint,
                "ancestors": self.ancestors,
                "prefixes": dict(self.prefixes),
                **({"held_out_of": self.held_out_of} if self.held_out_of else {}),
            }
            write_arrays(partial, self._arrays())
            self.literals.write(partial)
            write_manifest(partial, "graph", facts)
            if (Path(folder) / MINED).is_dir() and self._comes_from(Path(folder)):
                shutil.copytree(Path(folder) / MINED, partial / MINED)

    @classmethod
    def open(cls, folder: Path | str, verify: bool | None = None) -> KnowledgeGraph:
        """Memory-map a graph.

        Sizes, offsets and ids are always checked. `verify=True` compares every checksum,
        `verify=False` none; by default, all of a graph up to 64 MiB, and of a larger one those of
        files that were modified after it was written.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "graph")
        check_parts(folder, manifest, verify)
        arrays = read_arrays(folder, manifest)

        try:
            graph = cls(
                Vocabulary.from_arrays(arrays, "entity"),
                Vocabulary.from_arrays(arrays, "relation"),
                {split: arrays[split] for split in SPLITS},
                {
                    edges: Adjacency(*(arrays[f"{edges}.{part}"] for part in ADJACENCY_PARTS))
                    for edges in EDGES
                    if f"{edges}.tails" in arrays
                },
                manifest["fingerprint"],
                manifest.get("ancestors", ()),
                manifest.get("prefixes", {}),
            )
        except KeyError as error:
            raise StoreError(f"{folder} is damaged: its manifest lacks {error}.") from error
        if fault := graph._fault(arrays):
            raise StoreError(f"{folder} is damaged: {fault}. Make the graph again.")
        if graph._counts() != {key: manifest.get(key) for key in graph._counts()}:
            raise StoreError(f"{folder} is damaged: the counts in its manifest are wrong.")
        graph.folder = folder.resolve()
        graph.held_out_of = manifest.get("held_out_of")
        if manifest["version"] >= WITH_LITERALS:
            graph._parts = (manifest["parts"], arrays)
        return graph

    def _comes_from(self, folder: Path) -> bool:
        """Whether this is the graph in a folder, or became of it by adding or removing edges."""
        try:
            before = read_manifest(folder, "graph")["fingerprint"]
        except StoreError:
            return False
        return before in (self.fingerprint, *self.ancestors)

    def _fault(self, arrays: Mapping[str, NDArray[Any]]) -> str | None:
        """Describe the first fault in the arrays: a right checksum does not prove sound content."""
        for name, array in arrays.items():
            has_shape = array.shape[1:] == (3,) if name in SPLITS else array.ndim == 1
            kind = np.int64 if name.endswith("offsets") else np.int32
            if array.dtype != (np.uint8 if name.endswith(".text") else kind) or not has_shape:
                return f"{name} is not an array of that kind: {array.dtype}, shape {array.shape}"
        if fault := self.entities.fault("entity") or self.relations.fault("relation"):
            return fault
        for split, triples in self.written_ids.items():
            for column, names in enumerate((self.entities, self.relations, self.entities)):
                if not are_below(triples[:, column], len(names)):
                    return f"{split} has an id that is not from 0 to {len(names) - 1}"
        for edges, adjacency in self._adjacencies.items():
            if fault := adjacency.fault(edges, self.num_entities, self.num_relations):
                return fault
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the address of its folder, for processes that open it there."""
        if self.folder is None:
            raise InvalidArgument(
                "The graph is in memory only, where no other process can open it: save it, and use "
                "KnowledgeGraph.open."
            )
        return _reopen, (address_of(self.folder), self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """A hash of names and edges: equal for equal graphs, whatever order they were read in."""
        if self._fingerprint is None:
            arrays = self.entities.arrays("entity") | self.relations.arrays("relation")
            arrays |= {split: self.written_ids[split] for split in SPLITS}
            self._fingerprint = fingerprint_of(arrays)
        return self._fingerprint

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return every part of the store by its file name."""
        arrays = self.entities.arrays("entity") | self.relations.arrays("relation")
        for edges, adjacency in self._adjacencies.items():
            arrays |= {f"{edges}.{part}": getattr(adjacency, part) for part in ADJACENCY_PARTS}
        arrays |= self.literals.arrays()
        return arrays | {split: self.written_ids[split] for split in SPLITS}

    # ---- changes and other forms ----------------------------------------------------------

    def extended(self, triples: Triples | TripleSource) -> KnowledgeGraph:
        """Return the graph with more training edges.

        Ids stay, new names come after them. Blank nodes of RDF are new nodes each time.
        """
        from betae.graph.change import append_triples

        return append_triples(self, triples)

    def without(self, triples: Triples | TripleSource) -> KnowledgeGraph:
        """Return the graph without these edges, whichever split they are in; ids stay."""
        from betae.graph.change import remove_triples

        return remove_triples(self, triples)[0]

    def export(
        self, path: Path | str, splits: Split | Sequence[Split] = SPLITS, format: str | None = None
    ) -> list[str]:
        """Write the edges of some splits by name to a file, `-` for standard output.

        The file's ending gives the format (.tsv, .csv, .parquet, .jsonl, .nt, .ttl), unless
        `format` does; `.gz` may follow. The format `neo4j` writes a folder for `neo4j-admin`. RDF,
        JSON Lines and Neo4j include the literals of the entities and relations of these edges, or
        all of them with all splits. Returns notes on what the format cannot hold.
        """
        from betae.graph.writing import write_graph

        entities: Sequence[str] = self.entities
        edges, literals = self.to_polars(splits), self.literals.named(self.entities, self.relations)
        if {*_several(splits)} != {*SPLITS}:
            names = {name for column in edges for name in column.unique()}
            literals = literals.filter(literals["subject"].is_in(names))
            entities = edges["head"].append(edges["tail"]).unique().sort().to_list()
        return write_graph(edges, Path(path), [*entities], literals, self.prefixes, format)

    def to_polars(self, splits: Split | Sequence[Split] = SPLITS) -> pl.DataFrame:
        """Return the edges of some splits by name: a frame of head, relation and tail.

        Args:
            splits: "train", "valid" or "test", or several of them; all by default.
        """
        import polars as pl

        heads, relations, tails = self._written(splits).T
        entity, relation = pl.Series([*self.entities]), pl.Series([*self.relations])
        return pl.DataFrame(
            {"head": entity[heads], "relation": relation[relations], "tail": entity[tails]}
        )

    def edge_ids(self, splits: Split | Sequence[Split] = SPLITS) -> Ids:
        """Return the edges of some splits by id, (n, 3): those of `entity_id` and `relation_id`.

        They are in the direction in which they were written.
        """
        found = np.array(self._written(splits))
        found[:, 1] *= 2
        return found

    def _written(self, splits: Split | Sequence[Split]) -> Ids:
        chosen = _several(splits)
        for split in chosen:
            check_choice("split", split, SPLITS)
        empty = np.empty((0, 3), dtype=np.int32)
        return np.concatenate([empty, *(self.written_ids[split] for split in chosen)])

    def to_networkx(self, splits: Split | Sequence[Split] = SPLITS) -> networkx.MultiDiGraph:
        """Return a networkx graph: nodes by name with their `label`, relations as edge keys."""
        try:
            import networkx
        except ImportError:
            raise InvalidArgument("networkx is not installed: pip install networkx") from None
        result = networkx.MultiDiGraph()
        for entity, name in enumerate(self.entities):
            result.add_node(name, label=self.entity_label(entity))
        result.add_edges_from(
            (head, tail, relation) for head, relation, tail in self.to_polars(splits).iter_rows()
        )
        return result

    def _counts(self) -> dict[str, Any]:
        return {
            "entities": self.num_entities,
            "relations": len(self.relations),
            "edges": {split: len(self.written_ids[split]) for split in SPLITS},
        }


def _several(splits: Split | Sequence[Split]) -> tuple[Split, ...]:
    return (splits,) if isinstance(splits, str) else tuple(splits)


def fingerprint_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Compute `KnowledgeGraph.fingerprint` from the parts of its store."""
    digest = hashlib.sha256()
    for kind in ("entities", "relations"):
        digest.update(arrays[f"{kind}.text"].data)
        digest.update(arrays[f"{kind}.offsets"].data)
    for split in SPLITS:
        digest.update(np.ascontiguousarray(arrays[split]).data)
        digest.update(b"/")
    return digest.hexdigest()


def in_words(counts: Mapping[str, Any]) -> str:
    """Describe the size of a graph by the counts in its manifest."""
    edges = " + ".join(f"{counts['edges'][split]:,} {split}" for split in SPLITS)
    names = f"{counts['entities']:,} entities, {counts['relations']:,} relations"
    return f"KnowledgeGraph({names}, {edges} edges)"


@lru_cache(maxsize=2)
def _reopen(address: str, fingerprint: str) -> KnowledgeGraph:
    """Open a graph that was pickled in another process; raise if it is not the same one."""
    graph = KnowledgeGraph.open(local_folder(address))
    if graph.fingerprint != fingerprint:
        raise StoreError(
            f"{address} holds another graph here: its fingerprint is {graph.fingerprint[:12]}…, "
            f"not {fingerprint[:12]}…"
        )
    return graph
