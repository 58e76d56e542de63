"""The shape of the package: which way imports point, how long things are, the README's tree."""

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


# ---- how long things are ------------------------------------------------------------------------

MOST_LINES = 350  # of a file
MOST_LINES_OF_A_FUNCTION = 60


def functions(tree: ast.AST) -> dict[str, int]:
    """Return how many lines each function has, decorators aside, by its qualified name."""
    found = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    found[name] = child.end_lineno - child.lineno + 1
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(tree, "")
    return found


def test_files_are_short():
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    long = {name for name, length in lengths.items() if length > MOST_LINES}
    assert not long


def test_functions_are_short():
    long = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for path in PACKAGE.rglob("*.py")
        for name, length in functions(ast.parse(path.read_text())).items()
        if length > MOST_LINES_OF_A_FUNCTION
    }
    assert not long


def test_the_reader_of_functions_sees_what_it_should():
    text = """
class A:
    @decorated
    def f(self):
        def inner():
            return 1
        return inner
if x:
    def g(): ...
"""
    assert functions(ast.parse(text)) == {"A.f": 4, "A.f.inner": 2, "g": 1}


# ---- the tree in the README ---------------------------------------------------------------------


def tree_of(text: str) -> set[str]:
    """Return the modules and rooms of `betae/` in a tree: indented names, then words on them."""
    block = re.search(r"^```\nbetae/\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert block, "there is no tree that begins with betae/"
    found, room = set(), ""
    for line in block[1].splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 0:  # beside the package: examples/, recipes/, ...
            break
        names = re.match(r"(\S+(?: \S+\.pyi?)*)(?:  |$)", line.strip())
        assert names, f"two spaces are missing after the names: {line}"
        for name in names[1].split():
            if name.endswith("/"):
                room = name
                found.add(name)
            else:
                found.add((room if indent == 4 else "") + name)
    return found


def test_the_tree_in_the_readme_is_the_one_on_disk():
    on_disk = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    on_disk |= {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    told = tree_of((PACKAGE.parent / "README.md").read_text(encoding="utf-8"))
    assert sorted(on_disk - told) == []
    assert sorted(told - on_disk) == []


def test_the_reader_of_the_tree_sees_what_it_should():
    text = """
```
betae/
  a.py       words
  room/      words, and other.py
    b.py c.py    words
    d.py
beside/      words
  e.py
```
"""
    assert tree_of(text) == {"a.py", "room/", "room/b.py", "room/c.py", "room/d.py"}


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "scripts"])
def test_programs_import_what_is_there(folder):
    """Few of them are run by the tests."""
    for path in sorted((PACKAGE.parent / folder).glob("*.py")):
        for name in imports(ast.parse(path.read_text(encoding="utf-8")), path):
            module, _, thing = name.rpartition(".")
            if module.split(".")[0] == "betae":
                is_there = hasattr(import_module(module), thing) or find_spec(name)
                assert is_there, f"{path.name}: {name}"
