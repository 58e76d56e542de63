"""The one reader of questions: logic text, SPARQL, trees and the release's tuples.

`read_question(question, graph)` resolves every name, so that what comes back speaks of ids alone.
`parse_question(text)` reads without a graph, and keeps names as written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from betae.errors import (
    AmbiguousName,
    InvalidArgument,
    QuerySyntaxError,
    UnknownClass,
    UnknownEntity,
    UnknownRelation,
    UnsupportedQuery,
)
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import NO_PREFIXES, Prefixes, Vocabulary, local_name
from betae.queries.ast import (
    PLACEHOLDER,
    Condition,
    Entity,
    IsA,
    Name,
    Project,
    Query,
    Where,
    rebuild,
)
from betae.queries.formula import (
    MAX_NODES,
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Meets,
    Negation,
    Question,
    Reach,
    SameValue,
    Term,
    Variable,
    to_formula,
    walk,
)
from betae.queries.mistakes import ENGLISH, is_english
from betae.queries.sparql import RDF_TYPE, parse_sparql
from betae.queries.structures import from_tuple, structure_of
from betae.queries.syntax import parse_logic

SPARQL_START = re.compile(  # after comments
    r"(\s*#(?!\d)[^\n]*\n)*\s*(select|prefix|base|ask|construct|describe)\b", flags=re.IGNORECASE
)
SUBCLASS = "http://www.w3.org/2000/01/rdf-schema#subClassOf"
SHORT_EXAMPLE = "?X . capital(France, ?X)"
EXAMPLE = f"Write logic text, such as '{SHORT_EXAMPLE}', or a SPARQL SELECT."


def read_question(
    question: str | Query | tuple[Any, ...],
    graph: KnowledgeGraph,
    max_nodes: int = MAX_NODES,
    edges: Edges = "all",
) -> Question:
    """Read a question in any notation and resolve its names on a graph.

    `question` is logic text, a SPARQL SELECT, a tree, or nested tuples of ids as in the BetaE
    release. `max_nodes` limits the size of its tree, since paths and unions can multiply. `edges`
    are those that say which class an entity is of.
    """
    if isinstance(question, tuple):
        question = from_tuple(question)
    if isinstance(question, Query):
        tree = resolve(question, graph, edges)
        structure_of(tree)  # raises if it has placeholders
        asked = Question.from_tree(tree)
        if tree != question:  # it has names
            asked.notes = _read_as(to_formula(question), graph)
        return asked
    try:
        parsed = parse_question(question, graph.prefixes)
    except QuerySyntaxError:
        if is_english(question):
            from betae.queries.english import suggest_question

            hint = suggest_question(graph, question)
            shown = ENGLISH if "?X" in hint else f"{ENGLISH}, written like this: {SHORT_EXAMPLE}"
            raise QuerySyntaxError(f"{shown}.", question, 0, hint) from None
        raise
    return resolve_question(parsed, graph, max_nodes, edges)


def resolve_question(
    parsed: Question,
    graph: KnowledgeGraph,
    max_nodes: int = MAX_NODES,
    edges: Edges = "all",
) -> Question:
    """Resolve the names of a question that was read from text."""
    parsed.scoped()  # raises if a variable is unused or bound twice
    written, parsed.max_nodes = parsed.formula, max_nodes
    parsed.formula = _resolve_formula(written, graph, edges)
    parsed.notes = _read_as(written, graph)
    return parsed


def parse_question(text: str, prefixes: Prefixes = NO_PREFIXES) -> Question:
    """Read logic text or a SPARQL SELECT; names stay as written, `prefixes` need no declaration."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{text!r} is not a question: give a tree, logic text or SPARQL.")
    if not text.strip():
        raise InvalidArgument(f"The question is empty. {EXAMPLE}")
    if _is_one_word(text):
        raise InvalidArgument(f"{text!r} is not a question. {EXAMPLE}")
    return parse_sparql(text, prefixes) if is_sparql(text) else parse_logic(text)


def is_sparql(text: str) -> bool:
    """Tell whether a text is SPARQL rather than logic text, by how it begins."""
    return SPARQL_START.match(text) is not None


