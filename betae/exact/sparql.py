"""SPARQL 1.1 Query over the facts of a graph, by pyoxigraph.

The facts are edges, literals and classes, as `graph.export("facts.nt")` writes them. They are
loaded once into a store, which is kept in the graph's folder and goes with it when the graph is
written anew.

Names may be written as elsewhere: `<Europe>`, or `:Europe` under `PREFIX : <>`, is an entity, a
relation, a property or a class by its name, or an entity or a relation by its label, with `%20` for
a space. The graph's prefixes need no declaration. SERVICE is refused: queries stay on this machine.
Where the system can, they are evaluated in a thread that cannot open sockets.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from betae.errors import (
    AmbiguousName,
    QuerySyntaxError,
    StoreError,
    UnknownName,
    UnresolvedName,
    UnsupportedQuery,
)
from betae.exact.isolated import CAN_DENY, isolated
from betae.graph.edges import EDGES, Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.queries.sparql import syntax_error
from betae.storage import MANIFEST, writing_folder

if TYPE_CHECKING:
    import polars as pl
    import pyoxigraph as ox

STORE = "sparql"  # folder of the stores in that of a graph
OWN_NAMES = "urn:betae:"  # begins the IRIs of names that are not IRIs
SHORT = {"betae": OWN_NAMES}
NO_SERVICE = "SERVICE is not allowed: queries stay on this machine."
KEYWORD = re.compile("(ser)v(ice)", flags=re.IGNORECASE)
MAX_BRACKETS = 500
POSITION = re.compile(r"error at (\d+):(\d+)")
IRI = r"<(?P<{}>[^<>\"{{}}|^`\\\x00-\x20]*)>"
TOKEN = re.compile(
    rf"""
    (?i:\bBASE)\s*{IRI.format("base")}
    | (?i:\bPREFIX)\s+(?P<declared>[\w.-]*):\s*{IRI.format("start")}
    | (?P<skipped>\"{{3}}(?s:.*?)\"{{3}} | '{{3}}(?s:.*?)'{{3}}
        | \"(?:\\.|[^\"\\\n])*\" | '(?:\\.|[^'\\\n])*' | \#[^\n]* | [?$]\w+)
    | {IRI.format("iri")}
    | (?P<prefix>(?:[^\W\d][\w.-]*)?):(?P<local>(?:[\w:%.-]|\\.)*[\w:%-]|)
    """,
    flags=re.VERBOSE,
)
HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
IN_EXPRESSION = re.compile(r"[?$&=(),;!*]")  # between a `<` and a `>` that compare


class Solutions:
    """The result of a SPARQL query; reading it evaluates the query, anew each time.

    `kind` is "select", "ask" or "construct", which DESCRIBE is too.
    """

    def __init__(self, graph: KnowledgeGraph, text: str, edges: Edges):

        _refuse_deep(text)
        self.graph, self.text, self.edges = graph, text, edges
        self.prefixes = SHORT | dict(graph.prefixes)
        self.resolved = text
        try:
            self.resolved = resolve_names(text, graph)
        except UnresolvedName:
            self._check()  # raises if it is not valid either, which matters more
            raise
        self.kind, self.variables = self._check()

    def _check(self) -> tuple[str, tuple[str, ...]]:
        """Return the kind and the variables of the query; raise if it is not valid."""
        import pyoxigraph as ox

        def check() -> Iterator[tuple[str, tuple[str, ...]]]:
            found = self.evaluate(ox.Store())
            if isinstance(found, ox.QueryBoolean):
                yield "ask", ()
            elif isinstance(found, ox.QueryTriples):
                yield "construct", ()
            else:
                yield "select", tuple(variable.value for variable in found.variables)

        if not CAN_DENY and KEYWORD.search(self.text):
            raise UnsupportedQuery(f"{NO_SERVICE} On this system, leave out the word everywhere.")
        (checked,) = isolated(check)
        if has_service(self.resolved, self.prefixes):
            raise UnsupportedQuery(NO_SERVICE)
        return checked

    def evaluate(self, store: ox.Store | None = None) -> Any:
        """Return pyoxigraph's result, which must be read in the same thread."""
        store = open_store(self.graph, self.edges) if store is None else store
        with _explaining(self.text, self.prefixes):
            return store.query(self.resolved, base_iri=OWN_NAMES, prefixes=self.prefixes)

    def __bool__(self) -> bool:
        """The answer of ASK; whether there is any solution or triple, of the others."""
        if self.kind == "ask":
            store = open_store(self.graph, self.edges)
            return next(isolated(lambda: [bool(self.evaluate(store))]))
        return next(self.terms(), None) is not None

    def terms(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the solutions, or the triples, as terms of pyoxigraph; None if unbound."""
        store = open_store(self.graph, self.edges)
        with _explaining(self.text, self.prefixes):
            yield from isolated(lambda: map(tuple, self.evaluate(store)))

    def triples(self) -> pl.DataFrame:
        """Return the triples of CONSTRUCT or DESCRIBE: a frame of head, relation and tail.

        Entities and relations are names, literals as in N-Triples: `"12"^^<...#integer>`.
        """
        import polars as pl
        import pyoxigraph as ox

        from betae.graph.rdf import name_of

        def cell(term: Any) -> str:
            is_name = isinstance(term, ox.NamedNode | ox.BlankNode)
            return name_of(term) if is_name else str(term)

        rows = [tuple(map(cell, triple)) for triple in self.terms()]
        return pl.DataFrame(rows, schema=["head", "relation", "tail"], orient="row")


class Table(Solutions):
    """Solutions that are known already, as terms of pyoxigraph; None if unbound."""

    def __init__(
        self, graph: KnowledgeGraph, variables: tuple[str, ...], rows: list[tuple[Any, ...]]
    ):
        self.graph, self.edges, self.prefixes = graph, "all", {}
        self.kind, self.variables, self.rows = "select", variables, rows
        self.text = self.resolved = ""

    def evaluate(self, store: ox.Store | None = None) -> Any:  # noqa: ARG002
        """Return the solutions as a result of pyoxigraph, in their order."""
        import pyoxigraph as ox

        head = " ".join(f"?{name}" for name in self.variables)
        rows = (" ".join(str(term or "UNDEF") for term in row) for row in self.rows)
        values = " ".join(f"({row})" for row in rows)
        return ox.Store().query(f"SELECT {head} {{ VALUES ({head}) {{ {values} }} }}")

    def terms(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the solutions."""
        return iter(self.rows)


def names_and_labels(graph: KnowledgeGraph) -> Callable[[Any], tuple[str | None, str | None]]:
    """Return the function from a term to its name, or its text, and the label to show."""
    import pyoxigraph as ox

    from betae.graph.rdf import name_of

    @cache
    def cells(term: Any) -> tuple[str | None, str | None]:
        if term is None:
            return None, None
        if isinstance(term, ox.Literal):
            return term.value, term.value
        if isinstance(term, ox.Triple):
            return str(term), str(term)
        name = name_of(term)
        for names in (graph.entities, graph.relations):
            if found := names.names.find(name):
                return name, shorten(names.label(found[0]), graph.prefixes)
        return name, shorten(name, graph.prefixes)

    return cells


def has_service(text: str, prefixes: Mapping[str, str] | None = None) -> bool:
    """Tell whether a valid query has the keyword SERVICE, which is not always "service".

    With a letter of it changed, it is no longer valid; with one of a name or a string changed, it
    is. This is for a clear error: what keeps a query here is that its thread has no network.
    """
    import pyoxigraph as ox

    def changed(part: str) -> str:
        return KEYWORD.sub(r"\1w\2", part)

    if not KEYWORD.search(text):
        return False
    known = {changed(prefix): iri for prefix, iri in (prefixes or {}).items()}
    try:
        ox.Store().query(changed(text), base_iri=OWN_NAMES, prefixes=known)
    except SyntaxError:
        return True
    except RuntimeError:  # such as an unknown function
        pass
    return False


def _refuse_deep(text: str) -> None:
    """Raise if a query is nested too deeply: pyoxigraph's parser would exhaust the stack."""
    depth = deepest = 0
    for bracket in re.findall(r"[(){}\[\]]", text):
        depth += 1 if bracket in "({[" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_BRACKETS or re.search(rf"(?:[!+-]\s*){{{MAX_BRACKETS}}}", text):
        raise UnsupportedQuery(f"This query is nested more than {MAX_BRACKETS} brackets deep.")


@contextmanager
def _explaining(text: str, prefixes: dict[str, str]) -> Iterator[None]:
    """Turn pyoxigraph's errors into those of the library."""
    import pyoxigraph as ox

    try:
        yield
    except SyntaxError as error:
        fault = error
        try:  # for the position in the text as it was written
            ox.Store().query(text, base_iri=OWN_NAMES, prefixes=prefixes)
        except SyntaxError as written:
            fault = written
        raise _syntax_error(text, fault, prefixes) from None
    except RuntimeError as error:  # such as an unknown function
        raise UnsupportedQuery(f"The query cannot be evaluated: {error}.") from None
    except OSError as error:
        if KEYWORD.search(text):  # an ASK is evaluated as soon as it is read
            raise UnsupportedQuery(NO_SERVICE) from None
        raise StoreError(f"The store for SPARQL cannot be read: {error}.") from error


def _syntax_error(text: str, error: SyntaxError, prefixes: dict[str, str]) -> QuerySyntaxError:
    """Point to where pyoxigraph stopped; its list of what it expected is too long to show."""
    found = POSITION.search(str(error))
    if found is None:
        return QuerySyntaxError(f"This is not valid SPARQL: {error}.", text, 0)
    before = text.split("\n")[: int(found[1]) - 1]
    position = sum(len(line) + 1 for line in before) + int(found[2]) - 1
    known = {*prefixes, *(token["declared"] for token in TOKEN.finditer(text))}
    for token in TOKEN.finditer(text):
        if (prefix := token["prefix"]) not in (None, "_") and prefix not in known:
            message = f"The prefix {prefix}: is not declared: write PREFIX {prefix}: <…> first."
            return QuerySyntaxError(message, text, token.start())
    return syntax_error(text, position)


# ---- names --------------------------------------------------------------------------------------


def resolve_names(text: str, graph: KnowledgeGraph) -> str:
    """Write the IRIs of the graph for the names and labels in a query.

    IRIs with a scheme stay, and all do after a BASE. A name that the graph does not have is an
    error, as nothing could answer it; CONSTRUCT may use new ones.
    """
    allows_new = re.search(r"\bCONSTRUCT\b", text, flags=re.IGNORECASE) is not None
    plain: dict[str, str] = {}  # prefixes whose IRI has no scheme
    has_base = False

    def replaced(token: re.Match[str]) -> str:
        nonlocal has_base
        if token["base"] is not None:
            has_base = bool(HAS_SCHEME.match(token["base"]))
            return token[0] if has_base else ""
        if token["declared"] is not None:
            plain.pop(token["declared"], None)
            if has_base or HAS_SCHEME.match(token["start"]):
                return token[0]
            plain[token["declared"]] = token["start"]
            return f"PREFIX {token['declared']}: <{OWN_NAMES}>"
        if token["iri"] is not None and not has_base:
            return _iri(token["iri"], graph, allows_new) or token[0]
        if token["prefix"] in plain:
            local = re.sub(r"\\(.)", r"\1", token["local"])
            return _iri(plain[token["prefix"]] + local, graph, allows_new, True) or token[0]
        return token[0]

    return TOKEN.sub(replaced, text)


def _iri(text: str, graph: KnowledgeGraph, allows_new: bool, is_name: bool = False) -> str | None:
    """Return the IRI in <> of a name or a label; None to leave the text as it is."""
    from betae.graph.rdf import node_of

    tables = (graph.entities, graph.relations, graph.literals.properties, graph.classes)
    for name in dict.fromkeys((text, unquote(text))):
        if any(table.names.find(name) for table in tables):
            node = node_of(name)
            return str(node) if str(node).startswith("<") else None
    if not is_name and (HAS_SCHEME.match(text) or IN_EXPRESSION.search(text)):
        return None
    label = unquote(text)
    found = [
        table[index]
        for table in (graph.entities, graph.relations)
        for index in table.labels.find(label)
    ]
    if len(found) == 1:
        return str(node_of(found[0]))
    if found:
        raise AmbiguousName(label, found, "entities or relations")
    if allows_new:
        return str(node_of(label))
    similar = (graph.relations, graph.literals.properties, graph.entities)
    closest = [name for table in similar for name in table.closest(label, graph.prefixes)[:2]]
    raise UnknownName(label, list(dict.fromkeys(closest))[:3])


# ---- the store ----------------------------------------------------------------------------------


def open_store(graph: KnowledgeGraph, edges: Edges, elsewhere: Path | None = None) -> ox.Store:
    """Open the store of a graph's facts; make it first if there is none.

    A graph in memory has it in memory. That of a stored graph is in its folder, or in `elsewhere`
    (by default a temporary folder) if nothing can be written there.
    """
    import pyoxigraph as ox

    edges = _least_edges(graph, edges)
    if edges not in graph.stores:
        if graph.folder is None:
            store = ox.Store()
            _load(store, graph, edges)
        else:
            store = ox.Store.read_only(str(store_folder(graph, edges, elsewhere)))
        graph.stores[edges] = store
    found: ox.Store = graph.stores[edges]
    return found


def store_folder(graph: KnowledgeGraph, edges: Edges, elsewhere: Path | None = None) -> Path:
    """Return the folder of the store of a stored graph's facts; make it if there is none."""
    assert graph.folder is not None
    name = f"{_least_edges(graph, edges)}-{_version(graph.folder)}"
    for parent in (graph.folder / STORE, elsewhere):
        if parent is not None and (parent / name).is_dir():
            return parent / name
    try:
        return _write_store(graph, edges, graph.folder / STORE / name)
    except StoreError:  # the folder is read-only, or its disk full
        if elsewhere is None:
            elsewhere = Path(tempfile.mkdtemp(prefix="betae-sparql-"))
            atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        return _write_store(graph, edges, elsewhere / name)


def _version(folder: Path) -> str:
    """Return the beginning of the checksum of a graph's manifest: that of all its parts."""
    return str(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"])[:16]


def _least_edges(graph: KnowledgeGraph, edges: Edges) -> Edges:
    """Return the first of the choices of edges that has the same edges."""
    choices = list(EDGES)
    while edges != choices[0] and not len(graph.written_ids[EDGES[edges][-1]]):
        edges = choices[choices.index(edges) - 1]
    return edges


def _write_store(graph: KnowledgeGraph, edges: Edges, target: Path) -> Path:
    import pyoxigraph as ox

    try:
        with writing_folder(target) as partial:
            store = ox.Store(str(partial / "facts"))
            _load(store, graph, edges)
            store.flush()
            del store  # closes it
            for path in (partial / "facts").iterdir():
                path.rename(partial / path.name)
            (partial / "facts").rmdir()
    except StoreError:
        if not target.is_dir():  # else another process was faster
            raise
    return target


def _load(store: ox.Store, graph: KnowledgeGraph, edges: Edges) -> None:
    import pyoxigraph as ox

    from betae.graph.rdf import write_rdf

    with tempfile.TemporaryFile() as file:
        literals = graph.literals.named(graph.entities, graph.relations)
        write_rdf(graph.to_polars(EDGES[edges]), file, ox.RdfFormat.N_TRIPLES, literals)
        file.seek(0)

        def load() -> Iterator[bool]:
            store.bulk_load(input=file, format=ox.RdfFormat.N_TRIPLES)
            yield True

        next(isolated(load))  # Ctrl-C closes the file, which ends it
