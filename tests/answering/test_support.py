"""In how many ways the facts make an entity an answer, and the order it gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.answering.identities import apply_identities
from betae.answering.results import as_shown
from betae.answering.support import MOST_WAYS, count_ways
from betae.exact.answers import answers
from betae.graph.triples import Triples
from betae.queries.ast import Entity, Not, Or, Project
from tests.answering.helpers import answerer_by, completed_graph, edge_weights, exact
from tests.queries.oracle import edges_of
from tests.queries.strategies import edge_choices, examples, graphs, trees


def slow_ways(query, edges, entity, num_entities):
    """Fill every variable with every entity, and count what holds."""
    match query:
        case Entity(name):
            return int(name == entity)
        case Project(operand, relation):
            total = 0
            for source in range(num_entities):
                edge = (source, relation // 2, entity)
                if relation % 2:
                    edge = edge[::-1]
                if edge in edges:
                    total += slow_ways(operand, edges, source, num_entities)
            return total
        case Not(operand):
            return int(slow_ways(operand, edges, entity, num_entities) == 0)
    numbers = [slow_ways(part, edges, entity, num_entities) for part in query.operands]
    return sum(numbers) if isinstance(query, Or) else int(np.prod(numbers))


@examples(150)
@given(st.data())
def test_ways_are_counted_as_by_trying_all(data):
    graph = data.draw(graphs(entities=(2, 5), relations=(1, 2), edges=(0, 14)))
    edges = data.draw(edge_choices)
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    found = count_ways(graph.adjacency(edges), query)
    same, triples = apply_identities(query), edges_of(graph, edges)
    everyone = range(graph.num_entities)
    expected = [slow_ways(same, triples, each, graph.num_entities) for each in everyone]
    assert found.to(np.arange(graph.num_entities)).tolist() == expected


@examples(150)
@given(st.data())
def test_an_entity_is_an_answer_if_there_is_a_way(data):
    graph, edges = data.draw(graphs()), data.draw(edge_choices)
    query = data.draw(trees(graph.num_entities, graph.num_relations))
    found = count_ways(graph.adjacency(edges), query)
    assert found.ids.tolist() == answers(graph, query, edges).tolist()
    assert (found.numbers >= 1).all()


def graph_of(*triples):
    """A graph of edges by name, all of them training edges."""
    entities = sorted({name for head, _, tail in triples for name in (head, tail)})
    relations = sorted({relation for _, relation, _ in triples})
    rows = [(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in triples]
    nothing = np.empty((0, 3), dtype=np.int32)
    splits = {"train": np.array(rows, dtype=np.int32), "valid": nothing, "test": nothing}
    return KnowledgeGraph.from_triples(Triples(entities, relations, splits))


def test_very_many_ways_are_still_a_number():
    """A chain of hubs: each step has twenty times as many ways."""
    triples = [(f"a{i}", "r", f"a{j}") for i in range(20) for j in range(20)]
    graph = graph_of(*triples)
    query = Entity(0)
    for _ in range(199):
        query = Project(query, 0)
    assert (count_ways(graph.adjacency("all"), query).numbers == MOST_WAYS).all()
    assert exact(graph).answer(Project(Project(Entity(0), 0), 0))[0].num_derivations == 20


@pytest.fixture
def medicine():
    """Drug d3 binds three genes of the disease, d1 one; d0 is not known to bind any."""
    binds = {"d1": "g1", "d2": "g1 g2", "d3": "g1 g2 g3", "d0": "g9"}
    edges = [(drug, "binds", gene) for drug, genes in binds.items() for gene in genes.split()]
    edges += [(gene, "causes", "sick") for gene in ("g1", "g2", "g3")]
    return graph_of(*edges, ("d1", "harms", "liver"), ("d9", "harms", "sick"))


DRUGS = "?X . exists ?G : binds(?X, ?G) & causes(?G, sick)"


def test_equally_sure_facts_are_ordered_by_their_number_of_derivations(medicine):
    found = exact(medicine).answer(DRUGS, status="known")
    assert [answer.entity for answer in found] == ["d3", "d2", "d1"]
    assert [answer.num_derivations for answer in found] == [3, 2, 1]
    assert [answer.rank for answer in found] == [1, 2, 3]
    assert found.to_polars()["num_derivations"].to_list() == [3, 2, 1]
    header, first, *_ = repr(found).splitlines()[2:]
    assert header.split() == ["rank", "probability", "status", "derivations", "answer"]
    assert first.split() == ["1", "100.0%", "known", "3", "d3"]


def test_assumed_ones_too_if_they_are_shown_as_equally_probable(medicine):
    question = f"{DRUGS} & !harms(?X, liver)"
    for bias, expected in ((-9.0, ["d3", "d2"]), (-0.5, ["d2", "d3"])):
        weights = edge_weights({"symbolic": 0.0}, tail=(0, 0, 0), bias=bias)
        completed = completed_graph(medicine, weights=weights)
        answers = answerer_by(completed, medicine).answer(question, status="assumed")
        assert sorted(answer.entity for answer in answers) == sorted(expected)
        shown = as_shown(np.array([answer.probability for answer in answers]))
        assert [*shown] == sorted(shown, reverse=True)
        assert [answer.entity for answer in answers] == ["d3", "d2"]


def test_one_derivation_each_needs_no_column(medicine):
    assert "derivations" not in repr(exact(medicine).answer("?X . causes(?X, sick)"))


def test_the_order_is_by_probability_where_it_is_shown_to_differ():
    values = np.array([0.99951, 0.9991, 0.999, 0.99849, 0.4444, 1.0])
    assert as_shown(values).tolist() == [1.0, 1.0, 0.999, 0.998, 0.444, 1.0]
