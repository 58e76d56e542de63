"""The hooks of the documentation site: generated references, and nothing from other servers."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.test_cli import run

pytest.importorskip("mkdocs", reason="the extra docs")


@pytest.fixture(scope="module")
def hooks():
    """The script, as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "scripts")
        import docs_hooks

        yield docs_hooks
    del sys.modules["docs_hooks"]


@pytest.mark.slow
def test_every_command_is_described(hooks):
    page = hooks.commands()
    listed = re.findall(r"^│ (\w+)  ", run("--help").output, flags=re.MULTILINE)
    described = re.findall(r"^## `betae (\w+)`$", page, flags=re.MULTILINE)
    assert described == listed
    assert "answer" in described
    assert "**Examples**:\n\n```\nbetae ask graph 'capital(France, Paris)'\n" in page


@pytest.mark.slow
def test_every_endpoint_is_described(hooks):
    page = hooks.endpoints()
    assert "## `POST /answer`" in page
    assert "## `GET /entities/{name}/edges`" in page
    assert "Body: [AnswerBody](#answerbody)." in page
    links = set(re.findall(r"\(#(\w+)\)", page))
    assert links <= {name.lower() for name in re.findall(r"^### (\w+)$", page, re.MULTILINE)}


def test_settings_have_their_comments(hooks):
    table = hooks.CONFIG.sub(hooks.settings, "::: betae.MarginConfig")
    assert "| `negatives` | `int` | `128` | entities sampled for each query |" in table
    names = re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE)
    assert names == ["negatives", "margin"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer"}, "integer"),
        (
            {"type": "array", "items": {"$ref": "#/components/schemas/Step"}},
            "list of [Step](#step)",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"enum": ["known", "assumed"]}, "`known`, `assumed`"),
        ({}, "any"),
    ],
)
def test_types_in_words(hooks, schema, words):
    assert hooks.type_of(schema, "any") == words


@pytest.mark.parametrize(
    ("tag", "is_loaded"),
    [
        ('<script src="https://x.org/a.js"></script>', True),
        ('<link rel="stylesheet" href="https://x.org/a.css">', True),
        ('<script src="assets/a.js"></script><a href="https://x.org">x</a>', False),
    ],
)
def test_nothing_is_loaded_from_other_servers(hooks, tmp_path, tag, is_loaded):
    (tmp_path / "index.html").write_text(tag)
    config = SimpleNamespace(site_dir=tmp_path)
    if is_loaded:
        with pytest.raises(hooks.PluginError, match="loads from another server"):
            hooks.on_post_build(config)
    else:
        hooks.on_post_build(config)
