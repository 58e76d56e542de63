"""Odd questions: logic text and SPARQL, right, wrong, half-finished and hostile.

They are asked of the graph TOY, which is FACTS, VALID and TEST with LABELS.
"""

from __future__ import annotations

from collections.abc import Iterator

from odd_inputs import Case

FACTS = """\
ann\tparent\tbob
ann\tparent\tcat
bob\tparent\tdan
ann\tlives_in\tOslo
bob\tlives_in\tOslo
cat\tlives_in\tRome
dan\tlives_in\tNew York
Oslo\tin\tNorway
Rome\tin\tItaly
_\todd\t~a
O'Neil\todd\tsay "hi"
#1\todd\t🚀 x
ann\t~likes\tbob
cat\tlikes\tbob
loop\tself\tloop
\x1b[31mred\todd\t[bold]b[/bold]
exists\tto\tSELECT
"""
VALID = "bob\tfriend\tcat\n"
TEST = "cat\tfriend\tdan\n"
LABELS = "ann\tAnn Lee\ncat\tSam\ndan\tSam\nparent\tparent of\n"


def rows(text: str) -> set[tuple[str, ...]]:
    """Read `bob cat`, or `ann|bob ann|cat` for two variables; _ is a space within a name."""
    return {tuple(row.replace("_", " ").split("|")) for row in text.split()}


