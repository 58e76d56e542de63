"""Odd commands and places: options, damaged stores and runs, small graphs, pipes, library calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from odd_inputs import Case, run_main
from odd_questions import FACTS, LABELS, TEST, VALID

ASK = "'?X . r0(e1, ?X)'"
RECIPE = """\
steps = 6
batch_size = 16
candidates = 16
validate_every = 3
checkpoint_every = 3
validation_queries = 5
warmup = 0
structures = {1p = 1, 2i = 1}
model = {name = "betae", dim = 4, hidden = 4}
"""
PLACES: dict[str, Path] = {}  # where TOY, ONE, SET and RUN are, once they are made


def make_places(folder: Path) -> dict[str, Path]:
    """Make what many cases are about: graphs, a query set, a trained run."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        for name, text in (("f", FACTS), ("v", VALID), ("t", TEST), ("l", LABELS)):
            Path(f"{name}.tsv").write_text(text, encoding="utf-8")
        Path("one.tsv").write_text("a\tr\tb\n")
        edges = {(i * 7 % 20, i % 2, (i * 3 + i // 5) % 20) for i in range(90)}
        lines = [f"e{head}\tr{relation}\te{tail}\n" for head, relation, tail in sorted(edges)]
        Path("many.tsv").write_text("".join(lines))
        Path("recipe.toml").write_text(RECIPE)
        for command in (
            "ingest f.tsv --valid v.tsv --test t.tsv --labels l.tsv --out TOY",
            "ingest one.tsv --out ONE",
            "ingest many.tsv --valid 0.2 --test 0.1 --out MANY",
            "sample MANY 1p:5 --split test --out SET",
            "train MANY --recipe recipe.toml --out RUN",
        ):
            done = run_main(command.split())
            assert done.code == 0, f"{command}\n{done.output}"
    finally:
        os.chdir(before)
    PLACES.update({name: folder / name for name in ("TOY", "ONE", "MANY", "SET", "RUN")})
    return PLACES


# ---- options ------------------------------------------------------------------------------------

FACTS_FILE = {"a.tsv": "a\tr\tb\n", "c.tsv": "c\tr\td\n", "recipe.toml": RECIPE}
# A command, words of the message; the exit code is 2.
WRONG = [
    ("fly", "fly"),
    ("--fly", "--fly"),
    ("Ingest a.tsv --out graph", "Ingest"),
    ("ingest", "SOURCE"),
    ("ingest a.tsv", "--out"),
    ("ingest a.tsv --out", "--out"),
    ("ingest --out graph", "SOURCE"),
    ("ingest none.tsv --out graph", "none.tsv: there is no such file"),
    ("ingest a.tsv --out graph --valid", "--valid"),
    ("ingest a.tsv --out graph --valid 1.5", "below 1"),
    ("ingest a.tsv --out graph --valid -1", "at least 0"),
    ("ingest a.tsv --out graph --valid nan", "fractions"),
    ("ingest a.tsv --out graph --valid inf", "fractions"),
    ("ingest a.tsv --out graph --valid 0.6 --test 0.6", "below 1 together"),
    ("ingest a.tsv --out graph --valid 10%", "10%"),
    ("ingest a.tsv --out graph --valid 0,1", "0,1"),
    ("ingest a.tsv --out graph --seed -1", "seed"),
    ("ingest a.tsv --out graph --seed x", "integer"),
    ("ingest a.tsv --out graph --append", "graph"),
    ("ingest a.tsv --out graph --remove", "graph"),
    ("ingest a.tsv --out ONE", "already exists"),
    ("ingest a.tsv --out ONE --append --overwrite", "--append"),
    ("ingest a.tsv --out ONE --append --remove", "--remove"),
    ("ingest a.tsv --out ONE --append --valid 0.1", "--append"),
    ("ingest a.tsv --out a.tsv", "a.tsv"),
    ("ingest a.tsv --out a.tsv --overwrite", "a.tsv"),
    ("ingest a.tsv --out a.tsv/graph", "Cannot write a.tsv/graph"),
    ("ingest a.tsv --out ''", "already exists"),
    ("ingest a.tsv --out . --overwrite", "."),
    ("ingest '' --out graph", "empty"),
    ("ingest a.tsv --out graph --verbose", "--verbose"),
    ("export ONE", "Missing argument 'file'"),
    ("export none out.csv", "none"),
    ("export ONE out", "--format"),
    ("export ONE out.rdf", "cannot write '.rdf'"),
    ("export ONE out.xlsx", "cannot write '.xlsx'"),
    ("export ONE out.parquet.gz", "cannot write"),
    ("export ONE out.csv --split half", "'valid'"),
    ("export ONE no/out.csv", "No such file"),
    ("export ONE a.tsv/out.csv", "Not a directory"),
    ("export a.tsv out.csv", "a.tsv"),
    ("info", "Missing argument 'graph'"),
    ("info none", "none"),
    ("info a.tsv", "a.tsv"),
    ("info .", "is not a betae graph"),
    ("info ''", ""),
    ("info RUN", "is a run, not a graph"),
    ("info SET", "graph"),
    ("info ONE TOY", "unexpected"),
    ("entities none", "none"),
    ("entities ONE --limit 0", "limit"),
    ("relations none", "none"),
    ("relations ONE --limit x", "integer"),
    ("query ONE", "Give a question, or --queries"),
    ("query none '?X . r(a, ?X)'", "There is no folder none"),
    ("query '?X . r(a, ?X)' ONE", "folder"),
    ("query RUN '?X . r(a, ?X)'", "is a run, not a graph"),
    ("sample ONE", "--out"),
    ("sample none --out s", "none"),
    ("sample MANY 9p --out s", "9p"),
    ("sample MANY 1p:0 --out s", "at least 1"),
    ("sample MANY 1p:x --out s", "1p:x"),
    ("sample MANY 1p:-3 --out s", "1p:-3"),
    ("sample MANY '' --out s", ""),
    ("sample MANY '?X . zz(_, ?X):3' --out s", "zz"),
    ("sample MANY '?X . r0(_, ?X' --out s", "Expected"),
    ("sample MANY --split none --out s", "'test'"),
    ("sample MANY --count 0 --out s", "count"),
    ("sample MANY --max-answers 0 --out s", "max-answers"),
    ("sample MANY --out SET", "already exists"),
    ("sample ONE 1p:3 --split test --out s", "test"),
    ("sample ONE 1p:3 --split valid --out s", "valid"),
    ("train none --out r", "none"),
    ("train ONE", "--out"),
    ("train MANY --recipe none.toml --out r", "There is no file none.toml"),
    ("train MANY --queries none --out r", "There is no folder none"),
    ("train MANY --minutes -1 --out r", "minutes"),
    ("train MANY --minutes x --out r", "valid number"),
    ("train MANY --recipe recipe.toml --out RUN", "--resume"),
    ("train MANY --queries SET --recipe recipe.toml --out r", "is for test"),
    ("train RUN --out r", "is a run, not a graph"),
    ("plot none", "There is no folder none"),
    ("plot RUN --out curves.doc", ".png"),
    ("plot MANY", "run"),
    ("inspect none", "There is no folder none"),
    ("inspect MANY", "model"),
    ("eval RUN", "--queries"),
    ("eval none --queries SET", "There is no folder none"),
    ("eval RUN --queries none", "There is no folder none"),
    ("eval RUN --queries MANY", "query set"),
    ("eval MANY --queries SET", "is not a run"),
    ("eval RUN --queries SET --graph TOY", "graph"),
    ("eval RUN --queries SET --method magic", "'completed'"),
    ("report none", "none"),
    ("report MANY", "MANY"),
    ("report RUN", "betae eval"),
    ("answer RUN", "Give a question"),
    ("answer none '?X . r0(e1, ?X)'", "There is no folder none"),
    ("answer MANY '?X . r0(e1, ?X)'", "is not a run"),
    (f"answer RUN {ASK} --queries q.txt", "not both"),
    ("answer RUN --queries none.txt", "none.txt"),
    (f"answer RUN {ASK} -k 0", "-k"),
    (f"answer RUN {ASK} --threshold 2", "threshold"),
    (f"answer RUN {ASK} --only unknown", "'predicted'"),
    (f"answer RUN {ASK} --json --format csv", "not both"),
    (f"answer RUN {ASK} --index", "betae index build"),
    ("answer RUN '?X . r0(e99, ?X)'", "Closest: 'e9'"),
    ("answer RUN '?X . r0(e1, ?X'", "')'"),
    ("answer RUN '?X, ?Y . r0(?X, ?Y)'", "betae query"),
    ("complete none", "There is no folder none"),
    ("complete RUN --relation r9", "Closest"),
    ("complete RUN --entity e99", "Closest"),
    ("complete RUN --above 2", "above"),
    ("complete RUN --above 1", "below 1"),
    ("complete RUN --out missing.doc", ".tsv"),
    ("complete RUN --out no/missing.tsv", "No such file"),
    ("index", ""),
    ("index build none", "There is no folder none"),
    ("index build RUN --kind tree", "'hnsw'"),
    ("index build RUN --kind hnsw", "hnsw"),
    ("index export RUN v.csv", ".parquet"),
    ("index export RUN no/v.npy", "No such file"),
    ("demo --out a.tsv", "a.tsv"),
]

# A command that must work, and words of the output.
RIGHT = [
    ("--help", "ingest"),
    ("-h", "ingest"),
    ("--version", "betae 0"),
    ("info ONE", "2 entities"),
    ("info ONE --json", '"entities": 2'),
    ("info ONE --verify", "2 entities"),
    ("info TOY", "parent"),
    ("entities ONE", "a"),
    ("entities TOY --search SAM", "cat"),
    ("entities TOY --search zzz", "No entity has 'zzz'"),
    ("entities TOY --search '['", "[bold]b"),
    ("entities TOY --search '.*'", "No entity has"),
    ("entities TOY --limit 999999", "exists"),
    ("entities TOY --json --limit 1", '"name"'),
    ("relations TOY", "~likes"),
    ("relations TOY --search PARENT", "parent"),
    ("relations TOY --search prent", "Closest: 'parent'"),
    ("export ONE -", "a r b"),
    ("export TOY -", "exists to SELECT"),
    ("export ONE - --format parquet", "PAR1"),
    ("export TOY - --format nt", "<urn:betae:ann>"),
    ("export TOY - --split valid", "bob friend cat"),
    ("export ONE - --split test", "head relation tail"),
    ("ingest a.tsv --out 'with space/and more'", "written to with space/and more"),
    ("ingest a.tsv --out graph[1]*", "written to graph[1]*"),
    ("ingest a.tsv --out ~x", "written to ~x"),
    ("ingest a.tsv --out 🚀", "written to 🚀"),
    ("ingest a.tsv --out [red]x", "written to [red]x"),
    ("sample MANY 1p:3 --out s", "3 queries written to s"),
    ("sample MANY 1p:3 1p:4 --out s", "written to s"),
    ("sample MANY 1p:3 --out s --pickles", "written to s"),
    ("sample MANY 1p:999999 --out s", "1p"),
    ("sample ONE 1p:3 --out s", "1p"),
    ("sample ONE 2p:3 --out s", "2p"),
    ("inspect RUN", "betae"),
    ("inspect RUN --json", '"dim": 4'),
    ("answer RUN '?X . r0(e1, ?X)' -k 3", "?X . r0(e1, ?X)"),
    ("answer RUN '?X . r0(e1, ?X)' -k 999999 --json", '"answers"'),
    ("answer RUN '?X . r0(e1, ?X)' --method embedding", "?X . r0(e1, ?X)"),
    ("answer RUN '?X . r0(e1, ?X) & !r0(e1, ?X)'", "0 known"),
    ("answer RUN '?X . !r0(e1, ?X)' --explain -k 2", "?X"),
    ("answer RUN 'SELECT ?x { <e1> <r0>+ ?x }' -k 2", "?X"),
    ("complete RUN --entity e1 --above 0", "e1"),
    ("train MANY --recipe recipe.toml --out r --resume", "written to r"),
    ("train ONE --recipe recipe1.toml --out r", "no validation edges"),
    ("ingest a.tsv --valid 0.3 --test 0.3 --out g", "written to g"),
]
RECIPE_1 = RECIPE.replace(", 2i = 1", "")

# What is in a recipe, and words of the message.
RECIPES: list[tuple[str, str | bytes, str]] = [
    ("not TOML", "steps: 5", "not valid TOML"),
    ("half", "steps = ", "not valid TOML"),
    ("UTF-16", "steps = 5".encode("utf-16"), "not valid TOML"),
    ("unknown key", "step = 5", "'steps'"),
    ("a word for a number", 'steps = "five"', "steps"),
    ("negative", "steps = -5", "steps"),
    ("zero", "batch_size = 0", "batch_size"),
    ("not a number", "learning_rate = nan", "learning_rate"),
    ("infinite", "learning_rate = inf", "learning_rate"),
    ("a model as a word", 'model = "betae"', "model"),
    ("an unknown model", 'model = {name = "bert"}', "bert"),
    ("an unknown structure", "structures = {9p = 1}", "9p"),
    ("no structures for the batch", "batch_size = 2", "batch_size"),
    ("a huge dim", 'model = {name = "betae", dim = 0}', "dim"),
    ("a predictor that is none", 'predictor = {model = {name = "gqe"}}', "predictor"),
    ("boolean", "steps = true", "steps"),
]


def place_cases() -> Iterator[Case]:
    """Yield the cases of options, places and library calls."""
    for command, words in WRONG:
        yield Case(f"wrong: {command}", command, FACTS_FILE, 2, words)
    for command, words in RIGHT:
        files = {**FACTS_FILE, "recipe1.toml": RECIPE_1}
        yield Case(f"right: {command}", command, files, 0, words)
    for name, content, words in RECIPES:
        command = "train MANY --recipe r.toml --out run"
        yield Case(f"recipe: {name}", command, {"r.toml": content}, 2, words)
    from odd_damage import damage_cases

    yield from damage_cases()
