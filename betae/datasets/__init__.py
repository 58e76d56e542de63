"""Graphs that need no preparation: the bundled `world`, and readers of benchmark layouts."""

from betae.datasets.bundled import world
from betae.datasets.release import read_release

__all__ = ["read_release", "world"]
