"""Answers as text, tables, JSON and HTML, whatever the names are."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from betae.answering.results import Answer, Answers, Ranking, Step, smallest, stable_argsort
from betae.cli.show import draw_answers
from tests.answering.helpers import exact, guessing, strict, untrained

ODD = [
    "[red]x[/red]",
    "[/]",
    "<b>&amp;</b>",
    'say "hi"',
    "back\\",
    "\\[bold]",
    "a:key:b",  # rich would draw a key
    "naïve 東京",
    "http://example.org/a?b=[c]&d",
]
VOID = {"br"}
CHILDREN = "?X . parent(ann, ?X)"


def answers_of(*labels, why=True, **changes):
    rows = tuple(
        Answer(
            f"id {label}",
            label,
            rank,
            0.5,
            "predicted",
            -float(rank),
            Step(f"{label} rel {label}", "missing", 0.5) if why else None,
        )
        for rank, label in enumerate(labels, 1)
    )
    answers = Answers("?X . r(a, ?X)", rows, "completed", "all", 0, 0, 0, 1.5, None)
    return replace(answers, **changes)


def drawn(renderable, width=80):
    console = Console(width=width, color_system=None, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


# ---- text -------------------------------------------------------------------------------------


def test_repr():
    known = Answer("b", "Bob", 1, 1.0, "known")
    predicted = Answer("c", "Cat", 12, 0.0349, "predicted")
    answers = answers_of(answers=(known, predicted), num_known=1, expected=1234.56)
    lines = repr(answers).splitlines()
    assert lines[0] == "?X . r(a, ?X)"
    assert lines[1] == "1 known answer; about 1,235 expected in all"
    assert lines[2:] == [
        "rank  probability  status     answer",
        "   1       100.0%  known      Bob",
        "  12         3.5%  predicted  Cat",
    ]


def test_a_question_without_answers_says_so():
    answers = answers_of(expected=0.2)
    assert "probably there is none" in repr(answers)
    assert "probably there is none" in drawn(draw_answers(answers))
    assert "probably there is none" in answers._repr_html_()
    assert "probably" not in repr(answers_of("a"))


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ({"num_known": 1, "num_by_all": 1}, "1 known answer; about 1.5 expected in all"),
        ({"edges": "train", "num_known": 3, "num_by_all": 1200},
         "3 known answers (training edges only); about 1.5 expected in all"),
        ({"edges": "train+valid"},
         "0 known answers (training and validation edges only); about 1.5 expected in all"),
        ({"num_known": 5, "num_assumed": 2},
         "5 known answers, 2 assumed; about 1.5 expected in all"),
        ({"expected": None}, "0 known answers"),
        ({"expected": 0.0}, "0 known answers; about 0.0 expected in all; probably there is none"),
    ],
)  # fmt: skip
def test_the_summary(changes, summary):
    assert answers_of(**changes).summary() == summary


def test_only_facts_are_certain():
    """Whatever is drawn rounds to less than 100 %."""
    step = Step("a is not among b", "not", 1.0)
    missing = Step("a r b", "missing", 0.996, (step,))
    for status, shown in (("known", "100.0%"), ("assumed", ">99.9%"), ("predicted", ">99.9%")):
        answers = answers_of(answers=(Answer("a", "a", 1, 1 - 1e-6, status, why=missing),))
        for text in (repr(answers), drawn(draw_answers(answers)), read(answers._repr_html_()).text):
            assert shown in text
            assert ("100" in text) == (status == "known")
    assert "missing >99%" in drawn(draw_answers(answers))
    assert "(not, >99%)" in read(answers._repr_html_()).text


def test_answers_without_probabilities():
    answer = Answer("b", "Bob", 1, None, "predicted", -0.5)
    answers = answers_of(answers=(answer,), expected=None)
    assert not answers.looks_empty
    assert repr(answers).splitlines()[1:] == [
        "0 known answers",
        "rank  probability  status     answer",
        "   1            -  predicted  Bob",
    ]
    assert drawn(draw_answers(answers)).splitlines()[-1].split() == ["1", "-", "predicted", "Bob"]
    assert "<td>-</td>" in answers._repr_html_()
    assert answers.to_polars()["probability"].to_list() == [None]
    assert strict(json.dumps(answers.to_json()))["expected"] is None


def test_what_assumed_means_is_said_where_it_occurs():
    assumed = answers_of(answers=(Answer("a", "a", 1, 0.9, "assumed"),))
    assert "assumed: known unless a fact is missing" in drawn(draw_answers(assumed))
    assert "assumed" not in drawn(draw_answers(answers_of("a")))


def test_it_is_a_sequence():
    answers = answers_of("a", "b", "c")
    assert len(answers) == 3
    assert [answer.label for answer in answers] == ["a", "b", "c"]
    assert answers[0].label == "a"
    assert answers[-1].label == "c"
    with pytest.raises(IndexError):
        answers[3]


# ---- tables and JSON --------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [ODD, []])
def test_to_polars(labels):
    import polars as pl

    frame = answers_of(*labels).to_polars()
    columns = ["entity", "label", "rank", "probability", "status", "score", "num_derivations"]
    assert frame.columns == [*columns, "unusual"]
    types = [pl.String, pl.String, pl.Int64, pl.Float64, pl.String, pl.Float64, pl.Int64]
    assert frame.dtypes == [*types, pl.String]
    assert frame["label"].to_list() == labels
    assert frame["entity"].to_list() == [f"id {label}" for label in labels]
    assert frame["rank"].to_list() == list(range(1, len(labels) + 1))


@pytest.mark.parametrize("labels", [ODD, []])
def test_to_json_is_strict(labels):
    told = strict(json.dumps(answers_of(*labels).to_json()))
    assert told["query"] == "?X . r(a, ?X)"
    assert told["entropy"] is None
    assert [answer["label"] for answer in told["answers"]] == labels
    assert [answer["why"]["status"] for answer in told["answers"]] == ["missing"] * len(labels)


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
def test_real_answers_are_strict_json(toy_graph, model_name):
    answers = untrained(toy_graph, model_name).answer(CHILDREN, 12, explain=True)
    told = strict(json.dumps(answers.to_json()))
    assert len(told["answers"]) == 12
    assert (told["method"], told["edges"], told["looks_empty"]) == ("embedding", "train", False)
    told = strict(json.dumps(guessing(toy_graph).answer(CHILDREN, explain=True).to_json()))
    assert told["answers"][0]["why"]["sources"] == []


# ---- steps ------------------------------------------------------------------------------------


def test_the_probability_of_a_whole_derivation():
    low, high = Step("a r b", "missing", 0.5), Step("c r d", "missing", 0.2)
    both = Step("", "and", 0.1, (low, high))
    top = Step("b r e", "known", 1.0, (both,))
    assert both.whole_probability() == pytest.approx(0.1)  # not twice
    assert top.whole_probability() == pytest.approx(0.1)
    assert top.missing() == ["a r b", "c r d"]
    assert Step("x", "not", 0.7).whole_probability() == 0.7
    assert Step("x", "known", 1.0).missing() == []


# ---- on the terminal --------------------------------------------------------------------------


@pytest.mark.parametrize("label", ODD)
def test_names_are_drawn_as_they_are(label):
    text = drawn(draw_answers(answers_of(label)))
    rows = [line.rstrip() for line in text.splitlines()]
    table, title, step = rows[2:5]
    assert table.split(maxsplit=3) == ["1", "50.0%", "predicted", label]
    assert title == label
    assert step == f"└── {label} rel {label}  missing 50%"


def test_it_fits_80_columns():
    text = drawn(draw_answers(answers_of("long " * 40, "x" * 200, *ODD)))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("x") >= 200  # folded, not cut


def test_a_tree(toy_graph):
    text = "?X . exists ?C : lives_in(cat, ?C) & in(?C, ?X) & !in(Oslo, ?X)"
    answers = exact(toy_graph).answer(text, 1, explain=True)
    alone = replace(answers[0], further=(), others=0.0, num_derivations=1)
    lines = [
        line.rstrip() for line in drawn(draw_answers(answers_of(answers=(alone,)))).splitlines()
    ]
    assert lines[-4:] == [
        "Peru",
        "├── Lima in Peru  known",
        "│   └── Sam lives_in Lima  missing 80%",
        "└── Peru is not among in(Oslo, ?X)  not 90%",
    ]
    lines = [line.rstrip() for line in drawn(draw_answers(answers)).splitlines()]
    start = lines.index("Peru")
    assert lines[start + 1 : start + 5] == [
        f"├── derivation 1 of {answers[0].num_derivations}: 72.0%",
        "│   ├── Lima in Peru  known",
        "│   │   └── Sam lives_in Lima  missing 80%",
        "│   └── Peru is not among in(Oslo, ?X)  not 90%",
    ]


# ---- in a notebook ----------------------------------------------------------------------------


class Reader(HTMLParser):
    """Reads HTML whose tags must be nested; keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        assert not attributes or tag in ("svg", "rect")
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_html_escapes_names_and_is_well_formed():
    answers = answers_of(*ODD, "<script>alert(1)</script>", query='?X . r("<i>", ?X)')
    page = read(answers._repr_html_())
    assert set(page.tags) <= {"p", "code", "br", "table", "thead", "tbody", "tr", "th", "td",
                              "ul", "li", "i", "svg", "rect"}  # fmt: skip
    assert page.tags.count("tr") == 1 + len(answers)
    for answer in answers:
        assert f"{answer.label}{answer.why.text} (missing, 50%)" in page.text
    assert '?X . r("<i>", ?X)' in page.text


