"""What all commands share: the app, its two consoles, arguments, and how an error ends it."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from betae.errors import BetaeError, InvalidArgument, StoreError

if TYPE_CHECKING:
    from betae.cluster import Cluster

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Answer first-order-logic questions over large, incomplete knowledge graphs.",
    epilog="Start with [bold]betae demo[/bold].",
)

# Idle OpenMP threads would otherwise spin for the cores that our own threads need. OpenMP reads
# these when torch is imported, so they must be set before.
OPENMP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "5000"}

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# ---- what may reach the terminal ----------------------------------------------------------------

# Escape sequences and other control characters, marks that reverse the direction of text, and
# halves of characters; lines and tabs may stay.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    """Return text with whatever could command a terminal written out, such as \\x1b."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


class PlainConsole(Console):
    """A console that shows names as they are spelled, whatever a terminal would make of them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments, in which only those of rich's own control the terminal."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escape_controls(text), style, control)


if os.environ.get("COLUMNS") == "0":  # some containers say so, and then nothing would be shown
    del os.environ["COLUMNS"]
out, err = PlainConsole(), PlainConsole(stderr=True)


def say(text: str) -> None:
    """Print text as it is: no markup, no colours, no wrapping."""
    out.print(Text(text), highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    err.print("[bold red]Warning:[/bold red]", Text(text), highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a note to standard error."""
    err.print("[yellow]Note:[/yellow]", Text(text), highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """Print an error to standard error, if that can be written to."""
    with suppress(OSError):
        err.print("[bold red]Error:[/bold red]", Text(text), highlight=False, soft_wrap=True)


def print_json(content: Any, indent: int | None = None) -> None:
    """Print plain values as JSON; what the terminal or its encoding does not take is escaped."""
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    text = json.dumps(content, ensure_ascii=not is_utf8, indent=indent)
    print(UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


# ---- running a command --------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, that of `sys.argv` by default, and exit.

    An error that the user can act on is printed without a traceback; of any other, a line is
    printed and the traceback goes to a file.
    """
    for name, value in OPENMP.items():
        os.environ.setdefault(name, value)
    _admit_any_text()
    try:
        try:
            app(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BetaeError as error:
        complain(str(error))
        sys.exit(2)
    except OSError as error:
        sys.exit(_end_by_system_error(error))
    except Exception as error:
        sys.exit(_end_by_surprise(error))
    sys.exit()


def _admit_any_text() -> None:
    """Spell characters out that the encoding of the output lacks, instead of failing."""
    plainer = {"…": "...", "█": "#", "–": "-"}

    def spell(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)  # nothing is read from these streams
        character = error.object[error.start]
        return plainer.get(character) or ascii(character)[1:-1], error.start + 1

    codecs.register_error("betae", spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="betae")


def _end_by_system_error(error: OSError) -> int:
    """Say which file, or that the output, cannot be read or written; return the exit code."""
    if error.filename is not None and error.strerror is not None:
        complain(f"{os.fsdecode(error.filename)}: {error.strerror}.")
        return 2
    if error.errno not in (errno.EPIPE, errno.EIO, errno.EBADF, *DISK_FULL):
        return _end_by_surprise(error)
    # What betae writes to files says so itself: this was the output.
    with suppress(OSError, ValueError):  # and Python must not try again when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # then the reader has had enough
        complain(f"The output cannot be written: {error.strerror}.")
    return 1


def _end_by_surprise(error: Exception) -> int:
    """Write a report of an unexpected error; return the exit code."""
    import platform
    import tempfile
    import traceback

    from betae import __version__

    what = f"{type(error).__name__}: {error}".rstrip(": ").partition("\n")[0]
    report = (
        f"betae {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}"
    )
    try:
        number, path = tempfile.mkstemp(prefix="betae-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
        where = f"The full report is in {path}"
    except OSError as of_report:
        where = f"The full report could not be written: {of_report}"
    complain(f"This is a bug in betae ({what}). {where}")
    return 1


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from betae import __version__

        print(f"betae {__version__}")
        raise typer.Exit


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


def _graph_folder(path: Path) -> Path:
    """Refuse the folder of a run where a graph is needed."""
    existing_folder(path)
    if (path / "graph.json").exists() and not (path / "manifest.json").exists():
        raise InvalidArgument(f"{path} is a run, not a graph: name the graph it was trained on.")
    return path


def _folder_or_address(text: str) -> Path:
    """Return a path; an address such as s3://bucket/run is copied to this machine first."""
    if "://" not in text:
        return Path(text)
    from betae.remote import local_folder

    return local_folder(text)


RunPath = Annotated[Path, typer.Argument(help="Folder of a run.", callback=existing_folder)]
GraphPath = Annotated[Path, typer.Argument(help="Folder of a graph.", callback=_graph_folder)]
MovedGraph = Annotated[
    Path | None,
    typer.Option(
        "--graph",
        help="Folder of the graph, if it has moved since training.",
        callback=existing_folder,
    ),
]
# For commands whose work a cluster can share: the folder may be in an object store.
SharedRun = Annotated[
    Path,
    typer.Argument(
        help="Folder of a run, or its address: s3://bucket/run.",
        parser=_folder_or_address,
        metavar="RUN",
        callback=existing_folder,
    ),
]
SharedGraph = Annotated[
    Path,
    typer.Argument(
        help="Folder of a graph, or its address: s3://bucket/graph.",
        parser=_folder_or_address,
        metavar="GRAPH",
        callback=_graph_folder,
    ),
]
SharedMovedGraph = Annotated[
    Path | None,
    typer.Option(
        "--graph",
        help="Folder or address of the graph, if it has moved since training.",
        parser=_folder_or_address,
        metavar="PATH",
        callback=existing_folder,
    ),
]
AnyQuestion = Annotated[
    str | None, typer.Argument(help="Logic text, a SPARQL SELECT, or a file that holds either.")
]
QuestionFile = Annotated[
    str | None, typer.Option(help="A file of questions in logic text, one per line; - for stdin.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Share the work among the nodes of a Ray cluster: its HOST:PORT, auto for the one "
        "that runs here, local for processes of this machine.",
        metavar="ADDRESS",
    ),
]


@contextmanager
def on_ray(address: str | None) -> Iterator[Cluster | None]:
    """Join a Ray cluster, if one is asked for, and say how large it is."""
    if address is None:
        yield None
        return
    from betae.cluster import Cluster

    with Cluster(address, note) as cluster:
        note(f"Ray: {cluster}")
        yield cluster


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")]
