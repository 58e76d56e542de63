"""Runs: sample, train, plot, inspect, eval, report, complete, demo, serve, mcp, index."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from betae.cli.common import (
    HELD_OUT,
    NO_PROBABILITIES,
    AsJson,
    GraphPath,
    KnownEdges,
    MovedGraph,
    Overwrite,
    RankMethod,
    RayAddress,
    RunOrGraph,
    RunPath,
    app,
    err,
    examples,
    is_writer,
    note,
    on_ray,
    open_graph,
    open_or_mine,
    open_run,
    out,
    parse_file,
    parse_folder,
    print_json,
    say,
    warn,
)
from betae.errors import InvalidArgument, StoreError

if TYPE_CHECKING:
    from betae.graph.graph import KnowledgeGraph
    from betae.run import Run


@app.command(
    epilog=examples(
        "betae sample graph --out train-queries",
        "betae sample graph --split test --count 5000 --rules release --out test-queries",
        "betae sample graph --split test --missing all --out hard-queries",
        "betae sample graph --count 100000 --out train-queries --ray auto",
        "betae sample graph 2p:1000 '?X . located_in(?X, Europe) & !_(_, ?X):50' --out queries",
    )
)
def sample(
    graph: GraphPath,
    target: Annotated[Path, typer.Option("--out", help="Folder to write the query set to.")],
    structures: Annotated[
        list[str] | None,
        typer.Argument(
            help="Structures, each as NAME or NAME:COUNT: the paper's names, or logic text with _ "
            "as placeholder. Default: those of the paper for the split."
        ),
    ] = None,
    split: Annotated[
        Literal["train", "valid", "test"], typer.Option(help="Purpose of the queries.")
    ] = "train",
    count: Annotated[
        int, typer.Option(help="Queries per structure without a COUNT.", min=1)
    ] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same set.", min=0)] = 0,
    max_answers: Annotated[
        int | None,
        typer.Option(help="Most answers of a query; default: 100 for valid and test.", min=1),
    ] = None,
    rules: Annotated[
        Literal["paper", "release"],
        typer.Option(
            help="paper: the limit is on all answers. release: as in the query sets released with "
            "the paper, it is on the hard ones, and queries with negation lose an answer."
        ),
    ] = "paper",
    missing: Annotated[
        str | None,
        typer.Option(
            help="For valid and test: hard answers need exactly N held-out edges, or only "
            "held-out edges (all).",
            metavar="N|all",
        ),
    ] = None,
    as_pickles: Annotated[
        bool, typer.Option("--pickles", help="Write pickles in the BetaE release layout.")
    ] = False,
    ray: RayAddress = None,
    overwrite: Overwrite = False,
) -> None:
    """Sample queries with their answers from a graph."""
    from betae.cli.progress import showing_counts
    from betae.cli.show import draw_report
    from betae.datasets.release import write_release_queries
    from betae.querysets.sample import parse_counts, sample_queries
    from betae.storage import check_writable

    check_writable(target, overwrite)
    counts = parse_counts(structures or [], split, count)
    num_missing = int(missing) if missing and missing.isdecimal() else missing
    with on_ray(ray) as cluster, showing_counts(err, counts) as progress:
        queries = sample_queries(
            open_graph(graph),
            counts,
            split,
            seed=seed,
            max_answers=max_answers,
            rules=rules,
            missing=num_missing,  # type: ignore[arg-type]  # checked there
            cluster=cluster,
            progress=progress,
        )
        if as_pickles:
            write_release_queries(queries, target, overwrite)
        else:
            queries.save(target, overwrite)
    out.print(draw_report(queries))
    if left_out := queries.origin.get("left_out"):
        say(f"left out, since no answer can need so many missing edges: {', '.join(left_out)}")
    say(f"{len(queries):,} queries written to {target}")


@app.command(
    "train",
    epilog=examples(
        "betae train graph --out run",
        "betae train graph --recipe recipe.toml --minutes 30 --out run",
        "betae train graph --recipe recipe.toml --out run --resume",
        "betae train grown-graph --from run --out new-run",
        "torchrun --nproc-per-node 2 -m betae train graph --out run",
    ),
)
def train_command(
    graph: GraphPath,
    target: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file; default: settings by the size of the graph.", parser=parse_file
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Training queries; default: sample on the fly.", parser=parse_folder),
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(help="Validation queries; default: sample them.", parser=parse_folder),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit; the learning rate decays with time.", min=0)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Start from the weights of a run on this graph before edges were added.",
            parser=parse_folder,
        ),
    ] = None,
) -> None:
    """Train a model on a graph; stop with Ctrl-C, continue with --resume."""
    opened = open_graph(graph)  # before torch is imported: it may fail

    from betae.cli.progress import showing_progress
    from betae.querysets.query_set import QuerySet
    from betae.run import train
    from betae.training.config import TrainConfig

    if not len(opened.written_ids["valid"]) and queries is valid is None and is_writer():
        note(HELD_OUT)
    with showing_progress(err, target, minutes) as report:
        trained = train(
            opened,
            target,
            None if recipe is None else TrainConfig.read(recipe),
            queries=None if queries is None else QuerySet.open(queries),
            valid=None if valid is None else QuerySet.open(valid),
            minutes=minutes,
            resume=resume,
            from_run=earlier,
            report=report,
            progress=report.show_mining,
        )
    if (result := trained.outcome) is None or not is_writer():
        return
    if not len(trained.graph.written_ids["valid"]):
        warn(NO_PROBABILITIES)
    say(f"{result.why} at step {result.step:,}, {result.seconds / 60:.1f} minutes of training")
    if result.best_step:
        say(f"best validation MRR {result.best_mrr:.1f} % at step {result.best_step:,}")
    for what, each in (("the model", result), ("the link predictor", result.predictor)):
        if each is not None and each.best_step:
            _warn_of_frequency(what, each.best_mrr, each.frequency_mrr)
    say(f"written to {target}")


def _warn_of_frequency(what: str, mrr: float, frequency_mrr: float | None) -> None:
    if frequency_mrr is not None and mrr < frequency_mrr:
        warn(
            f"{what} is below the frequency baseline, which ranks entities by how often they occur "
            f"with a query's last relations (MRR {frequency_mrr:.1f} %)."
        )


@app.command(epilog=examples("betae plot run --out curves.svg"))
def plot(
    run: RunPath,
    target: Annotated[
        Path | None,
        typer.Option("--out", help="A .png or .svg file; default: curves.png in the run."),
    ] = None,
) -> None:
    """Plot the loss and the validation MRR of a run."""
    from betae.training.plot import plot_run

    target = target or run / "curves.png"
    plot_run(run, target)
    say(f"written to {target}")


@app.command(epilog=examples("betae inspect model --json"))
def inspect(
    checkpoint: Annotated[
        Path, typer.Argument(help="Folder of a model, or of a run.", parser=parse_folder)
    ],
    as_json: AsJson = False,
) -> None:
    """Describe a model: name, config, and the shape and range of every tensor."""
    from betae.cli.show import draw_model
    from betae.models.store import describe_model

    is_run = (checkpoint / "config.json").is_file()
    model = describe_model(open_run(checkpoint).model_folder if is_run else checkpoint)
    if as_json:
        print_json(model, indent=2)
    else:
        out.print(draw_model(model))


@app.command(
    "eval",
    epilog=examples(
        "betae eval run --queries test-queries",
        "betae eval run --queries NELL-betae --method embedding --empty 4000",
        "betae eval run --queries test-queries --ray auto",
        "torchrun --nproc-per-node 2 -m betae eval run --queries test-queries",
    ),
)
def eval_command(
    run: RunPath,
    queries: Annotated[
        Path,
        typer.Option(
            help="Folder of a query set, or in the BetaE release layout.", parser=parse_folder
        ),
    ],
    method: RankMethod = "completed",
    split: Annotated[
        Literal["valid", "test"], typer.Option(help="Queries to read from a release.")
    ] = "test",
    graph: MovedGraph = None,
    empty: Annotated[
        int, typer.Option(help="Unanswerable queries per structure, for ROC-AUC.", min=0)
    ] = 1000,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate on a query set: MRR, Hits@k, uncertainty."""
    from betae import parallel
    from betae.cli.progress import showing_work
    from betae.cli.show import draw_summary

    if ray is not None and parallel.is_one_of_several():
        raise InvalidArgument("Use --ray or torchrun, not both.")
    with on_ray(ray) as cluster, showing_work(err, "reading the queries") as progress:
        evaluation = open_run(run, graph).evaluate(
            queries,
            method=method,
            split=split,
            empty_queries=empty,
            cluster=cluster,
            progress=progress,
        )
    if not is_writer():
        return
    if evaluation.method != method:
        warn(NO_PROBABILITIES)
    if as_json:
        print_json(evaluation.to_json())
    else:
        out.print(draw_summary(evaluation))
        for kind, average in evaluation.averages.items():
            mrr, frequency_mrr = average.metrics.mrr, average.frequency.mrr
            _warn_of_frequency(f"the model on {kind} queries", mrr, frequency_mrr)
        say(f"saved in the run; write a report with: betae report {run}")


