"""`betae eval` and `betae report` on a small trained run, from the command line."""

import json
import shutil

import numpy as np
import pytest

from betae import KnowledgeGraph
from betae.datasets.release import write_release_queries
from betae.errors import BetaeError
from betae.evaluation.tables import MODEL_NAMES
from betae.graph.triples import Triples
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_queries
from betae.run import Run
from betae.training import loop
from betae.training.folder import RunFolder
from tests.answering.helpers import strict
from tests.cli.test_cli import flat, run, run_main
from tests.training.helpers import POSITIVE, small_config

STRUCTURES = ("1p", "2p", "2i", "2u", "2in")

pytestmark = pytest.mark.usefixtures("quick")


def graph_with_test_edges(seed=0, num_entities=30):
    generator = np.random.default_rng(seed)
    edges = np.unique(generator.integers([num_entities, 3, num_entities], size=(160, 3)), axis=0)
    test, valid, train = np.split(generator.permutation(edges).astype(np.int32), [25, 50])
    names = [f"e{number}" for number in range(num_entities)], ["r0", "r1", "r2"]
    splits = {"train": train, "valid": valid, "test": test}
    return KnowledgeGraph.from_triples(Triples(*names, splits))


def sample(graph, split="test", structures=STRUCTURES):
    return sample_queries(graph, dict.fromkeys(structures, 6), split)


@pytest.fixture(scope="module")
def made(quick, tmp_path_factory):
    """Two graphs, their query sets in both formats, and runs of two models on the first."""
    folder = tmp_path_factory.mktemp("made")
    graph_with_test_edges().save(folder / "graph")
    graph_with_test_edges(seed=1).save(folder / "other-graph")
    graph = KnowledgeGraph.open(folder / "graph")
    sample(graph).save(folder / "queries")
    sample(KnowledgeGraph.open(folder / "other-graph")).save(folder / "other-queries")
    sample(graph, structures=["2in"]).save(folder / "negation")
    sample(graph, "train").save(folder / "train-queries")
    none = {name: block.take(np.arange(0)) for name, block in sample(graph).blocks.items()}
    QuerySet("test", none, graph.fingerprint).save(folder / "no-queries")
    write_release_queries(sample(graph), folder / "release")
    write_release_queries(sample(graph, "valid"), folder / "valid")
    for name in ("queries", "easy-answers", "hard-answers"):
        shutil.copy(folder / "valid" / f"valid-{name}.pkl", folder / "release")
    quick = {"steps": 3, "validate_every": 3, "loss": "margin", "structures": POSITIVE}
    for model_name in ("betae", "query2box"):
        valid = sample(graph, "valid", POSITIVE)
        loop.fit(
            graph,
            small_config(model_name=model_name, **quick),
            RunFolder(folder / model_name),
            valid=valid,
        )
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of all that, to write to and to move."""
    return shutil.copytree(made, tmp_path / "folder")


def evaluate(run_folder, *arguments, empty=20):
    """Run `betae eval` by the paper's protocol, with few unanswerable queries."""
    return run("eval", run_folder, "--method", "embedding", "--empty", empty, *arguments)


def stored(run_folder, name="queries"):
    return strict((run_folder / "evaluations" / f"{name}.json").read_text("utf-8"))


# ---- eval -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_eval_shows_and_keeps_the_figures(folder):
    result = evaluate(folder / "betae", "--queries", folder / "queries")
    assert result.exit_code == 0, result.exception
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert lines[1][:3] == ["MRR", "H@1", "H@10"]
    there = ["1p", "2p", "2i", "2u", "2u-DM", "EPFO", "2in", "negation"]
    assert [line[0] for line in lines[2 : 2 + len(there)]] == there
    path = folder / "betae" / "evaluations" / "queries.json"
    assert path.is_file()
    assert f"betae report {folder / 'betae'}" in flat(result.stdout)

    told = stored(folder / "betae")
    assert (told["run"], told["name"], told["model"]) == ("betae", "queries", "betae")
    assert told["graph"]["entities"] == 30
    assert told["graph"]["relations"] == 3
    assert told["queries"]["count"] == 30
    for name, line in zip(there, lines[2:], strict=False):
        figures = {**told["structures"], **told["averages"]}[name]["metrics"]
        expected = [figures[key] for key in ("mrr", "hits_at_1", "hits_at_10")]
        assert line[1:4] == [f"{figure:.1f}" for figure in expected]
        assert 0 < figures["mrr"] <= 100