def test_html_of_a_nested_derivation_and_of_nothing(toy_graph):
    text = "?X . exists ?C : lives_in(cat, ?C) & in(?C, ?X) & !in(Oslo, ?X)"
    page = read(exact(toy_graph).answer(text, 3, explain=True)._repr_html_())
    for part in ("Lima in Peru (known)", "Sam lives_in Lima (missing, 80%)", "(not, 90%)"):
        assert part in page.text
    assert "rank" in read(answers_of()._repr_html_()).text
    assert read(answers_of("a", why=False)._repr_html_()).tags.count("ul") == 0


# ---- rankings ---------------------------------------------------------------------------------

IDS = np.array([5, 3, 8, 1])
DISTANCES = np.array([0.5, 1, 1, 2], dtype=np.float32)


def test_the_order_is_ascending_and_stable():
    generator = np.random.default_rng(0)
    for values in (
        generator.normal(size=5000).astype(np.float32),
        generator.integers(-3, 3, size=5000).astype(np.float32) * np.float32(1e-38),
        -np.abs(generator.integers(-1, 2, size=50).astype(np.float32)),
        np.array([0.0, -0.0, 0.0, np.inf, -np.inf, -0.0], dtype=np.float32),
        np.array([], dtype=np.float32),
    ):
        assert stable_argsort(values).tolist() == np.argsort(values, kind="stable").tolist()


