"""Replay odd inputs as a new user would meet them, and count what goes wrong.

    python scripts/odd_inputs.py            # all of them
    python scripts/odd_inputs.py csv sparql # those with one of these words in their names

Each input is a command as it would be typed, or a call of the library, and what must come of it: an
exit code, words of the output, the exact triples or answers. Most run in this process, since a
process of its own takes a second; those that are about pipes, signals or encodings do not.

Four things are counted, and all must be 0: tracebacks; silent losses, where a command succeeds but
triples or answers are not those expected, or rows are not accounted for; endless runs, of more than
20 seconds; and any other outcome that was not expected. The tables are in the files
odd_*.py beside this. All of it takes about 75 seconds of CPU time.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Triple = tuple[str, str, str]
ROOT = Path(__file__).parents[1]
SECONDS = 20  # that a case may take
GRAPH = "graph"  # the folder into which cases write a graph
FAULTS = ("tracebacks", "silent losses", "endless runs", "unexpected outcomes")
FAILED = ("Traceback (most recent call last)", "This is a bug in betae")


def t(text: str) -> set[Triple]:
    """Read `a r b; c r d`."""
    return {tuple(each.split()) for each in text.split(";")}  # type: ignore[misc]


AB = t("a r b")
TWO = t("a r b; c r d")


@dataclass(frozen=True)
class Case:
    """One odd input, and what must come of it."""

    name: str
    command: str | Sequence[str] = ()  # after `betae`; TOY, ONE and RUN stand for folders
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    code: int | tuple[int, ...] = 0
    says: str | tuple[str, ...] = ()  # words of the output or the message
    triples: set[Triple] | None = None  # all that `graph` must hold afterwards
    answers: set[tuple[str, ...]] | None = None  # the rows of what is printed as CSV
    stdin: bytes = b""
    prepare: Callable[[Path], None] | None = None  # done in the folder before
    shell: str = ""  # instead of `command`: text for bash, in which $BETAE is the program
    call: Callable[[], Any] | None = None  # instead of `command`: a call of the library
    returns: Any = None  # by the call; if it raises, the message must have `says`


@dataclass(frozen=True)
class Outcome:
    """What a case did."""

    code: int
    out: str = ""
    err: str = ""
    value: Any = None

    @property
    def output(self) -> str:
        """All that a person reads."""
        return self.out + self.err


class TooLong(BaseException):
    """A case took longer than it may; no `except Exception` catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooLong after some seconds."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- running a case -----------------------------------------------------------------------------


