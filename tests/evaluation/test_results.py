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
    KeptEvaluation,
    Metrics,
    MissingResult,
    QueryFacts,
    StructureResult,
    read_evaluations,
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
metrics = st.builds(Metrics, figure, figure, figure, figure, whole)
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
)


@examples(100)
@given(evaluations, names, names)
def test_a_round_trip_through_json(made, run, name):
    """Compared as text, since NaN is not equal to itself."""
    text = json.dumps(KeptEvaluation(run, name, made).to_json(), allow_nan=False)
    read = KeptEvaluation.from_json(json.loads(text))
    assert repr(read) == repr(KeptEvaluation(run, name, made))


@pytest.mark.parametrize("figure", [NAN, math.inf, -math.inf])
def test_what_is_no_number_is_null(figure):
    """An evaluation of hours must not be lost to one infinite uncertainty."""
    made = evaluation({"1p": uncertain(40.0, spearman=figure)})
    content = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert content["structures"]["1p"]["correlation"] == {"spearman": None, "pearson": 0.25}
    read = Evaluation.from_json(content).structures["1p"].correlation
    assert math.isnan(read.spearman)
    assert read.pearson == 0.25


def test_keys_of_a_later_version_do_no_harm():
    content = kept({"1p": 40.0}).to_json()
    content["structures"]["1p"]["median_rank"] = 3
    assert KeptEvaluation.from_json({**content, "later": 1}) == kept({"1p": 40.0})


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_results_are_read(run):
    paths = sorted((run / "evaluations").glob("*.json"), key=lambda path: path.stem)
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    added = {"method": "embedding", "predictors": []}  # since the first were kept
    assert [each.to_json() for each in read_evaluations(run)] == [added | old for old in contents]


def test_an_evaluation_kept_before_there_were_methods_is_of_the_embedding():
    content = kept({"1p": 40.0}).to_json()
    del content["method"], content["predictors"]
    assert KeptEvaluation.from_json(content) == kept({"1p": 40.0})


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
    assert read.evaluation.structures["1p"].metrics.mrr == 50.0
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
    "no figures": (lambda _: "{}", "the file has no 'model'"),
    "a list": (lambda _: "[1]", "the file is [1], not an object"),
    "no name": (change("name", to=None), "name is null; a string was expected"),
    "no metrics": (change(*IN_1P, "metrics", to=None), "structures.1p has no 'metrics'"),
    "a text": (
        change(*IN_1P, "metrics", "mrr", to="high"),
        'structures.1p.metrics.mrr is "high"; a number was expected',
    ),
    "a fraction": (
        change(*IN_1P, "num_edges", to=1.5),
        "structures.1p.num_edges is 1.5; a whole number was expected",
    ),
    "true": (
        change("queries", "count", to=True),
        "queries.count is true; a whole number was expected",
    ),
    "half an interval": (
        change(*IN_1P, "interval", to=[1.0]),
        "structures.1p.interval is [1.0]; a list was expected",
    ),
    "a key": (
        change(*IN_1P, "by_missing", "one", to={}),
        "structures.1p.by_missing has the key 'one'; a whole number was expected",
    ),
    "a method": (
        change("method", to="oracle"),
        'method is "oracle"; "embedding" or "completed" was expected',
    ),
    "a predictor": (
        change("predictors", to=[1]),
        "predictors is 1; a string was expected",
    ),
    "a list of structures": (
        change("structures", to=list(range(100))),
        "structures is [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …; an object was expected",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(tmp_path, damage, words):
    run = save(tmp_path / "run", {"1p": 40.0})
    path = run / "evaluations" / "queries.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(StoreError, match=re.escape(f"{path} is damaged: {words}")):
        read_evaluations(run)
