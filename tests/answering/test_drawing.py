"""Evidence as inline SVG: well-formed, escaped, and drawn in the right direction."""

from xml.etree import ElementTree

import pytest

from betae.answering.drawing import draw_path, log_odds_bar, probability_bar


def texts_of(drawing):
    return [each.text for each in ElementTree.fromstring(drawing).iter("text")]


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ([("a", "r", "b")], ["a", "r", "b"]),
        ([("a", "r", "b"), ("b", "s", "c")], ["a", "r", "b", "s", "c"]),
        # Two arrows back are two forward from the other end.
        ([("b", "r", "a"), ("c", "s", "b")], ["c", "s", "b", "r", "a"]),
        ([("a", "r", "b"), ("c", "s", "b")], ["a", "r", "b", "s", "c"]),
        ([("a", "likes", "a")], ["a", "likes", "a"]),
        ([('<b>"&', "<i>", "]]>")], ['<b>"&', "<i>", "]]>"]),
    ],
)
def test_a_path_is_a_row_of_boxes(path, texts):
    assert texts_of(draw_path(path)) == texts


def test_arrows_have_the_direction_of_their_edges():
    arrows = [
        each.get("d")
        for each in ElementTree.fromstring(draw_path([("a", "r", "b"), ("c", "s", "b")])).iter(
            "path"
        )
    ]
    assert ["l-5" in each for each in arrows] == [True, False]


def test_bars():
    def widths(drawing):
        return [float(each.get("width")) for each in ElementTree.fromstring(drawing).iter("rect")]

    assert widths(probability_bar(0.25)) == [120, 30]
    assert widths(probability_bar(0.0)) == [120, 1]
    assert widths(log_odds_bar(2.0, 4.0)) == [30, 1]
    right, left = (log_odds_bar(value, 1.0) for value in (1.0, -1.0))
    starts = [ElementTree.fromstring(each).find("rect").get("x") for each in (right, left)]
    assert starts == ["60", "0"]
