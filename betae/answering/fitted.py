"""What is fitted for a run when it is first asked, and kept with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from betae.answering.by_index import IndexSearch
from betae.answering.calibration import (
    Calibration,
    calibrate,
    read_calibration,
    write_calibration,
)
from betae.answering.edge_fit import fit_edges
from betae.answering.edges import EdgeWeights, read_edge_weights, write_edge_weights
from betae.errors import StoreError
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel

Fitted = TypeVar("Fitted")


def fitted_edges(
    path: Path,
    name: str,
    predictors: Sequence[QueryModel],
    graph: KnowledgeGraph,
    say: Callable[[str], None],
    in_parts: bool = False,
) -> EdgeWeights:
    """Return how scores become probabilities of edges; `name` tells the predictors."""
    return _fit_once(
        lambda: read_edge_weights(path, name),
        lambda: say("Fitting the probabilities of edges on validation edges, once"),
        lambda: fit_edges(predictors, graph, in_parts=in_parts),
        lambda weights: write_edge_weights(weights, path, name),
    )


def fitted_calibration(
    path: Path,
    name: str,
    model: QueryModel,
    graph: KnowledgeGraph,
    search: IndexSearch | None,
    say: Callable[[str], None],
) -> Calibration | None:
    """Return how distances become probabilities; None if there are no validation edges."""
    if not len(graph.splits["valid"]):
        return None
    return _fit_once(
        lambda: read_calibration(path, name),
        lambda: say("Fitting probabilities on validation queries, once"),
        lambda: calibrate(model, graph, search),
        lambda calibration: write_calibration(calibration, path, name),
    )


def _fit_once(
    read: Callable[[], Fitted | None],
    say: Callable[[], None],
    fit: Callable[[], Fitted],
    write: Callable[[Fitted], None],
) -> Fitted:
    found = read()
    if found is None:
        say()
        found = fit()
        with suppress(StoreError):  # a read-only run is fitted again each time
            write(found)
    return found
