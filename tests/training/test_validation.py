"""Validation sets: what cannot be ranked is left out, and no odd figure becomes the best."""

import math
from dataclasses import replace

import numpy as np
import pytest

from betae.errors import InvalidArgument
from betae.graph.edges import Ragged
from betae.training import loop
from betae.training.folder import RunFolder


def without_hard(block, rows):
    """The block, with no hard answer in these rows."""
    lists = [[] if row in rows else block.hard[row].tolist() for row in range(len(block))]
    return replace(block, hard=Ragged.from_rows(lists))


def mrr_of(run):
    return [line for line in RunFolder(run).read_metrics() if "mrr" in line][-1]


def test_an_empty_block_is_left_out(train, valid, tmp_path):
    nothing = valid.blocks["2i"].take(np.empty(0, dtype=np.int64))
    train(valid=replace(valid, blocks={**valid.blocks, "2i": nothing}), steps=20)
    train(tmp_path / "without", steps=20, valid=without(valid, "2i"))
    assert mrr_of(tmp_path / "run").keys() >= {"1p", "2p"}
    assert "2i" not in mrr_of(tmp_path / "run")
    assert mrr_of(tmp_path / "run")["mrr"] == mrr_of(tmp_path / "without")["mrr"]


def without(valid, name):
    return replace(valid, blocks={k: block for k, block in valid.blocks.items() if k != name})


@pytest.mark.parametrize("rows", [[0], [3, 4], [9], range(1, 10)], ids=str)
def test_queries_without_hard_answers_are_left_out(rows, train, valid, tmp_path):
    block = valid.blocks["1p"]
    kept = np.array([row for row in range(len(block)) if row not in rows])
    for name, changed in (("some", without_hard(block, rows)), ("kept", block.take(kept))):
        train(tmp_path / name, steps=20, valid=replace(valid, blocks={"1p": changed}))
    assert mrr_of(tmp_path / "some")["1p"] == mrr_of(tmp_path / "kept")["1p"]
    assert 0 < mrr_of(tmp_path / "some")["1p"] <= 100


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_set_with_nothing_to_rank_is_refused(is_empty, train, valid, tmp_path):
    block = valid.blocks["1p"]
    blocks = {} if is_empty else {"1p": without_hard(block, range(len(block)))}
    with pytest.raises(InvalidArgument, match="no query with a hard answer"):
        train(valid=replace(valid, blocks=blocks))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_a_number_never_becomes_the_best(value, train, tmp_path, monkeypatch):
    values = iter([10.0, value, 20.0])
    monkeypatch.setattr(loop, "validate", lambda *_: {"1p": next(values)})
    result = train()
    assert (result.best_mrr, result.best_step) == (20.0, 60)
    assert RunFolder(tmp_path / "run").best_model().name == "best-00000060"
