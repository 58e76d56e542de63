"""Mining: bodies, support and cases against paths one by one; stores; odd graphs."""

import numpy as np
import pytest

from betae.errors import StoreError
from betae.exact.kernels import AdjacencyArrays
from betae.graph.edges import Adjacency
from betae.rules import mining, walks
from betae.rules.mining import Neighbours, mine_rules
from betae.rules.rows import RuleRows
from betae.rules.rule_set import NO_STEP, SMOOTHING, RuleSet
from betae.rules.walks import MAX_ENDS, Steps, start_at, take_step
from betae.storage import read_manifest, write_manifest
from tests.rules.slow import SlowGraph
from tests.training.helpers import graph_of, small_graph


def mined(graph, seed=0):
    return mine_rules(graph.adjacency("train"), graph.num_relations, seed)


@pytest.mark.parametrize("seed", range(5))
def test_support_and_cases_are_counted(seed):
    graph = small_graph(seed, num_entities=12, num_edges=60)
    slow, rules = SlowGraph(graph.adjacency("train")), mined(graph)
    assert len(rules) > 20
    for index in range(len(rules)):
        rule = rules.rule(index)
        cases = support = 0
        for head in range(graph.num_entities):
            ends = slow.ends(head, rule.body)
            cases += len(ends)
            support += len(ends.keys() & {*slow.tails[head, rule.relation]})
        assert (rule.support, rule.cases) == (support, cases)
        assert rule.confidence == pytest.approx(support / (cases + SMOOTHING))


def test_no_rule_predicts_an_edge_by_itself():
    graph = small_graph(3)
    rules = mined(graph)
    for index in range(len(rules)):
        rule = rules.rule(index)
        assert rule.body != (rule.relation,)
        assert rule.support <= rule.cases


def test_all_short_bodies_are_found():
    """Each body of one or two steps between the ends of two or more edges, if it is confident."""
    graph = small_graph(1, num_entities=10, num_edges=50)
    slow, rules = SlowGraph(graph.adjacency("train")), mined(graph)
    found = {(rules.rule(i).relation, rules.rule(i).body) for i in range(len(rules))}
    for relation in range(graph.num_relations):
        for body in [(a,) for a in range(6)] + [(a, b) for a in range(6) for b in range(6)]:
            edges = sum(
                len(slow.ends(head, body).keys() & {*slow.tails[head, relation]})
                for head in range(10)
            )
            if edges >= mining.MIN_SUPPORT and body != (relation,):
                assert (relation, body) in found or any(
                    same_ends(slow, relation, body, other) for r, other in found if r == relation
                )


def same_ends(slow, relation, *bodies):
    """Whether bodies lead from each head of a relation to the same ends."""
    heads = [head for head in range(slow.num_entities) if slow.tails[head, relation]]
    one, other = ([slow.ends(head, body).keys() for head in heads] for body in bodies)
    return one == other


def test_of_rules_that_say_the_same_the_most_confident_is_kept(monkeypatch):
    """Two relations with the same edges: a body over the one is a body over the other."""
    edges = small_graph(5, num_entities=15, num_edges=80).written_ids["train"]
    twin = edges[edges[:, 1] == 0] + np.array([0, 3, 0], dtype=np.int32)
    graph = graph_of([*edges.tolist(), *twin.tolist()], (), 15, 4)
    slow, rules = SlowGraph(graph.adjacency("train")), mined(graph)
    monkeypatch.setattr(mining, "MIN_COMPARED", 10**9)
    everything = mined(graph)
    assert len(rules) < 0.8 * len(everything)
    kept = [rules.rule(i) for i in range(len(rules))]
    assert {(rule.relation, rule.body) for rule in kept if len(rule.body) > 1}
    for rule in map(everything.rule, range(len(everything))):
        if rule not in kept:
            alike = [
                other
                for other in kept
                if other.relation == rule.relation
                and same_ends(slow, rule.relation, rule.body, other.body)
            ]
            assert len(alike) == 1
            assert alike[0].confidence >= rule.confidence


