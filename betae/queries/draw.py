"""The computation tree of a query, drawn for the terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.markup import escape
from rich.tree import Tree

from betae.graph import KnowledgeGraph
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.symbolic import answers


def draw_tree(query: Query, annotate: Callable[[Query], str] = lambda _: "") -> Tree:
    """Draw a query; `annotate` may add rich markup behind a node."""

    def add(node: Query, draw: Callable[[str], Tree]) -> Tree:
        if isinstance(node, Project) and isinstance(node.operand, Entity):
            return draw(
                f"{_title(node)}[bold]({escape(str(node.operand.name))})[/bold]{annotate(node)}"
            )
        branch = draw(_title(node) + annotate(node))
        for operand in node.operands:
            add(operand, branch.add)
        return branch

    return add(query, Tree)


def _title(node: Query) -> str:
    match node:
        case Entity(name):
            return f"[bold]{escape(str(name))}[/bold]"
        case Project(_, relation):
            return f"[cyan]{escape(str(relation))}[/cyan]"
        case Not():
            return "not"
        case And():
            return "and"
        case Or():
            return "or"
    raise AssertionError(node)


def with_exact_answers(graph: KnowledgeGraph, num_shown: int = 6) -> Callable[[Query], str]:
    """Return an annotation: how many entities a node holds on the training edges, and some."""

    def annotate(node: Query) -> str:
        found = answers(graph, node)
        if isinstance(node, Not):
            return f"  [green]{len(found):,}[/green]"
        names = ", ".join(escape(graph.entity_label(int(entity))) for entity in found[:num_shown])
        more = ", …" if len(found) > num_shown else ""
        return f"  [green]{len(found):,}[/green] [dim]{names}{more}[/dim]"

    return annotate


def explain_negation(query: Query) -> str:
    """Return what a query means that is only a complement, or nothing."""
    from betae.queries.rewrite import dnf_branches

    def only_negation(branch: Query) -> bool:
        parts = branch.operands if isinstance(branch, And) else (branch,)
        return all(isinstance(part, Not) for part in parts)

    if not any(only_negation(branch) for branch in dnf_branches(query)):
        return ""
    return (
        "The query names nothing that the answers are, only what they are not: every other entity "
        "of the graph is an answer, of whatever kind."
    )
