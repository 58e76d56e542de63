"""The Dockerfile names things that exist; it is built elsewhere."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from betae.cli import app

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps(name):
    """Return what follows an instruction, each time that it occurs."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, flags=re.MULTILINE)


def commands():
    """Return the commands of betae's own, as lists of words."""
    run = [shlex.split(part) for step in steps("RUN") for part in step.split("&&")]
    return [words[1:] for words in [*run, *map(json.loads, steps("CMD"))] if words[0] == "betae"]


def test_what_is_copied_is_there_and_not_ignored():
    copied = [name for step in steps("COPY") for name in step.split()[:-1]]
    assert {"betae", "pyproject.toml"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    sent = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    assert set(sent) == set(copied)
    assert {PROJECT["readme"], *PROJECT["license-files"]} <= set(copied)  # the build needs them


def test_the_packages_are_those_of_the_project():
    (python,) = steps("FROM")
    assert python == f"python:{PROJECT['requires-python'].removeprefix('>=')}-slim"
    assert "'.[index,serve]'" in DOCKERFILE
    assert {"index", "serve"} <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_every_command_has_its_options(words, monkeypatch):
    command = get_command(app).commands[words[0]]
    monkeypatch.setattr(Path, "is_dir", lambda _: True)  # the image's folders
    command.make_context(words[0], words[1:])
    with pytest.raises(Exception, match="No such option"):
        command.make_context(words[0], [*words[1:], "--none"])


def test_the_commands_fit_together():
    (demo, answer, serve) = commands()
    made = demo[demo.index("--out") + 1]
    assert answer[1] == serve[1] == f"{made}/run"
    assert serve[serve.index("--host") + 1] == "0.0.0.0"
    port = serve[serve.index("--port") + 1]
    assert steps("EXPOSE") == [port]
    assert f":{port}/healthz" in steps("HEALTHCHECK")[0]


def test_it_does_not_run_as_root_and_writes_to_tmp_alone():
    (user,) = steps("USER")
    assert user != "0"
    assert f"--uid {user} " in DOCKERFILE
    assert DOCKERFILE.index("\nUSER ") < DOCKERFILE.index("betae demo")
    (cache,) = steps("ENV")
    assert cache.startswith("NUMBA_CACHE_DIR=/tmp/")
    command = "docker run --rm --read-only --tmpfs /tmp --publish 127.0.0.1:8000:8000 betae"
    assert command in DOCKERFILE
    assert command in (ROOT / "docs" / "server.md").read_text()
