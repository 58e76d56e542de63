"""Named random streams: one seed gives unrelated numbers for every purpose.

Adding small numbers to a seed makes streams that meet again under another seed. Here the seed and
the names of a purpose are hashed together, so that queries sampled for training, validation and
test, candidates, shuffles and resampling never share a stream.
"""

from __future__ import annotations

import hashlib

import numpy as np


def seed_sequence(seed: int, *names: str | int) -> np.random.SeedSequence:
    """Return the entropy for a purpose, given by names and numbers, under a seed."""
    digest = hashlib.sha256(repr((int(seed), *names)).encode()).digest()
    return np.random.SeedSequence(int.from_bytes(digest))


def random_stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator for a purpose, given by names and numbers, under a seed."""
    return np.random.default_rng(seed_sequence(seed, *names))
