"""The demonstration: a question with a negation, answered by the facts and then by a model.

Some facts of `world` are held out of training, such as the continent of Austria. Traversing the
rest misses the answers that need them; a model trained on the rest predicts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from betae.cli.show import draw_description, draw_predictions, draw_tree, with_exact_answers
from betae.datasets.bundled import world
from betae.exact.answers import answers
from betae.graph.describe import describe_graph
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.names import resolve
from betae.queries.syntax import parse

if TYPE_CHECKING:  # torch is imported after the first half has been shown
    from betae.run import Run

QUESTION = "Capitals of European countries that have never hosted the FIFA World Cup"
QUERY = '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)'
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
    run = _train(graph, folder, console)
    console.print(_draw_predictions(run, resolve(query, graph)))
    console.print(f"\nThe graph and the trained run are in {folder}.", highlight=False)


def _train(graph: KnowledgeGraph, folder: Path, console: Console) -> Run:
    from betae.cli.progress import showing_progress
    from betae.models.beta import BetaConfig
    from betae.run import train
    from betae.training.config import TrainConfig

    config = TrainConfig(  # about half a minute on two cores
        model=BetaConfig(dim=64, hidden=128),
        batch_size=256,
        candidates=512,
        normalisation=0.02,  # few dimensions, small distances
        size=0.02,
        steps=1000,
        learning_rate=2e-3,
        validate_every=250,
        checkpoint_every=250,
        validation_queries=100,
    )
    if not (folder / "graph").exists():
        graph.save(folder / "graph")
    graph, run = KnowledgeGraph.open(folder / "graph"), folder / "run"
    with showing_progress(console, run, config) as report:
        return train(graph, config, run, resume=run.exists(), report=report)


def _draw_predictions(run: Run, query: Query) -> Table:
    """Draw the best answers that the facts do not give: why, and whether they are true."""
    graph, answerer = run.graph, run.answerer()
    true = {graph.entities[entity] for entity in answers(graph, query, "all").tolist()}
    ranked = answerer.answer(query, graph.num_entities)
    ranks = [answer.rank for answer in ranked if answer.status == "known"]
    return draw_predictions(
        answerer.answer(query, NUM_PREDICTIONS, status="predicted", explain=True),
        f"The {len(ranks)} known answers rank {ranks[0]} to {ranks[-1]} of {len(ranked):,}; "
        "the next predictions:",
        lambda answer: "[green]true, but hidden[/green]" if answer.entity in true else "wrong",
    )
