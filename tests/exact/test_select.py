"""All exact answers of questions of any shape: several variables, cycles, paths, any number."""

import subprocess
import sys
from contextlib import suppress
from itertools import product
from random import Random

import numpy as np
import pytest

import betae
from betae.errors import (
    InvalidArgument,
    UnknownEntity,
    UnknownName,
    UnknownRelation,
    UnsupportedQuery,
)
from betae.exact import joins
from betae.exact.answers import answers
from betae.exact.select import hint_of_direction, select
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import Entity
from betae.queries.formula import (
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Negation,
    Variable,
)
from betae.queries.syntax import parse_logic
from tests.exact.differential import compare, random_graph


@pytest.fixture(scope="module")
def world():
    return betae.world()


def rows(graph, question, **options):
    found = select(graph, question, **options)
    return [tuple(row[name] for name in found.variables) for row in found]


# ---- what it finds ------------------------------------------------------------------------------


def test_several_variables(toy_graph):
    assert sorted(rows(toy_graph, "?X, ?Y . parent(?X, ?Y) & lives_in(?Y, Rome)")) == [
        ("bob", "dan"),
        ("bob", "eve"),
    ]
    assert sorted(rows(toy_graph, "?Y ?X . parent(?X, ?Y) & lives_in(?Y, Rome)"))[0] == (
        "dan",
        "bob",
    )


def test_a_cycle(toy_graph):
    text = "?X, ?Y, ?Z . parent(?X, ?Y) & parent(?Y, ?Z) & parent(?Z, ?X)"
    assert sorted(rows(toy_graph, text)) == [
        ("ann", "cat", "fay"),
        ("cat", "fay", "ann"),
        ("fay", "ann", "cat"),
    ]
    assert rows(toy_graph, text, edges="train") == []
    one = "SELECT ?x { ?x <parent> ?y . ?y <parent> ?z . ?z <parent> ?x }"
    assert sorted(rows(toy_graph, one)) == [("ann",), ("cat",), ("fay",)]


def test_rows_carry_names_and_labels(toy_graph):
    found = select(toy_graph, "?X, ?Y . friend(?X, ?Y)", edges="train")
    assert found.columns == ("X", "X_label", "Y", "Y_label")
    assert list(found) == [{"X": "bob", "X_label": "Bob Lee", "Y": "cat", "Y_label": "Sam"}]
    assert list(found) == list(found)  # from the beginning each time
    assert found.to_polars().rows() == [("bob", "Bob Lee", "cat", "Sam")]
    assert select(toy_graph, "?X . friend(?X, ann)").to_polars().shape == (0, 2)


def test_a_tree_has_the_answers_of_the_compiled_loops(toy_graph):
    for question in (Entity("ann")["parent"], "?X . !parent(ann, ?X)", ~Entity("ann")["parent"]):
        found = [toy_graph.entities[entity] for entity in answers(toy_graph, question)]
        assert [name for (name,) in rows(toy_graph, question)] == found


def test_a_negation_of_rows(toy_graph):
    text = "?X, ?Y . parent(?X, ?Y) & !(exists ?C : lives_in(?X, ?C) & lives_in(?Y, ?C))"
    assert sorted(rows(toy_graph, text, edges="train")) == [
        ("ann", "cat"),
        ("bob", "dan"),
        ("bob", "eve"),
        ("cat", "fay"),
    ]


def test_paths_have_any_length(world):
    chain = [f"n{number}" for number in range(40)]
    edges = np.array([(i, 0, i + 1) for i in range(39)], dtype=np.int32)
    empty = np.empty((0, 3), dtype=np.int32)
    graph = KnowledgeGraph.from_triples(
        Triples(chain, ["next"], {"train": edges, "valid": empty, "test": empty})
    )
    assert len(rows(graph, "SELECT ?x { <n0> <next>+ ?x }")) == 39
    assert len(rows(graph, "SELECT ?x { <n0> <next>* ?x }")) == 40
    assert len(rows(graph, "SELECT ?x { ?x <next>+ <n39> }")) == 39
    assert len(rows(graph, "SELECT * { ?x <next>+ ?y }")) == 40 * 39 / 2
    assert len(rows(graph, "SELECT * { ?x (<next>/<next>)+ ?y . ?y <next> <n39> }")) == 19
    assert len(rows(graph, "SELECT * { ?x <next>+ ?x }")) == 0
    assert len(answers(graph, "SELECT ?x { <n0> <next>+ ?x }")) == 3  # of a tree
    ring = "SELECT ?x { <France> <borders>+ ?x }"
    assert ("France",) in rows(world, ring)


