"""Settings of training: frozen dataclasses, one per table of a recipe (TOML)."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from betae.checks import Settings, check_choice, check_keys, check_positive
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models import MODELS, BetaConfig, ComplexConfig, ModelConfig
from betae.models.store import config_from_json, config_to_json, model_name, read_settings
from betae.queries.structures import NEGATION, TRAINING


@dataclass(frozen=True)
class SoftmaxConfig(Settings):
    """Each answer against sampled candidates, the loss closest to the reported ranking."""

    or_zero = (
        "log_partition_weight",
        "smoothing",
        "degree_correction",
        "cardinality_weight",
        "unanswerable",
    )
    name: ClassVar[str] = "softmax"
    candidates: int = 2048  # entities sampled for all queries of a step
    hard_negatives: bool = True  # add anchors, and entities that a negation excludes
    initial_scale: float = 0.1  # of the learned factor on distances
    log_partition_weight: float = 0.1  # weight of the squared log-partition error; 0: off
    smoothing: float = 0.0  # weight of the entropy of non-answers; 0: off
    degree_correction: float = 0.0  # strength, for entities with many edges; 0: off
    cardinality_weight: float = 0.01  # weight of the entropy/cardinality loss; 0: off
    unanswerable: float = 0.0  # unanswerable queries added to a batch, as a share of it


@dataclass(frozen=True)
class MarginConfig(Settings):
    """The paper's loss: one answer within a margin, sampled non-answers beyond it."""

    name: ClassVar[str] = "margin"
    negatives: int = 128  # entities sampled for each query
    margin: float = 60.0  # the paper's gamma for BetaE; 24 for Query2Box and GQE


@dataclass(frozen=True)
class LinkLossConfig(Settings):
    """The loss of ComplEx; its regularisation is part of ComplexConfig."""

    candidates: int = 2048  # entities sampled for all edges of a step, beside their answers


@dataclass(frozen=True)
class AdamConfig(Settings):
    """Adam, for models that embed queries."""

    or_zero = ("weight_decay", "warmup")
    learning_rate: float = 1.5e-3  # of the networks; it falls to zero at the last step
    table_rate: float = 7.0  # times that for entity and relation rows, updated far less often
    weight_decay: float = 0.0  # L2 penalty on the entity rows of a step
    warmup: int = 200  # steps until the full learning rate


@dataclass(frozen=True)
class AdagradConfig(Settings):
    """Adagrad, for ComplEx."""

    or_zero = ("warmup",)
    learning_rate: float = 0.1
    warmup: int = 200


@dataclass(frozen=True)
class ValidationConfig(Settings):
    """When and on how many queries a model is validated."""

    or_zero = ("queries", "patience")
    every: int = 500  # steps
    queries: int = 200  # sampled for each structure
    patience: int = 0  # validations without a better MRR before stopping; 0: never stop early


