"""Odd RDF and Parquet files, and what must come of `betae ingest`."""

from __future__ import annotations

import gzip
import io
from typing import Any

from odd_inputs import AB, Triple, t

# File, content, options, and the triples or the words of the error.
X = {("x:a", "x:r", "x:b")}
XML = '<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
RDF: list[tuple[str, str | bytes, str, set[Triple] | str]] = [
    ("ok.nt", "<x:a> <x:r> <x:b> .\n", "", X),
    ("no-dot.nt", "<x:a> <x:r> <x:b>\n", "", "must be followed by a dot"),
    ("second-line.nt", "<x:a> <x:r> <x:b> .\n<x:a> <x:r>\n", "", "line 3"),
    ("relative.nt", "<a> <r> <b> .\n", "", "not valid N-Triples"),
    ("comments.nt", "# hello\n\n<x:a> <x:r> <x:b> . # x\n", "", X),
    ("literal.nt", '<x:a> <x:r> <x:b> .\n<x:a> <x:age> "7" .\n', "", X),
    ("only-literals.nt", '<x:a> <x:age> "7" .\n', "", "no edges between entities"),
    ("only-labels.nt", '<x:a> <http://www.w3.org/2000/01/rdf-schema#label> "A" .\n', "",
     "no edges"),
    ("empty.nt", "", "", "no edges"),
    ("blank.nt", "_:n <x:r> _:m .\n", "", {("_:n", "x:r", "_:m")}),
    ("twice.nt", "<x:a> <x:r> <x:b> .\n" * 2, "", X),
    ("bom.ttl", b"\xef\xbb\xbf@prefix e: <x:> . e:a e:r e:b .", "", X),
    ("bom.nt", b"\xef\xbb\xbf<x:a> <x:r> <x:b> .\n", "", X),
    ("crlf.nt", "<x:a> <x:r> <x:b> .\r\n", "", X),
    ("latin.nt", b"<x:\xfc> <x:r> <x:b> .\n", "", "line 1"),
    ("utf-16.nt", "<x:a> <x:r> <x:b> .\n".encode("utf-16"), "", "UTF-16"),
    ("escaped.nt", "<x:\\u00fc> <x:r> <x:b> .\n", "", {("x:ü", "x:r", "x:b")}),
    ("space-in-iri.nt", "<x:a b> <x:r> <x:b> .\n", "", "line 1"),
    ("graph.nq", "<x:a> <x:r> <x:b> <x:g> .\n", "", X),
    ("two-graphs.nq", "<x:a> <x:r> <x:b> <x:g> .\n<x:a> <x:r> <x:b> <x:h> .\n", "", X),
    ("ok.ttl", "@prefix e: <x:> . e:a e:r e:b .", "", X),
    ("sparql-prefix.ttl", "PREFIX e: <x:>\ne:a e:r e:b .", "", X),
    ("unknown-prefix.ttl", "\n\ne:a e:r e:b .", "", "line 3"),
    ("half.ttl", "@prefix e: <x:> . e:a e:r", "", "line 1"),
    ("relative.ttl", "<a> <r> <b> .", "", "base"),
    ("base.ttl", "@base <x:/> . <a> <r> <b> .", "", {("x:/a", "x:/r", "x:/b")}),
    ("a.ttl", "@prefix e: <x:> . e:a a e:b .", "",
     {("x:a", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "x:b")}),
    ("nameless.ttl", "@prefix e: <x:> . e:a e:r [ e:s e:b ] .", "",
     {("x:a", "x:r", "_:b0"), ("_:b0", "x:s", "x:b")}),
    ("tsv-inside.ttl", "a\tr\tb\n", "", "line 1"),
    ("ok.trig", "@prefix e: <x:> . e:g { e:a e:r e:b }", "", X),
    ("ok.n3", "@prefix e: <x:> . e:a e:r e:b .", "", X),
    ("rule.n3", "@prefix e: <x:> . { ?x e:r ?y } => { ?y e:r ?x } .", "", "variable"),
    ("ok.rdf", XML + 'xmlns:e="x:"><rdf:Description rdf:about="x:a"><e:r rdf:resource="x:b"/>'
     "</rdf:Description></rdf:RDF>", "", X),
    ("half.rdf", XML + ">", "", "not valid RDF/XML: no element found"),
    ("cut-between.rdf", XML + 'xmlns:e="x:"><rdf:Description rdf:about="x:a"><e:r rdf:resource='
     '"x:b"/></rdf:Description>', "", "Is the file cut off?"),
    ("html.rdf", "<html><body>Not found</body></html>", "", "not valid RDF/XML"),
    ("entities.xml", '<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><x>&b;</x>', "",
     "not valid RDF/XML"),
    ("ok.jsonld", '{"@id": "x:a", "x:r": {"@id": "x:b"}}', "", X),
    ("list.jsonld", '[{"@id": "x:a", "x:r": {"@id": "x:b"}}]', "", X),
    ("half.jsonld", '{"@id": "x:a", ', "", "not valid JSON-LD"),
    ("remote.jsonld", '{"@context": "http://nowhere.invalid/c", "@id": "x:a"}', "",
     "not valid JSON-LD"),
    ("no-edges.jsonld", '{"name": "x"}', "", "no edges"),
    ("columns.nt", "<x:a> <x:r> <x:b> .\n", "--columns head=1,relation=2,tail=3", X),
    ("delimiter.nt", "<x:a> <x:r> <x:b> .\n", "--delimiter ,", X),
]  # fmt: skip


