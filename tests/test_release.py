"""A release: one version everywhere, a changelog to skim, workflows that run what there is."""

import re
import tomllib
from pathlib import Path

import pytest

import betae

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_one_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, flags=re.MULTILINE) == [betae.__version__]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (?!\[Unreleased\])(.*)$", changes, flags=re.MULTILINE)
    assert sections[0].startswith(betae.__version__)


def test_an_entry_of_the_changelog_is_one_line():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    after = lines[next(i for i, line in enumerate(lines) if line.startswith("## ")) :]
    assert [line for line in after if line and not line.startswith(("- ", "#"))] == []
    assert [line for line in after if len(line) > 125] == []


def test_the_tests_run_on_every_python_that_is_promised():
    promised = [
        each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each
    ]
    (tests,) = [path for path in WORKFLOWS if path.stem == "tests"]
    (matrix,) = re.findall(r"python: \[(.*)\]", tests.read_text(encoding="utf-8"))
    assert matrix.replace('"', "").split(", ") == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_makes_what_the_makefile_has(path):
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"run: make (\S+)", text)
    assert targets
    assert [name for name in targets if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)] == []
    assert "\npermissions:\n  contents: read\n" in text  # a job that needs more says so itself
    assert "secrets." not in text


def test_the_paths_that_contributors_are_told_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:betae|tests|benchmarks|scripts|\.github)/[\w./]*)`", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
