"""Models: BetaE, Query2Box and GQE embed queries, ComplEx predicts single edges."""

from betae.models.base import QueryModel
from betae.models.beta import BetaConfig, BetaE
from betae.models.box import BoxConfig, Query2Box
from betae.models.complex import ComplEx, ComplexConfig
from betae.models.vector import GQE, VectorConfig

ModelConfig = BetaConfig | BoxConfig | VectorConfig | ComplexConfig

# The one table of models: name in recipes and on disk -> how it is configured and built.
MODELS: dict[str, tuple[type[ModelConfig], type[QueryModel]]] = {
    "betae": (BetaConfig, BetaE),
    "query2box": (BoxConfig, Query2Box),
    "gqe": (VectorConfig, GQE),
    "complex": (ComplexConfig, ComplEx),
}

__all__ = [
    "GQE",
    "MODELS",
    "BetaConfig",
    "BetaE",
    "BoxConfig",
    "ComplEx",
    "ComplexConfig",
    "ModelConfig",
    "Query2Box",
    "QueryModel",
    "VectorConfig",
]
