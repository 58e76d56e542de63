"""Models on disk: a folder with `model.safetensors` and a manifest of the config.

Several processes write a checkpoint in shards, each its own rows of the entity table; any number of
processes can read it. The manifest lists the shards with their rows; a stamp in the manifest and in
every shard identifies the checkpoint they belong to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from betae.checks import Settings, check_choice, check_keys, check_positive
from betae.errors import InvalidArgument, StoreError
from betae.models import MODELS, ModelConfig, QueryModel
from betae.models.rows import Rows, blocks
from betae.storage import check_parts, read_manifest, write_manifest

# ---- safetensors files --------------------------------------------------------------------------


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: dict[str, str] | None = None
) -> None:
    """Write tensors, with `facts` as metadata, to a safetensors file; raise OSError on failure."""
    path.touch()
    mode = path.stat().st_mode  # safetensors makes the file private
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, facts)
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        code = int(found[1])
        raise OSError(code, os.strerror(code), str(path)) from error
    path.chmod(mode)


def read_tensors(path: Path, exclude: Collection[str] = ()) -> dict[str, Tensor]:
    """Read tensors, skipping `exclude`; raise StoreError if the file is damaged."""
    with explaining_damage(path):
        if not exclude:
            return load_file(path)
        with safe_open(path, "np") as file:  # a file opened for PyTorch counts as memory in use
            names = [name for name in file.keys() if name not in exclude]  # noqa: SIM118
            return {name: torch.from_numpy(file.get_tensor(name)) for name in names}


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a file."""
    with explaining_damage(path), safe_open(path, "np") as file:
        names = file.keys()
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


@contextmanager
def explaining_damage(path: Path) -> Iterator[None]:
    """Turn an error of reading a file of tensors into a StoreError."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise StoreError(f"{path} is damaged: {error}.") from error


# ---- shards -------------------------------------------------------------------------------------

SHARDS, STAMP = "shards", "stamp"  # keys of a manifest


def write_shard(folder: Path, name: str, tensors: Mapping[str, Tensor], stamp: str) -> None:
    """Write the rows of this process; raise StoreError unless the folder is shared."""
    if not folder.is_dir():
        raise StoreError(
            f"{folder} does not exist for this process. All processes must see the folder of the "
            "run under the same path: choose one on a shared file system."
        )
    write_tensors(folder / name, tensors, {STAMP: stamp})


def check_model_parts(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise StoreError unless all files of a model exist and belong together."""
    for shard in manifest.get(SHARDS, []):
        path = folder / shard["file"]
        if not path.is_file():
            raise StoreError(
                f"{path} is missing: it holds the rows of entities {shard['start']:,} to "
                f"{shard['stop'] - 1:,}. Put it back; without it this checkpoint cannot be used, "
                "and training must start again in another folder."
            )
        with explaining_damage(path), safe_open(path, "np") as file:
            stamp = (file.metadata() or {}).get(STAMP)
        if stamp != manifest[STAMP]:
            raise StoreError(
                f"{path} is of another run or step ({stamp}) than the rest of {folder} "
                f"({manifest[STAMP]}): shards were mixed. Put back the one that was written with "
                "the others."
            )
    check_parts(folder, manifest)


def read_entity_rows(
    folder: Path, manifest: Mapping[str, Any], file: str, name: str, rows: Rows, into: Tensor
) -> None:
    """Copy the rows of a tensor with a row per entity, in blocks, from the shards or `file`."""
    whole = [{"file": file, "start": 0, "stop": manifest["entities"]}]
    for shard in manifest.get(SHARDS, whole):
        path, offset = folder / shard["file"], shard["start"]
        first, last = max(offset, rows.start), min(shard["stop"], rows.stop)
        if first >= last:
            continue
        with explaining_damage(path), safe_open(path, "np") as stored, torch.no_grad():
            values, part = stored.get_slice(name), into[first - rows.start : last - rows.start]
            for block in blocks(*part.shape):
                found = values[first - offset + block.start : first - offset + block.stop]
                part[block].copy_(torch.from_numpy(found))


# ---- models -------------------------------------------------------------------------------------

WEIGHTS = "model.safetensors"
TABLE = "entities"  # the entity table among the weights
SettingsType = TypeVar("SettingsType", bound=Settings)


def model_name(config: ModelConfig) -> str:
    """Return the name of a config's model: betae, query2box, gqe or complex."""
    for name, (config_class, _) in MODELS.items():
        if isinstance(config, config_class):
            return name
    classes = ", ".join(config_class.__name__ for config_class, _ in MODELS.values())
    raise InvalidArgument(f"model is {config!r}; it must be one of {classes}.")


def build_model(
    config: ModelConfig, num_entities: int, num_relations: int, rows: Rows | None = None
) -> QueryModel:
    """Build the model of a config with fresh weights, with only `rows` of the entity table."""
    _, model_class = MODELS[model_name(config)]
    return model_class(num_entities, num_relations, config, rows)


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """Return the model's name and all settings as plain values."""
    return {"name": model_name(config), **asdict(config)}


