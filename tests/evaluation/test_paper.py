"""The paper's figures, against its text, and beside evaluations."""

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from betae.evaluation.tables import COLUMN_ORDER, PAPER, PUBLISHED, describe_queries, make_tables
from betae.queries.structures import EPFO, NEGATION
from tests.evaluation.helpers import (
    BETAE,
    FB237,
    NELL,
    OWN,
    QUERY2BOX,
    from_markdown,
    kept,
    labels_of,
    row_of,
    table_of,
    uncertain,
)

# ---- the figures ------------------------------------------------------------------------------


def paper_row(table, dataset, model="BetaE", metric=None):
    (row,) = [
        row
        for row in PAPER["rows"]
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
    with_average = [row for row in PAPER["rows"] if "average" in row["values"]]
    assert len(with_average) == 3 * 9 + 6 + 1
    for row in with_average:
        values = [row["values"][name] for name in (*EPFO, *NEGATION) if name in row["values"]]
        if row["table"] != "empty":
            assert len(values) in (len(EPFO), len(NEGATION))
            average = pytest.approx(sum(values) / len(values), abs=0.1)  # all are rounded
            assert row["values"]["average"] == average, row


def test_every_figure_of_the_paper_has_a_place():
    for row in PAPER["rows"]:
        assert row["dataset"] in PAPER["datasets"]
        assert row["values"].keys() - {"average"} <= set(COLUMN_ORDER)
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
    for row in PAPER["rows"]:
        metric = row["metric"] if row["table"] == "negation" else None
        found[row["table"], row["dataset"], row["model"], metric] = row["values"]
    assert len(expected) == len(found) == len(PAPER["rows"]) == 46
    assert found == expected
    for dataset, entities, relations, *_ in tables["meta_kg"][1:]:
        sizes = [int(size.replace(",", "")) for size in (entities, relations)]
        assert PAPER["datasets"][dataset] == sizes


# ---- beside evaluations -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "origin", "of_1p", "words"),
    [
        (FB237, BETAE, [39.0, 40.6, 35.0], "official queries of the BetaE release."),
        (FB237, QUERY2BOX, [39.1, 40.3, 35.0], "official queries of the Query2Box release."),
        (FB237, {"source": "sampled"}, [39.0, 40.6, 35.0], "figures for FB15k-237 are for its own"),
        (NELL, BETAE, [53.0, 42.2, 32.8], "official queries of the BetaE release."),
        ((14951, 1345), QUERY2BOX, [65.0, 67.1, 54.6], "Query2Box release."),
        ((14505, 238), BETAE, [], "official queries of the BetaE release."),
        ((237, 14505), BETAE, [], "official queries of the BetaE release."),
        ((30, 3), {}, [], "1,000 test queries: queries sampled by betae."),
    ],
    ids=str,
)
def test_the_papers_rows_are_those_of_the_graph_and_the_queries(counts, origin, of_1p, words):
    ours = kept({"1p": 40.0, "2p": 20.0}, counts=counts, origin=origin)
    table = table_of([ours], "MRR, %")
    rows = [(label, cells[0]) for label, cells in table.rows if label.startswith("paper's")]
    models = ["paper's BetaE", "paper's Query2Box", "paper's GQE"][: len(of_1p)]
    assert rows == list(zip(models, of_1p, strict=True))
    assert words in describe_queries(ours)
    assert ("FB15k-237" in describe_queries(ours)) == (origin == {"source": "sampled"})


def test_the_papers_figures_by_metric():
    ours = kept(dict.fromkeys(["1p", "2u", "2u-DM", "2in", OWN], 20.0), counts=FB237)
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
    ours = kept(structures, counts=NELL, empty={"1p": 0.75, "2in": 0.85})
    spearman, empty = table_of([ours], "Spearman"), table_of([ours], "Queries without")
    assert labels_of(spearman) == ["run (BetaE)", "paper's Query2Box", "paper's BetaE"]
    assert row_of(spearman, "paper's BetaE") == {
        "1p": 0.423,
        "2in": 0.711,
        "mean": pytest.approx(0.567),
    }
    assert row_of(spearman, "paper's Query2Box")["mean"] == pytest.approx(0.154)
    assert labels_of(empty) == ["run (BetaE)", "paper's BetaE"]
    other = kept(structures, counts=FB237, empty={"1p": 0.75})
    assert labels_of(table_of([other], "Queries without")) == ["run (BetaE)"]


def test_the_mean_is_over_the_same_structures_in_each_row():
    """The paper's own average of all 12 is none of them."""
    ours = kept({"1p": uncertain(40.0)}, counts=NELL, empty={"1p": 0.75})
    row = row_of(table_of([ours], "Queries without"), "paper's BetaE")
    assert row == {"1p": 0.825, "mean": pytest.approx(0.825)}


@pytest.mark.parametrize("name", ["paper-recipe", "newspapers", "paper's BetaE"])
def test_a_run_with_the_paper_in_its_name(name):
    ours = kept({"1p": uncertain(40.0)}, run=name, empty={"1p": 0.75})
    usual = kept({"1p": uncertain(40.0)}, run="usual", empty={"1p": 0.75})
    found, expected = make_tables([ours]), make_tables([usual])
    assert [table.title for table in found] == [table.title for table in expected]
    assert [table.columns for table in found] == [table.columns for table in expected]


