"""Texts that are no questions yet: what was meant, and how it is written.

Each repair rewrites one mistake that people make: names with spaces, words for operators, `forall`,
Cypher, a question without its answer variable. A rewritten text is offered if it can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise

QUOTED = r"\"(?:\\.|[^\"\\])*\"|(?<!\w)'(?:\\.|[^'\\])*'|<[^<>\s]*>"  # what no repair looks into
NAME = r"[^\W\d][^,()\"<>=!&|?~]*?"  # as it is typed, with spaces
WORDS = {"and": "&", "or": "|", "not": "!"}
FORALL = re.compile(r"(?:\b(?:forall|for all|every)\b|∀)\s*(\?\w+(?:[\s,]+\?\w+)*)\s*[:.]?", re.I)
IMPLIES = re.compile(r"->|=>|→|⇒|\bimplies\b", re.I)
CYPHER = re.compile(r"\s*(optional\s+)?match\s*\(", re.I)
NODE = r"\(\s*(\w*)\s*(?::\s*`?(\w+)`?)?\s*(?:\{[^}]*?:\s*[\"']([^\"'}]*)[\"'][^}]*\})?\s*\)"
EDGE = r"\s*(<?)-\[\s*\w*\s*:\s*`?(\w+)`?[^\]]*\]-(>?)\s*"
ENGLISH = "This is English, and a question is logic text"
LOGIC = re.compile(r"^\s*\?|[&|{}]|[\w\"'>]\(|->|-\[")  # in logic text or Cypher, not in English


def is_cypher(text: str) -> bool:
    """Whether a text is Cypher, by how it begins."""
    return CYPHER.match(text) is not None


def is_english(text: str) -> bool:
    """Whether a text has words, but no variable and no atom."""
    is_other = LOGIC.search(text) or is_cypher(text)
    return not is_other and len(re.findall(r"[^\W\d]+", text)) > 1


def explain_mistake(text: str, is_valid: Callable[[str], bool]) -> str | None:
    """Say what was meant by a text, with the right one if it is known."""
    said: list[str] = []
    fixed = text
    if is_english(text):
        return f"{ENGLISH}, such as ?X . capital(France, ?X)"
    if is_cypher(text):
        said = ["This is Cypher. A question is logic text or SPARQL."]
        fixed = _from_cypher(text) or text
    else:
        for repair, why in REPAIRS.items():
            if (repaired := repair(fixed)) != fixed:
                said += [why] if why not in said else []
                fixed = repaired
    if fixed != text and is_valid(fixed):
        said.append(f"Write: {fixed}")
    return " ".join(said) or None


# ---- repairs ------------------------------------------------------------------------------------


def _outside(pattern: str, replace: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace a pattern outside of quotes."""

    def replaced(found: re.Match[str]) -> str:
        return found[0] if found["quoted"] is not None else replace(found)

    return re.sub(f"(?P<quoted>{QUOTED})|{pattern}", replaced, text, flags=re.IGNORECASE)


def _quote_names(text: str) -> str:
    """Quote names of two or more words, as arguments, as relations and in comparisons."""

    def quoted(found: re.Match[str]) -> str:
        name = found["name"].strip()
        if " " not in name:
            return found[0]
        return f"{found['before']}{json.dumps(name, ensure_ascii=False)}{found['after']}"

    argument = rf"(?P<before>[(,]\s*)(?P<name>{NAME})(?P<after>\s*(?=[,)]))"
    return _outside(argument, quoted, text)


def _quote_relations(text: str) -> str:
    def quoted(found: re.Match[str]) -> str:
        words = found[0].split()
        first = next((i for i, each in enumerate(words) if each.lower() not in WORDS), 0)
        name = " ".join(words[first:])
        before = "".join(f"{word} " for word in words[:first])
        return found[0] if first >= len(words) - 1 else before + json.dumps(name)

    return _outside(r"(?<![\w?])(?!exists\b)[^\W\d]\w*(?:[ ]+\w+)+(?=\()", quoted, text)


def _write_signs(text: str) -> str:
    """Write words for operators as signs; not those that are relations."""

    def sign(found: re.Match[str]) -> str:
        word = found["word"].lower()
        return "& !" if " " in word else WORDS[word]

    spaced = _outside(r"(?P<word>(?<![\w?])(?:but\s+not|and|or|not)(?![\w.:]))", sign, text)
    spaced = _outside(r"(?P<twice>&&|\|\|)", lambda found: found[0][0], spaced)
    return _outside(r"(?P<not>!\s+(?=[\w\"(]))", lambda _: "!", spaced)