def config_from_json(values: Mapping[str, Any]) -> ModelConfig:
    """Build a config from plain values; missing settings have their defaults."""
    settings = dict(values)
    name = settings.pop("name", "betae")
    check_choice("model.name", name, MODELS)
    config_class, _ = MODELS[name]
    return read_settings("[model]", settings, config_class)


def read_settings(table: str, values: Mapping[str, Any], kind: type[SettingsType]) -> SettingsType:
    """Build a config class from a table of a recipe, which errors name."""
    check_keys(f"{table} ({kind.__name__})", values, [field.name for field in fields(kind)])
    try:
        return kind(**values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{table} {error}") from None


def write_model(
    model: QueryModel,
    folder: Path,
    graph_fingerprint: str,
    more: Mapping[str, Any] | None = None,
    weights: Mapping[str, Tensor] | None = None,
    described: Mapping[str, Any] | None = None,
) -> None:
    """Write weights and manifest, with `more` facts, into a folder of `writing_folder`.

    `weights` default to the model's own; for `described`, see `write_manifest`.
    """
    facts = {
        "model": config_to_json(model.config),
        "entities": model.num_entities,
        "relations": model.num_relations,
        "graph": graph_fingerprint,
        **(more or {}),
    }
    write_tensors(folder / WEIGHTS, model.state_dict() if weights is None else weights)
    write_manifest(folder, "model", facts, described)


def load_model(folder: Path | str, check_rows: bool = True) -> QueryModel:
    """Load a model for inference: no dropout, no gradients.

    The weights are memory-mapped, so entity rows are read when needed. All weights are checked to
    be finite, entity rows only with `check_rows`. Raises StoreError if the folder is damaged.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, "model")
    check_model_parts(folder, manifest)
    try:
        config = config_from_json(manifest["model"])
        for name in ("entities", "relations"):
            check_positive(name, manifest[name], whole=True, or_zero=True)
        layers, num_tensors = getattr(config, "layers", 0), len(read_shapes(folder / WEIGHTS))
        if layers > num_tensors:  # building them would take minutes
            raise InvalidArgument(f"{layers:,} layers, but only {num_tensors} tensors in {WEIGHTS}")
        with torch.device("meta"):  # the weights come from the file
            model = build_model(config, manifest["entities"], manifest["relations"])
    except (KeyError, TypeError, OverflowError, RuntimeError, InvalidArgument) as error:
        raise StoreError(
            f"{folder} is damaged: its manifest does not describe a model ({error})."
        ) from error
    load_weights(folder, manifest, model, assign=True, unchecked=() if check_rows else (TABLE,))
    return model.eval().requires_grad_(False)


def load_weights(
    folder: Path,
    manifest: Mapping[str, Any],
    model: QueryModel,
    assign: bool = False,
    unchecked: Collection[str] = (),
) -> None:
    """Copy the weights of a folder into `model`, or `assign` them without a copy.

    Of the entity table, only the model's own rows are copied, block by block. All weights except
    `unchecked` ones must be finite.
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
        read_entity_rows(folder, manifest, WEIGHTS, TABLE, model.rows, entities.detach())
        others = read_tensors(path, exclude=[TABLE])
        model.load_state_dict({**others, TABLE: entities}, assign=assign)
    check_finite(model, unchecked)


def _check_shapes(folder: Path, model: QueryModel, found: dict[str, tuple[int, ...]]) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected[TABLE] = (model.num_entities, model.entities.shape[1])
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise StoreError(
                f"{folder}: {name} is {found.get(name, 'missing')} in the weights, but "
                f"{expected.get(name, 'missing')} by the config (dim {model.dim}, "
                f"{model.num_entities:,} entities, {model.num_relations:,} relations)."
            )


def check_finite(model: QueryModel, unchecked: Collection[str] = ()) -> None:
    """Raise StoreError if a weight is not finite; tensors in `unchecked` are skipped."""
    for name, tensor in model.state_dict().items():
        if name in unchecked:
            continue
        # The extremes need no temporary tensor; a table may be larger than memory.
        if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            values = tensor.flatten()
            parts = (values[block] for block in blocks(len(values), 1))
            bad = sum(int((~torch.isfinite(part)).sum()) for part in parts)
            raise StoreError(
                f"{name} has {bad:,} values that are NaN or infinite: the model has diverged."
            )


def describe_model(folder: Path) -> dict[str, Any]:
    """Summarise the model in a folder, for `betae inspect`."""
    model = load_model(folder)
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
    return {
        "name": model.name,
        "config": asdict(model.config),
        "entities": model.num_entities,
        "relations": model.num_relations,
        "graph": read_manifest(folder, "model")["graph"],
        "parameters": sum(tensor.numel() for tensor in model.state_dict().values()),
        "tensors": tensors,
    }
