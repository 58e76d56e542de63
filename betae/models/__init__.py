"""Models: BetaE, Query2Box and GQE embed queries, ComplEx predicts single edges."""

from betae.models.base import QueryModel
from betae.models.beta import BetaConfig, BetaE
from betae.models.box import Query2Box, Query2BoxConfig
from betae.models.complex import ComplEx, ComplexConfig
from betae.models.vector import GQE, GQEConfig

ModelConfig = BetaConfig | Query2BoxConfig | GQEConfig | ComplexConfig

# The one table of models: name in recipes and on disk -> how it is configured and built.
MODELS: dict[str, tuple[type[ModelConfig], type[QueryModel]]] = {
    "betae": (BetaConfig, BetaE),
    "query2box": (Query2BoxConfig, Query2Box),
    "gqe": (GQEConfig, GQE),
    "complex": (ComplexConfig, ComplEx),
}

__all__ = [
    "GQE",
    "MODELS",
    "BetaConfig",
    "BetaE",
    "ComplEx",
    "ComplexConfig",
    "GQEConfig",
    "ModelConfig",
    "Query2Box",
    "Query2BoxConfig",
    "QueryModel",
]
