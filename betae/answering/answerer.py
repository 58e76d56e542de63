"""Answerer: a trained run and its graph, ready for questions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.calibration import Calibration
from betae.answering.explain import Explainer
from betae.answering.results import Answer, Answers, Status
from betae.answering.unseen import seen_form, union_of, unseen_names
from betae.checks import check_choice, check_positive
from betae.errors import InvalidArgument
from betae.exact.answers import answers, refuted
from betae.graph.edges import EDGES, Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import UnionForm, embed_queries
from betae.queries.ast import Query
from betae.queries.names import resolve, unresolve
from betae.queries.read import as_query
from betae.queries.structures import structure_of
from betae.search.approximate import Index
from betae.search.nearest import nearest

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
        edges: Edges = "train",
        index: Index | None = None,
        table: torch.Tensor | None = None,
    ):
        check_choice("edges", edges, EDGES)
        self.model, self.graph, self.calibration, self.edges = model, graph, calibration, edges
        self.index, self.table = index, model.table() if table is None else table

    def answer(
        self,
        question: str | Query,
        k: int = 10,
        *,
        status: Status | None = None,
        threshold: float = 0.0,
        union: UnionForm = "DNF",
        explain: bool = False,
    ) -> Answers:
        """Return the k best answers to a question: logic text, SPARQL, or a tree.

        `status` keeps only the known or only the predicted ones, `threshold` only those at least as
        probable.
        """
        check_positive("k", k, whole=True)
        if status is not None:
            check_choice("status", status, ("known", "predicted"))
        if not 0 <= threshold <= 1:
            raise InvalidArgument(f"threshold is {threshold!r}; it must be from 0 to 1.")
        query = resolve(as_query(question), self.graph)
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
        self, query: Query, union: UnionForm, k: int, known: NDArray[np.int32]
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
        search = nearest if self.index is None else self.index.nearest
        all_distances, all_ids = search(self.model, embedded, self.table, number)
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
