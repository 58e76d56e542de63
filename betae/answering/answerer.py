"""Answerer: a trained run and its graph, ready for questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.calibration import LAST_RANKS, Calibration, Curve, calibrate
from betae.answering.explain import Explainer
from betae.answering.results import Answer, Answers, Status
from betae.answering.unseen import seen_form, union_of, unseen_names
from betae.checks import check_choice, check_positive
from betae.edges import VIEWS, View
from betae.errors import InvalidArgument, StoreError
from betae.graph import KnowledgeGraph
from betae.index import Index, nearest
from betae.models.base import QueryModel
from betae.models.execute import Union, embed_queries
from betae.models.files import load_model
from betae.queries.ast import Query, resolve, unresolve
from betae.queries.read import read_query
from betae.queries.structures import structure_of
from betae.storage import writing_file
from betae.symbolic import answers, refuted
from betae.training.checkpoint import best_model, open_graph

CALIBRATION = "calibration.json"
INDEX = "index"
EMPTY_BELOW = 0.5  # expected answers
CANDIDATES = 1000  # of an index, beside the answers asked for: what the expected number is of


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
        index: Index | None = None,
        table: torch.Tensor | None = None,
    ):
        check_choice("edges", edges, VIEWS)
        self.model, self.graph, self.calibration, self.edges = model, graph, calibration, edges
        self.index, self.table = index, entity_table(model) if table is None else table

    @classmethod
    def open(
        cls,
        run: Path | str,
        graph: Path | str | None = None,
        edges: View = "train",
        use_index: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> Answerer:
        """Open the best model of a run with its graph; the first time, fit the probabilities.

        `use_index` searches by the index that `betae index build` made, not exactly.
        """
        check_choice("edges", edges, VIEWS)
        run = Path(run)
        folder = best_model(run)
        model = load_model(folder)
        opened = open_graph(run, None if graph is None else Path(graph), may_have_grown=True)
        index = Index.open(run / INDEX, folder.name) if use_index else None
        table = entity_table(model)
        calibration = _read_calibration(run, folder.name)
        if calibration is None:
            say("Fitting probabilities on validation queries, once")
            calibration = calibrate(model, opened, table)
            content = {
                "model": folder.name,
                "curves": calibration.curves,
            }
            # A run that may only be read is fitted again each time.
            with suppress(StoreError), writing_file(run / CALIBRATION) as partial:
                partial.write_text(json.dumps(content), encoding="utf-8")
        return cls(model, opened, calibration, edges, index, table)

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
        known = answers(self.graph, query, self.edges)
        out = refuted(self.graph, query, self.edges)
        ids, distances, num_ranked, entropy = self._rank(query, union, k + len(out), known)
        can_say = len(ids) > 0
        ruled_out = np.isin(ids, out)
        ids, distances = ids[~ruled_out], distances[~ruled_out]
        num_ranked -= int(ruled_out[:num_ranked].sum())
        # Known answers without a place, since they are not embedded. They come first.
        apart = np.setdiff1d(known, ids)
        ids = np.concatenate([apart, ids])
        distances = np.concatenate([np.full(len(apart), np.nan, np.float32), distances])
        is_known = np.isin(ids, known)
        probabilities = self.calibration(distances, is_known)
        wanted = (probabilities >= threshold) & (
            True if status is None else is_known == (status == "known")
        )
        explainer = Explainer(
            self.model, self.table, self.graph, self.edges, self.calibration, union
        )
        found = []
        for place in np.flatnonzero(wanted)[:k].tolist():
            entity, rank = int(ids[place]), place - len(apart) + 1
            found.append(
                Answer(
                    self.graph.entities[entity],
                    self.graph.entity_label(entity),
                    rank if 1 <= rank <= num_ranked else None,
                    -float(distances[place]) if rank >= 1 else None,
                    float(probabilities[place]),
                    "known" if is_known[place] else "predicted",
                    explainer.explain(query, entity) if explain else None,
                )
            )
        expected = float(probabilities.sum()) if can_say else None
        return Answers(
            str(unresolve(query, self.graph)),
            tuple(found),
            len(known),
            expected,
            entropy,
            expected is not None and expected < EMPTY_BELOW,
            tuple(unseen_names(query, self.model, self.graph)),
        )

    def _rank(
        self, query: Query, union: Union, k: int, known: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], int, float | None]:
        """Return entities, nearest first, and their distances; how many have a rank; the entropy.

        They are all that are embedded; by an index, at least k and the known answers, which have no
        rank behind the last that was found; none if the facts are all there is to go by.
        """
        seen = seen_form(query, self.model, self.graph, self.edges)
        if seen is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), 0, None
        with torch.no_grad():
            embedded = embed_queries(self.model, [seen], union_of(query, self.model, union))
            entropy = None
            if self.model.has_uncertainty:
                entropy = float(self.model.uncertainty(embedded.sets).max())
        number = len(self.table) if self.index is None else k + len(known) + CANDIDATES
        all_distances, all_ids = nearest(self.model, embedded, self.table, number, self.index)
        is_found = all_ids[0] >= 0
        ids, distances = all_ids[0][is_found], all_distances[0][is_found]
        missed = np.setdiff1d(known[known < len(self.table)], ids)
        if not len(missed):
            return ids, distances, len(ids), entropy
        farthest = distances.max(initial=-np.inf)
        with torch.no_grad():
            theirs = self.model.distance(embedded.sets, self.table[missed]).amin(dim=0)
        ids = np.concatenate([ids, missed])
        distances = np.concatenate([distances, theirs.cpu().numpy()])
        order = np.lexsort((ids, distances))
        return ids[order], distances[order], int((distances <= farthest).sum()), entropy


def entity_table(model: QueryModel) -> torch.Tensor:
    """Return all entities as the model's distance takes them."""
    with torch.no_grad():
        return model.eval().table()


def _read_calibration(run: Path, model: str) -> Calibration | None:
    """Read what was fitted for this model, if anything was."""
    path = run / CALIBRATION
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["model"] != model:
            return None
        curves = tuple(map(_checked_curve, content["curves"]))
        if len(curves) != len(LAST_RANKS) + 1:
            raise ValueError("it has not a curve for each class")
        return Calibration(curves)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): delete it, and it is made anew.") from error


def _checked_curve(curve: Any) -> Curve:
    points = np.array(curve, dtype=float)
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise ValueError("it holds no curve")
    if (np.diff(points[0]) < 0).any() or (points[1] < 0).any() or (points[1] > 1).any():
        raise ValueError("it holds no curve of probabilities")
    distances, probabilities = points.tolist()
    return distances, probabilities
