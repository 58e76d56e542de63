"""The demonstration: a question with a negation, asked of the facts and of the completed graph.

Some facts of `world` are held out of training, such as the continent of Austria. Traversing the
rest misses the answers that need them; a model trained on the rest says how probable they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.text import Text

from betae.cli.common import err
from betae.cli.show import draw_description, draw_predictions, draw_tree, with_exact_answers
from betae.datasets.bundled import world
from betae.exact.answers import answers
from betae.graph.describe import describe_graph
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.names import resolve
from betae.queries.syntax import parse
from betae.storage import check_place

if TYPE_CHECKING:  # torch is imported after the first half has been shown
    from betae.run import Run

QUESTION = "Capitals of European countries that have never hosted the FIFA World Cup"
QUERY = '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)'
NUM_PREDICTIONS = 16


def run_demo(console: Console, folder: Path) -> None:
    """Describe `world`, answer by traversal, train in `folder` unless that is done, and predict."""
    check_place(folder / "run")
    graph, query = world(), parse(QUERY)
    console.print(draw_description(describe_graph(graph), title="The bundled graph: world"))
    console.print(f"\n[bold]{QUESTION}?[/bold]\n{QUERY}\n", highlight=False)
    console.print(draw_tree(query, with_exact_answers(graph)))
    known = answers(graph, query)
    console.print(f"\n[bold]{len(known)} answers[/bold] follow from the facts at hand:")
    names = [graph.entity_label(int(entity)) for entity in known]
    console.print(", ".join(names), highlight=False)
    console.print(
        "\n[bold]Some facts are hidden[/bold], such as the continent of Austria. A model learns "
        "from the others how probable every missing edge is. Then the question is asked again, of "
        "the completed graph:\n"
    )
    run = _train(graph, folder)
    console.print(_draw_predictions(run, resolve(query, graph)))
    console.print(f"\nThe graph and the trained run are in {folder}.", highlight=False)


def _train(graph: KnowledgeGraph, folder: Path) -> Run:
    from betae.cli.progress import showing_progress
    from betae.run import train
    from betae.training.config import default_config

    config = default_config(graph)
    if not (folder / "graph").exists():
        graph.save(folder / "graph")
    graph, run = KnowledgeGraph.open(folder / "graph"), folder / "run"
    with showing_progress(err, run, config) as report:
        return train(graph, config, run, resume=run.exists(), report=report)


def _draw_predictions(run: Run, query: Query) -> RenderableType:
    """Draw the best answers that the facts do not give: why, and whether they are true."""
    graph, answerer = run.graph, run.answerer("train")
    true = {graph.entities[entity] for entity in answers(graph, query, "all").tolist()}
    found = answerer.answer(query, NUM_PREDICTIONS, status="predicted", explain=True)
    right = [answer.entity in true for answer in found]
    hidden = len(true) - found.num_known
    table = draw_predictions(
        found,
        f"{found.summary()}.\nThe best predictions, each with the edge it rests on:",
        lambda answer: "[green]true, but hidden[/green]" if answer.entity in true else "wrong",
    )
    return Group(
        table,
        Text(
            f"\n{sum(right[:10])} of the first 10 are true, and {sum(right)} of all {hidden} "
            f"hidden answers are among these {len(right)}."
        ),
    )
