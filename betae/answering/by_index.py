"""The nearest entities of a question, found by an index; a random sample stands for all others.

Of the others, nobody knows which is near. But as many are sampled once, and their distances say how
many of all entities are how far away: enough to estimate how many answers an index has left out.
No row of any other entity is read.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.ranking import Found, are_among
from betae.graph.edges import Ids
from betae.models.base import QueryModel
from betae.models.execute import Embedded
from betae.querysets.seeds import random_stream
from betae.search.approximate import Index, distances_to
from betae.search.nearest import Nearest

CANDIDATES = 1000  # that an index finds beside the answers asked for
OTHERS = 1000  # entities of the sample

Floats = NDArray[np.float32]


class IndexSearch:
    """An index and its model, with a sample of all entities."""

    def __init__(self, model: QueryModel, index: Index):
        self.model, self.index = model, index
        self.num_entities = model.num_entities
        size = min(OTHERS, self.num_entities)
        sample = random_stream(0, "others").choice(self.num_entities, size, replace=False)
        self._sample = np.sort(sample)
        with torch.no_grad():
            self._table = model.table(torch.from_numpy(self._sample).to(model.entities.device))

    def near(self, embedded: Embedded, number: int, known: Ids) -> Found:
        """Return some `number` of near entities for a query, and the known ones that were missed.

        These have their place by distance, but no rank: how many were missed before them is not
        known.
        """
        distances, ids = self.index.nearest(self.model, embedded, number + CANDIDATES)
        return self.with_known(embedded, (distances[0], ids[0]), known)

    def with_known(self, embedded: Embedded, nearest: Nearest, known: Ids) -> Found:
        """Return the nearest entities of a query, (k,) each, and the known ones not among them."""
        is_found = nearest[1] >= 0
        near, ids = nearest[0][is_found], nearest[1][is_found]
        missed = np.setdiff1d(known[known < self.num_entities], ids).astype(np.int64)
        both = np.concatenate([near, distances_to(self.model, embedded.sets, missed)])
        num_ranked = int((both <= near.max(initial=-np.inf)).sum())
        ids = np.concatenate([ids, missed])
        order = np.lexsort((ids, both))
        return Found(ids[order], None, both[order], num_ranked)

    def others(self, embedded: Embedded, left_out: NDArray[np.int64]) -> tuple[Floats, float]:
        """Return distances of a sample of all entities but some, and how many each stands for."""
        is_other = ~are_among(self._sample, left_out)
        with torch.no_grad():
            distances = self.model.distance(embedded.sets, self._table).amin(dim=0)
        number = max(0, self.num_entities - len(left_out))
        return distances.numpy(force=True)[is_other], number / max(1, int(is_other.sum()))
