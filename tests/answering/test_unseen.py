"""Questions on a graph that has grown since the model was trained: known by all facts there are,
predicted by what the model has learned.
"""

import csv
import io
from contextlib import suppress

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.answering.answerer import Answerer
from betae.answering.calibration import fit, gather
from betae.errors import UnsupportedQuery
from betae.exact.answers import refuted
from betae.graph.append import append_triples
from betae.queries.ast import And, Entity, Project, nodes
from betae.queries.names import unresolve
from betae.queries.rewrite import dnf_branches
from betae.queries.structures import EPFO, NEGATION
from betae.querysets.sample import sample_queries
from betae.run import Run
from tests.answering.helpers import CURVE, SLOPE, random_model, save_run, strict
from tests.answering.test_explain import check, plain, shallow
from tests.cli.test_cli import flat, run
from tests.evaluation.eval_in_two_processes import Symbolic
from tests.graph.test_append import additions, triples_of
from tests.queries.oracle import slow_answers
from tests.queries.strategies import edge_choices, examples, graphs
from tests.training.helpers import small_graph

EVERYTHING = 100  # more answers than any graph here has entities
unions = st.sampled_from(["DNF", "DM"])


def paths(num_entities, num_relations):
    """Two steps from an entity: the likeliest way through a new one."""
    entity, relation = st.integers(0, num_entities - 1), st.integers(0, num_relations - 1)
    return st.builds(lambda e, r, s: Entity(e)[r][s], entity, relation, relation)


def has_few_branches(query):
    """Tell whether the query, as it is written, has a normal form at all."""
    with suppress(UnsupportedQuery):
        return bool(dnf_branches(query))
    return False


@st.composite
def grown_cases(draw):
    """A graph, itself with edges of old and new names, a query over that, and which edges count."""
    before = draw(graphs(entities=(2, 6), relations=(1, 3), edges=(0, 20)))
    graph = append_triples(before, triples_of(draw(additions(before))))
    sizes = graph.num_entities, graph.num_relations
    queries = shallow(*sizes) | plain(*sizes) | paths(*sizes)
    return before, graph, draw(queries.filter(has_few_branches)), draw(edge_choices)


def answerer_of(before, graph, edges="train", model_name="betae"):
    """What answers on the grown graph with a model of the one before."""
    return Answerer(random_model(model_name, before), graph, SLOPE, edges)


def grow(graph, *edges):
    return append_triples(graph, triples_of([edge.split() for edge in edges]))


def has_form(query, before, graph, edges):
    """Tell whether the model can be asked: known answers stand for what is new in it."""
    match query:
        case Entity(name):
            return name < before.num_entities
        case Project(operand, relation):
            known = slow_answers(graph, operand, edges)
            stands = any(entity < before.num_entities for entity in known)
            is_old = relation < before.num_relations
            return is_old and (stands or has_form(operand, before, graph, edges))
    return all(has_form(operand, before, graph, edges) for operand in query.operands)


# ---- random questions -------------------------------------------------------------------------


@examples(120)
@given(case=grown_cases(), union=unions)
def test_known_by_all_facts_and_predicted_among_the_embedded(case, union):
    before, graph, query, edges = case
    found = answerer_of(before, graph, edges).answer(query, EVERYTHING, union=union)
    known = {graph.entities[entity] for entity in slow_answers(graph, query, edges)}
    possible = set(before.entities) - {graph.entities[i] for i in refuted(graph, query, edges)}
    can_say = has_form(query, before, graph, edges)
    assert {answer.entity for answer in found if answer.status == "known"} == known
    predicted = {answer.entity for answer in found if answer.status == "predicted"}
    assert predicted == (possible - known if can_say else set())
    assert len(found) == len(known | predicted)
    assert found.num_known == len(known)
    for answer in found:
        has_place = can_say and answer.entity in possible
        assert (answer.rank is not None) == (answer.score is not None) == has_place
        assert (answer.probability == 1) == (answer.status == "known")
    ranks = [answer.rank for answer in found if answer.rank]
    assert ranks == list(range(1, len(possible) + 1)) * can_say
    if can_say:
        assert found.expected == pytest.approx(sum(answer.probability for answer in found))
    else:
        assert (found.expected, found.entropy, found.looks_empty) == (None, None, False)
    by_name = list(nodes(unresolve(query, graph)))
    used = {node.name for node in by_name if isinstance(node, Entity)}
    used |= {node.relation.removeprefix("~") for node in by_name if isinstance(node, Project)}
    assert sorted(found.not_embedded) == sorted(used - {*before.entities, *before.relations})


@examples(80)
@given(case=grown_cases(), is_exact=st.booleans(), union=unions)
def test_every_answer_is_explained_and_a_known_one_by_known_edges(case, is_exact, union):
    before, graph, query, edges = case
    answerer = answerer_of(before, graph, edges)
    if is_exact:
        answerer = Answerer(Symbolic(before, "all"), graph, CURVE, edges)
    for answer in answerer.answer(query, EVERYTHING, union=union, explain=True):
        doubts = check(graph, edges, query, graph.entity_id(answer.entity), answer.why)
        assert bool(doubts) == (answer.status == "predicted")
        missing = {step.text for kind, step in doubts if kind == "missing"}
        assert set(answer.why.missing()) == missing


# ---- by hand ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def before():
    return small_graph()