def test_json_is_all_there_is_on_stdout(folder, monkeypatch, capsys):
    arguments = ["--queries", folder / "queries", "--method", "embedding", "--empty", 20, "--json"]
    code, out, _ = run_main(monkeypatch, capsys, "eval", folder / "betae", *arguments)
    assert code == 0
    told = strict(out)
    kept = stored(folder / "betae")
    assert told == kept
    assert set(told["structures"]) == {"1p", "2p", "2i", "2u", "2u-DM", "2in"}
    assert set(told["empty"]) <= {"1p", "2p", "2i", "2in"}


@pytest.mark.slow
def test_a_figure_that_is_not_a_number_is_null(folder):
    """One query alone correlates with nothing."""
    graph = KnowledgeGraph.open(folder / "graph")
    sample_queries(graph, {"1p": 1}, "test").save(folder / "one")
    result = evaluate(folder / "betae", "--queries", folder / "one", "--json", empty=0)
    told = strict(result.stdout)
    assert told["structures"]["1p"]["correlation"] == {"spearman": None, "pearson": None}
    assert told["empty"] == {}
    assert evaluate(folder / "betae", "--queries", folder / "one", empty=0).exit_code == 0
    assert run("report", folder / "betae", "--out", folder / "report").exit_code == 0


def test_the_same_evaluation_twice(folder):
    both = []
    for _ in range(2):
        result = evaluate(folder / "betae", "--queries", folder / "queries", "--json")
        both.append({k: v for k, v in strict(result.stdout).items() if k != "seconds"})
    assert both[0] == both[1]


def test_a_release_is_evaluated_like_a_set(folder):
    (folder / "release" / "manifest.json").unlink()  # which only sets of betae's own have
    for name in ("queries", "release"):
        assert evaluate(folder / "betae", "--queries", folder / name).exit_code == 0
    own, release = stored(folder / "betae"), stored(folder / "betae", "release")
    assert release["queries"]["origin"]["kind"] == "betae"
    assert release["queries"]["split"] == "test"
    assert own["structures"].keys() == release["structures"].keys()
    for name, result in own["structures"].items():
        assert release["structures"][name]["metrics"] == pytest.approx(result["metrics"])
        assert release["structures"][name]["by_missing"].keys() == result["by_missing"].keys()


def test_pickles_that_betae_wrote_are_not_called_official(folder):
    """`betae sample --pickles` writes files like the release's, not the release's queries."""
    result = evaluate(folder / "betae", "--queries", folder / "release")
    assert "official" not in flat(result.stdout)
    assert "test queries: queries sampled by betae." in flat(result.stdout)
    origin = stored(folder / "betae", "release")["queries"]["origin"]
    assert origin == json.loads((folder / "queries" / "manifest.json").read_text())["origin"]
    assert run("report", folder / "betae", "--out", folder / "page").exit_code == 0
    assert "official" not in (folder / "page" / "report.md").read_text()


def test_a_release_without_easy_answers_is_of_query2box(folder):
    for name in ("test-easy-answers.pkl", "manifest.json"):
        (folder / "release" / name).unlink()
    assert evaluate(folder / "betae", "--queries", folder / "release").exit_code == 0
    assert evaluate(folder / "betae", "--queries", folder / "queries").exit_code == 0
    release = stored(folder / "betae", "release")
    assert release["queries"]["origin"]["kind"] == "query2box"
    for name, result in stored(folder / "betae")["structures"].items():
        assert release["structures"][name]["metrics"] == pytest.approx(result["metrics"])


