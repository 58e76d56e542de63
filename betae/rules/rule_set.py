"""RuleSet: the rules of a graph by relation, in memory and on disk; Rule: one of them, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from betae.errors import StoreError
from betae.graph.edges import Ids, are_below, are_offsets
from betae.graph.graph import KnowledgeGraph
from betae.storage import (
    check_parts,
    read_arrays,
    read_manifest,
    write_arrays,
    write_manifest,
    writing_folder,
)

NO_STEP = -1
SMOOTHING = 5.0  # added to the cases of a rule in its confidence
VARIABLES = ("x", "z", "w", "y")  # along a body


@dataclass(frozen=True)
class Rule:
    """A rule: the relation of the edge that it predicts, and the steps of its body."""

    relation: int  # directed, as are the steps: 2 r + 1 is the inverse of relation r
    body: tuple[int, ...]
    support: int  # cases in which the predicted edge is there
    cases: int  # ends of the body, from a sample of heads

    @property
    def confidence(self) -> float:
        """How probable the predicted edge is, by this rule alone."""
        return self.support / (self.cases + SMOOTHING)

    def text(self, graph: KnowledgeGraph) -> str:
        """Return the rule in plain notation: `r(x, y) <- r1(x, z), r2(z, y)`."""
        variables = [*VARIABLES[: len(self.body)], VARIABLES[-1]]
        steps = zip(self.body, pairwise(variables), strict=True)
        body = ", ".join(_atom(graph, step, *ends) for step, ends in steps)
        return f"{_atom(graph, self.relation, VARIABLES[0], VARIABLES[-1])} <- {body}"


def _atom(graph: KnowledgeGraph, relation: int, head: str, tail: str) -> str:
    if relation % 2:
        head, tail = tail, head
    return f"{graph.relation_label(relation)}({head}, {tail})"


@dataclass(frozen=True)
class RuleSet:
    """Rules sorted by relation and body, so that bodies with the same first steps are adjacent."""

    offsets: NDArray[np.int64]  # (num_relations + 1,): the rules of each directed relation
    bodies: Ids  # (n, 3): directed relations, NO_STEP after the last
    support: NDArray[np.int64]  # (n,)
    cases: NDArray[np.int64]  # (n,)

    @classmethod
    def of(
        cls,
        relations: Ids,
        bodies: Ids,
        support: NDArray[np.int64],
        cases: NDArray[np.int64],
        num_relations: int,
    ) -> RuleSet:
        """Sort rules."""
        order = np.lexsort([*bodies.T[::-1], relations])
        offsets = np.searchsorted(relations[order], np.arange(num_relations + 1))
        return cls(offsets, np.ascontiguousarray(bodies[order]), support[order], cases[order])

    def only(self, is_kept: NDArray[np.bool_]) -> RuleSet:
        """Return some of the rules."""
        offsets = np.concatenate([[0], np.cumsum(is_kept)])[self.offsets]
        return RuleSet(offsets, self.bodies[is_kept], self.support[is_kept], self.cases[is_kept])

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def num_relations(self) -> int:
        """The number of directed relations."""
        return len(self.offsets) - 1

    @cached_property
    def confidence(self) -> NDArray[np.float32]:
        """The confidence of each rule."""
        return (self.support / (self.cases + SMOOTHING)).astype(np.float32)

    def rule(self, index: int) -> Rule:
        """Return one rule."""
        relation = int(np.searchsorted(self.offsets, index, side="right")) - 1
        body = tuple(step for step in self.bodies[index].tolist() if step != NO_STEP)
        return Rule(relation, body, int(self.support[index]), int(self.cases[index]))

    def best(self, relation: int | None = None) -> Iterator[Rule]:
        """Yield the rules of a relation in its written direction, or of all, best first."""
        relations = range(0, self.num_relations, 2) if relation is None else [relation]
        indices = np.concatenate(
            [np.empty(0, int), *(np.arange(*self.offsets[[r, r + 1]]) for r in relations)]
        )
        for index in indices[np.argsort(-self.confidence[indices], kind="stable")].tolist():
            yield self.rule(index)

    # ---- on disk ------------------------------------------------------------------------------

    def save(self, folder: Path, graph_fingerprint: str, num_edges: int) -> None:
        """Write the rules of a graph, whole or not at all."""
        with writing_folder(folder, overwrite=True) as partial:
            write_arrays(
                partial,
                {name: getattr(self, name) for name in ("offsets", "bodies", "support", "cases")},
            )
            sizes = {"relations": self.num_relations // 2, "edges": num_edges}
            write_manifest(partial, "rules", {"graph": graph_fingerprint, **sizes})

    @classmethod
    def open(cls, folder: Path) -> RuleSet:
        """Read the rules in a folder."""
        manifest = read_manifest(folder, "rules")
        check_parts(folder, manifest)
        try:
            rules = cls(**read_arrays(folder, manifest))
        except TypeError as error:
            raise StoreError(f"{folder} is damaged: {error}. Mine the rules again.") from error
        if fault := rules._fault():
            raise StoreError(f"{folder} is damaged: {fault}. Mine the rules again.")
        return rules

    def _fault(self) -> str | None:
        """Describe the first fault: compiled walks trust the arrays."""
        if self.bodies.shape != (len(self.support), 3) or self.bodies.dtype != np.int32:
            return "its bodies are no steps of rules"
        if any(each.dtype != np.int64 or each.ndim != 1 for each in (self.support, self.cases)):
            return "its counts are not numbers"
        if self.offsets.dtype != np.int64 or self.offsets.ndim != 1 or not len(self.offsets):
            return "its offsets are not numbers"
        if len(self.cases) != len(self.support) or not are_offsets(
            self.offsets, self.num_relations, len(self.support)
        ):
            return "its offsets are out of order"
        if not are_below(self.bodies[:, :1], self.num_relations) or not are_below(
            self.bodies - NO_STEP, self.num_relations + 1
        ):
            return f"a step is not a relation from 0 to {self.num_relations - 1}"
        if (self.support < 0).any() or (self.support > self.cases).any():
            return "a rule holds more often than it applies"
        return None
