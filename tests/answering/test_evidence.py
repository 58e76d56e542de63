"""Evidence in words: relations as verbs, paths as sentences, figures that add up."""

import pytest

from betae.answering.evidence import Evidence, Reason, in_words, share, verb

VERBS = [
    ("Compound_treats_Disease", "treats"),
    ("Head_of_State", "has head of state"),
    ("located_in", "is located in"),
    ("in_subregion", "is in subregion"),
    ("member_of", "is member of"),
    ("lives_in", "lives in"),
    ("hosted", "hosted"),
    ("capital", "has capital"),
    ("address", "has address"),
    ("place of birth", "has place of birth"),
    ("isPartOf", "is part of"),
    ("http://x.org/vocabulary#birthPlace", "has birth place"),
    ("schema:director", "has director"),
    ("/film/film/genre", "has genre"),
    ("hasUNCode", "has uncode"),
    ("r0", "has r0"),
    ("s", "s"),
    ("_", "has _"),
    ("/", "has /"),
    ("", "has "),
]
SENTENCES = [
    (["a r b"], "a r b"),
    (["a likes b", "b treats c"], "a likes b, which treats c"),
    (["b likes a", "b treats c"], "b likes a and treats c"),
    (["a binds g", "b binds g", "b treats e"], "a binds g, as b does; b treats e"),
    (["a binds g", "b cuts g"], "a binds g; b cuts g"),
    (["b has a", "b has c"], "b has a and c"),
    (["a is/in b", "c is/in b"], "a is in b; c is in b"),
    (["a r a", "a s b"], "a r a and s b"),
]


@pytest.mark.parametrize(("relation", "expected"), VERBS)
def test_a_relation_is_a_verb(relation, expected):
    assert verb(relation) == expected


@pytest.mark.parametrize(("edges", "expected"), SENTENCES)
def test_a_path_is_a_sentence(edges, expected):
    path = [tuple(each.replace("/", " ") for each in edge.split()) for edge in edges]
    assert in_words(path) == expected


def test_of_two_directions_the_shorter_sentence_is_taken():
    path = [("m", "resembles", "a"), ("a", "treats", "e")]
    assert in_words(path) == in_words(path[::-1]) == "m resembles a, which treats e"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((253, 1834), "14 % of 1,834 cases"),
        ((1, 1), "100 % of 1 case"),
        ((1, 900), "<1 % of 900 cases"),
    ],
)
def test_a_share_has_its_number_of_cases(counts, expected):
    assert share(*counts, "case") == expected


def test_lines_end_with_their_sum():
    reason = Reason("a likes b: holds in 50 % of 2 such cases", "r(x, y) <- s(x, y)", 2.0, 1, 2)
    edge = "a", "r", "b"
    found = Evidence(edge, False, 0.5, -3.25, {"betae": 0.75}, (reason,), 1, 0.5)
    amounts = [float(amount) for amount, _ in found.lines()]
    assert amounts == [2.0, 0.5, 0.75, -3.25, 0.0]
    assert found.lines()[0][1] == reason.text
    assert found.lines()[1][1] == "1 weaker reason"
    assert found.lines()[-1] == ("+0.00", "in all: 50.0%")
    known = Evidence(edge, True, 1.0, -3.25, {}, (reason,), 0, 0.0)
    assert known.lines() == [("", reason.text)]
    assert known.summary() == "a r b: known; other facts that speak for it:"
