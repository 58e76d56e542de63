from .answering.evidence import Evidence
from .answering.missing import MissingEdges
from .answering.results import Answer, Answers
from .cluster import Cluster
from .datasets import read, world
from .errors import BetaeError
from .evaluation.report import write_report
from .evaluation.results import Evaluation
from .exact.select import Selection
from .graph.graph import KnowledgeGraph
from .graph.outofcore import ingest
from .models import BetaConfig, ComplexConfig, GQEConfig, Query2BoxConfig
from .queries.ast import Entity, IsA, Query, Where
from .querysets.query_set import QuerySet
from .run import Run, mine, train
from .training.config import (
    AdamConfig,
    MarginConfig,
    SoftmaxConfig,
    TrainConfig,
    ValidationConfig,
)

__version__: str
__all__ = [
    "AdamConfig",
    "Answer",
    "Answers",
    "BetaConfig",
    "BetaeError",
    "Cluster",
    "ComplexConfig",
    "Entity",
    "Evaluation",
    "Evidence",
    "GQEConfig",
    "IsA",
    "KnowledgeGraph",
    "MarginConfig",
    "MissingEdges",
    "Query",
    "Query2BoxConfig",
    "QuerySet",
    "Run",
    "Selection",
    "SoftmaxConfig",
    "TrainConfig",
    "ValidationConfig",
    "Where",
    "ingest",
    "mine",
    "read",
    "train",
    "world",
    "write_report",
]
