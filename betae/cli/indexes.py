"""Search of a run's entities: index build, bench, export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from betae.cli.common import AsJson, MovedGraph, RunPath, app, err, out, print_json, say, warn

index_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Search the entities of a run approximately but faster, or in a vector database.",
)
app.add_typer(index_app, name="index")


def _warn_of_recall(kind: str, recall: float) -> None:
    from betae.search.approximate import GOOD_RECALL

    if recall < GOOD_RECALL:
        warn(
            f"{kind} finds only {recall:.1%} of the 10 nearest entities, less than "
            f"{GOOD_RECALL:.0%}: search exactly, or choose another --kind."
        )


@index_app.command("build", epilog="Example:  betae index build run")
def build_index(
    run: RunPath,
    kind: Annotated[
        Literal["ivf", "hnsw", "lsh"] | None,
        typer.Option(help="ivf or lsh for BetaE, hnsw or lsh for the others."),
    ] = None,
    graph: MovedGraph = None,
) -> None:
    """Build an approximate index of the entities, for `betae answer --index`."""
    from betae.run import Run

    with err.status("Opening the run") as status:
        opened = Run.open(run, graph)
        built = {"": opened.build_index(kind, status.update)}
        if opened.predictor:
            built[" of the link predictor"] = opened.predictor.index
    for of_what, index in built.items():
        say(f"{index.kind}{of_what}: recall@10 {index.recall:.3f} against exact search")
    say(f"written to {run}: betae answer --index")
    for index in built.values():
        _warn_of_recall(index.kind, index.recall)


@index_app.command("bench", epilog="Example:  betae index bench run --json")
def bench_index(
    run: RunPath,
    graph: MovedGraph = None,
    as_json: AsJson = False,
) -> None:
    """Measure each kind of index on the run: recall@10 and speed against exact search."""
    from betae.cli.show import draw_speeds
    from betae.run import Run

    with err.status("Opening the run") as status:
        speeds = Run.open(run, graph).bench_indexes(status.update)
    if as_json:
        print_json([asdict(speed) for speed in speeds])
    else:
        out.print(draw_speeds(speeds))
    for speed in speeds:
        _warn_of_recall(speed.name, speed.recall)


@index_app.command(
    "export",
    epilog="Examples:\n\n  betae index export run entities.parquet\n\n"
    "  betae index export run entities.npy",
)
def export_index(
    run: RunPath,
    file: Annotated[Path, typer.Argument(help="File to write: .parquet or .npy.")],
    graph: MovedGraph = None,
) -> None:
    """Write the search vectors of all entities, for a vector database."""
    from betae.run import Run

    model, width = Run.open(run, graph).export_vectors(file)
    say(f"{model.num_entities:,} vectors of {width} numbers written to {file}")
    say(f"nearest by {model.metric}: see docs/answers.md")
