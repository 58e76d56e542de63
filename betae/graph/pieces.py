"""A stored graph written from pieces that come in order, each small, the whole of any size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import SPLITS, Edges, Packing, Split
from betae.storage import ArrayWriter

Keys = Iterable[NDArray[np.int64]]  # packed triples, ascending over all pieces


def write_names(
    pieces: Iterable[tuple[NDArray[Any], NDArray[Any]]], kind: str, store: Path
) -> None:
    """Write sorted names, given with their lengths in bytes, as `Names` holds them."""
    with (
        ArrayWriter(store, f"{kind}.text", np.uint8) as text,
        ArrayWriter(store, f"{kind}.offsets", np.int64) as offsets,
        ArrayWriter(store, f"{kind}.order", np.int32) as order,
    ):
        end, number = 0, 0
        offsets.write(np.zeros(1))
        for names, lengths in pieces:
            text.write(np.frombuffer("".join(names).encode(), dtype=np.uint8))
            ends = end + np.cumsum(lengths)
            offsets.write(ends)
            order.write(np.arange(number, number + len(ends)))
            end, number = int(ends[-1]), number + len(ends)


def write_split(pieces: Keys, packing: Packing, split: Split, store: Path) -> int:
    """Write the triples of a split, and return how many there are."""
    length = 0
    with ArrayWriter(store, split, np.int32, width=3) as triples:
        for keys in pieces:
            triples.write(np.stack(packing.unpack(keys), axis=1))
            length += len(keys)
    return length


def write_adjacency(
    pieces: Keys,
    packing: Packing,
    num_entities: int,
    edges: Edges,
    store: Path,
) -> int:
    """Write sorted keys as `Adjacency.from_triples` does; return how many heads there are."""
    num_keys = num_pairs = num_heads = 0
    next_head, last_pair = 0, -1  # whose offset is not written; that may go on in the next piece
    with (
        ArrayWriter(store, f"{edges}.head_offsets", np.int64) as head_offsets,
        ArrayWriter(store, f"{edges}.relations", np.int32) as relations,
        ArrayWriter(store, f"{edges}.tail_offsets", np.int64) as tail_offsets,
        ArrayWriter(store, f"{edges}.tails", np.int32) as tails,
    ):
        for keys in pieces:
            pairs = keys >> packing.entity_bits
            starts = np.flatnonzero(np.diff(pairs, prepend=last_pair))
            heads, pair_relations, _ = packing.unpack(keys[starts])
            relations.write(pair_relations)
            tail_offsets.write(num_keys + starts)
            tails.write(packing.unpack(keys)[2])
            new_heads = np.arange(next_head, heads[-1] + 1 if len(heads) else next_head)
            head_offsets.write(num_pairs + np.searchsorted(heads, new_heads))
            num_heads += int(np.count_nonzero(np.diff(heads, prepend=next_head - 1)))
            num_keys, num_pairs = num_keys + len(keys), num_pairs + len(starts)
            next_head, last_pair = next_head + len(new_heads), int(pairs[-1])
        head_offsets.write(np.full(num_entities + 1 - next_head, num_pairs))
        tail_offsets.write(np.array([num_keys]))
    return num_heads


def fingerprint_of(store: Path) -> str:
    """Return the fingerprint of a graph, as `KnowledgeGraph` computes it, from its files."""
    digest = hashlib.sha256()
    for name in (
        "entities.text",
        "entities.offsets",
        "relations.text",
        "relations.offsets",
        *SPLITS,
    ):
        with (store / f"{name}.npy").open("rb") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            while piece := file.read(2**20):
                digest.update(piece)
        if name in SPLITS:
            digest.update(b"/")
    return digest.hexdigest()
