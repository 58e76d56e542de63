"""Geometries for queries: BetaE, Query2Box and GQE, and the executor that runs them."""

import os

# PyTorch's threads spin while they wait for each other, by default for milliseconds, which is
# ruinous where another program has one of the cores: a training step was then 10 to 30 times
# slower. They spin for some 20 microseconds instead, about the gap between two operations, and then
# sleep: 1.3 times as fast as sleeping at once. Takes effect before `import torch`.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "5000")

from betae.models.base import QueryModel
from betae.models.beta import BetaConfig, BetaE
from betae.models.box import BoxConfig, Query2Box
from betae.models.vector import GQE, VectorConfig

ModelConfig = BetaConfig | BoxConfig | VectorConfig

# The one table of geometries: name in configs and checkpoints -> how it is configured and built.
GEOMETRIES: dict[str, tuple[type[ModelConfig], type[QueryModel]]] = {
    "beta": (BetaConfig, BetaE),
    "box": (BoxConfig, Query2Box),
    "vector": (VectorConfig, GQE),
}

__all__ = [
    "GEOMETRIES",
    "GQE",
    "BetaConfig",
    "BetaE",
    "BoxConfig",
    "ModelConfig",
    "Query2Box",
    "QueryModel",
    "VectorConfig",
]
