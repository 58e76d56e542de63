"""Recipes: what they leave out, and what they get wrong."""

import json
import math
from dataclasses import FrozenInstanceError, fields

import pytest

from betae.errors import InvalidArgument, StoreError
from betae.models import BetaConfig, ComplexConfig, GQEConfig, Query2BoxConfig
from betae.queries.structures import NEGATION, TRAINING
from betae.training.config import (
    AdagradConfig,
    AdamConfig,
    LinkLossConfig,
    MarginConfig,
    SoftmaxConfig,
    TrainConfig,
    ValidationConfig,
)
from betae.training.folder import RunFolder
from tests.training.helpers import small_config


def test_a_recipe_changes_the_defaults(write):
    path = write(
        "recipe.toml",
        'steps = 7\n[model]\nname = "query2box"\ndim = 16\n[structures]\n1p = 2\n2i = 0.5\n'
        "[optimizer]\nlearning_rate = 1e-2\n",
    )
    config = TrainConfig.read(path)
    assert (config.steps, config.optimizer) == (7, AdamConfig(learning_rate=0.01))
    assert config.structures == {"1p": 2, "2i": 0.5}
    assert config.model == Query2BoxConfig(dim=16)
    defaults = TrainConfig()
    for field in fields(TrainConfig):
        if field.name not in ("steps", "optimizer", "model", "structures"):
            assert getattr(config, field.name) == getattr(defaults, field.name)


def test_the_default_mix_is_the_papers():
    assert TrainConfig().structures == {name: 0.1 if name in NEGATION else 1.0 for name in TRAINING}


def test_the_defaults_of_a_link_predictor():
    """Another learning rate, since Adagrad's falls by itself, and nothing but edges."""
    config = TrainConfig.from_json({"model": {"name": "complex"}})
    assert config == TrainConfig(model=ComplexConfig())
    assert (config.structures, config.optimizer.learning_rate) == ({"1p": 1.0}, 0.1)
    assert config.is_for_links
    for model in (BetaConfig(), Query2BoxConfig(), GQEConfig()):
        assert TrainConfig(model=model).optimizer == AdamConfig(learning_rate=1.5e-3)
        assert not TrainConfig(model=model).is_for_links


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": {"name": "margin"}}, "[loss] (LinkLossConfig) has no setting 'name'."),
        ({"loss": {"unanswerable": 0.1}}, "has no setting 'unanswerable'"),
        ({"optimizer": {"weight_decay": 0.1}}, "[optimizer] (AdagradConfig) has no setting"),
    ],
    ids=str,
)
def test_a_link_predictor_has_its_own_loss_and_optimizer(values, message):
    with pytest.raises(InvalidArgument) as error:
        TrainConfig.from_json({"model": {"name": "complex"}, **values})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ComplexConfig(), "loss": MarginConfig()}, "ComplexConfig needs LinkLossConfig."),
        ({"loss": LinkLossConfig()}, "BetaConfig needs SoftmaxConfig or MarginConfig."),
        ({"loss": "margin"}, "loss is 'margin'; BetaConfig needs SoftmaxConfig or MarginConfig."),
        ({"optimizer": AdagradConfig()}, "BetaConfig needs AdamConfig."),
        ({"validation": 3}, "validation is 3; BetaConfig needs ValidationConfig."),
        ({"predictor": TrainConfig()}, "predictor is for a link predictor"),
    ],
    ids=str,
)
def test_parts_that_do_not_fit(settings, message):
    with pytest.raises(InvalidArgument) as error:
        TrainConfig(**settings)
    assert message in str(error.value)


def test_a_config_does_not_change():
    with pytest.raises(FrozenInstanceError):
        TrainConfig().steps = 3


def test_an_empty_recipe_is_the_default(write):
    assert TrainConfig.read(write("recipe.toml", "")) == TrainConfig()


def test_the_effective_config_goes_there_and_back(tmp_path):
    config = small_config(model_name="gqe", structures={"1p": 1})
    RunFolder(tmp_path / "run").save_config(config)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["model"] == {"name": "gqe", "dim": 8, "span": 0.5}
    assert saved["optimizer"]["table_rate"] == AdamConfig().table_rate  # defaults are written out
    assert saved.keys() == {field.name for field in fields(TrainConfig)}
    assert RunFolder(tmp_path / "run").read_config().to_json() == config.to_json()
    RunFolder(tmp_path / "run").check_same_config(config)


def test_another_config_names_what_differs(tmp_path):
    RunFolder(tmp_path).save_config(small_config())
    other = small_config(seed=3, learning_rate=0.5)
    with pytest.raises(InvalidArgument, match=r"\(optimizer\.learning_rate, seed differ\)"):
        RunFolder(tmp_path).check_same_config(other)
    with pytest.raises(InvalidArgument, match=r"\(model\.dim differ\)"):
        RunFolder(tmp_path).check_same_config(small_config(model={"dim": 4, "hidden": 8}))


def test_configs_that_cannot_be_read(tmp_path):
    with pytest.raises(StoreError, match=r"not a run: it has no config\.json"):
        RunFolder(tmp_path).read_config()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(StoreError, match=r"config\.json is damaged"):
        RunFolder(tmp_path).read_config()


