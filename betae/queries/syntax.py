"""Logic text <-> trees.

    ?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)

Target (or targets, `?X, ?Y`), dot, formula. `&` `|` `!` `exists … :` or `∧` `∨` `¬` `∃`, and
parentheses; `!` binds tightest, then `&` and `-`, then `|`; `exists` reaches as far right as it
can. `a - b` is `a & !b`. An atom is `relation(head, tail)`, `Class(?X)`, `?X = entity`,
`?X != entity`, or `property(?X) < value` with any of the operators `=` `!=` `<` `<=` `>` `>=` `~`;
`~relation` is the inverse. A name is a bare word, a "quoted string" (or 'quoted'), an `<iri>` or an
id, `#12`. What is quoted is always a name. A value is a number, a date, a time, `true`, `false` or
"text", with a language if one is meant (`"Liebe"@de`). `# …` is a comment, to the end of the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache, partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from betae.errors import InvalidArgument, QueryError, QuerySyntaxError, UnsupportedQuery
from betae.graph.graph import INVERSE
from betae.graph.values import CONTAINS, MIRRORED, Value, read_value, spell_value
from betae.queries.ast import PLACEHOLDER, Condition, Entity, IsA, Name, Query, Where, too_deep
from betae.queries.formula import (
    MAX_NESTING,
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Meets,
    Negation,
    Question,
    Term,
    Variable,
    to_formula,
)
from betae.queries.mistakes import explain_mistake, is_cypher, is_english

if TYPE_CHECKING:
    from lark import Lark

YES_OR_NO = "This asks for yes or no"
LONG = 2_000  # characters of a text that is not searched for mistakes
BARE_NAME = r"[\w/][\w/:.+\-]*"
GRAMMAR = rf"""
    start: VARIABLE (","? VARIABLE)* "." formula
    closed: formula
    ?formula: conjunction | conjunction (_OR conjunction)+     -> disjunction
    ?conjunction: unary | unary (_AND unary | difference)+      -> conjunction
    difference: _MINUS unary                                    -> negation
    ?unary: _NOT unary                                          -> negation
        | _EXISTS VARIABLE (","? VARIABLE)* (":" | ".") formula -> exists
        | "(" formula ")"
        | relation "(" term "," term ")"                        -> atom
        | attribute                                             -> is_a
        | side (SIGN | INVERSE) side                            -> compared
    attribute: relation "(" term ")"
    ?side: term | attribute | name LANGUAGE -> text | _MINUS name -> negative
    relation: INVERSE? name
    ?term: VARIABLE -> variable | name -> entity
    name: BARE | STRING | QUOTED | IRI | ID
    _OR: "|" | "∨"
    _AND: "&" | "∧"
    _MINUS: "-" | "∖"
    _NOT: "!" | "¬"
    SIGN: "=" | "!=" | "≠" | "<" | "<=" | "≤" | ">" | ">=" | "≥"
    LANGUAGE: /@([A-Za-z]+(-[A-Za-z0-9]+)*|"")/
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
    "SIGN": "'=', '<' or the like",
    "_OR": "'|'",
    "_AND": "'&'",
    "_MINUS": "'-'",
    "_NOT": "'!'",
    "_EXISTS": "'exists'",
    "$END": "the end",
}


def parse(text: str) -> Query:
    """Read logic text as a tree of names: the inverse of `str(query)`."""
    return parse_logic(text).tree


def parse_logic(text: str) -> Question:
    """Read logic text with one or more targets; names stay as written."""
    import lark

    if not isinstance(text, str):
        raise InvalidArgument(f"{text!r} is not text: a query is written ?X . capital(France, ?X)")
    try:
        return _read(text)
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_error(error, text) from None


def parse_closed(text: str) -> Formula:
    """Read logic text that asks for yes or no: a formula without free variables.

    With targets, it asks whether there is any answer.
    """
    import lark

    try:
        question = _read(text)
    except lark.exceptions.UnexpectedInput:
        pass
    else:
        return Exists(question.variables, question.formula)
    try:
        (tree,) = _parser().parse(text, start="closed").children
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_error(error, text, parse_closed) from None
    return Question((), _formula(tree, 0)).formula  # raises if a variable is free


def _read(text: str) -> Question:
    *targets, formula = _parser().parse(text, start="start").children
    return Question(dict.fromkeys(map(_variable, targets)), _formula(formula, 0))