@app.command(epilog=examples("betae report run-a run-b --out report"))
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    target: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("report"),
    overwrite: Overwrite = False,
) -> None:
    """Write the evaluations of runs, beside the paper's results, as HTML, Markdown and JSON."""
    from betae.evaluation.report import write_report

    write_report(runs, target, overwrite)
    say(f"written to {target}: open {target / 'report.html'}")


# ---- complete -----------------------------------------------------------------------------------


@app.command(
    "complete",
    epilog=examples(
        "betae complete run --out missing.tsv",
        "betae complete run --relation capital --above 0.3 --out capitals.nt",
        "betae complete run --entity Austria --above 0.2",
        "betae complete run --out missing.csv --format neo4j",
        "betae complete run --out missing.parquet --ray auto",
    ),
)
def complete_command(
    run: RunOrGraph,
    relation: Annotated[str | None, typer.Option(help="Only edges of this relation.")] = None,
    entity: Annotated[
        str | None, typer.Option(help="Only edges of this entity, as head or tail.")
    ] = None,
    above: Annotated[
        float, typer.Option(help="Only edges more probable than this.", min=0, max=1)
    ] = 0.5,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A .tsv, .csv, .parquet, .jsonl, .nt or .ttl file; default: print the best.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="File format, such as neo4j; default: by the ending."),
    ] = None,
    edges: KnownEdges = "all",
    graph: MovedGraph = None,
    ray: RayAddress = None,
) -> None:
    """List the most probable missing edges of the graph."""
    if target is not None:
        from betae.graph.writing import check_target

        check_target(target, format)  # before torch is imported

    from betae.cli.progress import showing_work
    from betae.cli.show import draw_edges

    opened = open_or_mine(run, graph)
    with on_ray(ray) as cluster, showing_work(err, "opening the run") as progress:
        found = opened.complete(
            relation=relation,
            entity=entity,
            above=above,
            edges=edges,
            cluster=cluster,
            progress=lambda done, total: progress("completing", done, total),
        )
    if target is None:
        out.print(draw_edges(found))
    else:
        found.write(target, format)
        say(f"{len(found):,} missing edges written to {target}")


