"""Recipes: what they leave out, and what they get wrong."""

import json
import math
from dataclasses import FrozenInstanceError, fields

import pytest

from betae.errors import InvalidArgument, StoreError
from betae.models import BetaConfig, BoxConfig, ComplexConfig, VectorConfig
from betae.queries.structures import NEGATION, TRAINING
from betae.training.config import TrainConfig, make_config, read_recipe
from betae.training.folder import RunFolder
from tests.training.helpers import small_config


def test_a_recipe_changes_the_defaults(write):
    path = write(
        "recipe.toml",
        'steps = 7\nlearning_rate = 1e-2\n[model]\nname = "query2box"\ndim = 16\n'
        "[structures]\n1p = 2\n2i = 0.5\n",
    )
    config = read_recipe(path)
    assert (config.steps, config.learning_rate) == (7, 0.01)
    assert config.structures == {"1p": 2, "2i": 0.5}
    assert config.model == BoxConfig(dim=16)
    defaults = TrainConfig()
    for field in fields(TrainConfig):
        if field.name not in ("steps", "learning_rate", "model", "structures"):
            assert getattr(config, field.name) == getattr(defaults, field.name)


def test_the_default_mix_is_the_papers():
    assert TrainConfig().structures == {name: 0.1 if name in NEGATION else 1.0 for name in TRAINING}


def test_the_defaults_of_a_link_predictor():
    """Another learning rate, since Adagrad's falls by itself, and nothing but edges."""
    config = make_config({"model": {"name": "complex"}})
    assert config == TrainConfig(model=ComplexConfig())
    assert (config.structures, config.learning_rate) == ({"1p": 1.0}, 0.1)
    assert config.is_for_links
    for model in (BetaConfig(), BoxConfig(), VectorConfig()):
        assert TrainConfig(model=model).learning_rate == 1.5e-3
        assert not TrainConfig(model=model).is_for_links
    assert TrainConfig(model=ComplexConfig(), learning_rate=0.5).learning_rate == 0.5


@pytest.mark.parametrize("values", [{"loss": "margin"}, {"empty": 0.1}, {"decay": 0.1}], ids=str)
def test_a_link_predictor_has_its_own_loss(values):
    with pytest.raises(InvalidArgument, match=r"leave out loss, empty and decay.*n3"):
        make_config({"model": {"name": "complex"}, **values})


def test_a_config_does_not_change():
    with pytest.raises(FrozenInstanceError):
        TrainConfig().steps = 3


def test_an_empty_recipe_is_the_default(write):
    assert read_recipe(write("recipe.toml", "")) == TrainConfig()


def test_the_effective_config_goes_there_and_back(tmp_path):
    config = small_config(model_name="gqe", structures={"1p": 1})
    RunFolder(tmp_path / "run").save_config(config)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["model"] == {"name": "gqe", "dim": 8, "span": 0.5}
    assert saved["table_rate"] == TrainConfig().table_rate  # defaults are written out
    assert saved.keys() == {field.name for field in fields(TrainConfig)}
    assert RunFolder(tmp_path / "run").read_config().to_json() == config.to_json()
    RunFolder(tmp_path / "run").check_same_config(config)


def test_another_config_names_what_differs(tmp_path):
    RunFolder(tmp_path).save_config(small_config())
    other = small_config(seed=3, learning_rate=0.5)
    with pytest.raises(InvalidArgument, match=r"\(learning_rate, seed differ\)"):
        RunFolder(tmp_path).check_same_config(other)
    with pytest.raises(InvalidArgument, match=r"\(model differ\)"):
        RunFolder(tmp_path).check_same_config(small_config(model={"dim": 4, "hidden": 8}))


def test_configs_that_cannot_be_read(tmp_path):
    with pytest.raises(StoreError, match=r"not a run: it has no config\.json"):
        RunFolder(tmp_path).read_config()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(StoreError, match=r"config\.json is damaged"):
        RunFolder(tmp_path).read_config()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rat": 1}, "has no setting 'learning_rat'. Did you mean 'learning_rate'?"),
        ({"batchsize": 1}, "has no setting 'batchsize'. Did you mean 'batch_size'?"),
        ({"Seed": 1}, "Did you mean 'seed'?"),
        ({"model": {"dims": 4}}, "model has no setting 'dims'. Did you mean 'dim'?"),
        (
            {"model": {"name": "query2box", "hidden": 4}},
            "model has no setting 'hidden'.",
        ),
        (
            {"model": {"name": "ball"}},
            "model.name is 'ball'; choose one of betae, query2box, gqe, complex.",
        ),
        ({"loss": "mse"}, "loss is 'mse'; choose one of softmax, margin."),
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
        make_config(values)
    assert message in str(error.value)


COUNTS = ["candidates", "negatives", "batch_size", "steps", "validate_every", "checkpoint_every"]
AMOUNTS = ["scale", "margin", "learning_rate", "table_rate"]
OR_ZERO = ["warmup", "validation_queries", "patience", "seed"]


@pytest.mark.parametrize("value", [0, -1, "7", None, True, math.nan, [1]])
@pytest.mark.parametrize("name", [*COUNTS, *AMOUNTS])
def test_numbers_that_must_be_positive(name, value):
    if (name, value) == ("learning_rate", None):
        pytest.skip("the model's own")
    with pytest.raises(InvalidArgument, match=f"{name} is .*it must be a .*number above 0"):
        make_config({name: value})


@pytest.mark.parametrize("value", [-1, "7", None, True, math.nan])
@pytest.mark.parametrize("name", OR_ZERO)
def test_numbers_that_may_be_zero(name, value):
    with pytest.raises(InvalidArgument, match=f"{name} is .*it must be a whole number at least 0"):
        make_config({name: value})
    assert getattr(make_config({name: 0}), name) == 0


@pytest.mark.parametrize("value", [-1, "7", None, True, math.nan])
@pytest.mark.parametrize(
    "name", ["normalisation", "smoothing", "popularity", "size", "empty", "decay"]
)
def test_weights_of_costs_may_be_zero(name, value):
    with pytest.raises(InvalidArgument, match=f"{name} is .*it must be a number at least 0"):
        make_config({name: value})
    assert getattr(make_config({name: 0}), name) == 0


@pytest.mark.parametrize("value", [1, "yes", None])
def test_near_misses_is_true_or_false(value):
    with pytest.raises(
        InvalidArgument, match=f"near_misses is {value!r}; it must be true or false"
    ):
        make_config({"near_misses": value})


@pytest.mark.parametrize("name", [*COUNTS, *OR_ZERO])
def test_counts_are_whole_numbers(name):
    with pytest.raises(InvalidArgument, match=name):
        make_config({name: 1.5})


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"learning_rate": math.inf}, "learning_rate"),
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
        make_config(values)


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
        read_recipe(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(InvalidArgument, match="There is no recipe"):
        read_recipe(tmp_path / "no.toml")


def test_a_recipe_that_is_a_folder(tmp_path):
    with pytest.raises(InvalidArgument, match=str(tmp_path)):
        read_recipe(tmp_path)
