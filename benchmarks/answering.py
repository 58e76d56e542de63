"""How long it takes to answer questions from the completed graph, and by embedding.

    python benchmarks/answering.py RUN [--graph FOLDER] [--questions 50]

Sampled questions of one and two steps, and of three with a negation, each asked when no row of the
completed graph is in the cache yet; then with half and with twice as many sources. For comparison,
the exact answers alone and, if the model can embed them, the same questions by embedding.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

from betae import Query, Run
from betae.answering.by_completion import ByCompletion
from betae.answering.completed import CompletedGraph
from betae.answering.truth import SOURCES, truth_trees
from betae.errors import UnsupportedQuery
from betae.exact.answers import answers
from betae.graph.graph import KnowledgeGraph
from betae.queries.structures import STRUCTURES, fill
from betae.querysets.sample import sample_queries


def sampled(graph: KnowledgeGraph, number: int) -> dict[str, list[Query]]:
    """Return questions by their kind."""
    blocks = sample_queries(graph, {"1p": 2 * number, "2p": number, "3p": number}, "test").blocks
    found = {
        name: [fill(STRUCTURES[name], symbols) for symbols in block.symbols.tolist()]
        for name, block in blocks.items()
    }
    negated = zip(found["3p"], found["1p"][number:], strict=False)
    return {
        "1 hop": found["1p"][:number],
        "2 hops": found["2p"],
        "3 hops and a negation": [three & ~one for three, one in negated],
    }


def milliseconds(
    function: Callable[[Query], object],
    questions: Sequence[Query],
    prepare: Callable[[], None],
) -> float:
    """Return the median time of a question; what is prepared before each does not count."""
    times = []
    for question in questions:
        prepare()
        start = time.perf_counter()
        function(question)
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--graph")
    parser.add_argument("--questions", type=int, default=50)
    arguments = parser.parse_args()
    run = Run.open(arguments.run, arguments.graph)
    start = time.perf_counter()
    answerer = run.answerer(notify=print)
    print(f"opening {time.perf_counter() - start:.2f} s")
    assert isinstance(answerer.ranker, ByCompletion)
    completed = answerer.ranker.completed

    def forget() -> None:
        answerer.ranker.completed = CompletedGraph(run.graph, completed.probabilities)

    def explained(question: Query) -> object:
        return answerer.answer(question, explain=True)

    def with_sources(number: int) -> Callable[[Query], object]:
        def ask(question: Query) -> object:
            return list(truth_trees(answerer.ranker.completed, [question], number))

        return ask

    def embedded(question: Query) -> object:
        try:
            return by_embedding.answer(question)
        except UnsupportedQuery:
            return None

    by_embedding = run.answerer(method="embedding")
    for kind, questions in sampled(run.graph, arguments.questions).items():
        explained(questions[0])
        figures = {
            "explained": explained,
            f"{SOURCES // 2} sources": with_sources(SOURCES // 2),
            f"{SOURCES} sources": with_sources(SOURCES),
            f"{2 * SOURCES} sources": with_sources(2 * SOURCES),
            "by embedding": embedded,
            "exact answers alone": lambda question: answers(run.graph, question, "all"),
        }
        for what, function in figures.items():
            print(f"{kind:22}  {what:22} {milliseconds(function, questions, forget):8.1f} ms")


if __name__ == "__main__":
    main()