# ---- other systems' figures ---------------------------------------------------------------------


ALL = dict.fromkeys((*EPFO, *NEGATION), 20.0)
SYSTEMS = ["published ConE", "published GNN-QE", "published QTO"]

# ---- the file ---------------------------------------------------------------------------------


def test_every_row_has_a_place_and_a_source():
    names = {*EPFO, *NEGATION, "EPFO", "negation"}
    seen = set()
    for row in PUBLISHED["rows"]:
        assert row.keys() == {"system", "dataset", "checked", "source", "values"}
        assert row["system"] in PUBLISHED["systems"]
        assert row["dataset"] in PAPER["datasets"]
        assert row["values"].keys() <= names
        assert ("from memory" in row["source"]) != row["checked"]
        assert ("https://" in row["source"]) == row["checked"]
        cells = {(row["system"], row["dataset"], name) for name in row["values"]}
        assert not cells & seen  # each figure stands in one row
        seen |= cells


def test_published_averages_are_means():
    whole = [row for row in PUBLISHED["rows"] if row["values"].keys() >= {*EPFO, "EPFO"}]
    assert len(whole) == 5
    for row in whole:
        values = [row["values"][name] for name in EPFO]
        assert row["values"]["EPFO"] == pytest.approx(sum(values) / len(values), abs=0.051), row


def test_the_file_is_in_the_package():
    """The wheel takes the whole package; both files lie in it, and neither is left out."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["betae"]}
    files = {path.name for path in resources.files("betae.evaluation").iterdir()}
    assert {"paper.json", "published.json"} <= files


# ---- beside evaluations -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "origin", "of_1p"),
    [
        (FB237, BETAE, [None, 42.8, 49.0]),
        (FB237, {"source": "sampled"}, [None, 42.8, 49.0]),
        (NELL, BETAE, [None, 53.3, 60.7]),
        (NELL, QUERY2BOX, []),
        ((30, 3), BETAE, []),
    ],
    ids=str,
)
def test_the_rows_are_those_of_the_graph_and_the_queries(counts, origin, of_1p):
    table = table_of([kept(ALL, counts=counts, origin=origin)], "MRR, %")
    rows = {label: cells[0] for label, cells in table.rows if label.startswith("published")}
    assert rows == dict(zip(SYSTEMS, of_1p, strict=False))
    assert any(note.startswith("Published: ") for note in table.notes) == bool(of_1p)


def test_figures_from_memory_are_marked():
    table = table_of([kept(ALL, counts=FB237)], "MRR, %")
    qto = row_of(table, "published QTO")
    assert (qto["2p"], qto["EPFO"], qto["negation"], qto["2in"]) == (21.4, 33.5, "15.5†", None)
    cone = row_of(table, "published ConE")
    assert (cone["EPFO"], cone["negation"], cone["1p"]) == ("23.4†", "5.9†", None)
    assert table.notes[-1] == "† From memory of the paper, not checked."


def test_no_mark_no_footnote():
    """FB15k has no figure from memory, and no figure of ConE."""
    table = table_of([kept(ALL, counts=(14951, 1345))], "MRR, %")
    assert [name for name in SYSTEMS if name in labels_of(table)] == SYSTEMS[1:]
    assert not any("†" in note for note in table.notes)


@pytest.mark.parametrize(
    ("origin", "split", "is_same"),
    [
        (BETAE, "test", True),
        (BETAE, "valid", False),
        ({"source": "sampled", "rules": "release"}, "test", False),
    ],
    ids=str,
)
def test_a_note_says_if_they_are_for_other_queries(origin, split, is_same):
    (note,) = [
        note
        for note in table_of([kept(ALL, counts=NELL, origin=origin, split=split)], "MRR, %").notes
        if note.startswith("Published: ")
    ]
    assert note == (
        "Published: ConE (Zhang et al. 2021), GNN-QE (Zhu et al. 2022), QTO (Bai et al. 2023), "
        "on the official test queries of the BetaE release"
        + ("." if is_same else ", not on these.")
    )


def test_only_mrr_was_published():
    for table in make_tables([kept(ALL, counts=NELL)])[1:]:
        assert not set(SYSTEMS) & set(labels_of(table))
        assert not any(note.startswith("Published: ") for note in table.notes)


def test_systems_without_a_figure_for_the_columns_are_left_out():
    """Nothing was published for a user's own structure."""
    table = table_of([kept({OWN: 20.0}, counts=NELL)], "MRR, %")
    assert not set(SYSTEMS) & set(labels_of(table))
    assert table.notes == []


def test_published_figures_bring_no_column():
    table = table_of([kept({"1p": 40.0}, counts=NELL)], "MRR, %")
    assert table.columns == ["1p", "EPFO"]


def test_the_rows_stand_in_the_pages():
    from betae.evaluation.report import to_markdown

    page = from_markdown(to_markdown(table_of([kept(ALL, counts=FB237)], "MRR, %")))
    rows = {row[0]: row[1:] for row in page.tables[0]}
    assert rows["published QTO"][0] == "49.0"
    assert rows["published QTO"][-1] == "15.5†"
