"""Everything that commands draw in the terminal: tables and trees, from the library's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.markup import escape as escape_markup
from rich.table import Table
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree

from betae.answering.results import (
    STATUSES,
    Answer,
    Answers,
    Step,
    shown_chance,
    shown_probability,
    shown_rank,
)
from betae.evaluation.paper import describe_queries, paper_figures
from betae.evaluation.results import Evaluation
from betae.evaluation.tables import (
    FREQUENCY,
    MODEL_NAMES,
    Cell,
    cell_text,
    columns_of,
    figures,
    method_name,
    span,
)
from betae.exact.answers import answers
from betae.graph.names import printable
from betae.queries.ast import And, Entity, Not, Or, Project, Query

if TYPE_CHECKING:
    import polars as pl

    from betae.graph.describe import GraphDescription
    from betae.graph.graph import KnowledgeGraph
    from betae.models.store import ModelDescription
    from betae.querysets.query_set import QuerySet
    from betae.search.measure import Speed


# ---- queries ------------------------------------------------------------------------------------


def draw_tree(query: Query, annotate: Callable[[Query], str] = lambda _: "") -> Tree:
    """Draw the computation tree of a query; `annotate` may add rich markup after a node."""

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
    """Return an annotation: how many entities a node holds on the training edges, with examples."""

    def annotate(node: Query) -> str:
        found = answers(graph, node)
        if isinstance(node, Not):
            return f"  [green]{len(found):,}[/green]"
        names = ", ".join(escape(graph.entity_label(int(entity))) for entity in found[:num_shown])
        more = ", …" if len(found) > num_shown else ""
        return f"  [green]{len(found):,}[/green] [dim]{names}{more}[/dim]"

    return annotate


def draw_report(queries: QuerySet) -> Table:
    """Lay out what was sampled, what was rejected and why."""
    table = Table(box=None, padding=(0, 1))
    for column in ("structure", "sampled", "of", "easy", "hard", "walks"):
        table.add_column(column, justify="left" if column == "structure" else "right")
    table.add_column("rejected", style="dim")
    for name, report in queries.origin["report"].items():
        block, is_complete = queries.blocks[name], report["sampled"] == report["asked"]
        reasons = sorted(report["rejected"].items(), key=lambda item: -item[1])[:3]
        rejected = ", ".join(
            f"{reason} {number / report['walks']:.0%}" for reason, number in reasons
        )
        table.add_row(
            Text(name),
            f"{report['sampled']:,}" if is_complete else f"[yellow]{report['sampled']:,}[/yellow]",
            f"{report['asked']:,}",
            *(
                f"{rows.lengths.mean():.1f}" if len(rows) else "-"
                for rows in (block.easy, block.hard)
            ),
            f"{report['walks']:,}",
            rejected if is_complete else f"the graph has no more; {rejected}",
        )
    return table


# ---- graphs and models --------------------------------------------------------------------------


def draw_description(description: GraphDescription, title: str) -> RenderableType:
    """Lay out the figures of a graph."""
    facts = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    facts.add_column(justify="right")
    facts.add_column()
    labelled = " (with labels)" if description.labelled else ""
    facts.add_row(f"{description.entities:,}", f"entities{labelled}")
    facts.add_row(f"{description.relations:,}", "relations, each with its inverse")
    for split, count in description.edges.items():
        facts.add_row(f"{count:,}", f"edges in {split}")
    for name, value in description.degree.items():
        facts.add_row(f"{value:,.1f}".removesuffix(".0"), f"edges at an entity, {name}")
    if description.isolated_in_train:
        facts.add_row(f"{description.isolated_in_train:,}", "entities without a training edge")

    bars = Table(title="Frequent relations", title_justify="left", box=None, padding=(0, 2))
    bars.add_column("edges", justify="right")
    bars.add_column("relation", overflow="fold")
    bars.add_column("")
    most = max(description.frequent_relations.values(), default=1)
    for name, count in description.frequent_relations.items():
        bars.add_row(f"{count:,}", Text(printable(name)), "█" * max(1, round(24 * count / most)))
    return Group(facts, Text(), bars)


def draw_model(model: ModelDescription) -> RenderableType:
    """Lay out the figures of a model, a row for each tensor."""
    table = Table(box=None, padding=(0, 1))
    for column in ("tensor", "shape", "mean", "std", "smallest", "largest"):
        is_name = column == "tensor"
        table.add_column(column, justify="left" if is_name else "right", overflow="fold")
    for name, facts in model.tensors.items():
        shape = " x ".join(map(str, facts["shape"]))
        numbers = [f"{facts[key]:.3g}" for key in ("mean", "std", "smallest", "largest")]
        table.add_row(name, shape, *numbers)
    settings = ", ".join(f"{name} {value}" for name, value in model.config.items())
    return Group(
        Text(f"{model.name}, {model.parameters:,} parameters"),
        Text(f"{model.entities:,} entities, {model.relations:,} directed relations"),
        Text(settings),
        table,
    )


# ---- evaluations --------------------------------------------------------------------------------


def draw_summary(evaluation: Evaluation) -> RichTable:
    """Lay out one evaluation for the terminal, a row for each structure."""
    names, results = columns_of([evaluation]), evaluation.results
    theirs = paper_figures(evaluation, "mrr").get(MODEL_NAMES.get(evaluation.model, ""), {})
    correlations = {
        name: result.correlation
        for name, result in evaluation.structures.items()
        if result.correlation is not None
    }
    columns: dict[str, list[Cell]] = {
        "MRR": figures(results, names, lambda result: result.metrics.mrr),
        "H@1": figures(results, names, lambda result: result.metrics.hits_at_1),
        "H@10": figures(results, names, lambda result: result.metrics.hits_at_10),
        "95 %": figures(results, names, span),
        FREQUENCY: figures(results, names, lambda result: result.frequency.mrr),
        "paper": [theirs.get(name) for name in names],
        "Spearman": figures(correlations, names, lambda correlation: correlation.spearman),
        "ROC-AUC": figures(evaluation.empty, names, lambda result: result.roc_auc),
    }
    digits = {"Spearman": 2, "ROC-AUC": 2}
    title = describe_queries(evaluation)
    if evaluation.method != "embedding":
        title = f"{escape_markup(method_name(evaluation))}: {title}"
    table = RichTable(box=None, padding=(0, 1), title=title)
    table.title_justify = "left"
    table.add_column("")
    shown = {
        head: cells for head, cells in columns.items() if any(cell is not None for cell in cells)
    }
    for head in shown:
        table.add_column(head, justify="right", no_wrap=True)
    for row, name in enumerate(names):
        texts = [cell_text(cells[row], digits.get(head, 1)) for head, cells in shown.items()]
        table.add_row(
            escape_markup(name), *texts, style="bold" if name in evaluation.averages else None
        )
    if evaluation.cannot:
        table.caption = escape_markup(f"The model cannot do {', '.join(evaluation.cannot)}.")
    return table


# ---- answers ------------------------------------------------------------------------------------

MARKS = {
    "known": "[green]known[/green]",
    "missing": "[yellow]missing[/yellow]",
    "not": "[green]not[/green]",
}


def _draw_step(title: str, step: Step) -> Tree:
    """Draw how an answer is derived; the parts of a conjunction stand side by side."""
    tree = Tree(Text(title, style="bold"))

    def add(branch: Tree, step: Step) -> None:
        if step.status == "and":
            for source in step.sources:
                add(branch, source)
            return
        chance = "" if step.status == "known" else f" [dim]{shown_chance(step)}[/dim]"
        child = branch.add(Text(step.text + "  ") + Text.from_markup(MARKS[step.status] + chance))
        for source in step.sources:
            add(child, source)

    add(tree, step)
    return tree


def shown_derivation(step: Step) -> str:
    """Return how an answer is derived in one line, from the answer back."""
    below = [shown_derivation(source) for source in step.sources]
    if step.status == "and":
        return "; ".join(below)
    chance = "" if step.status == "known" else f" {shown_chance(step)}"
    return "; ".join([f"{step.text} ({step.status}{chance})", *below])


def draw_answers(answers: Answers) -> RenderableType:
    """Lay out answers, with the tree of each if they were explained."""
    table = Table(box=None, padding=(0, 2))
    for column in ("rank", "probability"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_column("answer")
    for answer in answers:
        colour = "yellow" if answer.status == "predicted" else "green"
        table.add_row(
            shown_rank(answer),
            shown_probability(answer),
            f"[{colour}]{answer.status}[/{colour}]",
            Text(answer.label),
        )
    trees = [_draw_step(answer.label, answer.why) for answer in answers if answer.why]
    has_assumed = any(answer.status == "assumed" for answer in answers)
    notes = [Text(f"assumed: {STATUSES['assumed']}", style="dim")] if has_assumed else []
    return Group(Text(answers.summary()), table, *notes, *trees)


def draw_predictions(answers: Answers, title: str, verdict: Callable[[Answer], str]) -> Table:
    """Lay out explained predictions with the edges they need; `verdict` judges each in markup."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2))
    table.add_column("probability", justify="right")
    for column in ("predicted", "missing edge", ""):
        table.add_column(column)
    for answer in answers:
        missing = ", ".join(answer.why.missing()) if answer.why else ""
        table.add_row(shown_probability(answer), Text(answer.label), Text(missing), verdict(answer))
    return table


