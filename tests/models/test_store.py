"""Models on disk, what is wrong with damaged ones, and `betae inspect`."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from betae import cli
from betae import models as betae_models
from betae.errors import InvalidArgument, StoreError
from betae.models import BetaConfig, BetaE
from betae.models.execute import score_queries
from betae.models.store import (
    WEIGHTS,
    build_model,
    config_from_json,
    config_to_json,
    describe_model,
    load_model,
)
from betae.queries.ast import Entity
from tests.manifests import edit_manifest
from tests.models.reference import (
    MODELS,
    NUM_ENTITIES,
    NUM_RELATIONS,
    enliven,
    make_model,
    save_model,
)

models = pytest.mark.parametrize("name", MODELS)
QUERY = (Entity(1)[0] & Entity(5)[2])[3]


def query_for(name):
    return Entity(1)[0] if name == "complex" else QUERY


@pytest.fixture
def folder(tmp_path):
    """A small BetaE on disk."""
    save_model(make_model("betae"), tmp_path / "model", "the graph's fingerprint")
    return tmp_path / "model"


# ---- building -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model_name", betae_models.MODELS)
def test_a_model_is_built_by_its_config(model_name):
    config_class, model_class = betae_models.MODELS[model_name]
    config = config_class(dim=3)
    model = build_model(config, 7, 4)
    assert type(model) is model_class
    assert model.name == model_name
    assert model.config == config
    assert (model.num_entities, model.num_relations, model.dim) == (7, 4, 3)
    assert config_from_json(config_to_json(config)) == config
    assert config_from_json({"name": model_name}) == config_class()


def test_an_unknown_model():
    with pytest.raises(InvalidArgument, match=r"'sphere'.*betae, query2box, gqe, complex"):
        config_from_json({"name": "sphere"})


@pytest.mark.parametrize("config", ["betae", {"dim": 3}, None, BetaE])
def test_what_is_no_config(config):
    with pytest.raises(
        InvalidArgument, match="one of BetaConfig, Query2BoxConfig, GQEConfig, ComplexConfig"
    ):
        build_model(config, 7, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bound": "smoth"}, "smoth"),
        ({"projection": "modulate"}, "modulate"),
        ({"dim": 0}, "dim"),
        ({"dim": -3}, "dim"),
        ({"layers": 0}, "layers"),
    ],
    ids=str,
)
def test_a_config_out_of_range(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        build_model(replace(BetaConfig(dim=3, hidden=3), **changes), 7, 4)


@pytest.mark.parametrize("name", ["betae", "beta as released"])
def test_a_seed_gives_the_same_model_as_ever(name):
    kind, config = MODELS[name]
    torch.manual_seed(3)
    model = kind(NUM_ENTITIES, NUM_RELATIONS, config)
    torch.manual_seed(3)
    assert torch.equal(model.entities, 0.3 * torch.randn(NUM_ENTITIES, 8))
    table = model.get_parameter(model.relation_tables[0])
    mean, deviation = (1, 0.05) if name == "betae" else (0, 0.5)
    assert torch.equal(table, mean + deviation * torch.randn(table.shape))


# ---- round trip ---------------------------------------------------------------------------------


@models
def test_a_model_comes_back_bit_by_bit(name, tmp_path):
    model = make_model(name)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert (loaded.num_entities, loaded.num_relations) == (NUM_ENTITIES, NUM_RELATIONS)
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    for key in before:
        assert before[key].dtype == after[key].dtype
        assert torch.equal(before[key], after[key]), key
    query = query_for(name)
    with torch.no_grad():
        assert torch.equal(score_queries(model, [query]), score_queries(loaded, [query]))


@models
def test_a_loaded_model_scores_until_it_is_asked_to_learn(name, tmp_path):
    save_model(make_model(name), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert not loaded.training
    assert not score_queries(loaded, [query_for(name)]).requires_grad
    loaded.train().requires_grad_()
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)
    before = loaded.entities.detach().clone()
    score_queries(loaded, [query_for(name)]).sum().backward()
    optimizer.step()
    assert not torch.equal(before, loaded.entities)


@pytest.mark.parametrize("projection", ["modulated", "concatenated"])
def test_a_loaded_model_leaves_nothing_out(projection, tmp_path):
    config = BetaConfig(dim=4, hidden=6, projection=projection, dropout=0.1)
    model = enliven(BetaE(NUM_ENTITIES, NUM_RELATIONS, config))
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    first = score_queries(loaded, [QUERY] * 20)
    assert torch.equal(first, score_queries(loaded, [QUERY] * 20))
    assert not torch.equal(first, score_queries(model, [QUERY] * 20))  # in training it does


@pytest.mark.slow
@models
def test_loading_does_not_import_the_compiler_of_pytorch(name, tmp_path):
    save_model(make_model(name), tmp_path / "model")
    code = """
