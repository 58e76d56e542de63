"""How often predictions are unusual, and how often those are true: see `betae.answering.unusual`.

    python benchmarks/unusual.py RUN [--questions 2000]

Asks for the 10 best predictions of random heads and relations, in both directions, that have a
validation edge, with the training edges as known. A prediction is true if the edge was held out.
"""

import argparse

import numpy as np

from betae import Entity, Run
from betae.answering.answerer import QuestionRequest

KINDS = ["usual", "not a ", "no "]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--questions", type=int, default=2000)
    options = parser.parse_args()
    run = Run.open(options.run)
    graph, rng = run.graph, np.random.default_rng(0)
    heads, relations, tails = graph.edge_ids("valid").T
    forth, back = np.stack([heads, relations]), np.stack([tails, relations + 1])
    asked = np.unique(np.concatenate([forth, back], axis=1), axis=1).T
    asked = rng.permutation(asked)[: options.questions].tolist()
    requests = [
        QuestionRequest(Entity(head)[graph.relation_name(relation)], 10, "predicted")
        for head, relation in asked
    ]
    everything, rows = graph.adjacency("all"), []
    for (head, relation), answers in zip(
        asked, run.answerer(edges="train").answer_many(requests), strict=True
    ):
        true = {*everything.neighbours(head, relation).tolist()}
        for answer in answers:
            is_true = graph.entity_id(answer.entity) in true
            kind = "usual" if answer.unusual is None else answer.unusual.partition("known")[0]
            rows.append((KINDS.index(kind), is_true, answer.probability))
    kinds, is_true, probability = np.array(rows, dtype=float).T
    print(f"{len(rows):,} predictions for {len(asked):,} questions")
    for number, name in enumerate(("usual", "unusual itself", "of an unusual class")):
        chosen = kinds == number
        if chosen.any():
            print(
                f"{name:>19}: {chosen.mean():6.2%} of all, {is_true[chosen].mean():6.2%} true, "
                f"{probability[chosen].mean():6.2%} expected, "
                f"{is_true[chosen].sum() / is_true.sum():.2%} of the true ones"
            )


if __name__ == "__main__":
    main()
