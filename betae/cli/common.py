"""What all commands share: the app, its two consoles, arguments, and how an error ends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from betae.errors import BetaeError, StoreError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Answer first-order-logic questions over large, incomplete knowledge graphs.",
    epilog="Start with [bold]betae demo[/bold].",
)
out, err = Console(), Console(stderr=True)

# Idle OpenMP threads would otherwise spin for the cores that our own threads need. OpenMP reads
# these when torch is imported, so they must be set before.
OPENMP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "5000"}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, that of `sys.argv` by default, and exit.

    An error that the user can act on is printed without a traceback.
    """
    for name, value in OPENMP.items():
        os.environ.setdefault(name, value)
    try:
        app(arguments)
    except BetaeError as error:
        err.print("[bold red]Error:[/bold red]", Text(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)
    sys.exit()


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from betae import __version__

        print(f"betae {__version__}")
        raise typer.Exit


def say(text: str) -> None:
    """Print text as it is: no markup, no colours, no wrapping."""
    out.print(Text(text), highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    err.print("[bold red]Warning:[/bold red]", Text(text), highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a note to standard error."""
    err.print("[yellow]Note:[/yellow]", Text(text), highlight=False, soft_wrap=True)


# ---- arguments of several commands --------------------------------------------------------------


def existing_folder(path: Path | None) -> Path | None:
    """Refuse a folder that does not exist, before torch is imported to open it."""
    if path is not None and not path.is_dir():
        raise StoreError(f"There is no folder {path}.")
    return path


def existing_file(path: Path | None) -> Path | None:
    """Refuse a file that does not exist, before torch is imported."""
    if path is not None and not path.is_file():
        raise StoreError(f"There is no file {path}.")
    return path


RunPath = Annotated[Path, typer.Argument(help="Folder of a run.", callback=existing_folder)]
GraphPath = Annotated[Path, typer.Argument(help="Folder of a graph.")]
MovedGraph = Annotated[
    Path | None,
    typer.Option(
        "--graph",
        help="Folder of the graph, if it has moved since training.",
        callback=existing_folder,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")]