def test_the_same_rules_whatever_the_number_of_threads(monkeypatch):
    graph = small_graph(2, num_entities=40, num_edges=300)
    together = mined(graph)
    monkeypatch.setattr("betae.parallel.num_threads", lambda: 1)
    alone, other = mined(graph), mined(graph, seed=1)
    for name in ("offsets", "bodies", "support", "cases"):
        assert np.array_equal(getattr(together, name), getattr(alone, name))
    assert other.num_relations == alone.num_relations


def test_a_rule_leads_to_the_answers_of_its_body():
    """As a question with distinct variables, answered by the joins."""
    graph = small_graph(4, num_entities=15, num_edges=70)
    slow, rules = SlowGraph(graph.adjacency("train")), mined(graph)
    for index in range(0, len(rules), 7):
        rule = rules.rule(index)
        names = [*["?X", "?Z", "?W"][: len(rule.body)], "?Y"]
        atoms = []
        for step, one, other in zip(rule.body, names, names[1:], strict=False):
            head, tail = (one, other) if step % 2 == 0 else (other, one)
            atoms.append(f"{graph.relations[step // 2]}({head}, {tail})")
        unequal = [f"{a} != {b}" for i, a in enumerate(names) for b in names[i + 1 :]]
        inner = names[1:-1]
        exists = f"exists {', '.join(inner)} : " if inner else ""
        text = f"?X, ?Y . {exists}{' & '.join([*atoms, *unequal])}"
        found = {(row["X"], row["Y"]) for row in graph.select(text, edges="train")}
        name = graph.entities
        expected = {(name[h], name[t]) for h in range(15) for t in slow.ends(h, rule.body)}
        assert found == expected


# ---- stores -------------------------------------------------------------------------------------


def test_rules_are_kept(tmp_path):
    rules = mined(small_graph())
    rules.save(tmp_path / "rules", "of a graph", 9)
    found = RuleSet.open(tmp_path / "rules")
    assert [found.rule(i) for i in range(len(found))] == [rules.rule(i) for i in range(len(rules))]
    confidence = [rule.confidence for rule in found.best()]
    assert confidence == sorted(confidence, reverse=True)
    assert {rule.relation % 2 for rule in found.best()} == {0}


