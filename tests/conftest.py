"""What the tests share: a toy graph of a dozen entities, and where the benchmark data lie."""

import gzip
import os
import signal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import settings

from betae import KnowledgeGraph
from betae.cli.common import OPENMP
from betae.graph.triples import Triples, read_triples

# OpenMP reads these when torch is imported; processes that tests start inherit them.
os.environ.update(OPENMP)
if "PYTEST_XDIST_WORKER" in os.environ:  # a core for each worker
    os.environ["OMP_NUM_THREADS"] = "1"

# A shell that runs the tests in the background has Ctrl-C ignored, which tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer builds all commands anew at each call, which takes longer than most calls.
typer.main.get_command = cache(typer.main.get_command)

settings.register_profile("betae", deadline=None)
settings.load_profile("betae")

TOY = {
    "train": """\
ann\tparent\tbob
ann\tparent\tcat
bob\tparent\tdan
bob\tparent\teve
cat\tparent\tfay
ann\tlives_in\tOslo
bob\tlives_in\tOslo
dan\tlives_in\tRome
eve\tlives_in\tRome
fay\tlives_in\tLima
Oslo\tin\tNorway
Rome\tin\tItaly
Lima\tin\tPeru
bob\tfriend\tcat
""",
    "valid": "cat\tlives_in\tLima\ndan\tfriend\tfay\n",
    "test": "fay\tparent\tann\neve\tfriend\tdan\n",
}
TOY_LABELS = "ann\tAnn Lee\nbob\tBob Lee\ncat\tSam\neve\tSam\nunused\tNobody\n"


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    """A folder of train.tsv, valid.tsv, test.tsv and labels.tsv."""
    folder = tmp_path / "toy"
    folder.mkdir()
    for split, text in TOY.items():
        (folder / f"{split}.tsv").write_text(text)
    (folder / "labels.tsv").write_text(TOY_LABELS)
    return folder


@pytest.fixture
def toy_triples(toy_folder: Path) -> Triples:
    return read_triples(
        toy_folder / "train.tsv",
        valid=toy_folder / "valid.tsv",
        test=toy_folder / "test.tsv",
        labels=toy_folder / "labels.tsv",
    )


@pytest.fixture
def toy_graph(toy_triples: Triples) -> KnowledgeGraph:
    return KnowledgeGraph.from_triples(toy_triples)


@pytest.fixture
def toy_store(toy_graph: KnowledgeGraph, tmp_path: Path) -> Path:
    """The toy graph, saved alone in a folder of its own."""
    folder = tmp_path / "stores" / "toy"
    toy_graph.save(folder)
    return folder


@pytest.fixture
def write(tmp_path: Path):
    """Write text or bytes to a file, gzipped if its name says so, and return its path."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write_file


@pytest.fixture(scope="session")
def assert_same_graph():
    """Compare two graphs array by array."""

    def compare(one: KnowledgeGraph, two: KnowledgeGraph) -> None:
        first, second = one._arrays(), two._arrays()
        assert first.keys() == second.keys()
        for name in first:
            assert first[name].dtype == second[name].dtype, name
            assert np.array_equal(first[name], second[name]), name
        assert one.fingerprint == two.fingerprint
        assert repr(one) == repr(two)

    return compare


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The benchmark data beside the project; they are no part of it."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the benchmark data are not beside the project")
    return folder
