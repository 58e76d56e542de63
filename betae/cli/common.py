"""Shared by all commands: the app, its consoles, common arguments, and error handling."""

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from betae.errors import BetaeError, InvalidArgument, StoreError

if TYPE_CHECKING:
    from betae.cluster import Cluster
    from betae.graph.graph import KnowledgeGraph
    from betae.run import Run

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Answer first-order-logic questions over large, incomplete knowledge graphs.",
    epilog="Start with [bold]betae demo[/bold].",
)

# Idle OpenMP threads would otherwise spin on cores that other threads need. OpenMP reads these when
# torch is imported, so they must be set before.
OPENMP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "5000"}

# ---- output -------------------------------------------------------------------------------------

# Control characters except newline and tab, bidirectional marks, and surrogates.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    """Return text with control characters escaped, such as \\x1b."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


class PlainConsole(Console):
    """A console that escapes control characters in names."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments; only rich's own control segments stay unescaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escape_controls(text), style, control)


if os.environ.get("COLUMNS") == "0":  # set so in some containers; nothing would be shown
    del os.environ["COLUMNS"]
out, err = PlainConsole(), PlainConsole(stderr=True)


def say(text: str) -> None:
    """Print plain text: no markup, no colours, no wrapping."""
    out.print(Text(text), highlight=False, soft_wrap=True)


def _print_message(kind: str, text: str) -> None:
    err.print(kind, Text(text), highlight=False, soft_wrap=True)


note = partial(_print_message, "[yellow]Note:[/yellow]")
warn = partial(_print_message, "[bold red]Warning:[/bold red]")


def complain(text: str) -> None:
    """Print an error to standard error, if it is writable."""
    with suppress(OSError):
        _print_message("[bold red]Error:[/bold red]", text)


def print_json(content: Any, indent: int | None = None, file: TextIO | None = None) -> None:
    """Print as JSON, with characters escaped that the terminal or its encoding cannot show."""
    encoding = getattr(file or sys.stdout, "encoding", None) or "utf-8"
    is_ascii = not encoding.lower().startswith("utf")
    text = json.dumps(content, ensure_ascii=is_ascii, indent=indent)
    print(UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text), file=file)


def is_writer() -> bool:
    """Tell whether this process prints: of those that torchrun started, the first."""
    return os.environ.get("RANK", "0") == "0"


# ---- running a command --------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, that of `sys.argv` by default, and exit.

    An error of the user is printed as a message, exit code 2. An internal error is printed in one
    line, and its traceback is written to a file, exit code 1.
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
    """Escape characters that the encoding of the output lacks, instead of failing."""
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
    """Report a file or an output that cannot be read or written; return the exit code."""
    from betae.storage import DISK_FULL

    if error.filename is not None and error.strerror is not None:
        complain(f"{os.fsdecode(error.filename)}: {error.strerror}.")
        return 2
    if error.errno not in (errno.EPIPE, errno.EIO, errno.EBADF, *DISK_FULL):
        return _end_by_surprise(error)
    # Errors of files have a file name: this is one of standard output.
    with suppress(OSError, ValueError):  # keeps Python from flushing it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # a reader such as head may close the pipe
        complain(f"The output cannot be written: {error.strerror}.")
    return 1


def _end_by_surprise(error: Exception) -> int:
    """Write the traceback of an internal error to a file; return the exit code."""
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
        descriptor, path = tempfile.mkstemp(prefix="betae-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
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


def examples(*lines: str) -> str:
    """Return the end of a help text: commands to copy."""
    return "\n\n  ".join(["Examples:" if len(lines) > 1 else "Example:", *lines])


def parse_folder(text: str) -> Path:
    """Parse a folder, or an address such as s3://bucket/run, which is copied to this machine.

    Raise if it does not exist, before torch is imported to open it.
    """
    path = Path(text)
    if "://" in text:
        from betae.remote import local_folder

        path = local_folder(text)
    if path.is_file():
        raise StoreError(f"{path} is a file, where a folder is wanted.")
    if not path.is_dir():
        raise StoreError(f"There is no folder {path}.")
    return path


def parse_file(text: str) -> Path:
    """Parse a file; raise if it does not exist, before torch is imported."""
    if not Path(text).is_file():
        raise StoreError(f"There is no file {text}.")
    return Path(text)


def parse_graph_or_run(text: str) -> Path:
    """Parse the folder or address of a graph or a run; a file must be ingested first."""
    if Path(text).is_file():
        raise InvalidArgument(
            f"{text} is a file. Make a graph of it first: betae ingest {text} --out graph"
        )
    return parse_folder(text)


def _graph_folder(text: str) -> Path:
    """Parse the folder or address of a graph; raise if it is that of a run."""
    path = parse_graph_or_run(text)
    if is_run(path):
        raise InvalidArgument(f"{path} is a run, not a graph: give the graph it was trained on.")
    return path


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run rather than a graph."""
    return (folder / "graph.json").exists() and not (folder / "manifest.json").exists()


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")]
RunPath = Annotated[
    Path, typer.Argument(help="Folder of a run, or address (s3://).", parser=parse_folder)
]
RunOrGraph = Annotated[
    Path,
    typer.Argument(
        help="Folder of a run, or of a graph, whose rules are then mined once.",
        parser=parse_graph_or_run,
    ),
]
GraphPath = Annotated[
    Path, typer.Argument(help="Folder of a graph, or address (s3://).", parser=_graph_folder)
]
GraphOrRun = Annotated[
    Path,
    typer.Argument(
        help="Folder of a graph, or address (s3://); or a run, for its graph.",
        parser=parse_graph_or_run,
    ),
]
MovedGraph = Annotated[
    Path | None,
    typer.Option(
        "--graph",
        help="Folder of the graph, if it has moved since training.",
        parser=parse_folder,
    ),
]
RankMethod = Annotated[
    Literal["completed", "embedding"],
    typer.Option(help="Rank over the completed graph, or by embedding as in the paper."),
]
KnownEdges = Annotated[
    Literal["train", "train+valid", "all"], typer.Option(help="Edges that count as known.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Run on a Ray cluster: HOST:PORT, auto for the one on this machine, or local for "
        "processes of this machine.",
        metavar="ADDRESS",
    ),
]


