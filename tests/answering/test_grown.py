"""Questions on a graph that has grown since the model was trained: its new facts count at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import UnsupportedQuery
from betae.exact.answers import refuted
from betae.graph.change import append_triples
from betae.queries.ast import Entity, Not, Project, nodes
from betae.run import Run
from tests.answering.helpers import SLOPE, by_distance, guessing, random_model, save_run, strict
from tests.answering.test_by_completion import assert_explains, plain, shallow
from tests.cli.test_cli import run
from tests.graph.test_change import additions, triples_of
from tests.queries.oracle import slow_answers
from tests.queries.strategies import edge_choices, examples, graphs
from tests.training.helpers import small_graph

EVERYTHING = 100  # more answers than any graph here has entities


@st.composite
def grown_cases(draw):
    """A graph, itself with edges of old and new names, a query over that, and which edges count."""
    before = draw(graphs(entities=(2, 6), relations=(1, 3), edges=(0, 20)))
    graph = append_triples(before, triples_of(draw(additions(before))))
    sizes = graph.num_entities, graph.num_relations
    return before, graph, draw(shallow(*sizes) | plain(*sizes)), draw(edge_choices)


def names_what_is_new(query, before):
    return any(
        node.name >= before.num_entities
        if isinstance(node, Entity)
        else isinstance(node, Project) and node.relation >= before.num_relations
        for node in nodes(query)
    )


# ---- random questions -------------------------------------------------------------------------


@examples(100)
@given(case=grown_cases())
def test_all_facts_count_in_the_completed_graph(case):
    before, graph, query, edges = case
    answerer = guessing(graph, edges, of=before)
    found = answerer.answer(query, EVERYTHING)
    known = {graph.entities[entity] for entity in slow_answers(graph, query, edges)}
    certain = {graph.entities[entity] for entity in refuted(graph, [Not(query)], edges)[0]}
    assert {answer.entity for answer in found if answer.status != "predicted"} == known
    assert {answer.entity for answer in found if answer.status == "known"} == certain
    assert_explains(graph, query, edges, answerer)


@examples(60)
@given(case=grown_cases())
def test_by_embedding_a_question_may_not_name_what_is_new(case):
    before, graph, query, edges = case
    answerer = by_distance(graph, random_model("betae", before), SLOPE, edges)
    if names_what_is_new(query, before):
        with pytest.raises(UnsupportedQuery, match="came to the graph after training"):
            answerer.answer(query)
        return
    found = answerer.answer(query, EVERYTHING)
    known = {graph.entities[entity] for entity in slow_answers(graph, query, edges)}
    assert {answer.entity for answer in found if answer.status != "predicted"} == known
    for answer in found:
        is_embedded = answer.entity in before.entities
        assert (answer.rank is not None) == (answer.score is not None) == is_embedded
        assert (answer.probability == 1) == (answer.status == "known")


# ---- by hand ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def before():
    return small_graph()


@pytest.fixture(scope="module")
def graph(before):
    """New are z, v, and the relation likes."""
    edges = ["z r0 e5", "z r0 v", "e7 likes e5", "e7 likes v", "v r2 z", "e1 r0 v"]
    return append_triples(before, triples_of([edge.split() for edge in edges]))


def test_predictions_go_on_from_what_new_edges_lead_to(before, graph):
    """z leads to e5, and to v, of which nothing is predicted."""
    answerer = guessing(graph, of=before)
    from_new, from_old = (
        {a.entity: a.probability for a in answerer.answer(query["r1"], EVERYTHING)}
        for query in (Entity("z")["r0"], Entity("e5"))
    )
    assert from_new == pytest.approx(from_old)
    known = answerer.answer("?X . likes(e7, ?X)", EVERYTHING)
    assert [(a.entity, a.probability) for a in known] == [("e5", 1), ("v", 1)]


def test_a_new_edge_fills_an_end_that_had_none(before):
    """It is no longer a prediction, and the others of its row are less likely."""
    head = next(f"e{i}" for i in range(30) if not len(before.adjacency("train").neighbours(i, 0)))
    question = f"?X . r0({head}, ?X)"
    old = guessing(before).answer(question, EVERYTHING)
    best = old[0].entity
    graph = append_triples(before, triples_of([(head, "r0", best)]))
    new = guessing(graph, of=before).answer(question, EVERYTHING)
    assert (new[0].entity, new[0].status) == (best, "known")
    chances = {answer.entity: answer.probability for answer in old}
    assert all(answer.probability < chances[answer.entity] for answer in new.answers[1:])


# ---- runs -------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path, before, graph):
    """A run on the graph before, and the graph with more edges in its place; never fitted."""
    folder = save_run(tmp_path / "run", before)
    graph.save(folder / "graph", overwrite=True)
    return folder


def test_a_run_answers_at_once(made):
    told = strict(run("answer", made, "?X . r0(e1, ?X)", "--format", "jsonl", "-k", 30).stdout)
    (v,) = [answer for answer in told["answers"] if answer["entity"] == "v"]
    assert (v["status"], v["probability"]) == ("known", 1)
    assert "z" not in {answer["entity"] for answer in told["answers"]}  # nothing speaks for it
    found = Run.open(made).answerer().answer("?X . exists ?Y : r0(z, ?Y) & r2(?Y, ?X)", EVERYTHING)
    assert "z" in {answer.entity for answer in found if answer.status == "known"}  # by way of v
    assert {answer.status for answer in found} == {"known", "predicted"}


def test_by_embedding_the_advice_is_to_complete(made):
    for question, name in (("?X . likes(e7, ?X)", "likes"), ("?X . r1(z, ?X)", "z")):
        result = run("answer", made, question, "--method", "embedding")
        assert isinstance(result.exception, UnsupportedQuery)
        assert str(result.exception).startswith(f"{name} came to the graph after training")
        assert "use method = 'completed'" in str(result.exception)
        assert run("answer", made, question).exit_code == 0


def test_by_embedding_a_known_answer_without_an_embedding_has_no_rank(made):
    found = Run.open(made).answerer(method="embedding").answer("?X . r0(e1, ?X)", EVERYTHING)
    v = next(answer for answer in found if answer.entity == "v")
    assert (v.rank, v.score, v.probability, v.status) == (None, None, 1, "known")
    assert ["-", "100.0%", "known", "v"] in [line.split() for line in repr(found).splitlines()]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("?X . r0(nobody, ?X)", "no entity 'nobody'"),
        ("?X . hates(e1, ?X)", "no relation 'hates'"),
        ("?X . r0(e1, ?X", "^"),
        ("?X . r0(_, ?X)", "_ is a placeholder"),
        ("e1", "is not a question"),
    ],
)
def test_a_bad_question_is_named_by_file_and_line(made, write, bad, message):
    file = write("questions.txt", f"# known\n?X . r0(z, ?X)\n{bad}\n?X . r0(e1, ?X)\n")
    result = run("answer", made, "--queries", file, "--format", "jsonl")
    assert result.exit_code == 2
    assert f"{file}, line 3: " in result.stderr
    assert message in result.stderr
    assert len(result.stdout.splitlines()) == 3  # the bad one is a line with an error


def test_a_question_longer_than_a_file_name_may_be(made, write):
    question = "?X . " + " & ".join(f"r0(e{i}, ?X)" for i in range(30))
    file = write("questions.txt", question)
    result = run("answer", made, "--queries", file, "--format", "jsonl")
    assert result.exit_code == 0, result.exception
