"""How to train: one frozen dataclass, read from TOML."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from betae.checks import check_choice, check_keys, check_positive
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models import MODELS, BetaConfig, ComplexConfig, ModelConfig
from betae.models.store import config_from_json, config_to_json, model_name
from betae.queries.structures import NEGATION, TRAINING


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run learns, but for the graph and the queries."""

    model: ModelConfig = field(default_factory=BetaConfig)  # or that of another model
    structures: dict[str, float] = field(default_factory=dict)  # shares of a batch [the paper's]
    loss: Literal["softmax", "margin"] = "softmax"  # softmax is closest to the reported ranking
    candidates: int = 2048  # softmax: entities sampled for all queries of a step
    near_misses: bool = True  # softmax: anchors, and what negation excludes, are candidates
    scale: float = 0.1  # softmax: where the learned factor on distances starts
    normalisation: float = 0.1  # softmax: weight of "scores say what is an answer"; 0: off
    smoothing: float = 0.0  # softmax: weight of "non-answers are alike"; 0: off
    popularity: float = 0.0  # softmax: how far to make up for entities with many edges; 0: off
    size: float = 0.01  # softmax: weight of "uncertainty says how many answers"; 0: off
    empty: float = 0.0  # softmax: queries without answers added to a batch, as a share of it
    negatives: int = 128  # margin: entities sampled for each query
    margin: float = 60.0  # margin: the paper's gamma for BetaE; 24 for box and vector
    batch_size: int = 512  # queries of a step, over all structures and processes
    steps: int = 20_000  # optimizer steps; the learning rate falls to zero at the last
    learning_rate: float = None  # type: ignore[assignment]  # of the networks [1.5e-3, ComplEx 0.1]
    table_rate: float = 7.0  # times that for entity and relation rows, seen far less often
    decay: float = 0.0  # L2 penalty on the entity rows that a step touches
    warmup: int = 200  # steps until the full learning rate
    validate_every: int = 500  # steps
    validation_queries: int = 200  # of each structure
    patience: int = 0  # validations without a better MRR before stopping; 0: never stop early
    checkpoint_every: int = 500  # steps
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of matrix products in training
    table: Literal["memory", "disk"] = "memory"  # where entity rows and their moments are
    seed: int = 0  # of weights, order of queries, candidates
    predictor: TrainConfig | None = None  # a link predictor to train beside it

    def __post_init__(self) -> None:
        model_name(self.model)  # raises if it is not the config of a model
        check_choice("loss", self.loss, ("softmax", "margin"))
        check_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        check_choice("table", self.table, ("memory", "disk"))
        if not isinstance(self.near_misses, bool):
            raise InvalidArgument(f"near_misses is {self.near_misses!r}; it must be true or false.")
        if not self.structures:
            object.__setattr__(self, "structures", default_mix(self.model))
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", 0.1 if self.is_for_links else 1.5e-3)
        counts = "candidates negatives batch_size steps validate_every checkpoint_every"
        for name in counts.split():
            check_positive(name, getattr(self, name), whole=True)
        for name in ("warmup", "validation_queries", "patience", "seed"):
            check_positive(name, getattr(self, name), whole=True, or_zero=True)
        for name in ("normalisation", "smoothing", "popularity", "size", "empty", "decay"):
            check_positive(name, getattr(self, name), or_zero=True)
        if self.empty and self.loss == "margin":
            raise InvalidArgument("empty needs loss = 'softmax': the margin loss needs an answer.")
        if self.is_for_links and (self.loss != "softmax" or self.empty or self.decay):
            raise InvalidArgument(
                "ComplEx has a loss of its own: leave out loss, empty and decay. Its n3, in "
                "[model], is what keeps it from over-fitting."
            )
        for name in ("scale", "margin", "learning_rate", "table_rate"):
            check_positive(name, getattr(self, name))
        if not isinstance(self.structures, dict):
            raise InvalidArgument(f"structures is {self.structures!r}; it must be a table.")
        for name, share in self.structures.items():
            check_positive(f"structures.{name}", share)
        if self.predictor is not None and (self.is_for_links or not self.predictor.is_for_links):
            raise InvalidArgument(
                "predictor is for a link predictor beside a model that embeds queries: its model "
                "is 'complex', and that of the run is another."
            )
        if self.batch_size < len(self.structures):
            raise InvalidArgument(
                f"batch_size is {self.batch_size}, below the {len(self.structures)} structures."
            )

    @property
    def is_for_links(self) -> bool:
        """Whether the model is a link predictor, which learns from single edges alone."""
        return isinstance(self.model, ComplexConfig)

    def to_json(self) -> dict[str, Any]:
        """Return the effective config, defaults filled in, for saving with the run."""
        beside = self.predictor.to_json() if self.predictor else None
        return {**asdict(self), "model": config_to_json(self.model), "predictor": beside}


def read_recipe(path: Path | str) -> TrainConfig:
    """Read a config from a TOML file; what it leaves out keeps its default."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InvalidArgument(f"There is no recipe {path}.") from None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}.") from error
    try:
        return make_config(values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def default_mix(model: ModelConfig) -> dict[str, float]:
    """Return the proportions of the paper's training sets, without what the model cannot do."""
    if isinstance(model, ComplexConfig):
        return {"1p": 1.0}
    _, model_class = MODELS[model_name(model)]
    names = [name for name in TRAINING if model_class.has_complement or name not in NEGATION]
    return {name: 0.1 if name in NEGATION else 1.0 for name in names}


def default_config(graph: KnowledgeGraph) -> TrainConfig:
    """Return settings that suit the size of a graph: BetaE, with a link predictor beside it.

    On a few thousand edges they take about a minute on two cores, on a few hundred thousand hours.
    """
    num_edges, num_pairs = len(graph.splits["train"]), len(graph.adjacency("train").relations)
    is_small = num_edges < 20_000
    batch_size = 128 if is_small else 512
    predictor = TrainConfig(
        model=ComplexConfig(dim=64 if is_small else 128 if num_edges < 200_000 else 400),
        batch_size=batch_size,
        candidates=1024,
        steps=max(500, 30 * num_pairs // batch_size),
        validate_every=250 if is_small else 1000,
        checkpoint_every=250 if is_small else 1000,
        warmup=0,
    )
    if not is_small:
        model = BetaConfig(dim=200, hidden=256) if num_edges < 200_000 else BetaConfig()
        return TrainConfig(model=model, predictor=predictor)
    return TrainConfig(
        model=BetaConfig(dim=64, hidden=128),
        batch_size=256,
        candidates=512,
        near_misses=False,  # many are sampled anyway
        normalisation=0.02,  # few dimensions, small distances
        size=0.02,
        steps=1000,
        learning_rate=2e-3,
        validate_every=250,
        checkpoint_every=250,
        validation_queries=100,
        predictor=predictor,
    )


def make_config(values: dict[str, Any]) -> TrainConfig:
    """Make a config from plain values, checking names and ranges."""
    check_keys("the recipe", values, [item.name for item in fields(TrainConfig)])
    model = values.get("model", {})
    if not isinstance(model, dict):
        raise InvalidArgument(f"model is {model!r}; it must be a table, with a name in it.")
    beside = values.get("predictor")
    if beside is not None and not isinstance(beside, dict):
        raise InvalidArgument(f"predictor is {beside!r}; it must be a table like the recipe's own.")
    return TrainConfig(
        **{
            **values,
            "model": config_from_json(model),
            "predictor": None if beside is None else make_config(beside),
        }
    )
