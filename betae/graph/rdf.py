"""RDF: any syntax read into edges, literals and prefixes, and written back, through pyoxigraph.

A name that is an IRI is written unchanged, and `_:x` as a blank node. Any other name is written
percent-encoded after `urn:betae:`, and decoded when it is read.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import quote, unquote
from xml.parsers import expat

import polars as pl
import pyoxigraph as ox

from betae.errors import TripleError
from betae.graph.delimited import STRINGS
from betae.graph.literals import NAME, NAMED, RDF
from betae.graph.source import Content, Source, explaining_gzip

TRIPLES_PER_BATCH = 100_000
PARSER_POSITION = re.compile(r"^Parser error at line \d+ [^:]*: ")  # TripleError has the line
RELATIVE = " Write absolute IRIs, or declare a base: @base <http://example.org/> ."
RDF_FORMATS = {".nt": ox.RdfFormat.N_TRIPLES, ".ttl": ox.RdfFormat.TURTLE}
OTHER_NAMES = "urn:betae:"
PROBABILITY = ox.NamedNode(OTHER_NAMES + "probability")
REIFIES = ox.NamedNode(RDF + "reifies")
BLANK = "_:"
RANDOM_ID = re.compile("[0-9a-f]{20,32}")  # given by pyoxigraph to nodes without a name
BLANK_LABEL = re.compile(r"\w(?:[\w.-]*[\w-])?", re.ASCII)  # allowed after _: in every syntax


def rdf_format(suffix: str) -> ox.RdfFormat | None:
    """Return the RDF syntax of a file ending, if it has one."""
    return ox.RdfFormat.from_extension(suffix.removeprefix("."))


# ---- reading ------------------------------------------------------------------------------------


def read_rdf(
    source: Source, content: Content, syntax: ox.RdfFormat, blank_node_prefix: str = ""
) -> Iterator[pl.DataFrame]:
    """Yield the edges of a file in batches, with `blank_node_prefix` in names of blank nodes."""
    has_nameless = syntax not in (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
    name_of, is_empty = _Naming(blank_node_prefix, has_nameless), True
    about_triples: set[Any] = set()
    try:
        with explaining_gzip(source.path), source.open() as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            parser = ox.parse(input=file, format=syntax)
            while quads := list(islice(parser, TRIPLES_PER_BATCH)):
                edges, literals = _sorted_out(quads, content, name_of, about_triples)
                is_empty = is_empty and not edges and not literals
                if literals:
                    content.literals.append(pl.DataFrame(literals, schema=NAMED, orient="row"))
                    content.report.literals += len(literals)
                yield pl.DataFrame(edges, schema=STRINGS, orient="row")
            content.prefixes = {**parser.prefixes, **content.prefixes}
            if syntax == ox.RdfFormat.RDF_XML:
                _check_is_whole(file, source)
    except SyntaxError as error:
        message = PARSER_POSITION.sub("", error.msg)
        hint = RELATIVE if "No scheme found" in message else ""
        raise TripleError(
            f"not valid {syntax.name}: {message}.{hint}", source.path, error.lineno
        ) from error
    if is_empty:
        raise TripleError("the file has no triples.", source.path)
    content.blank_nodes |= set(name_of.blank.values())


def _check_is_whole(file: IO[bytes], source: Source) -> None:
    """Raise if XML is truncated: pyoxigraph accepts it."""
    file.seek(0)
    try:
        expat.ParserCreate().ParseFile(file)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise TripleError(
            f"not valid RDF/XML: {message}. Is the file cut off?", source.path, error.lineno
        ) from error


def _sorted_out(
    quads: Iterable[ox.Quad], content: Content, name_of: _Naming, about_triples: set[Any]
) -> tuple[list[tuple[str, str, str]], list[tuple[str, ...]]]:
    """Return the edges and the literals of quads; `about_triples` collects their subjects."""
    edges: list[tuple[str, str, str]] = []
    literals: list[tuple[str, ...]] = []
    for quad in quads:
        subject, predicate, value = quad.subject, quad.predicate, quad.object
        if isinstance(subject, ox.Triple) or isinstance(value, ox.Triple):
            about_triples.add(subject)
            content.report.quoted_triples_skipped += 1
        elif about_triples and subject in about_triples:
            content.report.quoted_triples_skipped += 1
        elif not isinstance(value, ox.Literal):
            edges.append((name_of(subject), name_of(predicate), name_of(value)))
        else:
            text, owner = value.value, name_of(subject)
            language = value.language or ""
            if value.direction:  # as in Turtle: "text"@en--ltr
                language += f"--{value.direction}"
            literals.append((owner, name_of(predicate), text, value.datatype.value, language))
    return edges, literals


def _decoded(iri: str) -> str:
    name = unquote(iri.removeprefix(OTHER_NAMES))
    is_encoded = name and _encoded(name) == iri  # else two IRIs could get the same name
    return name if is_encoded else iri


class _Naming:
    """Name RDF terms. Blank nodes keep their names; those without one are numbered."""

    def __init__(self, blank_node_prefix: str, has_nameless: bool):
        self.prefix, self.has_nameless = blank_node_prefix, has_nameless
        self.blank: dict[str, str] = {}  # pyoxigraph's name -> name
        self.taken: set[str] = set()
        self.decoded = cache(_decoded)

    def __call__(self, term: ox.NamedNode | ox.BlankNode) -> str:
        value = term.value
        if isinstance(term, ox.NamedNode):
            return self.decoded(value) if value.startswith(OTHER_NAMES) else value
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
    literals: pl.DataFrame | None = None,
    prefixes: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write edges and literals (frames of names); prefixes if the syntax has any."""
    term, predicate, datatype = cache(node_of), cache(_named_node), cache(ox.NamedNode)
    edges = (
        ox.Triple(term(head), predicate(relation), term(tail))
        for head, relation, tail in triples.iter_rows()
    )
    of_literals = (
        ox.Triple(
            term(subject),
            predicate(name),
            term(text) if kind == NAME else _literal(text, datatype(kind), language),
        )
        for subject, name, text, kind, language in (
            () if literals is None else literals.iter_rows()
        )
    )
    ox.serialize(chain(edges, of_literals), file, syntax, prefixes=dict(prefixes))


