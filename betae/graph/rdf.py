"""RDF: any syntax read into edges, labels and prefixes, and written back, through pyoxigraph.

A name that is an IRI is written as it is, and `_:x` as a blank node. Any other name is written as
an IRI that begins with `urn:betae:`, percent-encoded, and decoded when it is read again.
"""

from __future__ import annotations

import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import IO
from urllib.parse import quote, unquote
from xml.parsers import expat

import polars as pl
import pyoxigraph as ox

from betae.errors import TripleError
from betae.graph.delimited import Schema
from betae.graph.labels import Label
from betae.graph.source import TRUNCATED, Source

STRINGS = dict.fromkeys(("head", "relation", "tail"), pl.String())
BATCH = 100_000
PLACE = re.compile(r"^Parser error at line \d+ [^:]*: ")  # the line is told by TripleError
RELATIVE = " Write whole IRIs, or say what they begin with: @base <http://example.org/> ."
WRITTEN = {".nt": ox.RdfFormat.N_TRIPLES, ".ttl": ox.RdfFormat.TURTLE}
OTHER_NAMES = "urn:betae:"
BLANK = "_:"
RANDOM_ID = re.compile("[0-9a-f]{20,32}")  # what pyoxigraph calls a node that has no name
BLANK_LABEL = re.compile(r"\w(?:[\w.-]*[\w-])?", re.ASCII)  # what every syntax allows after _:
RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
ALT_LABEL = "http://www.w3.org/2004/02/skos/core#altLabel"
LABELS = {  # and how good a label each gives, best first
    RDFS_LABEL: 0,
    "http://www.w3.org/2004/02/skos/core#prefLabel": 0,
    "http://xmlns.com/foaf/0.1/name": 1,
    "http://schema.org/name": 1,
    "https://schema.org/name": 1,
    ALT_LABEL: 2,
}


@dataclass
class RdfContent:
    """What an RDF file says: edges, labels, prefixes; `literals` counts what is neither."""

    triples: pl.DataFrame = field(default_factory=pl.DataFrame)
    labels: dict[str, list[Label]] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)
    blank_nodes: set[str] = field(default_factory=set)
    literals: int = 0


def rdf_format(suffix: str) -> ox.RdfFormat | None:
    """Return the syntax that a file ending stands for, if it is one of RDF's."""
    return ox.RdfFormat.from_extension(suffix.removeprefix("."))


# ---- reading ------------------------------------------------------------------------------------


