"""Missing edges of the best derivation, against a list of all derivations."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.exact import kernels
from betae.exact.kernels import MissingEdgeCounter
from betae.graph.edges import Ragged
from betae.graph.triples import Triples
from betae.queries.ast import PLACEHOLDER, And, Entity, Not, Or, Project, nodes
from betae.queries.rewrite import num_edges
from betae.queries.structures import STRUCTURES, fill, is_placeholder, structure_of
from betae.querysets.query_set import SET_EDGES, QueryBlock
from betae.querysets.sample import sample_queries
from tests.queries.oracle import edges_of, slow_answers
from tests.queries.strategies import examples, graphs, trees

_1p = STRUCTURES["1p"]
_2p = STRUCTURES["2p"]
CUSTOM = {  # structures, and the most edges of a derivation
    "bare entity": (Entity(PLACEHOLDER), 0),
    "4p": (_2p[PLACEHOLDER][PLACEHOLDER], 4),
    "fixed entity": (Entity(3)[PLACEHOLDER] & _1p, 2),
    "fixed relation": (_1p[1], 2),
    "fixed like a column": (Entity(0)[1] & _1p, 2),
    "all fixed": (Entity(2)[0][1], 2),
    "union of unequal": (_2p[PLACEHOLDER] | _1p | Entity(1)[PLACEHOLDER], 3),
    "nested": (((_1p | Entity(2)[PLACEHOLDER])[PLACEHOLDER] & ~(_2p & ~_1p))[PLACEHOLDER], 4),
    "up-i": ((_1p | _2p)[PLACEHOLDER] & _1p, 4),
    "complement of a path of one": (_1p & ~((_1p & ~_1p)[PLACEHOLDER]), 1),
    "projected complement": ((~_1p)[PLACEHOLDER], 1),
    "De Morgan of three": (~(~_1p & ~_2p & _1p), 2),
}
ALL = {**STRUCTURES, **{name: structure for name, (structure, _) in CUSTOM.items()}}


def random_graph(seed, num_entities=7, num_relations=2, num_edges=36):
    """Edges of all splits alike."""
    random = np.random.default_rng(seed)
    highs = [num_entities, num_relations, num_entities]
    edges = np.unique(random.integers(highs, size=(num_edges, 3), dtype=np.int32), axis=0)
    into = random.integers(3, size=len(edges))
    splits = {split: edges[into == number] for number, split in enumerate(SET_EDGES)}
    names = [f"e{number}" for number in range(num_entities)]
    return KnowledgeGraph.from_triples(
        Triples(names, [f"r{number}" for number in range(num_relations)], splits)
    )


def random_block(graph, structure, split, seed, count=20):
    """Random symbols with the hard answers that they happen to have."""
    limits = [
        graph.num_entities if isinstance(node, Entity) else graph.num_relations
        for node in nodes(structure)
        if is_placeholder(node)
    ]
    random = np.random.default_rng(seed)
    symbols = random.integers(limits, size=(count, len(limits)), dtype=np.int32)
    easy, hard = [], []
    for row in symbols.tolist():
        less, more = (slow_answers(graph, fill(structure, row), v) for v in SET_EDGES[split])
        easy.append(sorted(less))
        hard.append(sorted(more - less))
    return QueryBlock(structure, symbols, Ragged.from_rows(easy), Ragged.from_rows(hard))


def fewest_missing(graph, block, split):
    """Try every entity for every variable: the least number of missing edges of each answer."""
    smaller, larger = (edges_of(graph, edges) for edges in SET_EDGES[split])

    def costs(query, entity):
        match query:
            case Entity(name):
                yield from [0] * (name == entity)
            case Project(operand, relation):
                for source in range(graph.num_entities):
                    head, tail = (source, entity) if relation % 2 == 0 else (entity, source)
                    edge = (head, relation // 2, tail)
                    if edge in larger:
                        yield from (cost + (edge not in smaller) for cost in costs(operand, source))
            case And():
                yield from map(sum, product(*(costs(part, entity) for part in query.operands)))
            case Or():
                for part in query.operands:
                    yield from costs(part, entity)
            case Not(And(operands=parts)):
                yield from costs(Or(*map(Not, parts)), entity)
            case Not(Or(operands=parts)):
                yield from costs(And(*map(Not, parts)), entity)
            case Not(Not(operand)):
                yield from costs(operand, entity)
            case Not(operand):
                yield from [0] * (entity not in slow_answers(graph, operand, SET_EDGES[split][1]))

    return [
        min(costs(block.query(row), entity))
        for row in range(len(block))
        for entity in block.hard[row].tolist()
    ]


def missing(graph, block, split):
    smaller, larger = (graph.adjacency(edges) for edges in SET_EDGES[split])
    counter = MissingEdgeCounter(smaller, larger, block.structure)
    return counter.count(block.symbols, block.hard)


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("name", ALL)
def test_the_fewest_of_all_derivations(name, split, monkeypatch):
    monkeypatch.setattr(kernels, "COST_BATCH", 7)  # several threads
    structure, seen = ALL[name], []
    for seed in range(3):
        graph = random_graph(seed)
        block = random_block(graph, structure, split, seed)
        found = missing(graph, block, split).tolist()
        assert found == fewest_missing(graph, block, split)
        seen += found
    assert max(seen, default=0) <= num_edges(structure)
    if num_edges(structure) > 1:
        assert set(seen) >= {1, 2}


def test_every_hard_answer_misses_an_edge():
    graph = random_graph(0, num_entities=30, num_relations=3, num_edges=150)
    queries = sample_queries(graph, dict.fromkeys(STRUCTURES, 30), "test")
    for name, block in queries.blocks.items():
        found = missing(graph, block, "test")
        assert len(found) == len(block.hard.values) > 0, name
        assert found.min() >= 1, name
        assert found.max() <= num_edges(block.structure), name


@examples(60)
@given(st.data(), graphs(entities=(2, 6), relations=(1, 3), edges=(0, 25)))
def test_any_query_on_any_graph(data, graph):
    """All its names open or all fixed, and for all its answers."""
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=3))
    split = data.draw(st.sampled_from(["valid", "test"]))
    answers = Ragged.from_rows([sorted(slow_answers(graph, query, SET_EDGES[split][1]))])
    for structure, symbols in (structure_of(query), (query, ())):
        table = np.array([symbols], dtype=np.int32)
        block = QueryBlock(structure, table, Ragged.from_rows([[]]), answers)
        assert missing(graph, block, split).tolist() == fewest_missing(graph, block, split)


def test_by_hand():
    #   train 0 -r-> 1, valid 1 -r-> 2, test 0 -r-> 3 and 3 -r-> 2
    edges = {"train": [[0, 0, 1]], "valid": [[1, 0, 2]], "test": [[0, 0, 3], [3, 0, 2]]}
    splits = {split: np.array(each, dtype=np.int32) for split, each in edges.items()}
    graph = KnowledgeGraph.from_triples(Triples(list("abcd"), ["r"], splits))
    symbols = np.array([[0, 0, 0]], dtype=np.int32)
    none, two = Ragged.from_rows([[]]), Ragged.from_rows([[2]])
    paths = QueryBlock(STRUCTURES["2p"], symbols, none, two)
    assert missing(graph, paths, "valid").tolist() == [1]  # 0, 1, 2: the second edge
    assert missing(graph, paths, "test").tolist() == [0]  # 0, 1, 2; not 0, 3, 2 with two
    both = QueryBlock(
        STRUCTURES["2i"],
        np.array([[0, 0, 2, 1]], dtype=np.int32),
        none,
        Ragged.from_rows([[3, 1]]),  # in this order
    )
    assert missing(graph, both, "test").tolist() == [2, 0]


def test_the_edges_of_a_derivation_by_hand():
    expected = {
        **{"1p": 1, "2p": 2, "3p": 3, "2i": 2, "3i": 3, "ip": 3, "pi": 3},
        **{"2in": 1, "3in": 2, "inp": 2, "pin": 2, "pni": 1},
        **{"2u": 1, "up": 2, "2u-DM": 1, "up-DM": 2},
    }
    assert {name: num_edges(structure) for name, structure in STRUCTURES.items()} == expected
    found = {name: num_edges(structure) for name, (structure, _) in CUSTOM.items()}
    assert found == {name: number for name, (_, number) in CUSTOM.items()}


@pytest.mark.parametrize("name", ["1p", "up-DM", "nested"])
def test_no_queries(name):
    block = random_block(random_graph(0), ALL[name], "test", 0, count=0)
    assert missing(random_graph(0), block, "test").tolist() == []
