"""Tables as Markdown and HTML, read by a parser."""

import pytest

from betae.evaluation.pages import to_html, to_markdown
from betae.evaluation.tables import Table, make_tables
from tests.evaluation.helpers import (
    FB237,
    ODD,
    OWN,
    Page,
    from_markdown,
    kept,
    labels_of,
    uncertain,
)


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
    ours = kept({"1p": uncertain(40.0), OWN: 20.0}, run=ODD, counts=FB237)
    for table in make_tables([ours, kept({"1p": 30.0}, run="plain", cannot=[OWN])]):
        (rows,) = read(table).tables
        assert {len(row) for row in rows} == {len(table.columns) + 1}
        assert rows[0] == ["", *table.columns]
        assert [row[0] for row in rows[1:]] == labels_of(table)
