import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import InvalidArgument
from betae.exact.answers import answers
from betae.queries.ast import PLACEHOLDER, Entity, Project, nodes
from betae.queries.structures import (
    ANY,
    EPFO,
    NEGATION,
    STRUCTURES,
    TRAINING,
    columns_of,
    fill,
    from_tuple,
    has_negation,
    is_monotone,
    is_placeholder,
    limits_of,
    name_of,
    num_symbols,
    structure_of,
    to_tuple,
)
from betae.queries.syntax import parse
from tests.queries.oracle import slow_answers
from tests.queries.strategies import examples, graphs, trees

OFFICIAL = {  # as the release's code names them
    ("e", ("r",)): "1p",
    ("e", ("r", "r")): "2p",
    ("e", ("r", "r", "r")): "3p",
    (("e", ("r",)), ("e", ("r",))): "2i",
    (("e", ("r",)), ("e", ("r",)), ("e", ("r",))): "3i",
    ((("e", ("r",)), ("e", ("r",))), ("r",)): "ip",
    (("e", ("r", "r")), ("e", ("r",))): "pi",
    (("e", ("r",)), ("e", ("r", "n"))): "2in",
    (("e", ("r",)), ("e", ("r",)), ("e", ("r", "n"))): "3in",
    ((("e", ("r",)), ("e", ("r", "n"))), ("r",)): "inp",
    (("e", ("r", "r")), ("e", ("r", "n"))): "pin",
    (("e", ("r", "r", "n")), ("e", ("r",))): "pni",
    (("e", ("r",)), ("e", ("r",)), ("u",)): "2u",
    ((("e", ("r",)), ("e", ("r",)), ("u",)), ("r",)): "up",
    ((("e", ("r", "n")), ("e", ("r", "n"))), ("n",)): "2u-DM",
    ((("e", ("r", "n")), ("e", ("r", "n"))), ("n", "r")): "up-DM",
}
names = pytest.mark.parametrize("name", STRUCTURES)


# ---- structures and symbols ---------------------------------------------------------------------


@given(trees(9, 6))
def test_a_query_is_its_structure_filled_with_its_symbols(query):
    structure, symbols = structure_of(query)
    assert fill(structure, symbols) == query
    assert len(symbols) == num_symbols(structure)
    leaves_and_steps = [node for node in nodes(structure) if isinstance(node, Entity | Project)]
    assert all(map(is_placeholder, leaves_and_steps))
    assert structure_of(fill(structure, range(len(symbols)))) == (
        structure,
        tuple(range(len(symbols))),
    )


def test_symbols_are_met_from_the_leaves_up():
    query = (Entity(1)[2][3] & ~Entity(4)[5])[6] | Entity(7)
    assert structure_of(query)[1] == (1, 2, 3, 4, 5, 6, 7)


def test_fill_leaves_fixed_names_alone():
    structure = Entity(7)[PLACEHOLDER] & Entity(PLACEHOLDER)[3] & ~Entity(PLACEHOLDER)[PLACEHOLDER]
    assert num_symbols(structure) == 4
    filled = fill(structure, np.array([1, 2, 4, 5], dtype=np.int32))
    assert filled == Entity(7)[1] & Entity(2)[3] & ~Entity(4)[5]


@pytest.mark.parametrize(
    "structure",
    [
        *STRUCTURES.values(),
        Entity(7)[PLACEHOLDER] & ~Entity(PLACEHOLDER)[3],
        (Entity(0)[0] | Entity(PLACEHOLDER)[PLACEHOLDER])[5],
    ],
    ids=str,
)
def test_fixed_names_as_columns(structure):
    symbols = range(7, 7 + num_symbols(structure))
    columns = columns_of(structure)
    assert num_symbols(columns.structure) == len(columns.fixed)
    rows = [symbols, symbols[::-1]]
    expanded = columns.expand(np.array(rows, dtype=np.int32))
    assert expanded.dtype == np.int32
    for row, full in zip(rows, expanded.tolist(), strict=True):
        assert structure_of(fill(structure, row)) == (columns.structure, tuple(full))


@pytest.mark.parametrize(
    "structure",
    [Entity(7)[PLACEHOLDER] & ~Entity(PLACEHOLDER)[3], Entity(PLACEHOLDER), Entity(3)[4]],
    ids=str,
)
def test_no_rows_have_columns_too(structure):
    none = np.empty((0, num_symbols(structure)), dtype=np.int32)
    columns = columns_of(structure)
    assert columns.expand(none).shape == (0, len(columns.fixed))


def test_columns_of_names_that_are_no_ids():
    with pytest.raises(InvalidArgument, match="resolve"):
        columns_of(Entity("Europe")[PLACEHOLDER])


def test_limits_are_those_of_entities_and_relations():
    structure = (Entity(PLACEHOLDER)[PLACEHOLDER] & ~Entity(7)[PLACEHOLDER])[3]
    assert limits_of(structure, 9, 4).tolist() == [9, 4, 4]


