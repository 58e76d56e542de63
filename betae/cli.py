"""The command line: one command is one library call, plus how its result is shown.

Nothing heavy is imported here at the top: `betae --help` must answer at once.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from betae.errors import BetaeError, InvalidArgument

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Answer first-order-logic questions over large, incomplete knowledge graphs.",
    epilog="Start with [bold]betae demo[/bold].",
)
out, err = Console(), Console(stderr=True)


def main() -> None:
    """Run the command line; an error that a user can act on is printed without a traceback."""
    try:
        app()
    except BetaeError as error:
        err.print("[bold red]Error:[/bold red]", Text(str(error)), highlight=False, soft_wrap=True)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from betae import __version__

        print(f"betae {__version__}")
        raise typer.Exit


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Where the trained run is kept, and found again.")
    ] = Path("betae-demo"),
) -> None:
    """Train on the bundled graph `world` and answer a question about it, in about a minute."""
    from betae.demo import run_demo

    run_demo(out, folder)


@app.command(
    epilog="Examples:\n\n"
    "  betae ingest facts.tsv --out graph\n\n"
    "  betae ingest facts.nt.gz --valid 0.1 --test 0.1 --out graph\n\n"
    "  betae ingest train.csv --valid valid.csv --test test.csv --labels names.tsv --out graph\n\n"
    "  betae ingest FB15k-237-betae --out graph"
)
def ingest(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Files of triples (.tsv .txt .csv .parquet, RDF: .nt .ttl .nq .trig .n3 .rdf "
            ".jsonld; also .gz), or one folder in the BetaE release layout.",
            metavar="SOURCE...",
        ),
    ],
    target: Annotated[Path, typer.Option("--out", help="Folder to write the graph to.")],
    valid: Annotated[str, typer.Option(help="A file, or a fraction to split off.")] = "0",
    test: Annotated[str, typer.Option(help="A file, or a fraction to split off.")] = "0",
    labels: Annotated[
        Path | None, typer.Option(help="Two columns: name and human-readable label.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
) -> None:
    """Turn files of triples into a graph folder."""
    from betae.datasets.release import is_release, read_release
    from betae.graph import KnowledgeGraph
    from betae.storage import check_writable
    from betae.triples import read_triples

    check_writable(target, overwrite)
    with err.status("Reading") as status:
        if len(sources) == 1 and sources[0].is_dir():
            if not is_release(sources[0]):
                raise InvalidArgument(
                    f"{sources[0]} is a folder without id2ent.pkl. Name the files of triples."
                )
            triples = read_release(sources[0], labels)
        else:
            triples = read_triples(
                *sources,
                valid=_file_or_fraction(valid),
                test=_file_or_fraction(test),
                labels=labels,
                seed=seed,
                say=lambda text: status.update(escape(text)),
            )
        status.update("Sorting the adjacency")
        graph = KnowledgeGraph.from_triples(triples)
        status.update("Writing the graph")
        graph.save(target, overwrite)
    for what, count in asdict(triples.report).items():
        if count:
            _say(f"{count:>12,} {what.replace('_', ' ')}")
    _say(f"{graph!r}\nwritten to {target}")


def _say(text: str) -> None:
    """Print text as it is: no markup, no colours, no line breaks of our own."""
    out.print(Text(text), highlight=False, soft_wrap=True)


def _file_or_fraction(text: str) -> Path | float:
    try:
        return float(text)
    except ValueError:
        return Path(text)


@app.command(epilog="Example:  betae export graph all.csv")
def export(
    graph: Annotated[Path, typer.Argument(help="Folder of a graph.")],
    file: Annotated[Path, typer.Argument(help="File to write: .tsv, .csv or .parquet.")],
    split: Annotated[str, typer.Option(help="train, valid, test or all.")] = "all",
) -> None:
    """Write the edges of a graph by name."""
    from betae.edges import SPLITS
    from betae.graph import KnowledgeGraph

    splits = [name for name in SPLITS if split in (name, "all")]
    if not splits:
        raise InvalidArgument(f"--split is train, valid, test or all, not {split!r}.")
    KnowledgeGraph.open(graph).export(file, splits)


@app.command(epilog="Example:  betae info graph --json")
def info(
    graph: Annotated[Path, typer.Argument(help="Folder of a graph.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a graph: entities, relations, edges per split, degrees, frequent relations."""
    from betae.describe import describe_graph, draw_description
    from betae.graph import KnowledgeGraph

    description = describe_graph(KnowledgeGraph.open(graph))
    if as_json:
        print(json.dumps(asdict(description), ensure_ascii=False, indent=2))
    else:
        out.print(draw_description(description, title=escape(str(graph))))


