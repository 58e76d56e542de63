"""Models on disk: a folder with `model.safetensors` and a manifest that says how to build it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from betae.checks import check_choice, check_keys, check_positive
from betae.errors import InvalidArgument, StoreError
from betae.models import MODELS, ModelConfig, QueryModel
from betae.models.rows import Rows, blocks
from betae.models.shards import SHARDS, check_shards, read_table
from betae.models.tensors import read_shapes, read_tensors, write_tensors
from betae.storage import check_parts, read_manifest, write_manifest, writing_folder

FORMAT_VERSION = 1
WEIGHTS = "model.safetensors"
TABLE = "entities"  # the name of the entity table among the weights


def model_name(config: ModelConfig) -> str:
    """Return the name of the model that a config is for: betae, query2box, gqe or complex."""
    for name, (config_class, _) in MODELS.items():
        if isinstance(config, config_class):
            return name
    classes = ", ".join(config_class.__name__ for config_class, _ in MODELS.values())
    raise InvalidArgument(f"model is {config!r}; it must be one of {classes}.")


def build_model(
    config: ModelConfig, num_entities: int, num_relations: int, rows: Rows | None = None
) -> QueryModel:
    """Build the model that a config describes, with fresh weights; of the entities, for `rows`."""
    _, model_class = MODELS[model_name(config)]
    return model_class(num_entities, num_relations, config, rows)  # type: ignore[arg-type]


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """Return a config as plain values: the model's name and every setting."""
    return {"name": model_name(config), **asdict(config)}


def config_from_json(values: Mapping[str, Any]) -> ModelConfig:
    """Read a config from plain values; a setting that is left out has its default."""
    settings = dict(values)
    name = settings.pop("name", "betae")
    check_choice("model.name", name, MODELS)
    config_class, _ = MODELS[name]
    check_keys("model", settings, [field.name for field in fields(config_class)])
    return config_class(**settings)


def save_model(
    model: QueryModel, folder: Path | str, graph_fingerprint: str = "", overwrite: bool = False
) -> None:
    """Write a model to `folder`, whole or not at all."""
    with writing_folder(Path(folder), overwrite) as partial:
        write_model(model, partial, graph_fingerprint)


def write_model(
    model: QueryModel,
    folder: Path,
    graph_fingerprint: str,
    more: Mapping[str, Any] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    described: Mapping[str, Any] | None = None,
) -> None:
    """Write weights and manifest, with `more` facts, into a folder that `writing_folder` gave.

    `weights` are the model's own unless given; for what is `described`, see `write_manifest`.
    """
    facts = {
        "model": config_to_json(model.config),
        "entities": model.num_entities,
        "relations": model.num_relations,
        "graph": graph_fingerprint,
        **(more or {}),
    }
    write_tensors(folder / WEIGHTS, model.state_dict() if weights is None else weights)
    write_manifest(folder, "model", FORMAT_VERSION, facts, described)


def load_model(folder: Path | str, check_rows: bool = True) -> QueryModel:
    """Read a model, ready to score queries: no dropout, no gradients.

    The weights are mapped into memory: a row of an entity is read when it is needed. All are read
    once to check that they are numbers, but those of entities only if `check_rows`.
    Raises StoreError if the folder is damaged.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, "model", FORMAT_VERSION)
    check_model_parts(folder, manifest)
    try:
        config = config_from_json(manifest["model"])
        for name in ("entities", "relations"):
            check_positive(name, manifest[name], whole=True, or_zero=True)
        _check_layers(config, folder)
        with torch.device("meta"):  # no weights yet: they come from the file
            model = build_model(config, manifest["entities"], manifest["relations"])
    except (KeyError, TypeError, RuntimeError, InvalidArgument) as error:
        raise StoreError(
            f"{folder} is damaged: its manifest does not say how to build the model ({error})."
        ) from error
    load_weights(folder, manifest, model, assign=True, but=() if check_rows else (TABLE,))
    return model.eval().requires_grad_(False)


def _check_layers(config: ModelConfig, folder: Path) -> None:
    """Raise for more layers than there are tensors, before minutes are spent on building them."""
    num_tensors = len(read_shapes(folder / WEIGHTS))
    layers = getattr(config, "layers", 0)
    if layers > num_tensors:
        raise InvalidArgument(f"{layers:,} layers, but {WEIGHTS} has only {num_tensors} tensors")


def check_model_parts(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise StoreError unless the files of a model are all there, and belong together."""
    check_shards(folder, manifest)
    check_parts(folder, manifest)


def load_weights(
    folder: Path,
    manifest: Mapping[str, Any],
    model: QueryModel,
    assign: bool = False,
    but: Collection[str] = (),
) -> None:
    """Copy the weights of a model folder into `model`, or `assign` them without a copy.

    What is copied of the entity table are the model's own rows, a block at a time. All `but` some
    are checked to be finite numbers.
    """
    path, shards = folder / WEIGHTS, manifest.get(SHARDS)
    shapes = read_shapes(path)
    if shards:
        width = read_shapes(folder / shards[0]["file"])[TABLE][1]
        shapes[TABLE] = (shards[-1]["stop"], width)
    _check_shapes(folder, model, shapes)
    if assign and not shards:
        model.load_state_dict(read_tensors(path), assign=True)
    else:
        entities = model.rows.allocate(shapes[TABLE][1]) if assign else model.entities
        read_table(folder, manifest, WEIGHTS, TABLE, model.rows, entities.detach())
        others = read_tensors(path, but=[TABLE])
        model.load_state_dict({**others, TABLE: entities}, assign=assign)
    check_finite(model, but)


def _check_shapes(folder: Path, model: QueryModel, found: dict[str, tuple[int, ...]]) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected[TABLE] = (model.num_entities, model.entities.shape[1])
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise StoreError(
                f"{folder}: {name} is {found.get(name, 'not there')} in the weights, but "
                f"{expected.get(name, 'not there')} by the config (dim {model.dim}, "
                f"{model.num_entities:,} entities, {model.num_relations:,} relations)."
            )


def check_finite(model: QueryModel, but: Collection[str] = ()) -> None:
    """Raise StoreError if a weight, `but` for those of some tensors, is not a finite number."""
    for name, tensor in model.state_dict().items():
        if name in but:
            continue
        numbers = tensor.flatten()
        parts = (numbers[block] for block in blocks(len(numbers), 1))
        bad = sum(int((~torch.isfinite(part)).sum()) for part in parts)
        if bad:
            raise StoreError(
                f"{name} holds {bad:,} numbers that are NaN or infinite: the model has diverged."
            )


@dataclass(frozen=True)
class ModelDescription:
    """What `betae inspect` shows of a model."""

    name: str
    config: dict[str, Any]
    entities: int
    relations: int
    graph: str
    parameters: int
    tensors: dict[str, dict[str, Any]]  # name -> shape, mean, std, smallest, largest


def describe_model(folder: Path | str) -> ModelDescription:
    """Describe the model in a folder."""
    model = load_model(folder)
    manifest = read_manifest(Path(folder), "model", FORMAT_VERSION)
    tensors = {
        name: {
            "shape": list(tensor.shape),
            "mean": tensor.mean().item(),
            "std": tensor.std(correction=0).item(),
            "smallest": tensor.min().item(),
            "largest": tensor.max().item(),
        }
        for name, tensor in model.state_dict().items()
    }
    return ModelDescription(
        model.name,
        asdict(model.config),
        model.num_entities,
        model.num_relations,
        manifest["graph"],
        sum(tensor.numel() for tensor in model.state_dict().values()),
        tensors,
    )