def test_limits(world):
    text = "SELECT ?x ?y { ?x <borders> ?y } LIMIT 7"
    assert len(rows(world, text)) == 7
    assert rows(world, text, limit=3) == rows(world, text)[:3]
    assert len(rows(world, text, limit=300)) == 7
    assert rows(world, text.replace("7", "0")) == []
    assert len(rows(world, "?X . !capital(France, ?X)", limit=5)) == 5


def test_pieces_come_before_all_is_found(world, monkeypatch):
    monkeypatch.setattr(joins, "PIECE_ROWS", 100)
    found = select(world, "?X, ?Y, ?Z . !borders(?X, ?Y) & !borders(?Y, ?Z)")
    first = next(found.ids())
    assert 0 < len(first) <= 100 + world.num_entities


def test_small_pieces_give_the_same(world, monkeypatch):
    texts = [
        "?X, ?Y, ?Z . borders(?X, ?Y) & borders(?Y, ?Z) & borders(?Z, ?X)",
        "?X . exists ?Y, ?Z : borders(?X, ?Y) & borders(?Y, ?Z) & borders(?Z, ?X)",
        "?X, ?Y . (borders(?X, ?Y) | capital(?X, ?Y)) & !borders(France, ?X)",
    ]
    whole = [rows(world, text) for text in texts]
    monkeypatch.setattr(joins, "PIECE_ROWS", 7)
    for text, found in zip(texts, whole, strict=True):
        again = rows(world, text)
        assert sorted(again) == sorted(found)
        assert len(set(again)) == len(again) > 0


# ---- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("?X, ?Y . parent(?X, ?Y) & parent(anna, ?X)", UnknownEntity, "Closest: "),
        ("?X, ?Y . parents(?X, ?Y)", UnknownRelation, "Closest: 'parent'"),
        ("SELECT * { ?x <parent>+ ?y . ?y <parent>* <anna> }", UnknownName, "anna"),
        ("SELECT * { ?x <parents>+ ?y }", UnknownName, "Closest: 'parent'"),
        ("?X, ?Y . _(?X, ?Y)", InvalidArgument, "placeholder"),
        ("?X, ?Y . parent(?X, ?Y) & ?Y = _", InvalidArgument, "placeholder"),
        ("?X . parent(?X, _)", InvalidArgument, "_ is a placeholder"),
        ("?X, ?Y . parent(?X, ?Z)", UnsupportedQuery, "?Z is not bound"),
        ("?X, ?Y . parent(?X, ann)", UnsupportedQuery, "?Y does not occur"),
        ("?X, ?Y . parent(?X, ?Y) & exists ?Z : parent(?X, ?Y)", UnsupportedQuery, "never used"),
        ("?X, ?X_label . parent(?X, ?X_label)", InvalidArgument, "rename ?X_label"),
        ("?X, ?Y . " + "!" * 300 + "parent(?X, ?Y)", UnsupportedQuery, "within one another"),
        ("?X, ?Y . " + "!" * 3000 + "parent(?X, ?Y)", UnsupportedQuery, "deep"),
        (
            "?X, ?Y . " + "(parent(?X, ?Y) & (friend(?X, ?Y) | " * 99 + "?X = ?Y" + "))" * 99,
            UnsupportedQuery,
            "within one another",
        ),
    ],
)
def test_mistakes_are_told_at_once(toy_graph, text, error, words):
    with pytest.raises(error) as caught:
        select(toy_graph, text)
    assert words in str(caught.value)


