"""Long and deep queries: time linear in the length, and a clear refusal instead of a crash."""

import copy
import pickle
import sys
from contextlib import nullcontext, suppress
from itertools import pairwise
from time import perf_counter

import pytest

from betae.cli.show import draw_tree, with_exact_answers
from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.exact.answers import answers, answers_batch, refuted
from betae.exact.derivations import num_edges
from betae.models.plan import plans
from betae.queries import formula
from betae.queries.ast import MAX_DEPTH, Entity, nodes
from betae.queries.names import resolve, unresolve
from betae.queries.rewrite import dnf_branches, explain_negation, simplify, to_de_morgan, to_dnf
from betae.queries.sparql import parse_sparql
from betae.queries.structures import columns_of, fill, from_tuple, name_of, structure_of, to_tuple
from betae.queries.syntax import parse

FRAMES = 750  # of the 1,000 that Python allows; the rest is left to the caller
TOO_DEEP = f"more than {MAX_DEPTH} operators deep"


def chain(hops):
    """A path of so many hops, all variables bound at once."""
    variables = [f"?V{number}" for number in range(1, hops)]
    names = ["ann", *variables, "?X"]
    atoms = [f"parent({head}, {tail})" for head, tail in pairwise(names)]
    return f"?X . exists {', '.join(variables)} : {' & '.join(atoms)}"


def star(branches):
    """So many paths of two hops that meet in the target."""
    variables = [f"?V{number}" for number in range(branches)]
    atoms = [f"parent(e{i}, {v}) & friend({v}, ?X)" for i, v in enumerate(variables)]
    return f"?X . exists {', '.join(variables)} : {' & '.join(atoms)}"


def negations(number):
    """So many negated atoms."""
    return "?X . " + " & ".join(f"!parent(e{i}, ?X)" for i in range(number))


def siblings(number):
    """So many quantifiers beside one another."""
    part = "(exists ?V : parent(ann, ?V) & friend(?V, ?X))"
    return "?X . " + " | ".join([part] * number)


# ---- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "size"), [(chain, 100), (star, 500), (negations, 500), (siblings, 500)]
)
def test_twice_the_length_takes_at_most_thrice_the_calls(write, size):
    def num_calls(text):
        calls = 0

        def count(_, event, __):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            parse(text)
        finally:
            sys.setprofile(None)
        return calls

    parse(write(2))  # makes the parser
    once, twice = num_calls(write(size)), num_calls(write(2 * size))
    assert size < once < twice < 3 * once


def test_long_queries_are_read_in_time():
    started = perf_counter()
    assert parse(chain(MAX_DEPTH)).depth == MAX_DEPTH  # 11 s when it was quadratic and worse
    assert len(parse(star(1000)).operands) == 1000
    assert perf_counter() - started < 5


# ---- depth: refused ---------------------------------------------------------------------------

TOO_DEEP_TEXTS = {
    "negations": "?X . " + "!" * 5000 + "parent(ann, ?X)",
    "negations of groups": "?X . " + "!(" * 5000 + "parent(ann, ?X)" + ")" * 5000,
    "hops": chain(MAX_DEPTH + 1),
    "many hops": chain(4000),
    "quantifiers": "?X . exists ?V0 : r(?V0, ?X) & "
    + "".join(f"exists ?V{i + 1} : r(?V{i + 1}, ?V{i}) & " for i in range(3000))
    + "r(a, ?V3000)",
    "and, or": "?X . " + "(r(a, ?X) & (r(b, ?X) | " * 1000 + "r(c, ?X)" + "))" * 1000,
}


@pytest.mark.parametrize("name", TOO_DEEP_TEXTS)
def test_text_that_is_too_deep(name, toy_graph):
    with pytest.raises(UnsupportedQuery, match=TOO_DEEP):
        parse(TOO_DEEP_TEXTS[name])
    with pytest.raises(UnsupportedQuery, match=TOO_DEEP):
        answers(toy_graph, TOO_DEEP_TEXTS[name])


def test_parentheses_are_no_operators():
    for number in (5000, 100_000):
        text = "?X . " + "(" * number + "r(a, ?X)" + ")" * number
        assert parse(text) == Entity("a")["r"]
    with pytest.raises(QuerySyntaxError, match="end of the text"):
        parse(text[:-1])


TOO_DEEP_SPARQL = {
    "groups": "{" * 3000 + ":a :r ?x" + "}" * 3000,
    "filters": ":a :r ?x " + "FILTER NOT EXISTS { :a :r ?x " * 3000 + "}" * 3000,
    "inverses": ":a " + "(^" * 3000 + ":r" + ")" * 3000 + " ?x",
    "steps": ":a " + "/".join([":r"] * (MAX_DEPTH + 1)) + " ?x",
    "triples": " . ".join(["?x :r :a", *(f"?v{i} :r ?v{i + 1}" for i in range(3000))]),
    "blank nodes": "?x :r " + "[ :r " * 3000 + ":a" + "]" * 3000,
}


