from .answering.answerer import Answerer
from .answering.results import Answer, Answers, Step
from .datasets import read_release, world
from .errors import (
    AmbiguousName,
    BetaeError,
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
from .evaluation.evaluate import Evaluation, evaluate
from .evaluation.report import save_evaluation, write_report
from .graph import KnowledgeGraph
from .models import GQE, BetaConfig, BetaE, BoxConfig, Query2Box, QueryModel, VectorConfig
from .models.execute import embed_nodes, embed_queries, score_queries
from .models.files import build_model, load_model, save_model
from .queries.ast import And, Entity, Not, Or, Project, Query, resolve, unresolve
from .queries.files import (
    QueryBlock,
    QuerySet,
    open_queries,
    read_release_queries,
    write_release_queries,
)
from .queries.rewrite import dnf_branches, simplify, to_de_morgan, to_dnf
from .queries.sample import sample_queries
from .queries.sparql import parse_sparql
from .queries.structures import from_tuple, to_tuple
from .queries.syntax import parse
from .symbolic import answers, answers_batch
from .training.checkpoint import best_model, open_graph
from .training.config import TrainConfig, read_recipe
from .training.loop import TrainResult, train
from .triples import Triples, read_triples

__version__: str
__all__ = [
    "AmbiguousName",
    "And",
    "Answer",
    "Answerer",
    "Answers",
    "BetaConfig",
    "BetaE",
    "BetaeError",
    "BoxConfig",
    "Entity",
    "Evaluation",
    "GQE",
    "InvalidArgument",
    "KnowledgeGraph",
    "Not",
    "Or",
    "ProcessLost",
    "Project",
    "Query",
    "Query2Box",
    "QueryBlock",
    "QueryError",
    "QueryModel",
    "QuerySet",
    "QuerySyntaxError",
    "Step",
    "StoreError",
    "TrainConfig",
    "TrainResult",
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
    "best_model",
    "build_model",
    "dnf_branches",
    "embed_nodes",
    "embed_queries",
    "evaluate",
    "from_tuple",
    "load_model",
    "open_graph",
    "open_queries",
    "parse",
    "parse_sparql",
    "read_recipe",
    "read_release",
    "read_release_queries",
    "read_triples",
    "resolve",
    "sample_queries",
    "save_evaluation",
    "save_model",
    "score_queries",
    "simplify",
    "to_de_morgan",
    "to_dnf",
    "to_tuple",
    "train",
    "unresolve",
    "world",
    "write_release_queries",
    "write_report",
]
