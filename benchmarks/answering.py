"""How long it takes to open a run and to answer a three-hop question with a negation.

    python benchmarks/answering.py RUN --graph FOLDER

RUN is a run on FB15k-237, FOLDER the same graph with labels:

    betae ingest FB15k-237-betae --labels names/FB15k_mid2name.txt --out FOLDER

For comparison, the time that the exact answers alone take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from betae import Answerer, Run, answers, parse

QUESTION = """?X . exists ?P, ?F :
    /people/person/place_of_birth(?P, Toronto)
    & /film/actor/film./film/performance/film(?P, ?F)
    & /film/film/genre(?F, ?X)
    & !/film/film/genre(City_of_Angels, ?X)"""


def milliseconds(function: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--graph")
    arguments = parser.parse_args()

    def open_run() -> Answerer:
        return Run.open(arguments.run, arguments.graph).answerer()

    answerer = open_run()  # the first time, it fits the probabilities
    opening = milliseconds(open_run, 5)
    print(f"opening {opening / 1000:.2f} s")
    print(answerer.answer(QUESTION))
    print(f"answering {milliseconds(lambda: answerer.answer(QUESTION), 50):.1f} ms")
    explained = milliseconds(lambda: answerer.answer(QUESTION, explain=True), 10)
    print(f"with explanations {explained:.1f} ms")
    query = parse(QUESTION)
    facts = milliseconds(lambda: answers(answerer.graph, query), 50)
    print(f"of which the exact answers {facts:.1f} ms")


if __name__ == "__main__":
    main()