@pytest.mark.parametrize("query", [Entity("Europe"), Entity(1)["borders"], ANY[PLACEHOLDER]])
def test_names_are_no_symbols(query):
    with pytest.raises(InvalidArgument, match=r"resolve|placeholder"):
        structure_of(query)


@names
def test_names_and_structures(name):
    structure = STRUCTURES[name]
    assert name_of(structure) == name
    assert parse(str(structure)) == structure
    assert fill(structure, range(num_symbols(structure))) not in STRUCTURES.values()
    filled = fill(structure, range(num_symbols(structure)))
    assert name_of(structure_of(filled)[0]) == name


def test_the_name_of_another_structure_is_its_text():
    structure = Entity(PLACEHOLDER)[PLACEHOLDER][PLACEHOLDER] | Entity(PLACEHOLDER)
    assert parse(name_of(structure)) == structure


def test_the_paper_s_fourteen():
    paper = {*EPFO, *NEGATION}
    assert len(paper) == 14
    assert set(TRAINING) < paper
    assert set(STRUCTURES) == {*paper, "2u-DM", "up-DM"}
    for name, structure in STRUCTURES.items():
        assert has_negation(structure) == (name in NEGATION or name.endswith("DM"))
        assert is_monotone(structure) == (name not in NEGATION)


@examples(60)
@given(st.data())
def test_a_monotone_query_loses_no_answer(data):
    graph = data.draw(graphs())
    query = data.draw(trees(graph.num_entities, graph.num_relations))
    lost = slow_answers(graph, query, "train") - slow_answers(graph, query, "all")
    assert not (lost and is_monotone(query))
    assert is_monotone(query) or has_negation(query)


@pytest.mark.parametrize("name", ["2u", "up"])
def test_the_two_forms_of_a_union(name, toy_graph):
    symbols = [6, 0, 9, 2, 4][: num_symbols(STRUCTURES[name])]
    one, two = (fill(STRUCTURES[form], symbols) for form in (name, f"{name}-DM"))
    assert answers(toy_graph, one, "all").tolist() == answers(toy_graph, two, "all").tolist()


# ---- the release's tuples -----------------------------------------------------------------------


def test_the_official_names():
    assert {nested: name_of(from_tuple(nested)) for nested in OFFICIAL} == OFFICIAL
    assert set(OFFICIAL.values()) == set(STRUCTURES)


@pytest.mark.parametrize("nested", OFFICIAL, ids=OFFICIAL.get)
def test_structures_as_tuples(nested):
    assert to_tuple(from_tuple(nested)) == nested
    assert to_tuple(STRUCTURES[OFFICIAL[nested]]) == nested


def numbered(nested, fresh):
    """Put ids for the letters of a structure, -1 for u and -2 for n, as the release does."""
    if isinstance(nested, tuple):
        return tuple(numbered(part, fresh) for part in nested)
    return {"u": -1, "n": -2}.get(nested) or next(fresh)


@pytest.mark.parametrize("nested", OFFICIAL, ids=OFFICIAL.get)
def test_queries_as_tuples(nested):
    structure = STRUCTURES[OFFICIAL[nested]]
    written = numbered(nested, iter(range(100)))
    query = from_tuple(written)
    assert to_tuple(query) == written
    assert structure_of(query) == (structure, tuple(range(num_symbols(structure))))
    assert query == fill(structure, range(num_symbols(structure)))


def test_the_keys_of_the_release(shared_data):
    with (shared_data / "NELL-betae" / "test-queries.pkl").open("rb") as file:
        queries = pickle.load(file)
    assert {nested: OFFICIAL[nested] for nested in queries} == {
        nested: name_of(from_tuple(nested)) for nested in queries
    }
    assert len(queries) == 16
    for nested, some in queries.items():
        for query in sorted(some)[:20]:
            tree = from_tuple(query)
            assert structure_of(tree)[0] == STRUCTURES[OFFICIAL[nested]]
            assert to_tuple(tree) == query


@examples(100)
@given(trees(9, 6))
def test_random_trees_come_back_from_tuples(query):
    assert from_tuple(to_tuple(query)) == query
    structure, _ = structure_of(query)
    assert from_tuple(to_tuple(structure)) == structure


@pytest.mark.parametrize(
    "nested",
    [(), (1, ()), ("e", ("x",)), "x", None, [1, (2,)], ((1, (2,)),), (1, 2, (3,)), (3, (-1,))],
    ids=repr,
)
def test_what_is_no_tuple_of_the_release(nested):
    with pytest.raises(InvalidArgument):
        from_tuple(nested)


@pytest.mark.parametrize("query", [Entity("Europe")[1], Entity(1)["borders"]])
def test_names_are_not_written_as_tuples(query):
    with pytest.raises(InvalidArgument, match="resolve"):
        to_tuple(query)