DAMAGE = {
    "offsets": lambda rules: {"offsets": rules.offsets[::-1]},
    "counts": lambda rules: {"support": rules.cases + 1},
    "steps": lambda rules: {"bodies": rules.bodies + rules.num_relations},
    "types": lambda rules: {"bodies": rules.bodies.astype(np.int64)},
    "nothing": lambda rules: {"cases": rules.cases[:0]},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_crafted_rules_are_refused(damage, tmp_path):
    rules = mined(small_graph())
    RuleSet(**{**vars(rules), **DAMAGE[damage](rules)}).save(tmp_path / "rules", "", 0)
    with pytest.raises(StoreError, match="damaged"):
        RuleSet.open(tmp_path / "rules")


def test_a_missing_part_is_named(tmp_path):
    mined(small_graph()).save(tmp_path / "rules", "", 0)
    manifest = read_manifest(tmp_path / "rules", "rules")
    (tmp_path / "rules" / "cases.npy").unlink()
    (tmp_path / "rules" / "manifest.json").unlink()
    write_manifest(tmp_path / "rules", "rules", {"graph": manifest["graph"]})
    with pytest.raises(StoreError, match="cases"):
        RuleSet.open(tmp_path / "rules")


def test_a_rule_in_words():
    graph = small_graph()
    rules = RuleSet.of(
        np.array([1], np.int32),
        np.array([[0, 3, NO_STEP]], np.int32),
        np.array([2]),
        np.array([4]),
        graph.num_relations,
    )
    first, second = graph.relations[0], graph.relations[1]
    assert rules.rule(0).text(graph) == f"{first}(y, x) <- {first}(x, z), {second}(y, z)"


# ---- odd graphs ---------------------------------------------------------------------------------

ODD = {
    "one edge": [[0, 0, 1]],
    "loops": [[i, 0, i] for i in range(5)],
    "no edges": np.empty((0, 3), int),
    "one relation": [[i, 0, j] for i in range(4) for j in range(4)],
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_graphs(kind):
    triples = np.array(ODD[kind], dtype=np.int32)
    rules = mine_rules(Adjacency.from_triples(triples, 6, 1), 2)
    assert bool(len(rules)) == (kind == "one relation")


class CountedReads:
    """An array that counts how many of its numbers are read."""

    def __init__(self, array):
        self.array, self.reads = array, 0

    def __getitem__(self, index):
        self.reads += 1
        return self.array[index]


def star(num_edges):
    """A hub, entity 0, with an edge to each other entity."""
    tails = np.arange(1, num_edges + 1, dtype=np.int32)
    triples = np.column_stack([np.zeros_like(tails), np.zeros_like(tails), tails])
    return Adjacency.from_triples(triples, num_edges + 1, 1)


@pytest.fixture
def interpreted(monkeypatch):
    """Walks as plain Python, so that what they read can be counted."""
    for name in ("find_pair", "_find_ways_back", "_is_tail"):
        monkeypatch.setattr(walks, name, getattr(walks, name).py_func)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("start", [0, 1])
def test_steps_from_a_hub_read_no_more_edges_than_their_limit(start):
    reads = []
    for num_edges in (20_000, 80_000):
        arrays = AdjacencyArrays.of(star(num_edges))
        tails = CountedReads(arrays.tails)
        steps = Steps.of(num_edges + 1)
        start_at.py_func(steps, start)
        for depth, relation in enumerate([start, 1 - start, start], start=1):
            take_step.py_func(arrays._replace(tails=tails), steps, depth, relation)
        assert steps.sizes[1] == (1 if start else min(num_edges, mining_limit(num_edges)))
        reads.append(tails.reads)
    assert max(reads) < 2 * MAX_ENDS
    assert reads[1] <= 1.1 * reads[0]


def mining_limit(num_edges):
    """How many of a hub's edges a first step follows."""
    return -(-num_edges // (1 + (num_edges - 1) // MAX_ENDS))


def test_bodies_between_the_ends_of_a_hub_s_edges_are_searched_in_bounded_time():
    reads = []
    for num_edges in (20_000, 80_000):
        neighbours = Neighbours.of(star(num_edges))
        tails = CountedReads(neighbours.tails)
        counted = neighbours._replace(tails=tails)
        index = np.full(num_edges + 1, -1, dtype=np.int64)
        edges = np.array([[0, 1], [1, 0]], dtype=np.int32)
        mining._bodies_between.py_func(counted, index, edges, 0, 3, 0)
        assert (index == -1).all()
        reads.append(tails.reads)
    assert max(reads) < 10 * mining.MAX_NEIGHBOURS
    assert reads[1] <= 1.1 * reads[0]


def test_a_relation_that_no_rule_reaches():
    """Its edges share no entity with others: its rows are empty, those of others are not."""
    apart = [[40 + 2 * i, 3, 41 + 2 * i] for i in range(20)]
    graph = graph_of([*small_graph().written_ids["train"], *apart], (), 80, 4)
    rules = mined(graph)
    assert len(rules) > 0
    assert rules.offsets[6] == rules.offsets[8]
    rows = RuleRows(rules, graph.adjacency("train")).rows(np.array([40, 0]), np.array([6, 6]))
    assert not len(rows.tails)


def test_a_hub_costs_no_more_than_others():
    """An entity with a hundred thousand edges: its tails are thinned."""
    hub = np.column_stack([np.arange(1, 100_001), np.zeros((100_000, 2), int)])
    twice = np.column_stack([np.arange(1, 100_001), np.full((100_000, 1), 1), hub[:, 2:]])
    graph = graph_of(np.concatenate([hub, twice]).astype(np.int32), hub[:0], 100_001, 2)
    rules = mined(graph)
    best = next(rules.best())
    assert (best.body, best.confidence > 0.9) == ((best.relation ^ 2,), True)
    rows = RuleRows(rules, graph.adjacency("train")).rows(np.array([0, 7]), np.array([1, 0]))
    assert (np.diff(rows.offsets) < 20_000).all()
