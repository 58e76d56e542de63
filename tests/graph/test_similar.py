"""Suggestions for names that are in no table: those that a person would make."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import read
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


def misspelt(name: str, random: random.Random) -> str:
    """Make one of the mistakes that people make most: swap, drop, double, mistake a letter."""
    i = random.randrange(1, len(name) - 1)
    letter = random.choice(string.ascii_lowercase)
    return random.choice(
        [
            name[:i] + name[i + 1] + name[i] + name[i + 2 :],
            name[:i] + name[i + 1 :],
            name[:i] + name[i] + name[i:],
            name[:i] + letter + name[i + 1 :],
        ]
    )


def share_found(names: Sequence[str]) -> float:
    """Return the share of misspelt names whose right spelling is among the suggestions."""
    chance = random.Random(0)
    folded = [*map(fold, names)]
    known = set(folded)
    found = tried = 0
    for name in chance.sample([name for name in names if len(name) >= 5], TYPOS):
        typo = fold(misspelt(name, chance))
        if typo not in known:
            tried += 1
            first = most_similar(typo, folded)[:NUM_CLOSEST]
            found += fold(name) in [folded[i] for i in first]
    assert tried > 0.8 * TYPOS
    return found / tried


def test_misspelt_names_of_hetionet(shared_data: Path):
    folder = shared_data / "hetionet"
    graph = read(folder / "edges.tsv.gz", labels=folder / "labels.tsv.gz")
    names = [graph.entity_label(i) for i in range(graph.num_entities)]
    assert share_found(names) >= LEAST_FOUND


def test_misspelt_names_of_freebase(shared_data: Path):
    text = (shared_data / "names" / "FB15k_mid2name.txt").read_text(encoding="utf-8")
    names = [line.split("\t")[1] for line in text.splitlines() if "\t" in line]
    assert share_found([*dict.fromkeys(names)]) >= LEAST_FOUND
