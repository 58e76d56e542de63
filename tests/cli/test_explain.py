"""The drawn tree, and the commands that show and sample queries."""

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from betae import cli
from betae.cli.show import draw_tree, with_exact_answers
from betae.datasets.release import read_release_queries
from betae.exact.answers import answers
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import And, Entity
from betae.queries.rewrite import explain_negation
from betae.queries.syntax import parse
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_queries
from tests.cli.test_cli import flat, run, run_main

EUROPE = (Entity("Europe")["~located_in"] & ~Entity("FIFA World Cup")["hosted"])["capital"]


@pytest.fixture
def betae_command(monkeypatch, capsys):
    """Run `betae ...` on a wide terminal; return the exit code, stdout and stderr."""
    monkeypatch.setattr(cli.questions, "out", Console(width=300))
    monkeypatch.setattr(sys.modules["betae.cli.common"], "err", Console(width=300, stderr=True))
    return lambda *arguments: run_main(monkeypatch, capsys, *arguments)


def rendered(tree):
    console = Console(width=300, file=io.StringIO())
    console.print(tree)
    return console.file.getvalue()


# ---- the tree -----------------------------------------------------------------------------------


def test_a_tree_shows_every_part():
    assert rendered(draw_tree(EUROPE)).splitlines() == [
        "capital",
        "└── and",
        "    ├── ~located_in(Europe)",
        "    └── not",
        "        └── hosted(FIFA World Cup)",
    ]


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        (Entity("Europe"), ["Europe"]),
        (Entity(3)[5], ["5(3)"]),
        (~Entity("Europe"), ["not", "└── Europe"]),
        (Entity("a") | Entity("b")["r"], ["or", "├── a", "└── r(b)"]),
        (Entity("a")["r"]["s"], ["s", "└── r(a)"]),
        (Entity("[red]a[/red]")["[r]"], ["[r]([red]a[/red])"]),
    ],
)
def test_small_trees(query, lines):
    assert [line.rstrip() for line in rendered(draw_tree(query)).splitlines()] == lines


def test_a_tree_with_exact_answers(world):
    shown = rendered(draw_tree(EUROPE, with_exact_answers(world))).splitlines()
    nodes = [
        EUROPE,
        EUROPE.operand,
        EUROPE.operand.operands[0],
        EUROPE.operand.operands[1],
        EUROPE.operand.operands[1].operand,
    ]
    for line, node in zip(shown, nodes, strict=True):
        found = answers(world, node, "all")
        assert f"  {len(found):,}" in line
        names = [world.entity_label(int(entity)) for entity in found[:6]]
        is_complement = node is nodes[3]
        assert (", ".join(names) in line) != is_complement
        assert line.rstrip().endswith(", …") == (len(found) > 6 and not is_complement)


def test_answers_are_shown_by_their_labels(toy_graph):
    shown = rendered(draw_tree(parse("?X . parent(ann, ?X)"), with_exact_answers(toy_graph)))
    assert shown.split() == ["parent(ann)", "2", "Bob", "Lee,", "Sam"]


def test_names_are_not_markup():
    splits = {"train": np.array([[0, 0, 1]], dtype=np.int32)}
    splits |= {split: np.empty((0, 3), dtype=np.int32) for split in ("valid", "test")}
    graph = KnowledgeGraph.from_triples(Triples(["[b]", "[/x]"], ["[i]"], splits))
    shown = rendered(draw_tree(Entity("[b]")["[i]"], with_exact_answers(graph)))
    assert shown.split() == ["[i]([b])", "1", "[/x]"]


@pytest.mark.parametrize(
    ("text", "is_only_negation"),
    [
        ("?X . !capital(France, ?X)", True),
        ("?X . !capital(France, ?X) & !borders(France, ?X)", True),
        ("?X . !(capital(France, ?X) | borders(France, ?X))", True),
        ("?X . borders(France, ?X) | !capital(France, ?X)", True),
        ("?X . !(borders(France, ?X) & !capital(France, ?X))", True),
        ("?X . borders(France, ?X) & !capital(France, ?X)", False),
        ("?X . borders(France, ?X)", False),
        ("?X . !!borders(France, ?X)", False),
        ("?X . !(!borders(France, ?X) | capital(France, ?X))", False),
    ],
)
def test_queries_that_are_only_a_negation(text, is_only_negation):
    assert bool(explain_negation(parse(text))) == is_only_negation


# ---- betae explain ------------------------------------------------------------------------------


def test_explain(betae_command, world, world_store):
    text = str(EUROPE)
    code, out, _ = betae_command("explain", text)
    assert code == 0
    assert out.startswith("capital\n└── and\n")
    assert text in out
    assert "Note" not in out
    assert "union" not in out

    code, out, _ = betae_command("explain", text, "--graph", world_store)
    assert code == 0
    found = answers(world, EUROPE, "all")
    assert f"capital  {len(found)} {world.entities[int(found[0])]}, " in out
    _, out, _ = betae_command("explain", text, "--graph", world_store, "--edges", "train")
    assert f"capital  {len(answers(world, EUROPE, 'train'))} " in out


def test_explain_shows_the_branches(betae_command):
    query = (Entity("France")["borders"] | Entity("Spain")["borders"])["capital"]
    code, out, _ = betae_command("explain", query)
    assert code == 0
    assert "union of 2 queries" in out
    for country in ("France", "Spain"):
        assert f"  {Entity(country)['borders']['capital']}\n" in out


