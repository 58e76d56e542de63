"""Train a recipe on a benchmark and evaluate it beside the paper: everything from data to report.

    python scripts/reproduce.py FB15k-237 betae --data DATA --out OUT

DATA holds the released folders (FB15k-237-betae, FB15k-237-q2b, NELL-betae and so on). Each step is
a `betae` command and is printed. Steps that are done are skipped: stop it at any time, and the same
command continues, training included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from betae import read_recipe
from betae.cli import main

RECIPES = Path(__file__).parents[1] / "recipes"
FOLDERS = {
    "FB15k-237": "FB15k-237",
    "NELL995": "NELL",
    "FB15k": "FB15k",
}  # dataset -> prefix of its folders
MODELS = ("betae", "query2box", "gqe", "complex")


def betae(*arguments: Path | str) -> None:
    """Print a command of betae and run it."""
    print("$ betae", *arguments, flush=True)
    command = [*map(str, arguments)]
    if command[0] == "train":  # in a process of its own: Ctrl-C ends it well, and this one too
        subprocess.run([sys.executable, "-m", "betae", *command], check=True)
        return
    try:
        main(command)
    except SystemExit as end:
        if end.code:
            raise


def reproduce() -> None:
    """Go through the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=FOLDERS)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("reproduce"))
    arguments = parser.parse_args()
    recipe = RECIPES / f"{arguments.dataset}_{arguments.model}.toml"
    if not recipe.exists():
        parser.error(f"there is no {recipe}")
    released = arguments.data / f"{FOLDERS[arguments.dataset]}-betae"
    out = arguments.out / arguments.dataset
    graph, run = out / "graph", out / arguments.model

    if not graph.exists():
        betae("ingest", released, "--out", graph)
    # Training queries are sampled from the graph on the fly.
    betae("train", graph, "--recipe", recipe, "--out", run, *(["--resume"] if run.exists() else []))

    sets = [arguments.data / f"{FOLDERS[arguments.dataset]}-q2b"]
    if (released / "test-queries.pkl").exists():
        sets.append(released)
    else:  # the official set is not at hand: one sampled by its rules
        sets.append(out / "sampled-test")
        if not sets[-1].exists():
            rules = ("--split", "test", "--count", "5000", "--rules", "release")
            betae("sample", graph, *rules, "--out", sets[-1])
    # A link predictor embeds no queries: it answers from the completed graph, alone or beside.
    config = read_recipe(recipe)
    by_embedding = {} if config.is_for_links else {"": ("--empty", "4000")}
    by_completion = {"-completed": ("--method", "completed")}
    methods = by_embedding | (by_completion if config.is_for_links or config.predictor else {})
    for queries in sets:
        for suffix, how in methods.items():
            if not (run / "evaluations" / f"{queries.name}{suffix}.json").exists():
                betae("eval", run, "--queries", queries, *how)
    betae("report", run, "--out", out / f"{arguments.model}-report", "--overwrite")


if __name__ == "__main__":
    reproduce()
