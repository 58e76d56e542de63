"""What an evaluation measures, in memory and as JSON.

On disk a figure that is not a number is null; in memory it is NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from betae.errors import StoreError
from betae.storage import explaining_disk_errors, writing_file

EVALUATIONS = "evaluations"  # the folder inside a run

Method = Literal["embedding", "completed"]  # of answering


@dataclass(frozen=True)
class Metrics:
    """Means over the hard answers of a query, then over queries, in percent."""

    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    num_queries: int


@dataclass(frozen=True)
class MissingResult:
    """The hard answers whose best derivation lacks a given number of edges."""

    mrr: float
    num_answers: int


@dataclass(frozen=True)
class Correlation:
    """Correlation of uncertainty with the number of answers; NaN if either is constant."""

    spearman: float
    pearson: float


@dataclass(frozen=True)
class CountError:
    """Half of the estimates are within this factor of the number of answers."""

    factor: float
    factor_of_constant: float  # of the best single number for all queries of the structure


@dataclass(frozen=True)
class EmptyResult:
    """How well uncertainty separates queries with more than 5 answers from those without any."""

    roc_auc: float
    num_empty: int
    num_answered: int
    curve: list[tuple[float, float]]  # (false, true) positive rates, a few dozen points


@dataclass(frozen=True)
class StructureResult:
    """The results of one structure."""

    metrics: Metrics
    interval: tuple[float, float]  # 95 % confidence of the MRR, by bootstrap over queries
    frequency: Metrics  # of the baseline
    num_edges: int  # of a derivation
    by_missing: dict[int, MissingResult]
    strict_mrr: float | None  # with negation: entities that stop being answers are not filtered
    answers: float  # mean number of hard answers
    correlation: Correlation | None = None
    count_error: CountError | None = None
    points: list[tuple[float, int]] | None = None  # a sample of (uncertainty, number of answers)


@dataclass(frozen=True)
class Average:
    """The mean over the structures of a kind."""

    structures: list[str]
    metrics: Metrics
    interval: tuple[float, float]
    frequency: Metrics


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


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured for a model on a query set, by one method of answering.

    By the method "embedding", the model embeds the query; by "completed", the query is evaluated on
    a graph whose missing edges have probabilities, which the predictors give.
    """

    model: str  # betae, query2box, gqe or complex
    graph: GraphFacts
    queries: QueryFacts
    structures: dict[str, StructureResult]  # "2u-DM": unions in De Morgan form
    averages: dict[str, Average]  # EPFO, negation
    cannot: list[str]  # structures that the model cannot answer
    empty: dict[str, EmptyResult]  # queries without answers
    seconds: float
    method: Method = "embedding"
    predictors: list[str] = field(default_factory=list)  # names of models; none: the model alone

    @property
    def results(self) -> dict[str, StructureResult | Average]:
        """The results of all structures, then the averages."""
        return {**self.structures, **self.averages}

    def to_json(self) -> dict[str, Any]:
        """Return plain values; None stands for a figure that is NaN or infinite."""
        content: dict[str, Any] = _plain(asdict(self))
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Evaluation:
        """Read what `to_json` returned; raise StoreError where a value is missing or wrong."""
        evaluation: Evaluation = _typed(cls, content, "")
        return evaluation


@dataclass(frozen=True)
class KeptEvaluation:
    """An evaluation that was read from its run."""

    run: str  # the name of the run's folder
    name: str  # of the query set
    evaluation: Evaluation

    def to_json(self) -> dict[str, Any]:
        """Return the content of the evaluation's file."""
        return {"run": self.run, "name": self.name, **self.evaluation.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> KeptEvaluation:
        """Read what `to_json` returned; raise StoreError where a value is missing or wrong."""
        evaluation = Evaluation.from_json(content)
        run, name = (_typed(str, content.get(key), key) for key in ("run", "name"))
        return cls(run, name, evaluation)


# ---- in a run ---------------------------------------------------------------------------------


def save_evaluation(evaluation: Evaluation, run: Path | str, name: str) -> Path:
    """Write an evaluation into its run, under the name of the query set."""
    path = evaluation_file(run, name)
    with explaining_disk_errors(path):
        path.parent.mkdir(exist_ok=True)
    content = KeptEvaluation(Path(run).resolve().name, name, evaluation).to_json()
    with writing_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
    return path


def evaluation_file(run: Path | str, name: str) -> Path:
    """Return where an evaluation of a run is kept."""
    return Path(run) / EVALUATIONS / f"{name}.json"


def read_evaluations(run: Path | str) -> list[KeptEvaluation]:
    """Read the evaluations of a run, by name; there may be none."""
    found = []
    # A program that was killed while it wrote leaves a hidden file.
    files = (Path(run) / EVALUATIONS).glob("*.json")
    whole = (path for path in files if not path.name.startswith("."))
    for path in sorted(whole, key=lambda path: path.stem):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append(KeptEvaluation.from_json(content))
        except (ValueError, StoreError) as error:
            raise StoreError(
                f"{path} is damaged: {str(error).rstrip('.')}. Delete it, and evaluate again."
            ) from error
    return found


# ---- plain values -----------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _typed(kind: Any, value: Any, where: str) -> Any:
    """Turn a plain value into the type that an annotation names; `where` is its place."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _typed_fields(kind, value, where)
    if origin is UnionType:  # always "| None" here
        return None if value is None else _typed(inner[0], value, where)
    if origin is dict and isinstance(value, dict):
        return {
            _typed_key(inner[0], key, where): _typed(inner[1], item, _inside(where, key))
            for key, item in value.items()
        }
    if origin is list and isinstance(value, list):
        return [_typed(inner[0], item, where) for item in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(inner):
        return tuple(_typed(*pair, where) for pair in zip(inner, value, strict=True))
    if kind is Any or (origin is Literal and value in inner):
        return value
    if kind is float and value is None:
        return math.nan
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    if kind is int and is_number and isinstance(value, int):
        return value
    raise StoreError(f"{where} is {_shortened(value)}; {_in_words(kind)} was expected.")


def _typed_key(kind: Any, key: str, where: str) -> Any:
    if kind is not int:
        return key
    if not key.isdecimal():
        raise StoreError(f"{where} has the key {key!r}; a whole number was expected.")
    return int(key)


def _typed_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise StoreError(f"{where or 'the file'} is {_shortened(value)}, not an object.")
    hints, found = get_type_hints(kind), {}
    for each in fields(kind):
        if each.name in value:
            place = _inside(where, each.name)
            found[each.name] = _typed(hints[each.name], value[each.name], place)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise StoreError(f"{where or 'the file'} has no {each.name!r}.")
    return kind(**found)


def _inside(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(json.dumps, get_args(kind)))
    words = {float: "a number", int: "a whole number", str: "a string", dict: "an object"}
    return words.get(get_origin(kind) or kind, "a list")
