"""Runs of rules: mined, asked, explained, grown; the same by the commands."""

import json
import math

import numpy as np
import pytest

import betae
from betae import KnowledgeGraph
from betae.answering.edges import EdgeWeights
from betae.cli.runs import _open_to_serve
from betae.errors import BetaeError, InvalidArgument
from betae.graph.change import hold_out
from betae.run import Run, mine, open_or_mine
from tests.cli.test_cli import run_main
from tests.server.conftest import serving
from tests.training.helpers import graph_of

FEW = {"FIT_ROWS": 400, "FIT_PAIRS": 400}


@pytest.fixture(scope="module", autouse=True)
def _few_rows():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW.items():
            patch.setattr(f"betae.answering.edge_fit.{name}", value)
        yield


@pytest.fixture(scope="module")
def mined(tmp_path_factory):
    """`world`, mined without training."""
    return mine(betae.world(), tmp_path_factory.mktemp("rules") / "run")


def test_rules_answer_without_training(mined):
    question = "?X . located_in(?X, Europe)"
    found = mined.answer(question, k=10, edges="train", status="predicted", explain=True)
    true = {mined.graph.entities[each] for each in mined.graph.answers(question)}
    assert sum(each.entity in true for each in found) >= 5
    for answer in found:
        assert answer.why.evidence.reasons
        assert answer.why.evidence.probability == pytest.approx(answer.probability, rel=1e-4)


def test_a_run_is_asked_for_its_graph(mined, tmp_path, monkeypatch, capsys):
    betae.world().save(tmp_path / "graph")
    question = "?X . capital(France, ?X)"
    told = [
        run_main(monkeypatch, capsys, "query", each, question)
        for each in (mined.folder, tmp_path / "graph")
    ]
    assert told[0] == told[1]
    assert told[0][0] == 0
    code, shown, _ = run_main(monkeypatch, capsys, "info", mined.folder)
    assert code == 0
    assert f"{mined.graph.num_entities:,}    entities" in shown
    code, _, error = run_main(monkeypatch, capsys, "train", mined.folder, "--out", tmp_path / "x")
    assert code == 2
    assert "is a run, not a graph" in error


def test_the_parts_of_the_evidence_add_up_to_the_probability(mined):
    graph = mined.graph
    completed = mined.completed_graph("train")
    heads, relations, tails = graph.written_ids["test"][:40].astype(np.int64).T
    for head, relation, tail in zip(heads, relations, tails, strict=True):
        names = graph.entities[head], graph.relations[relation], graph.entities[tail]
        found = mined.why(*names, edges="train")
        row = completed.probabilities.rows(np.array([head]), np.array([2 * relation]))[0, tail]
        back = completed.probabilities.rows(np.array([tail]), np.array([2 * relation + 1]))[0, head]
        expected = max(row, back)
        assert found.probability == pytest.approx(expected, rel=1e-3, abs=1e-6)
        if expected < 0.999:
            assert 1 / (1 + math.exp(-found.log_odds)) == pytest.approx(expected, rel=1e-3)
        parts = [each.log_odds for each in found.reasons]
        assert parts == sorted(parts, reverse=True)


def test_a_missing_edge_comes_with_its_best_reason(mined):
    found = mined.complete(relation="located_in", edges="train", above=0.3)
    assert len(found) > 5
    for row in found:
        assert row["tail"] in row["reason"]
        assert row["rule"].startswith("located_in(")
        assert 0 < row["support"] <= row["cases"]
    assert "since" in repr(found).splitlines()[0]


def test_an_inverse_relation_is_explained_as_it_is_written(mined):
    there = mined.why("Austria", "located_in", "Europe", edges="train")
    back = mined.why("Europe", "~located_in", "Austria", edges="train")
    assert back.edge == there.edge == ("Austria", "located_in", "Europe")
    assert back.probability == pytest.approx(there.probability)


def test_reasons_are_sentences_with_their_cases(mined):
    found = mined.why("Poland", "located_in", "Europe", edges="train")
    by_rule = next(each for each in found.reasons if each.paths)
    vote = next(each for each in found.reasons if not each.paths)
    percent = f"{by_rule.support / by_rule.cases:.0%}".replace("%", " %")
    assert by_rule.text.endswith(f": holds in {percent} of {by_rule.cases:,} such cases")
    assert by_rule.rule.startswith("located_in(x, y) <- ")
    assert vote.text.startswith("Poland ")
    assert " is located in Europe in " in vote.text
    assert vote.rule.startswith("located_in(x, Europe) <- ")


