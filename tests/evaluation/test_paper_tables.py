"""The paper's tables: which run stands below which row, and what is said of blanks."""

import pytest

from betae.evaluation.paper import describe_queries, paper
from betae.evaluation.paper_tables import (
    NO_COMPLEMENT,
    NO_RUN,
    NOT_MEASURED,
    OTHER_QUERIES,
    SAMPLED,
    TITLES,
    paper_tables,
)
from betae.evaluation.report import write_report
from betae.queries.structures import EPFO, NEGATION
from tests.evaluation.helpers import (
    BETAE,
    FB237,
    NELL,
    QUERY2BOX,
    kept,
    labels_of,
    row_of,
    save,
    table_of,
    uncertain,
)

ALL = (*EPFO, "2u-DM", "up-DM", *NEGATION)
RELEASE_RULES = {"source": "sampled", "rules": "release"}


def table(title, evaluations):
    (found,) = [one for one in paper_tables(evaluations) if one.title.startswith(title)]
    return found


def test_every_table_of_the_paper_has_its_place():
    assert {(row["table"], row["metric"]) for row in paper()["rows"]} == set(TITLES)


def test_a_run_stands_below_the_papers_row():
    ours = kept(dict.fromkeys(ALL, 30.0), run="mine", counts=NELL, origin=BETAE)
    titles = [one.title for one in paper_tables([ours])]
    assert len(titles) == len(TITLES)
    mrr = table("Queries without negation: MRR", [ours])
    label = f"NELL995, BetaE: mine, {ours.evaluation.queries.count:,} queries"
    assert labels_of(mrr) == ["NELL995, BetaE: paper", label]
    assert list(mrr.columns) == [
        *("1p", "2p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "average"),
    ]
    assert row_of(mrr, "NELL995, BetaE: paper")["average"] == 24.6
    assert row_of(mrr, label) == dict.fromkeys(mrr.columns, 30.0)
    assert mrr.notes == []
    hits = table("Queries with negation: H@10", [ours])
    assert row_of(hits, "NELL995, BetaE: paper")["average"] == 12.9
    assert row_of(hits, label) == dict.fromkeys([*NEGATION, "average"], 38.0)
    assert row_of(table("Queries without negation: H@1", [ours]), label)["average"] == 26.0


def test_query2boxs_queries_are_apart():
    one = kept(dict.fromkeys(EPFO, 30.0), counts=FB237, origin=BETAE)
    two = kept(dict.fromkeys(EPFO, 20.0), counts=FB237, origin=QUERY2BOX)
    for evaluations in ([one, two], [two, one]):
        new = table("Queries without negation: MRR", evaluations)
        old = table("Query2Box's queries", evaluations)
        assert (new.rows[0][1][0], new.rows[1][1][0]) == (39.0, 30.0)
        assert (old.rows[0][1][0], old.rows[1][1][0]) == (39.1, 20.0)
        assert "2u-DM" not in old.columns


def test_uncertainty():
    ours = kept(
        {"1p": uncertain(40.0), "2in": uncertain(9.0, 0.7, -0.5)},
        counts=NELL,
        origin=BETAE,
        empty={"1p": 0.75, "2in": 0.85},
    )
    spearman = table("Uncertainty and the number of answers: Spearman", [ours])
    assert spearman.rows[1][1] == [0.5, *[None] * 6, 0.7, *[None] * 4]
    pearson = table("Uncertainty and the number of answers: Pearson", [ours])
    assert pearson.rows[1][1] == [0.25, *[None] * 6, -0.5, *[None] * 4]
    empty = table("Queries without answers", [ours])
    theirs, mine = (dict(zip(empty.columns, cells, strict=True)) for _, cells in empty.rows)
    assert (theirs["1p"], theirs["average"]) == (0.825, 0.844)
    assert (mine["1p"], mine["average"]) == (0.75, pytest.approx(0.8))


@pytest.mark.parametrize(
    ("origin", "split", "note"),
    [
        (BETAE, "test", None),
        (RELEASE_RULES, "test", SAMPLED),
        ({"source": "sampled", "rules": "paper"}, "test", OTHER_QUERIES),
        ({**RELEASE_RULES, "missing": "all"}, "test", OTHER_QUERIES),
        (QUERY2BOX, "test", OTHER_QUERIES),
        (BETAE, "valid", OTHER_QUERIES),
    ],
)
def test_what_cannot_be_compared_is_blank_with_the_reason(origin, split, note):
    ours = kept(dict.fromkeys(EPFO, 30.0), counts=FB237, origin=origin, split=split)
    found = table("Queries without negation: MRR", [ours])
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
    mrr = table("Queries without negation: MRR", [beta, box])
    assert [label.partition(",")[0] for label in labels_of(mrr)] == ["FB15k-237"] * 4 + [
        "NELL995"
    ] * 4
    assert mrr.notes == [f"[1] {NO_RUN}", NO_COMPLEMENT]
    assert row_of(mrr, "FB15k-237, Query2Box: here [1]")["1p"] is None
    assert row_of(mrr, "NELL995, BetaE: here [1]")["1p"] is None
    spearman = table("Uncertainty and the number of answers: Spearman", [beta])
    assert spearman.notes == [f"[1] {NOT_MEASURED}"]


def test_an_average_over_some_structures_is_blank():
    ours = kept({"1p": 30.0}, counts=FB237, origin=BETAE)
    found = table("Queries without negation: MRR", [ours])
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
        found = table("Queries without negation: MRR", evaluations)
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
    told = describe_queries(ours.evaluation)
    assert told.endswith(f"hard are only answers that need {words} edges to be predicted.")
