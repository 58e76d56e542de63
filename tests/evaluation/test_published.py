"""Other systems' published figures: the file, and the rows beside evaluations."""

import tomllib
from importlib import resources
from pathlib import Path

import pytest

from betae.evaluation.paper import paper, published
from betae.evaluation.tables import make_tables
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
)

ALL = dict.fromkeys((*EPFO, *NEGATION), 20.0)
SYSTEMS = ["published ConE", "published GNN-QE", "published QTO"]

# ---- the file ---------------------------------------------------------------------------------


def test_every_row_has_a_place_and_a_source():
    names = {*EPFO, *NEGATION, "EPFO", "negation"}
    seen = set()
    for row in published()["rows"]:
        assert row.keys() == {"system", "dataset", "checked", "source", "values"}
        assert row["system"] in published()["systems"]
        assert row["dataset"] in paper()["datasets"]
        assert row["values"].keys() <= names
        assert ("from memory" in row["source"]) != row["checked"]
        assert ("https://" in row["source"]) == row["checked"]
        cells = {(row["system"], row["dataset"], name) for name in row["values"]}
        assert not cells & seen  # each figure stands in one row
        seen |= cells


def test_averages_are_means():
    whole = [row for row in published()["rows"] if row["values"].keys() >= {*EPFO, "EPFO"}]
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
    from betae.evaluation.pages import to_markdown

    page = from_markdown(to_markdown(table_of([kept(ALL, counts=FB237)], "MRR, %")))
    rows = {row[0]: row[1:] for row in page.tables[0]}
    assert rows["published QTO"][0] == "49.0"
    assert rows["published QTO"][-1] == "15.5†"