@cache
def _parser() -> Lark:
    import lark

    return lark.Lark(GRAMMAR, parser="lalr", start=["start", "closed"])


def _is_read_by(read: Callable[[str], object], text: str) -> bool:
    import lark

    try:
        read(text)
    except (lark.exceptions.UnexpectedInput, QueryError):
        return False
    return True


def _syntax_error(error: Any, text: str, read: Callable[[str], object] = _read) -> QuerySyntaxError:
    """Describe an error: what was meant, if that is known, else what is expected where."""
    if read is _read and _is_read_by(parse_closed, text):
        return QuerySyntaxError(
            f"{YES_OR_NO}: `betae ask` answers it, in Python `run.ask`.", text, 0
        )
    meant = explain_mistake(text, partial(_is_read_by, read)) if len(text) < LONG else None
    if meant and (is_cypher(text) or is_english(text)):
        return QuerySyntaxError(meant, text, 0)
    found = _unexpected(error, text)
    return QuerySyntaxError(*found, hint=meant or "")


def _unexpected(error: Any, text: str) -> tuple[str, str, int]:
    """Say what is expected in place of what was found: a message, the text, a position."""
    import lark

    if isinstance(error, lark.exceptions.UnexpectedCharacters):
        position, found = error.pos_in_stream or 0, repr(error.char)
        expected = error.allowed or set()
        if error.char in "'\"":
            message = "A quoted name has no closing quote, or a backslash that is not doubled."
            return message, text, position
    else:
        token = error.token
        at_end = token.type == "$END"
        position = len(text.rstrip()) if at_end else token.start_pos or 0
        found = "end of the text" if at_end else repr(str(token))
        expected = error.accepts or error.expected
    iri = re.compile(r"<([^<>\n]*)>").match(text, position)
    if iri and "IRI" in expected:
        message = f"An IRI has no spaces; write a name in quotes: {json.dumps(iri[1])}."
        return message, text, position
    spoken = [phrase for terminal, phrase in SPOKEN.items() if terminal in expected]
    hint = f" Expected {' or '.join(spoken)}." if spoken else ""
    if "?" not in text[:position] and spoken == [SPOKEN["VARIABLE"]]:
        hint += " A question is written like this: ?X . capital(France, ?X)"
    return f"Unexpected {found}.{hint}", text, position


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
            return Negation(_formula(parts[0], nesting + 1))
        case "exists":
            variables = tuple(map(_variable, parts[:-1]))
            return Exists(variables, _formula(parts[-1], nesting + 1))
        case "compared":
            return _compared(*parts)
        case "is_a":
            relation, term = parts[0].children
            return Meets(IsA(_name(_without_inverse(relation, "class"))), _term(term))
        case "atom":
            relation, head, tail = parts
            *inverted, name = relation.children
            ends = (tail, head) if inverted else (head, tail)
            return Atom(_name(name), *map(_term, ends))
    raise AssertionError(tree.data)


def _without_inverse(relation: Any, kind: str) -> Any:
    """Return the name of a class or a property, which have no inverse."""
    *inverted, name = relation.children
    if inverted:
        raise UnsupportedQuery(f"A {kind} has no inverse: leave out {INVERSE}.")
    return name


SAME = {"≠": "!=", "≤": "<=", "≥": ">="}


def _compared(left: Any, sign: Any, right: Any) -> Formula:
    """Return the formula of a comparison of entities, or of a property with a value."""
    sign = SAME.get(sign, str(sign))
    sides = [left.data, right.data]
    if sides == ["attribute", "attribute"]:
        raise UnsupportedQuery(
            "Two properties cannot be compared with each other, only a property with a value: "
            "date(?X) < 1975-01-31. In SPARQL (`betae query`), FILTER(?a < ?b) compares any two."
        )
    if right.data == "attribute" and sign != CONTAINS:
        return _compared(right, MIRRORED.get(sign, sign), left)
    if left.data == "attribute":
        relation, term = left.children
        name = _name(_without_inverse(relation, "property"))
        if not isinstance(name, str) or right.data == "variable":
            raise UnsupportedQuery(
                "A property is given by its name, and compared with a value: length(?X) < 200."
            )
        value, language = _value(right, sign)
        return Meets(Where(name, sign, value, language), _term(term))
    if sign in ("=", "!=") and not {"text", "negative"} & {*sides}:
        equals = _equals(_term(left), _term(right))
        return equals if sign == "=" else Negation(equals)
    raise UnsupportedQuery(
        f"{sign!r} compares a property with a value: write length(?X) {sign} 200, for example."
    )