def run_case(case: Case, places: Mapping[str, Path]) -> tuple[str, str]:
    """Run a case in an empty folder; return the fault, one of FAULTS or "", and what happened."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.chdir(folder)
        try:
            for file, content in case.files.items():
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_bytes(content.encode() if isinstance(content, str) else content)
            if case.prepare is not None:
                case.prepare(folder)
            with time_limit(SECONDS):
                outcome = _run(case, places)
            return judge(case, outcome)
        except (TooLong, subprocess.TimeoutExpired):
            return "endless runs", f"it took more than {SECONDS} seconds"
        finally:
            os.chdir(before)


def _run(case: Case, places: Mapping[str, Path]) -> Outcome:
    if case.call is not None:
        return _run_call(case.call)
    if case.shell:
        return _run_shell(case.shell, places, case.stdin)
    words = shlex.split(case.command) if isinstance(case.command, str) else case.command
    return run_main([str(places.get(word, word)) for word in words], case.stdin)


def _run_call(call: Callable[[], Any]) -> Outcome:
    from betae.errors import BetaeError

    try:
        return Outcome(0, value=call())
    except BetaeError as error:
        return Outcome(2, err=f"{type(error).__name__}: {error}")
    except Exception as error:
        return Outcome(1, err=f"{FAILED[0]} {type(error).__name__}: {error}")


def _run_shell(text: str, places: Mapping[str, Path], stdin: bytes) -> Outcome:
    environment = {
        **os.environ,
        **{name: str(place) for name, place in places.items()},
        "BETAE": f"{sys.executable} -m betae",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {text}"],
        input=stdin,
        capture_output=True,
        env=environment,
        timeout=SECONDS,
    )
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Outcome(done.returncode, out, err)


def run_main(words: Sequence[str], stdin: bytes = b"") -> Outcome:
    """Run `betae ...` in this process, as the console script does."""
    from betae.cli import main

    out, err, arguments_before = _stream(), _stream(), sys.argv
    sys.argv = ["betae", *words]
    stdin_before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    code: Any = 1
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(words)
    except SystemExit as end:
        code = end.code or 0
    except Exception as error:
        err.write(f"{FAILED[0]} {type(error).__name__}: {error}")
    finally:
        sys.stdin, sys.argv = stdin_before, arguments_before
    return Outcome(code, _text(out), _text(err))


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(errors="replace")


# ---- judging it ---------------------------------------------------------------------------------


def flat(text: str) -> str:
    """Join the lines of a message, and take it out of its frame."""
    return " ".join(text.replace("│", " ").split())


def judge(case: Case, outcome: Outcome) -> tuple[str, str]:
    """Return what is wrong with an outcome, one of FAULTS or "", and what happened."""
    told = f"exit code {outcome.code}: {flat(outcome.output)[:600]}"
    if any(words in flat(outcome.output) for words in FAILED):
        return "tracebacks", told
    expected = case.code if isinstance(case.code, tuple) else (case.code,)
    if outcome.code not in expected:
        return "unexpected outcomes", told
    says = (case.says,) if isinstance(case.says, str) else case.says
    for words in says:
        if words not in flat(outcome.output):
            return "unexpected outcomes", f"it does not say {words!r}: {told}"
    if outcome.code == 0 or case.triples is not None:
        if loss := _loss(case, outcome):
            return "silent losses", loss
    elif (partial := [path.name for path in Path().glob(".*partial*")]) or (
        "--out graph" in case.command and Path(GRAPH).exists()
    ):
        return "unexpected outcomes", f"it failed, but left {partial or GRAPH}"
    return "", told


def _loss(case: Case, outcome: Outcome) -> str:
    """Return how the results of a command that succeeded differ from those expected, or ""."""
    if case.call is not None and outcome.value != case.returns:
        return f"it returned {outcome.value!r}, not {case.returns!r}"
    if case.answers is not None:
        rows = _rows(outcome.out)
        if rows != case.answers:
            return f"the answers are {sorted(rows)}, not {sorted(case.answers)}"
    if case.triples is not None:
        held = triples_of(GRAPH)
        if held != case.triples:
            return f"the graph holds {sorted(held)}, not {sorted(case.triples)}"
        return _unaccounted(case, outcome.output, len(held))
    return ""


def _rows(text: str) -> set[tuple[str, ...]]:
    """Return the rows of `betae query --format csv`, without labels."""
    header, *rows = csv.reader(io.StringIO(text))
    kept = [place for place, name in enumerate(header) if not name.endswith("_label")]
    return {tuple(row[place] for place in kept) for row in rows}


def triples_of(folder: str | Path) -> set[Triple]:
    """Return the triples of a stored graph by name."""
    from betae import KnowledgeGraph

    return set(KnowledgeGraph.open(folder).to_polars().iter_rows())


def _unaccounted(case: Case, output: str, num_edges: int) -> str:
    """Return how many lines of the input `betae ingest` has not told about, or ""."""
    lines_told = re.findall(r"^ *(\d[\d,]*) ([^\d\n]+)$", output, flags=re.MULTILINE)
    counts = Counter({what: int(count.replace(",", "")) for count, what in lines_told})
    dropped = counts["duplicates"] + counts["repeated across splits"]
    if counts["read"] and "append" not in case.command and "remove" not in case.command:
        if counts["read"] != num_edges + dropped:
            return f"{counts['read']} read, but {num_edges} edges and {dropped} duplicates"
        texts = [text for name, text in case.files.items() if name.endswith((".tsv", ".txt"))]
        if len(case.files) == len(texts) == 1 and isinstance(texts[0], str):
            lines = len(texts[0].removesuffix("\n").split("\n"))
            told = counts["read"] + output.count(" has a header: ")
            told += counts["blank lines skipped"] + counts["comments skipped"]
            if told != lines:
                return f"{lines} lines, but {told} are accounted for: {flat(output)}"
    return ""


# ---- all of them --------------------------------------------------------------------------------


def run_cases(cases: Iterable[Case], places: Mapping[str, Path]) -> tuple[Counter[str], int]:
    """Run cases, print what is wrong with any, and return how often, and how many there were."""
    faults: Counter[str] = Counter()
    number = 0
    for case in cases:
        number += 1
        fault, told = run_case(case, places)
        if fault:
            faults[fault] += 1
            print(f"{case.name}: {fault}\n  {case.command or case.shell or ''}\n  {told}")
        elif "-v" in sys.argv:
            print(f"{case.name}\n  {told}")
    return faults, number


def all_cases() -> list[Case]:
    """Return the cases of all tables; their names are distinct."""
    from odd_files import file_cases
    from odd_places import place_cases
    from odd_questions import question_cases

    cases = [*file_cases(), *question_cases(), *place_cases()]
    twice = [name for name, count in Counter(case.name for case in cases).items() if count > 1]
    assert not twice, f"two cases have the name {twice[0]}"
    return cases


def make_places(folder: Path) -> dict[str, Path]:
    """Make the graphs, the query set and the run that many cases are about."""
    import odd_places

    return odd_places.make_places(folder)


def main() -> int:
    """Run the cases that were asked for; return the exit code."""
    words = [word for word in sys.argv[1:] if word != "-v"]
    cases = [case for case in all_cases() if not words or any(word in case.name for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        faults, number = run_cases(cases, make_places(Path(folder)))
    print(f"{number:,} inputs: {', '.join(f'{faults[fault]} {fault}' for fault in FAULTS)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.modules["odd_inputs"] = sys.modules["__main__"]  # the tables import Case from here
    sys.exit(main())