def test_the_splits_of_a_release_are_kept_apart(folder):
    for split in ("test", "valid"):
        arguments = ["--queries", folder / "release", "--split", split]
        assert evaluate(folder / "betae", *arguments, empty=0).exit_code == 0
    paths = (folder / "betae" / "evaluations").glob("*.json")
    splits = [json.loads(path.read_text())["queries"]["split"] for path in paths]
    assert sorted(splits) == ["test", "valid"]


def test_what_a_model_cannot_do_is_said(folder):
    result = evaluate(folder / "query2box", "--queries", folder / "queries")
    assert result.exit_code == 0, result.exception
    assert "The model cannot do 2in." in result.stdout
    told = stored(folder / "query2box")
    assert told["cannot"] == ["2in"]
    assert "2in" not in told["structures"]
    assert "negation" not in told["averages"]


def test_a_model_that_can_do_none_of_the_queries(folder):
    result = evaluate(folder / "query2box", "--queries", folder / "negation")
    assert result.exception is None or isinstance(result.exception, BetaeError)
    lines = [*result.stdout.splitlines(), str(result.exception)]
    assert any("cannot do 2in" in line for line in lines)


# ---- the completed graph ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["betae", "query2box"])
def test_eval_by_the_completed_graph(folder, name):
    """Any model can do any structure there, and a union has but one form."""
    result = run("eval", folder / name, "--queries", folder / "queries")
    assert result.exit_code == 0, result.exception
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    title = flat(result.stdout.partition("MRR")[0])
    assert title.startswith(f"{MODEL_NAMES[name]}, completed graph: 30 test queries: ")
    there = ["1p", "2p", "2i", "2u", "EPFO", "2in", "negation"]
    assert [line[0] for line in lines if line[0] in there] == there
    assert "cannot" not in result.stdout
    assert "Spearman" not in result.stdout  # that is of an embedding

    assert [path.name for path in (folder / name / "evaluations").iterdir()] == [
        "queries-completed.json"
    ]
    told = stored(folder / name, "queries-completed")
    assert (told["method"], told["predictors"], told["model"]) == ("completed", [name], name)
    assert (told["run"], told["name"]) == (name, "queries-completed")
    assert (told["cannot"], told["empty"]) == ([], {})
    for structure, line in zip(there, [line for line in lines if line[0] in there], strict=True):
        metrics = {**told["structures"], **told["averages"]}[structure]["metrics"]
        assert line[1] == f"{metrics['mrr']:.1f}"


def test_the_two_methods_are_kept_and_reported_side_by_side(folder, monkeypatch):
    for method in ("embedding", "completed"):
        arguments = ["--queries", folder / "queries", "--method", method, "--json"]
        told = strict(evaluate(folder / "betae", *arguments).stdout)
        assert told["method"] == method
    both = stored(folder / "betae"), stored(folder / "betae", "queries-completed")
    assert [told["method"] for told in both] == ["embedding", "completed"]
    assert both[0]["structures"]["1p"]["metrics"] != both[1]["structures"]["1p"]["metrics"]
    assert both[0]["structures"]["1p"]["frequency"] == both[1]["structures"]["1p"]["frequency"]
    monkeypatch.setattr("betae.evaluation.plots.draw_plots", lambda _: {})  # they take long
    assert run("report", folder / "betae", "--out", folder / "report").exit_code == 0
    text = (folder / "report" / "report.md").read_text("utf-8")
    assert "betae (BetaE, completed graph)" in text
    assert "betae (BetaE)" in text


@pytest.mark.parametrize(
    ("shifts", "kinds"),
    [
        ((0.1, -0.1), ["EPFO"]),
        ((-0.1, 0.1), ["negation"]),
        ((0.1, 0.1), ["EPFO", "negation"]),
        ((0.0, 0.0), []),
    ],
)
def test_what_is_below_frequency_is_said(folder, monkeypatch, capsys, shifts, kinds):
    """Of each average; `shifts` is how much better the frequency is."""
    found = Run.open(folder / "betae").evaluate(
        folder / "queries", method="embedding", empty_queries=0
    )
    for average, shift in zip(found.averages.values(), shifts, strict=True):
        object.__setattr__(average.frequency, "mrr", average.metrics.mrr + shift)
    monkeypatch.setattr(Run, "evaluate", lambda *_, **__: found)
    arguments = ["eval", folder / "betae", "--queries", folder / "queries"]
    arguments += ["--method", found.method]
    code, out, error = run_main(monkeypatch, capsys, *arguments)
    assert code == 0
    assert "Warning" not in out
    lines = [line for line in error.splitlines() if line.startswith("Warning: ")]
    assert [line.split()[4] for line in lines] == kinds  # the model on KIND queries
    for line, kind in zip(lines, kinds, strict=True):
        assert f"(MRR {found.averages[kind].frequency.mrr:.1f} %)" in line
    _, _, error = run_main(monkeypatch, capsys, *arguments, "--json")
    assert "Warning" not in error  # the figures are for a program, which can compare them