def test_explain_says_what_a_negation_means(betae_command, world_store):
    code, out, _ = betae_command("explain", "?X . !capital(France, ?X)", "--graph", world_store)
    assert code == 0
    assert "Note: " in out
    assert "every other entity" in out
    assert "1,143" in out


def test_explain_a_sparql_file(betae_command, write, world, world_store):
    file = write(
        "query.rq",
        "# capitals\nPREFIX : <>\nSELECT ?x WHERE {\n  ?c :located_in :Europe ; :capital ?x\n"
        "  MINUS { <FIFA%20World%20Cup> :hosted ?c }\n}\n",
    )
    code, out, _ = betae_command("explain", file, "--graph", world_store)
    assert code == 0
    assert str(EUROPE) in out
    assert f"capital  {len(answers(world, EUROPE, 'all'))}" in out


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        ("?X . borders(Frnace, ?X)", ["no entity 'Frnace'", "Closest", "'France'"]),
        ("?X . border(France, ?X)", ["no relation 'border'", "Closest", "'borders'"]),
        ("?X . borders(France ?X)", ["?X . borders(France ?X)\n", "^"]),
        ("?X . borders(France, ?Y)", ["?X"]),
        ("nothing.rq", ["neither a question nor a file"]),
        ("?X . _(_, ?X)", ["_"]),
    ],
)
def test_explain_bad_input(query, messages, betae_command, world_store):
    code, _, error = betae_command("explain", query, "--graph", world_store)
    assert code == 2
    assert "Traceback" not in error
    assert error.startswith("Error:")
    for message in messages:
        assert message in error


def test_explain_a_query_with_too_many_branches(betae_command):
    """The tree is drawn all the same, and the normal form is said to be too large."""
    pairs = [Entity(f"c{number}")["r"] | Entity(f"d{number}")["r"] for number in range(9)]
    _, out, error = betae_command("explain", And(*pairs))
    assert "r(d8)" in out
    assert str(And(*pairs)) in out
    assert "512 branches" in out + error
    assert "Traceback" not in error


# ---- betae sample -------------------------------------------------------------------------------


def content(queries):
    return [(str(query), easy.tolist(), hard.tolist()) for query, easy, hard in queries]


def test_sample_writes_a_set(world, world_store, tmp_path):
    own = "?X . located_in(?X, Europe) & !_(_, ?X)"
    result = run(
        "sample", world_store, "2p:30", "1p", f"{own}:7", "--split", "train", "--count", 4,
        "--seed", 11, "--out", tmp_path / "set",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    opened = QuerySet.open(tmp_path / "set")
    opened.check_graph(world)
    expected = sample_queries(world, {"2p": 30, "1p": 4, own: 7}, seed=11)
    assert content(opened) == content(expected)
    assert opened.origin == expected.origin
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["2p", "30", "30"] in [line[:3] for line in lines]
    assert ["1p", "4", "4"] in [line[:3] for line in lines]
    assert "41 queries written to" in result.stdout
    assert "rejected" in result.stdout


def test_sample_writes_pickles(world, world_store, tmp_path):
    options = ["--split", "test", "--pickles", "--out", tmp_path / "pickles"]
    result = run("sample", world_store, "2in:6", "up:5", *options)
    assert result.exit_code == 0, result.output
    again = read_release_queries(world, tmp_path / "pickles", "test")
    expected = sample_queries(world, {"2in": 6, "up": 5}, "test")
    assert sorted(content(again)) == sorted(content(expected))


@pytest.mark.parametrize(("split", "number"), [("train", 10), ("test", 14)])
def test_sample_the_paper_s_structures(split, number, world_store, tmp_path):
    arguments = ["--split", split, "--count", 3, "--rules", "release", "--max-answers", 9]
    result = run("sample", world_store, *arguments, "--out", tmp_path / "set")
    assert result.exit_code == 0, result.output
    opened = QuerySet.open(tmp_path / "set")
    assert len(opened.blocks) == number
    assert len(opened) == 3 * number
    assert (opened.origin["rules"], opened.origin["max_answers"]) == ("release", 9)
    assert all(len(hard) <= 9 for _, _, hard in opened)


def test_sample_what_the_graph_cannot_fill(toy_store, tmp_path):
    result = run(
        "sample", toy_store, "1p:1000", "?X . in(_, ?X) & friend(_, ?X):5", "--out", tmp_path / "s"
    )
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "no more" in shown
    assert "1,000" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["4p"], "There is no structure '4p'"),
        (["2p:0"], "at least 1"),
        (["2p", "--count", "-1"], "'--count'"),
        (["2p", "--split", "dev"], "'train', 'valid', 'test'"),
        (["2p", "--seed", "-1"], "seed"),
        (["?X . borders(France, ?X)"], "no placeholder"),
        (["?X . _(_ ?X)"], "^"),
        (["?X . _(Frnace, ?X)"], "'France'"),
        (["2p", "--max-answers", "0"], "'--max-answers'"),
    ],
)
def test_sample_bad_input(arguments, message, betae_command, world_store, tmp_path):
    code, _, error = betae_command("sample", world_store, *arguments, "--out", tmp_path / "set")
    assert code == 2
    assert "Traceback" not in error
    assert message in flat(error)
    assert not (tmp_path / "set").exists()


def test_sample_refuses_an_existing_folder(betae_command, world_store, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "notes.txt").write_text("keep")
    code, _, error = betae_command("sample", world_store, "1p:3", "--out", tmp_path / "set")
    assert code == 2
    assert "already exists" in error
    assert (tmp_path / "set" / "notes.txt").read_text() == "keep"
