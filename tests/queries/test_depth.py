"""Long and deep queries: time linear in the length, and a clear refusal instead of a crash."""

import copy
import pickle
import sys
from contextlib import nullcontext, suppress
from itertools import pairwise
from time import perf_counter

import pytest

from betae.cli.show import draw_tree
from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.exact.answers import answers, answers_batch, refuted
from betae.models.execute import plans
from betae.queries import formula
from betae.queries.ast import MAX_DEPTH, Entity
from betae.queries.read import resolve, unresolve
from betae.queries.rewrite import explain_negation, num_edges, simplify, to_de_morgan
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
    ("write", "size"), [(chain, 100), (star, 150), (negations, 150), (siblings, 150)]
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
    "many hops": chain(1000),
    "quantifiers": "?X . exists ?V0 : r(?V0, ?X) & "
    + "".join(f"exists ?V{i + 1} : r(?V{i + 1}, ?V{i}) & " for i in range(1000))
    + "r(a, ?V1000)",
    "and, or": "?X . " + "(r(a, ?X) & (r(b, ?X) | " * 1000 + "r(c, ?X)" + "))" * 1000,
}


@pytest.mark.parametrize("name", TOO_DEEP_TEXTS)
def test_text_that_is_too_deep(name, toy_graph):
    with pytest.raises(UnsupportedQuery, match=TOO_DEEP):
        parse(TOO_DEEP_TEXTS[name])
    with pytest.raises(UnsupportedQuery, match=TOO_DEEP):
        answers(toy_graph, TOO_DEEP_TEXTS[name])


def test_parentheses_are_no_operators():
    text = "?X . " + "(" * 20_000 + "r(a, ?X)" + ")" * 20_000
    assert parse(text) == Entity("a")["r"]
    with pytest.raises(QuerySyntaxError, match="end of the text"):
        parse(text[:-1])


TOO_DEEP_SPARQL = {
    "groups": "{" * 3000 + ":ann :parent ?x" + "}" * 3000,
    "filters": ":ann :parent ?x " + "FILTER NOT EXISTS { :ann :parent ?x " * 3000 + "}" * 3000,
    "inverses": ":ann " + "(^" * 3000 + ":parent" + ")" * 3000 + " ?x",
    "steps": ":ann " + "/".join([":parent"] * (MAX_DEPTH + 1)) + " ?x",
    "triples": " . ".join(["?x :parent :ann", *(f"?v{i} :parent ?v{i + 1}" for i in range(3000))]),
    "blank nodes": "?x :parent " + "[ :parent " * 3000 + ":ann" + "]" * 3000,
}


@pytest.mark.parametrize("name", TOO_DEEP_SPARQL)
def test_sparql_that_is_too_deep(name, toy_graph):
    text = f"PREFIX : <> SELECT ?x {{ {TOO_DEEP_SPARQL[name]} }}"
    with pytest.raises(UnsupportedQuery, match="deep"):
        assert parse_sparql(text).tree
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
    "copies": lambda graph, query: copy.deepcopy(query),
    "repr": lambda graph, query: repr(query),
    "pickle": lambda graph, query: pickle.loads(pickle.dumps(query)),
    "there and back": lambda graph, query: parse(str(query)),
    "names": lambda graph, query: resolve(unresolve(query, graph), graph),
    "structure": lambda graph, query: fill(*structure_of(query)),
    "name of the structure": lambda graph, query: name_of(structure_of(query)[0]),
    "columns": lambda graph, query: columns_of(query),
    "tuples": lambda graph, query: from_tuple(to_tuple(query)),
    "simplify": lambda graph, query: simplify(query),
    "De Morgan form": lambda graph, query: to_de_morgan(query),
    "note on negation": lambda graph, query: explain_negation(query),
    "answers": lambda graph, query: answers(graph, query),
    "refuted": lambda graph, query: refuted(graph, [query])[0],
    "edges of a derivation": lambda graph, query: num_edges(query),
    "plans, DNF": lambda graph, query: plans(structure_of(query)[0], "DNF"),
    "plans, DM": lambda graph, query: plans(structure_of(query)[0], "DM"),
    "drawing": lambda graph, query: draw_tree(unresolve(query, graph)),
}
SAME = ("copies", "pickle", "there and back", "names", "structure", "tuples")


@pytest.mark.parametrize("use", USES)
def test_the_deepest_trees_are_not_too_deep_for_any_function(use, toy_graph):
    USES[use](toy_graph, Entity(0)[0] & Entity(1)[0])  # compiled and loaded before
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + FRAMES)
    # A normal form may be deeper than the query, or have too many branches.
    may_refuse = "form" in use or use.startswith(("plans", "note", "edges", "refuted"))
    try:
        for query in DEEPEST.values():
            with suppress(UnsupportedQuery) if may_refuse else nullcontext():
                found = USES[use](toy_graph, query)
                assert use not in SAME or found == query
    finally:
        sys.setrecursionlimit(limit)


def test_the_deepest_trees_are_deep():
    assert all(MAX_DEPTH - 2 <= query.depth <= MAX_DEPTH for query in DEEPEST.values())
    assert formula.MAX_NESTING > MAX_DEPTH
