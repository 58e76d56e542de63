"""Odd files of triples: tables of what stands in them, and what must come of `betae ingest`."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odd_inputs import AB, TWO, Case, Triple, t
from odd_rdf import RDF, X, parquet, parquet_table

LONG = "x" * 200_000
EMOJI = "👩‍🚀 🚀"
ESCAPE = "\x1b[31mred\x1b]0;owned\x07"


# File, content, options, and the triples or the words of the error.
DELIMITED: list[tuple[str, str | bytes, str, set[Triple] | str]] = [
    # ---- TSV
    ("plain.tsv", "a\tr\tb\nc\tr\td\n", "", TWO),
    ("no-last-newline.tsv", "a\tr\tb\nc\tr\td", "", TWO),
    ("crlf.tsv", "a\tr\tb\r\nc\tr\td\r\n", "", TWO),
    ("crlf-no-last.tsv", "a\tr\tb\r\nc\tr\td", "", TWO),
    ("bom.tsv", b"\xef\xbb\xbfa\tr\tb\n", "", AB),
    ("bom-header.tsv", b"\xef\xbb\xbfhead\trelation\ttail\na\tr\tb\n", "", AB),
    ("blank-lines.tsv", "\n\na\tr\tb\n\n\nc\tr\td\n\n", "", TWO),
    ("lines-of-spaces.tsv", "a\tr\tb\n   \nc\tr\td\n", "", TWO),
    ("text-file.txt", "a\tr\tb\n", "", AB),
    ("UPPER.TSV", "a\tr\tb\n", "", AB),
    ("empty.tsv", "", "", "is empty"),
    ("only-newlines.tsv", "\n\n\n", "", "is empty"),
    ("only-bom.tsv", b"\xef\xbb\xbf", "", "is empty"),
    ("only-header.tsv", "head\trelation\ttail\n", "", "no rows"),
    ("one-column.tsv", "a\nb\n", "", "line 1: 1 column, 3 expected"),
    ("two-columns.tsv", "a\tb\n", "", "line 1: 2 columns, 3 expected"),
    ("four-columns.tsv", "a\tr\tb\t2020\n", "", "4 columns, 3 expected"),
    ("four-by-number.tsv", "a\tr\tb\t2020\n", "--columns head=1,relation=2,tail=3", AB),
    ("turned-by-number.tsv", "b\tr\ta\n", "--columns head=3,relation=2,tail=1", AB),
    ("five-to-three.tsv", "9\ta\tr\tb\tx\n", "--columns head=2,relation=3,tail=4", AB),
    ("ragged-short.tsv", "a\tr\tb\nc\tr\n", "", "line 2: 2 columns, 3 expected"),
    ("ragged-long.tsv", "a\tr\tb\nc\tr\td\te\n", "", "line 2: 4 columns, 3 expected"),
    ("late-ragged.tsv", "a\tr\tb\n" * 500 + "c\tr\n", "", "line 501: 2 columns"),
    ("trailing-tab.tsv", "a\tr\tb\t\n", "", "4 columns, 3 expected"),
    ("empty-head.tsv", "\tr\tb\n", "", "line 1: the head is empty"),
    ("empty-relation.tsv", "a\tr\tb\na\t\tb\n", "", "line 2: the relation is empty"),
    ("empty-tail.tsv", "a\tr\tb\na\tr\t\n", "", "line 2: the tail is empty"),
    ("spaces-in-names.tsv", "New York\tis in\tthe US\n", "", {("New York", "is in", "the US")}),
    ("spaces-around.tsv", " a \tr\tb\n", "", {(" a ", "r", "b")}),
    ("quotes.tsv", '"a"\tr\tb\n', "", {('"a"', "r", "b")}),
    ("lone-quote.tsv", 'a"\tr\t"b\nc\tr\td\n', "", {('a"', "r", '"b'), ("c", "r", "d")}),
    ("apostrophe.tsv", "O'Neil\tr\tb\n", "", {("O'Neil", "r", "b")}),
    ("hash-fact.tsv", "#1\tr\tb\n", "", {("#1", "r", "b")}),
    ("hash-comment.tsv", "# my facts\na\tr\tb\n", "", "--comment '#'"),
    ("hash-skipped.tsv", "# my facts\na\tr\tb\n#c\tr\td\n", "--comment '#'", AB),
    ("percent-comment.tsv", "% x\na\tr\tb\n", "--comment %", AB),
    ("slash-comment.tsv", "// x\na\tr\tb\n", "--comment //", AB),
    ("empty-comment.tsv", "a\tr\tb\n", "--comment ''", "must not be empty"),
    ("only-comments.tsv", "#\n#\n", "--comment '#'", "no rows"),
    ("nul.tsv", b"a\x00z\tr\tb\n", "", {("a\0z", "r", "b")}),
    ("escape.tsv", f"{ESCAPE}\tr\tb\n", "", {(ESCAPE, "r", "b")}),
    ("emoji.tsv", f"{EMOJI}\tr\tb\n", "", {(EMOJI, "r", "b")}),
    ("unicode.tsv", "Zürich\tgehört_zu\t日本\n", "", {("Zürich", "gehört_zu", "日本")}),
    ("two-forms.tsv", "é\tr\te\u0301\n", "", {("é", "r", "e\u0301")}),
    ("right-to-left.tsv", "\u202ea\tr\tb\n", "", {("\u202ea", "r", "b")}),
    ("line-separator.tsv", "a\u2028z\tr\tb\n", "", {("a\u2028z", "r", "b")}),
    ("next-line.tsv", "a\x85z\tr\tb\n", "", {("a\x85z", "r", "b")}),
    ("no-break-space.tsv", "\xa0\tr\tb\n", "", {("\xa0", "r", "b")}),
    ("huge-name.tsv", f"{LONG}\tr\tb\n", "", {(LONG, "r", "b")}),
    ("huge-line-no-tab.tsv", LONG, "", "1 column, 3 expected"),
    ("latin-1.tsv", "Zürich\tr\tb\n".encode("latin-1"), "", "line 1: not valid UTF-8"),
    ("late-latin-1.tsv", b"a\tr\tb\nZ\xfcrich\tr\tb\n", "", "line 2: not valid UTF-8"),
    ("utf-16.tsv", "a\tr\tb\n".encode("utf-16"), "", "UTF-16"),
    ("utf-16-be.tsv", "\ufeffa\tr\tb\n".encode("utf-16-be"), "", "UTF-16"),
    ("utf-16-no-mark.tsv", "a\tr\tb\n".encode("utf-16-le"), "", "UTF-16"),
    ("binary.tsv", bytes(range(1, 256)), "", "expected"),
    ("png.tsv", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "", "not valid UTF-8"),
    ("zip.tsv", b"PK\x03\x04" + b"\0" * 40, "", "expected"),
    ("old-mac.tsv", "a\tr\tb\rc\tr\td\r", "", "carriage return"),
    ("duplicates.tsv", "a\tr\tb\n" * 3, "", AB),
    ("self-loop.tsv", "a\tr\ta\n", "", t("a r a")),
    ("both-ways.tsv", "a\tr\tb\nb\tr\ta\n", "", t("a r b; b r a")),
    ("entity-and-relation.tsv", "r\tr\tr\n", "", t("r r r")),
    ("numbers.tsv", "1\t2\t03\n1.50\t2\t1e3\n", "", t("1 2 03; 1.50 2 1e3")),
    ("null-words.tsv", "NA\tnull\tNone\nnan\tr\tNULL\n", "", t("NA null None; nan r NULL")),
    ("booleans.tsv", "true\tr\tFALSE\n", "", t("true r FALSE")),
    ("tilde.tsv", "a\t~r\tb\n~a\tr\tb\n", "", t("a ~r b; ~a r b")),
    ("underscore.tsv", "_\t_\t_\n", "", t("_ _ _")),
    ("backslashes.tsv", "a\\\tr\\n\tb\\t\n", "", t("a\\ r\\n b\\t")),
    ("variables.tsv", "?X\texists\t?Y\n", "", t("?X exists ?Y")),
    ("spaces-not-tabs.tsv", "a r b\nc r d\n", "", "--delimiter"),
    ("commas-not-tabs.tsv", "a,r,b\nc,r,d\n", "", "--delimiter"),
    ("space-delimiter.tsv", "a r b\nc r d\n", "--delimiter ' '", TWO),
    ("pipe-delimiter.txt", "a|r|b\n", "--delimiter '|'", AB),
    ("tab-by-name.txt", "a\tr\tb\n", "--delimiter tab", AB),
    ("long-delimiter.txt", "a::r::b\n", "--delimiter ::", "one ASCII character"),
    ("odd-delimiter.txt", "a¦r¦b\n", "--delimiter ¦", "one ASCII character"),
    ("no-delimiter.txt", "a\tr\tb\n", "--delimiter ''", "one ASCII character"),
    # ---- headers
    ("hrt.tsv", "h\tr\tt\na\tr\tb\n", "", AB),
    ("spo.csv", "s,p,o\na,r,b\n", "", AB),
    ("subject.csv", "subject,predicate,object\na,r,b\n", "", AB),
    ("upper.csv", "Subject,PREDICATE,Object\na,r,b\n", "", AB),
    ("turned.csv", "tail,head,relation\nb,a,r\n", "", AB),
    ("source-target.csv", "source,target,type\na,b,r\n", "", AB),
    ("from-to.csv", "from,to,relationship\na,b,r\n", "", AB),
    ("more-columns.csv", "year,head,relation,tail,note\n1,a,r,b,\n", "", AB),
    ("camel.csv", "headEntity,relationName,tailEntity\na,r,b\n", "", AB),
    ("neo4j.csv", ":START_ID,:TYPE,:END_ID\na,r,b\n", "", AB),
    ("german.csv", "Von,Art,Nach\na,r,b\n", "--columns head=Von,relation=Art,tail=Nach", AB),
    ("no-such.csv", "x,y,z\na,r,b\n", "--columns head=u,relation=y,tail=z", "no column 'u'"),
    ("twice.csv", "x,x,z\na,r,b\n", "--columns head=x,relation=z,tail=y", "several columns 'x'"),
    ("same-twice.csv", "x,y,z\n", "--columns head=x,relation=x,tail=z", "three different ones"),
    ("half-columns.csv", "x,y,z\n", "--columns head=x", "three different ones"),
    ("no-columns.csv", "x,y,z\n", "--columns ''", "three different ones"),
    ("far-column.csv", "a,r,b\n", "--columns head=1,relation=2,tail=9", "no column 9"),
    ("column-zero.csv", "a,r,b\n", "--columns head=0,relation=2,tail=3", "no column 0"),
    ("header-later.tsv", "\n\nhead\trelation\ttail\na\tr\tb\n", "", AB),
    ("art.tsv", "a\tr\tt\n", "", t("a r t")),
    ("quoted-header.csv", '"head","relation","tail"\n"a","r","b"\n', "", AB),
    # ---- CSV
    ("comma.csv", '"Paris, France",r,b\n', "", {("Paris, France", "r", "b")}),
    ("doubled.csv", '"say ""hi""",r,b\n', "", {('say "hi"', "r", "b")}),
    ("newline-within.csv", '"a\nz",r,b\n', "", {("a\nz", "r", "b")}),
    ("never-closed.csv", '"a,r,b\nc,r,d\n', "", "line 1"),
    ("huge-then-more.tsv", f"{LONG}\tr\tb\nc\tr\td\n", "", {(LONG, "r", "b"), ("c", "r", "d")}),
    ("carriage-return.tsv", "a\rz\tr\tb\nc\tr\td\n", "", "line 1: a lone carriage return"),
    ("never-closed-later.csv", 'a,r,b\n"c,r,d\ne,r,f\n', "", "line 2"),
    ("after-quote-later.csv", 'c,r,d\n"a" x,r,b\n', "", "line 2: something"),
    ("stray-quote.csv", 'a"x,r,b\n', "", "quote"),
    ("after-quote.csv", '"a"x,r,b\n', "", "line 1: something stands between"),
    ("crlf.csv", '"a",r,b\r\n"c",r,d\r\n', "", TWO),
    ("bom-quoted.csv", b'\xef\xbb\xbf"a",r,b\n', "", AB),
    ("quoted-empty.csv", '"",r,b\n', "", "the head is empty"),
    ("spaces.csv", "a, r, b\n", "", {("a", " r", " b")}),
    ("semicolons.csv", "a;r;b\nc;r;d\n", "", "--delimiter"),
    ("semicolons-told.csv", "a;r;b\nc;r;d\n", "--delimiter ';'", TWO),
    ("tabs.csv", "a\tr\tb\n", "", "--delimiter"),
    ("ragged.csv", "a,r,b\nc,r\n", "", "line 2: 2 columns"),
    ("ragged-header.csv", "head,relation,tail,x\na,r,b\n", "", "line 2: 3 columns, 4 expected"),
    ("utf-16.csv", "a,r,b\n".encode("utf-16"), "", "UTF-16"),
    ("huge.csv", f'"{LONG}",r,b\n', "", {(LONG, "r", "b")}),
    ("excel-sep.csv", "sep=;\na;r;b\n", "--delimiter ';'", "line 1"),
    # ---- endings
    ("facts", "a\tr\tb\n", "", "--format"),
    ("facts.data", "a\tr\tb\n", "", "unknown format '.data'"),
    ("told.data", "a\tr\tb\n", "--format tsv", AB),
    ("dotted.data", "a,r,b\n", "--format .CSV", AB),
    ("nonsense.data", "a,r,b\n", "--format xls", "unknown format '.xls'"),
    ("book.xlsx", b"PK\x03\x04", "", "unknown format '.xlsx'"),
    ("wrong-ending.parquet", "a\tr\tb\n", "", "not a valid Parquet file"),
    # ---- gzip
    ("ok.tsv.gz", gzip.compress(b"a\tr\tb\n"), "", AB),
    ("two-members.tsv.gz", gzip.compress(b"a\tr\tb\n") + gzip.compress(b"c\tr\td\n"), "", TWO),
    ("not-gz.tsv.gz", "a\tr\tb\n", "", "not a valid gzip file"),
    (
        "cut.tsv.gz",
        gzip.compress(b"".join(b"a%d\tr\tb\n" % i for i in range(9999)))[:9999],
        "",
        "gzip",
    ),
    ("cut-late.tsv.gz", gzip.compress(b"a\tr\tb\n" * 9999)[:-4], "", "truncated"),
    ("empty.tsv.gz", b"", "", "is empty"),
    ("zipped-nothing.csv.gz", gzip.compress(b""), "", "is empty"),
    ("flipped.tsv.gz", gzip.compress(b"a\tr\tb\n")[:-8] + b"\0" * 8, "", "not a valid gzip"),
    ("no-ending-gz.tsv", gzip.compress(b"a\tr\tb\n"), "", AB),
    ("cut.nt.gz", gzip.compress(b"<x:a> <x:r> <x:b> .\n" * 999)[:60], "", "truncated"),
    ("not-gz.nt.gz", "<x:a> <x:r> <x:b> .\n", "", "not a valid gzip file"),
    # ---- file names
    ("with space.tsv", "a\tr\tb\n", "", AB),
    ("glob[1]*?.tsv", "a\tr\tb\n", "", AB),
    ("emoji 🚀.tsv", "a\tr\tb\n", "", AB),
    ("[bold]x[/bold].tsv", "a\tr\n", "", "[bold]x[/bold].tsv, line 1"),
    ("esc\x1b[31m.tsv", "a\tr\n", "", "line 1"),
    ("quote'\".tsv", "a\tr\tb\n", "", AB),
    ("~tilde.tsv", "a\tr\tb\n", "", AB),
    ("dots..tsv", "a\tr\tb\n", "", AB),
    ("%s {0}.tsv", "a\tr\n", "", "%s {0}.tsv, line 1"),
]

