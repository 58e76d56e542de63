"""Questions: explain, query, answer; one of them, or a file with one per line."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeVar

import typer

from betae.cli.common import (
    NO_PROBABILITIES,
    AsJson,
    GraphOrRun,
    KnownEdges,
    MovedGraph,
    RankMethod,
    RayAddress,
    RunOrGraph,
    app,
    complain,
    err,
    escape_controls,
    examples,
    note,
    on_ray,
    open_graph,
    open_or_mine,
    out,
    parse_graph_or_run,
    print_json,
    say,
    warn,
)
from betae.errors import BetaeError, InvalidArgument, QueryError, UnresolvedName

if TYPE_CHECKING:
    import polars as pl

    from betae.answering.results import Answers
    from betae.cluster import Cluster
    from betae.exact.select import Selection
    from betae.graph.edges import Edges
    from betae.graph.graph import KnowledgeGraph

Found = TypeVar("Found")
Row = dict[str, str | None]
Form = Literal["table", "csv", "jsonl", "parquet"]
FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
WIDTH_ROWS = 1000  # rows that decide the column widths of a table
QUESTIONS_PER_BLOCK = 16  # sent to a worker of a cluster at a time
CSV_COLUMNS = (
    *("entity", "label", "rank", "probability", "status", "score", "num_derivations", "unusual"),
)

QUESTION = typer.Argument(help="Logic text, SPARQL, or a file with either.")
QuestionFile = Annotated[
    str | None, typer.Option(help="A file with one question per line; - for standard input.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="Same as --format jsonl.")]


# ---- explain ------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "betae explain '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)'",
        "betae explain query.rq --graph graph",
    )
)
def explain(
    question: Annotated[str, QUESTION],
    graph: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a graph, or a run, to check names and show exact answers of each step.",
            parser=parse_graph_or_run,
        ),
    ] = None,
    edges: KnownEdges = "all",
) -> None:
    """Draw the computation tree of a question, and its disjunctive normal form."""
    from betae.cli.show import draw_tree, with_exact_answers
    from betae.queries.read import parse_question, read_question, text_or_file
    from betae.queries.rewrite import dnf_branches, explain_negation
    from betae.queries.spelling import labelled

    opened = None if graph is None else open_graph(graph)
    text = text_or_file(question)
    if opened is None:
        tree = parse_question(text).tree
        out.print(draw_tree(tree))
    else:
        asked = read_question(text, opened, edges=edges)
        for each in asked.notes:
            note(f"{each}.")
        tree = labelled(asked.tree, opened)
        out.print(draw_tree(tree, with_exact_answers(opened, edges)))
    say(f"\n{tree}")
    branches = dnf_branches(tree)
    if len(branches) > 1:
        say("\n  ".join([f"\nAs a union of {len(branches)} queries:", *map(str, branches)]))
    if meaning := explain_negation(tree):
        out.print(f"\n[yellow]Note:[/yellow] {meaning}")


# ---- query --------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "betae query graph '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)'",
        "betae query graph '?X, ?Y . borders(?X, ?Y) & borders(?Y, ?X)' --format csv | head",
        "betae query graph query.rq --out answers.parquet",
        "betae query graph --queries questions.txt --out answers.jsonl --ray auto",
    )
)
def query(
    graph: GraphOrRun,
    question: Annotated[str | None, QUESTION] = None,
    queries: QuestionFile = None,
    edges: KnownEdges = "all",
    form: Annotated[
        Form | None,
        typer.Option("--format", help="Output format; default: table, or the ending of --out."),
    ] = None,
    as_json: JsonLines = False,
    target: Annotated[
        Path | None, typer.Option("--out", help="A .csv, .jsonl or .parquet file to write.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of answers.", min=1)] = None,
    ray: RayAddress = None,
) -> None:
    """List all exact answers to a question of any shape; needs no model."""
    chosen = _choose_form(form, as_json, target)
    texts = _read_texts(question, queries, ray)
    if queries is not None and chosen not in ("table", "jsonl"):
        raise InvalidArgument(f"--queries cannot write {chosen}: use table or jsonl.")
    from betae.exact.select import LABEL
    from betae.graph.names import printable

    with on_ray(ray) as cluster, _writing(target) as file:
        opened = open_graph(graph)
        write_json = partial(print_json, file=file) if chosen == "jsonl" else None

        def show(asked: QuestionText, rows: list[Row]) -> None:
            if write_json is not None:
                write_json({**asked.position, "answers": rows})
            else:
                print(printable(asked.text))
                names = [name for name in rows[0] if not name.endswith(LABEL)] if rows else []
                _print_table(rows, names, opened.prefixes)
            if not rows:
                _suggest_inverse(opened, asked.text, edges)

        if queries is None:
            num_failed, text = 0, texts[0].text
            found = _ask(opened, edges, limit, text)
            num_answers = _write(found, chosen, file, opened.prefixes)
            written = f"{num_answers:,} answers"
            for each in getattr(found, "notes", ()):  # of a Selection
                note(f"{each}.")
            if not num_answers:
                _suggest_inverse(opened, text, edges)
        else:
            load = partial(partial, _select_rows, opened, edges, limit)
            num_failed = _answer_all(load, texts, show, write_json, cluster)
            written = f"{len(texts):,} questions"
    if target is not None:
        say(f"{written} written to {target}")
    _exit_if_failed(num_failed, texts)


def _select_rows(graph: KnowledgeGraph, edges: Edges, limit: int | None, text: str) -> list[Row]:
    from betae.exact.select import Selection

    found = _ask(graph, edges, limit, text)
    if isinstance(found, bool):
        return [{"answer": str(found).lower()}]
    return list(found) if isinstance(found, Selection) else list(found.iter_rows(named=True))


def _ask(
    graph: KnowledgeGraph, edges: Edges, limit: int | None, text: str
) -> Selection | bool | pl.DataFrame:
    """Find the rows of a question, the yes or no of ASK, or the triples of CONSTRUCT."""
    from betae.exact.select import Selection, select, sparql
    from betae.queries.read import is_sparql

    if not is_sparql(text):
        return select(graph, text, edges, limit)
    found = sparql(graph, text, edges, limit)
    return found if isinstance(found, bool | Selection) else found.head(limit or len(found))


def _suggest_inverse(graph: KnowledgeGraph, text: str, edges: Edges) -> None:
    """Print a note if a question without answers has some with a relation inverted."""
    from betae.exact.select import hint_of_direction

    if hint := hint_of_direction(graph, text, edges):
        note(hint)


def _choose_form(form: Form | None, as_json: bool, target: Path | None = None) -> Form:
    """Return the format asked for by --format, --json or --out; raise if they contradict."""
    if as_json and form not in (None, "jsonl"):
        raise InvalidArgument(f"Give --json or --format {form}, not both.")
    form = "jsonl" if as_json else form
    if target is None:
        if form == "parquet":
            raise InvalidArgument("--format parquet needs a file: --out answers.parquet.")
        return form or "table"
    if target.suffix not in FORMS:
        raise InvalidArgument(f"{target} must end in .csv, .jsonl or .parquet.")
    if form not in (None, FORMS[target.suffix]):
        raise InvalidArgument(f"--format {form} does not match --out {target}.")
    return FORMS[target.suffix]


@contextmanager
def _writing(target: Path | None) -> Iterator[TextIO]:
    """Open a file that is written whole or not at all; yield standard output without one."""
    from betae.storage import check_file, writing_file

    if target is None:
        yield sys.stdout
        return
    check_file(target)
    with writing_file(target) as path, path.open("w", encoding="utf-8", newline="") as file:
        yield file


def _write(
    found: Selection | bool | pl.DataFrame, form: Form, file: TextIO, prefixes: Mapping[str, str]
) -> int:
    """Write answers as they are found; return their number."""
    from betae.exact.select import Selection

    if isinstance(found, bool):
        if form == "table":
            print("yes" if found else "no")
            return 1
        import polars as pl

        found = pl.DataFrame({"answer": [found]})
    if isinstance(found, Selection):
        rows: Iterable[Row] = found
        names: Sequence[str] = found.variables
    else:
        rows, names = found.iter_rows(named=True), found.columns
    if form == "table":
        return _print_table(rows, names, prefixes)
    if form == "parquet":
        frame = found.to_polars() if isinstance(found, Selection) else found
        buffer = BytesIO()
        frame.write_parquet(buffer)  # polars' own errors do not tell a full disk from others
        file.buffer.write(buffer.getbuffer())
        return len(frame)
    if form == "csv":
        return _write_csv(chain([found.columns], (row.values() for row in rows)), file) - 1
    num_rows = 0
    for row in rows:
        print_json(row, file=file)
        num_rows += 1
    return num_rows


def _write_csv(rows: Iterable[Iterable[object]], file: TextIO) -> int:
    """Write rows, for a terminal with control characters escaped; return their number."""
    writer, is_terminal, num_rows = csv.writer(file), file.isatty(), 0
    for row in rows:
        if is_terminal:
            row = [escape_controls(cell) if isinstance(cell, str) else cell for cell in row]
        writer.writerow(row)
        num_rows += 1
    return num_rows


def _print_table(
    found: Iterable[Row], variables: Sequence[str], prefixes: Mapping[str, str]
) -> int:
    """Print a column for each variable, as wide as its first rows need; return the row count."""
    from rich.cells import cell_len

    rows = (_cells(row, variables, prefixes) for row in found)
    first = list(islice(rows, WIDTH_ROWS))
    if not first:
        print("no answers")
        return 0
    heads = [f"?{name}" for name in variables]
    widths = [max(map(cell_len, column)) for column in zip(heads, *first, strict=True)]
    num_rows = -1  # without the heads
    for row in chain([heads], first, rows):
        pairs = zip(row, widths, strict=True)
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in pairs]
        print("  ".join(padded).rstrip())
        num_rows += 1
    print(f"{num_rows:,} answer{'s' if num_rows > 1 else ''}")
    return num_rows


def _cells(row: Row, variables: Sequence[str], prefixes: Mapping[str, str]) -> list[str]:
    """Label of each variable, followed by the name in parentheses where they differ."""
    from betae.graph.names import printable, shorten

    cells = []
    for variable in variables:
        name = shorten(row[variable] or "", prefixes)
        label = shorten(row.get(f"{variable}_label", name) or "", prefixes)
        cells.append(printable(label if name == label else f"{label} ({name})"))
    return cells


# ---- answer -------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "betae answer run '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)' --explain",
        "betae answer graph '?X . capital(France, ?X)' --explain",
        "betae answer run query.rq --only predicted -k 20 --format csv",
        "betae answer run 'SELECT ?x ?probability { <France> <capital> ?x }'",
        "betae answer run --queries questions.txt --format jsonl",
        "betae answer run --queries questions.txt --format jsonl --ray auto",
        "echo '?X . capital(France, ?X)' | betae answer run --queries -",
    )
)
def answer(
    run: RunOrGraph,
    question: Annotated[str | None, QUESTION] = None,
    queries: QuestionFile = None,
    k: Annotated[
        int | None,
        typer.Option("-k", help="Number of answers; default: 10, or the LIMIT of SPARQL.", min=1),
    ] = None,
    only: Annotated[
        Literal["known", "assumed", "predicted"] | None,
        typer.Option(help="Show answers of this status only."),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Smallest probability to show.", min=0, max=1)
    ] = 0.0,
    method: RankMethod = "completed",
    union: Annotated[
        Literal["DNF", "DM"],
        typer.Option(help="Form of unions with --method embedding, see docs/models.md."),
    ] = "DNF",
    edges: KnownEdges = "all",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the derivation of each answer.")
    ] = False,
    form: Annotated[
        Literal["table", "jsonl", "csv"] | None,
        typer.Option("--format", help="Output format.", show_default="table"),
    ] = None,
    as_json: JsonLines = False,
    graph: MovedGraph = None,
    use_index: Annotated[
        bool, typer.Option("--index", help="Use the indexes of betae index build.")
    ] = False,
    ray: RayAddress = None,
) -> None:
    """Answer a question: ranked entities, known or predicted, with probabilities."""
    from betae.queries.mistakes import is_english
    from betae.queries.read import is_sparql, parse_question
    from betae.queries.sparql import asks_for_probability

    chosen = _choose_form(form, as_json)
    texts = _read_texts(question, queries, ray)
    if question is not None and is_sparql(text := texts[0].text) and asks_for_probability(text):
        if k or only or threshold or explain or use_index or method != "completed":
            raise InvalidArgument(
                "A query with ?probability or ?status takes no options for that: write LIMIT, "
                "FILTER(?status = 'predicted') or FILTER(?probability > 0.3)."
            )
        opened = open_or_mine(run, graph)
        _write(opened.sparql(text, edges), chosen, sys.stdout, opened.graph.prefixes)
        return
    if question is not None and not is_english(texts[0].text):  # of which the graph says more
        # Raise for its syntax now; any prefix may be defined by the graph.
        assert parse_question(texts[0].text, defaultdict(str)).tree is not None
    with on_ray(ray) as cluster:
        opened = open_or_mine(run, graph)
        with err.status("Opening the run") as status:
            load = partial(opened.answerer, edges, method=method, use_index=use_index, union=union)
            answerer = load(notify=status.update)  # fits here, once, what workers of a cluster need
        if answerer.ranker.method != method:
            warn(NO_PROBABILITIES)
        elif explain and method == "embedding":
            warn("--explain needs the completed graph: leave out --method embedding.")
        if chosen == "csv":
            _write_csv([["query", *CSV_COLUMNS, *(["why"] if explain else [])]], sys.stdout)

        def show(asked: QuestionText, found: Answers) -> None:
            _print_answers(asked, found, chosen, explain)
            if not found.num_known:
                _suggest_inverse(answerer.graph, found.query, edges)

        options = {"k": k, "status": only, "threshold": threshold, "explain": explain}
        load_answer = partial(_load_answer, load if cluster else lambda: answerer, options)
        write_json = print_json if chosen == "jsonl" else None
        num_failed = _answer_all(load_answer, texts, show, write_json, cluster)
    _exit_if_failed(num_failed, texts)


def _load_answer(load: Callable[[], Any], options: dict[str, Any]) -> Callable[[str], Answers]:
    return partial(load().answer, **options)


def _print_answers(asked: QuestionText, found: Answers, form: Form, explain: bool) -> None:
    """Print the answers to a question as a table, a line of JSON, or rows of CSV."""
    from betae.cli.show import draw_answers, shown_derivation

    if form == "jsonl":
        print_json({**asked.position, **found.to_json()})
    elif form == "csv":
        rows = [
            [found.query, *(getattr(each, column) for column in CSV_COLUMNS)]
            + ([shown_derivation(each.why) if each.why else ""] if explain else [])
            for each in found
        ]
        _write_csv(rows, sys.stdout)
    else:
        say(found.query)
        out.print(draw_answers(found))


# ---- ask ----------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "betae ask graph 'capital(France, Paris)'",
        "betae ask run 'exists ?C : borders(France, ?C) & borders(?C, Austria)'",
    )
)
def ask(
    run: RunOrGraph,
    question: Annotated[
        str, typer.Argument(help="Logic text without an answer variable, or SPARQL's ASK.")
    ],
    edges: KnownEdges = "all",
    as_json: AsJson = False,
    graph: MovedGraph = None,
) -> None:
    """Answer yes or no: a fact, or how probable it is, and why."""
    from betae.cli.show import draw_reasons

    found = open_or_mine(run, graph).ask(question, edges=edges)
    if as_json:
        print_json(found.to_json())
        return
    say(repr(found))
    if found.answer is not None:
        out.print(*draw_reasons([found.answer]))


# ---- one question, or a file of them ------------------------------------------------------------


@dataclass(frozen=True)
class QuestionText:
    """The text of a question, with the file and line it was read from."""

    text: str
    file: str = ""
    line: int = 0  # from 1; 0 if not from a file

    @property
    def position(self) -> dict[str, object]:
        """Line and text, for the JSON of a question from a file."""
        return {"line": self.line, "text": self.text} if self.line else {}


def _read_texts(question: str | None, file: str | None, ray: str | None) -> list[QuestionText]:
    """Return the one question, or those of a file without empty lines and comments (#)."""
    from betae.queries.read import text_or_file

    if ray is not None and file is None:
        raise InvalidArgument("--ray shares the questions of a file: give them with --queries.")
    if question is not None and file is not None:
        raise InvalidArgument("Give a question or --queries, not both.")
    if question is not None:
        return [QuestionText(text_or_file(question))]
    if file is None:
        raise InvalidArgument("Give a question, or a file of questions with --queries.")
    name = "standard input" if file == "-" else file
    try:
        content = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is not UTF-8 text.") from error
    texts = [
        QuestionText(line, name, i)
        for i, line in enumerate(content.split("\n"), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not texts:
        warn(f"{name} has no questions.")
    return texts


def _answer_all(
    load: Callable[[], Callable[[str], Found]],
    texts: Sequence[QuestionText],
    show: Callable[[QuestionText, Found], None],
    write_json: Callable[[dict[str, object]], object] | None,
    cluster: Cluster | None,
) -> int:
    """Answer questions and show each result as it comes; return how many failed.

    `load` returns the function that answers a question; on a cluster, each worker process calls it
    once. The error of a question from a file is printed, and written as JSON if the answers are.
    """
    from betae.cluster import map_blocks

    size = 1 if cluster is None else QUESTIONS_PER_BLOCK
    starts = range(0, len(texts), size)
    blocks = ([each.text for each in texts[start : start + size]] for start in starts)
    results = chain.from_iterable(map_blocks(load, _answer_block, blocks, cluster))
    num_failed = 0
    for question, result in zip(texts, results, strict=True):
        if not isinstance(result, BetaeError):
            show(question, result)
        elif not question.line:
            raise result
        else:
            num_failed += 1
            if write_json is not None:
                write_json({**question.position, "error": str(result)})
            complain(f"{question.file}, line {question.line}: {result}")
    return num_failed


def _answer_block(answer: Callable[[str], Found], texts: Sequence[str]) -> list[Found | BetaeError]:
    """Answer a block of questions, with the errors of those that fail."""
    results: list[Found | BetaeError] = []
    for text in texts:
        try:
            results.append(answer(text))
        except (InvalidArgument, QueryError, UnresolvedName) as error:
            results.append(error)
    return results


def _exit_if_failed(num_failed: int, texts: Sequence[QuestionText]) -> None:
    """Exit with code 2 if some questions could not be answered."""
    if num_failed:
        complain(f"{num_failed:,} of {len(texts):,} questions could not be answered.")
        raise typer.Exit(2)