def parquet(**columns: Any) -> bytes:
    """Return a Parquet file of these columns."""
    import polars as pl

    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def parquet_table() -> list[tuple[str, bytes, str, set[Triple] | str]]:
    """Return the Parquet files; made when they are needed, since polars takes a while to load."""
    h, r, o = ["a"], ["r"], ["b"]
    return [
        ("ok.parquet", parquet(head=h, relation=r, tail=o), "", AB),
        ("turned.parquet", parquet(tail=o, relation=r, head=h), "", AB),
        ("other-names.parquet", parquet(x=h, y=r, z=o), "", AB),
        ("numbers.parquet", parquet(head=[1], relation=[2], tail=[3]), "", t("1 2 3")),
        ("dates.parquet", parquet(head=h, relation=r, tail=[True]), "", t("a r true")),
        ("null.parquet", parquet(head=["a", None], relation=["r"] * 2, tail=["b"] * 2), "",
         "row 2"),
        ("nan.parquet", parquet(head=[1.5, float("nan")], relation=["r"] * 2, tail=["b"] * 2), "",
         "row 2"),
        ("empty-name.parquet", parquet(head=[""], relation=r, tail=o), "", "row 1"),
        ("lists.parquet", parquet(head=[["a"]], relation=r, tail=o), "", "head"),
        ("structs.parquet", parquet(head=[{"x": 1}], relation=r, tail=o), "", "head"),
        ("bytes.parquet", parquet(head=[b"\xff"], relation=r, tail=o), "", "head"),
        ("no-rows.parquet", parquet(head=[], relation=[], tail=[]), "", "no rows"),
        ("two-columns.parquet", parquet(head=h, tail=o), "", "relation"),
        ("four.parquet", parquet(a=h, b=r, c=o, d=o), "", "--columns"),
        ("four-told.parquet", parquet(a=h, b=r, c=o, d=o),
         "--columns head=a,relation=b,tail=c", AB),
        ("four-known.parquet", parquet(head=h, relation=r, tail=o, d=o), "", AB),
        ("cut.parquet", parquet(head=h, relation=r, tail=o)[:40], "", "not a valid Parquet"),
        ("nothing.parquet", b"", "", "not a valid Parquet"),
        ("gzipped.parquet.gz", gzip.compress(parquet(head=h, relation=r, tail=o)), "", AB),
    ]  # fmt: skip
