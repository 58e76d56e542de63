"""What a person meets on `world`: the demonstration, and questions to the run that it trains."""

import re
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path

import pytest
from rich.console import Console

import betae
from betae import Run
from betae.cli.runs import DEMO_PREDICTIONS, DEMO_QUERY
from betae.training.config import default_config
from tests.cli.test_cli import flat
from tests.cli.test_cli import run as run_command

pytestmark = pytest.mark.slow

FACTS = Path(betae.__file__).parent / "datasets" / "world"


def facts(*splits):
    lines = [(FACTS / f"{name}.tsv").read_text("utf-8").splitlines() for name in splits]
    return [line.split("\t") for line in chain(*lines)]


def capitals_by_hand(*splits):
    """The answers to the demo's question, and the capitals of all hosts."""
    known = facts(*splits)
    european = {h for h, r, t in known if (r, t) == ("located_in", "Europe")}
    hosts = {t for h, r, t in known if (h, r) == ("FIFA World Cup", "hosted")}
    capitals = [(h, t) for h, r, t in known if r == "capital"]
    return (
        sorted({capital for country, capital in capitals if country in european - hosts}),
        {capital for country, capital in capitals if country in hosts},
    )


def shorter_config(graph):
    """Fewer steps, which are enough for what is tested here."""
    config = default_config(graph)
    validation = replace(config.validation, every=200, queries=20)
    return replace(
        config, steps=200, validation=validation, predictor=replace(config.predictor, steps=500)
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder that the demonstration leaves, and what it prints, at once and once more."""
    folder = tmp_path_factory.mktemp("world") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("betae.training.config.default_config", shorter_config)
        patch.setattr("betae.cli.runs.out", Console(width=1000))
        first, again = (run_command("demo", "--out", folder) for _ in range(2))
    assert first.exit_code == 0, first.output
    return folder, first.stdout, again.stdout


@pytest.fixture(scope="module")
def run(demo):
    return Run.open(demo[0] / "run")


def test_the_demo_answers_its_question(demo):
    _, text, again = demo
    capitals, of_hosts = capitals_by_hand("train")
    by_all, _ = capitals_by_hand("train", "valid", "test")
    hidden = set(by_all) - set(capitals)
    assert len(capitals) > 15
    assert len(hidden) > 10
    assert of_hosts

    shown = next(line for line in text.splitlines() if capitals[-1] in line)
    assert ", ".join(capitals) in flat(shown)
    assert f"{len(capitals)} answers follow from the training edges:" in text
    assert not any(capital in shown for capital in of_hosts)
    for words in ("entities", "located_in", "hosted"):
        assert words in text
    assert f"{len(capitals)} known answers" in text
    # The completed graph gives answers whose facts were hidden, and says which edge was missing.
    rows = [line.split() for line in text.splitlines() if re.match(r" +[0-9.]+%", line)]
    assert len(rows) == DEMO_PREDICTIONS
    chances = [float(row[0].removesuffix("%")) for row in rows]
    assert chances == sorted(chances, reverse=True)
    lines = [" ".join(row[1:]) for row in rows]  # capital, missing edge, verdict
    right = [line.startswith(tuple(hidden)) for line in lines]
    for line, is_right in zip(lines, right, strict=True):
        assert line.endswith("true" if is_right else "wrong")
        assert not line.startswith(tuple(of_hosts))
    assert sum(right[:10]) >= 7
    assert sum(" located_in Europe " in line for line in compress(lines, right)) >= 7
    words = f"{sum(right)} of all {len(hidden)} held-out answers are among these {len(rows)}."
    assert f"{sum(right[:10])} of the first 10 are true, and {words}" in text
    assert again == text  # the trained run is found again


def test_a_prediction_is_at_least_as_probable_as_its_best_derivation(run):
    found = run.answerer("train").answer(DEMO_QUERY, status="predicted", explain=True)
    assert len(found) == 10
    for answer in found:
        assert 0 < answer.why.whole_probability() < answer.probability + 1e-6


def test_which_edges_count_is_said(run):
    every, train = (
        run.answerer(edges).answer(DEMO_QUERY, 100, status="assumed") for edges in ("all", "train")
    )
    assert (every.num_known, train.num_known) == (36, 23)
    assert "36 known answers, 36 assumed; about" in every.summary()
    assert "(training edges only); about" in train.summary()
    likely = [0.5 < answer.probability < 1 for answer in every]
    assert sum(likely) >= 0.9 * len(likely)


@pytest.mark.parametrize("edges", ["all", "train"])
def test_a_country_has_one_capital(run, edges):
    found = run.answerer(edges).answer("?X . capital(France, ?X)", threshold=0.05)
    assert [(answer.entity, answer.status) for answer in found] == [("Paris", "known")]
    assert 1 <= found.expected < 1.2


def test_an_absence_is_never_certain(run):
    question = "?X . located_in(?X, Europe) & !member_of(?X, NATO)"
    found = run.answerer().answer(question, 100)
    assert {answer.status for answer in found} >= {"assumed"}
    assert all(answer.probability < 1 for answer in found)


def test_a_contradiction_has_no_answers(run):
    found = run.answerer().answer("?X . capital(France, ?X) & !capital(France, ?X)")
    assert len(found) == found.expected == 0
