"""The shape of the package: which way imports point, and the rooms that the docs list."""

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "betae"
ORDER = [  # the flat modules and the rooms
    "errors",
    "checks",
    "storage",
    "remote",
    "parallel",
    "cluster",
    "graph",
    "frames",
    "queries",
    "exact",
    "querysets",
    "datasets",  # the release's queries are query sets
    "rules",
    "models",
    "evaluation",  # training validates with it
    "training",
    "search",
    "answering",
    "run",  # all that can be done with a trained model
    "server",
    "cli",
]
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path not in (PACKAGE / "__init__.py", PACKAGE / "__main__.py")
}


def imports(tree: ast.AST, path: Path) -> set[str]:
    """Return the modules that a module imports, in functions too; TYPE_CHECKING aside."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # `from . import x` in betae/room/module.py means betae.room
            base = ["betae", *path.relative_to(PACKAGE).parts][: -node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        else:
            waiting += ast.iter_child_nodes(node)
    return found - {"betae.__version__"}


def room_of(name: str) -> str:
    return name.removeprefix("betae.").split(".")[0]


# The methods of KnowledgeGraph that people begin with lead on to rooms below.
FRONT_DOOR = {
    "graph.graph": {
        "betae.exact.select.select",
        "betae.exact.select.sparql",
        "betae.exact.answers.answers",
        "betae.querysets.sample.parse_counts",
        "betae.querysets.sample.sample_queries",
    }
}


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_upward(name):
    place = ORDER.index(room_of(name))
    found = imports(ast.parse(MODULES[name].read_text()), MODULES[name])
    found -= FRONT_DOOR.get(name, set())
    for imported in (each for each in found if each.startswith("betae.")):
        is_same_room = room_of(imported) == room_of(name) and MODULES[name].parent != PACKAGE
        assert ORDER.index(room_of(imported)) < place or is_same_room, imported


@pytest.mark.parametrize("name", MODULES)
def test_only_the_command_line_knows_rich(name):
    found = imports(ast.parse(MODULES[name].read_text()), MODULES[name])
    if room_of(name) != "cli":
        assert not any(imported.split(".")[0] in ("rich", "typer") for imported in found)


def test_the_reader_of_imports_sees_what_it_should():
    text = """
import betae.graph
from betae.errors import BetaeError
from . import checks
try:
    from betae.run import Run
except ImportError:
    pass
if TYPE_CHECKING:
    from betae.cli import app
def late():
    import betae.search
"""
    found = imports(ast.parse(text), PACKAGE / "x.py")
    rooms = {"graph", "errors.BetaeError", "checks", "run.Run", "search"}
    assert found == {f"betae.{name}" for name in rooms}
    inside = imports(ast.parse("from .b import c"), PACKAGE / "a" / "x.py")
    assert inside == {"betae.a.b.c"}


def test_the_docs_list_every_room():
    tree = re.search(
        r"^```\nbetae/\n(.*?)^```",
        (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert tree
    listed = re.findall(r"^  (\S+?)(?:/|\.py) ", tree[1], flags=re.MULTILINE)
    assert listed == ORDER


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["benchmarks", "examples", "scripts"])
def test_programs_import_what_is_there(folder):
    """Few of them are run by the tests."""
    for path in sorted((PACKAGE.parent / folder).glob("*.py")):
        for name in imports(ast.parse(path.read_text(encoding="utf-8")), path):
            module, _, thing = name.rpartition(".")
            if module.split(".")[0] == "betae":
                is_there = hasattr(import_module(module), thing) or find_spec(name)
                assert is_there, f"{path.name}: {name}"
