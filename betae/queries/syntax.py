"""Logic text <-> trees.

    ?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)

Target (or targets, `?X, ?Y`), dot, formula. `&` `|` `!` `exists … :` or `∧` `∨` `¬` `∃`, and
parentheses; `!` binds tightest, then `&` and `-`, then `|`; `exists` reaches as far right as it
can. `a - b` is `a & !b`. An atom is `relation(head, tail)`, `?X = entity` or `?X != entity`;
`~relation` is the inverse. A name is a bare word, a "quoted string" (or 'quoted'), an `<iri>` or an
id, `#12`. What is quoted is always a name. `# …` is a comment, to the end of the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

from betae.errors import InvalidArgument, QuerySyntaxError, UnsupportedQuery
from betae.graph.graph import INVERSE
from betae.queries.ast import (
    PLACEHOLDER,
    And,
    Entity,
    Kind,
    Name,
    Not,
    Or,
    Project,
    Query,
    escape,
    inverse,
    too_deep,
    unescape,
)
from betae.queries.formula import (
    MAX_NESTING,
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Negation,
    Question,
    Term,
    Variable,
)
from betae.queries.trees import to_tree

if TYPE_CHECKING:
    from lark import Lark, Token

BARE_NAME = r"[\w/][\w/:.+\-]*"
GRAMMAR = rf"""
    start: VARIABLE (","? VARIABLE)* "." formula
    ?formula: conjunction | conjunction (_OR conjunction)+     -> disjunction
    ?conjunction: unary | unary (_AND unary | difference)+      -> conjunction
    difference: _MINUS unary                                    -> negation
    ?unary: _NOT unary                                          -> negation
        | _EXISTS VARIABLE (","? VARIABLE)* (":" | ".") formula -> exists
        | "(" formula ")"
        | relation "(" term "," term ")"                        -> atom
        | term "=" term                                         -> equals
        | term _DIFFERS term                                    -> differs
    relation: INVERSE? name
    ?term: VARIABLE -> variable | name -> entity
    name: BARE | STRING | QUOTED | IRI | ID
    _OR: "|" | "∨"
    _AND: "&" | "∧"
    _MINUS: "-" | "∖"
    _NOT: "!" | "¬"
    _DIFFERS: "!=" | "≠"
    _EXISTS.2: /exists(?![\w\/:.+\-])|∃/
    INVERSE: "{INVERSE}"
    VARIABLE: /\?\w+/
    BARE: /{BARE_NAME.replace("/", chr(92) + "/")}/
    STRING: /"(\\(["\\\/bfnrt]|u[0-9a-fA-F]{{4}})|[^"\\])*"/
    QUOTED: /'(\\(['"\\\/bfnrt]|u[0-9a-fA-F]{{4}})|[^'\\])*'/
    IRI: /<[^<>\s]*>/
    ID: /#\d+/
    COMMENT: /(?<!\S)#(?!\d)[^\n]*/
    %import common.WS
    %ignore WS
    %ignore COMMENT
"""
SPOKEN = {
    "VARIABLE": "a ?variable",
    "BARE": "a name",
    "DOT": "'.'",
    "COLON": "':'",
    "COMMA": "','",
    "LPAR": "'('",
    "RPAR": "')'",
    "EQUAL": "'='",
    "_DIFFERS": "'!='",
    "_OR": "'|'",
    "_AND": "'&'",
    "_MINUS": "'-'",
    "_NOT": "'!'",
    "_EXISTS": "'exists'",
    "$END": "the end",
}


def parse(text: str) -> Query:
    """Read logic text into a tree of names; `resolve` then finds them in a graph."""
    return to_tree(read_logic(text))


def read_logic(text: str) -> Question:
    """Read logic text with one or more targets."""
    import lark

    if not isinstance(text, str):
        raise InvalidArgument(f"{text!r} is not text: a query is written ?X . capital(France, ?X)")
    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_error(error, text) from None
    *targets, formula = tree.children
    variables = tuple(dict.fromkeys(map(_variable, targets)))  # type: ignore[arg-type]
    return Question(variables, _formula(formula, 0))


@cache
def _parser() -> Lark:
    import lark

    return lark.Lark(GRAMMAR, parser="lalr")


def _syntax_error(error: Any, text: str) -> QuerySyntaxError:
    import lark

    position: int
    if isinstance(error, lark.exceptions.UnexpectedCharacters):
        position, found = error.pos_in_stream or 0, repr(error.char)
        expected = error.allowed or set()
        if error.char in "'\"":
            message = "A quoted name has no closing quote, or a backslash that is not doubled."
            return QuerySyntaxError(message, text, position)
        if iri := re.compile(r"<([^<>\n]*)>").match(text, position):
            message = f"An IRI has no spaces; write a name in quotes: {json.dumps(iri[1])}."
            return QuerySyntaxError(message, text, position)
    else:
        token = error.token
        at_end = token.type == "$END"
        position = len(text.rstrip()) if at_end else token.start_pos or 0
        found = "end of the text" if at_end else repr(str(token))
        expected = error.accepts or error.expected
    spoken = [phrase for terminal, phrase in SPOKEN.items() if terminal in expected]
    hint = f" Expected {' or '.join(spoken)}." if spoken else ""
    if "?" not in text[:position] and spoken == [SPOKEN["VARIABLE"]]:
        hint += " A question is written like this: ?X . capital(France, ?X)"
    return QuerySyntaxError(f"Unexpected {found}.{hint}", text, position)


def _formula(tree: Any, nesting: int) -> Formula:
    if nesting > MAX_NESTING:
        raise too_deep()
    parts = tree.children
    match tree.data:
        case "disjunction":
            return Disjunction(tuple(map(_formula, parts, repeat(nesting + 1))))
        case "conjunction":
            return Conjunction(tuple(map(_formula, parts, repeat(nesting + 1))))
        case "negation":
            return _negation(_formula(parts[0], nesting + 1))
        case "exists":
            variables = tuple(map(_variable, parts[:-1]))
            return Exists(variables, _formula(parts[-1], nesting + 1))
        case "equals":
            return _equals(*map(_term, parts))
        case "differs":
            return _negation(_equals(*map(_term, parts)))
        case "atom":
            relation, head, tail = parts
            *inverted, name = relation.children
            spelled = _name(name, "relation")
            return Atom(inverse(spelled) if inverted else spelled, _term(head), _term(tail))
    raise AssertionError(tree.data)


def _negation(part: Formula) -> Negation:
    is_of_two = isinstance(part, Equals) and isinstance(part.other, Variable)
    return Negation(part, "!=" if is_of_two else "")


def _equals(left: Term, right: Term) -> Equals:
    if isinstance(left, Variable):
        return Equals(left, right)
    if isinstance(right, Variable):
        return Equals(right, left)
    shown = " and ".join(spell_name(part.name, "entity") for part in (left, right))
    raise UnsupportedQuery(f"'=' is for a variable and a name, not for {shown}.")


def _term(tree: Any) -> Term:
    (child,) = tree.children
    return _variable(child) if tree.data == "variable" else Entity(_name(child, "entity"))


def _variable(token: Token) -> Variable:
    return Variable(token[1:])


def _name(tree: Any, kind: Kind) -> Name:
    (token,) = tree.children
    match token.type:
        case "ID":
            return int(token[1:])
        case "STRING":
            return escape(json.loads(token, strict=False), kind)
        case "QUOTED":
            inside = re.sub(r"\\.|\"", _requote, token[1:-1])
            return escape(json.loads(f'"{inside}"', strict=False), kind)
        case "IRI":
            return escape(token[1:-1], kind)
    return str(token)  # _ included, which means any


def _requote(found: re.Match[str]) -> str:
    """Return what stands for a character of a '…' string in a "…" string."""
    return {'"': r"\"", r"\'": "'"}.get(found[0], found[0])


# ---- and back ---------------------------------------------------------------------------------


def to_text(query: Query) -> str:
    """Write a tree as logic text; `parse` reads it back to the same tree."""
    sentence = _sentence(query, "?X", (f"?V{number}" for number in count(1)))
    return f"?X . {sentence[1:-1] if isinstance(query, Or) else sentence}"


def _sentence(query: Query, variable: str, fresh: Iterator[str]) -> str:
    bound, parts = _conjuncts(query, variable, fresh)
    quantifier = f"exists {', '.join(bound)} : " if bound else ""
    return quantifier + " & ".join(parts)


def _conjuncts(query: Query, variable: str, fresh: Iterator[str]) -> tuple[list[str], list[str]]:
    """Return the variables to bind and the conjuncts that say "`variable` is in `query`"."""
    match query:
        case Entity(name):
            return [], [f"{variable} = {spell_name(name, 'entity')}"]
        case Project(Entity(name), relation):
            return [], [spell_atom(relation, spell_name(name, "entity"), variable)]
        case Project(operand, relation):
            middle = next(fresh)
            bound, parts = _conjuncts(operand, middle, fresh)
            return [middle, *bound], [*parts, spell_atom(relation, middle, variable)]
        case And():
            bound, parts = [], []
            for operand in query.operands:
                more_bound, more_parts = _conjuncts(operand, variable, fresh)
                bound += more_bound
                parts += more_parts
            return bound, parts
        case Or():
            sentences = [_sentence(operand, variable, fresh) for operand in query.operands]
            closed = [f"({text})" if text.startswith("exists ") else text for text in sentences]
            return [], [f"({' | '.join(closed)})"]
        case Not(operand):
            sentence = _sentence(operand, variable, fresh)
            is_closed = isinstance(operand, Or | Not) or (
                isinstance(operand, Project) and isinstance(operand.operand, Entity)
            )
            return [], [f"!{sentence}" if is_closed else f"!({sentence})"]
    raise AssertionError(query)


def spell_atom(relation: Name, source: str, target: str) -> str:
    """Write that a relation leads from one term to another, in the direction of the graph."""
    if isinstance(relation, str) and relation.startswith(INVERSE):
        return f"{spell_name(relation.removeprefix(INVERSE), 'relation')}({target}, {source})"
    return f"{spell_name(relation, 'relation')}({source}, {target})"


def spell_name(name: Name, kind: Kind) -> str:
    """Write a name as a tree has it: bare if it can be."""
    if isinstance(name, int):
        return f"#{name}"
    if name == PLACEHOLDER:
        return name
    name = unescape(name, kind)
    is_bare = re.fullmatch(BARE_NAME, name) and name not in ("exists", PLACEHOLDER)
    return name if is_bare else json.dumps(name, ensure_ascii=False)
