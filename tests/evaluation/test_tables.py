"""Tables: which figure is in which cell."""

import pytest

from betae.evaluation.report import to_markdown, write_report
from betae.evaluation.results import MissingResult
from betae.evaluation.tables import (
    NO_COMPLEMENT,
    NO_RUN,
    NOT_MEASURED,
    OTHER_QUERIES,
    PAPER,
    SAMPLED_QUERIES,
    below_the_paper,
    describe_queries,
    make_tables,
    method_name,
    paper_tables,
)
from betae.queries.structures import EPFO, NEGATION
from tests.evaluation.helpers import (
    BETAE,
    FB237,
    NELL,
    OWN,
    QUERY2BOX,
    kept,
    labels_of,
    result,
    row_of,
    save,
    table_of,
    uncertain,
)


def test_the_figures_are_in_their_cells():
    ours = kept({"1p": 40.0, "2p": 20.0, "2in": 10.0})
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
    table = table_of([kept(dict.fromkeys(names, 20.0))], "MRR, %")
    assert table.columns == [
        *("1p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "EPFO"),
        *(*NEGATION, "negation", OWN),
    ]


@pytest.mark.parametrize("first", ["betae", "query2box"])
def test_what_a_run_cannot_do_is_blank(first):
    beta = kept({"1p": 40.0, "2u": 30.0, "2u-DM": 28.0, "2in": 10.0}, run="a")
    box = kept({"1p": 41.0, "2u": 31.0}, run="b", model_name="query2box", cannot=["2in"])
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
    some = kept({"1p": 40.0, "2u": 30.0, "2in": 10.0}, run="some")
    whole = kept(dict.fromkeys((*EPFO, *NEGATION), 20.0), run="whole")
    notes = make_tables([some, whole])[0].notes
    assert notes == [
        "some (BetaE): EPFO is over 1p, 2u.",
        "some (BetaE): negation is over 2in.",
    ]


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({}, "BetaE"),
        ({"model_name": "query2box"}, "Query2Box"),
        ({"method": "completed"}, "BetaE, completed graph"),
        ({"method": "completed", "model_name": "complex"}, "ComplEx, completed graph"),
        ({"method": "completed", "predictors": ["betae"]}, "BetaE, completed graph"),
        (
            {"method": "completed", "predictors": ["betae", "complex", "cone"]},
            "BetaE + ComplEx + cone, completed graph",
        ),
    ],
)
def test_the_name_of_a_method(told, name):
    ours = kept({"1p": 40.0}, **told)
    assert method_name(ours) == name
    assert labels_of(table_of([ours], "MRR, %"))[0] == f"run ({name})"


@pytest.mark.parametrize("first", ["embedding", "completed"])
def test_what_a_method_does_not_measure_has_no_row(first):
    embedding = kept({"1p": uncertain(40.0), "2u-DM": 28.0}, empty={"1p": 0.75})
    completed = kept({"1p": 45.0}, method="completed")
    tables = make_tables([embedding, completed] if first == "embedding" else [completed, embedding])
    with_it = [
        table.title.split()[0]
        for table in tables
        if any("completed graph" in label for label in labels_of(table))
    ]
    assert with_it == ["MRR,", "H@1,", "H@3,", "H@10,", "MRR"]
    assert {"Spearman's", "Queries", "Estimated"} <= {one.title.split()[0] for one in tables}


def test_missing_edges():
    split = {1: MissingResult(20.0, 30), 2: MissingResult(10.0, 70)}
    ours = kept({"1p": 40.0, "2p": result(15.0, 2, split), "2in": 12.0})
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
    ours = kept({"1p": 40.0, "2in": result(10.0, strict_mrr=8.5)})
    table = table_of([ours], "MRR by the reading of easy")
    assert table.rows == [("run (BetaE): release", [10.0]), ("run (BetaE): strict", [8.5])]
    assert table.columns == ["2in"]


