"""Imports point upward: a module uses only those that stand before it in ORDER."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "betae"
ORDER = [  # modules and rooms; a room's module may have a place of its own before the room
    "errors",
    "checks",
    "processes",
    "names",
    "storage",
    "edges",
    "ragged",
    "formats",
    "triples",
    "graph",
    "datasets",
    "queries.ast",
    "queries.structures",
    "kernels",
    "symbolic",
    "queries",
    "models",
    "evaluation",  # training validates with it
    "training",
    "index",
    "answering",
    "describe",
    "demo",
    "server",
    "cli",
]
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path not in (PACKAGE / "__init__.py", PACKAGE / "__main__.py")
}


def place_of(name: str) -> int:
    """Return the place in ORDER of a module, or of a name in it; its own, else its room's."""
    parts = name.split(".")
    places = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next(ORDER.index(place) for place in places if place in ORDER)


def top_level_imports(tree: ast.Module, path: Path) -> set[str]:
    """Return what a module imports of betae, functions and TYPE_CHECKING aside."""
    found = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from . import x` in betae/room/module.py means betae.room
            base = ["betae", *path.relative_to(PACKAGE).parts][: -node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            waiting += ast.iter_child_nodes(node)
            continue
        found |= {name.removeprefix("betae.") for name in names if name.startswith("betae.")}
    return found - {"__version__"}


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_upward(name):
    assert name.split(".")[0] in {place.split(".")[0] for place in ORDER}, "give it a place"
    path = MODULES[name]
    for imported in top_level_imports(ast.parse(path.read_text()), path):
        same_room = place_of(imported) == place_of(name) and path.parent != PACKAGE
        # The front of a room shows all that is in it.
        front = path.name == "__init__.py" and imported.startswith(f"{name}.")
        assert place_of(imported) < place_of(name) or same_room or front, imported


def test_the_reader_of_imports_sees_what_it_should():
    text = """
import betae.graph
from betae.errors import BetaeError
from betae import triples
from . import names
try:
    from betae.demo import run_demo
except ImportError:
    pass
if TYPE_CHECKING:
    from betae.cli import app
def late():
    import betae.server
"""
    found = top_level_imports(ast.parse(text), PACKAGE / "x.py")
    assert found == {"graph", "errors.BetaeError", "triples", "names", "demo.run_demo"}
    inside = top_level_imports(ast.parse("from .b import c"), PACKAGE / "a" / "x.py")
    assert inside == {"a.b.c"}


def test_places():
    assert place_of("queries.ast.And") < place_of("symbolic") < place_of("queries.files.save")


def test_no_module_is_too_long():
    for path in MODULES.values():
        assert len(path.read_text().splitlines()) <= 500, f"{path} wants a second room"
