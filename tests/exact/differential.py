"""Random SPARQL answered by `select` and by pyoxigraph on the same triples.

python -m tests.exact.differential 10000
"""

import sys
from random import Random

import numpy as np
import pyoxigraph as ox

from betae.errors import UnsupportedQuery
from betae.exact.select import select
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.read import read_question

BASE = "http://oracle/"
ENTITIES = [f"e{number}" for number in range(6)]
RELATIONS = ["r0", "r1", "r2"]
VARIABLES = ["?x", "?y", "?z", "?w"]


def random_graph(random):
    """A dense graph, so that most questions have answers, of which every entity has an edge."""
    edges = {
        (head, random.randrange(3), random.randrange(6))
        for head in range(6)
        for _ in range(random.randint(2, 5))
    }
    for edge in [edge for edge in edges if random.random() < 0.2]:  # cycles of length two
        edges.add((edge[2], edge[1], edge[0]))
    splits = {"train": [], "valid": [], "test": []}
    for edge in sorted(edges):
        splits[random.choice(["train", "train", "valid", "test"])].append(edge)
    arrays = {name: np.array(part, dtype=np.int32).reshape(-1, 3) for name, part in splits.items()}
    return KnowledgeGraph.from_triples(Triples(ENTITIES, RELATIONS, arrays))


def store_of(graph):
    store = ox.Store()
    for triples in graph.written_ids.values():
        for head, relation, tail in triples.tolist():
            names = ENTITIES[head], RELATIONS[relation], ENTITIES[tail]
            store.add(ox.Quad(*(ox.NamedNode(BASE + name) for name in names)))
    return store


class Writer:
    """Random SPARQL of every form that betae reads."""

    def __init__(self, random):
        self.random = random

    def entity(self):
        return f":{self.random.choice(ENTITIES)}"

    def path(self, depth=2):
        relation = f":{self.random.choice(RELATIONS)}"
        if depth == 0 or self.random.random() < 0.5:
            return relation
        inner = self.path(depth - 1)
        form = self.random.choice(["^({})", "{}/{}", "({}|{})"])
        return form.format(inner, self.path(depth - 1))

    def term(self, variables):
        return self.random.choice(variables) if self.random.random() < 0.8 else self.entity()

    def triples(self, variables):
        """Triples that bind all the variables, often with cycles."""
        first, *others = variables
        links = [(first, other) for other in others] or [(first, self.entity())]
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            links.append((self.term(variables), self.term(variables)))
        self.random.shuffle(links)
        ends = (link if self.random.random() < 0.5 else link[::-1] for link in links)
        return " . ".join(f"{head} {self.path()} {tail}" for head, tail in ends) + " ."

    def condition(self, variables, depth):
        """An expression of a FILTER."""
        one, two = self.random.choice(variables), self.random.choice(variables)
        kind = self.random.randrange(10 if depth else 5)
        match kind:
            case 0:
                return f"{one} = {self.entity()}"
            case 1:
                return f"{one} != {self.random.choice([self.entity(), two])}"
            case 2:
                return f"{one} {self.random.choice(['=', '!='])} {two}"
            case 3 | 4:
                word = "IN" if kind == 3 else "NOT IN"
                return f"{one} {word} ({self.entity()}, {self.entity()}, {self.entity()})"
            case 5 | 6:
                sign = "||" if kind == 5 else "&&"
                left, right = (self.condition(variables, depth - 1) for _ in range(2))
                return f"({left} {sign} {right})"
            case 7:
                return f"!({self.condition(variables, depth - 1)})"
        word = "EXISTS" if kind == 8 else "NOT EXISTS"
        return f"{word} {self.group(self.some(variables), depth - 1)}"

    def some(self, variables):
        """One or two of the variables, and perhaps another."""
        chosen = self.random.sample(variables, min(len(variables), self.random.choice([1, 1, 2])))
        if self.random.random() < 0.4:
            chosen.append(self.random.choice(VARIABLES))
        return list(dict.fromkeys(chosen))

    def values(self, variables):
        if len(variables) == 1 or self.random.random() < 0.5:
            values = " ".join(self.entity() for _ in range(4))
            return f"VALUES {self.random.choice(variables)} {{ {values} }}"
        names = " ".join(variables[:2])
        rows = " ".join(f"({self.entity()} {self.entity()})" for _ in range(8))
        return f"VALUES ({names}) {{ {rows} }}"

    def group(self, variables, depth=2):
        parts = [self.triples(variables)]
        for _ in range(self.random.choice([0, 1, 1, 2]) if depth else 0):
            match self.random.randrange(6):
                case 0 | 1 | 2:
                    parts.append(f"FILTER({self.condition(variables, depth)})")
                case 3:
                    parts.append(f"MINUS {self.group(self.some(variables), depth - 1)}")
                case 4:
                    shared = self.some(variables)
                    branches = [self.group(shared, depth - 1) for _ in range(2)]
                    parts.append(" UNION ".join(branches))
                case 5:
                    parts.append(self.values(variables))
        if self.random.random() < 0.2:
            parts.reverse()
        return f"{{ {' '.join(parts)} }}"

    def question(self):
        variables = self.random.sample(VARIABLES, self.random.choice([1, 2, 2, 3]))
        targets = self.random.sample(variables, self.random.randint(1, len(variables)))
        names = "*" if self.random.random() < 0.1 else " ".join(targets)
        limit = f" LIMIT {self.random.randint(1, 6)}" if self.random.random() < 0.1 else ""
        return f"SELECT DISTINCT {names} WHERE {self.group(variables)}{limit}"


def ask_oxigraph(store, text, variables):
    found = store.query(f"PREFIX : <{BASE}> {text}")
    return {
        tuple(ENTITIES.index(row[name].value.removeprefix(BASE)) for name in variables)
        for row in found
    }


def compare(seed):
    """Return the number of answers to a random question, or None if betae refuses it."""
    random = Random(seed)
    graph, text = random_graph(random), Writer(random).question()
    try:
        found = select(graph, read_question(f"PREFIX : <> {text}", graph))
        rows = [tuple(row) for piece in found.ids() for row in piece.tolist()]
    except UnsupportedQuery:
        return None
    assert len(rows) == len(set(rows)), text
    whole, _, limit = text.partition(" LIMIT ")
    wanted = ask_oxigraph(store_of(graph), whole, found.variables)
    if limit:
        assert set(rows) <= wanted, (seed, text)
        assert len(rows) == min(int(limit), len(wanted)), (seed, text)
    else:
        assert set(rows) == wanted, (seed, text, set(rows) ^ wanted)
    return len(rows)


def main(number, first=0):
    """Compare so many questions that are not refused; print what they were like."""
    sizes, seed = [], first
    while len(sizes) < number:
        size = compare(seed)
        seed += 1
        if size is not None:
            sizes.append(size)
    answered = sum(size > 0 for size in sizes)
    print(f"{number:,} of {seed - first:,} questions compared, {answered:,} with answers, 0 differ")


if __name__ == "__main__":
    main(int(sys.argv[1]), 1_000_000)