# Several files, options, and the triples or the words of the error.
TSV = {"a.tsv": "a\tr\tb\n", "c.tsv": "c\tr\td\n"}
SEVERAL: list[tuple[str, str, dict[str, str | bytes], set[Triple] | str]] = [
    ("two files", "a.tsv c.tsv", TSV, TWO),
    ("the same file twice", "a.tsv a.tsv", TSV, AB),
    ("formats mixed", "a.tsv c.csv", {**TSV, "c.csv": "c,r,d\n"}, TWO),
    ("valid is train", "a.tsv --valid a.tsv", TSV, AB),
    ("valid and test the same", "a.tsv --valid c.tsv --test c.tsv", TSV, TWO),
    ("second file bad", "a.tsv bad.tsv", {**TSV, "bad.tsv": "x\n"}, "bad.tsv, line 1"),
    ("valid bad", "a.tsv --valid bad.tsv", {**TSV, "bad.tsv": "x\n"}, "bad.tsv, line 1"),
    ("one edge split", "a.tsv --valid 0.5 --test 0.4", TSV, AB),
    ("labels", "a.tsv --labels l.tsv", {**TSV, "l.tsv": "a\tAnna\nz\tZ\n"}, AB),
    ("labels of three columns", "a.tsv --labels l.tsv", {**TSV, "l.tsv": "a\tb\tc\n"},
     "2 expected"),
    ("labels empty", "a.tsv --labels l.tsv", {**TSV, "l.tsv": ""}, "is empty"),
    ("labels in Parquet", "a.tsv --labels l.parquet", {**TSV, "l.parquet": ""}, "labels come as"),
    ("no labels file", "a.tsv --labels none.tsv", TSV, "none.tsv: there is no such file"),
    ("blank nodes of two files", "a.nt b.nt",
     {"a.nt": "_:n <x:r> <x:b> .\n", "b.nt": "_:n <x:r> <x:c> .\n"},
     {("_:0.n", "x:r", "x:b"), ("_:1.n", "x:r", "x:c")}),
]  # fmt: skip


