"""The summary of an evaluation in the terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from betae.cli.show import draw_summary
from betae.evaluation.tables import COLUMN_ORDER
from betae.queries.structures import EPFO, NEGATION
from tests.evaluation.helpers import NELL, OWN, evaluation, uncertain


def shown(made, width=80):
    file = io.StringIO()
    Console(file=file, width=width).print(draw_summary(made))
    return file.getvalue().splitlines()


def taken_apart(lines):
    """The title, the heads of the columns, and the figures by name."""
    place = next(place for place, line in enumerate(lines) if line.split()[0] == "MRR")
    rows = {line.split()[0]: line.split()[1:] for line in lines[place + 1 :]}
    return " ".join(lines[:place]), " ".join(lines[place].split()), rows


def test_the_summary_fits_a_terminal():
    names = [*EPFO, "2u-DM", "up-DM", *NEGATION]
    measured = {name: uncertain(20.0) for name in names if "u" not in name}
    ours = evaluation({**dict.fromkeys(names, 20.0), **measured}, counts=NELL, empty={"1p": 0.75})
    lines = shown(ours)
    assert max(map(len, lines)) <= 80
    title, heads, rows = taken_apart(lines)
    assert title.startswith("1,000 test queries: ")
    assert heads == "MRR H@1 H@10 95 % frequency paper Spearman ROC-AUC"
    assert list(rows) == list(COLUMN_ORDER)
    assert rows["1p"] == ["20.0", "16.0", "28.0", "18.0–22.0", "5.0", "53.0", "0.50", "0.75"]
    assert rows["2u-DM"] == ["20.0", "16.0", "28.0", "18.0–22.0", "5.0", "11.0"]
    assert rows["negation"] == ["20.0", "16.0", "28.0", "19.0–21.0", "5.0", "5.9"]


def test_the_summary_names_the_completed_graph():
    ours = evaluation(
        {"1p": 20.0}, counts=NELL, method="completed", predictors=["betae", "complex", "[x]"]
    )
    title, heads, rows = taken_apart(shown(ours))
    words = "BetaE + ComplEx + [x], completed graph: 1,000 test queries: "
    assert " ".join(title.split()).startswith(words)
    assert heads == "MRR H@1 H@10 95 % frequency paper"
    assert rows["1p"][-1] == "53.0"


def test_the_summary_leaves_out_what_there_is_not():
    lines = shown(evaluation({"1p": 20.0}, model_name="gqe", cannot=["2in", "pni"]))
    assert taken_apart(lines)[1] == "MRR H@1 H@10 95 % frequency"
    assert lines[-1].strip() == "The model cannot do 2in, pni."


def test_the_summary_shows_zeros():
    """Zero hits are a result, not a lack of one."""
    _, heads, rows = taken_apart(shown(evaluation({"1p": 4.0})))  # with 0.0 for H@1
    assert heads.startswith("MRR H@1 H@10 ")
    assert rows["1p"][:3] == ["4.0", "0.0", "12.0"]


def test_the_summary_shows_the_largest_figures_with_the_names():
    structures = {"2u-DM": uncertain(100.0), "2in": uncertain(100.0)}
    ours = evaluation(structures, counts=NELL, empty={"2in": 1.0})
    widest = {
        kind: {name: replace(each, interval=(100.0, 100.0)) for name, each in results.items()}
        for kind, results in (("structures", ours.structures), ("averages", ours.averages))
    }
    text = "\n".join(shown(replace(ours, **widest)))
    for name in ("2u-DM", "2in", "negation"):
        assert f" {name} " in text


@pytest.mark.parametrize("name", [OWN, '?X . r("[/b]", ?X)', '?X . r("[red]", ?X)'])
def test_the_summary_shows_own_structures_as_they_are(name):
    lines = shown(evaluation({"1p": 20.0, name: 10.0}, cannot=[name + "!"]), width=200)
    assert any(line.strip().startswith(f"{name} ") for line in lines)
    assert lines[-1].strip() == f"The model cannot do {name}!."


def test_the_summary_leaves_blank_what_is_not_a_number():
    ours = evaluation({"1p": uncertain(20.0, float("nan")), "2p": uncertain(20.0)})
    _, heads, rows = taken_apart(shown(ours))
    assert heads.endswith("Spearman")
    assert len(rows["1p"]) == len(rows["2p"]) - 1


def test_the_summary_of_a_model_of_a_users_own():
    _, heads, rows = taken_apart(shown(evaluation({"1p": 20.0}, "cone", counts=NELL)))
    assert heads == "MRR H@1 H@10 95 % frequency"
    assert rows["1p"][0] == "20.0"
