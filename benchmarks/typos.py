"""Suggestions for misspelt names: how often the right one is among the first three.

    python benchmarks/typos.py GRAPH [--count 200] [--seed 0]

Names of entities are drawn from the graph by chance, those that people read: labels, or names where
there is no label, of five letters or more. Each gets one of the mistakes that people make most:
two letters swapped, one dropped, one doubled, one mistaken for another. Prints a row for each, and
the share of those whose right spelling is suggested. A typo that is the name of another entity is
left out.
"""

from __future__ import annotations

import argparse
import random
import string
from pathlib import Path
from typing import NamedTuple

import numpy as np

from betae import KnowledgeGraph
from betae.graph.names import NUM_CLOSEST
from betae.graph.similar import fold, most_similar

COUNT = 200
FEWEST_LETTERS = 5


class Typo(NamedTuple):
    """A misspelt name, and what is suggested for it."""

    name: str
    typo: str
    suggested: list[str]

    @property
    def is_found(self) -> bool:
        """Whether the right name is among the suggestions."""
        return fold(self.name) in map(fold, self.suggested)


def misspelt(name: str, chance: random.Random) -> str:
    i = chance.randrange(1, len(name) - 1)
    letter = chance.choice(string.ascii_lowercase)
    return chance.choice(
        [
            name[:i] + name[i + 1] + name[i] + name[i + 2 :],
            name[:i] + name[i + 1 :],
            name[:i] + name[i] + name[i:],
            name[:i] + letter + name[i + 1 :],
        ]
    )


def typos_of(graph: KnowledgeGraph, count: int = COUNT, seed: int = 0) -> list[Typo]:
    """Misspell names of a graph, and look for them as `KnowledgeGraph.entity_id` does."""
    chance, names = random.Random(seed), graph.entities
    degrees = graph.adjacency().degrees()
    offered = [*names, *names.labels.texts]
    folded = [*map(fold, offered)]
    known, popularity = {*folded}, np.concatenate([degrees, degrees[names.labels.owners]])
    shown = sorted({graph.entity_label(i) for i in range(graph.num_entities)})
    shown = [name for name in shown if len(name) >= FEWEST_LETTERS]
    found: list[Typo] = []
    while len(found) < count:
        name = chance.choice(shown)
        typo = misspelt(name, chance)
        if fold(typo) in known:
            continue
        nearest = most_similar(fold(typo), folded, popularity)
        suggested = list(dict.fromkeys(offered[i] for i in nearest))[:NUM_CLOSEST]
        found.append(Typo(name, typo, suggested))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = typos_of(KnowledgeGraph.open(options.graph), options.count, options.seed)
    for name, typo, suggested in found:
        mark = "" if Typo(name, typo, suggested).is_found else "MISSED"
        print(f"{typo}\t{name}\t{', '.join(suggested)}\t{mark}".rstrip())
    share = sum(each.is_found for each in found) / len(found)
    print(f"{share:.1%} of {len(found)} are among the first {NUM_CLOSEST}")


if __name__ == "__main__":
    main()
