"""Names: a read-only table of strings that opens by memory-mapping."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


class Names(Sequence[str]):
    """Strings by id, and ids by string, without a dictionary to build.

    Three flat arrays: the UTF-8 `text` of all strings in a row, the `offsets` (n + 1) where each
    begins, and the `order` (n) of the ids sorted by string, in which a string is found by binary
    search. A string may stand for several ids (labels do).
    """

    def __init__(
        self, text: NDArray[np.uint8], offsets: NDArray[np.int64], order: NDArray[np.int32]
    ):
        self.text, self.offsets, self.order = text, offsets, order

    @classmethod
    def from_strings(cls, strings: Sequence[str]) -> Names:
        """Make the table; string i gets id i."""
        encoded = [string.encode() for string in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in encoded], out=offsets[1:])
        # Sorting Python strings by code point is the order of their UTF-8 bytes.
        order = np.array(sorted(range(len(encoded)), key=encoded.__getitem__), dtype=np.int32)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets, order)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        return self._bytes(range(len(self))[index]).decode()

    def __iter__(self) -> Iterator[str]:
        text, bounds = self.text.tobytes(), self.offsets.tolist()
        return (text[a:b].decode() for a, b in pairwise(bounds))

    def _bytes(self, index: int) -> bytes:
        return self.text[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def find(self, string: str) -> list[int]:
        """Return the ids of `string`, ascending; none if it is not in the table."""
        key = string.encode()

        def at(rank: int) -> bytes:
            return self._bytes(int(self.order[rank]))

        first = bisect_left(range(len(self)), key, key=at)
        last = bisect_right(range(len(self)), key, lo=first, key=at)
        return sorted(self.order[first:last].tolist())

    def closest(self, string: str, limit: int = 3) -> list[str]:
        """Return up to `limit` distinct strings that look most like `string`."""
        from rapidfuzz import fuzz, process, utils

        matches = process.extract(
            string,
            list(dict.fromkeys(self)),
            scorer=fuzz.WRatio,
            processor=utils.default_process,
            limit=limit,
            score_cutoff=50,
        )
        return [match for match, _, _ in matches]
