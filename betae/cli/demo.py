"""The demonstration: a question with a negation, answered by the facts and then by a model.

Some facts of `world` are hidden from training, such as the continent of Austria. A traversal of the
rest misses the answers that need them; a model trained on the rest predicts them.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from betae.cli.show import draw_description, draw_tree, with_exact_answers
from betae.datasets import world
from betae.exact.answers import answers
from betae.graph.describe import describe_graph
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.names import resolve
from betae.queries.syntax import parse

QUESTION = "Capitals of European countries that have never hosted the FIFA World Cup"
QUERY = '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)'
RECIPE = {  # about half a minute on two cores
    "model": {"dim": 64, "hidden": 128},
    "batch_size": 256,
    "candidates": 512,
    "normalisation": 0.02,  # few dimensions, small distances
    "size": 0.02,
    "steps": 1000,
    "learning_rate": 2e-3,
    "validate_every": 250,
    "checkpoint_every": 250,
    "validation_queries": 100,
}
NUM_PREDICTIONS = 16


def run_demo(console: Console, folder: Path) -> None:
    """Describe `world`, answer by traversal, train in `folder` unless that is done, and predict."""
    graph, query = world(), parse(QUERY)
    console.print(draw_description(describe_graph(graph), title="The bundled graph: world"))
    console.print(f"\n[bold]{QUESTION}?[/bold]\n{QUERY}\n", highlight=False)
    console.print(draw_tree(query, with_exact_answers(graph)))
    known = answers(graph, query)
    console.print(f"\n[bold]{len(known)} answers[/bold] follow from the facts at hand:")
    names = [graph.entity_label(int(entity)) for entity in known]
    console.print(", ".join(names), highlight=False)
    console.print("\n[bold]Now with a model[/bold] that has learned from those facts:\n")
    run = folder / "run"
    _train(graph, folder, run, console)
    console.print(_draw_predictions(graph, resolve(query, graph), run))
    console.print(f"\nThe graph and the trained run are in {folder}.", highlight=False)


def _train(graph: KnowledgeGraph, folder: Path, run: Path, console: Console) -> None:
    from betae.cli.progress import showing_progress
    from betae.run import train
    from betae.training.config import make_config

    if not (folder / "graph").exists():
        graph.save(folder / "graph")
    graph = KnowledgeGraph.open(folder / "graph")
    config = make_config(RECIPE)
    with showing_progress(console, run, config, None) as report:
        train(graph, config, run, resume=run.exists(), report=report)


def _draw_predictions(graph: KnowledgeGraph, query: Query, run: Path) -> Table:
    """Lay out the best answers that the facts do not give: why, and whether they are true."""
    from betae.run import Run

    known = set(answers(graph, query).tolist())
    true = {graph.entities[entity] for entity in answers(graph, query, "all").tolist()}
    answerer = Run.open(run).answerer()
    found = answerer.answer(query, graph.num_entities)
    places = [answer.rank for answer in found if answer.status == "known"]
    table = Table(
        title=f"The {len(known)} known answers rank {places[0]} to {places[-1]} of {len(found):,}; "
        "the next predictions:",
        title_justify="left",
        box=None,
        padding=(0, 2),
    )
    table.add_column("rank", justify="right")
    for column in ("predicted", "missing edge", ""):
        table.add_column(column)
    for answer in answerer.answer(query, NUM_PREDICTIONS, status="predicted", explain=True):
        verdict = "wrong"
        if answer.entity in true:
            verdict = "[green]true, but hidden[/green]"
        missing = ", ".join(answer.why.missing()) if answer.why else ""
        table.add_row(str(answer.rank), answer.label, missing, verdict)
    return table