# A question, and its answers.
ANSWERED = [
    ("?X . parent(ann, ?X)", "bob cat"),
    ("?X.parent(ann,?X)", "bob cat"),
    ("  ?X\n.\n parent ( ann , ?X )  ", "bob cat"),
    ("?X . ~parent(?X, ann)", "bob cat"),
    ("?X . ~parent(bob, ?X)", "ann"),
    ("?X . parent('ann', ?X)", "bob cat"),
    ('?X . "parent"("ann", ?X)', "bob cat"),
    ("?X . <parent>(<ann>, ?X)", "bob cat"),
    ("?X . parent('Ann Lee', ?X)", "bob cat"),
    ('?X . lives_in(?X, "New York")', "dan"),
    ("?X . exists ?P : parent(ann, ?P) & lives_in(?P, ?X)", "Oslo Rome"),
    ("?X . ∃?P : parent(ann, ?P) ∧ lives_in(?P, ?X)", "Oslo Rome"),
    ("?X . exists ?P . parent(ann, ?P) & lives_in(?P, ?X)", "Oslo Rome"),
    ("?X . parent(ann, ?X) | parent(bob, ?X)", "bob cat dan"),
    ("?X . parent(ann, ?X) & !lives_in(?X, Rome)", "bob"),
    ("?X . parent(ann, ?X) - lives_in(?X, Rome)", "bob"),
    ("?X . parent(ann, ?X) ∖ lives_in(?X, Rome)", "bob"),
    ("?X . parent(ann, ?X) & ?X != bob", "cat"),
    ("?X . parent(ann, ?X) & ?X ≠ bob", "cat"),
    ("?X . ?X = ann", "ann"),
    ("?X . !!parent(ann, ?X)", "bob cat"),
    ("?X . parent(ann, ?X) & parent(ann, ?X)", "bob cat"),
    ("?X . parent(ann, ?X) & !parent(ann, ?X)", ""),
    ("?X . parent(dan, ?X)", ""),
    ("?X . self(loop, ?X)", "loop"),
    ("?X . self(?X, ?X)", "loop"),
    ("?X . \"~likes\"(ann, ?X)", "bob"),
    ("?X . likes(cat, ?X)", "bob"),
    ("?X . odd(\"_\", ?X)", "~a"),
    ("?X . odd(\"O'Neil\", ?X)", 'say_"hi"'),
    (r"?X . odd('O\'Neil', ?X)", 'say_"hi"'),
    (r'?X . odd(?X, "say \"hi\"")', "O'Neil"),
    ('?X . odd("#1", ?X)', "🚀_x"),
    ('?X . odd(?X, "🚀 x")', "#1"),
    (r'?X . odd(?X, "\ud83d\ude80 x")', "#1"),
    ("?X . odd('\x1b[31mred', ?X)", "[bold]b[/bold]"),
    (r'?X . odd("\u001b[31mred", ?X)', "[bold]b[/bold]"),
    ('?X . to("exists", ?X)', "SELECT"),
    ("?X . to(?X, SELECT)", "exists"),
    ("# who\n?X . parent(ann, ?X) # her children", "bob cat"),
    ("?X, ?Y . parent(?X, ?Y)", "ann|bob ann|cat bob|dan"),
    ("?X ?Y . parent(?X, ?Y)", "ann|bob ann|cat bob|dan"),
    ("?Y, ?X . parent(?X, ?Y)", "bob|ann cat|ann dan|bob"),
    ("?X . exists ?Y : friend(?X, ?Y)", "bob cat"),
    ("?X, ?Y . lives_in(?X, ?Y) & ?X != ?Y & ?X = dan", "dan|New_York"),
    ("?größe . parent(ann, ?größe)", "bob cat"),
    ("?_ . parent(ann, ?_)", "bob cat"),
    ("?1 . parent(ann, ?1)", "bob cat"),
    ("SELECT ?x { <ann> <parent> ?x }", "bob cat"),
    ("select ?x where { <ann> <parent> ?x . }", "bob cat"),
    ("SELECT $x { <ann> <parent> $x }", "bob cat"),
    ("PREFIX : <> SELECT ?x { :ann :parent ?x }", "bob cat"),
    ("# hello\nPREFIX e: <>\nSELECT * { e:ann e:parent ?x }", "bob cat"),
    ("SELECT DISTINCT ?x { <ann> <parent>/<lives_in> ?x }", "Oslo Rome"),
    ("SELECT ?x { <ann> <parent>+ ?x }", "bob cat dan"),
    ("SELECT ?x { <ann> <parent>* ?x }", "ann bob cat dan"),
    ("SELECT ?x { <ann> <parent>? ?x }", "ann bob cat"),
    ("SELECT ?x { <bob> ^<parent> ?x }", "ann"),
    ("SELECT ?x { <ann> <parent>|<lives_in> ?x }", "bob cat Oslo"),
    ("SELECT ?x { { <ann> <parent> ?x } UNION { <bob> <parent> ?x } }", "bob cat dan"),
    ("SELECT ?x { <ann> <parent> ?x MINUS { ?x <lives_in> <Rome> } }", "bob"),
    ("SELECT ?x { <ann> <parent> ?x FILTER NOT EXISTS { ?x <lives_in> <Rome> } }", "bob"),
    ("SELECT ?x { <ann> <parent> ?x FILTER(?x != <bob>) }", "cat"),
    ("SELECT ?x { <ann> <parent> ?x FILTER(?x IN (<bob>, <dan>)) }", "bob"),
    ("SELECT ?x { VALUES ?p { <ann> <bob> } ?p <parent> ?x }", "bob cat dan"),
    ("SELECT ?x { ?x <lives_in> <New%20York> }", "dan"),
    ("SELECT ?x ?y { ?x <parent> ?y }", "ann|bob ann|cat bob|dan"),
    ("SELECT ?x { [] <parent> ?x }", "bob cat dan"),
    ("SELECT ?x { <ann> <parent> ?x ; } ", "bob cat"),
    ("SELECT ?x { <ann> <parent> ?x } LIMIT 9", "bob cat"),
    ("SELECT ?x { ?x <self> ?x }", "loop"),
    ("?X . " + "(" * 5000 + "parent(ann, ?X)" + ")" * 5000, "bob cat"),
]  # fmt: skip