def file_cases() -> Iterator[Case]:
    """Yield the cases of `betae ingest`."""
    for kind, table in (("text", DELIMITED), ("rdf", RDF), ("parquet", parquet_table())):
        for file, content, options, expected in table:
            yield _ingest(
                f"{kind} {file!r} {options}".strip(), [file], {file: content}, options, expected
            )
    for name, options, files, expected in SEVERAL:
        yield _ingest(f"files: {name}", [], files, options, expected)
    for name, content, options, expected in STANDARD_INPUT:
        yield Case(**_expecting(expected), name=f"stdin: {name}", stdin=content,
                   command=f"ingest - {options} --out graph")  # fmt: skip
    yield from ODD_PLACES


def _ingest(
    name: str, sources: list[str], files: Any, options: str, expected: set[Triple] | str
) -> Case:
    import shlex

    command = shlex.join(["ingest", *sources]) + f" {options} --out graph"
    return Case(**_expecting(expected), name=name, command=command, files=files)


def _expecting(expected: set[Triple] | str) -> dict[str, Any]:
    if isinstance(expected, str):
        return {"code": 2, "says": expected}
    return {"triples": expected}


STANDARD_INPUT: list[tuple[str, bytes, str, set[Triple] | str]] = [
    ("tsv", b"a\tr\tb\n", "", AB),
    ("csv", b"a,r,b\n", "", AB),
    ("nt", b"<x:a> <x:r> <x:b> .\n", "", X),
    ("turtle", b"@prefix e: <x:> . e:a e:r e:b .", "", X),
    ("jsonld", b'{"@id": "x:a", "x:r": {"@id": "x:b"}}', "", X),
    ("parquet", parquet(head=["a"], relation=["r"], tail=["b"]), "", AB),
    ("gzip", gzip.compress(b"a\tr\tb\n"), "", AB),
    ("cut gzip", gzip.compress(b"a\tr\tb\n" * 99)[:-9], "", "truncated"),
    ("nothing", b"", "", "is empty"),
    ("prose", b"hello there\n", "", "--format tsv"),
    ("told", b"a;r;b\n", "--format csv --delimiter ';'", AB),
    ("bad line", b"a\tr\tb\nc\n", "", "standard input, line 2"),
    ("utf-16", "a\tr\tb\n".encode("utf-16"), "", "UTF-16"),
    ("twice", b"a\tr\tb\n", "-", "standard input"),
]