@pytest.fixture(scope="module")
def graph(before):
    """New are x and y, each with edges to 25 old entities, z, v, and the relation likes."""
    many = [f"{name} r{number} e{i}" for number, name in enumerate("xy") for i in range(25)]
    return grow(
        before, *many, "z r0 e5", "z r0 v", "e7 likes e5", "e7 likes v", "v r2 z", "e1 r0 v"
    )


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
@pytest.mark.parametrize(
    "way", [Entity("z")["r0"], Entity("e7")["likes"], Entity("v")["r2"]["r0"]], ids=str
)
def test_the_known_edge_of_a_new_name_stands_for_it(before, graph, model_name, way):
    """v, which is new too and has no r1, does not."""
    answerer = answerer_of(before, graph, model_name=model_name)
    for union in ("DNF", "DM"):
        old, new = (answerer.answer(q["r1"], EVERYTHING, union=union) for q in (Entity("e5"), way))
        assert new.answers == old.answers
        assert (new.expected, new.entropy, new.num_known) == (
            old.expected, old.entropy, old.num_known
        )  # fmt: skip


@pytest.mark.parametrize("number", [2, 3])
def test_many_known_edges_on_each_side_of_an_intersection(before, graph, number):
    """25 ** 2 branches would be more than the normal form may have."""
    parts = (Entity("x")["r0"]["r1"], Entity("y")["r1"]["r2"], Entity("x")["r0"]["r2"])
    found = answerer_of(before, graph).answer(And(*parts[:number]), EVERYTHING, explain=True)
    assert {"known", "predicted"} == {answer.status for answer in found}


@pytest.mark.parametrize("model_name", ["query2box", "gqe"])
def test_a_question_without_a_union_needs_no_complement(before, graph, model_name):
    """Known edges that stand for a name are no union of the user's."""
    answerer = answerer_of(before, graph, model_name=model_name)
    question = Entity("x")["r0"]["r1"]
    assert answerer.answer(question, union="DM") == answerer.answer(question, union="DNF")


# ---- runs and forms ---------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path, before, graph):
    """A run on the graph before, and the graph with more edges in its place; never calibrated."""
    folder = save_run(tmp_path / "run", before)
    graph.save(folder / "graph", overwrite=True)
    return folder


def test_probabilities_are_first_fitted_on_the_grown_graph(made, before, graph):
    counts = dict.fromkeys((*EPFO, *NEGATION), 5)
    queries = sample_queries(graph, counts, "valid", purpose="calibration")
    within = queries.within(before.num_entities, before.num_relations)
    assert 0 < len(within) < len(queries)  # else there was nothing to leave out
    first = Run.open(made).answerer()
    assert (made / "calibration.json").is_file()
    assert Run.open(made).answerer().calibration == first.calibration
    assert first.calibration == fit(lambda: gather(first.model, first.table, within))


def test_answers_without_a_rank_in_every_form(made):
    """v is known, but not embedded: it comes first."""
    arguments = ("answer", made, "?X . r0(e1, ?X)", "--explain", "--format")
    told = {form: run(*arguments, form).stdout for form in ("table", "csv", "jsonl")}
    first, second = strict(told["jsonl"])["answers"][:2]
    assert (first["entity"], first["rank"], first["score"]) == ("v", None, None)
    assert (first["probability"], second["rank"]) == (1, 1)
    rows = list(csv.DictReader(io.StringIO(told["csv"], newline="")))
    assert [rows[0][column] for column in ("entity", "rank", "score")] == ["v", "", ""]
    found = Run.open(made).answerer().answer("?X . r0(e1, ?X)")
    for text in (told["table"], repr(found)):
        assert ["-", "100.0%", "known", "v"] in [line.split() for line in text.splitlines()]
    assert "e1 r0 v  known" in told["table"]
    assert "<td>-</td><td>100.0%</td><td>known</td><td>v</td>" in found._repr_html_()
    assert found.to_polars()["rank"].to_list() == [None, *range(1, 10)]
    assert found.to_polars()["score"].null_count() == 1


@pytest.mark.parametrize(
    ("question", "name", "can_say"),
    [
        ("?X . likes(e7, ?X)", "likes", False),
        ("?X . r1(z, ?X)", "z", False),
        ("?X . exists ?Y : likes(e7, ?Y) & r1(?Y, ?X)", "likes", True),
    ],
)
def test_what_is_new_is_said(made, question, name, can_say):
    told = strict(run("answer", made, question, "--format", "jsonl").stdout)
    assert told["not_embedded"] == [name]
    assert (told["expected"] is not None) == (told["entropy"] is not None) == can_say
    assert can_say or not told["looks_empty"]
    how = "predicted from their known edges" if can_say else "known only"
    shown = flat(run("answer", made, question).stdout)
    assert f"the model has not learned {name}: {how}" in shown
    found = Run.open(made).answerer().answer(question, status="predicted").to_polars()
    assert (len(found) > 0) == can_say
    assert found.schema["rank"] == pl.Int64


# ---- files of questions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("?X . r0(nobody, ?X)", "no entity 'nobody'"),
        ("?X . hates(e1, ?X)", "no relation 'hates'"),
        ("?X . r0(e1, ?X", "^"),
        ("?X . r0(_, ?X)", "'_'"),
        ("e1", "is not a query"),
    ],
)
def test_a_bad_question_is_named_by_file_and_line(made, write, bad, message):
    file = write("questions.txt", f"# known\n?X . r0(z, ?X)\n{bad}\n?X . r0(e1, ?X)\n")
    result = run("answer", made, "--queries", file, "--format", "jsonl")
    assert str(result.exception).startswith(f"{file}, line 3: ")
    assert message in str(result.exception)
    assert len(result.stdout.splitlines()) == 1  # the one before


def test_a_question_longer_than_a_file_name_may_be(made, write):
    question = "?X . " + " & ".join(f"r0(e{i}, ?X)" for i in range(30))
    file = write("questions.txt", question)
    result = run("answer", made, "--queries", file, "--format", "jsonl")
    assert result.exit_code == 0, result.exception
