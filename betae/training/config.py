"""How to train: one frozen dataclass, read from TOML."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from betae.checks import check_choice, check_keys, check_positive
from betae.errors import InvalidArgument
from betae.models import MODELS, BetaConfig, ModelConfig
from betae.models.store import config_from_json, config_to_json, model_name
from betae.queries.structures import NEGATION, TRAINING


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run learns, but for the graph and the queries."""

    model: ModelConfig = field(default_factory=BetaConfig)  # BetaConfig, BoxConfig, VectorConfig
    structures: dict[str, float] = field(default_factory=dict)  # shares of a batch [the paper's]
    loss: Literal["softmax", "margin"] = "softmax"  # softmax is closest to the reported ranking
    candidates: int = 2048  # softmax: entities sampled for all queries of a step
    scale: float = 0.1  # softmax: where the learned factor on distances starts
    normalisation: float = 0.1  # softmax: weight of "scores say what is an answer"; 0: off
    size: float = 0.01  # softmax: weight of "uncertainty says how many answers"; 0: off
    empty: float = 0.0  # softmax: queries without answers added to a batch, as a share of it
    negatives: int = 128  # margin: entities sampled for each query
    margin: float = 60.0  # margin: the paper's gamma for BetaE; 24 for box and vector
    batch_size: int = 512  # queries of a step, over all structures and processes
    steps: int = 20_000  # optimizer steps; the learning rate falls to zero at the last
    learning_rate: float = 1.5e-3  # of the networks
    table_rate: float = 7.0  # times that for entity and relation rows, seen far less often
    decay: float = 0.0  # L2 penalty on the entity rows that a step touches
    warmup: int = 200  # steps until the full learning rate
    validate_every: int = 500  # steps
    validation_queries: int = 200  # of each structure
    patience: int = 0  # validations without a better MRR before stopping; 0: never stop early
    checkpoint_every: int = 500  # steps
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of matrix products in training
    seed: int = 0  # of weights, order of queries, candidates

    def __post_init__(self) -> None:
        model_name(self.model)  # raises if it is not the config of a model
        check_choice("loss", self.loss, ("softmax", "margin"))
        check_choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        if not self.structures:
            object.__setattr__(self, "structures", default_mix(self.model))
        counts = "candidates negatives batch_size steps validate_every checkpoint_every"
        for name in counts.split():
            check_positive(name, getattr(self, name), whole=True)
        for name in ("warmup", "validation_queries", "patience", "seed"):
            check_positive(name, getattr(self, name), whole=True, or_zero=True)
        for name in ("normalisation", "size", "empty", "decay"):
            check_positive(name, getattr(self, name), or_zero=True)
        if self.empty and self.loss == "margin":
            raise InvalidArgument("empty needs loss = 'softmax': the margin loss needs an answer.")
        for name in ("scale", "margin", "learning_rate", "table_rate"):
            check_positive(name, getattr(self, name))
        if not isinstance(self.structures, dict):
            raise InvalidArgument(f"structures is {self.structures!r}; it must be a table.")
        for name, share in self.structures.items():
            check_positive(f"structures.{name}", share)
        if self.batch_size < len(self.structures):
            raise InvalidArgument(
                f"batch_size is {self.batch_size}, below the {len(self.structures)} structures."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the effective config, defaults filled in, for saving with the run."""
        return {**asdict(self), "model": config_to_json(self.model)}


def read_recipe(path: Path | str) -> TrainConfig:
    """Read a config from a TOML file; what it leaves out keeps its default."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InvalidArgument(f"There is no recipe {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}.") from error
    try:
        return make_config(values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def default_mix(model: ModelConfig) -> dict[str, float]:
    """Return the proportions of the paper's training sets, without what the model cannot do."""
    _, model_class = MODELS[model_name(model)]
    names = [name for name in TRAINING if model_class.has_complement or name not in NEGATION]
    return {name: 0.1 if name in NEGATION else 1.0 for name in names}


def make_config(values: dict[str, Any]) -> TrainConfig:
    """Make a config from plain values, checking names and ranges."""
    check_keys("the recipe", values, [item.name for item in fields(TrainConfig)])
    model = values.get("model", {})
    if not isinstance(model, dict):
        raise InvalidArgument(f"model is {model!r}; it must be a table, with a name in it.")
    return TrainConfig(**{**values, "model": config_from_json(model)})
