"""The commands and the Python of README and docs are run, in order, in one folder.

They run in this process, since importing torch takes longer than most of them; other tests run the
command line in a process of its own. The files that a reader would bring are in `folder`; the
commands that are not run are in NOT_RUN, with the reason.
"""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import betae
from betae.training.config import read_recipe
from tests.cli.test_cli import run
from tests.test_world import shorter_config

ROOT = Path(__file__).parents[1]
HAVE_A_GRAPH = ("queries.md", "training.md", "evaluation.md", "answers.md")  # from the README
DOCUMENTS = [
    "README.md",
    "docs/graphs.md",
    "docs/queries.md",
    "docs/models.md",
    "docs/training.md",
    "docs/evaluation.md",
    "docs/answers.md",
    "docs/server.md",
    "docs/scale.md",
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


LANGUAGES = {"console", "python", "toml", "json", ""}  # "" is for trees of files
ON_RAY = "it needs a Ray cluster: tests/test_cluster.py has one"
SERVED = "it serves until it is stopped, or asks such a server: tests/server does both"
NOT_RUN = {
    "make demo": "it installs the package and its dependencies",
    "pip install '.[serve]'": "it installs dependencies",
    "betae ingest 's3://bucket/triples/*.parquet' --valid s3://bucket/valid.parquet --memory 16GB "
    "--out graph": "there is no such bucket: tests/graph/test_outofcore.py has other addresses",
    **dict.fromkeys(
        [
            "betae serve run",
            "betae serve graph --port 9000",
            "curl -s localhost:8000/answer --json "
            """'{"question": "?X . capital(France, ?X)", "k": 5, "explain": true}'""",
            "curl -s localhost:8000/sparql --data-urlencode "
            "'query=SELECT ?city { betae:France betae:capital ?city }'",
            "BETAE_TOKEN=secret betae serve run --host 0.0.0.0",
            "docker build --tag betae .",
            "docker run --rm --read-only --tmpfs /tmp --publish 127.0.0.1:8000:8000 betae",
            "docker run --rm --read-only --tmpfs /tmp --publish 127.0.0.1:8000:8000 --volume "
            '"$PWD:/data:ro" betae betae serve /data/run --host 0.0.0.0',
            "curl -s http://graphs.example:8000/model -H 'authorization: Bearer secret'",
        ],
        SERVED,
    ),
    **dict.fromkeys(
        [
            "betae eval run --queries test-queries --method completed --ray head:6379",
            "betae answer run --queries questions.txt --format jsonl --ray head:6379",
            "betae query graph --queries questions.txt --out answers.jsonl --ray head:6379",
            "betae complete run --above 0.3 --out missing.parquet --ray head:6379",
            "betae sample graph --count 100000 --out train-queries --ray head:6379",
            "ray start --head --port 6379",
            "ray start --address head:6379",
            "ray stop",
        ],
        ON_RAY,
    ),
}


def all_blocks(document: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block, in the order in which they stand."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```(\S*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def blocks(document: str, language: str) -> list[str]:
    return [text for each, text in all_blocks(document) if each == language]


def commands(block: str) -> list[str]:
    lines = [line for line in block.splitlines() if line]
    assert all(line.startswith("$ ") for line in lines), f"a line that is no command:\n{block}"
    return [line.removeprefix("$ ") for line in lines]


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
    (tmp_path / "facts.nt.gz").write_bytes(gzip.compress(b"<x:a> <x:r> <x:b> .\n"))
    return tmp_path


def run_command(command: str) -> None:
    """Run what is typed after the $: in this process, or in a shell if it is a pipe."""
    if command in NOT_RUN:
        return
    if command.startswith("betae "):
        result = run(*shlex.split(command, comments=True)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception}"
        return
    betae = f'betae() {{ "{sys.executable}" -m betae "$@"; }}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {betae}; {command}"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_code_run(document, folder, monkeypatch):
    """Every block as it is printed, one after the other; training by default takes fewer steps."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(betae, "default_config", shorter_config, raising=False)
    if document.removeprefix("docs/") in HAVE_A_GRAPH:
        run_command("betae ingest facts.tsv --valid 0.1 --test 0.1 --out graph")
    for number, (language, text) in enumerate(all_blocks(document), 1):
        place = f"{document}, block {number}"
        assert language in LANGUAGES, place
        if language == "console":
            for command in commands(text):
                run_command(command)
        elif language == "python":
            exec(compile(text, place, "exec"), {"__name__": "__main__"})
        elif language == "json":
            json.loads(text)
        elif language == "toml":
            (folder / "printed.toml").write_text(text, encoding="utf-8")
            read_recipe(folder / "printed.toml")


def test_all_documents_are_run():
    """Those that are left out have nothing to run, and what is not run is still printed."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for path in pages:
        document = path.relative_to(ROOT).as_posix()
        languages = {language for language, _ in all_blocks(document)}
        if document not in DOCUMENTS:
            assert languages <= {""}, document
    printed = {
        command
        for document in DOCUMENTS
        for block in blocks(document, "console")
        for command in commands(block)
    }
    assert printed >= NOT_RUN.keys()


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
