"""Tables and trees of the terminal, drawn from the library's results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import PaddingDimensions
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from betae.answering.evidence import Evidence, share
from betae.answering.results import (
    STATUSES,
    STEP_REASONS,
    Answer,
    Answers,
    Step,
    shown_chance,
    shown_probability,
    titles,
)
from betae.evaluation.results import Evaluation
from betae.evaluation.tables import (
    FREQUENCY,
    MODEL_NAMES,
    Cell,
    cell_text,
    describe_queries,
    figures,
    method_name,
    paper_figures,
    report_columns,
    spans,
)
from betae.graph.names import local_name, printable, shorten
from betae.queries.ast import Condition, Entity, Not, Project, Query
from betae.queries.syntax import spell_condition, spell_name
from betae.rules.rule_set import Rule

if TYPE_CHECKING:
    from betae.answering.missing import MissingEdges
    from betae.graph.describe import GraphDescription, Listed
    from betae.graph.edges import Edges
    from betae.graph.graph import KnowledgeGraph
    from betae.querysets.query_set import QuerySet
    from betae.search import Speed


ANSWERS_PER_NODE = 6  # exact answers shown beside a node of a tree


def _table(*columns: str, padding: PaddingDimensions = (0, 2), title: str | None = None) -> Table:
    """Build a table without lines; a column that begins with > is aligned to the right."""
    table = Table(box=None, padding=padding, title=title, title_justify="left")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")
    return table


# ---- queries ------------------------------------------------------------------------------------


def draw_tree(query: Query, annotate: Callable[[Query], str] = lambda _: "") -> Tree:
    """Draw the computation tree of a query; `annotate` may add rich markup after a node."""

    def add(node: Query, draw: Callable[[str], Tree]) -> Tree:
        title, operands = _title(node), node.operands
        if isinstance(node, Project) and isinstance(node.operand, Entity):
            title, operands = f"{title}[bold]({escape(str(node.operand.name))})[/bold]", ()
        branch = draw(title + annotate(node))
        for operand in operands:
            add(operand, branch.add)
        return branch

    return add(query, Tree)


def _title(node: Query) -> str:
    match node:
        case Entity(name):
            return f"[bold]{escape(str(name))}[/bold]"
        case Project(_, relation, is_inverse):
            return f"[cyan]{'~' if is_inverse else ''}{escape(str(relation))}[/cyan]"
        case Condition():
            return f"[magenta]{escape(spell_condition(node, '?'))}[/magenta]"
    return type(node).__name__.lower()  # and, or, not


def with_exact_answers(graph: KnowledgeGraph, edges: Edges = "all") -> Callable[[Query], str]:
    """Return an annotation for `draw_tree`: the number of exact answers of a node, and examples."""

    def annotate(node: Query) -> str:
        found = graph.answers(node, edges)
        if isinstance(node, Not):
            return f"  [green]{len(found):,}[/green]"
        names = ", ".join(
            escape(graph.entity_label(int(each))) for each in found[:ANSWERS_PER_NODE]
        )
        more = ", …" if len(found) > ANSWERS_PER_NODE else ""
        return f"  [green]{len(found):,}[/green] [dim]{names}{more}[/dim]"

    return annotate


def draw_report(queries: QuerySet) -> Table:
    """Lay out the queries sampled per structure, and why others were rejected."""
    columns = "structure", ">sampled", ">of", ">easy", ">hard", ">tried", "rejected"
    table = _table(*columns, padding=(0, 1))
    for name, report in queries.origin["report"].items():
        block, is_complete = queries.blocks[name], report["sampled"] == report["asked"]
        reasons = sorted(report["rejected"].items(), key=lambda item: -item[1])[:3]
        rejected = ", ".join(f"{reason} {count / report['walks']:.0%}" for reason, count in reasons)
        table.add_row(
            Text(name),
            f"{report['sampled']:,}" if is_complete else f"[yellow]{report['sampled']:,}[/yellow]",
            f"{report['asked']:,}",
            *(
                f"{rows.lengths.mean():.1f}" if len(rows) else "-"
                for rows in (block.easy, block.hard)
            ),
            f"{report['walks']:,}",
            Text(rejected if is_complete else f"no more in the graph; {rejected}", style="dim"),
        )
    return table


# ---- graphs and models --------------------------------------------------------------------------


def draw_description(
    description: GraphDescription, graph: KnowledgeGraph, title: str
) -> RenderableType:
    """Lay out the figures of a graph."""
    facts = _table(">", "", title=title)
    facts.show_header = False
    labelled = " (with labels)" if description.labelled else ""
    facts.add_row(f"{description.entities:,}", f"entities{labelled}")
    facts.add_row(f"{description.relations:,}", "relations, each with its inverse")
    for split, count in description.edges.items():
        facts.add_row(f"{count:,}", f"edges in {split}")
    for name, value in description.degree.items():
        facts.add_row(f"{value:,.1f}".removesuffix(".0"), f"edges per entity, {name}")
    if description.isolated_in_train:
        facts.add_row(f"{description.isolated_in_train:,}", "entities without a training edge")

    bars = _table(">edges", "relation", "", title="Frequent relations")
    most = max(description.frequent_relations.values(), default=1)
    for name, count in description.frequent_relations.items():
        label = graph.relation_label(2 * graph.relations.find(name)[0])
        bars.add_row(f"{count:,}", Text(printable(label)), "█" * max(1, round(24 * count / most)))
    if not description.properties:
        return Group(facts, Text(), bars)
    values = _table(">values", ">entities", "property", "type", "range", title="Properties")
    for name, each in description.properties.items():
        kinds = ", ".join(local_name(kind) or "class" for kind in each.datatypes)
        bounds = "" if each.least is None else f"{each.least} to {each.greatest}"
        cells = map(Text, map(printable, (name, kinds, bounds)))
        values.add_row(f"{each.values:,}", f"{each.entities:,}", *cells)
    return Group(facts, Text(), bars, Text(), values)


def draw_names(listed: Sequence[Listed], graph: KnowledgeGraph) -> Table:
    """Lay out entities or relations with their edge counts, labels and example edges."""

    def shown(edge: tuple[str, str, str]) -> str:
        head, relation, tail = graph.edge_labels(edge)
        return printable(f"{spell_name(relation)}({spell_name(head)}, {spell_name(tail)})")

    has_labels = any(each.labels for each in listed)
    is_any_symmetric = any(each.is_symmetric for each in listed)
    columns = ">edges", "name", *(["labels"] if has_labels else [])
    columns += (*(["symmetric"] if is_any_symmetric else []), "examples")
    table = _table(*columns, padding=(0, 2, 0, 0))
    for each in listed:
        labels = [printable(", ".join(label.text for label in each.labels))] if has_labels else []
        examples = "; ".join(map(shown, each.examples))
        both_ways = share(each.reversed, each.edges - each.loops) if each.is_symmetric else ""
        name = printable(shorten(each.name, graph.prefixes))
        names = map(Text, [name, *labels, *([both_ways] if is_any_symmetric else [])])
        table.add_row(f"{each.edges:,}", *names, Text(examples, style="dim"))
    return table


def draw_model(model: dict[str, Any]) -> RenderableType:
    """Lay out the figures of a model, a row for each tensor."""
    figures = "mean", "std", "smallest", "largest"
    table = _table("tensor", ">shape", *(f">{figure}" for figure in figures), padding=(0, 1))
    for name, facts in model["tensors"].items():
        shape = " x ".join(map(str, facts["shape"]))
        table.add_row(name, shape, *(f"{facts[figure]:.3g}" for figure in figures))
    settings = ", ".join(f"{name} {value}" for name, value in model["config"].items())
    return Group(
        Text(f"{model['name']}, {model['parameters']:,} parameters"),
        Text(f"{model['entities']:,} entities, {model['relations']:,} directed relations"),
        Text(settings),
        table,
    )


# ---- evaluations --------------------------------------------------------------------------------


def draw_summary(evaluation: Evaluation) -> Table:
    """Lay out one evaluation for the terminal, a row for each structure."""
    names, results = report_columns([evaluation]), evaluation.results
    theirs = paper_figures(evaluation, "mrr").get(MODEL_NAMES.get(evaluation.model, ""), {})
    columns: dict[str, list[Cell]] = {
        "MRR": figures(results, names, "metrics.mrr"),
        "H@1": figures(results, names, "metrics.hits_at_1"),
        "H@10": figures(results, names, "metrics.hits_at_10"),
        "95 %": spans(evaluation, names),
        FREQUENCY: figures(results, names, "frequency.mrr"),
        "paper": [theirs.get(name) for name in names],
        "Spearman": figures(evaluation.structures, names, "correlation.spearman"),
        "ROC-AUC": figures(evaluation.empty, names, "roc_auc"),
    }
    digits = {"Spearman": 2, "ROC-AUC": 2}
    title = describe_queries(evaluation)
    if evaluation.method != "embedding":
        title = f"{escape(method_name(evaluation))}: {title}"
    table = _table("", padding=(0, 1), title=title)
    shown = {head: cells for head, cells in columns.items() if cells.count(None) < len(cells)}
    for head in shown:
        table.add_column(head, justify="right", no_wrap=True)
    for row, name in enumerate(names):
        texts = [cell_text(cells[row], digits.get(head, 1)) for head, cells in shown.items()]
        table.add_row(escape(name), *texts, style="bold" if name in evaluation.averages else None)
    if evaluation.cannot:
        table.caption = escape(f"The model cannot do {', '.join(evaluation.cannot)}.")
    return table


# ---- answers ------------------------------------------------------------------------------------


def _draw_derivations(answer: Answer) -> Tree:
    """Draw the derivations of an answer; the parts of a conjunction are siblings."""
    tree = Tree(Text(answer.label, style="bold"))

    def add(branch: Tree, step: Step) -> None:
        if step.status == "and":
            for source in step.sources:
                add(branch, source)
            return
        chance = "" if step.status == "known" else f" [dim]{shown_chance(step)}[/dim]"
        colour = "yellow" if step.status == "missing" else "green"
        mark = Text.from_markup(f"[{colour}]{step.status}[/{colour}]{chance}")
        child = branch.add(Text(step.text + "  ") + mark)
        for reason in step.evidence.reasons[:STEP_REASONS] if step.evidence else ():
            child.add(Text(f"since {reason.text}", style="dim"))
        for source in step.sources:
            add(child, source)

    for title, step in zip(titles(answer), answer.derivations, strict=True):
        add(tree.add(Text(title, style="dim")) if title else tree, step)
    if rest := answer.rest():
        tree.add(Text(rest, style="dim"))
    return tree


def shown_derivation(step: Step) -> str:
    """Derivation of an answer in one line, from the answer back."""
    below = [shown_derivation(source) for source in step.sources]
    if step.status == "and":
        return "; ".join(below)
    chance = "" if step.status == "known" else f" {shown_chance(step)}"
    return "; ".join([f"{step.text} ({step.status}{chance})", *below])


def draw_answers(answers: Answers) -> RenderableType:
    """Lay out answers, with the derivations of those explained."""
    columns, *rows = answers.table()
    headings = {"status": "", "answer": "answer"}
    table = _table(*(headings.get(column, f">{column}") for column in columns))
    for (rank, probability, status, *number, label), answer in zip(rows, answers, strict=True):
        colour = "yellow" if answer.status == "predicted" else "green"
        shown_status = f"[{colour}]{status}[/{colour}]"
        table.add_row(rank, probability, shown_status, *number, Text(label))
    trees = draw_reasons(answers)
    has_assumed = any(answer.status == "assumed" for answer in answers)
    notes = [Text(f"assumed: {STATUSES['assumed']}", style="dim")] if has_assumed else []
    return Group(Text(answers.summary()), table, *notes, *trees)


def draw_reasons(answers: Iterable[Answer]) -> list[Tree]:
    """Draw the derivation of each answer that is explained, with what speaks for missing edges."""
    return [_draw_derivations(answer) for answer in answers if answer.why]


def draw_predictions(answers: Answers, true: Collection[str]) -> Table:
    """Lay out explained predictions with their missing edges, and which of them are true."""
    title = f"{answers.summary()}.\nThe best predictions, each with its missing edge:"
    table = _table(">probability", "predicted", "missing edge", "", title=title)
    for answer in answers:
        missing = ", ".join(answer.why.missing()) if answer.why else ""
        verdict = "[green]true[/green]" if answer.entity in true else "wrong"
        table.add_row(shown_probability(answer), Text(answer.label), Text(missing), verdict)
    return table


def draw_edges(edges: MissingEdges, num_shown: int = 30) -> RenderableType:
    """Lay out the most probable missing edges, each with what speaks most for it."""

    table = _table(">probability", "missing edge", *(["since"] if edges.has_reasons else []))
    for row in islice(edges, num_shown):
        texts = [" ".join(row[f"{part}_label"] for part in ("head", "relation", "tail"))]
        texts += [row["reason"] or ""] if edges.has_reasons else []
        table.add_row(f"{row['probability']:.1%}", *map(Text, texts))
    left = len(edges) - num_shown
    more = [Text(f"{left:,} more: write all with --out", style="dim")] if left > 0 else []
    return Group(Text(f"{len(edges):,} missing edges"), table, *more)


def draw_rules(rules: Sequence[Rule], graph: KnowledgeGraph) -> Table:
    """Lay out rules, with how often they hold."""
    table = _table(">confidence", ">holds", ">cases", "rule")
    for rule in rules:
        counts = f"{rule.support:,}", f"{rule.cases:,}"
        table.add_row(f"{rule.confidence:.1%}", *counts, Text(rule.text(graph)))
    return table


def draw_evidence(evidence: Evidence) -> RenderableType:
    """Lay out what speaks for an edge, with log-odds."""
    table = _table(">log-odds", "since")
    for amount, text in evidence.lines():
        table.add_row(amount, Text(text))
    return Group(Text(evidence.summary(), style="bold"), table)


# ---- searches -----------------------------------------------------------------------------------


def draw_speeds(speeds: Sequence[Speed]) -> Table:
    """Lay out speed and recall of each search; the first is exact."""
    table = _table("search", ">ms per query", ">speed-up", ">recall@10")
    for speed in speeds:
        faster = speeds[0].milliseconds / speed.milliseconds
        figures = f"{speed.milliseconds:.2f}", f"{faster:.1f}", f"{speed.recall:.3f}"
        table.add_row(speed.name, *figures)
    return table