@pytest.mark.parametrize("options", [{"edges": "valid"}, {"limit": 0}, {"limit": 1.5}])
def test_wrong_options(toy_graph, options):
    with pytest.raises(InvalidArgument):
        select(toy_graph, "?X . parent(ann, ?X)", **options)


def test_deep_and_long_questions(toy_graph):
    nested = "?X, ?Y . " + "!" * 60 + "parent(?X, ?Y)"
    assert sorted(rows(toy_graph, nested)) == sorted(rows(toy_graph, "?X, ?Y . parent(?X, ?Y)"))
    either = "?X, ?Y . " + "(friend(?X, ?Y) & (friend(?X, ?Y) | " * 29
    either += "friend(?X, ?Y)" + "))" * 29
    assert sorted(rows(toy_graph, either)) == sorted(rows(toy_graph, "?X, ?Y . friend(?X, ?Y)"))
    path = " & ".join(f"friend(?V{number}, ?V{number + 1})" for number in range(1000))
    middles = ", ".join(f"?V{number}" for number in range(1, 1000))
    assert rows(toy_graph, f"?V0, ?V1000 . exists {middles} : {path}") == []


def test_nothing_heavy_is_loaded():
    code = """
import sys, betae
from betae.exact.select import select
from betae.graph.graph import KnowledgeGraph
sys.exit(any(name in sys.modules for name in ("torch", "numba", "polars", "pyoxigraph", "scipy")))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- relations used the wrong way round ---------------------------------------------------------


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
            'Ann Lee is never a tail of lives_in, only a head: write lives_in("Ann Lee", ?X).',
        ),
        (Entity("Oslo")["lives_in"], "Oslo is never a head of lives_in, only a tail: write "),
        ("SELECT ?x { <Oslo> <lives_in> ?x }", "Oslo is never a head of lives_in"),
        (
            "?X . exists ?V : parent(bob, ?V) & lives_in(?X, ?V)",
            "This step starts from heads of lives_in, which are never its tails: write "
            "lives_in(?V, ?X).",
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


# ---- against others -----------------------------------------------------------------------------


@pytest.mark.slow
def test_random_sparql_equals_a_sparql_engine():
    sizes = [compare(seed) for seed in range(150)]
    assert sum(size is not None for size in sizes) > 135
    assert sum(bool(size) for size in sizes) > 50


def holds(formula, values, graph, edges):
    """Whether a formula holds, by trying every entity for every variable."""

    def value(term):
        return values[term] if isinstance(term, Variable) else graph.entity_id(term.name)

    match formula:
        case Atom(relation, head, tail):
            inverted = relation.startswith("~")
            number = graph.relation_id(relation.removeprefix("~")) // 2
            ends = (value(tail), value(head)) if inverted else (value(head), value(tail))
            return (ends[0], number, ends[1]) in edges
        case Equals(one, two):
            return value(one) == value(two)
        case Conjunction(parts):
            return all(holds(part, values, graph, edges) for part in parts)
        case Disjunction(parts):
            return any(holds(part, values, graph, edges) for part in parts)
        case Negation(part):
            return not holds(part, values, graph, edges)
        case Exists(variables, part):
            everything = product(range(graph.num_entities), repeat=len(variables))
            return any(
                holds(part, values | dict(zip(variables, row, strict=True)), graph, edges)
                for row in everything
            )
    raise AssertionError(formula)


@pytest.mark.parametrize(
    "formula",
    [
        "parent(?X, ?Y)",
        "!parent(?X, ?Y)",
        "parent(?X, ?Y) & !parent(?Y, ?X)",
        "parent(?X, ?Y) | friend(?X, ?Y)",
        "parent(ann, ?X) | friend(bob, ?Y)",
        "?X = ?Y",
        "?X != ?Y & lives_in(?X, Rome) & lives_in(?Y, Rome)",
        "exists ?Z : parent(?X, ?Z) & parent(?Z, ?Y)",
        "!(exists ?Z : parent(?X, ?Z) & friend(?Z, ?Y)) & parent(?X, ?Y)",
        "parent(?X, ?Y) & parent(ann, bob)",
        "parent(?X, ?Y) & parent(bob, ann)",
        "parent(?X, ?Y) & !(exists ?Z : parent(?Z, ?X))",
        "(exists ?Z : friend(?X, ?Z)) & (exists ?Z : parent(?Z, ?Y)) - parent(?X, ?Y)",
        "?X = ann & (parent(?X, ?Y) | ?Y = ?X)",
        "exists ?Z : (parent(?X, ?Z) | friend(?Z, ?X)) & !(lives_in(?Z, ?Y) | ?Z = ?Y)",
        "!!(parent(?X, ?Y) & !!friend(?X, ?Y)) | in(?X, ?Y)",
    ],
)
def test_logic_means_what_it_says(toy_graph, formula):
    assert_means_what_it_says(toy_graph, f"?X, ?Y . {formula}")


def assert_means_what_it_says(graph, text):
    question = parse_logic(text)
    edges = {tuple(edge) for split in graph.written_ids.values() for edge in split.tolist()}
    everything = product(range(graph.num_entities), repeat=len(question.variables))
    wanted = {
        row
        for row in everything
        if holds(question.formula, dict(zip(question.variables, row, strict=True)), graph, edges)
    }
    found = [tuple(row) for piece in select(graph, text).ids() for row in piece.tolist()]
    assert len(found) == len(set(found)), text
    assert set(found) == wanted, text
    if len(question.variables) == 1:
        assert found == sorted(found)
        with suppress(UnsupportedQuery):  # not every formula is a tree
            assert question.tree is not None
            assert answers(graph, text).tolist() == [entity for (entity,) in found], text
    return len(wanted)


def random_formula(random, free, depth=3):
    """A formula in logic text with variables among `free`, any of which it may leave out."""

    def inner(variables=free):
        return random_formula(random, variables, depth - 1)

    kind = random.randrange(9 if depth else 4)
    if kind < 4:
        terms = [random.choice([*free, *free, f"e{random.randrange(6)}"]) for _ in range(2)]
        if kind == 0 and terms[0].startswith("?"):
            return f"{terms[0]} {random.choice(['=', '!='])} {terms[1]}"
        return f"{random.choice(['', '~'])}r{random.randrange(3)}({', '.join(terms)})"
    if kind == 4:
        return f"!({inner()})"
    if kind == 5:
        return f"({inner()} | {inner()})"
    if kind == 6:
        return f"({inner()} {random.choice('&-')} {inner()})"
    fresh_name = f"?V{len(free)}"
    part = inner([*free, fresh_name])
    bound = f"r0({fresh_name}, {random.choice([*free, 'e1'])})"
    return f"(exists {fresh_name} : {random.choice(['{} & {}', '{} | {}']).format(bound, part)})"


def test_random_logic_of_one_variable_means_what_it_says():
    """First-order logic, a negation under `exists` included, whether it is a tree or not."""
    sizes, num_trees = [], 0
    for seed in range(150):
        random = Random(seed)
        graph, formula = random_graph(random), random_formula(random, ["?X"])
        text = f"?X . r1(e0, ?X) {random.choice('|&')} ({formula})"
        sizes.append(assert_means_what_it_says(graph, text))
        with suppress(UnsupportedQuery):
            num_trees += parse_logic(text).tree is not None
    assert sum(0 < size < 6 for size in sizes) > 55
    assert num_trees > 30


def test_random_logic_means_what_it_says():
    """Two variables, so that no tree can answer it."""
    sizes = []
    for seed in range(100):
        random = Random(seed)
        graph = random_graph(random)
        formula = random_formula(random, ["?X", "?Y"])
        sizes.append(assert_means_what_it_says(graph, f"?X, ?Y . r1(?X, ?Y) | ({formula})"))
        sizes.append(assert_means_what_it_says(graph, f"?X, ?Y . r1(?X, ?Y) & ({formula})"))
    assert sum(0 < size < 36 for size in sizes) > 130
