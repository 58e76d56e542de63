"""Reports: the paper's figures, the tables, Markdown and HTML, and the folder that holds them."""

import io
import json
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt  # rich brings it
from rich.console import Console

from betae.cli.show import draw_summary
from betae.errors import StoreError
from betae.evaluation import plots
from betae.evaluation.evaluate import Average, Evaluation, MissingResult, StructureResult
from betae.evaluation.paper import describe_queries, paper
from betae.evaluation.ranks import Metrics
from betae.evaluation.report import (
    read_evaluations,
    save_evaluation,
    to_html,
    to_markdown,
    write_report,
)
from betae.evaluation.tables import COLUMNS, Table, make_tables
from betae.evaluation.uncertainty import Correlation, CountError, EmptyResult
from betae.queries.structures import EPFO, NEGATION

FB237, NELL = (14505, 237), (63361, 200)
BETAE, QUERY2BOX = {"kind": "betae"}, {"kind": "query2box"}
ODD = "a<b> & c|d"  # a name of a run
OWN = '?X . r("<p> & q", ?X) | !_(_, ?X)'  # a structure of a user's own


# ---- evaluations made by hand -----------------------------------------------------------------


def metrics(mrr):
    return Metrics(mrr, mrr - 4, mrr + 4, mrr + 8, 10)


def result(mrr, num_edges=1, missing=None, strict_mrr=None, **more):
    by_missing = missing or {1: MissingResult(mrr, 10)}
    interval = (mrr - 2, mrr + 2)
    return StructureResult(
        metrics(mrr), interval, metrics(5.0), num_edges, by_missing, strict_mrr, 2.0, **more
    )


def uncertain(mrr, spearman=0.5, pearson=0.25):
    """The result of a structure whose uncertainty is measured."""
    return result(
        mrr,
        correlation=Correlation(spearman, pearson),
        count_error=CountError(1.5, 2.5),
        points=[(0.5, 3), (1.5, 9)],
    )


def evaluation(
    structures,
    model_name="betae",
    counts=(30, 3),
    origin=None,
    cannot=(),
    empty=None,
    split="test",
    fingerprint="f" * 64,
    num_queries=1000,
):
    """An evaluation with these results, or MRRs, by structure."""
    results = {k: v if isinstance(v, StructureResult) else result(v) for k, v in structures.items()}
    averages = {}
    for kind, members in {"EPFO": EPFO, "negation": NEGATION}.items():
        there = [name for name in members if name in results]
        if there:
            mrr = sum(results[name].metrics.mrr for name in there) / len(there)
            averages[kind] = Average(there, metrics(mrr), (mrr - 1, mrr + 1), metrics(5.0))
    return Evaluation(
        model_name,
        {"fingerprint": fingerprint, "entities": counts[0], "relations": counts[1]},
        {"split": split, "origin": origin or {"source": "sampled"}, "count": num_queries},
        results,
        averages,
        list(cannot),
        {name: EmptyResult(area, 9, 9, [(0.0, 0.0), (1.0, 1.0)]) for name, area in empty.items()}
        if empty
        else {},
        1.0,
    )


def content(*arguments, run="run", name="queries", **keywords):
    """An evaluation as it is read from disk."""
    made = {"run": run, "name": name, **evaluation(*arguments, **keywords).to_json()}
    return json.loads(json.dumps(made, allow_nan=False))


def save(folder, *arguments, name="queries", **keywords):
    """Put an evaluation into a run; return the run."""
    folder.mkdir(exist_ok=True)
    save_evaluation(evaluation(*arguments, **keywords), folder, name)
    return folder


def table_of(evaluations, title):
    return next(table for table in make_tables(evaluations) if table.title.startswith(title))


def row_of(table, label):
    """The one row of that label, as column: cell."""
    (cells,) = [cells for name, cells in table.rows if name == label]
    return dict(zip(table.columns, cells, strict=True))


def labels_of(table):
    return [label for label, _ in table.rows]


# ---- the paper's figures ----------------------------------------------------------------------


def paper_row(table, dataset, model="BetaE", metric=None):
    (row,) = [
        row
        for row in paper()["rows"]
        if (row["table"], row["dataset"], row["model"]) == (table, dataset, model)
        and metric in (None, row["metric"])
    ]
    return row