# ---- what is wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["betae", "--queries", "other-queries"], "query set was made on another graph"),
        (["betae", "--queries", "no-queries"], "has no query with a hard answer"),
        (["betae", "--queries", "train-queries"], "valid or test, not for train"),
        (["betae", "--queries", "nowhere"], "There is no folder nowhere"),
        (["betae", "--queries", "graph"], "holds a graph, not a query set"),
        (["betae", "--queries", "queries", "--graph", "other-graph"], "trained on another graph"),
        (["betae", "--queries", "queries", "--graph", "nowhere"], "no folder nowhere"),
        (["betae", "--queries", "queries", "--empty", "-1"], "empty"),
        (["betae", "--queries", "release", "--split", "half"], "half"),
        (["betae", "--queries", "queries", "--method", "both"], "'completed', 'embedding'"),
        (["nowhere", "--queries", "queries"], "There is no folder nowhere"),
        (["graph", "--queries", "queries"], "is not a run"),
        (["betae"], "--queries"),
    ],
    ids=str,
)
def test_errors_say_what_is_wrong(monkeypatch, capsys, made, arguments, words):
    monkeypatch.chdir(made)
    code, out, error = run_main(monkeypatch, capsys, "eval", *arguments)
    assert code == 2
    assert out == ""
    assert words in flat(error)
    assert "Traceback" not in error
    assert not list(made.glob("*/evaluations"))


def test_a_graph_that_has_moved(folder, monkeypatch, capsys):
    (folder / "graph").rename(folder / "moved")
    arguments = ["eval", folder / "betae", "--queries", folder / "queries", "--empty", 0]
    code, _, error = run_main(monkeypatch, capsys, *arguments)
    assert code == 2
    assert f"is no longer in {folder.resolve() / 'graph'}" in flat(error)
    assert "--graph" in flat(error)
    assert run(*arguments, "--graph", folder / "moved").exit_code == 0


# ---- report -----------------------------------------------------------------------------------


def test_a_report_of_two_runs(folder, monkeypatch, capsys):
    for name in ("betae", "query2box"):
        assert evaluate(folder / name, "--queries", folder / "queries").exit_code == 0
    arguments = ["report", folder / "betae", folder / "query2box", "--out", folder / "report"]
    code, out, _ = run_main(monkeypatch, capsys, *arguments)
    assert code == 0
    assert f"open {folder / 'report' / 'report.html'}" in flat(out)
    told = strict((folder / "report" / "report.json").read_text("utf-8"))
    assert told == [stored(folder / "betae"), stored(folder / "query2box")]
    for name in ("report.md", "report.html"):
        text = (folder / "report" / name).read_text("utf-8")
        for words in (
            "betae (BetaE)",
            "query2box (Query2Box)",
            "frequency",
            "cannot do 2in",
            "2u-DM",
        ):
            assert words in text

    monkeypatch.setattr("betae.evaluation.plots.draw_plots", lambda _: {})  # they take long
    code, _, error = run_main(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "already exists" in flat(error)
    assert run(*arguments, "--overwrite").exit_code == 0


def test_a_report_of_a_run_that_was_not_evaluated(folder, monkeypatch, capsys):
    arguments = ["report", folder / "betae", "--out", folder / "report"]
    code, out, error = run_main(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert f"has no evaluation. Make one: betae eval {folder / 'betae'}" in flat(error)
    assert not (folder / "report").exists()
