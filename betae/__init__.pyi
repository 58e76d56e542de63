from .datasets import read_release, world
from .errors import (
    AmbiguousName,
    BetaeError,
    InvalidArgument,
    QueryError,
    QuerySyntaxError,
    StoreError,
    TripleError,
    UnknownEntity,
    UnknownRelation,
    UnresolvedName,
    UnsupportedQuery,
)
from .graph import KnowledgeGraph
from .queries.ast import And, Entity, Not, Or, Project, Query, resolve, unresolve
from .queries.files import (
    QueryBlock,
    QuerySet,
    read_release_queries,
    write_release_queries,
)
from .queries.rewrite import dnf_branches, simplify, to_de_morgan, to_dnf
from .queries.sample import sample_queries
from .queries.sparql import parse_sparql
from .queries.structures import from_tuple, to_tuple
from .queries.syntax import parse
from .symbolic import answers, answers_batch
from .triples import Triples, read_triples

__version__: str
__all__ = [
    "AmbiguousName",
    "And",
    "BetaeError",
    "Entity",
    "InvalidArgument",
    "KnowledgeGraph",
    "Not",
    "Or",
    "Project",
    "Query",
    "QueryBlock",
    "QueryError",
    "QuerySet",
    "QuerySyntaxError",
    "StoreError",
    "TripleError",
    "Triples",
    "UnknownEntity",
    "UnknownRelation",
    "UnresolvedName",
    "UnsupportedQuery",
    "answers",
    "answers_batch",
    "dnf_branches",
    "from_tuple",
    "parse",
    "parse_sparql",
    "read_release",
    "read_release_queries",
    "read_triples",
    "resolve",
    "sample_queries",
    "simplify",
    "to_de_morgan",
    "to_dnf",
    "to_tuple",
    "unresolve",
    "world",
    "write_release_queries",
]