def _value(side: Any, sign: str) -> tuple[Value, str | None]:
    """Return a value and its language."""
    name, *language = side.children
    (token,) = name.children
    if side.data == "text":
        return str(_name(name)), language[0][1:].strip('"')
    if token.type in ("STRING", "QUOTED") or (sign == CONTAINS and side.data == "entity"):
        return str(_name(name)), None
    text = f"-{token}" if side.data == "negative" else str(token)
    try:
        value = read_value(text) if token.type == "BARE" else None
    except ValueError as error:
        raise UnsupportedQuery(f"{text} is no date or time ({error}).") from None
    if value is None or (isinstance(value, str) and side.data == "negative"):
        raise UnsupportedQuery(f'{text} is no value: write a number, a date or "text".')
    return value, None


def _equals(left: Term, right: Term) -> Equals:
    if isinstance(left, Entity) and isinstance(right, Entity):
        shown = f"{spell_name(left.name)} and {spell_name(right.name)}"
        raise UnsupportedQuery(f"'=' is for a variable and a name, not for {shown}.")
    return Equals(left, right)


def _term(tree: Any) -> Term:
    (child,) = tree.children
    return _variable(child) if tree.data == "variable" else Entity(_name(child))


def _variable(token: Any) -> Variable:
    return Variable(token[1:])


def _name(tree: Any) -> Name:
    (token,) = tree.children
    match token.type:
        case "ID":
            return int(token[1:])
        case "STRING" | "QUOTED":
            json_of = {'"': r"\"", r"\'": "'"}  # these differ inside '…'
            inside = re.sub(r"\\.|\"", lambda found: json_of.get(found[0], found[0]), token[1:-1])
            return str(json.loads(f'"{inside}"', strict=False))
        case "IRI":
            return str(token[1:-1])
    return PLACEHOLDER if token == str(PLACEHOLDER) else str(token)


# ---- and back ---------------------------------------------------------------------------------


def to_text(query: Query) -> str:
    """Write a tree as logic text, which reads back to an equal one."""
    return f"?X . {_spell(to_formula(query))}"


def _spell(formula: Formula) -> str:
    match formula:
        case Atom(relation, head, tail):
            return f"{spell_name(relation)}({_spell_term(head)}, {_spell_term(tail)})"
        case Equals(one, two):
            return f"{_spell_term(one)} = {_spell_term(two)}"
        case Meets(condition, term):
            return spell_condition(condition, _spell_term(term))
        case Conjunction(parts):
            return " & ".join(map(_spell_closed, parts))
        case Disjunction(parts):
            return " | ".join(map(_spell_closed, parts))
        case Negation(part):
            spelled = _spell(part)
            return f"!{spelled}" if isinstance(part, Atom | Negation) else f"!({spelled})"
        case Exists(variables, part):
            return f"exists {', '.join(map(str, variables))} : {_spell(part)}"
    raise AssertionError(formula)


def spell_condition(condition: Condition, term: str) -> str:
    """Write a condition on a variable, an entity or whatever is to stand in its place."""
    match condition:
        case Where(property, sign, value, language):
            tag = "" if language is None else f"@{language}" if language else '@""'
            return f"{spell_name(property)}({term}) {sign} {spell_value(value)}{tag}"
        case IsA(name):
            return f"{spell_name(name)}({term})"
    raise AssertionError(condition)


def _spell_closed(part: Formula) -> str:
    """Write an operand of `&` or `|`, in parentheses if it needs them."""
    spelled = _spell(part)
    return f"({spelled})" if isinstance(part, Disjunction | Exists) else spelled


def _spell_term(term: Term) -> str:
    return str(term) if isinstance(term, Variable) else spell_name(term.name)


def spell_name(name: Name) -> str:
    """Write a name: an id as #12, a bare word as it is, anything else in quotes."""
    if isinstance(name, int):
        return f"#{name}"
    if name is PLACEHOLDER:
        return str(name)
    is_bare = re.fullmatch(BARE_NAME, name) and name not in ("exists", str(PLACEHOLDER))
    return name if is_bare else json.dumps(name, ensure_ascii=False)