def write_probabilities(edges: pl.DataFrame, file: IO[bytes], syntax: ox.RdfFormat) -> None:
    """Write edges and, about each by a triple term of RDF 1.2, its probability."""

    def statements() -> Iterator[ox.Triple]:
        for number, (head, relation, tail, probability) in enumerate(edges.iter_rows()):
            edge = ox.Triple(node_of(head), _named_node(relation), node_of(tail))
            reifier = ox.BlankNode(f"edge{number}")
            yield edge
            yield ox.Triple(reifier, REIFIES, edge)
            yield ox.Triple(reifier, PROBABILITY, ox.Literal(float(probability)))

    ox.serialize(statements(), file, syntax)


def _literal(text: str, datatype: ox.NamedNode, language: str) -> ox.Literal:
    if not language:
        return ox.Literal(text, datatype=datatype)
    language, _, direction = language.partition("--")
    return ox.Literal(
        text, language=language, direction=ox.BaseDirection(direction) if direction else None
    )


def name_of(term: ox.NamedNode | ox.BlankNode) -> str:
    """Return the name that `node_of` made a term of."""
    if isinstance(term, ox.BlankNode):
        return BLANK + term.value
    return _decoded(term.value) if term.value.startswith(OTHER_NAMES) else term.value


def node_of(name: str) -> ox.NamedNode | ox.BlankNode:
    """Return the IRI, or the blank node, that stands for a name."""
    label = name.removeprefix(BLANK)
    if name != label and BLANK_LABEL.fullmatch(label) and not RANDOM_ID.fullmatch(label):
        return ox.BlankNode(label)
    return _named_node(name)


def _named_node(name: str) -> ox.NamedNode:
    # Readers disagree on IRIs with line separators and other invisible characters.
    if not name.startswith(OTHER_NAMES) and name.isprintable():
        try:
            return ox.NamedNode(name)
        except ValueError:
            pass
    return ox.NamedNode(_encoded(name))


def _encoded(name: str) -> str:
    return OTHER_NAMES + quote(name, safe="")
