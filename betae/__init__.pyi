from .answering.answerer import Answerer
from .answering.results import Answer, Answers, Step
from .cluster import Cluster
from .datasets.bundled import world
from .datasets.release import read_release
from .datasets.release_queries import open_queries
from .errors import (
    AmbiguousName,
    BetaeError,
    ClusterError,
    InvalidArgument,
    ProcessLost,
    QueryError,
    QuerySyntaxError,
    StoreError,
    TrainingStopped,
    TripleError,
    UnknownEntity,
    UnknownRelation,
    UnresolvedName,
    UnsupportedQuery,
)
from .evaluation.report import write_report
from .evaluation.results import Evaluation
from .exact.answers import answers, answers_batch
from .exact.select import Selection, select
from .graph.graph import KnowledgeGraph
from .graph.outofcore import ingest
from .graph.triples import Triples, read_triples
from .models import BetaConfig, BoxConfig, ComplexConfig, VectorConfig
from .queries.ast import And, Entity, Not, Or, Project, Query
from .queries.sparql import parse_sparql
from .queries.syntax import parse
from .querysets.query_set import QuerySet
from .querysets.sample import sample_queries
from .run import Run, train
from .training.config import TrainConfig, default_config, read_recipe

__version__: str
__all__ = [
    "AmbiguousName",
    "And",
    "Answer",
    "Answerer",
    "Answers",
    "BetaConfig",
    "BetaeError",
    "BoxConfig",
    "Cluster",
    "ClusterError",
    "ComplexConfig",
    "Entity",
    "Evaluation",
    "InvalidArgument",
    "KnowledgeGraph",
    "Not",
    "Or",
    "ProcessLost",
    "Project",
    "Query",
    "QueryError",
    "QuerySet",
    "QuerySyntaxError",
    "Run",
    "Selection",
    "Step",
    "StoreError",
    "TrainConfig",
    "TrainingStopped",
    "TripleError",
    "Triples",
    "UnknownEntity",
    "UnknownRelation",
    "UnresolvedName",
    "UnsupportedQuery",
    "VectorConfig",
    "answers",
    "answers_batch",
    "default_config",
    "ingest",
    "open_queries",
    "parse",
    "parse_sparql",
    "read_recipe",
    "read_release",
    "read_triples",
    "sample_queries",
    "select",
    "train",
    "world",
    "write_report",
]
