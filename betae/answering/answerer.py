"""Answerer: a trained run and its graph, ready for questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from betae.answering.calibration import Calibration, calibrate
from betae.answering.explain import Explainer
from betae.answering.results import Answer, Answers, Status
from betae.checks import check_choice, check_positive
from betae.edges import VIEWS, View
from betae.errors import InvalidArgument, StoreError
from betae.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Union, embed_queries
from betae.models.files import load_model
from betae.queries.ast import Query, resolve, unresolve
from betae.queries.read import read_query
from betae.queries.structures import structure_of
from betae.storage import writing_file
from betae.symbolic import answers
from betae.training.checkpoint import best_model, open_graph

CALIBRATION = "calibration.json"
EMPTY_BELOW = 0.5  # expected answers


class Answerer:
    """Answers questions of any shape: which entities, how sure, known or predicted, and why.

    `edges` says which edges of the graph count as known facts: those that the model was trained
    on, or also the validation edges, or all.
    """

    def __init__(
        self,
        model: QueryModel,
        graph: KnowledgeGraph,
        calibration: Calibration,
        edges: View = "train",
    ):
        check_choice("edges", edges, VIEWS)
        self.model, self.graph, self.calibration, self.edges = model, graph, calibration, edges
        model.eval()
        with torch.no_grad():
            self.table = model.table()

    @classmethod
    def open(
        cls,
        run: Path | str,
        graph: Path | str | None = None,
        edges: View = "train",
        say: Callable[[str], None] = lambda _: None,
    ) -> Answerer:
        """Open the best model of a run with its graph; the first time, fit the probabilities."""
        check_choice("edges", edges, VIEWS)
        run = Path(run)
        folder = best_model(run)
        model, opened = load_model(folder), open_graph(run, None if graph is None else Path(graph))
        calibration = _read_calibration(run, folder.name)
        if calibration is None:
            say("Fitting probabilities on validation queries, once")
            with torch.no_grad():
                calibration = calibrate(model.eval(), opened, model.table())
            content = {
                "model": folder.name,
                "distances": calibration.distances,
                "probabilities": calibration.probabilities,
            }
            with writing_file(run / CALIBRATION) as partial:
                partial.write_text(json.dumps(content), encoding="utf-8")
        return cls(model, opened, calibration, edges)

    def answer(
        self,
        question: str | Query,
        k: int = 10,
        *,
        status: Status | None = None,
        threshold: float = 0.0,
        union: Union = "DNF",
        explain: bool = False,
    ) -> Answers:
        """Return the k best answers of a question: logic text, SPARQL, a file of it, or a tree.

        `status` keeps only the known or only the predicted ones, `threshold` only those at least as
        probable.
        """
        check_positive("k", k, whole=True)
        if status is not None:
            check_choice("status", status, ("known", "predicted"))
        if not 0 <= threshold <= 1:
            raise InvalidArgument(f"threshold is {threshold!r}; it must be from 0 to 1.")
        tree = read_query(question) if isinstance(question, str) else question
        query = resolve(tree, self.graph)
        structure_of(query)  # raises if it has placeholders
        with torch.no_grad():
            embedded = embed_queries(self.model, [query], union)
            distances = embedded.best(self.model.distance(embedded.sets, self.table))[0]
        known = answers(self.graph, query, self.edges)
        probabilities = self.calibration(distances.cpu().numpy())
        probabilities[known] = 1
        is_known = np.zeros(len(probabilities), dtype=bool)
        is_known[known] = True
        wanted = (probabilities >= threshold) & (
            True if status is None else is_known == (status == "known")
        )
        order = np.argsort(distances.cpu().numpy(), kind="stable")
        explainer = Explainer(
            self.model, self.table, self.graph, self.edges, self.calibration, union
        )
        found: list[Answer] = []
        for rank, entity in enumerate(order.tolist(), 1):
            if len(found) == k:
                break
            if wanted[entity]:
                found.append(
                    Answer(
                        self.graph.entities[entity],
                        self.graph.entity_label(entity),
                        rank,
                        -float(distances[entity]),
                        float(probabilities[entity]),
                        "known" if is_known[entity] else "predicted",
                        explainer.explain(query, entity) if explain else None,
                    )
                )
        expected = float(probabilities.sum())
        return Answers(
            str(unresolve(query, self.graph)),
            tuple(found),
            len(known),
            expected,
            self._entropy(embedded.sets),
            expected < EMPTY_BELOW,
        )

    def _entropy(self, sets: torch.Tensor) -> float | None:
        if not self.model.has_uncertainty:
            return None
        with torch.no_grad():
            return float(self.model.uncertainty(sets).max())


def _read_calibration(run: Path, model: str) -> Calibration | None:
    """Read what was fitted for this model, if anything was."""
    path = run / CALIBRATION
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["model"] != model:
            return None
        points = np.array([content["distances"], content["probabilities"]], dtype=float)
        if points.ndim != 2 or not points.size or not np.isfinite(points).all():
            raise ValueError("it holds no curve")
        if (np.diff(points[0]) < 0).any() or (points[1] < 0).any() or (points[1] > 1).any():
            raise ValueError("it holds no curve of probabilities")
        return Calibration(*points.tolist())
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): delete it, and it is made anew.") from error