@app.command(
    epilog="Examples:\n\n"
    "  betae explain '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)'\n\n"
    "  betae explain query.rq --graph graph"
)
def explain(
    query: Annotated[
        str,
        typer.Argument(help="Logic text, or a SPARQL SELECT, or a file that holds either."),
    ],
    graph: Annotated[
        Path | None,
        typer.Option(help="A graph folder: find the names there and show the exact answers."),
    ] = None,
) -> None:
    """Draw the computation tree of a query and its normal forms."""
    from betae.graph import KnowledgeGraph
    from betae.queries.ast import resolve
    from betae.queries.draw import draw_tree, explain_negation, with_exact_answers
    from betae.queries.read import read_query
    from betae.queries.rewrite import dnf_branches

    tree = read_query(query)
    if graph is None:
        out.print(draw_tree(tree))
    else:
        opened = KnowledgeGraph.open(graph)
        resolve(tree, opened)
        out.print(draw_tree(tree, with_exact_answers(opened)))
    _say(f"\n{tree}")
    branches = dnf_branches(tree)
    if len(branches) > 1:
        out.print(f"\nAs a union of {len(branches)} queries:")
        for branch in branches:
            _say(f"  {branch}")
    if meaning := explain_negation(tree):
        out.print(f"\n[yellow]Note:[/yellow] {meaning}")


