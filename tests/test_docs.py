"""The commands and the Python of README and docs are run, in order, in one folder.

They run in this process, since importing torch takes longer than most of them; other tests run the
command line in a process of its own.
"""

import re
import shlex
from pathlib import Path

import pytest

import betae
from tests.cli.test_cli import run

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    "README.md",
    "docs/graphs.md",
    "docs/queries.md",
    "docs/models.md",
    "docs/training.md",
    "docs/evaluation.md",
    "docs/answers.md",
    "docs/server.md",
]
FACTS = """\
Ada\tworks_at\tAcme Inc
Bob\tworks_at\tAcme Inc
Ada\tlives_in\tParis
Bob\tlives_in\tRome
Cid\tlives_in\tRome
Cid\tworks_at\tBolts
France\tlocated_in\tEurope
Italy\tlocated_in\tEurope
France\tcapital\tParis
Italy\tcapital\tRome
Paris\tcity_in\tFrance
Rome\tcity_in\tItaly
"""
FILM = """\
@prefix schema: <https://schema.org/> .
@prefix : <http://example.org/> .
:heat schema:director :mann ; schema:name "Heat"@en , "Heiß"@de .
"""


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    lines = [line + "\n" for line in FACTS.splitlines()]
    world = ROOT / "betae" / "datasets" / "world" / "train.tsv"
    (tmp_path / "facts.tsv").write_text(FACTS + world.read_text(encoding="utf-8"))
    (tmp_path / "train.tsv").write_text("".join(lines[:-2]))
    (tmp_path / "valid.tsv").write_text(lines[-2])
    (tmp_path / "test.tsv").write_text(lines[-1])
    recipes = blocks("docs/training.md", "toml")
    (tmp_path / "recipe.toml").write_text(recipes[0])
    (tmp_path / "labels.tsv").write_text("Ada\tAda Lovelace\n")
    (tmp_path / "more-facts.tsv").write_text("Dot\tworks_at\tAcme Inc\nDot\tlives_in\tOslo\n")
    (tmp_path / "wrong-facts.tsv").write_text("Ada\tlives_in\tParis\nAda\tlives_in\tParma\n")
    (tmp_path / "trips.csv").write_text("city;mode;destination\nOslo;train;Bergen\n")
    (tmp_path / "film.ttl").write_text(FILM)
    return tmp_path


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_code_run(document, folder, monkeypatch):
    monkeypatch.chdir(folder)
    commands = [
        line.removeprefix("$ ")
        for block in blocks(document, "console")
        for line in block.splitlines()
        if line.startswith("$ betae ")
    ]
    if document.removeprefix("docs/") in (
        "queries.md",
        "training.md",
        "evaluation.md",
        "answers.md",
    ):
        commands.insert(0, "betae ingest facts.tsv --valid 0.1 --test 0.1 --out graph")
    for command in commands:
        result = run(*shlex.split(command, comments=True)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception}"
    for number, code in enumerate(blocks(document, "python"), 1):
        exec(compile(code, f"{document}, block {number}", "exec"), {"__name__": "__main__"})
    assert commands or blocks(document, "python")


def test_the_notations_of_one_query_run_as_printed():
    text = (ROOT / "docs/queries.md").read_text(encoding="utf-8")
    row = r"^\| (logic text|unicode|Python|SPARQL) \| `(.*)` \|$"
    cells = dict(re.findall(row, text, flags=re.MULTILINE))
    tree = eval(cells.pop("Python"), {"Entity": betae.Entity})
    wanted = [ids.tolist() for ids in betae.select(betae.world(), tree).ids()]
    assert wanted
    assert len(cells) == 3
    for text in cells.values():
        assert [ids.tolist() for ids in betae.select(betae.world(), text).ids()] == wanted


def test_links_lead_somewhere():
    for document in [*DOCUMENTS, "CONTRIBUTING.md", "CHANGELOG.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / document).read_text(encoding="utf-8")):
            if not link.startswith("http"):
                assert ((ROOT / document).parent / link).exists(), f"{document}: {link}"
