"""Evaluations as JSON: what is written is read back, and damage is named."""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import StoreError
from betae.evaluation.results import (
    Average,
    Correlation,
    CountError,
    EmptyResult,
    Evaluation,
    GraphFacts,
    MissingResult,
    QueryFacts,
    RankMetrics,
    StructureResult,
    read_evaluations,
    save_evaluation,
)
from tests.evaluation.helpers import evaluation, kept, save, uncertain
from tests.queries.strategies import examples

RUNS = sorted(path.parent for path in Path(__file__).parents[2].glob("results/*/evaluations"))
NAN = float("nan")

# ---- round trips ------------------------------------------------------------------------------

names = st.text(max_size=5)
whole = st.integers(0, 10**9)
finite = st.floats(allow_nan=False, allow_infinity=False)
figure = finite | st.just(NAN)
metrics = st.builds(RankMetrics, figure, figure, figure, figure, whole)
interval = st.tuples(figure, figure)
structure_results = st.builds(
    StructureResult,
    metrics,
    interval,
    metrics,
    whole,
    st.dictionaries(st.integers(0, 9), st.builds(MissingResult, figure, whole), max_size=3),
    st.none() | finite,  # of ranks, which are always numbers
    figure,
    st.none() | st.builds(Correlation, figure, figure),
    st.none() | st.builds(CountError, figure, figure),
    st.none() | st.lists(st.tuples(figure, whole), max_size=3),
)
evaluations = st.builds(
    Evaluation,
    names,
    st.builds(GraphFacts, names, whole, whole),
    st.builds(QueryFacts, names, st.dictionaries(names, names | whole | st.none()), whole),
    st.dictionaries(names, structure_results, max_size=2),
    st.dictionaries(
        names, st.builds(Average, st.lists(names), metrics, interval, metrics), max_size=2
    ),
    st.lists(names),
    st.dictionaries(
        names,
        st.builds(EmptyResult, figure, whole, whole, st.lists(interval, max_size=3)),
        max_size=2,
    ),
    figure,
    st.sampled_from(["embedding", "completed"]),
    st.lists(names),
    names,
    st.just("queries"),
)


@examples(100)
@given(evaluations)
def test_a_round_trip_through_json(tmp_path_factory, made):
    """Compared as text, since NaN is not equal to itself."""
    run = tmp_path_factory.mktemp("run")
    save_evaluation(made, run)
    assert repr(read_evaluations(run)) == repr([made])


@pytest.mark.parametrize("figure", [NAN, math.inf, -math.inf])
def test_what_is_no_number_is_null(tmp_path, figure):
    """An evaluation of hours must not be lost to one infinite uncertainty."""
    run = save(tmp_path / "run", {"1p": uncertain(40.0, spearman=figure)})
    content = json.loads((run / "evaluations" / "queries.json").read_text())
    assert content["structures"]["1p"]["correlation"] == {"spearman": None, "pearson": 0.25}
    read = read_evaluations(run)[0].structures["1p"].correlation
    assert math.isnan(read.spearman)
    assert read.pearson == 0.25


def test_keys_of_another_version_do_no_harm(tmp_path):
    """Later ones are ignored; before there were methods, all were of the embedding."""
    run = save(tmp_path / "run", {"1p": 40.0})
    path = run / "evaluations" / "queries.json"
    content = json.loads(path.read_text()) | {"later": 1}
    content["structures"]["1p"]["median_rank"] = 3
    del content["method"], content["predictors"]
    path.write_text(json.dumps(content))
    assert read_evaluations(run) == [kept({"1p": 40.0})]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_results_are_read(run):
    paths = sorted((run / "evaluations").glob("*.json"), key=lambda path: path.stem)
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    added = {"method": "embedding", "predictors": []}  # since the first were kept
    assert [each.to_json() for each in read_evaluations(run)] == [added | old for old in contents]