def test_a_known_edge_is_called_known(mined):
    found = mined.why("France", "located_in", "Europe")
    assert found.is_known
    assert found.summary().startswith("France located_in Europe: known; other facts")
    assert all(amount == "" for amount, _ in found.lines())
    assert found.probability == 1
    assert found.reasons
    assert json.loads(json.dumps(found.to_json()))["edge"] == ["France", "located_in", "Europe"]
    assert "<table>" in found._repr_html_()


def test_a_run_of_rules_opens_again_and_is_evaluated(mined):
    run = Run.open(mined.folder)
    assert len(run.rules) == len(mined.rules) > 100
    evaluation = run.evaluate(run.graph.sample("1p", "2in", split="test", count=20))
    assert evaluation.predictors == ["rules"]
    assert evaluation.structures["1p"].metrics.mrr > evaluation.structures["1p"].frequency.mrr
    with pytest.raises(BetaeError, match="no model"):
        run.model()


def test_the_same_seed_the_same_answers(mined, tmp_path):
    again = mine(betae.world(), tmp_path / "run")
    question = "?X . located_in(?X, Europe)"
    assert again.answer(question, edges="train") == mined.answer(question, edges="train")


def test_a_graph_without_validation_edges_holds_some_out(tmp_path):
    betae.world().export(tmp_path / "facts.tsv")
    graph = betae.read(tmp_path / "facts.tsv")
    assert not len(graph.written_ids["valid"])
    run = mine(graph, tmp_path / "run")
    assert len(run.graph.written_ids["valid"]) > 100
    assert {*run.graph.answers("?X . located_in(?X, Europe)")} == {
        *graph.answers("?X . located_in(?X, Europe)")
    }
    found = run.answer("?X . located_in(?X, Europe)", status="predicted")
    assert all(each.probability for each in found)


def test_what_is_held_out_leaves_all_else_as_it_was(tmp_path):
    text = "\n".join(f":e{i} :r :e{i + 1} ; :age {i} ." for i in range(100))
    (tmp_path / "x.ttl").write_text("@prefix : <http://x/> .\n" + text)
    graph = betae.read(tmp_path / "x.ttl")
    found = hold_out(graph, 0.1)
    assert len(found.written_ids["valid"]) > 0
    assert found.adjacency("all").tails.tolist() == graph.adjacency("all").tails.tolist()
    assert found.values("age").equals(graph.values("age"))


def test_an_entity_that_was_added_has_predictions_at_once(tmp_path):
    betae.world().save(tmp_path / "graph")
    graph = betae.KnowledgeGraph.open(tmp_path / "graph")
    run = mine(graph, tmp_path / "run")
    more = [("Newland", "borders", "France"), ("Newland", "borders", "Germany")]
    more += [("Newland", "member_of", "NATO"), ("Newland", "borders", "Belgium")]
    graph.extended(more).save(tmp_path / "graph", overwrite=True)
    found = Run.open(run.folder).answer("?X . located_in(Newland, ?X)", k=3)
    assert found.answers[0].entity == "Europe"


def test_a_folder_with_something_in_it_is_kept(mined):
    with pytest.raises(InvalidArgument, match="not empty"):
        mine(betae.world(), mined.folder)


def test_a_trained_run_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr("betae.training.folder.RunFolder.has_model", True)
    with pytest.raises(InvalidArgument, match="trained model"):
        mine(betae.world(), tmp_path / "run", overwrite=True)


def test_a_relation_that_was_added_has_no_evidence_yet(tmp_path):
    betae.world().save(tmp_path / "graph")
    graph = betae.KnowledgeGraph.open(tmp_path / "graph")
    run = mine(graph, tmp_path / "run")
    graph.extended([("France", "twinned_with", "Italy")]).save(tmp_path / "graph", overwrite=True)
    grown = Run.open(run.folder)
    with pytest.raises(InvalidArgument, match="added to the graph later"):
        grown.why("France", "twinned_with", "Spain")
    assert len(grown.answer("?X . twinned_with(France, ?X)", explain=True)) == 1


