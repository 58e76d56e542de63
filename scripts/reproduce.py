"""Reproduce a benchmark result: ingest, train a recipe, evaluate, and report beside the paper.

    python scripts/reproduce.py FB15k-237 betae --data DATA --out OUT

DATA holds the released folders (FB15k-237-betae, FB15k-237-q2b, NELL-betae and so on). Each step is
a `betae` command and is printed. Finished steps are skipped, so the same command continues after a
stop, training included. At the end it prints the minutes of each step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from betae import TrainConfig
from betae.cli import main
from betae.storage import writing_file

RECIPES = Path(__file__).parents[1] / "recipes"
FOLDERS = {
    "FB15k-237": "FB15k-237",
    "NELL995": "NELL",
    "FB15k": "FB15k",
}  # dataset -> prefix of its folders
MODELS = ("betae", "query2box", "gqe", "complex")
TEST_QUERIES = 5000  # of each structure, sampled if there is no official set
EMPTY_QUERIES = 4000  # of each structure, as in the paper


class Steps:
    """Runs betae commands and keeps their times in a file."""

    def __init__(self, file: Path):
        self.file = file
        self.seconds: dict[str, float] = {}  # by step, over all sessions
        self.done: list[str] = []
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            self.seconds, self.done = kept["seconds"], kept["done"]
        self.asked: list[str] = []

    def run(self, step: str, is_done: bool, *arguments: Path | str) -> None:
        """Print a command and run it, unless it `is_done`."""
        self.asked.append(step)
        if is_done:
            return
        print("$ betae", *arguments, flush=True)
        start = time.monotonic()
        try:
            _run([*map(str, arguments)])
            self.done.append(step)
        finally:
            self.seconds[step] = self.seconds.get(step, 0) + time.monotonic() - start
            with writing_file(self.file) as partial:
                kept = {"seconds": self.seconds, "done": self.done}
                partial.write_text(json.dumps(kept, indent=1), encoding="utf-8")

    def table(self) -> str:
        """Return a table of the minutes of the requested steps, and their sum."""
        minutes = {step: self.seconds.get(step, 0) / 60 for step in self.asked}
        minutes["all"] = sum(minutes.values())
        width = max(map(len, minutes))
        lines = [f"{step:<{width}}  {number:7.1f}" for step, number in minutes.items()]
        return "\n".join([f"{'step':<{width}}  minutes", *lines])


def _run(command: list[str]) -> None:
    if command[0] == "train":  # in a subprocess, so that Ctrl-C stops both cleanly
        subprocess.run([sys.executable, "-m", "betae", *command], check=True)
        return
    try:
        main(command)
    except SystemExit as end:
        if end.code:
            raise


def reproduce(arguments: Sequence[str] | None = None) -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=FOLDERS)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("reproduce"))
    asked = parser.parse_args(arguments)
    recipe = RECIPES / f"{asked.dataset}_{asked.model}.toml"
    if not recipe.exists():
        parser.error(f"there is no {recipe}")
    released = asked.data / f"{FOLDERS[asked.dataset]}-betae"
    out = asked.out / asked.dataset
    graph, run = out / "graph", out / asked.model
    out.mkdir(parents=True, exist_ok=True)
    steps = Steps(out / "minutes.json")

    steps.run("ingest", graph.exists(), "ingest", released, "--out", graph)
    # Training queries are sampled from the graph on the fly.
    train = f"{asked.model}: train"
    resume = ["--resume"] if run.exists() else []
    is_trained = train in steps.done and run.exists()
    steps.run(train, is_trained, "train", graph, "--recipe", recipe, "--out", run, *resume)

    sets = [asked.data / f"{FOLDERS[asked.dataset]}-q2b"]
    if (released / "test-queries.pkl").exists():
        sets.append(released)
    else:  # no official set: sample one by its rules
        sets.append(out / "sampled-test")
        how = ("--split", "test", "--count", str(TEST_QUERIES), "--rules", "release")
        steps.run("sample", sets[-1].exists(), "sample", graph, *how, "--out", sets[-1])
    # A link predictor embeds no queries, so it is evaluated on the completed graph only.
    config = TrainConfig.read(recipe)
    by_embedding = (
        {}
        if config.is_for_links
        else {"": ("--method", "embedding", "--empty", str(EMPTY_QUERIES))}
    )
    by_completion = {"-completed": ("--method", "completed")}
    methods = by_embedding | (by_completion if config.is_for_links or config.predictor else {})
    for queries in sets:
        for suffix, how in methods.items():
            name = f"{queries.name}{suffix}"
            is_done = (run / "evaluations" / f"{name}.json").exists()
            step = f"{asked.model}: eval {name}"
            steps.run(step, is_done, "eval", run, "--queries", queries, *how)
    report = out / f"{asked.model}-report"
    steps.run(f"{asked.model}: report", False, "report", run, "--out", report, "--overwrite")
    print(steps.table())
    print(f"The report: {report / 'report.html'}")


if __name__ == "__main__":
    reproduce()