def test_the_method_is_written():
    made = evaluation({"1p": 40.0}, method="completed", predictors=["betae", "complex"])
    content = made.to_json()
    assert (content["method"], content["predictors"]) == ("completed", ["betae", "complex"])


# ---- in a run ---------------------------------------------------------------------------------


def test_evaluations_are_read_as_they_were_saved(tmp_path):
    structures = {"1p": uncertain(40.0), "2in": 10.0}
    run = save(tmp_path / "run", structures, empty={"1p": 0.75}, cannot=["pni"])
    assert read_evaluations(run) == [kept(structures, empty={"1p": 0.75}, cannot=["pni"])]


def test_a_name_again_replaces_its_evaluation(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0})
    save(run, {"1p": 50.0})
    (read,) = read_evaluations(run)
    assert read.structures["1p"].metrics.mrr == 50.0
    assert (read.run, read.name) == ("run", "queries")


def test_evaluations_are_read_by_name(tmp_path):
    """As file names, "queries-completed.json" would come before "queries.json"."""
    run = save(tmp_path / "run", {"1p": 50.0}, name="queries-completed", method="completed")
    save(run, {"1p": 40.0})
    assert [each.name for each in read_evaluations(run)] == ["queries", "queries-completed"]


def test_what_a_killed_program_left_is_ignored(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0})
    (run / "evaluations" / ".partial-123-queries.json").write_text('{"run": "ru')
    assert len(read_evaluations(run)) == 1


def change(*keys, to):
    """Return damage: one value of an evaluation's file changed, or taken out."""

    def damage(text):
        content = json.loads(text)
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        if to is None:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = to
        return json.dumps(content)

    return damage


IN_1P = ("structures", "1p")
DAMAGE = {
    "cut": (lambda text: text[:-20], ""),
    "nothing": (lambda _: "", ""),
    "deep": (lambda _: "[" * 100_000, ""),
    "no figures": (lambda _: '{"run": "r", "name": "q"}', "missing required field `model`"),
    "a list": (lambda _: "[1]", "Expected `object`, got `array`"),
    "no graph": (change("graph", to=None), "Object missing required field `graph`"),
    "no metrics": (change(*IN_1P, "metrics", to=None), "`metrics` - at `$.structures[...]`"),
    "a text": (
        change(*IN_1P, "metrics", "mrr", to="high"),
        "Expected a number or null - at `$.structures[...].metrics.mrr`",
    ),
    "a fraction": (
        change(*IN_1P, "num_edges", to=1.5),
        "Expected `int`, got `float` - at `$.structures[...].num_edges`",
    ),
    "true": (change("queries", "count", to=True), "Expected `int`, got `bool`"),
    "true for a figure": (change("seconds", to=True), "Expected a number or null - at `$.seconds`"),
    "half an interval": (change(*IN_1P, "interval", to=[1.0]), "Expected `array` of length 2"),
    "a key": (change(*IN_1P, "by_missing", "one", to={}), "Expected `int`, got `str` - at `key`"),
    "a method": (change("method", to="oracle"), "Invalid enum value 'oracle' - at `$.method`"),
    "a predictor": (change("predictors", to=[1]), "Expected `str`, got `int`"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(tmp_path, damage, words):
    run = save(tmp_path / "run", {"1p": 40.0})
    path = run / "evaluations" / "queries.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(
        StoreError, match=f"{re.escape(str(path))} is damaged: .*{re.escape(words)}"
    ):
        read_evaluations(run)


def test_it_prints_its_figures(result):
    lines = repr(result).splitlines()
    assert lines[0].split() == [f"{result.model},", "embedding", "MRR", "H@1", "H@3", "H@10"]
    assert [line.split()[0] for line in lines[1:]] == list(result.results)
    name, first = next(iter(result.results.items()))
    assert lines[1].split()[:2] == [name, f"{first.metrics.mrr:.1f}%"]
    assert f"<td>{name}</td>" in result._repr_html_()