def test_rules_in_a_graph_are_kept_until_it_has_changed_much(tmp_path):
    folder = tmp_path / "graph"
    facts = tmp_path / "facts.tsv"
    betae.world().export(facts)
    betae.read(facts).save(folder)  # without validation edges
    rules = open_or_mine(folder).rules

    def append(*more):
        KnowledgeGraph.open(folder).extended(list(more)).save(folder, overwrite=True)
        return open_or_mine(folder)

    borders = [("Newland", "borders", f"{name}") for name in ("France", "Germany", "Belgium")]
    grown = append(*borders, ("Newland", "member_of", "NATO"))
    assert len(grown.rules) == len(rules)
    assert grown.answer("?X . located_in(Newland, ?X)", k=3).answers[0].entity == "Europe"
    twins = [(f"{x}{i}", "twinned_with", f"{y}{i}") for i in range(9) for x, y in ("ab", "ba")]
    mined_again = append(*twins)
    assert mined_again.rules.num_relations == len(rules.offsets) + 1
    assert mined_again.why("a1", "twinned_with", "b1").is_known


def test_a_read_only_or_tiny_graph_is_served_without_predictions(tmp_path, capsys):
    graph_of([[0, 0, 1]], np.empty((0, 3)), 2, 1).save(tmp_path / "graph")
    served = _open_to_serve(tmp_path / "graph", None, exact=False)
    assert isinstance(served, KnowledgeGraph)
    assert "Exact answers only, no predictions: The graph is too small" in capsys.readouterr().err


def test_a_graph_too_small(tmp_path):
    graph = graph_of([[0, 0, 1]], np.empty((0, 3)), 2, 1)
    with pytest.raises(InvalidArgument, match="too small"):
        mine(graph, tmp_path / "run")


def test_weights_that_are_damaged_are_refused(mined):
    mined.answer("?X . located_in(?X, Europe)")
    content = json.loads((mined.folder / "edges.json").read_text())
    for name in ("model", "checksum", "sha256"):
        content.pop(name, None)
    assert EdgeWeights.from_json(content).by_relation
    relation = next(iter(content["by_relation"]))
    for wrong in ({relation: [1.0]}, {"x": content["by_relation"][relation]}):
        with pytest.raises(ValueError, match="needed"):
            EdgeWeights.from_json({**content, "by_relation": wrong})


# ---- yes or no ----------------------------------------------------------------------------------


def test_an_edge_is_asked_for(mined):
    found = mined.ask("capital(france, Paris)")
    assert (found.status, found.probability, bool(found)) == ("known", 1.0, True)
    assert found.notes == ("'france' was read as 'France'",)
    assert found.answer.why.text == "France capital Paris"
    edge = ("Austria", "located_in", "Europe")
    found = mined.ask("located_in(Austria, Europe)", edges="train")
    expected = mined.why(*edge, edges="train").probability
    assert (found.status, bool(found)) == ("predicted", False)
    assert found.probability == pytest.approx(expected, rel=1e-3)
    assert found.answer.why.evidence.reasons
    assert f"{expected:.1%}" in repr(found)
    assert "Austria located_in Europe" in found._repr_html_()
    not_it = mined.ask("!located_in(Austria, Europe)", edges="train")
    assert (not_it.status, bool(not_it)) == ("assumed", True)
    assert mined.ask("!capital(France, Paris)").status == "refuted"


def test_everything_shows_itself(mined):
    assert repr(mined) == f"Run({str(mined.folder)!r}, {len(mined.rules):,} rules)"
    assert "<td>borders</td>" in mined.graph._repr_html_()
    answerer = mined.answerer("train")
    assert repr(mined.graph) in repr(answerer)
    assert "edges='train'" in repr(answerer)
    assert "known edges train" in answerer._repr_html_()
    answers = answerer.answer("?X . located_in(?X, Europe)", 3, status="predicted", explain=True)
    first = answers[0]
    assert first.id == mined.graph.entity_id(first.entity)
    assert repr(first) == f"Answer(#{first.id} {first.label!r}, predicted, {first.probability:.1%})"
    assert "<svg" in first._repr_html_()
    found = mined.why("Austria", "located_in", "Europe", edges="train")
    assert repr(found) == str(found)
    html = found._repr_html_()
    assert html.count('aria-label="Austria ') == len([each for each in found.reasons if each.paths])
    assert html.count("<tr>") == len(found.lines())


