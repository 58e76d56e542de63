"""What the models of a run say besides answers, as plain values; for use in their thread."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from betae.answering.by_completion import ByCompletion
from betae.answering.complete import missing_edges
from betae.graph.graph import KnowledgeGraph
from betae.server.questions import Questions

LEAST_PROBABLE = 0.01  # of the missing edges that are listed


def describe_model(questions: Questions) -> dict[str, Any]:
    """Return what the model is, and how it answers."""
    model, ranker = questions.model, questions.answerer().ranker
    predictors = [model.name]
    if isinstance(ranker, ByCompletion):
        predictors = [each.name for each in ranker.completed.probabilities.predictors]
    return {
        "name": model.name,
        "config": asdict(model.config),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "has_negation": model.has_complement,
        "predictors": predictors,
        "method": ranker.method,
    }


def missing_edges_of(questions: Questions, entity: int, number: int) -> list[dict[str, Any]] | None:
    """Return the most probable missing edges of an entity; None if the run has no probabilities."""
    graph, ranker = questions.run.graph, questions.answerer().ranker
    if not isinstance(ranker, ByCompletion):
        return None
    name = graph.entities[entity]
    found = missing_edges(graph, ranker.completed, entity=name, above=LEAST_PROBABLE)[:number]
    return [
        {
            **_edge_by_name(graph, name, row["head"], row["relation"], row["tail"]),
            "probability": row["probability"],
        }
        for row in found.iter_rows(named=True)
    ]


def _edge_by_name(
    graph: KnowledgeGraph, entity: str, head: str, relation: str, tail: str
) -> dict[str, Any]:
    def label(name: str) -> str:
        return graph.entity_label(graph.entities.find(name)[0])

    return {
        "head": head,
        "head_label": label(head),
        "relation": relation,
        "tail": tail,
        "tail_label": label(tail),
        "direction": "out" if head == entity else "in",
    }