def text_or_file(argument: str) -> str:
    """Return a question given on the command line, or the content of the file of that name."""
    path = Path(argument.strip())
    try:
        is_file = path.is_file()
    except OSError:  # a question may be longer than a file name can be
        is_file = False
    if not is_file and _is_one_word(argument):
        raise InvalidArgument(f"{argument!r} is neither a question nor a file.")
    if not is_file:
        return argument
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not a UTF-8 text file.") from error
    if not text.strip():
        raise InvalidArgument(f"{path} is empty. {EXAMPLE}")
    return text


def _is_one_word(text: str) -> bool:
    is_question = text.lstrip().startswith("?") or SPARQL_START.match(text)
    return len(text.split()) == 1 and not is_question


# ---- names <-> ids ------------------------------------------------------------------------------


def resolve(query: Query, graph: KnowledgeGraph, edges: Edges = "all") -> Query:
    """Replace every name in a tree by its id, and check the ids in it; keep placeholders."""

    def to_ids(node: Query) -> Query:
        if isinstance(node, Entity) and node.name is not PLACEHOLDER:
            entity = _entity_id(node.name, graph)
            return node if entity is node.name else Entity(entity)
        if isinstance(node, Condition):
            is_resolved = isinstance(node, Where) and node.members is not None
            return node if is_resolved else _resolve_condition(node, graph, edges)
        if isinstance(node, Project) and node.relation is not PLACEHOLDER:
            relation = _relation_id(node.relation, graph)
            if relation is not node.relation:
                return Project(node.operand, relation, node.is_inverse)
        return node

    return rebuild(query, to_ids)


def unresolve(query: Query, graph: KnowledgeGraph) -> Query:
    """Replace every id in a tree by its name."""

    def to_names(node: Query) -> Query:
        if isinstance(node, Entity) and isinstance(node.name, int):
            return Entity(graph.entities[node.name])
        if isinstance(node, Condition):
            return node.with_members(None)
        if isinstance(node, Project) and isinstance(node.relation, int):
            relation, is_inverse = divmod(node.relation, 2)
            return Project(node.operand, graph.relations[relation], bool(is_inverse))
        return node

    return rebuild(query, to_names)


def _resolve_formula(formula: Formula, graph: KnowledgeGraph, edges: Edges) -> Formula:
    """Replace every name in a formula by its id; refuse placeholders."""

    def term(each: Term) -> Term:
        return each if isinstance(each, Variable) else Entity(_entity_id(each.name, graph))

    def resolved(part: Formula) -> Formula:
        match part:
            case Atom(relation, head, tail):
                return Atom(_relation_id(relation, graph), term(head), term(tail))
            case Equals(one, two):
                try:
                    return Equals(term(one), term(two))
                except UnknownEntity as error:
                    raise _no_value(error) from None
            case Meets(condition, each):
                return Meets(_resolve_condition(condition, graph, edges), term(each))
            case SameValue(parts):
                _check_one_value(part, graph)
                return Conjunction(tuple(map(resolved, parts)))
            case Conjunction(parts) | Disjunction(parts):
                return type(part)(tuple(map(resolved, parts)))
            case Negation(inner):
                return Negation(resolved(inner))
            case Exists(variables, inner):
                return Exists(variables, resolved(inner))
            case Reach(step, head, tail, least, most):
                resolved(step(head, tail))  # raises for unknown names now, not when it is followed
                ends = term(head), term(tail)
                return Reach(lambda *new: resolved(step(*new)), *ends, least, most)

    return resolved(formula)


def _no_value(error: UnknownEntity) -> UnknownEntity:
    """Explain what is compared, where a name may be meant as a value."""
    text = json.dumps(error.name, ensure_ascii=False)
    error.args = (
        f"{error} `=` and `!=` compare with an entity of that name. To compare a value, name its "
        f"property: name(?X) = {text}.",
    )
    return error