def test_a_run_of_an_earlier_version(tmp_path):
    old = {"model": {"name": "betae"}, "loss": "softmax", "candidates": 16, "learning_rate": 0.1}
    (tmp_path / "config.json").write_text(json.dumps(old))
    with pytest.raises(StoreError, match=r"written by an earlier version.*train the run again"):
        RunFolder(tmp_path).read_config()
    for damaged in ("[]", '{"steps": 0}', '{"loss": 3}'):
        (tmp_path / "config.json").write_text(damaged)
        with pytest.raises(StoreError, match="is damaged"):
            RunFolder(tmp_path).read_config()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"optimizer": {"learning_rat": 1}},
            "[optimizer] (AdamConfig) has no setting 'learning_rat'. Did you mean 'learning_rate'?",
        ),
        ({"size": 0.1}, "no setting 'size'. It is now cardinality_weight in [loss]."),
        ({"validate_every": 1}, "no setting 'validate_every'. It is now every in [validation]."),
        ({"loss": {"candidate": 1}}, "[loss] (SoftmaxConfig) has no setting 'candidate'."),
        ({"loss": {"name": "margin", "candidates": 1}}, "[loss] (MarginConfig) has no setting"),
        ({"loss": {"candidates": 0}}, "[loss] candidates is 0; it must be a whole number above 0."),
        (
            {"predictor": {"model": {"name": "complex"}, "loss": {"candidates": 0}}},
            "[predictor]: [loss] candidates is 0",
        ),
        ({"predictor": 3}, "predictor is 3; it must be a table."),
        ({"batchsize": 1}, "has no setting 'batchsize'. Did you mean 'batch_size'?"),
        ({"Seed": 1}, "Did you mean 'seed'?"),
        ({"model": {"dims": 4}}, "[model] (BetaConfig) has no setting 'dims'. Did you mean 'dim'?"),
        (
            {"model": {"name": "query2box", "hidden": 4}},
            "[model] (Query2BoxConfig) has no setting 'hidden'.",
        ),
        (
            {"model": {"name": "ball"}},
            "model.name is 'ball'; choose one of betae, query2box, gqe, complex.",
        ),
        ({"loss": {"name": "mse"}}, "loss.name is 'mse'; choose one of softmax, margin."),
        ({"loss": "margin"}, "loss is 'margin'; it must be a table."),
        (
            {"precision": "float16"},
            "precision is 'float16'; choose one of auto, float32, bfloat16.",
        ),
        ({"model": {"name": 3}}, "model.name is 3; choose one of"),
        ({"model": {"dim": 0}}, "dim is 0; it must be a whole number above 0."),
        ({"model": {"dim": True}}, "dim is True"),
        ({"structures": 3}, "structures is 3; it must be a table."),
        ({"structures": {"1p": 0}}, "structures.1p is 0; it must be a number above 0."),
        ({"structures": {"1p": 1, "2p": -1}}, "structures.2p is -1"),
    ],
)
def test_bad_names_and_choices(values, message):
    with pytest.raises(InvalidArgument) as error:
        TrainConfig.from_json(values)
    assert message in str(error.value)


PARTS = [SoftmaxConfig, MarginConfig, LinkLossConfig, AdamConfig, AdagradConfig, ValidationConfig]
SETTINGS = [
    (part, item.name, item.default) for part in (*PARTS, TrainConfig) for item in fields(part)
]
NUMBERS = [each for each in SETTINGS if type(each[2]) in (int, float)]
OR_ZERO = {"warmup", "queries", "patience", "seed", "log_partition_weight", "smoothing"}
OR_ZERO |= {"degree_correction", "cardinality_weight", "unanswerable", "weight_decay"}


@pytest.mark.parametrize(("part", "name", "default"), NUMBERS)
def test_numbers_out_of_range(part, name, default):
    kind = "whole number" if isinstance(default, int) else "number"
    bound = "at least 0" if name in OR_ZERO else "above 0"
    wrong = [-1, "7", [1], True, math.nan, math.inf]
    wrong += [0] * (name not in OR_ZERO) + [1.5] * isinstance(default, int)
    for value in wrong:
        with pytest.raises(InvalidArgument) as error:
            part(**{name: value})
        assert str(error.value) == f"{name} is {value!r}; it must be a {kind} {bound}."
    if name in OR_ZERO:
        assert getattr(part(**{name: 0}), name) == 0


@pytest.mark.parametrize("value", [1, "yes", None])
def test_hard_negatives_is_true_or_false(value):
    with pytest.raises(InvalidArgument, match=f"hard_negatives is {value!r}; it must be true or"):
        SoftmaxConfig(hard_negatives=value)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"optimizer": {"learning_rate": math.inf}}, "learning_rate"),
        ({"seed": -0.5}, "seed"),
        ({"model": {"name": ["betae"]}}, "model.name"),
        ({"model": {"dim": 2.5}}, "dim"),
        ({"model": {"dim": "8"}}, "dim"),
        ({"model": {"projection": "linear"}}, "projection"),
        ({"model": {"bound": "hard"}}, "bound"),
        ({"model": 8}, "model"),
        ({"structures": ["1p"]}, "structures"),
        ({"structures": {"1p": "many"}}, "structures"),
        ({"structures": {"1p": math.nan}}, "structures"),
        ({"structures": {"1p": math.inf}}, "structures"),
    ],
)
def test_values_of_another_kind(values, name):
    with pytest.raises(InvalidArgument, match=name):
        TrainConfig.from_json(values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("steps = ", "is not valid TOML"),
        ("[model\n", "is not valid TOML"),
        (b"\xff\xfe\x00", "is not valid TOML"),
        ("step = 4\n", "Did you mean 'steps'?"),
        ("steps = 0\n", "steps is 0"),
    ],
)
def test_bad_recipes_name_the_file(content, message, write):
    path = write("recipe.toml", content)
    with pytest.raises(InvalidArgument) as error:
        TrainConfig.read(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(InvalidArgument, match="There is no recipe"):
        TrainConfig.read(tmp_path / "no.toml")


def test_a_recipe_that_is_a_folder(tmp_path):
    with pytest.raises(InvalidArgument, match=str(tmp_path)):
        TrainConfig.read(tmp_path)