def _rewrite_forall(text: str) -> str:
    """Write `forall` as "there is none that is not".

    Its scope is the parentheses that follow; without any, it reaches as far right as it can.
    """
    found = FORALL.search(text)
    if found is None:
        return text
    start = found.end() + len(text[found.end() :]) - len(text[found.end() :].lstrip())
    if text[start : start + 1] == "(":
        end = _end_of_group(text, start + 1)
        body, after = text[start + 1 : end], text[end + 1 :]
    else:
        end = _end_of_group(text, start)
        body, after = text[start:end], text[end:]
    condition, *then = IMPLIES.split(body, maxsplit=1)
    none = f"{condition.strip()} & !({then[0].strip()})" if then else f"!({body.strip()})"
    return f"{text[: found.start()]}!(exists {found[1]} : {none}){after}"


def _end_of_group(text: str, start: int) -> int:
    """Return where the parenthesis is closed that is open at the start, or the end."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth < 0:
            return i
    return len(text)


def _mark_variables(text: str) -> str:
    """Write `X . r(X, a)` with a question mark before the variable."""
    found = re.match(r"\s*([A-Za-z]\w*)\s*[.:|]\s+(?=.*\()", text)
    if found is None:
        return text
    return _outside(rf"(?P<name>(?<![\w?]){found[1]}(?!\w))", lambda _: f"?{found[1]}", text)


def _add_target(text: str) -> str:
    """Begin with the variables that nothing binds, and a dot."""
    if re.match(r"\s*\?\w+(?:[\s,]+\?\w+)*\s*\.", text):
        return text
    colon = re.fullmatch(r"\s*\{?\s*(\?\w+(?:[\s,]+\?\w+)*)\s*[:|]\s*(.*?)\}?\s*", text, re.DOTALL)
    if colon:
        return f"{colon[1]} . {colon[2]}"
    bound = set(re.findall(r"\?\w+", " ".join(re.findall(r"(?:exists|∃)((?:[\s,]*\?\w+)+)", text))))
    free = [each for each in dict.fromkeys(re.findall(r"\?\w+", text)) if each not in bound]
    return f"{', '.join(free)} . {text.strip()}" if free else text


REPAIRS: dict[Callable[[str], str], str] = {
    _quote_names: "A name with spaces stands in quotes.",
    _mark_variables: "A variable begins with a question mark.",
    _rewrite_forall: "There is no forall: all are such if there is none that is not.",
    _write_signs: '"And" is written &, "or" |, "not" !.',
    _quote_relations: "A name with spaces stands in quotes.",
    _add_target: "A question begins with its answer variable and a dot.",
}


# ---- Cypher -------------------------------------------------------------------------------------


def _from_cypher(text: str) -> str | None:
    """Write the paths of a MATCH as logic text; None if there is more to it."""
    found = re.fullmatch(
        r"\s*match\b(.*?)\breturn\s+(?:distinct\s+)?(\w+)\b.*", text, re.IGNORECASE | re.DOTALL
    )
    if found is None or re.search(r"\b(where|with|match)\b", found[1], re.IGNORECASE):
        return None
    atoms: list[str] = []
    variables: list[str] = []
    names: dict[str, str] = {}

    def term(node: re.Match[str]) -> str:
        variable, kind, name = node.groups()
        variable = variable or f"v{len(names) + 1}"
        if variable not in names:
            names[variable] = json.dumps(name) if name else f"?{variable}"
            if not name:
                variables.append(names[variable])
                atoms.extend([f"{kind}({names[variable]})"] if kind else [])
        return names[variable]

    for path in re.split(r"(?<=\))\s*,\s*(?=\()", found[1]):
        ends = [term(node) for node in re.finditer(NODE, path)]
        for edge, pair in zip(re.finditer(EDGE, path), pairwise(ends), strict=False):
            head, tail = pair[::-1] if edge[1] else pair
            atoms.append(f"{edge[2]}({head}, {tail})")
    target = names.get(found[2], "")
    if target not in variables:
        return None
    others = ", ".join(each for each in variables if each != target)
    bound = f"exists {others} : " if others else ""
    return f"{target} . {bound}{' & '.join(atoms)}"