def draw_edges(edges: pl.DataFrame, graph: KnowledgeGraph, num_shown: int = 30) -> RenderableType:
    """Lay out the most probable missing edges, with how full their ends are."""

    def label(name: str) -> str:
        return graph.entity_label(graph.entity_id(name))

    table = Table(box=None, padding=(0, 2))
    table.add_column("probability", justify="right")
    table.add_column("missing edge", overflow="fold")
    table.add_column("edges of the head", justify="right")
    table.add_column("of the tail", justify="right")
    for row in edges.head(num_shown).iter_rows(named=True):
        table.add_row(
            f"{row['probability']:.1%}",
            Text(f"{label(row['head'])} {row['relation']} {label(row['tail'])}"),
            f"{row['head_has']}, mean {row['heads_have']:.1f}",
            f"{row['tail_has']}, mean {row['tails_have']:.1f}",
        )
    left = len(edges) - num_shown
    more = [Text(f"{left:,} more: write them with --out", style="dim")] if left > 0 else []
    return Group(Text(f"{len(edges):,} missing edges"), table, *more)


# ---- searches -----------------------------------------------------------------------------------


def draw_speeds(speeds: Sequence[Speed]) -> Table:
    """Lay out how fast and how well each search finds the nearest entities; exact comes first."""
    table = Table(box=None, padding=(0, 2))
    for column in ("search", "ms per query", "times exact", "recall@10"):
        table.add_column(column, justify="left" if column == "search" else "right")
    for speed in speeds:
        faster = speeds[0].milliseconds / speed.milliseconds
        figures = f"{speed.milliseconds:.2f}", f"{faster:.1f}", f"{speed.recall:.3f}"
        table.add_row(speed.name, *figures)
    return table
