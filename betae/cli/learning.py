"""Learning: train, plot, inspect, eval, report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from betae.cli.common import (
    AsJson,
    GraphPath,
    Overwrite,
    RayAddress,
    RunPath,
    SharedMovedGraph,
    SharedRun,
    app,
    err,
    existing_file,
    existing_folder,
    on_ray,
    out,
    print_json,
    say,
    warn,
)
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.graph.graph import KnowledgeGraph
    from betae.training.config import TrainConfig
    from betae.training.loop import Outcome

NO_VALIDATION = (
    "the graph has no validation edges, so nothing tells the best model from the last, and answers "
    "will be ranked by embedding, without probabilities. Ingest the graph with --valid 0.05, say."
)


@app.command(
    epilog="Examples:\n\n"
    "  betae train graph --out run\n\n"
    "  betae train graph --recipe recipe.toml --minutes 30 --out run\n\n"
    "  betae train graph --recipe recipe.toml --out run --resume\n\n"
    "  betae train grown-graph --from run --out new-run\n\n"
    "  torchrun --nproc-per-node 2 -m betae train graph --out run"
)
def train(
    graph: GraphPath,
    target: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file. Without one, settings follow the size of the graph.",
            callback=existing_file,
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Training queries; else sampled on the fly.", callback=existing_folder),
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(help="Validation queries; else they are sampled.", callback=existing_folder),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time for training; the learning rate falls with it.", min=0),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run.")] = False,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A run on this graph before edges were added: begin with its weights.",
            callback=existing_folder,
        ),
    ] = None,
) -> None:
    """Train a model to answer queries; Ctrl-C stops it cleanly, --resume continues it."""
    from betae.graph.graph import KnowledgeGraph

    opened = KnowledgeGraph.open(graph)  # no graph, no need to wait for torch

    from betae.cli.progress import showing_progress
    from betae.querysets.query_set import QuerySet
    from betae.run import train as run_training

    config = _config(opened, recipe, earlier)
    if not len(opened.splits["valid"]):
        warn(NO_VALIDATION)
    with showing_progress(err, target, config, minutes) as report:
        trained = run_training(
            opened,
            config,
            target,
            queries=None if queries is None else QuerySet.open(queries),
            valid=None if valid is None else QuerySet.open(valid),
            minutes=minutes,
            resume=resume,
            from_run=earlier,
            report=report,
        )
    if report.is_shown and trained.outcome is not None:
        _say_outcome(trained.outcome)
        say(f"written to {target}")


def _config(graph: KnowledgeGraph, recipe: Path | None, earlier: Path | None) -> TrainConfig:
    """Return the settings of a recipe, of an earlier run, or by the size of the graph."""
    from betae.run import Run
    from betae.training.config import default_config, read_recipe

    if recipe is not None:
        return read_recipe(recipe)
    return default_config(graph) if earlier is None else Run.open(earlier).config


def _say_outcome(result: Outcome) -> None:
    """Say how training ended, and plainly if it was no use."""
    say(f"{result.why} at step {result.step:,}, {result.seconds / 60:.1f} minutes of training")
    if not result.best_step:
        return
    say(f"best validation MRR {result.best_mrr:.1f} % at step {result.best_step:,}")
    _warn_of_frequency("model", result)
    if result.predictor is not None:
        _warn_of_frequency("link predictor", result.predictor)


def _warn_of_frequency(what: str, result: Outcome) -> None:
    frequency = result.frequency_mrr
    if frequency is not None and result.best_step and result.best_mrr < frequency:
        warn(
            f"the {what} is worse than ranking entities by how often they occur with a query's "
            f"last relations ({frequency:.1f} %). Train longer, or on more."
        )


@app.command(epilog="Example:  betae plot run --out curves.svg")
def plot(
    run: RunPath,
    target: Annotated[
        Path | None,
        typer.Option("--out", help="A .png or .svg file; curves.png in the run if not given."),
    ] = None,
) -> None:
    """Plot the loss and the validation MRR of a run."""
    from betae.training.plot import plot_run

    target = target or run / "curves.png"
    plot_run(run, target)
    say(f"written to {target}")


@app.command(epilog="Example:  betae inspect model --json")
def inspect(
    checkpoint: Annotated[
        Path, typer.Argument(help="Folder of a model, or of a run.", callback=existing_folder)
    ],
    as_json: AsJson = False,
) -> None:
    """Describe a model: its name, config, and the size and range of every tensor."""
    from betae.cli.show import draw_model
    from betae.models.store import describe_model
    from betae.run import Run

    is_run = (checkpoint / "config.json").is_file()
    model = describe_model(Run.open(checkpoint).model_folder if is_run else checkpoint)
    if as_json:
        print_json(asdict(model), indent=2)
    else:
        out.print(draw_model(model))


@app.command(
    "eval",
    epilog="Examples:\n\n"
    "  betae eval run --queries test-queries\n\n"
    "  betae eval run --queries test-queries --method completed\n\n"
    "  betae eval run --queries NELL-betae --empty 4000\n\n"
    "  betae eval run --queries test-queries --ray auto\n\n"
    "  torchrun --nproc-per-node 2 -m betae eval run --queries test-queries",
)
def evaluate(
    run: SharedRun,
    queries: Annotated[
        Path,
        typer.Option(
            help="A query set, or a folder with the release's pickles.", callback=existing_folder
        ),
    ],
    method: Annotated[
        Literal["completed", "embedding"],
        typer.Option(help="Rank by the completed graph, or by embedding as in the paper."),
    ] = "embedding",
    split: Annotated[
        Literal["valid", "test"], typer.Option(help="Which queries of a release.")
    ] = "test",
    graph: SharedMovedGraph = None,
    empty: Annotated[
        int,
        typer.Option(
            help="Queries without answers to tell from as many with answers, in each structure.",
            min=0,
        ),
    ] = 1000,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Rank the hard answers of a query set and measure how well the model knows what it knows."""
    from betae import parallel
    from betae.cli.progress import showing_work
    from betae.cli.show import draw_summary

    if ray is not None and parallel.is_one_of_several():
        raise InvalidArgument("Give --ray, or start processes with torchrun, not both.")
    with on_ray(ray) as cluster, parallel.joined("Run it again."):
        from betae.run import Run

        opened = Run.open(run, graph)
        is_writer = parallel.process_number() == 0
        with showing_work(err, is_writer) as progress:
            evaluation = opened.evaluate(
                queries,
                method=method,
                split=split,
                empty_queries=empty,
                cluster=cluster,
                progress=progress,
            )
        if is_writer:
            if as_json:
                print_json(evaluation.to_json())
            else:
                out.print(draw_summary(evaluation))
                for kind, average in evaluation.averages.items():
                    if average.metrics.mrr < average.frequency.mrr:
                        warn(
                            f"on {kind} queries the model is worse than ranking entities by how "
                            "often they occur with a query's last relations "
                            f"({average.frequency.mrr:.1f} %)."
                        )
                say(f"kept with the run; for a page of it: betae report {run}")


@app.command(epilog="Example:  betae report run-a run-b --out report")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="RUN...")],
    target: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("report"),
    overwrite: Overwrite = False,
) -> None:
    """Write the evaluations of runs, beside the paper's, as Markdown, JSON and one HTML page."""
    from betae.evaluation.report import write_report

    write_report(runs, target, overwrite)
    say(f"written to {target}: open {target / 'report.html'}")