def test_what_is_left_out():
    found = Ranking(IDS, np.array([0.9, 0.5, 0.5, 0.1]), DISTANCES, 3, entropy=2.0)
    left = found.without(np.array([3, 1, 7]))
    assert left.ids.tolist() == [5, 8]
    assert left.probabilities.tolist() == [0.9, 0.5]
    assert left.distances.tolist() == [0.5, 1]
    assert left.num_ranked == 2  # of the first three
    assert left.entropy == 2.0


def test_what_there_is_not_is_not_there():
    left = Ranking(IDS, None).without(np.array([], dtype=int))
    assert left.ids.tolist() == IDS.tolist()
    assert (left.probabilities, left.distances, left.explain) == (None, None, None)


@pytest.mark.parametrize("number", [5, 1024, 5000, 40_000])
@pytest.mark.parametrize("k", [1, 3, 30])
def test_the_smallest_are_those_of_a_full_sort(number, k):
    random = np.random.default_rng(number + k)
    values = np.round(random.random(number) ** 2, 3).astype(np.float32)  # with ties
    also = np.array([number - 1])
    found = smallest(values, k, also)
    limit = np.sort(values)[min(k, number) - 1]
    expected = np.flatnonzero((values <= limit) | (np.arange(number) == number - 1))
    assert {*expected.tolist()} <= {*found.tolist()}
    assert len(found) in (len(expected), number)
    assert (np.diff(values[found]) >= 0).all()
