"""Imports point upward: a module uses only those that stand before it in ORDER."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "betae"
ORDER = [  # the flat modules and the rooms
    "errors",
    "checks",
    "storage",
    "parallel",
    "graph",
    "queries",
    "exact",
    "querysets",
    "datasets",  # the release's queries are query sets
    "models",
    "evaluation",  # training validates with it
    "training",
    "search",
    "answering",
    "run",  # all that can be done with a trained model
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


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_upward(name):
    place = ORDER.index(room_of(name))
    found = imports(ast.parse(MODULES[name].read_text()), MODULES[name])
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


def test_no_module_is_too_long():
    for path in MODULES.values():
        assert len(path.read_text().splitlines()) <= 500, f"{path} wants a second room"