def _read_as(formula: Formula, graph: KnowledgeGraph) -> tuple[str, ...]:
    """Say which names of a formula are found by ignoring case and accents."""
    found: dict[str, str] = {}
    for part, _ in walk(formula):
        terms: tuple[Term, ...] = ()
        match part:
            case Atom(relation, head, tail):
                terms = head, tail
                if isinstance(relation, str) and not graph.relations.find(relation, graph.prefixes):
                    found[relation] = graph.relation_label(graph.relation_id(relation))
            case Equals(one, two):
                terms = one, two
            case Meets(Where(name), _):
                label = local_name(graph.literals.properties[graph.property_id(name)])
                if label != name and label.casefold() == name.casefold():
                    found[name] = label
        for written in (term.name for term in terms if isinstance(term, Entity)):
            if isinstance(written, str) and not graph.entities.find(written, graph.prefixes):
                found[written] = graph.entity_label(graph.entity_id(written))
    return tuple(f"{name!r} was read as {label!r}" for name, label in found.items())


def _resolve_condition(condition: Condition, graph: KnowledgeGraph, edges: Edges) -> Condition:
    """Find the entities that meet a condition."""
    match condition:
        case Where(name, operator, value, language):
            property = graph.property_id(name)
            return condition.with_members(graph.literals.where(property, operator, value, language))
        case IsA(name):
            return condition.with_members(_members(name, graph, edges))
    raise AssertionError(condition)


def _check_one_value(formula: Formula, graph: KnowledgeGraph) -> None:
    """Raise for conditions on the same value if an entity has several."""
    conditions = (part.condition for part, _ in walk(formula) if isinstance(part, Meets))
    for name in {each.property for each in conditions if isinstance(each, Where)}:
        rows = graph.literals.of_property(graph.property_id(name))
        if num_more := int((rows["subject"].value_counts()["count"] > 1).sum()):
            raise UnsupportedQuery(
                f"{num_more:,} entities have several values of {local_name(name)}, and two "
                "conditions on the same value have exact answers only (`betae query`)."
            )


def _members(name: Name, graph: KnowledgeGraph, edges: Edges) -> Ids:
    """Return the entities of a class: by edges `rdf:type`, subclasses too, or by node tables."""
    if name is PLACEHOLDER:
        raise InvalidArgument("_ is a placeholder for an entity or a relation: name a class.")
    types, below = (edges_named(graph, relation, "all") for relation in (RDF_TYPE, SUBCLASS))
    known = {*types[:, 1].tolist(), *below.ravel().tolist()}
    wanted = graph.entities[name] if isinstance(name, int) else str(name)
    found = known & {*graph.entities.find(wanted, graph.prefixes)}
    found = found or {i for i in known if local_name(graph.entities[i]) == wanted}
    if len(found) > 1:
        raise AmbiguousName(wanted, [graph.entities[i] for i in sorted(found)], "classes")
    members = graph.literals.members(wanted)
    if not found and not len(members):
        names = Vocabulary.of([*graph.classes, *(graph.entities[i] for i in sorted(known))])
        raise UnknownClass(wanted, names.closest(wanted, graph.prefixes))
    while more := {*below[np.isin(below[:, 1], [*found])][:, 0].tolist()} - found:
        found |= more
    types = edges_named(graph, RDF_TYPE, edges)
    return np.union1d(members, types[np.isin(types[:, 1], [*found]), 0]).astype(np.int32)


def edges_named(graph: KnowledgeGraph, relation: str, edges: Edges) -> Ids:
    """Return the heads and tails of the edges of a relation by name, (n, 2)."""
    found, pairs = graph.relations.names.find(relation), [np.empty((0, 2), dtype=np.int32)]
    for triples in (graph.written_ids[split] for split in EDGES[edges] if found):
        pairs.append(triples[np.isin(triples[:, 1], found)][:, [0, 2]])
    return np.concatenate(pairs)


def _entity_id(name: Name, graph: KnowledgeGraph) -> int:
    """Return the id of an entity by name, or check an id."""
    if isinstance(name, str):
        return graph.entity_id(name)
    if int(name) >= graph.num_entities:
        raise UnknownEntity(f"#{name}", [f"#0 to #{graph.num_entities - 1}"])
    return int(name)


def _relation_id(name: Name, graph: KnowledgeGraph) -> int:
    """Return the id of a relation by name, or check the id of a directed relation."""
    if isinstance(name, str):
        found = graph.relation_id(name)
        if found % 2:  # the name was read as the inverse of another relation
            raise UnknownRelation(name, [graph.relations[found // 2]])
        return found
    if int(name) >= graph.num_relations:
        raise UnknownRelation(f"#{name}", [f"#0 to #{graph.num_relations - 1}"])
    return int(name)