def test_a_formula_is_asked_for(mined):
    neighbours = "exists ?C : borders(France, ?C) & borders(?C, Austria)"
    found = mined.ask(neighbours)
    assert found.status == "known"
    assert len(found.answer.derivations) > 1  # by Germany, Switzerland or Italy
    assert mined.ask("?C . borders(France, ?C)").status == "known"
    assert mined.ask("borders(France, Spain) & !borders(France, Japan)").status == "assumed"
    assert mined.ask("exists ?X, ?Y : borders(?X, ?Y) & borders(?Y, ?X)").status == "known"
    loop = mined.ask("borders(France, France)")
    assert (loop.status, loop.probability, bool(loop)) == ("unknown", None, False)
    assert mined.ask("ASK { <France> <borders> <Spain> }")
    assert not mined.ask("ASK { <France> <borders> <Japan> }")
    for wrong, words in {
        "": "is not a question",
        "capital(France, ?X)": r"\?X is not bound: write `exists \?X : …` before the formula\.",
        "!(exists ?X, ?Y : borders(?X, ?Y))": "names no entity",
        "SELECT ?x { <France> <borders> ?x }": "no yes/no question",
        "capital(France, New York)": 'Write: capital\\(France, "New York"\\)',
    }.items():
        with pytest.raises(BetaeError, match=words):
            mined.ask(wrong)


# ---- commands -----------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: run_main(monkeypatch, capsys, *arguments)


def test_commands_mine_list_and_explain(command, tmp_path):
    betae.world().save(tmp_path / "graph")
    code, text, _ = command("mine", tmp_path / "graph", "--out", tmp_path / "run")
    assert code == 0
    assert "rules written to" in text
    code, text, _ = command("rules", tmp_path / "run", "--relation", "capital")
    assert code == 0
    assert "capital(x, y) <- " in " ".join(text.split())
    code, text, _ = command("rules", tmp_path / "run", "--limit", "3", "--json")
    assert [json.loads(line)["cases"] > 0 for line in text.splitlines()] == [True] * 3
    code, text, _ = command("rules", tmp_path / "run", "--out", tmp_path / "rules.tsv")
    lines = (tmp_path / "rules.tsv").read_text().splitlines()
    assert lines[0] == "rule\tsupport\tcases\tconfidence"
    assert f"{len(lines) - 1:,} rules" in text
    edge = ("Austria", "located_in", "Europe")
    code, text, _ = command("why", tmp_path / "run", *edge, "--edges", "train")
    assert code == 0
    assert "base rate" in text
    code, text, _ = command("why", tmp_path / "run", *edge, "--edges", "train", "--json")
    assert json.loads(text)["reasons"]
    asked = ("ask", tmp_path / "run", "located_in(Austria, Europe)", "--edges", "train")
    code, text, _ = command(*asked)
    assert code == 0
    assert "it does not follow from the facts; " in text
    assert "└── Austria located_in Europe  missing" in text
    told = json.loads(command(*asked, "--json")[1])
    assert (told["status"], told["holds"]) == ("predicted", False)
    assert told["derivations"][0]["evidence"]["reasons"]


def test_a_graph_is_asked_as_it_is(command, tmp_path):
    betae.world().save(tmp_path / "graph")
    question = "?X . located_in(?X, Europe)"
    options = ("--edges", "train", "--only", "predicted", "--explain")
    code, text, _ = command("answer", tmp_path / "graph", question, *options)
    assert code == 0
    assert "since" in text
    assert (tmp_path / "graph" / "mined" / "rules").is_dir()
    assert len(open_or_mine(tmp_path / "graph").rules) > 100
    code, _, _ = command("complete", tmp_path / "graph", "--relation", "capital", "--above", "0.01")
    assert code == 0


def test_an_unknown_name_is_explained(command, mined):
    code, _, text = command("why", mined.folder, "Frannce", "located_in", "Europe")
    assert code == 2
    assert "France" in text


# ---- server -------------------------------------------------------------------------------------


def test_a_run_of_rules_is_served(mined):
    with serving(Run.open(mined.folder)) as client:
        assert client.get("/model").json()["model"]["predictors"] == ["rules"]
        body = {"question": "?X . located_in(?X, Europe)", "edges": "train", "k": 40}
        answers = client.post("/answer", json={**body, "explain": True}).json()["answers"]
        predicted = [each for each in answers if each["status"] == "predicted"]
        assert predicted[0]["why"]["evidence"]["reasons"]
        edge = {"head": "Portugal", "relation": "located_in", "tail": "Europe"}
        told = client.get("/why", params=edge)
        assert told.json()["is_known"]
        assert client.get("/why", params={**edge, "head": "Portugol"}).json()["closest"]
        assert client.post("/tree", json={"question": body["question"]}).status_code == 200
        assert client.post("/answer", json={**body, "method": "embedding"}).status_code == 400