def _fifo(folder: Path) -> None:
    import threading

    os.mkfifo(folder / "pipe.tsv")
    threading.Thread(
        target=(folder / "pipe.tsv").write_text, args=("a\tr\tb\n",), daemon=True
    ).start()


ODD_PLACES = [
    Case("place: a folder", "ingest . --out graph", code=2, says="Name the files"),
    Case("place: a folder called .tsv", "ingest f.tsv --out graph", code=2, says="folder",
         prepare=lambda folder: (folder / "f.tsv").mkdir()),
    Case("place: a link", "ingest l.tsv --out graph", TSV, triples=AB,
         prepare=lambda folder: (folder / "l.tsv").symlink_to("a.tsv")),
    Case("place: a link to nothing", "ingest l.tsv --out graph", code=2, says="no such file",
         prepare=lambda folder: (folder / "l.tsv").symlink_to("gone.tsv")),
    Case("place: a link to itself", "ingest l.tsv --out graph", code=2, says="l.tsv",
         prepare=lambda folder: (folder / "l.tsv").symlink_to("l.tsv")),
    Case("place: a named pipe", "ingest pipe.tsv --out graph", triples=AB, prepare=_fifo),
    Case("place: a device", "ingest /dev/null --format tsv --out graph", code=2, says="is empty"),
    Case("place: a name too long", f"ingest {'x' * 300}.tsv --out graph", code=2,
         says="File name too long"),
    Case("place: a NUL in the name", ["ingest", "a\0b.tsv", "--out", "graph"], code=2,
         says="no such file"),
]  # fmt: skip
