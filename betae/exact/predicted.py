"""SPARQL over the completed graph: the answers of a tree, with ?probability and ?status.

    SELECT ?x ?probability { <France> <capital> ?x FILTER(?probability > 0.3) }
    ORDER BY DESC(?probability) LIMIT 5

The pattern is a tree, which `betae.answering.answerer` answers. Filters on ?probability and
?status, and all that stands around the pattern (SELECT, GROUP BY, HAVING, ORDER BY, LIMIT), are
evaluated on its answers, by rdflib. That needs no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from betae.exact.sparql import SHORT, Table, resolve_names
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.rdf import node_of
from betae.queries.formula import Question
from betae.queries.read import resolve_question
from betae.queries.sparql import parse_predicted, parsed_text, split_predicted

if TYPE_CHECKING:
    import pyoxigraph as ox

AnswerRow = tuple[str, float | None, str]  # entity, probability, status
MAX_ANSWERS = 1_000  # the most probable ones, on which the rest of the query is evaluated


def read_predicted(text: str, graph: KnowledgeGraph, edges: Edges = "all") -> Question:
    """Read the pattern of a query; its tree is what to ask."""
    question = resolve_question(parse_predicted(text, graph.prefixes), graph, edges=edges)
    question.tree  # noqa: B018  # raises if there is none
    return question


def finish(text: str, graph: KnowledgeGraph, variable: str, answers: Sequence[AnswerRow]) -> Table:
    """Evaluate the rest of a query on the answers of its pattern."""
    from rdflib import Graph
    from rdflib.plugins.sparql.algebra import translateQuery
    from rdflib.plugins.sparql.evaluate import evalQuery
    from rdflib.plugins.sparql.parserutils import CompValue
    from rdflib.term import Literal
    from rdflib.term import Variable as SparqlVariable

    parsed = parsed_text(resolve_names(text, graph))
    query = parsed[1]
    filters, _ = split_predicted(query)
    names = [SparqlVariable(name) for name in (variable, "probability", "status")]
    rows = [
        [_to_rdflib(node_of(entity)), _probability(p), Literal(status)]
        for entity, p, status in answers
    ]
    if not rows:  # rdflib fails at VALUES without any
        rows = [["UNDEF"] * len(names)]
        filters += parsed_text("SELECT * { FILTER(false) }")[1].where.part
    query.where.part = [CompValue("InlineData", var=names, value=rows), *filters]
    query.valuesClause = None
    if not query.projection:
        query.projection = [CompValue("vars", var=name) for name in names]
    found = evalQuery(Graph(), translateQuery(parsed, initNs=SHORT | dict(graph.prefixes)), {})
    variables = [str(name) for name in found["vars_"]]
    solutions = [
        tuple(_to_pyoxigraph(row.get(name)) for name in found["vars_"]) for row in found["bindings"]
    ]
    return Table(graph, tuple(variables), solutions)


def _probability(value: float | None) -> Any:
    from rdflib.term import Literal

    return "UNDEF" if value is None else Literal(float(f"{value:.6g}"))


def _to_rdflib(node: ox.NamedNode | ox.BlankNode) -> Any:
    import pyoxigraph as ox
    from rdflib.term import BNode, URIRef

    return URIRef(node.value) if isinstance(node, ox.NamedNode) else BNode(node.value)


def _to_pyoxigraph(term: Any) -> Any:
    import pyoxigraph as ox
    from rdflib.term import BNode, URIRef

    if term is None:
        return None
    if isinstance(term, URIRef):
        return ox.NamedNode(str(term))
    if isinstance(term, BNode):
        return ox.BlankNode(str(term))
    if term.language:
        return ox.Literal(str(term), language=term.language)
    datatype = term.datatype and ox.NamedNode(str(term.datatype))
    return ox.Literal(str(term), datatype=datatype)
