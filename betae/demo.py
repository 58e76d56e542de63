"""The demonstration: what is in `world`, and a question with a negation answered by traversal."""

from rich.console import Console

from betae.datasets import world
from betae.describe import describe_graph, draw_description
from betae.queries.draw import draw_tree, with_exact_answers
from betae.queries.syntax import parse
from betae.symbolic import answers

QUESTION = "Capitals of European countries that have never hosted the FIFA World Cup"
QUERY = '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)'


def run_demo(console: Console) -> None:
    """Print what is in `world` and answer the question over its training edges."""
    graph, query = world(), parse(QUERY)
    console.print(draw_description(describe_graph(graph), title="The bundled graph: world"))
    console.print(f"\n[bold]{QUESTION}?[/bold]\n{QUERY}\n", highlight=False)
    console.print(draw_tree(query, with_exact_answers(graph)))
    capitals = [graph.entity_label(int(entity)) for entity in answers(graph, query)]
    console.print(f"\n[bold]{len(capitals)} answers[/bold] by the facts at hand:", end=" ")
    console.print(", ".join(capitals), highlight=False)