@app.command(
    epilog="Examples:\n\n"
    "  betae sample graph --out train-queries\n\n"
    "  betae sample graph --split test --count 5000 --out test-queries\n\n"
    "  betae sample graph 2p:1000 '?X . located_in(?X, Europe) & !_(_, ?X):50' --out queries"
)
def sample(
    graph: Annotated[Path, typer.Argument(help="Folder of a graph.")],
    target: Annotated[Path, typer.Option("--out", help="Folder to write the query set to.")],
    structures: Annotated[
        list[str] | None,
        typer.Argument(
            help="Structures, each as NAME or NAME:COUNT; the paper's names, or logic text with _ "
            "for open names. Default: those the paper trains on, or tests on.",
            metavar="[STRUCTURE...]",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "train",
    count: Annotated[int, typer.Option(help="Queries per structure without a COUNT.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same set.")] = 0,
    max_answers: Annotated[
        int | None, typer.Option(help="Most answers of a query [valid, test: 100].")
    ] = None,
    max_hard: Annotated[
        int | None,
        typer.Option(help="Most hard answers instead, as in the sets released with the paper."),
    ] = None,
    as_pickles: Annotated[
        bool, typer.Option("--pickles", help="Write the release's pickles instead.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
) -> None:
    """Draw queries with their answers from a graph."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from betae.graph import KnowledgeGraph
    from betae.queries.files import write_release_queries
    from betae.queries.sample import draw_report, parse_counts, sample_queries
    from betae.storage import check_writable

    check_writable(target, overwrite)
    counts = parse_counts(structures or [], split, count)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True) as bars:
        tasks = {name: bars.add_task(name, total=wanted) for name, wanted in counts.items()}
        queries = sample_queries(
            KnowledgeGraph.open(graph),
            counts,
            split,
            seed=seed,
            max_answers=max_answers,
            max_hard=max_hard,
            progress=lambda name, drawn: bars.update(tasks[name], completed=drawn),
        )
        if as_pickles:
            write_release_queries(queries, target, overwrite)
        else:
            queries.save(target, overwrite)
    out.print(draw_report(queries))
    _say(f"{len(queries):,} queries written to {target}")


@app.command(epilog="Example:  betae inspect model --json")
def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a model: its geometry, config, and the size and range of every tensor."""
    from rich.table import Table

    from betae.models.files import describe_model
    from betae.training.checkpoint import best_model

    is_run = (checkpoint / "config.json").is_file()
    model = describe_model(best_model(checkpoint) if is_run else checkpoint)
    if as_json:
        print(json.dumps(asdict(model), indent=2))
        return
    _say(f"{model.geometry}, {model.parameters:,} parameters")
    _say(f"{model.entities:,} entities, {model.relations:,} directed relations")
    _say(", ".join(f"{name} {value}" for name, value in model.config.items()))
    table = Table(box=None, padding=(0, 1))
    for column in ("tensor", "shape", "mean", "std", "smallest", "largest"):
        is_name = column == "tensor"
        table.add_column(column, justify="left" if is_name else "right", overflow="fold")
    for name, facts in model.tensors.items():
        shape = " x ".join(map(str, facts["shape"]))
        numbers = [f"{facts[key]:.3g}" for key in ("mean", "std", "smallest", "largest")]
        table.add_row(name, shape, *numbers)
    out.print(table)


@app.command(
    epilog="Examples:\n\n"
    "  betae train graph --out run\n\n"
    "  betae train graph --recipe recipe.toml --minutes 30 --out run\n\n"
    "  betae train graph --recipe recipe.toml --out run --resume\n\n"
    "  torchrun --nproc-per-node 2 -m betae train graph --out run"
)
def train(
    graph: Annotated[Path, typer.Argument(help="Folder of a graph.")],
    target: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    recipe: Annotated[
        Path | None, typer.Option(help="TOML with settings; what it leaves out has a default.")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Training queries [drawn from the graph on the fly].")
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="Validation queries [sampled from the graph].")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time for training; the learning rate falls with it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run.")] = False,
) -> None:
    """Train a model to answer queries; Ctrl-C ends it cleanly, --resume goes on."""
    from betae.graph import KnowledgeGraph
    from betae.queries.files import QuerySet
    from betae.training.config import TrainConfig, read_recipe
    from betae.training.loop import train as run_training
    from betae.training.show import showing_progress

    config = TrainConfig() if recipe is None else read_recipe(recipe)
    opened = KnowledgeGraph.open(graph)
    with showing_progress(err, target, config, minutes) as report:
        result = run_training(
            opened,
            config,
            target,
            queries=None if queries is None else QuerySet.open(queries),
            valid=None if valid is None else QuerySet.open(valid),
            minutes=minutes,
            resume=resume,
            report=report,
        )
    if report.is_shown:
        _say(f"{result.why} at step {result.step:,}, {result.seconds / 60:.1f} minutes of training")
        if result.best_step:
            _say(f"best validation MRR {result.best_mrr:.1f} % at step {result.best_step:,}")
        _say(f"written to {target}")


@app.command(epilog="Example:  betae plot run --out curves.svg")
def plot(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    target: Annotated[
        Path | None, typer.Option("--out", help="A .png or .svg file [curves.png in the run].")
    ] = None,
) -> None:
    """Draw the loss and the validation MRR of a run."""
    from betae.training.plot import plot_run

    target = target or run / "curves.png"
    plot_run(run, target)
    _say(f"written to {target}")


@app.command(
    "eval",
    epilog="Examples:\n\n"
    "  betae eval run --queries test-queries\n\n"
    "  betae eval run --queries NELL-betae --empty 4000\n\n"
    "  torchrun --nproc-per-node 2 -m betae eval run --queries test-queries",
)
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    queries: Annotated[
        Path, typer.Option(help="A query set, or a folder with the release's pickles.")
    ],
    split: Annotated[str, typer.Option(help="Of a release: valid or test.")] = "test",
    graph: Annotated[
        Path | None, typer.Option(help="Folder of the graph, if it has moved since training.")
    ] = None,
    empty: Annotated[
        int,
        typer.Option(
            help="Queries without answers, and as many with, to tell apart in each structure."
        ),
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rank the hard answers of a query set and measure what the model knows of its uncertainty."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from betae import processes
    from betae.evaluation.evaluate import evaluate as run_evaluation
    from betae.evaluation.report import draw_summary, save_evaluation
    from betae.models.files import load_model
    from betae.queries.files import open_queries
    from betae.training.checkpoint import best_model, open_graph

    model, opened = load_model(best_model(run)), open_graph(run, graph)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with processes.joined("Run it again."):
        is_writer = processes.rank() == 0
        with Progress(*columns, console=err, transient=True, disable=not is_writer) as bars:
            task = bars.add_task("reading the queries", total=None)
            evaluation = run_evaluation(
                model,
                opened,
                open_queries(opened, queries, split),
                empty_queries=empty,
                progress=lambda what, done, total: bars.update(
                    task, description=what, completed=done, total=total
                ),
            )
        if not evaluation.structures:
            raise InvalidArgument(f"The model cannot do {', '.join(evaluation.cannot)}.")
        if is_writer:
            suffix = "" if evaluation.queries["split"] == "test" else "-valid"
            path = save_evaluation(evaluation, run, queries.resolve().name + suffix)
            if as_json:
                print(json.dumps(evaluation.to_json()))
            else:
                out.print(draw_summary(evaluation.to_json()))
                _say(f"written to {path}; betae report {run} makes a page of it")


@app.command(epilog="Example:  betae report run-a run-b --out report")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="RUN...")],
    target: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("report"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
) -> None:
    """Write the evaluations of some runs as Markdown, JSON and one HTML page, beside the paper."""
    from betae.evaluation.report import write_report

    write_report(runs, target, overwrite)
    _say(f"written to {target}: open {target / 'report.html'}")


@app.command(
    epilog="Examples:\n\n"
    "  betae answer run '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)' --explain\n\n"
    "  betae answer run query.rq --only predicted -k 20 --format csv\n\n"
    "  betae answer run --queries questions.txt --format jsonl\n\n"
    "  echo '?X . capital(France, ?X)' | betae answer run --queries -"
)
def answer(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    question: Annotated[
        str | None,
        typer.Argument(help="Logic text, or a SPARQL SELECT, or a file that holds either."),
    ] = None,
    queries: Annotated[
        str | None, typer.Option(help="A file of questions in logic text, one a line; - for stdin.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.")] = 10,
    only: Annotated[str | None, typer.Option(help="known or predicted.")] = None,
    threshold: Annotated[float, typer.Option(help="Least probability.")] = 0.0,
    union: Annotated[str, typer.Option(help="DNF or DM: how unions are taken.")] = "DNF",
    edges: Annotated[
        str, typer.Option(help="The facts that count as known: train, train+valid or all.")
    ] = "train",
    explain: Annotated[bool, typer.Option("--explain", help="Say why.")] = False,
    form: Annotated[str, typer.Option("--format", help="table, jsonl or csv.")] = "table",
    graph: Annotated[
        Path | None, typer.Option(help="Folder of the graph, if it has moved since training.")
    ] = None,
) -> None:
    """Answer a question: ranked entities, known or predicted, how sure, and why."""
    from typing import Any, cast

    from betae.answering.answerer import Answerer
    from betae.answering.show import print_answers
    from betae.checks import check_choice

    check_choice("--format", form, ("table", "jsonl", "csv"))
    if (question is None) == (queries is None):
        raise InvalidArgument("Give a question, or --queries with a file of them.")
    with err.status("Opening the run") as status:
        answerer = Answerer.open(run, graph, cast(Any, edges), status.update)
    lines = [question] if question is not None else _read_lines(cast(str, queries))
    results = (
        answerer.answer(
            line,
            k,
            status=cast(Any, only),
            threshold=threshold,
            union=cast(Any, union),
            explain=explain,
        )
        for line in lines
    )
    print_answers(results, form, out)


def _read_lines(source: str) -> list[str]:
    """Read the questions of a file, or of standard input; empty lines and # are left out."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{source} cannot be read: {error}.") from error
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
