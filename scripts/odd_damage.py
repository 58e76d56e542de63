"""Damaged stores and runs, changed graphs, batches, pipes and signals, and calls of the library."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from odd_inputs import AB, TWO, Case, t
from odd_places import PLACES

ASK = "'?X . r0(e1, ?X)'"


# ---- damaged stores -----------------------------------------------------------------------------


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _folder(path: Path) -> None:
    _delete(path)
    path.mkdir()


WAYS: dict[str, Callable[[Path], Any]] = {
    "deleted": _delete,
    "empty": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "changed": _flip,
    "another file": lambda path: path.write_text("{}"),
    "a folder": _folder,
}
STORES = {
    "TOY": (
        "manifest.json train.npy valid.npy entities.text.npy entities.offsets.npy",
        "query store '?X . parent(ann, ?X)'",
    ),
    "SET": ("manifest.json queries.parquet", "eval RUN --queries store --empty 0"),
    "RUN": (
        "config.json graph.json best-*/manifest.json best-*/*.safetensors",
        f"answer store {ASK}",
    ),
}


def _damaged(place: str, part: str, way: Callable[[Path], Any]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        shutil.copytree(PLACES[place], folder / "store")
        (path,) = (folder / "store").glob(part)
        way(path)

    return prepare


def stores() -> Iterator[Case]:
    """Yield a case for every part of a store and every way to damage it."""
    for place, (parts, command) in STORES.items():
        for part in parts.split():
            for name, way in WAYS.items():
                yield Case(
                    f"damage: {place}/{part} {name}", command, code=2, says="store",
                    prepare=_damaged(place, part, way),
                )  # fmt: skip


# ---- graphs that change -------------------------------------------------------------------------


def _graph(text: str) -> Callable[[Path], None]:
    def prepare(_: Path) -> None:
        from betae import KnowledgeGraph, read_triples

        Path("first.tsv").write_text(text)
        KnowledgeGraph.from_triples(read_triples("first.tsv")).save("graph")

    return prepare


ONE_EDGE = _graph("a\tr\tb\n")
CHANGES = [
    ("add", {"x.tsv": "c\tr\td\n"}, "--append", TWO, ""),
    ("add what is there", {"x.tsv": "a\tr\tb\n"}, "--append", AB, "0 training edges added"),
    ("add a bad line", {"x.tsv": "c\tr\td\nx\n"}, "--append", AB, "line 2"),
    ("add nothing", {"x.tsv": ""}, "--append", AB, "is empty"),
    ("remove what is not there", {"x.tsv": "c\tr\td\n"}, "--remove", AB, "not there"),
    ("remove, turned round", {"x.tsv": "b\tr\ta\n"}, "--remove", AB, "1 edges were not there"),
    ("add a loop", {"x.tsv": "a\tr\ta\n"}, "--append", t("a r b; a r a"), ""),
    ("add a tilde", {"x.tsv": "a\t~r\tb\n"}, "--append", t("a r b; a ~r b"), ""),
]  # fmt: skip


def changes() -> Iterator[Case]:
    """Yield the cases of --append and --remove."""
    for name, files, option, triples, words in CHANGES:
        is_bad = words in ("line 2", "is empty")
        yield Case(
            f"change: {name}", f"ingest x.tsv {option} --out graph", files, 2 if is_bad else 0,
            words, triples, prepare=ONE_EDGE,
        )  # fmt: skip
    yield Case("change: remove the last edge", "ingest x.tsv --remove --out graph",
               {"x.tsv": "a\tr\tb\n"}, 2, "edge", AB, prepare=ONE_EDGE)  # fmt: skip


# ---- batches ------------------------------------------------------------------------------------

GOOD, BAD = "?X . r0(e1, ?X)\n", "?X . r0(nobody, ?X)\n"
BATCH = "answer RUN --queries q.txt"
BATCHES = [
    Case("batch: fine", f"{BATCH} --json", {"q.txt": GOOD * 2}, says='"line": 2'),
    Case("batch: blank lines and comments", f"{BATCH} --json",
         {"q.txt": f"# mine\n\n{GOOD}"}, says='"line": 3'),
    Case("batch: a bad line", f"{BATCH} --json", {"q.txt": GOOD + BAD + GOOD}, 2,
         ('"line": 1', '"line": 3', "q.txt, line 2", "1 of 3 questions")),
    Case("batch: all bad", BATCH, {"q.txt": BAD * 2}, 2, "2 of 2 questions"),
    Case("batch: CRLF", f"{BATCH} --json", {"q.txt": GOOD.replace("\n", "\r\n") * 2},
         says='"line": 2'),
    Case("batch: BOM", f"{BATCH} --json", {"q.txt": b"\xef\xbb\xbf" + GOOD.encode()},
         says='"line": 1'),
    Case("batch: Latin-1", BATCH, {"q.txt": b"?X . r0(\xfc, ?X)\n"}, 2, "UTF-8"),
    Case("batch: UTF-16", BATCH, {"q.txt": GOOD.encode("utf-16")}, 2, "UTF-8"),
    Case("batch: no questions", BATCH, {"q.txt": "\n# nothing\n"}, 0, "no questions"),
    Case("batch: empty", BATCH, {"q.txt": ""}, 0, "no questions"),
    Case("batch: SPARQL in a line", f"{BATCH} --json", {"q.txt": "SELECT ?x { <e1> <r0> ?x }\n"},
         says='"line": 1'),
    Case("batch: half a line", BATCH, {"q.txt": GOOD + "?X . r0(e1\n"}, 2, "q.txt, line 2"),
    Case("batch: CSV", f"{BATCH} --format csv", {"q.txt": GOOD * 2}, says="query,entity,label"),
    Case("batch: a folder", "answer RUN --queries .", code=2, says="Is a directory"),
    Case("batch: stdin", "answer RUN --queries - --json", says='"line": 1', stdin=GOOD.encode()),
    Case("batch: stdin empty", "answer RUN --queries -", says="no questions"),
    Case("batch: stdin Latin-1", "answer RUN --queries -", code=2, says="UTF-8",
         stdin=b"?X . r0(\xfc, ?X)\n"),
]  # fmt: skip

# ---- processes ----------------------------------------------------------------------------------

BIG = (
    "query $TOY '?A, ?B, ?C, ?D, ?E . !parent(?A, ?B) & !parent(?B, ?C) & !parent(?C, ?D) & "
    "!parent(?D, ?E)' --format csv"
)
SHELL = [
    ("a full device", "$BETAE info $TOY > /dev/full", 1, "No space left on device"),
    ("a full device, query", "$BETAE query $TOY '?X . parent(ann, ?X)' > /dev/full", 1, "No space"),
    ("a full device, export", "$BETAE export $TOY - > /dev/full", 1, "No space"),
    ("head", f"$BETAE {BIG} | head -2", (0, 1, 141), "A,A_label"),
    ("closed output", "$BETAE info $TOY >&-", (0, 1), ""),
    ("closed input", "$BETAE ingest - --out graph <&-", 2, "standard input"),
    ("no messages", "$BETAE info none 2> /dev/full", 2, ""),
    ("ASCII output", "LC_ALL=C PYTHONIOENCODING=ascii $BETAE export $TOY -", 0, "exists"),
    ("Latin-1 output", "PYTHONIOENCODING=latin-1 $BETAE entities $TOY --search x", 0, ""),
    ("ASCII table", "PYTHONIOENCODING=ascii $BETAE query $TOY '?X . odd(\"#1\", ?X)'", 0, "x"),
    ("ASCII CSV", "PYTHONIOENCODING=ascii $BETAE query $TOY '?X . odd(\"#1\", ?X)' --format csv",
     0, "x"),
    ("narrow terminal", "COLUMNS=10 $BETAE info $TOY", 0, "Frequent relations"),
    ("zero columns", "COLUMNS=0 $BETAE --help", 0, "ingest"),
    ("dumb terminal", "TERM=dumb NO_COLOR=1 $BETAE --help", 0, "ingest"),
    ("no home", "env -u HOME $BETAE info $TOY", 0, "train"),
    ("an interrupt", f"timeout -s INT 4 $BETAE {BIG} > out.csv", (1, 124, 130), ""),
    ("a pipe to ingest", "printf 'a\\tr\\tb\\n' | $BETAE ingest - --out graph", 0, "1 read"),
    ("a pipe by the shell", "$BETAE ingest <(printf 'a\\tr\\tb\\n') --format tsv --out graph", 0,
     "1 read"),
    ("from the shell to the shell", "$BETAE export $TOY - | $BETAE ingest - --out graph", 0,
     "19 read"),
    ("read-only place", "mkdir d && cd d && printf 'a\\tr\\tb\\n' > a.tsv && chmod 555 . && "
     "setpriv --bounding-set=-dac_override,-dac_read_search $BETAE ingest a.tsv --out graph", 2,
     "Permission denied"),
    ("unreadable file", "printf 'a\\tr\\tb\\n' > a.tsv && chmod 000 a.tsv && "
     "setpriv --bounding-set=-dac_override,-dac_read_search $BETAE ingest a.tsv --out graph", 2,
     "a.tsv"),
    ("a limit on files", "ulimit -f 0; printf 'a\\tr\\tb\\n' | $BETAE ingest - --out graph", (1, 2),
     ""),
]  # fmt: skip


# ---- the library --------------------------------------------------------------------------------


def _calls() -> list[tuple[str, Callable[[], Any], Any]]:
    """Return calls, and what each returns, or words of its error (a string)."""
    import numpy as np
    import polars as pl

    from betae import Entity, KnowledgeGraph, answers, parse, read_triples, select

    def graph(rows: Any) -> set[Any]:
        return set(KnowledgeGraph.from_triples(rows).to_polars().iter_rows())

    def toy() -> Any:
        return KnowledgeGraph.open(PLACES["TOY"])

    return [
        ("rows", lambda: graph([("a", "r", "b")]), AB),
        ("a generator", lambda: graph(row for row in [("a", "r", "b")]), AB),
        ("rows twice", lambda: graph([("a", "r", "b")] * 2), AB),
        ("numbers", lambda: graph([(1, 2, 3)]), t("1 2 3")),
        ("an array", lambda: graph(np.array([["a", "r", "b"]])), AB),
        ("a frame", lambda: graph(pl.DataFrame({"tail": ["b"], "head": ["a"], "rel": ["r"]})), AB),
        ("no rows", lambda: graph([]), "no rows"),
        ("a flat array", lambda: graph(np.array(["a", "r", "b"])), "(n, 3)"),
        ("pairs", lambda: graph([("a", "b")]), "row 1"),
        ("a word", lambda: graph([("a", "r", "b"), "arb"]), "2"),
        ("None within", lambda: graph([("a", "r", None)]), "empty"),
        ("NaN within", lambda: graph([(float("nan"), "r", "b")]), "empty"),
        ("an empty name", lambda: graph([("", "r", "b")]), "empty"),
        ("half a character", lambda: graph([("\ud800", "r", "b")]), "not valid Unicode"),
        ("a dict", lambda: graph({"a": 1}), "rows of three"),
        ("None", lambda: graph(None), "NoneType"),
        ("a number", lambda: graph(7), "int"),
        ("a file that is not there", lambda: graph("none.tsv"), "none.tsv"),
        ("bytes", lambda: graph(b"a\tr\tb"), "bytes"),
        ("valid of 2", lambda: read_triples([("a", "r", "b")], valid=2), "below 1"),
        ("seed -1", lambda: read_triples([("a", "r", "b")], seed=-1), "seed"),
        ("no sources", lambda: read_triples(), "at least one file"),
        ("open nothing", lambda: KnowledgeGraph.open("none"), "none"),
        ("answers", lambda: len(answers(toy(), "?X . parent(ann, ?X)")), 2),
        ("answers of nothing", lambda: answers(toy(), ""), "nothing"),
        ("answers of a number", lambda: answers(toy(), 3), "no query"),
        ("answers, edges of nowhere", lambda: answers(toy(), Entity("ann"), "half"), "train"),
        ("an unknown name", lambda: answers(toy(), Entity("an")["parent"]), "Closest: 'ann'"),
        ("an id out of range", lambda: answers(toy(), Entity(999)), "999"),
        ("a negative id", lambda: answers(toy(), Entity(-1)), "-1"),
        ("a name of None", lambda: Entity(None), "None"),
        ("a name of 1.5", lambda: Entity(1.5), "1.5"),
        ("parse a number", lambda: parse(5), "5"),
        ("select with limit 0", lambda: select(toy(), "?X . parent(ann, ?X)", limit=0), "limit"),
        ("select", lambda: [row["X"] for row in select(toy(), "?X . parent(ann, ?X)")],
         ["bob", "cat"]),
    ]  # fmt: skip


def damage_cases() -> Iterator[Case]:
    """Yield the cases of this module."""
    yield from stores()
    yield from changes()
    yield from BATCHES
    for name, text, code, words in SHELL:
        yield Case(f"shell: {name}", shell=text, code=code, says=words)
    for name, call, expected in _calls():
        if isinstance(expected, str):
            yield Case(f"call: {name}", call=call, code=2, says=expected)
        else:
            yield Case(f"call: {name}", call=call, returns=expected)
