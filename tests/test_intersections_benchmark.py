"""benchmarks/intersections.py: by hand, and on a small run."""

import sys
from pathlib import Path

import numpy as np
import pytest

from betae import train, world
from betae.querysets.sample import sample_queries
from tests.training.helpers import small_config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def intersections(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import intersections

    yield intersections
    del sys.modules["intersections"]


def test_by_hand(intersections):
    """Entity 5 is the hard answer, 0 the easy one; 5 meets the first condition, not the second."""
    ids = [np.array(each, dtype=np.int32) for each in ([0, 1, 5], [0, 2], [0, 2, 5], [0], [5])]
    first, second, second_later, easy, hard = ids
    found = intersections.compare(
        np.array([9.0, 1.0, 2.0, 9.0, 9.0, 5.0], dtype=np.float32),
        np.array([[0, 1, 2, 3, 9, 4], [0, 9, 1, 2, 9, 2]], dtype=np.float32),
        [first, second],
        [first, second_later],
        (easy, hard),
    )
    assert found == pytest.approx(
        {
            "known": 1 / 3,  # behind 2 and 3, which do not meet the first condition
            "missing": 1 / 1.5,  # level with 3; 2 meets the second condition
            "mean": 1 / 3,  # 3.0, behind 2 (1.5) and 3 (2.5)
            "best": 1 / 2.5,  # the second condition: behind 2, level with 3
            "model": 1 / 3,
            "recalled": 1 / 1.5,  # 1.0, level with 2
            "exact": 1.0,  # 1 is the only other entity that meets the first condition
        }
    )


def test_a_table_of_a_run(intersections, tmp_path, monkeypatch, capsys):
    graph = world()
    graph.save(tmp_path / "graph")
    train(graph, tmp_path / "run", small_config(structures={"2i": 1.0}, steps=2))
    sample_queries(graph, {"2i": 5, "pi": 5}, "valid").save(tmp_path / "queries")
    arguments = ["intersections.py", tmp_path / "run", tmp_path / "queries"]
    monkeypatch.setattr(sys, "argv", [*map(str, arguments), "--graph", str(tmp_path / "graph")])
    intersections.main()
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert tuple(head[2:]) == intersections.COLUMNS
    assert [row[:2] for row in rows] == [["2i", "5"], ["pi", "5"]]
    assert all(0 < float(cell) <= 100 for row in rows for cell in row[2:])
