"""Suggestions for names that are in no table: those that a person would make."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import read, world
from betae.graph.names import NUM_CLOSEST
from betae.graph.similar import fold, most_similar

TYPOS = 200
LEAST_FOUND = 0.95  # among the first three


def suggested(
    wanted: str, names: Sequence[str], popularity: Sequence[int] | None = None
) -> list[str]:
    counts = None if popularity is None else np.array(popularity)
    return [names[i] for i in most_similar(fold(wanted), [*map(fold, names)], counts)]


@pytest.mark.parametrize(
    ("wanted", "names", "expected"),
    [
        ("hypertension", ["Hypotension", "Hypertension"], "Hypertension"),
        ("Zurich", ["Zug", "Zürich", "Munich"], "Zürich"),
        ("James Gregory", ["Go", "Jam", "gory", "James Gregori"], "James Gregori"),
        ("Gregory, James", ["James Gregory", "Gregory Peck"], "James Gregory"),
        ("epilepsy", ["epilepsy syndrome", "ulepsy"], "epilepsy syndrome"),
        ("Dominican", ["Dominion", "Dominican Republic"], "Dominican Republic"),
        ("STAR6", ["STARD6", "AR", "T"], "STARD6"),
        ("GTF22A", ["F2", "GTF2A2", "TF"], "GTF2A2"),
        ("works-at", ["work", "works_at"], "works_at"),
    ],
)
def test_the_first_is_what_a_person_would_suggest(wanted, names, expected):
    assert suggested(wanted, names)[0] == expected


def test_a_part_of_a_word_is_not_suggested():
    assert suggested("James Gregory", ["Go", "Jam", "gory"]) == []


def test_equally_similar_names_are_ordered_by_popularity():
    names = ["Paris, Texas", "Paris, Ontario", "Paris, Dordogne"]
    assert suggested("Paris", names, [5, 5, 7])[0] == "Paris, Dordogne"
    assert suggested("Paris", names, [9, 5, 7])[0] == "Paris, Texas"


def test_nothing_is_similar_to_nothing():
    assert suggested("", ["a"]) == suggested("?!", ["a"]) == suggested("abc", [""]) == []
    assert suggested("abc", []) == []


@given(st.text(), st.lists(st.text(), max_size=5))
def test_any_text_can_be_compared(wanted, names):
    found = suggested(wanted, names)
    assert set(found) <= set(names)
    folded = fold(wanted)
    assert fold(folded) == folded or not wanted.isascii()
    for name in names:
        if folded and fold(name) == folded:
            assert fold(found[0]) == folded


@pytest.fixture(scope="module")
def typos_of():
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "typos.py"))["typos_of"]


def test_typos_are_no_names_and_found(typos_of):
    found = typos_of(world(), 50)
    names = {*map(fold, world().entities)}
    assert len(found) == 50
    for each in found:
        assert fold(each.typo) not in names
        assert fold(each.name) in names
        assert len(each.suggested) <= NUM_CLOSEST
    assert sum(each.is_found for each in found) >= LEAST_FOUND * 50


@pytest.mark.parametrize(
    ("edges", "labels"),
    [
        ("hetionet/edges.tsv.gz", "hetionet/labels.tsv.gz"),
        ("FB15k-237-betae", "names/FB15k_mid2name.txt"),
    ],
)
def test_misspelt_names_of_real_graphs(edges, labels, shared_data: Path, typos_of):
    found = typos_of(read(shared_data / edges, labels=shared_data / labels))
    assert len(found) == TYPOS
    assert sum(each.is_found for each in found) >= LEAST_FOUND * TYPOS