def test_what_uncertainty_tells():
    undefined = uncertain(20.0, float("nan"), float("nan"))
    ours = kept(
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


# ---- the paper's tables -------------------------------------------------------------------------


ALL = (*EPFO, "2u-DM", "up-DM", *NEGATION)
RELEASE_RULES = {"source": "sampled", "rules": "release"}


def paper_table(title, evaluations):
    (found,) = [one for one in paper_tables(evaluations) if one.title.startswith(title)]
    return found


def test_every_table_of_the_paper_has_its_place():
    tables = {(table["table"], table["metric"]) for table in PAPER["tables"]}
    assert {(row["table"], row["metric"]) for row in PAPER["rows"]} == tables


def test_a_run_stands_below_the_papers_row():
    ours = kept(dict.fromkeys(ALL, 30.0), run="mine", counts=NELL, origin=BETAE)
    titles = [one.title for one in paper_tables([ours])]
    assert len(titles) == len(PAPER["tables"])
    mrr = paper_table("Queries without negation: MRR", [ours])
    label = f"NELL995, BetaE: mine, {ours.queries.count:,} queries"
    assert labels_of(mrr) == ["NELL995, BetaE: paper", label]
    assert list(mrr.columns) == [
        *("1p", "2p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "average"),
    ]
    assert row_of(mrr, "NELL995, BetaE: paper")["average"] == 24.6
    assert row_of(mrr, label) == dict.fromkeys(mrr.columns, 30.0)
    assert mrr.notes == []
    hits = paper_table("Queries with negation: H@10", [ours])
    assert row_of(hits, "NELL995, BetaE: paper")["average"] == 12.9
    assert row_of(hits, label) == dict.fromkeys([*NEGATION, "average"], 38.0)
    assert row_of(paper_table("Queries without negation: H@1", [ours]), label)["average"] == 26.0


def test_figures_below_the_papers_are_counted():
    """1p of NELL995 is 53.0 in the paper, 2p 13.0 and 3p 11.4; Query2Box has no -DM."""
    figures = {"1p": 52.96, "2p": 12.94, "3p": 11.5}  # 53.0, 12.9 and 11.5 as printed
    one = kept(figures, counts=NELL, origin=BETAE)
    two = kept({"1p": 42.1, "2u": 99.0}, counts=NELL, origin=BETAE, model_name="query2box")
    (mrr,) = [t for t in paper_tables([one, two]) if t.title == "Queries without negation: MRR, %"]
    found = below_the_paper([mrr])
    assert found.columns == mrr.columns
    expected = dict.fromkeys(mrr.columns, 0) | {"1p": 1, "2p": 1}
    assert row_of(found, mrr.title) == row_of(found, "all") == expected
    assert found.notes == ["In all 2 of 5 figures."]


def test_query2boxs_queries_are_apart():
    one = kept(dict.fromkeys(EPFO, 30.0), counts=FB237, origin=BETAE)
    two = kept(dict.fromkeys(EPFO, 20.0), counts=FB237, origin=QUERY2BOX)
    for evaluations in ([one, two], [two, one]):
        new = paper_table("Queries without negation: MRR", evaluations)
        old = paper_table("Query2Box's queries", evaluations)
        assert (new.rows[0][1][0], new.rows[1][1][0]) == (39.0, 30.0)
        assert (old.rows[0][1][0], old.rows[1][1][0]) == (39.1, 20.0)
        assert "2u-DM" not in old.columns


def test_uncertainty_beside_the_paper():
    ours = kept(
        {"1p": uncertain(40.0), "2in": uncertain(9.0, 0.7, -0.5)},
        counts=NELL,
        origin=BETAE,
        empty={"1p": 0.75, "2in": 0.85},
    )
    spearman = paper_table("Uncertainty and the number of answers: Spearman", [ours])
    assert spearman.rows[1][1] == [0.5, *[None] * 6, 0.7, *[None] * 4]
    pearson = paper_table("Uncertainty and the number of answers: Pearson", [ours])
    assert pearson.rows[1][1] == [0.25, *[None] * 6, -0.5, *[None] * 4]
    empty = paper_table("Queries without answers", [ours])
    theirs, mine = (dict(zip(empty.columns, cells, strict=True)) for _, cells in empty.rows)
    assert (theirs["1p"], theirs["average"]) == (0.825, 0.844)
    assert (mine["1p"], mine["average"]) == (0.75, pytest.approx(0.8))


@pytest.mark.parametrize(
    ("origin", "split", "note"),
    [
        (BETAE, "test", None),
        (RELEASE_RULES, "test", SAMPLED_QUERIES),
        ({"source": "sampled", "rules": "paper"}, "test", OTHER_QUERIES),
        ({**RELEASE_RULES, "missing": "all"}, "test", OTHER_QUERIES),
        (QUERY2BOX, "test", OTHER_QUERIES),
        (BETAE, "valid", OTHER_QUERIES),
    ],
)
def test_what_cannot_be_compared_is_blank_with_the_reason(origin, split, note):
    ours = kept(dict.fromkeys(EPFO, 30.0), counts=FB237, origin=origin, split=split)
    found = paper_table("Queries without negation: MRR", [ours])
    assert found.notes == ([] if note is None else [f"[1] {note}"])
    (_, theirs), (label, cells) = found.rows
    assert theirs[0] == 39.0
    assert label.endswith(" [1]") == (note is not None)
    assert (cells == [None] * len(found.columns)) == (note == OTHER_QUERIES)


def test_other_reasons():
    beta = kept(dict.fromkeys(ALL, 30.0), run="a", counts=FB237, origin=BETAE)
    box = kept(
        dict.fromkeys(EPFO, 20.0), run="b", model_name="query2box", counts=NELL, origin=BETAE
    )
    mrr = paper_table("Queries without negation: MRR", [beta, box])
    assert [label.partition(",")[0] for label in labels_of(mrr)] == ["FB15k-237"] * 4 + [
        "NELL995"
    ] * 4
    assert mrr.notes == [f"[1] {NO_RUN}", NO_COMPLEMENT]
    assert row_of(mrr, "FB15k-237, Query2Box: here [1]")["1p"] is None
    assert row_of(mrr, "NELL995, BetaE: here [1]")["1p"] is None
    spearman = paper_table("Uncertainty and the number of answers: Spearman", [beta])
    assert spearman.notes == [f"[1] {NOT_MEASURED}"]


def test_an_average_over_some_structures_is_blank():
    ours = kept({"1p": 30.0}, counts=FB237, origin=BETAE)
    found = paper_table("Queries without negation: MRR", [ours])
    assert found.rows[1][1] == [30.0, *[None] * 11]


def test_the_released_queries_and_the_larger_set_are_preferred():
    official = kept(dict.fromkeys(EPFO, 30.0), run="a", counts=FB237, origin=BETAE)
    sampled = kept(
        dict.fromkeys(EPFO, 40.0), run="b", counts=FB237, origin=RELEASE_RULES, num_queries=9999
    )
    small = kept(dict.fromkeys(EPFO, 50.0), run="c", counts=FB237, origin=BETAE, num_queries=10)
    completed = kept(
        dict.fromkeys(EPFO, 60.0), run="d", counts=FB237, origin=BETAE, method="completed"
    )
    for evaluations in (
        [official, sampled, small, completed],
        [completed, small, sampled, official],
    ):
        found = paper_table("Queries without negation: MRR", evaluations)
        assert found.rows[1][1][0] == 30.0


def test_a_graph_of_ones_own_has_no_such_section(tmp_path):
    assert paper_tables([kept({"1p": 30.0}, counts=(30, 3))]) == []
    for counts, is_there in (((30, 3), False), (FB237, True)):
        run = save(tmp_path / str(is_there), {"1p": 30.0}, counts=counts)
        write_report([run], tmp_path / f"report-{is_there}")
        text = (tmp_path / f"report-{is_there}" / "report.md").read_text("utf-8")
        assert ("## The paper's tables" in text) == is_there


@pytest.mark.parametrize(("missing", "words"), [("all", "all of their"), (2, "at least 2")])
def test_no_published_figures_beside_harder_queries(missing, words):
    ours = kept({"2p": 30.0}, counts=FB237, origin={**RELEASE_RULES, "missing": missing})
    assert labels_of(table_of([ours], "MRR, %")) == ["run (BetaE)", "95 % interval", "frequency"]
    told = describe_queries(ours)
    assert told.endswith(f"hard are only answers that need {words} edges to be predicted.")
