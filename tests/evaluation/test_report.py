"""Reports: folders of pages and plots, made of the evaluations in runs."""

import json
import re
from dataclasses import replace

import pytest

from betae.errors import StoreError
from betae.evaluation import plots
from betae.evaluation.report import to_html, to_markdown, write_report
from betae.evaluation.tables import ReportTable, make_tables
from tests.evaluation.helpers import (
    FB237,
    ODD,
    OWN,
    QUERY2BOX,
    Page,
    from_markdown,
    kept,
    labels_of,
    save,
    uncertain,
)


@pytest.fixture
def _quick_plots(monkeypatch):
    """No plots, which take most of the time of a report."""
    monkeypatch.setattr(plots, "draw_plots", lambda _: {"mrr": "<svg></svg>"})


def test_a_report_is_a_folder(tmp_path):
    structures = {"1p": uncertain(40.0), "2in": uncertain(10.0)}
    run = save(tmp_path / "run", structures, empty={"1p": 0.75})
    write_report([run], tmp_path / "report")
    folder = tmp_path / "report"
    names = {path.name for path in folder.iterdir()}
    drawn = {"1-mrr.svg", "1-entropy.svg", "1-roc.svg"}
    assert names == {"report.md", "report.json", "report.html", "manifest.json", *drawn}

    told = json.loads((folder / "report.json").read_text("utf-8"))
    assert told == [json.loads((run / "evaluations" / "queries.json").read_text("utf-8"))]

    markdown = from_markdown((folder / "report.md").read_text("utf-8"))
    titles = [table.title for table in make_tables([kept(structures, empty={"1p": 0.75})])]
    assert markdown.headings == ["Evaluation", "queries", *titles]
    assert set(markdown.links) == drawn

    page = Page((folder / "report.html").read_text("utf-8"))
    assert page.headings == markdown.headings
    assert page.tables == markdown.tables
    assert page.tags.count("svg") == 3


def test_the_page_needs_nothing_else(tmp_path):
    run = save(tmp_path / "run", {"1p": uncertain(40.0)}, empty={"1p": 0.75})
    write_report([run], tmp_path / "report")
    text = (tmp_path / "report" / "report.html").read_text("utf-8")
    page = Page(text)
    assert all(link.startswith("#") for link in page.links)
    assert not {"script", "link", "iframe", "img", "image"} & set(page.tags)
    assert set(re.findall(r"url\([\"']?(.)", text)) <= {"#"}
    assert "@import" not in text
    assert text.startswith("<!doctype html>")
    assert 'charset="utf-8"' in text