import sys
from betae.models.execute import score_queries
from betae.models.store import load_model
from betae.queries.ast import And, Entity, Project
score_queries(load_model(sys.argv[1]), [eval(sys.argv[2])])
print({"torch._dynamo", "sympy"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, tmp_path / "model", repr(query_for(name))]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


def test_loading_uses_no_random_numbers(folder):
    before = torch.get_rng_state()
    load_model(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_in_the_way_is_kept_unless_it_may_be_overwritten(folder):
    other = make_model("betae", seed=1)
    with pytest.raises(StoreError, match="already exists"):
        save_model(other, folder)
    assert torch.equal(load_model(folder).entities, make_model("betae").entities)
    save_model(other, folder, overwrite=True)
    assert torch.equal(load_model(folder).entities, other.entities)


# ---- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite(number, tmp_path):
    model = make_model("betae")
    with torch.no_grad():
        model.projection.shift[1, 2] = number
    save_model(model, tmp_path / "model")
    with pytest.raises(StoreError, match=r"projection\.shift has 1 values.*NaN or infinite"):
        load_model(tmp_path / "model")


def test_a_dim_that_does_not_match_the_weights(folder):
    edit_manifest(folder, lambda manifest: manifest["model"].update(dim=7))
    with pytest.raises(StoreError, match=r"\(4,\) in the weights, but \(7,\).*dim 7") as info:
        load_model(folder)
    assert str(folder) in str(info.value)


@pytest.mark.parametrize(
    ("key", "number", "shapes"),
    [("entities", 13, r"\(12, 8\).*\(13, 8\)"), ("relations", 5, r"\(4, \d\).*\(5, \d\)")],
)
def test_a_size_that_does_not_match_the_weights(folder, key, number, shapes):
    edit_manifest(folder, lambda manifest: manifest.update({key: number}))
    with pytest.raises(StoreError, match=shapes):
        load_model(folder)


def test_a_projection_that_is_not_in_the_weights(folder):
    edit_manifest(folder, lambda manifest: manifest["model"].update(projection="concatenated"))
    with pytest.raises(StoreError, match=r"projection\..*missing"):
        load_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["model"].update(name="sphere"),
        lambda manifest: manifest.pop("model"),
        lambda manifest: manifest.update(model=7),
        lambda manifest: manifest.pop("entities"),
        lambda manifest: manifest.update(entities="twelve"),
        lambda manifest: manifest.update(relations=-4),
        lambda manifest: manifest["model"].update(projection="sideways"),
        lambda manifest: manifest["model"].update(dim="four"),
    ],
    ids=[
        "sphere", "no model", "a number", "no entities", "entities in words", "fewer than none",
        "sideways", "dim in words",
    ],
)  # fmt: skip
def test_a_manifest_that_does_not_say_how_to_build_the_model(folder, change):
    edit_manifest(folder, change)
    with pytest.raises(StoreError, match="is damaged"):
        load_model(folder)


@pytest.mark.parametrize("number", [10**9, 10**18, 10**30])
@pytest.mark.parametrize("key", ["layers", "dim", "hidden", "entities", "relations"])
def test_a_manifest_of_a_huge_model_is_refused_at_once(folder, key, number):
    def change(manifest):
        (manifest if key in manifest else manifest["model"])[key] = number

    edit_manifest(folder, change)
    start = time.process_time()
    with pytest.raises(StoreError):
        load_model(folder)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights(folder, keep):
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StoreError, match=r"model\.safetensors is truncated"):
        load_model(folder)


@pytest.mark.parametrize("place", [0, 20, -1])
def test_weights_with_a_flipped_bit(folder, place):
    path = folder / WEIGHTS
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"model\.safetensors is damaged"):
        load_model(folder)


def test_no_weights_or_no_model_at_all(folder, tmp_path, toy_store):
    (folder / WEIGHTS).unlink()
    with pytest.raises(StoreError, match=r"model\.safetensors is missing"):
        load_model(folder)
    with pytest.raises(StoreError, match="is not a betae model"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="holds a graph, not a model"):
        load_model(toy_store)


# ---- inspect ------------------------------------------------------------------------------------


def inspect(*arguments):
    return CliRunner().invoke(cli.app, ["inspect", *map(str, arguments)])


@models
def test_inspect_prints_the_model_and_the_tensors(name, tmp_path):
    model = make_model(name)
    save_model(model, tmp_path / "model")
    result = inspect(tmp_path / "model")
    assert result.exit_code == 0, result.output
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert f"{model.name}, {num_parameters:,} parameters" in result.output
    assert "12 entities, 4 directed relations" in result.output
    assert f"dim {model.dim}" in result.output
    for key, _ in model.named_parameters():
        assert key in result.output


def test_inspect_as_json(folder):
    result = inspect(folder, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    model = make_model("betae")
    assert facts["name"] == "betae"
    assert facts["config"]["dim"] == 4
    assert (facts["entities"], facts["relations"]) == (NUM_ENTITIES, NUM_RELATIONS)
    assert facts["graph"] == "the graph's fingerprint"
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    entities = facts["tensors"]["entities"]
    assert entities["shape"] == [NUM_ENTITIES, 8]
    assert entities["mean"] == pytest.approx(model.entities.mean().item(), rel=1e-5)
    assert entities["std"] == pytest.approx(model.entities.std(correction=0).item(), rel=1e-5)
    assert entities["smallest"] == pytest.approx(model.entities.min().item())
    assert entities["largest"] == pytest.approx(model.entities.max().item())


def test_inspect_of_something_else(tmp_path):
    result = inspect(tmp_path)
    assert isinstance(result.exception, StoreError)
    assert "not a betae model" in str(result.exception)


def test_describe_a_model_of_one_dimension(tmp_path):
    save_model(enliven(BetaE(1, 2, BetaConfig(dim=1, hidden=1, layers=1))), tmp_path / "model")
    description = describe_model(tmp_path / "model")
    assert description["tensors"]["entities"]["shape"] == [1, 2]
    assert description["tensors"]["projection.last.bias"]["std"] >= 0