# ---- demo ---------------------------------------------------------------------------------------

DEMO_QUESTION = "Capitals of European countries that have never hosted the FIFA World Cup"
DEMO_QUERY = (
    '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)'
)
DEMO_PREDICTIONS = 16
DEMO_EXPLAINED = 3


@app.command(epilog=examples("betae demo --out my-demo"))
def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Folder for the graph and the run; reused if it exists.")
    ] = Path("betae-demo"),
) -> None:
    """Train on the bundled graph and answer a question about it, in about a minute."""
    from betae.cli.progress import showing_progress
    from betae.cli.show import (
        draw_description,
        draw_predictions,
        draw_reasons,
        draw_tree,
        with_exact_answers,
    )
    from betae.datasets import world
    from betae.graph.describe import describe_graph
    from betae.queries.syntax import parse
    from betae.storage import check_parent

    check_parent(folder / "run")
    graph, query = world(), parse(DEMO_QUERY)
    out.print(draw_description(describe_graph(graph), graph, title="The bundled graph: world"))
    out.print(f"\n[bold]{DEMO_QUESTION}?[/bold]\n{DEMO_QUERY}\n", highlight=False)
    out.print(draw_tree(query, with_exact_answers(graph, "train")))
    known = graph.answers(query, "train")
    out.print(f"\n[bold]{len(known)} answers[/bold] follow from the training edges:")
    out.print(", ".join(graph.entity_label(int(each)) for each in known), highlight=False)
    out.print(
        "\n[bold]Some edges are held out[/bold], such as the continent of Austria. A model learns "
        "the probability of every missing edge from the others. Then it answers the same question "
        "over the completed graph:\n"
    )
    from betae.run import train  # imports torch: only once the exact answers are shown

    if not (folder / "graph").exists():
        graph.save(folder / "graph")
    graph, target = open_graph(folder / "graph"), folder / "run"
    with showing_progress(err, target) as report:
        resume = target.exists()
        run = train(graph, target, resume=resume, report=report, progress=report.show_mining)
    found = run.answer(query, DEMO_PREDICTIONS, edges="train", status="predicted", explain=True)
    true = {graph.entities[each] for each in graph.answers(query)}
    is_true = [each.entity in true for each in found]
    out.print(draw_predictions(found, true))
    out.print("\n[bold]Why?[/bold] Paths and shared properties that speak for the first three:")
    out.print(*draw_reasons(found.answers[:DEMO_EXPLAINED]), sep="\n")
    say(
        f"\n{sum(is_true[:10])} of the first 10 are true, and {sum(is_true)} of all "
        f"{len(true) - found.num_known} held-out answers are among these {len(is_true)}."
    )
    say("\nEverything that speaks for one edge:")
    say(f"betae why {target} Austria located_in Europe --edges train")
    say(f"\nThe graph and the trained run are in {folder}. Ask another question:")
    say(f"betae answer {target} '?X . located_in(?X, Europe) & !member_of(?X, NATO)' --explain")


