"""Similar names: what a person may have meant by a name that is in no table.

Names are compared without case, accents and punctuation. A name is as similar as its spelling is,
or as its words are, whichever is more:

    spelling    1 - edits / length, where two letters swapped are one edit
    words       the share of wanted letters in words that the name has too: whole words, beginnings
                of longer words, misspelt words; less if it has further words
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_SIMILARITY = 0.5  # of a suggestion
MIN_WORD_SIMILARITY = 0.7  # of a misspelt word
BEGINNING = 0.9  # similarity of a word to its beginning
MIN_BEGINNING = 3  # letters
FURTHER_WORDS = 0.3  # taken off if a name has nothing but further words
SHORTLIST = 100  # names by spelling that are compared word by word

SPACES = {code: " " for code in range(128) if not chr(code).isalnum()}


def fold(name: str) -> str:
    """Return a name as it is compared: lower case, without accents and punctuation."""
    name = without_case(name)
    if not name.isascii():
        name = "".join(each if each.isalnum() else " " for each in name)
    return " ".join(name.translate(SPACES).split())


def without_case(name: str) -> str:
    """Return a name in lower case, without accents."""
    if not name.isascii():
        letters = unicodedata.normalize("NFKD", name)
        name = "".join(each for each in letters if not unicodedata.combining(each))
    return name.casefold()


def most_similar(
    wanted: str, names: Sequence[str], popularity: NDArray[np.int64] | None = None
) -> list[int]:
    """Return the indices of similar names, most similar first; all of them are folded.

    Names that are equally similar are ordered by popularity.
    """
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    if not wanted:
        return []
    (spelling,) = process.cdist([wanted], names, scorer=OSA.normalized_similarity, dtype=np.float32)
    nearest = np.argsort(-spelling, kind="stable")[:SHORTLIST].tolist()
    beginnings = [f" {word[:MIN_BEGINNING]}" for word in wanted.split()]
    beginnings = [each for each in beginnings if len(each) > MIN_BEGINNING]
    alike = (i for i, name in enumerate(names) if any(each in f" {name}" for each in beginnings))
    found = {}
    for i in {*nearest, *alike}:
        by_words = _similarity_of_words(wanted.split(), names[i].split())
        found[i] = max(by_words, float(spelling[i]))

    def order(index: int) -> tuple[float, int, int]:
        return -found[index], 0 if popularity is None else -int(popularity[index]), index

    return sorted((i for i, score in found.items() if score >= MIN_SIMILARITY), key=order)


def _similarity_of_words(wanted: Sequence[str], offered: Sequence[str]) -> float:
    from rapidfuzz.distance import OSA

    def similarity(word: str, other: str) -> float:
        if word != other and len(word) >= MIN_BEGINNING and other.startswith(word):
            return BEGINNING
        return float(OSA.normalized_similarity(word, other, score_cutoff=MIN_WORD_SIMILARITY))

    common, met = 0.0, set()
    for word in wanted:
        score, best = max(
            ((similarity(word, other), other) for other in offered), default=(0.0, "")
        )
        common += len(word) * score
        if score:
            met.add(best)
    share = sum(word not in met for word in offered) / max(1, len(offered))
    return common / sum(map(len, wanted)) * (1 - FURTHER_WORDS * share)