@pytest.mark.usefixtures("_quick_plots")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_runs_stand_side_by_side(tmp_path, order):
    everything = {"1p": uncertain(40.0), "2u": 30.0, "2u-DM": 28.0, "2in": uncertain(10.0)}
    runs = [
        save(tmp_path / "a", everything, empty={"1p": 0.75, "2in": 0.7}),
        save(
            tmp_path / "b",
            {"1p": uncertain(41.0), "2u": 31.0},
            model_name="query2box",
            cannot=["2in"],
            empty={"1p": 0.65},
        ),
        save(tmp_path / "c", {"1p": 35.0, "2u": 25.0}, model_name="gqe", cannot=["2in"]),
    ]
    write_report([runs[number] for number in order], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    labels = ["a (BetaE)", "b (Query2Box)", "c (GQE)"]
    rows = {row[0]: row[1:] for row in page.tables[0]}
    assert [name for name in rows if name in labels] == [labels[number] for number in order]
    assert rows[""] == ["1p", "2u", "2u-DM", "EPFO", "2in", "negation"]
    assert rows["b (Query2Box)"] == ["41.0", "31.0", "", "36.0", "", ""]
    assert rows["c (GQE)"] == ["35.0", "25.0", "", "30.0", "", ""]
    assert page.headings.count("queries") == 1


DIFFERENT = {
    "another graph": {"fingerprint": "e" * 64},
    "another split": {"split": "valid"},
    "another sample": {"origin": {"source": "sampled", "seed": 1}},
    "another number": {"num_queries": 999},
    "another release": {"origin": QUERY2BOX},
}


@pytest.mark.usefixtures("_quick_plots")
@pytest.mark.parametrize("difference", DIFFERENT.values(), ids=DIFFERENT)
def test_runs_on_different_queries_are_in_sections_of_their_own(tmp_path, difference):
    one = save(tmp_path / "one", {"1p": 40.0}, origin={"source": "sampled", "seed": 0})
    same = {"origin": {"source": "sampled", "seed": 0}}
    two = save(tmp_path / "two", {"1p": 20.0}, **(same | difference))
    write_report([one, two], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    tables = [rows for rows in page.tables if rows[1][0].startswith(("one (", "two ("))]
    for rows in tables:
        assert not {"one (BetaE)", "two (BetaE)"} <= {row[0] for row in rows}
    names = {path.name for path in (tmp_path / "report").glob("*.svg")}
    assert names == {"1-mrr.svg", "2-mrr.svg"}


@pytest.mark.usefixtures("_quick_plots")
def test_a_run_with_several_evaluations(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0}, name="first")
    save(run, {"1p": 20.0}, name="second", num_queries=999)
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    assert [text for text in page.headings if text in ("first", "second")] == ["first", "second"]
    assert [page.tables[0][1][1], page.tables[5][1][1]] == ["40.0", "20.0"]


@pytest.mark.usefixtures("_quick_plots")
@pytest.mark.parametrize("name", ["queries-completed", "another name"])
def test_the_two_methods_stand_side_by_side(tmp_path, name):
    """They share a section since the queries are the same, whatever the evaluations' names."""
    run = save(tmp_path / "run", {"1p": uncertain(40.0), "2u": 30.0, "2u-DM": 28.0})
    both = ["betae", "complex"]
    completed = {"1p": 45.0, "2u": 35.0}
    save(run, completed, name=name, method="completed", predictors=both)
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    assert page.headings[1] == "queries"
    assert not {"queries-completed", "another name"} & set(page.headings)
    rows = {row[0]: row[1:] for row in page.tables[0]}
    assert rows[""] == ["1p", "2u", "2u-DM", "EPFO"]
    assert rows["run (BetaE)"] == ["40.0", "30.0", "28.0", "35.0"]
    assert rows["run (BetaE + ComplEx, completed graph)"] == ["45.0", "35.0", "", "40.0"]


@pytest.mark.usefixtures("_quick_plots")
def test_a_run_evaluated_twice_on_the_same_queries(tmp_path):
    """Their rows are told apart by the evaluations' names."""
    run = save(tmp_path / "run", {"1p": 40.0}, name="first")
    save(run, {"1p": 20.0}, name="again")
    save(run, {"1p": 60.0}, name="first-completed", method="completed")
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    rows = {row[0]: row[1] for row in page.tables[0] if "(" in row[0]}
    assert rows == {
        "run, again (BetaE)": "20.0",
        "run, first (BetaE)": "40.0",
        "run (BetaE, completed graph)": "60.0",
    }


def test_odd_names_do_not_break_a_report(tmp_path):
    run = save(tmp_path / ODD, {"1p": uncertain(40.0), OWN: 20.0}, name=ODD, empty={"1p": 0.7})
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    markdown = from_markdown((tmp_path / "report" / "report.md").read_text("utf-8"))
    assert page.headings[:2] == ["Evaluation", ODD]
    assert page.headings == markdown.headings
    assert page.tables == markdown.tables
    assert page.tables[0][1][0] == f"{ODD} (BetaE)"


@pytest.mark.usefixtures("_quick_plots")
def test_a_report_overwrites_only_when_told(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0})
    write_report([run], tmp_path / "report")
    before = (tmp_path / "report" / "report.json").read_text()
    save(run, {"1p": 50.0})
    with pytest.raises(StoreError, match="already exists"):
        write_report([run], tmp_path / "report")
    assert (tmp_path / "report" / "report.json").read_text() == before
    write_report([run], tmp_path / "report", overwrite=True)
    (told,) = json.loads((tmp_path / "report" / "report.json").read_text())
    assert told["structures"]["1p"]["metrics"]["mrr"] == 50.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "run"]


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0})
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    with pytest.raises(StoreError, match="not a folder that betae wrote"):
        write_report([run], tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "precious"


def test_a_run_without_evaluations(tmp_path):
    good = save(tmp_path / "good", {"1p": 40.0})
    (tmp_path / "fresh").mkdir()
    for name in ("fresh", "nowhere"):
        run = tmp_path / name
        with pytest.raises(StoreError, match=f"{run} has no evaluation.*betae eval {run}"):
            write_report([good, run], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_damaged_evaluation_is_named_and_nothing_is_written(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0})
    path = run / "evaluations" / "queries.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(StoreError, match=re.escape(f"{path} is damaged")):
        write_report([run], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_run_whose_model_has_diverged(tmp_path):
    """Figures that are not numbers are left blank; the rest is reported."""
    nan = float("nan")
    diverged = replace(uncertain(1.0, nan, nan), points=[(nan, 3), (nan, 9)])
    run = save(tmp_path / "run", {"1p": diverged}, empty={"1p": nan})
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    assert page.tables[0][1] == ["run (BetaE)", "1.0", "1.0"]
    assert not any("nan" in cell for rows in page.tables for row in rows for cell in row)
    assert not any("Spearman" in heading for heading in page.headings)


@pytest.mark.usefixtures("_quick_plots")
def test_a_model_of_a_users_own(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0}, model_name="cone")
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    assert page.tables[0][1][:2] == ["run (cone)", "40.0"]


# ---- tables as Markdown and HTML ----------------------------------------------------------------


def read_html(table):
    return Page(to_html(table))


def read_markdown(table):
    return from_markdown(to_markdown(table))


@pytest.mark.parametrize("read", [read_html, read_markdown])
def test_tables_survive_rendering(read):
    table = ReportTable(
        "A & B", ["1p", "2p"], [("x", [1.25, None]), ("y", ["3–4", 0.0])], ["Note."]
    )
    page = read(table)
    assert page.headings == ["A & B"]
    assert page.tables == [[["", "1p", "2p"], ["x", "1.2", ""], ["y", "3–4", "0.0"]]]


@pytest.mark.parametrize("read", [read_html, read_markdown])
def test_odd_names_do_not_break_a_table(read):
    ours = kept({"1p": uncertain(40.0), OWN: 20.0}, run=ODD, counts=FB237)
    for table in make_tables([ours, kept({"1p": 30.0}, run="plain", cannot=[OWN])]):
        (rows,) = read(table).tables
        assert {len(row) for row in rows} == {len(table.columns) + 1}
        assert rows[0] == ["", *table.columns]
        assert [row[0] for row in rows[1:]] == labels_of(table)