def read_rdf(
    source: Source, syntax: ox.RdfFormat, schema: Schema, blank_node_prefix: str = ""
) -> RdfContent:
    """Read a file; `blank_node_prefix` goes before the names of its blank nodes."""
    has_nameless = syntax not in (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
    content, name_of = RdfContent(), _Naming(blank_node_prefix, has_nameless)
    frames = []
    try:
        with source.open() as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            parser = ox.parse(input=file, format=syntax)
            rows = _edges(parser, content, name_of)
            while batch := list(islice(rows, BATCH)):
                frame = pl.DataFrame(batch, schema=STRINGS, orient="row")
                frames.append(frame.cast(schema))
            content.prefixes = dict(parser.prefixes)
            if syntax == ox.RdfFormat.RDF_XML:
                _check_is_whole(file, source)
    except SyntaxError as error:
        message = PLACE.sub("", error.msg)
        hint = RELATIVE if "No scheme found" in message else ""
        raise TripleError(
            f"not valid {syntax.name}: {message}.{hint}", source.path, error.lineno
        ) from error
    except EOFError as error:
        raise TripleError(TRUNCATED, source.path) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TripleError(f"not a valid gzip file ({error}).", source.path) from error
    if not frames:
        raise TripleError("the file has no edges between entities.", source.path)
    content.triples = pl.concat(frames)
    content.blank_nodes = set(name_of.blank.values())
    return content


def _check_is_whole(file: IO[bytes], source: Source) -> None:
    """Raise if XML ends too early: pyoxigraph takes what there is."""
    file.seek(0)
    try:
        expat.ParserCreate().ParseFile(file)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise TripleError(
            f"not valid RDF/XML: {message}. Is the file cut off?", source.path, error.lineno
        ) from error


def _edges(
    quads: Iterable[ox.Quad], content: RdfContent, name_of: _Naming
) -> Iterator[tuple[str, str, str]]:
    for quad in quads:
        subject, predicate, value = quad.subject, quad.predicate, quad.object
        if isinstance(subject, ox.Triple) or isinstance(value, ox.Triple):
            content.literals += 1  # a triple about a triple is not an edge either
        elif not isinstance(value, ox.Literal):
            yield name_of(subject), name_of(predicate), name_of(value)
        elif predicate.value in LABELS:
            label = Label(value.value, value.language or "", LABELS[predicate.value])
            content.labels.setdefault(name_of(subject), []).append(label)
        else:
            content.literals += 1


class _Naming:
    """Names of RDF terms. Blank nodes keep their own names, those without one are numbered."""

    def __init__(self, blank_node_prefix: str, has_nameless: bool):
        self.prefix, self.has_nameless = blank_node_prefix, has_nameless
        self.blank: dict[str, str] = {}  # as pyoxigraph calls them -> name
        self.taken: set[str] = set()
        self.decoded: dict[str, str] = {}

    def _decoded(self, iri: str) -> str:
        if iri not in self.decoded:
            name = unquote(iri.removeprefix(OTHER_NAMES))
            is_ours = name and _encoded(name) == iri  # else two IRIs could become one name
            self.decoded[iri] = name if is_ours else iri
        return self.decoded[iri]

    def __call__(self, term: ox.NamedNode | ox.BlankNode) -> str:
        value = term.value
        if isinstance(term, ox.NamedNode):
            return self._decoded(value) if value.startswith(OTHER_NAMES) else value
        if value not in self.blank:
            given, number = value, len(self.blank)
            is_nameless = self.has_nameless and RANDOM_ID.fullmatch(value)
            while given in self.taken or (is_nameless and given == value):
                given, number = f"b{number}", number + 1
            self.taken.add(given)
            self.blank[value] = f"{BLANK}{self.prefix}{given}"
        return self.blank[value]


# ---- writing ------------------------------------------------------------------------------------


def write_rdf(
    triples: pl.DataFrame,
    file: IO[bytes],
    syntax: ox.RdfFormat,
    labels: Mapping[str, Sequence[Label]],
    prefixes: Mapping[str, str],
) -> None:
    """Write edges and the labels of their names, with the prefixes if the syntax has any."""
    names = {name for column in triples for name in column.unique()}
    terms = {name: _term(name) for name in names}
    predicates = {name: _named_node(name) for name in triples["relation"].unique()}
    edges = (
        ox.Triple(terms[head], predicates[relation], terms[tail])
        for head, relation, tail in triples.iter_rows()
    )
    said = (
        ox.Triple(
            terms[name],
            ox.NamedNode(RDFS_LABEL if number == 0 else ALT_LABEL),
            ox.Literal(label.text, language=label.language or None),
        )
        for name, all_of_it in labels.items()
        if name in terms
        for number, label in enumerate(all_of_it)
    )
    ox.serialize(chain(edges, said), file, syntax, prefixes=dict(prefixes))


def _term(name: str) -> ox.NamedNode | ox.BlankNode:
    label = name.removeprefix(BLANK)
    if name != label and BLANK_LABEL.fullmatch(label) and not RANDOM_ID.fullmatch(label):
        return ox.BlankNode(label)
    return _named_node(name)


def _named_node(name: str) -> ox.NamedNode:
    # Readers differ on IRIs with line separators and other invisible characters.
    if not name.startswith(OTHER_NAMES) and name.isprintable():
        try:
            return ox.NamedNode(name)
        except ValueError:
            pass
    return ox.NamedNode(_encoded(name))


def _encoded(name: str) -> str:
    return OTHER_NAMES + quote(name, safe="")
