"""What two processes run in the tests: several runs ("all"), or one where a process dies ("dies").

python -m tests.training.two_processes SCENARIO GRAPH OUT
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from betae.errors import BetaeError
from betae.graph.graph import KnowledgeGraph
from betae.training import loop
from betae.training.folder import RunFolder
from tests.training.helpers import small_config, validation_queries

RARE = {"1p": 1.0, "2i": 0.04}  # an intersection in one step of three
RECIPES = {
    "softmax": {},
    "margin": {"loss": "margin"},
    "query2box": {"model_name": "query2box", "structures": {"1p": 1.0, "2u": 1.0, "2i": 1.0}},
    "rare": {"structures": RARE, "batch_size": 8},
    "complex": {"model_name": "complex"},
    "late": {},  # one process comes to the folder after the other has begun the run; the last one
}


def recipe_of(name):
    return small_config(steps=12, learning_rate=0.01, validate_every=6, **RECIPES[name])


def valid_for(name, valid):
    """The validation queries for a recipe; ComplEx takes the sampled ones, which are edges."""
    return None if name == "complex" else valid


def train_all(graph, out, rank, valid):
    """Do every recipe, and write the message of what cannot be done."""
    start, save_config = loop._check_folder, RunFolder.save_config
    for name in RECIPES:
        # All look at the folder before the first writes to it, but for "late".
        def start_together(*arguments, name=name):
            dist.barrier()
            if name == "late" and rank == 1:
                time.sleep(1)
            return start(*arguments)

        def save_later(*arguments, name=name):
            if name != "late":
                time.sleep(0.3)
            save_config(*arguments)

        loop._check_folder, RunFolder.save_config = start_together, save_later
        try:
            loop.fit(graph, recipe_of(name), RunFolder(out / name), valid=valid_for(name, valid))
        except BetaeError as error:
            (out / f"{name}.error").write_text(str(error))


def main():
    scenario, graph, out = sys.argv[1], KnowledgeGraph.open(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    valid = validation_queries(graph)
    if scenario == "all":
        dist.init_process_group("gloo")
        train_all(graph, out, rank, valid)
        dist.destroy_process_group()
        return
    validate = loop.validate

    def die(*arguments):  # at step 50
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return validate(*arguments)

    def begin(*arguments, start=loop._check_folder):
        time.sleep(1.5 * (1 - rank))  # see `train_all`
        return start(*arguments)

    loop.validate, loop._check_folder = die, begin
    config = small_config(steps=100_000, checkpoint_every=10, validate_every=50)
    try:
        loop.fit(graph, config, RunFolder(out), valid=valid)
    except BetaeError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
