"""Relations used the wrong way round."""

import pytest

from betae.exact.direction import hint_of_direction
from betae.queries.ast import Entity


@pytest.mark.parametrize(
    ("question", "hint"),
    [
        (
            "?X . lives_in(Oslo, ?X)",
            "Oslo is never a head of lives_in, only a tail: write lives_in(?X, Oslo), or "
            "~lives_in(Oslo, ?X).",
        ),
        (
            "?X . lives_in(?X, 'Ann Lee')",
            "Ann Lee is never a tail of lives_in, only a head: write lives_in(ann, ?X).",
        ),
        (Entity("Oslo")["lives_in"], "Oslo is never a head of lives_in, only a tail: write "),
        ("SELECT ?x { <Oslo> <lives_in> ?x }", "Oslo is never a head of lives_in"),
        (
            "?X . exists ?V : parent(bob, ?V) & lives_in(?X, ?V)",
            "What a step starts from is never among the tails of lives_in, only among the heads: "
            "write lives_in(?V, ?X).",
        ),
        ("?X, ?Y . lives_in(Oslo, ?X) & parent(?X, ?Y)", "Oslo is never a head of lives_in"),
        ("?X, ?Y . parent(?X, ?Y) & lives_in(?X, bob)", "Bob Lee is never a tail of lives_in"),
        ("?X . lives_in(ann, ?X) & lives_in(dan, ?X)", None),  # there is none, either way
        ("?X . parent(Oslo, ?X)", None),
        ("?X . !lives_in(?X, Oslo) & in(?X, Norway) & in(?X, Peru)", None),
    ],
)
def test_the_hint(toy_graph, question, hint):
    found = hint_of_direction(toy_graph, question)
    assert (found is None) if hint is None else (hint in found)


def test_the_edges_count(toy_graph):
    assert "never a head" in hint_of_direction(toy_graph, "?X . friend(fay, ?X)", "train+valid")
    assert hint_of_direction(toy_graph, "?X . friend(fay, ?X)", "train") is None
