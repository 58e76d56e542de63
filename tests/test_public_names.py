import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import betae


def test_public_names_are_sorted():
    assert list(betae.__all__) == sorted(betae.__all__)


@pytest.mark.parametrize("name", betae.__all__)
def test_each_public_name_leads_to_a_documented_thing(name):
    thing = getattr(betae, name)
    assert thing.__name__ == name
    assert thing.__doc__
    assert thing.__module__.startswith("betae.")


def test_the_stub_lists_the_same_names():
    stub = ast.parse(Path(betae.__file__).with_suffix(".pyi").read_text())
    imported = [
        alias.asname or alias.name
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(imported) == list(betae.__all__)


def test_every_error_is_in_the_tree():
    errors = importlib.import_module("betae.errors")
    for name, thing in vars(errors).items():
        if isinstance(thing, type) and issubclass(thing, Exception) and name[0] != "_":
            assert issubclass(thing, betae.BetaeError)
            assert name in errors.__doc__


def test_public_signatures_say_their_types():
    """No `Any` but for plain JSON and the release's nested tuples."""
    for name in betae.__all__:
        thing = getattr(betae, name)
        functions = [thing] if inspect.isfunction(thing) else vars(thing).values()
        for function in functions:
            function = getattr(function, "__func__", function)  # of a classmethod
            if inspect.isfunction(function) and not function.__name__.startswith("_"):
                for text in function.__annotations__.values():
                    plain = re.sub(
                        r"(dict|Mapping)\[str, Any\]|tuple\[Any, \.\.\.\]", "", str(text)
                    )
                    assert "Any" not in plain, f"{name}.{function.__name__}: {text}"


def test_importing_betae_loads_nothing_heavy():
    code = "import betae, sys; print([m for m in ('torch', 'numpy', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        betae.no_such_name  # noqa: B018
