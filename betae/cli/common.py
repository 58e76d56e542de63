"""What all commands share: the app, its two consoles, and how an error ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from betae.errors import BetaeError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Answer first-order-logic questions over large, incomplete knowledge graphs.",
    epilog="Start with [bold]betae demo[/bold].",
)
out, err = Console(), Console(stderr=True)


def main() -> None:
    """Run the command line; an error that a user can act on is printed without a traceback."""
    try:
        app()
    except BetaeError as error:
        err.print("[bold red]Error:[/bold red]", Text(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from betae import __version__

        print(f"betae {__version__}")
        raise typer.Exit


def say(text: str) -> None:
    """Print text as it is: no markup, no colours, no line breaks of our own."""
    out.print(Text(text), highlight=False, soft_wrap=True)


# Arguments of several commands.
Run = Annotated[Path, typer.Argument(help="Folder of a run.")]
Graph = Annotated[Path, typer.Argument(help="Folder of a graph.")]
MovedGraph = Annotated[
    Path | None,
    typer.Option("--graph", help="Folder of the graph, if it has moved since training."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")]