# A question that is wrong, and words of the message.
REFUSED = [
    ("", "nothing"),
    ("   ", "nothing"),
    ("hello", "neither a query nor a file"),
    ("query.rq", "neither a query nor a file"),
    ("who are the children of ann", "like this: ?X . capital(France, ?X)"),
    ("?X", "Expected"),
    ("?X .", "Expected"),
    ("?X parent(ann, ?X)", "'.'"),
    ("X . parent(ann, X)", "?variable"),
    ("?X : parent(ann, ?X)", "'.'"),
    ("? . parent(ann, ?X)", "?variable"),
    ("?X . parent(ann, ?X", "')'"),
    ("?X . parent(ann, ?X))", "the end"),
    ("?X . parent(ann ?X)", "','"),
    ("?X . parent(ann)", "','"),
    ("?X . parent()", "a name"),
    ("?X . parent(ann, bob, ?X)", "')'"),
    ("?X . parent ann ?X", "'('"),
    ("?X . parent(ann, ?X) &", "Expected"),
    ("?X . & parent(ann, ?X)", "Expected"),
    ("?X . parent(ann, ?X) and parent(bob, ?X)", "'&'"),
    ("?X . parent(ann, ?X) && parent(bob, ?X)", "&"),
    ("?X . parent(ann, ?X) || parent(bob, ?X)", "|"),
    ("?X . not parent(ann, ?X)", "!"),
    ("?X . parent(ann, ?X);", ";"),
    ("?X . exists : parent(ann, ?X)", "?variable"),
    ("?X . exists ?P parent(ann, ?P)", "':'"),
    ("?X . forall ?P : parent(?P, ?X)", "Expected"),
    ("?X . parent(Ann Lee, ?X)", "Expected"),
    ('?X . parent("ann, ?X)', "no closing quote"),
    ("?X . parent('ann, ?X)", "no closing quote"),
    (r'?X . parent("\q", ?X)', "backslash"),
    ("?X . parent(“ann”, ?X)", "“"),
    ("?X . parent(<ann, ?X)", "<"),
    ("?X . parent(ann, ?Y)", "?X"),
    ("?X . parent(ann, bob)", "?X"),
    ("?X . parent(?X, ?Y)", "exists ?Y"),
    ("?X . parent(anne, ?X)", "'ann'"),
    ("?X . parnt(ann, ?X)", "Closest: 'parent'"),
    ("?X . parent(ANN, ?X)", "Closest: 'ann'"),
    ("?X . Parent(ann, ?X)", "Closest: 'parent'"),
    ("?X . parent('ann ', ?X)", "Closest: 'ann'"),
    ("?X . lives_in(?X, NewYork)", "Closest: 'New York'"),
    ("?X . zzz(qqq, ?X)", "no"),
    ("?X . lives_in(Sam, ?X)", "'Sam' is the label of 2 entities"),
    ("?X . parent(#99999, ?X)", "99999"),
    ("?X . parent(#99999999999999999999, ?X)", "99999999999999999999"),
    ("?X . #99(ann, ?X)", "99"),
    ("?X . _(ann, ?X)", "placeholder"),
    ("?X . parent(_, ?X)", "placeholder"),
    ("?X . ~~parent(ann, ?X)", "~"),
    ("?X . odd('', ?X)", "''"),
    ("?X . parent(\0, ?X)", "Unexpected"),
    ("?X . " + "!" * 5001 + "parent(ann, ?X)", "deep"),
    ("?X . " + "(" * 100_000, "Expected"),
    ("?X . parent(" + "x" * 100_000 + ", ?X)", "The graph has no entity"),
    ("SELECT", "SPARQL cannot be read from here on"),
    ("SELECT ?x", "SPARQL cannot be read from here on"),
    ("SELECT ?x {", "{"),
    ("SELECT ?x { <ann> <parent> }", "SPARQL cannot be read from here on"),
    ("SELECT ?x { <ann> <parent> ?y }", "?x"),
    ("SELECT ?x { ann <parent> ?x }", "SPARQL cannot be read from here on"),
    ("SELECT ?x { e:ann e:parent ?x }", "The prefix e: is not declared"),
    ("SELECT ?x { <ann> <parnt> ?x }", "Closest: 'parent'"),
    ("SELECT ?x { <New York> <in> ?x }", "%20"),
    ("SELECT ?x { <ann> ?p ?x }", "predicate"),
    ('SELECT ?x { ?x <age> "7" }', "literal"),
    ("SELECT ?x { ?x <age> 7 }", "literal"),
    ("SELECT (COUNT(?x) AS ?n) { <ann> <parent> ?x }", "COUNT"),
    ("SELECT ?x { <ann> <parent> ?x } ORDER BY ?x", "ORDER BY"),
    ("SELECT ?x { <ann> <parent> ?x } OFFSET 1", "OFFSET"),
    ("SELECT ?x { <ann> <parent> ?x } GROUP BY ?x", "GROUP BY"),
    ("SELECT ?x { <ann> <parent> ?x OPTIONAL { ?x <in> ?y } }", "OPTIONAL"),
    ("SELECT ?x { <ann> <parent> ?x BIND(1 AS ?y) }", "BIND"),
    ("SELECT ?x { <ann> <parent> ?x FILTER(REGEX(STR(?x), 'b')) }", "REGEX"),
    ("SELECT ?x { <ann> <parent> ?x FILTER(?x > 3) }", "FILTER"),
    ("SELECT ?x { { SELECT ?x { <ann> <parent> ?x } } }", "SELECT"),
    ("SELECT ?x { GRAPH <g> { <ann> <parent> ?x } }", "GRAPH"),
    ("SELECT ?x { SERVICE <http://x.invalid> { <ann> <parent> ?x } }", "SERVICE"),
    ("SELECT ?x FROM <g> { <ann> <parent> ?x }", "FROM"),
    ("SELECT ?x { <ann> !<parent> ?x }", "!"),
    ("ASK { <ann> <parent> <bob> }", "ASK"),
    ("CONSTRUCT { ?x <a> ?y } WHERE { ?x <parent> ?y }", "CONSTRUCT"),
    ("DESCRIBE <ann>", "DESCRIBE"),
    ("INSERT DATA { <a> <b> <c> }", "INSERT"),
    ("DELETE WHERE { ?a ?b ?c }", "DELETE"),
    ("MATCH (n)-[:PARENT]->(m) RETURN m", "A question is written like this"),
    ("SELECT * FROM parents WHERE a = 'ann'", "SPARQL cannot be read from here on"),
    ("SELECT ?x { " + "{ " * 400 + "<ann> <parent> ?x" + " }" * 400 + " }", "deep"),
    ("SELECT ?x { " + "<ann> <parent> ?x . " * 400 + " }", "too many triples"),
]


