"""Checks of a graph's arrays: compiled kernels trust their offsets and ids.

A checksum tells damage from what was written; it does not tell what should not have been written.
All checks are a few passes of numpy over the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import EDGES, SPLITS

Arrays = Mapping[str, NDArray[Any]]
DTYPES: dict[str, type[np.generic]] = {  # by the last part of an array's name
    "text": np.uint8,
    "offsets": np.int64,
    "order": np.int32,
    "head_offsets": np.int64,
    "relations": np.int32,
    "tail_offsets": np.int64,
    "tails": np.int32,
    "owners": np.int32,
    **dict.fromkeys(SPLITS, np.int32),
}


def find_fault(arrays: Arrays) -> str | None:
    """Return what is wrong with the arrays of a graph by name, or None if they are sound."""
    for name, array in arrays.items():
        is_split = name in SPLITS
        shape_ok = array.ndim == (2 if is_split else 1) and (not is_split or array.shape[1] == 3)
        if array.dtype != DTYPES.get(name.rpartition(".")[2]) or not shape_ok:
            return f"{name} is not an array of that kind: {array.dtype}, shape {array.shape}"
    num_entities, num_relations = len(arrays["entities.order"]), len(arrays["relations.order"])
    sizes = {"entities": num_entities, "relations": num_relations}
    sizes |= {"entity_labels": num_entities, "relation_labels": num_relations}
    for kind, limit in (("entity", num_entities), ("relation", num_relations)):
        owners = arrays.get(f"{kind}_all_labels.owners", np.empty(0, np.int32))
        if not _are_below(owners, limit) or (owners[1:] < owners[:-1]).any():
            return f"{kind}_all_labels.owners are not ids in order from 0 to {limit - 1}"
        sizes |= {f"{kind}_all_labels": len(owners), f"{kind}_languages": len(owners)}
    for table, size in sizes.items():
        if fault := _fault_in_names(arrays, table, size):
            return fault
    for split in SPLITS:
        limits = np.array([num_entities, num_relations, num_entities])
        for column, limit in enumerate(limits.tolist()):
            if not _are_below(arrays[split][:, column], limit):
                return f"{split} has an id that is not from 0 to {limit - 1}"
    for edges in EDGES:
        if f"{edges}.tails" not in arrays:
            continue
        if fault := _fault_in_adjacency(arrays, edges, num_entities, 2 * num_relations):
            return fault
    return None


def _fault_in_names(arrays: Arrays, table: str, size: int) -> str | None:
    if f"{table}.order" not in arrays:
        return None  # no labels
    offsets, order = arrays[f"{table}.offsets"], arrays[f"{table}.order"]
    if len(order) != size or not _are_below(order, size):
        return f"{table}.order is not an order of {size} names"
    if not _are_offsets(offsets, size, len(arrays[f"{table}.text"])):
        return f"{table}.offsets are out of order"
    return None


def _fault_in_adjacency(
    arrays: Arrays, edges: str, num_entities: int, num_relations: int
) -> str | None:
    relations, tails = arrays[f"{edges}.relations"], arrays[f"{edges}.tails"]
    tail_offsets = arrays[f"{edges}.tail_offsets"]
    if not _are_offsets(arrays[f"{edges}.head_offsets"], num_entities, len(relations)):
        return f"{edges}.head_offsets are out of order"
    # A pair without a tail would send a random walk to a tail of another one.
    if not _are_offsets(tail_offsets, len(relations), len(tails), least=1):
        return f"{edges}.tail_offsets are out of order"
    if not _are_below(relations, num_relations):
        return f"{edges}.relations has an id that is not from 0 to {num_relations - 1}"
    if not _are_below(tails, num_entities):
        return f"{edges}.tails has an id that is not from 0 to {num_entities - 1}"
    return None


def _are_offsets(offsets: NDArray[Any], number: int, end: int, least: int = 0) -> bool:
    """Tell whether offsets cut 0 .. `end` into `number` pieces of at least `least` each."""
    if len(offsets) != number + 1 or offsets[0] != 0 or offsets[-1] != end:
        return False
    lengths_ok = offsets[1:] > offsets[:-1] if least else offsets[1:] >= offsets[:-1]
    return bool(lengths_ok.all())


def _are_below(ids: NDArray[Any], limit: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < limit)