def test_the_paper_by_hand():
    mrr = paper_row("conjmrr", "FB15k-237")["values"]
    assert (mrr["1p"], mrr["2u"], mrr["2u-DM"], mrr["average"]) == (39.0, 12.4, 11.1, 20.9)
    assert paper_row("conjmrr", "FB15k", "GQE")["values"]["3i"] == 51.4
    assert paper_row("conjhone", "NELL995", "Query2Box")["values"]["pi"] == 14.3
    assert paper_row("conjold", "FB15k-237")["values"]["2p"] == 24.2
    assert paper_row("negation", "NELL995", metric="mrr")["values"]["average"] == 5.9
    assert paper_row("negation", "FB15k", metric="hits_at_10")["values"]["pni"] == 26.3
    assert paper_row("spearman", "FB15k-237")["values"]["2in"] == 0.685
    assert paper_row("pearson", "NELL995", "Query2Box")["values"]["1p"] == 0.068
    assert paper_row("empty", "NELL995")["values"]["1p"] == 0.825


def test_averages_of_the_paper():
    """But that of the ROC-AUC, which is not the mean of its structures."""
    with_average = [row for row in paper()["rows"] if "average" in row["values"]]
    assert len(with_average) == 3 * 9 + 6 + 1
    for row in with_average:
        values = [row["values"][name] for name in (*EPFO, *NEGATION) if name in row["values"]]
        if row["table"] != "empty":
            assert len(values) in (len(EPFO), len(NEGATION))
            average = pytest.approx(sum(values) / len(values), abs=0.1)  # all are rounded
            assert row["values"]["average"] == average, row


def test_every_figure_of_the_paper_has_a_place():
    for row in paper()["rows"]:
        assert row["dataset"] in paper()["datasets"]
        assert row["values"].keys() - {"average"} <= set(COLUMNS)
        assert row["metric"] == {
            "conjmrr": "mrr",
            "conjhone": "hits_at_1",
            "conjold": "mrr",
            "spearman": "spearman",
            "pearson": "pearson",
            "empty": "roc_auc",
        }.get(row["table"], row["metric"])
        assert row["queries"] == ("query2box" if row["table"] == "conjold" else "betae")


