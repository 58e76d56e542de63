"""Models that embed queries: BetaE, Query2Box and GQE, and the executor that runs them."""

from betae.models.base import QueryModel
from betae.models.beta import BetaConfig, BetaE
from betae.models.box import BoxConfig, Query2Box
from betae.models.vector import GQE, VectorConfig

ModelConfig = BetaConfig | BoxConfig | VectorConfig

# The one table of models: name in recipes and on disk -> how it is configured and built.
MODELS: dict[str, tuple[type[ModelConfig], type[QueryModel]]] = {
    "betae": (BetaConfig, BetaE),
    "query2box": (BoxConfig, Query2Box),
    "gqe": (VectorConfig, GQE),
}

__all__ = [
    "GQE",
    "MODELS",
    "BetaConfig",
    "BetaE",
    "BoxConfig",
    "ModelConfig",
    "Query2Box",
    "QueryModel",
    "VectorConfig",
]
