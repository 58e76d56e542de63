"""Run a notebook in this process, and keep what its cells show in it.

    python scripts/run_notebook.py examples/tour.ipynb

A cell shows what it prints, and the value of its last line, as text and as HTML.
"""

import argparse
import ast
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def run_notebook(notebook: dict[str, Any]) -> None:
    """Run the code cells of a notebook in order, and replace their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for count, cell in enumerate(code, 1):
        cell["execution_count"] = count
        cell["outputs"] = _run("".join(cell["source"]), names, count)


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": _lines(value._repr_html_()), **data}
        shown = {"data": data, "metadata": {}, "output_type": "execute_result"}
        outputs.append({"execution_count": count, **shown})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run a notebook and write it back."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    notebook = json.loads(path.read_text(encoding="utf-8"))
    run_notebook(notebook)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
