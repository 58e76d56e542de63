"""README and docs are run: every `console` and `python` block, in order, in one folder per page.

They run in this process, since importing torch takes longer than most of them. A `text` block is
the output of the block before it: words and counts are the same, measured numbers (with a decimal
point or a percent sign) are near. `UPDATE_DOCS=1 pytest tests/test_docs.py` writes these outputs.
Blocks of `sh` are not run: they install, serve, or need a cluster. The files that a reader would
bring are in `folder`.
"""

import gzip
import json
import math
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stdout
from io import StringIO
from itertools import zip_longest
from pathlib import Path

import pytest

import betae
from betae.training.config import TrainConfig
from tests.cli.test_cli import run
from tests.test_world import shorter_config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
]
HAVE_A_GRAPH = {  # from facts.tsv
    *("queries.md", "sparql.md", "sampling.md", "answers.md", "completed-graph.md", "search.md"),
    *("training.md", "evaluation.md", "rules.md"),
}
MEASURED = re.compile(r"\d[\d,]*(?:\.\d+%?|%)")  # not a count
WORD = re.compile(rf"{MEASURED.pattern}|[^\s\d]+|\d+")
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


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\S*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    lines = FACTS.splitlines(keepends=True)
    world = ROOT / "betae" / "datasets" / "world" / "train.tsv"
    recipe = next(text for language, text in blocks("docs/training.md") if language == "toml")
    for name, text in {
        "facts.tsv": FACTS + world.read_text(encoding="utf-8"),
        "train.tsv": "".join(lines[:-2]),
        "valid.tsv": lines[-2],
        "test.tsv": lines[-1],
        "recipe.toml": recipe,
        "labels.tsv": "Ada\tAda Lovelace\n",
        "more-facts.tsv": "Dot\tworks_at\tAcme Inc\nDot\tlives_in\tOslo\n",
        "wrong-facts.tsv": "Ada\tlives_in\tParis\nAda\tlives_in\tParma\n",
        "trips.csv": "city;mode;destination\nOslo;train;Bergen\n",
        "film.ttl": FILM,
        "films.jsonl": '{"id": "heat", "type": "Film", "name": "Heat", "year": 1995}\n'
        '{"head": "heat", "relation": "directed_by", "tail": "mann"}\n',
        "treats.csv": "drug,disease\naspirin,pain\n",
        "binds.csv": "drug,gene\naspirin,PTGS1\n",
        "people.csv": "id,name,age,born\nAda,Ada Lovelace,36,1815-12-10\nBob,,27,\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE bought (customer TEXT, product TEXT)")
        shop.execute("INSERT INTO bought VALUES ('ann', 'lamp')")
        shop.execute("CREATE TABLE customers (id TEXT, born INTEGER)")
        shop.execute("INSERT INTO customers VALUES ('ann', 1990)")
    (tmp_path / "facts.nt.gz").write_bytes(gzip.compress(b"<x:a> <x:r> <x:b> .\n"))
    return tmp_path


def run_command(command: str) -> str:
    """Run a command, in this process or, if it is a pipe, in a shell; return its output."""
    if command.startswith("betae ") and "|" not in shlex.split(command, comments=True):
        result = run(*shlex.split(command, comments=True)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception}"
        return result.stdout
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'set -o pipefail; betae() {{ "{sys.executable}" -m betae "$@"; }}; {command}',
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_console(text: str) -> str:
    lines = [line for line in text.splitlines() if line]
    assert all(line.startswith("$ ") for line in lines), f"a line that is no command:\n{text}"
    return "".join(run_command(line.removeprefix("$ ")) for line in lines)


def run_python(text: str, where: str, names: dict) -> str:
    output = StringIO()
    with redirect_stdout(output):
        exec(compile(text, where, "exec"), names)
    return output.getvalue()


def differences(printed: str, shown: str) -> list[str]:
    """Return the words in which what was printed differs from what is shown."""
    found = zip_longest(WORD.findall(printed), WORD.findall(shown), fillvalue="")
    return [f"{one} for {other}" for one, other in found if one != other and not near(one, other)]


def near(printed: str, shown: str) -> bool:
    """Tell whether two words are measured numbers of about the same size."""
    if not (MEASURED.fullmatch(printed) and MEASURED.fullmatch(shown)):
        return False
    one, other = (float(each.rstrip("%").replace(",", "")) for each in (printed, shown))
    return math.isclose(one, other, rel_tol=0.05, abs_tol=0.5)


def update(page: str, shown: str, printed: str) -> None:
    """Replace an output that a page shows, if it differs."""
    if printed.split() != shown.split():
        text = (ROOT / page).read_text(encoding="utf-8")
        lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        changed = text.replace(f"```text\n{shown}```", f"```text\n{lines}```")
        (ROOT / page).write_text(changed, encoding="utf-8")


def test_every_page_is_run():
    assert {"README.md", "docs/graphs.md", "docs/answers.md"} <= set(PAGES)


def test_outputs_are_compared():
    shown = "3 answers\n  4   87.8%   Vilnius  >99%  about 1.0"
    assert not differences("3 answers\n  4   87.5%   Vilnius  >99% about 0.9\n", shown)
    assert differences(shown.replace("3", "4"), shown) == ["4 for 3"]
    assert differences(shown.replace("87.8%", "80.8%"), shown) == ["80.8% for 87.8%"]
    assert differences(shown.replace("Vilnius", "Riga"), shown) == ["Riga for Vilnius"]
    assert differences(f"{shown} more", shown) == ["more for "]


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: betae\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(betae.__all__)


def test_the_site_lists_every_page():
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_and_print_what_they_show(page, folder, monkeypatch):
    """Training by default takes fewer steps here."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("betae.training.config.default_config", shorter_config)
    if page.removeprefix("docs/") in HAVE_A_GRAPH:
        run_command("betae ingest facts.tsv --valid 0.1 --test 0.1 --out graph")
    names, output = {"__name__": "__main__"}, ""
    for i, (language, text) in enumerate(blocks(page), 1):
        where = f"{page}, block {i}"
        match language:
            case "console":
                output = run_console(text)
            case "python":
                output = run_python(text, where, names)
            case "text" if os.environ.get("UPDATE_DOCS"):
                update(page, text, output)
            case "text":
                assert differences(output, text) == [], where
            case "json":
                json.loads(text)
            case "toml":
                (folder / "printed.toml").write_text(text, encoding="utf-8")
                TrainConfig.read(folder / "printed.toml")
            case _:
                assert language in ("", "sh"), where


def test_the_notations_of_one_query_run_as_printed():
    text = (ROOT / "docs/queries.md").read_text(encoding="utf-8")
    row = r"^\| (logic text|unicode|Python|SPARQL) \| `(.*)` \|$"
    cells = dict(re.findall(row, text, flags=re.MULTILINE))
    tree = eval(cells.pop("Python"), {"Entity": betae.Entity})
    wanted = sorted(betae.world().select(tree).to_polars().unique().iter_rows())
    assert wanted
    assert len(cells) == 3
    for text in cells.values():
        found = betae.world().select(text).to_polars().unique()
        assert sorted(found.iter_rows()) == wanted


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert ((ROOT / page).parent / link).exists(), link