def latex_tables(text):
    """The rows of the tables of a LaTeX text by label, as lists of cells without their markup."""
    tables = {}
    for body in re.findall(r"\\begin\{table\*?\}(.*?)\\end\{table\*?\}", text, re.DOTALL):
        label = re.search(r"\\label\{tab:(\w+)\}", body)[1]
        inside = re.search(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", body, re.DOTALL)[1]
        inside = re.sub(r"\\hline|\\cline\{[^}]*\}", "", inside)
        inside = re.sub(r"\\multicolumn\{2\}\{[^}]*\}\{(.*?\})\}", r"\1 & \1", inside)
        inside = re.sub(r"\\multirow\{\d\}\{\*\}", "", inside)
        rows = [
            [re.sub(r"\\textbf|[{}]", "", cell).strip() for cell in line.split("&")]
            for line in inside.split(r"\\")
            if line.strip()
        ]
        tables[label] = rows
    return tables


def test_the_paper_word_for_word(shared_data):
    file = shared_data.parent / "paper" / "betae-paper.tex"
    if not file.is_file():
        pytest.skip("the paper's text is not beside the project")
    text = file.read_text(encoding="utf-8")
    tables = latex_tables(text)
    models = {r"\methodname": "BetaE", r"\qb": "Query2Box", r"\gqe": "GQE"}
    metric_names = {"MRR": "mrr", "H@10": "hits_at_10"}
    expected = {}
    for label in ("conjmrr", "conjhone", "conjold", "spearman", "pearson", "negation"):
        names, *rows = tables[label]
        if "DM" in rows[0]:  # the head has two rows
            below = rows.pop(0)
            names = [n + ("-DM" if b == "DM" else "") for n, b in zip(names, below, strict=True)]
        dataset = ""
        for cells in rows:
            dataset = cells[0] or dataset
            values = {
                name.replace("avg", "average"): float(cell)
                for name, cell in zip(names[2:], cells[2:], strict=True)
                if cell != "-"
            }
            model = models.get(cells[1], "BetaE")
            expected[label, dataset, model, metric_names.get(cells[1])] = values
    names, values = tables["empty"]
    average = re.search(r"we find an ROC-AUC score of (0\.\d+)", text)[1]
    expected["empty", "NELL995", "BetaE", None] = {
        **dict(zip(names, map(float, values), strict=True)),
        "average": float(average),
    }
    found = {}
    for row in paper()["rows"]:
        metric = row["metric"] if row["table"] == "negation" else None
        found[row["table"], row["dataset"], row["model"], metric] = row["values"]
    assert len(expected) == len(found) == len(paper()["rows"]) == 46
    assert found == expected
    for dataset, entities, relations, *_ in tables["meta_kg"][1:]:
        sizes = [int(size.replace(",", "")) for size in (entities, relations)]
        assert paper()["datasets"][dataset] == sizes


# ---- the cells --------------------------------------------------------------------------------


def test_the_figures_are_in_their_cells():
    ours = content({"1p": 40.0, "2p": 20.0, "2in": 10.0})
    assert [table.title for table in make_tables([ours])] == [
        "MRR, %",
        "H@1, %",
        "H@3, %",
        "H@10, %",
        "MRR by missing edges, %",
    ]
    mrr = table_of([ours], "MRR, %")
    assert mrr.columns == ["1p", "2p", "EPFO", "2in", "negation"]
    assert labels_of(mrr) == ["run (BetaE)", "95 % interval", "frequency"]
    assert mrr.rows[0][1] == [40.0, 20.0, 30.0, 10.0, 10.0]
    assert mrr.rows[1][1] == ["38.0–42.0", "18.0–22.0", "29.0–31.0", "8.0–12.0", "9.0–11.0"]
    assert mrr.rows[2][1] == [5.0] * 5
    for title, of_run, of_frequency in (("H@1", 36.0, 1.0), ("H@3", 44.0, 9.0), ("H@10", 48, 13)):
        table = table_of([ours], title)
        assert labels_of(table) == ["run (BetaE)", "frequency"]
        assert row_of(table, "run (BetaE)")["1p"] == of_run
        assert row_of(table, "frequency")["1p"] == of_frequency


def test_columns_are_in_the_papers_order_and_own_structures_last():
    names = [OWN, *NEGATION[::-1], "up-DM", "up", "2u-DM", "2u", "ip", "pi", "3i", "2i", "3p", "1p"]
    table = table_of([content(dict.fromkeys(names, 20.0))], "MRR, %")
    assert table.columns == [
        *("1p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "EPFO"),
        *(*NEGATION, "negation", OWN),
    ]


@pytest.mark.parametrize("first", ["betae", "query2box"])
def test_what_a_run_cannot_do_is_blank(first):
    beta = content({"1p": 40.0, "2u": 30.0, "2u-DM": 28.0, "2in": 10.0}, run="a")
    box = content({"1p": 41.0, "2u": 31.0}, run="b", model_name="query2box", cannot=["2in"])
    tables = make_tables([beta, box] if first == "betae" else [box, beta])
    mrr = tables[0]
    columns = ["1p", "2u", "2u-DM", "EPFO", "2in", "negation"]
    assert row_of(mrr, "b (Query2Box)") == dict(
        zip(columns, [41.0, 31.0, None, 36.0, None, None], strict=True)
    )
    assert row_of(mrr, "a (BetaE)")["2u-DM"] == 28.0
    assert row_of(mrr, "frequency") == dict.fromkeys(columns, 5.0)  # of the run that did more
    for table in tables[:4]:
        assert "b (Query2Box) cannot do 2in: left blank." in table.notes
        assert not any(note.startswith("a (BetaE) cannot") for note in table.notes)
    (line,) = [line for line in to_markdown(mrr).splitlines() if line.startswith("| b ")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["b (Query2Box)", "41.0", "31.0", "", "36.0", "", ""]


def test_an_average_over_some_structures_says_so():
    some = content({"1p": 40.0, "2u": 30.0, "2in": 10.0}, run="some")
    whole = content(dict.fromkeys((*EPFO, *NEGATION), 20.0), run="whole")
    notes = make_tables([some, whole])[0].notes
    assert notes == [
        "some (BetaE): EPFO is over 1p, 2u.",
        "some (BetaE): negation is over 2in.",
    ]


def test_missing_edges():
    split = {1: MissingResult(20.0, 30), 2: MissingResult(10.0, 70)}
    ours = content({"1p": 40.0, "2p": result(15.0, 2, split), "2in": 12.0})
    table = table_of([ours], "MRR by missing edges")
    assert table.columns == ["1p", "2p", "2in"]  # averages are not split
    assert row_of(table, "run (BetaE): 1 missing") == {
        "1p": "40.0* (100%)",
        "2p": "20.0 (30%)",
        "2in": "12.0* (100%)",
    }
    assert row_of(table, "run (BetaE): 2 missing") == {
        "1p": None,
        "2p": "10.0* (70%)",
        "2in": None,
    }


def test_the_strict_reading_stands_beside_the_releases():
    ours = content({"1p": 40.0, "2in": result(10.0, strict_mrr=8.5)})
    table = table_of([ours], "MRR by the reading of easy")
    assert table.rows == [("run (BetaE): release", [10.0]), ("run (BetaE): strict", [8.5])]
    assert table.columns == ["2in"]


def test_what_uncertainty_tells():
    undefined = uncertain(20.0, float("nan"), float("nan"))
    ours = content(
        {"1p": uncertain(40.0), "2p": undefined, "2i": uncertain(9.0, 0.7, -0.5), "2u": 5.0},
        empty={"1p": 0.75, "2i": 0.85},
    )
    titles = ("Spearman", "Pearson", "Queries without answers", "Estimated number")
    spearman, pearson, empty, counts = (table_of([ours], title) for title in titles)
    assert spearman.columns == ["1p", "2i", "mean"]
    assert spearman.rows == [("run (BetaE)", [0.5, 0.7, pytest.approx(0.6)])]
    assert pearson.rows == [("run (BetaE)", [0.25, -0.5, pytest.approx(-0.125)])]
    assert empty.rows == [("run (BetaE)", [0.75, 0.85, pytest.approx(0.8)])]
    assert row_of(counts, "run (BetaE): estimate") == {"1p": 1.5, "2p": 1.5, "2i": 1.5}
    assert row_of(counts, "run (BetaE): one number for all") == {"1p": 2.5, "2p": 2.5, "2i": 2.5}
    assert "| 0.500 | 0.700 | 0.600 |" in to_markdown(spearman)


# ---- beside the paper -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "origin", "of_1p", "words"),
    [
        (FB237, BETAE, [39.0, 40.6, 35.0], "official queries of the BetaE release."),
        (FB237, QUERY2BOX, [39.1, 40.3, 35.0], "official queries of the Query2Box release."),
        (FB237, {"source": "sampled"}, [39.0, 40.6, 35.0], "figures for FB15k-237 are on its own"),
        (NELL, BETAE, [53.0, 42.2, 32.8], "official queries of the BetaE release."),
        ((14951, 1345), QUERY2BOX, [65.0, 67.1, 54.6], "Query2Box release."),
        ((14505, 238), BETAE, [], "official queries of the BetaE release."),
        ((237, 14505), BETAE, [], "official queries of the BetaE release."),
        ((30, 3), {}, [], "1,000 test queries: queries sampled by betae."),
    ],
    ids=str,
)
def test_the_papers_rows_are_those_of_the_graph_and_the_queries(counts, origin, of_1p, words):
    ours = content({"1p": 40.0, "2p": 20.0}, counts=counts, origin=origin)
    table = table_of([ours], "MRR, %")
    rows = [(label, cells[0]) for label, cells in table.rows[3:]]
    models = ["paper's BetaE", "paper's Query2Box", "paper's GQE"][: len(of_1p)]
    assert rows == list(zip(models, of_1p, strict=True))
    assert words in describe_queries(ours)
    assert ("FB15k-237" in describe_queries(ours)) == (origin == {"source": "sampled"})


def test_the_papers_figures_by_metric():
    ours = content(dict.fromkeys(["1p", "2u", "2u-DM", "2in", OWN], 20.0), counts=FB237)
    names = ["1p", "2u", "2u-DM", "EPFO", "2in", "negation", OWN]
    mrr, one, three, ten = make_tables([ours])[:4]
    assert mrr.columns == one.columns == three.columns == ten.columns == names
    beta = row_of(mrr, "paper's BetaE")
    assert [beta[name] for name in names] == [39.0, 12.4, 11.1, 20.9, 5.1, 5.4, None]
    box = row_of(mrr, "paper's Query2Box")
    assert [box[name] for name in names] == [40.6, 11.3, None, 20.1, None, None, None]
    assert row_of(one, "paper's BetaE")["1p"] == 28.9
    assert row_of(one, "paper's BetaE")["2in"] is None
    assert labels_of(three) == ["run (BetaE)", "frequency"]
    assert labels_of(ten) == ["run (BetaE)", "frequency", "paper's BetaE"]
    assert row_of(ten, "paper's BetaE") == {
        **dict.fromkeys(names),
        "2in": 11.3,
        "negation": 11.9,
    }


def test_the_papers_uncertainty():
    structures = {"1p": uncertain(40.0), "2in": uncertain(10.0)}
    ours = content(structures, counts=NELL, empty={"1p": 0.75, "2in": 0.85})
    spearman, empty = table_of([ours], "Spearman"), table_of([ours], "Queries without")
    assert labels_of(spearman) == ["run (BetaE)", "paper's Query2Box", "paper's BetaE"]
    assert row_of(spearman, "paper's BetaE") == {
        "1p": 0.423,
        "2in": 0.711,
        "mean": pytest.approx(0.567),
    }
    assert row_of(spearman, "paper's Query2Box")["mean"] == pytest.approx(0.154)
    assert labels_of(empty) == ["run (BetaE)", "paper's BetaE"]
    other = content(structures, counts=FB237, empty={"1p": 0.75})
    assert labels_of(table_of([other], "Queries without")) == ["run (BetaE)"]


def test_the_mean_is_over_the_same_structures_in_each_row():
    """The paper's own average of all 12 is none of them."""
    ours = content({"1p": uncertain(40.0)}, counts=NELL, empty={"1p": 0.75})
    row = row_of(table_of([ours], "Queries without"), "paper's BetaE")
    assert row == {"1p": 0.825, "mean": pytest.approx(0.825)}


@pytest.mark.parametrize("name", ["paper-recipe", "newspapers", "paper's BetaE"])
def test_a_run_with_the_paper_in_its_name(name):
    ours = content({"1p": uncertain(40.0)}, run=name, empty={"1p": 0.75})
    usual = content({"1p": uncertain(40.0)}, run="usual", empty={"1p": 0.75})
    found, expected = make_tables([ours]), make_tables([usual])
    assert [table.title for table in found] == [table.title for table in expected]
    assert [table.columns for table in found] == [table.columns for table in expected]


# ---- rendering --------------------------------------------------------------------------------


class Page(HTMLParser):
    """HTML taken apart; it must be well formed. A table is a list of rows, of texts of cells."""

    EMPTY = ("meta", "img", "hr", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.headings, self.links, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for key, value in attributes if key.endswith(("href", "src"))]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings[-1] += data
        elif self.open and self.open[-1] in ("table", "tr", "thead", "tbody"):
            assert not data.strip()


def from_markdown(text):
    return Page(MarkdownIt("commonmark").enable("table").render(text))


def read_html(table):
    return Page(to_html(table))


def read_markdown(table):
    return from_markdown(to_markdown(table))


@pytest.mark.parametrize("read", [read_html, read_markdown])
def test_tables_survive_rendering(read):
    table = Table("A & B", ["1p", "2p"], [("x", [1.25, None]), ("y", ["3–4", 0.0])], ["Note."])
    page = read(table)
    assert page.headings == ["A & B"]
    assert page.tables == [[["", "1p", "2p"], ["x", "1.2", ""], ["y", "3–4", "0.0"]]]


@pytest.mark.parametrize("read", [read_html, read_markdown])
def test_odd_names_do_not_break_a_table(read):
    ours = content({"1p": uncertain(40.0), OWN: 20.0}, run=ODD, counts=FB237)
    for table in make_tables([ours, content({"1p": 30.0}, run="plain", cannot=[OWN])]):
        (rows,) = read(table).tables
        assert {len(row) for row in rows} == {len(table.columns) + 1}
        assert rows[0] == ["", *table.columns]
        assert [row[0] for row in rows[1:]] == labels_of(table)


# ---- the folder -------------------------------------------------------------------------------


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
    assert told == read_evaluations([run]) == [content(structures, empty={"1p": 0.75})]

    markdown = from_markdown((folder / "report.md").read_text("utf-8"))
    titles = [table.title for table in make_tables(told)]
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
    "another name": {"name": "other"},
    "another graph": {"fingerprint": "e" * 64},
    "another split": {"split": "valid"},
    "another sample": {"origin": {"source": "sampled", "seed": 1}},
    "another release": {"origin": QUERY2BOX},
}


@pytest.mark.usefixtures("_quick_plots")
@pytest.mark.parametrize("difference", DIFFERENT.values(), ids=DIFFERENT)
def test_runs_on_different_queries_are_in_sections_of_their_own(tmp_path, difference):
    one = save(tmp_path / "one", {"1p": 40.0}, origin={"source": "sampled", "seed": 0})
    two = save(tmp_path / "two", {"1p": 20.0}, **difference)
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
    save(run, {"1p": 20.0}, name="second")
    write_report([run], tmp_path / "report")
    page = Page((tmp_path / "report" / "report.html").read_text("utf-8"))
    assert [text for text in page.headings if text in ("first", "second")] == ["first", "second"]
    assert [page.tables[0][1][1], page.tables[5][1][1]] == ["40.0", "20.0"]


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


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:-20], lambda _: "", lambda _: "{}", lambda _: "[1]"],
    ids=["cut", "nothing", "no figures", "a list"],
)
def test_a_damaged_evaluation_is_named(tmp_path, damage):
    run = save(tmp_path / "run", {"1p": 40.0})
    path = run / "evaluations" / "queries.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(StoreError, match=re.escape(f"{path} is damaged")):
        write_report([run], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_name_again_replaces_its_evaluation(tmp_path):
    run = save(tmp_path / "run", {"1p": 40.0})
    save(run, {"1p": 50.0})
    (told,) = read_evaluations([run])
    assert told["structures"]["1p"]["metrics"]["mrr"] == 50.0
    assert (told["run"], told["name"]) == ("run", "queries")


# ---- the terminal -----------------------------------------------------------------------------


def shown(evaluation, width=80):
    file = io.StringIO()
    Console(file=file, width=width).print(draw_summary(evaluation))
    return file.getvalue().splitlines()


def taken_apart(lines):
    """The title, the heads of the columns, and the figures by name."""
    place = next(place for place, line in enumerate(lines) if line.split()[0] == "MRR")
    rows = {line.split()[0]: line.split()[1:] for line in lines[place + 1 :]}
    return " ".join(lines[:place]), " ".join(lines[place].split()), rows


def test_the_summary_fits_a_terminal():
    names = [*EPFO, "2u-DM", "up-DM", *NEGATION]
    measured = {name: uncertain(20.0) for name in names if "u" not in name}
    ours = content({**dict.fromkeys(names, 20.0), **measured}, counts=NELL, empty={"1p": 0.75})
    lines = shown(ours)
    assert max(map(len, lines)) <= 80
    title, heads, rows = taken_apart(lines)
    assert title.startswith("1,000 test queries: ")
    assert heads == "MRR H@1 H@10 95 % frequency paper Spearman ROC-AUC"
    assert list(rows) == list(COLUMNS)
    assert rows["1p"] == ["20.0", "16.0", "28.0", "18.0–22.0", "5.0", "53.0", "0.50", "0.75"]
    assert rows["2u-DM"] == ["20.0", "16.0", "28.0", "18.0–22.0", "5.0", "11.0"]
    assert rows["negation"] == ["20.0", "16.0", "28.0", "19.0–21.0", "5.0", "5.9"]


def test_the_summary_leaves_out_what_there_is_not():
    lines = shown(content({"1p": 20.0}, model_name="gqe", cannot=["2in", "pni"]))
    assert taken_apart(lines)[1] == "MRR H@1 H@10 95 % frequency"
    assert lines[-1].strip() == "The model cannot do 2in, pni."


def test_the_summary_shows_zeros():
    """Zero hits are a result, not a lack of one."""
    _, heads, rows = taken_apart(shown(content({"1p": 4.0})))  # with 0.0 for H@1
    assert heads.startswith("MRR H@1 H@10 ")
    assert rows["1p"][:3] == ["4.0", "0.0", "12.0"]


def test_the_summary_shows_the_largest_figures_with_the_names():
    ours = content({"2u-DM": uncertain(100.0), "2in": uncertain(100.0)}, counts=NELL)
    ours["empty"] = {"2in": {"roc_auc": 1.0}}
    for results in (ours["structures"], ours["averages"]):
        for each in results.values():
            each["interval"] = [100.0, 100.0]
    text = "\n".join(shown(ours))
    for name in ("2u-DM", "2in", "negation"):
        assert f" {name} " in text


@pytest.mark.parametrize("name", [OWN, '?X . r("[/b]", ?X)', '?X . r("[red]", ?X)'])
def test_the_summary_shows_own_structures_as_they_are(name):
    lines = shown(content({"1p": 20.0, name: 10.0}, cannot=[name + "!"]), width=200)
    assert any(line.strip().startswith(f"{name} ") for line in lines)
    assert lines[-1].strip() == f"The model cannot do {name}!."