# ---- serve ---------------------------------------------------------------------------------------

NEEDED = ("fastapi", "uvicorn", "prometheus_client", "pebble")
LOCAL = ("127.0.0.1", "localhost", "::1")


@app.command(
    epilog=examples(
        "betae serve run",
        "betae serve graph --port 9000",
        "BETAE_TOKEN=secret betae serve run --host 0.0.0.0",
    )
)
def serve(
    folder: RunOrGraph,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(help="Bearer token required of clients.", envvar="BETAE_TOKEN")
    ] = None,
    graph: MovedGraph = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Of a graph, serve exact answers only; mine no rules.")
    ] = False,
) -> None:
    """Serve a run or a graph over HTTP: a web page, JSON and SPARQL."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InvalidArgument(f"The server needs {', '.join(missing)}: pip install 'betae[serve]'.")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise InvalidArgument("--token must be printable ASCII.")
    from betae.server.app import bind, run_server

    with bind(host, port) as listening:
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listening.getsockname()[1]}"
        if host not in LOCAL and token is None:
            warn(f"anyone who can reach {host} can use this server: set --token.")
        source = _open_to_serve(folder, graph, exact)
        with err.status("Opening") as status:

            def ready() -> None:
                status.stop()
                say(f"Serving at {url}")

            run_server(source, listening, host, token=token, ready=ready)


def _open_to_serve(folder: Path, graph: Path | None, exact: bool) -> Run | KnowledgeGraph:
    """Open a run, or mine the rules of a graph; without any, the graph alone."""
    if not (folder / "manifest.json").is_file():
        return open_run(folder, graph)
    if exact:
        return open_graph(folder)
    try:
        return open_or_mine(folder)
    except (InvalidArgument, StoreError) as error:
        opened = open_graph(folder)  # raises if it is damaged
        note(f"Exact answers only, no predictions: {error}")
        return opened


# ---- mcp -----------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "betae mcp graph",
        'the same in a client\'s settings: {"mcpServers": {"betae": {"command": "betae", "args": '
        '["mcp", "/data/graph"]}}}',
    )
)
def mcp(folder: RunOrGraph, graph: MovedGraph = None) -> None:
    """Serve a run or a graph to an assistant, by the Model Context Protocol on stdin and stdout.

    It answers at once, and mines the rules of a graph meanwhile. betae serve has the same at /mcp.
    """
    if missing := [name for name in (*NEEDED, "mcp") if find_spec(name) is None]:
        raise InvalidArgument(f"betae mcp needs {', '.join(missing)}: pip install 'betae[mcp]'.")
    from betae.server.mcp import run_stdio

    run_stdio(_open_to_serve(folder, graph, exact=True))  # which mines no rules before it answers


# ---- index ---------------------------------------------------------------------------------------

index_app = typer.Typer(no_args_is_help=True)
about = "Approximate search of the entities of a run: build, bench, export."
app.add_typer(index_app, name="index", help=about)


def _warn_of_recall(kind: str, recall: float) -> None:
    from betae.search import GOOD_RECALL

    if recall < GOOD_RECALL:
        warn(
            f"{kind} finds only {recall:.1%} of the 10 nearest entities (below "
            f"{GOOD_RECALL:.0%}): search exactly, or choose another --kind."
        )


@index_app.command("build", epilog=examples("betae index build run"))
def index_build(
    run: RunPath,
    kind: Annotated[
        Literal["ivf", "hnsw", "lsh"] | None,
        typer.Option(help="ivf or lsh for BetaE, hnsw or lsh for other models."),
    ] = None,
    graph: MovedGraph = None,
) -> None:
    """Build an approximate index of the entities for betae answer --index."""
    with err.status("Opening the run") as status:
        opened = open_run(run, graph)
        built = {"model": opened.build_index(kind, status.update)}
        if opened.predictor:
            built["link predictor"] = opened.predictor.index
    for what, index in built.items():
        say(f"{index.kind} of the {what}: recall@10 {index.recall:.3f}")
    say(f"written to {run}: use it with betae answer {run} --index")
    for index in built.values():
        _warn_of_recall(index.kind, index.recall)


@index_app.command("bench", epilog=examples("betae index bench run --json"))
def index_bench(run: RunPath, graph: MovedGraph = None, as_json: AsJson = False) -> None:
    """Compare each kind of index with exact search: recall@10 and speed."""
    from betae.cli.show import draw_speeds

    with err.status("Opening the run") as status:
        speeds = open_run(run, graph).bench_indexes(status.update)
    if as_json:
        print_json([asdict(speed) for speed in speeds])
    else:
        out.print(draw_speeds(speeds))
    for speed in speeds:
        _warn_of_recall(speed.name, speed.recall)


@index_app.command(
    "export",
    epilog=examples(
        "betae index export run entities.parquet", "betae index export run entities.npy"
    ),
)
def index_export(
    run: RunPath,
    file: Annotated[Path, typer.Argument(help="File to write: .parquet or .npy.")],
    graph: MovedGraph = None,
) -> None:
    """Write the search vectors of all entities for a vector database."""
    model, width = open_run(run, graph).export_vectors(file)
    say(f"{model.num_entities:,} vectors of {width} numbers written to {file}")
    say(f"metric: {model.metric}; see docs/search.md")
