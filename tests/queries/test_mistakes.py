"""What people write instead of logic text gets an error that says how it is written."""

import pytest

from betae.errors import BetaeError, QuerySyntaxError
from betae.queries.read import read_question
from betae.queries.syntax import parse_logic

NONE_THAT_IS_NOT = "There is no forall: all are such if there is none that is not."


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("?X . treats(?X, epilepsy syndrome)", '?X . treats(?X, "epilepsy syndrome")'),
        ("?X . treats(?X, Alzheimer's disease)", '?X . treats(?X, "Alzheimer\'s disease")'),
        ("?X . located in(?X, Europe)", '?X . "located in"(?X, Europe)'),
        ("?X . r(?X, a) and s(?X, b)", "?X . r(?X, a) & s(?X, b)"),
        ("?X . r(?X, a) AND NOT s(?X, b)", "?X . r(?X, a) & !s(?X, b)"),
        ("?X . r(?X, a) but not s(?X, b)", "?X . r(?X, a) & !s(?X, b)"),
        ("?X . r(?X, a) OR s(?X, b)", "?X . r(?X, a) | s(?X, b)"),
        ("?X . not(r(?X, a) and s(?X, b))", "?X . !(r(?X, a) & s(?X, b))"),
        ("?X . r(?X, a) && s(?X, b)", "?X . r(?X, a) & s(?X, b)"),
        (
            '?X . r(?X, Trinidad and Tobago) and s(?X, "a or b")',
            '?X . r(?X, "Trinidad and Tobago") & s(?X, "a or b")',
        ),
        ("?X . r(?X, 'rock and roll') and s(?X, b)", "?X . r(?X, 'rock and roll') & s(?X, b)"),
        ("?X . forall ?Y : r(?X, ?Y)", "?X . !(exists ?Y : !(r(?X, ?Y)))"),
        (
            "?X . s(?X, a) & forall ?Y : (r(?X, ?Y) -> t(?Y, b)) & u(?X, c)",
            "?X . s(?X, a) & !(exists ?Y : r(?X, ?Y) & !(t(?Y, b))) & u(?X, c)",
        ),
        (
            "?X . (∀?Y : r(?X, ?Y) implies t(?Y, b)) and s(?X, a)",
            "?X . (!(exists ?Y : r(?X, ?Y) & !(t(?Y, b)))) & s(?X, a)",
        ),
        ("r(?X, a)", "?X . r(?X, a)"),
        ("exists ?Y : r(?Y, a) & s(?Y, ?X)", "?X . exists ?Y : r(?Y, a) & s(?Y, ?X)"),
        ("?X : r(?X, a)", "?X . r(?X, a)"),
        ("{?X | r(?X, a)}", "?X . r(?X, a)"),
        ("X . r(X, a)", "?X . r(?X, a)"),
        ('?V != "A"', '?V . ?V != "A"'),
        (
            "MATCH (c:Drug)-[:TREATS]->(d:Disease {name: 'epilepsy'}) RETURN c",
            '?c . Drug(?c) & TREATS(?c, "epilepsy")',
        ),
        (
            "match (a)<-[r:KNOWS]-(b:Person)-[:LIVES_IN]->(:City {name: 'Oslo'}) return distinct a",
            '?a . exists ?b : Person(?b) & KNOWS(?b, ?a) & LIVES_IN(?b, "Oslo")',
        ),
    ],
)
def test_what_was_meant_is_written_out(text, meant):
    with pytest.raises(QuerySyntaxError) as info:
        parse_logic(text)
    assert str(info.value).partition("\n")[0].endswith(f"Write: {meant}") or str(
        info.value
    ).endswith(f"Write: {meant}")
    parse_logic(meant)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MATCH (c:Drug) WHERE c.name = 'x' RETURN c", "This is Cypher."),
        ("?X . forall ?Y : r(?X, ?Y", NONE_THAT_IS_NOT),
        ("which drugs treat epilepsy?", "This is English"),
        ("r(a, b)", "This asks for yes or no: `betae ask`"),
        ("exists ?X : r(?X, a)", "This asks for yes or no: `betae ask`"),
    ],
)
def test_what_cannot_be_rewritten_is_named(text, words):
    with pytest.raises(QuerySyntaxError) as info:
        parse_logic(text)
    assert words in str(info.value)
    assert "Write:" not in str(info.value)


@pytest.mark.parametrize("text", ["?X . r(?X, )", "?X . r(?X, a", "?X . (((", '?X . r("a, ?X)'])
def test_other_errors_are_as_they_were(text):
    with pytest.raises(QuerySyntaxError) as info:
        parse_logic(text)
    assert str(info.value).endswith("^")


def test_long_texts_are_not_searched_for_mistakes():
    with pytest.raises(QuerySyntaxError, match="Unexpected"):
        parse_logic("?X . " + "r(?X, a) and " * 100_000)


def test_english_gets_names_of_the_graph(toy_graph):
    with pytest.raises(QuerySyntaxError) as info:
        read_question("who are the parents of Bob Lee", toy_graph)
    message = str(info.value)
    assert message.startswith("This is English, and a question is logic text.")
    assert "Relations that you may mean: parent." in message
    assert 'Entities that you may mean: "Bob Lee"' in message
    assert message.endswith('A start: ?X . parent(?X, "Bob Lee")')
    assert len(list(toy_graph.select('?X . parent(?X, "Bob Lee")'))) == 1


def test_a_name_that_may_be_meant_as_a_value(toy_graph):
    with pytest.raises(BetaeError) as info:
        read_question('?X . parent(?X, cat) & ?X != "A"', toy_graph)
    assert "compare with an entity of that name" in str(info.value)
    assert 'name(?X) = "A"' in str(info.value)
