"""Figures of an evaluation, in memory and as JSON.

In JSON a figure that is not a finite number is null; in memory it is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from betae.errors import StoreError
from betae.frames import html_table, text_table
from betae.storage import explaining_disk_errors, writing_file

if TYPE_CHECKING:
    Figure = float
else:
    Figure = Real  # a type unknown to msgspec, which calls `_read_figure` for it

EVALUATIONS = "evaluations"  # the folder inside a run

Method = Literal["completed", "embedding"]  # of answering: see `Evaluation`


@dataclass(frozen=True)
class RankMetrics:
    """Means over the hard answers of a query, then over queries, in percent."""

    mrr: Figure
    hits_at_1: Figure
    hits_at_3: Figure
    hits_at_10: Figure
    num_queries: int


@dataclass(frozen=True)
class MissingResult:
    """Results of the hard answers whose best derivation has a given number of missing edges."""

    mrr: Figure
    num_answers: int


@dataclass(frozen=True)
class Correlation:
    """Correlation of uncertainty with the number of answers; NaN if either is constant."""

    spearman: Figure
    pearson: Figure


@dataclass(frozen=True)
class CountError:
    """Factor within which half of the estimated numbers of answers are right."""

    factor: Figure
    factor_of_constant: Figure  # of the best single number for all queries of the structure


@dataclass(frozen=True)
class EmptyResult:
    """ROC-AUC of uncertainty: queries with more than 5 answers against those without any."""

    roc_auc: Figure
    num_empty: int
    num_answered: int
    curve: list[tuple[Figure, Figure]]  # (false, true) positive rates, a few dozen points


@dataclass(frozen=True)
class StructureResult:
    """Results of one structure."""

    metrics: RankMetrics
    interval: tuple[Figure, Figure]  # 95 % confidence of the MRR, by bootstrap over queries
    frequency: RankMetrics  # of the baseline
    num_edges: int  # of a derivation
    by_missing: dict[int, MissingResult]
    strict_mrr: float | None  # negation only: refuted easy answers are not filtered
    answers: Figure  # mean number of hard answers
    correlation: Correlation | None = None
    count_error: CountError | None = None
    points: list[tuple[Figure, int]] | None = None  # a sample of (uncertainty, number of answers)


@dataclass(frozen=True)
class Average:
    """Mean over the structures of a kind."""

    structures: list[str]
    metrics: RankMetrics
    interval: tuple[Figure, Figure]
    frequency: RankMetrics


@dataclass(frozen=True)
class GraphFacts:
    """The graph of an evaluation."""

    fingerprint: str
    entities: int
    relations: int  # without inverses


@dataclass(frozen=True)
class QueryFacts:
    """The query set of an evaluation."""

    split: str
    origin: dict[str, Any]
    count: int


METRICS = {"mrr": "MRR", "hits_at_1": "H@1", "hits_at_3": "H@3", "hits_at_10": "H@10"}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """All figures of a model on a query set, by one method of answering.

    "embedding": entities are ranked by distance from the embedded query, as in the paper.
    "completed": the query is evaluated on a graph whose missing edges have probabilities, which
    come from the predictors.
    """

    model: str  # betae, query2box, gqe or complex
    graph: GraphFacts
    queries: QueryFacts
    structures: dict[str, StructureResult]  # "2u-DM": unions in De Morgan form
    averages: dict[str, Average]  # EPFO, negation
    cannot: list[str]  # structures that the model cannot answer
    empty: dict[str, EmptyResult]  # queries without answers
    seconds: Figure
    method: Method = "embedding"
    predictors: list[str] = field(default_factory=list)  # names of models, for "completed"
    run: str = ""  # the name of the folder of the run that keeps it
    name: str = ""  # of the query set, for the file in the run

    @property
    def results(self) -> dict[str, StructureResult | Average]:
        """The results of all structures, then the averages."""
        return {**self.structures, **self.averages}

    def to_json(self) -> dict[str, Any]:
        """Return plain values; figures that are NaN or infinite become None."""
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])

    def __repr__(self) -> str:
        return text_table(*self._figures())

    def _repr_html_(self) -> str:
        return html_table(*self._figures())

    def _figures(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [name, *(f"{getattr(each.metrics, key):.1f}%" for key in METRICS)]
            for name, each in self.results.items()
        ]
        return [f"{self.model}, {self.method}", *METRICS.values()], rows


# ---- in a run ---------------------------------------------------------------------------------


def evaluation_file(run: Path | str, name: str) -> Path:
    """Return the path of an evaluation in the folder of its run."""
    return Path(run) / EVALUATIONS / f"{name}.json"


def save_evaluation(evaluation: Evaluation, run: Path | str) -> Path:
    """Write an evaluation into the folder of its run, under its name."""
    path = evaluation_file(run, evaluation.name)
    with explaining_disk_errors(path):
        path.parent.mkdir(exist_ok=True)
    with writing_file(path) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(evaluation), indent=1))
    return path


def read_evaluations(run: Path | str) -> list[Evaluation]:
    """Read the evaluations of a run, by name; there may be none."""
    found = []
    for path in sorted((Path(run) / EVALUATIONS).glob("*.json"), key=lambda path: path.stem):
        if path.name.startswith("."):  # left by a process that was killed while writing
            continue
        try:
            content = path.read_bytes()
            found.append(msgspec.json.decode(content, type=Evaluation, dec_hook=_read_figure))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise StoreError(
                f"{path} is damaged: {error}. Delete it, and evaluate again."
            ) from error
    return found


def _read_figure(_: type, value: object) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise TypeError("Expected a number or null")  # msgspec adds the path of the field