def open_graph(folder: Path, verify: bool | None = None) -> KnowledgeGraph:
    """Open a graph, or that of a run; numpy is imported only now."""
    if is_run(folder):
        from betae.training.folder import RunFolder

        return RunFolder(folder).open_graph(may_have_grown=True)
    from betae.graph.graph import KnowledgeGraph

    return KnowledgeGraph.open(folder, verify=verify)


def open_run(folder: Path, graph: Path | None = None) -> Run:
    """Open a run; torch is imported only now."""
    from betae.run import Run

    return Run.open(folder, graph)


def open_or_mine(folder: Path, graph: Path | None = None) -> Run:
    """Open a run, or mine the rules of a graph, with a progress bar."""
    if not (folder / "manifest.json").is_file():
        return open_run(folder, graph)
    from betae.cli.progress import showing_work
    from betae.run import open_or_mine

    with showing_work(err, "opening") as progress:
        return open_or_mine(folder, graph, partial(progress, "mining rules"))


@contextmanager
def on_ray(address: str | None) -> Iterator[Cluster | None]:
    """Connect to a Ray cluster, if asked for, and print its size."""
    if address is None:
        yield None
        return
    from betae.cluster import Cluster

    with Cluster(address, note) as cluster:
        note(f"Ray: {cluster}")
        yield cluster


NO_PROBABILITIES = (
    "the graph has no validation edges to fit probabilities on, so entities are ranked by "
    "embedding, without probabilities. Ingest it with --valid 0.05, say, and train again."
)
HELD_OUT = (
    "The graph has no validation edges: some of its edges are held out, to learn how probable "
    "missing edges are. In answers they count as known."
)
