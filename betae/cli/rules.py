"""Rules: mine, rules, why."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from betae.cli.common import (
    HELD_OUT,
    AsJson,
    GraphPath,
    KnownEdges,
    MovedGraph,
    Overwrite,
    RunOrGraph,
    app,
    err,
    examples,
    note,
    open_graph,
    open_or_mine,
    out,
    print_json,
    say,
)
from betae.errors import InvalidArgument


@app.command(epilog=examples("betae mine graph --out run", "betae answer run '?X . r(a, ?X)'"))
def mine(
    graph: GraphPath,
    target: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    seed: Annotated[int, typer.Option(help="Seed of what is sampled.", min=0)] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Mine rules, a run that predicts edges and says why, without training."""
    opened = open_graph(graph)

    from betae.cli.progress import showing_work
    from betae.run import mine as mine_run

    if not len(opened.written_ids["valid"]):
        note(HELD_OUT)
    with showing_work(err, "opening") as progress:
        run = mine_run(
            opened,
            target,
            seed=seed,
            overwrite=overwrite,
            progress=partial(progress, "mining rules"),
        )
    assert run.rules is not None
    say(f"{len(run.rules):,} rules written to {target}")


@app.command(
    epilog=examples(
        "betae rules run --relation capital",
        "betae rules run --limit 1000 --json",
        "betae rules run --out rules.tsv",
    )
)
def rules(
    run: RunOrGraph,
    relation: Annotated[
        str | None, typer.Option(help="Only rules for this relation; ~name is its inverse.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Number of rules to show.", min=1)] = 30,
    target: Annotated[
        Path | None, typer.Option("--out", help="A .tsv file for all of them.")
    ] = None,
    as_json: AsJson = False,
    graph: MovedGraph = None,
) -> None:
    """List the rules of a run, the most confident first."""
    from itertools import islice

    from betae.cli.show import draw_rules
    from betae.storage import check_file, writing_file

    if target is not None:
        check_file(target)
    opened = open_or_mine(run, graph)
    if opened.rules is None:
        raise InvalidArgument(f"{run} has no rules: mine some with betae mine.")
    chosen = None if relation is None else opened.graph.relation_id(relation)
    found = opened.rules.best(chosen)
    if target is not None:
        lines = ["rule\tsupport\tcases\tconfidence"]
        for rule in found:
            counts = f"{rule.support}\t{rule.cases}\t{rule.confidence:.6f}"
            lines.append(f"{rule.text(opened.graph)}\t{counts}")
        with writing_file(target) as partial_file:
            partial_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        say(f"{len(lines) - 1:,} rules written to {target}")
        return
    shown = [*islice(found, limit)]
    if as_json:
        for rule in shown:
            counts_of = {"support": rule.support, "cases": rule.cases}
            print_json(
                {"rule": rule.text(opened.graph), **counts_of, "confidence": rule.confidence}
            )
    elif not shown:
        what = "the graph" if relation is None else relation
        say(f"No rule was found for {what}: no short path leads to its edges often enough.")
    else:
        out.print(draw_rules(shown, opened.graph))


@app.command(epilog=examples("betae why run Austria located_in Europe"))
def why(
    run: RunOrGraph,
    head: Annotated[str, typer.Argument(help="Name or label of an entity.")],
    relation: Annotated[str, typer.Argument(help="Name of a relation.")],
    tail: Annotated[str, typer.Argument(help="Name or label of an entity.")],
    edges: KnownEdges = "all",
    as_json: AsJson = False,
    graph: MovedGraph = None,
) -> None:
    """Tell what speaks for an edge, known or not: rules with their paths, votes, models."""
    from betae.cli.show import draw_evidence

    found = open_or_mine(run, graph).why(head, relation, tail, edges=edges)
    if as_json:
        print_json(found.to_json())
    else:
        out.print(draw_evidence(found))