def question_cases() -> Iterator[Case]:
    """Yield the cases of `betae query` and its neighbours."""
    for text, answers in ANSWERED:
        command = ["query", "TOY", text, "--format", "csv"]
        yield Case(f"question {text[:70]!r}", command, answers=rows(answers))
    for number, (text, words) in enumerate(REFUSED, 1):
        shown = f"{text[:40]!r}{'…' if len(text) > 40 else ''}"
        yield Case(f"refused {number} {shown}", ["query", "TOY", text], code=2, says=words)
    for text, words in REFUSED[5:35:6] + REFUSED[56:62]:
        yield Case(f"explained {text!r}", ["explain", text], code=2, says=words)
    yield from IN_FILES
    yield from FORMS


ASKED = {"q.txt": "?X . parent(ann, ?X)\n", "q.rq": "SELECT ?x { <ann> <parent> ?x }"}
CHILDREN = rows("bob cat")
IN_FILES = [
    Case("a question in a file", "query TOY q.txt --format csv", ASKED, answers=CHILDREN),
    Case("SPARQL in a file", "query TOY q.rq --format csv", ASKED, answers=CHILDREN),
    Case("a question after a BOM", "query TOY q.txt --format csv", answers=CHILDREN,
         files={"q.txt": b"\xef\xbb\xbf?X . parent(ann, ?X)\r\n"}),
    Case("an empty file of a question", "query TOY q.txt", {"q.txt": ""}, 2, "q.txt"),
    Case("a question in Latin-1", "query TOY q.txt", {"q.txt": b"?X . r(\xfc, ?X)"}, 2, "UTF-8"),
    Case("a question in UTF-16", "query TOY q.txt", {"q.txt": "?X . r(a, ?X)".encode("utf-16")}, 2,
         "UTF-8"),
    Case("a mistake in a file", "query TOY q.txt", {"q.txt": "# x\n?X . parent(ann\n"}, 2,
         "Line 2"),
    Case("a folder for a question", "query TOY ASKED", code=2, says="neither",
         prepare=lambda folder: (folder / "ASKED").mkdir()),
    Case("a question from a pipe", "query TOY /dev/stdin", code=2, says=""),
]  # fmt: skip
ASK = "query TOY '?X . parent(ann, ?X)'"
FORMS = [
    Case("a table", ASK, says="2 answers"),
    Case("JSON lines", f"{ASK} --format jsonl", says='{"X": "bob", "X_label": "bob"}'),
    Case("no such format", f"{ASK} --format xml", code=2, says="'csv'"),
    Case("Parquet to the screen", f"{ASK} --format parquet", code=2, says="--out answers.parquet"),
    Case("an odd ending", f"{ASK} --out a.xlsx", code=2, says="must end in .csv"),
    Case("ending against format", f"{ASK} --out a.csv --format jsonl", code=2, says="does not go"),
    Case("out in no folder", f"{ASK} --out no/where.csv", code=2, says="No such file"),
    Case("out is a folder", f"{ASK} --out f.csv", code=2, says="Is a directory",
         prepare=lambda folder: (folder / "f.csv").mkdir()),
    Case("limit 0", f"{ASK} --limit 0", code=2, says="limit"),
    Case("limit -1", f"{ASK} --limit -1", code=2, says="limit"),
    Case("limit x", f"{ASK} --limit x", code=2, says="integer"),
    Case("limit 1", f"{ASK} --limit 1", says="1 answer"),
    Case("SPARQL limit 0", ["query", "TOY", "SELECT ?x { <ann> <parent> ?x } LIMIT 0"],
         code=(0, 2)),
    Case("edges of nowhere", f"{ASK} --edges half", code=2, says="'train+valid'"),
    Case("train edges only", "query TOY '?X . friend(?X, dan)' --edges train --format csv",
         answers=set()),
    Case("all edges", "query TOY '?X . friend(?X, dan)' --format csv", answers=rows("cat")),
    Case("the wrong way round", "query TOY '?X . lives_in(Oslo, ?X)'", says="lives_in(?X, Oslo)"),
    Case("an escape sequence is shown harmless", "query TOY '?X . odd(?X, \"[bold]b[/bold]\")'",
         says="\\x1b[31mred"),
    Case("cross product", "query TOY '?A, ?B, ?C, ?D, ?E . ?A = ?A' --limit 3", code=(0, 2)),
    Case("all pairs of all", "query TOY '?A, ?B . !parent(?A, ?B)' --limit 3", says="3 answers"),
    Case("complement", "query TOY '?X . !parent(ann, ?X)' --format csv --limit 1", code=0),
    Case("a label for a column", "query TOY '?X, ?X_label . parent(?X, ?X_label)'", code=2,
         says="rename ?X_label"),
    Case("a long path", answers=set(), command=[
         "query", "TOY", "SELECT ?x { <ann> " + "/".join(["<parent>"] * 60) + " ?x }",
         "--format", "csv"]),
    Case("explain", "explain '?X . parent(ann, ?X)'", says="parent(ann, ?X)"),
    Case("explain on a graph", "explain '?X . parent(ann, ?X)' --graph TOY", says="2"),
    Case("explain a cycle", "explain '?X . parent(?X, ?X)'", code=2, says="betae query"),
    Case("explain two targets", "explain '?X, ?Y . parent(?X, ?Y)'", code=2, says="betae query"),
    Case("explain, unknown name", "explain '?X . parent(an, ?X)' --graph TOY", code=2,
         says="Closest: 'ann'"),
    Case("explain, no graph there", "explain '?X . parent(ann, ?X)' --graph none", code=2,
         says="There is no folder none"),
]  # fmt: skip