@dataclass(frozen=True)
class TrainConfig(Settings):
    """All settings of a run except its graph and queries.

    `loss` and `optimizer` default to what the model needs: LinkLossConfig and AdagradConfig for
    ComplEx, SoftmaxConfig and AdamConfig for the others.
    """

    or_zero = ("seed",)
    model: ModelConfig = field(default_factory=BetaConfig)
    loss: SoftmaxConfig | MarginConfig | LinkLossConfig = None  # type: ignore[assignment]
    structures: dict[str, float] = field(default_factory=dict)  # shares of a batch [the paper's]
    batch_size: int = 512  # queries of a step, over all structures and processes
    steps: int = 20_000
    optimizer: AdamConfig | AdagradConfig = None  # type: ignore[assignment]
    validation: ValidationConfig = ValidationConfig()
    checkpoint_every: int = 500  # steps
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of matrix products in training
    table: Literal["memory", "disk"] = "memory"  # location of entity rows and their moments
    seed: int = 0  # of weights, order of queries, candidates
    predictor: TrainConfig | None = None  # ComplEx, trained beside the model

    def __post_init__(self) -> None:
        model_name(self.model)  # raises if it is not the config of a model
        for name, kinds in _parts_for(self.model).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, kinds[0]())
            if not isinstance(getattr(self, name), kinds):
                allowed = " or ".join(kind.__name__ for kind in kinds)
                needed = f"{type(self.model).__name__} needs {allowed}"
                raise InvalidArgument(f"{name} is {getattr(self, name)!r}; {needed}.")
        if not self.structures:
            object.__setattr__(self, "structures", default_mix(self.model))
        _table("structures", self.structures)
        if self.predictor and (self.is_for_links or not self.predictor.is_for_links):
            raise InvalidArgument(
                "predictor is for a link predictor beside a model that embeds queries: its model "
                "is 'complex', and that of the run is another."
            )
        super().__post_init__()
        for name, share in self.structures.items():
            check_positive(f"structures.{name}", share)
        if self.batch_size < len(self.structures):
            raise InvalidArgument(
                f"batch_size is {self.batch_size}, below the {len(self.structures)} structures."
            )

    @property
    def is_for_links(self) -> bool:
        """Whether the model is a link predictor, which learns from single edges alone."""
        return isinstance(self.model, ComplexConfig)

    def to_json(self) -> dict[str, Any]:
        """Return all settings, including defaults, as plain values."""
        kind = {"name": self.loss.name} if not isinstance(self.loss, LinkLossConfig) else {}
        return {
            **asdict(self),
            "model": config_to_json(self.model),
            "loss": {**kind, **asdict(self.loss)},
            "predictor": self.predictor.to_json() if self.predictor else None,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """Build a config from plain values; missing settings have their defaults."""
        for name in values:
            if home := MOVED.get(name):
                raise InvalidArgument(f"The recipe has no setting {name!r}. It is now {home}.")
        check_keys("The recipe", values, [item.name for item in fields(cls)])
        model = config_from_json(_table("model", values.get("model", {})))
        parts: dict[str, Any] = {"model": model}
        for name, (kind, *others) in _parts_for(model).items():
            if name in values:
                settings = dict(_table(name, values[name]))
                if others:  # chosen by name, by default the first
                    kinds = {each.name: each for each in (kind, *others)}
                    choice = settings.pop("name", kind.name)
                    check_choice(f"{name}.name", choice, kinds)
                    kind = kinds[choice]
                parts[name] = read_settings(f"[{name}]", settings, kind)
        if values.get("predictor") is not None:
            try:
                parts["predictor"] = cls.from_json(_table("predictor", values["predictor"]))
            except InvalidArgument as error:
                raise InvalidArgument(f"[predictor]: {error}") from None
        return cls(**{**values, **parts})

    @classmethod
    def read(cls, path: Path | str) -> TrainConfig:
        """Read a recipe, a TOML file; missing settings have their defaults."""
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
            return cls.from_json(values)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from None


# Settings of earlier, flat recipes -> where they are now. A config.json that has them is old.
MOVED = {
    "candidates": "candidates in [loss]",
    "near_misses": "hard_negatives in [loss]",
    "scale": "initial_scale in [loss]",
    "normalisation": "log_partition_weight in [loss]",
    "smoothing": "smoothing in [loss]",
    "popularity": "degree_correction in [loss]",
    "size": "cardinality_weight in [loss]",
    "empty": "unanswerable in [loss]",
    "negatives": "negatives in [loss]",
    "margin": "margin in [loss]",
    "learning_rate": "learning_rate in [optimizer]",
    "table_rate": "table_rate in [optimizer]",
    "decay": "weight_decay in [optimizer]",
    "warmup": "warmup in [optimizer]",
    "validate_every": "every in [validation]",
    "validation_queries": "queries in [validation]",
    "patience": "patience in [validation]",
}


def _table(name: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InvalidArgument(f"{name} is {values!r}; it must be a table.")
    return values


def _parts_for(model: ModelConfig) -> dict[str, tuple[Any, ...]]:
    """Return the classes that each part may have beside a model; the first is the default."""
    others: dict[str, tuple[Any, ...]] = {"validation": (ValidationConfig,)}
    if isinstance(model, ComplexConfig):
        return {"loss": (LinkLossConfig,), "optimizer": (AdagradConfig,), **others}
    return {"loss": (SoftmaxConfig, MarginConfig), "optimizer": (AdamConfig,), **others}


def default_mix(model: ModelConfig) -> dict[str, float]:
    """Return the proportions of the paper's training sets, for the structures a model supports."""
    if isinstance(model, ComplexConfig):
        return {"1p": 1.0}
    _, model_class = MODELS[model_name(model)]
    names = [name for name in TRAINING if model_class.has_complement or name not in NEGATION]
    return {name: 0.1 if name in NEGATION else 1.0 for name in names}


def default_config(graph: KnowledgeGraph) -> TrainConfig:
    """Choose settings by the size of a graph: BetaE, with a link predictor beside it.

    Training takes about a minute on two cores for a few thousand edges, hours for a few hundred
    thousand.
    """
    num_edges, num_pairs = len(graph.written_ids["train"]), len(graph.adjacency("train").relations)
    is_small = num_edges < 20_000
    batch_size, every = (128, 250) if is_small else (512, 1000)
    predictor = TrainConfig(
        model=ComplexConfig(dim=64 if is_small else 128 if num_edges < 200_000 else 400),
        loss=LinkLossConfig(candidates=1024),
        batch_size=batch_size,
        steps=max(500, 30 * num_pairs // batch_size),
        optimizer=AdagradConfig(warmup=0),
        validation=ValidationConfig(every=every),
        checkpoint_every=every,
    )
    if not is_small:
        model = BetaConfig(dim=200, hidden=256) if num_edges < 200_000 else BetaConfig()
        return TrainConfig(model=model, predictor=predictor)
    return TrainConfig(
        model=BetaConfig(dim=64, hidden=128),
        loss=SoftmaxConfig(
            candidates=512,
            hard_negatives=False,  # many are sampled anyway
            log_partition_weight=0.02,  # few dimensions, small distances
            cardinality_weight=0.02,
        ),
        batch_size=256,
        steps=1000,
        optimizer=AdamConfig(learning_rate=2e-3),
        validation=ValidationConfig(every=250, queries=100),
        checkpoint_every=250,
        predictor=predictor,
    )