@pytest.mark.parametrize("name", TOO_DEEP_SPARQL)
def test_sparql_that_is_too_deep(name, toy_graph):
    text = f"PREFIX : <> SELECT ?x {{ {TOO_DEEP_SPARQL[name]} }}"
    with pytest.raises(UnsupportedQuery, match="deep"):
        parse_sparql(text)
    with pytest.raises(UnsupportedQuery, match="deep"):
        answers_batch(toy_graph, [text])


def test_tuples_that_are_too_deep():
    nested = 1
    for _ in range(5000):
        nested = (nested, (1, (2,)))
    for wrong in (nested, (1, (2,) * 5000), (1, (-2,) * 5000)):
        with pytest.raises(UnsupportedQuery, match=TOO_DEEP):
            from_tuple(wrong)


# ---- depth: allowed ---------------------------------------------------------------------------


def deepest(*steps):
    """The deepest tree that repeats these steps."""
    query = Entity(0)
    while query.depth + len(steps) <= MAX_DEPTH:
        for step in steps:
            query = step(query)
    return query


DEEPEST = {
    "hops": deepest(lambda q: q[0]),
    "negations": deepest(lambda q: ~q),
    "and, or": deepest(lambda q: q & Entity(1)[0], lambda q: q | Entity(2)[0]),
    "or, and": deepest(lambda q: Entity(2)[0] | q, lambda q: Entity(1)[0] & q),
    "not, or": deepest(lambda q: ~q, lambda q: q | Entity(1)[0]),
    "not, hop": deepest(lambda q: ~q, lambda q: q[0]),
    "or, hop": deepest(lambda q: q | Entity(1), lambda q: q[0]),
    "and, hop": deepest(lambda q: q & Entity(1)[2], lambda q: q[0]),
    "not, and, hop": deepest(lambda q: ~q, lambda q: q & Entity(1)[2], lambda q: q[0]),
}
USES = {
    "equality": lambda graph, query: fill(*structure_of(query)) == query,
    "copies": lambda graph, query: copy.deepcopy(query),
    "hash": lambda graph, query: hash(query),
    "repr": lambda graph, query: repr(query),
    "pickle": lambda graph, query: pickle.loads(pickle.dumps(query)),
    "nodes": lambda graph, query: list(nodes(query)),
    "text": lambda graph, query: str(query),
    "there and back": lambda graph, query: parse(str(query)),
    "names": lambda graph, query: resolve(unresolve(query, graph), graph),
    "structure": lambda graph, query: fill(*structure_of(query)),
    "name of the structure": lambda graph, query: name_of(structure_of(query)[0]),
    "columns": lambda graph, query: columns_of(query),
    "tuples": lambda graph, query: from_tuple(to_tuple(query)),
    "simplify": lambda graph, query: simplify(query),
    "De Morgan form": lambda graph, query: to_de_morgan(query),
    "normal form": lambda graph, query: to_dnf(query),
    "branches": lambda graph, query: dnf_branches(query),
    "note on negation": lambda graph, query: explain_negation(query),
    "answers": lambda graph, query: answers(graph, query),
    "refuted": lambda graph, query: refuted(graph, query),
    "edges of a derivation": lambda graph, query: num_edges(query),
    "plans, DNF": lambda graph, query: plans(structure_of(query)[0], "DNF"),
    "plans, DM": lambda graph, query: plans(structure_of(query)[0], "DM"),
    "drawing": lambda graph, query: draw_tree(unresolve(query, graph), with_exact_answers(graph)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("shape", DEEPEST)
def test_the_deepest_trees_are_not_too_deep_for_any_function(use, shape, toy_graph):
    USES[use](toy_graph, Entity(0)[0] & Entity(1)[0])  # compiled and loaded before
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + FRAMES)
    # A normal form may be deeper than the query, or have too many branches.
    may_refuse = "form" in use or use.startswith(("plans", "branches", "note", "edges"))
    try:
        with suppress(UnsupportedQuery) if may_refuse else nullcontext():
            USES[use](toy_graph, DEEPEST[shape])
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("shape", DEEPEST)
def test_the_deepest_trees_read_back(shape):
    assert parse(str(DEEPEST[shape])) == DEEPEST[shape]
    assert fill(*structure_of(DEEPEST[shape])) == DEEPEST[shape]


def test_the_deepest_trees_are_deep():
    assert all(MAX_DEPTH - 2 <= query.depth <= MAX_DEPTH for query in DEEPEST.values())
    assert formula.MAX_NESTING > MAX_DEPTH
