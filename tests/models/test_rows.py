"""Rows of the entity table: a part of it, in memory or on disk, begins as in the whole."""

import os
import resource
from pathlib import Path

import pytest
import torch

from betae.errors import StoreError
from betae.models.rows import Rows, blocks
from betae.models.store import build_model
from tests.training.helpers import in_process, small_config


@pytest.mark.parametrize("number", [0, 1, 15, 16, 17, 100, 1000])
@pytest.mark.parametrize("width", [0, 1, 3, 7, 400])
@pytest.mark.parametrize("at_once", [1, 160, 10_000])
def test_blocks_cover_all_rows_once(number, width, at_once):
    found = [*blocks(number, width, at_once)]
    assert [row for block in found for row in range(number)[block]] == list(range(number))
    sizes = [block.stop - block.start for block in found]
    assert all(size % 16 == 0 for size in sizes[:-1])
    assert sizes[-1] == max(sizes)


@pytest.mark.parametrize("is_on_disk", [False, True])
@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe", "complex"])
@pytest.mark.parametrize("bounds", [(0, 777), (0, 100), (100, 101), (300, 777), (50, 50)], ids=str)
def test_a_part_begins_as_in_the_whole(model_name, bounds, is_on_disk, tmp_path, monkeypatch):
    config = small_config(model_name, {"dim": 7}).model
    torch.manual_seed(5)
    whole = build_model(config, 777, 4)  # in one block
    monkeypatch.setattr(blocks, "__defaults__", (500,))
    assert len([*blocks(777, 7)]) > 5
    torch.manual_seed(5)
    part = build_model(config, 777, 4, Rows(*bounds, 777, tmp_path if is_on_disk else None))
    assert torch.equal(part.entities, whole.entities[slice(*bounds)])
    for (name, one), two in zip(part.named_parameters(), whole.parameters(), strict=True):
        if name != "entities":
            assert torch.equal(one, two), name
    zeros = part.rows.zeros_like(part.entities)
    assert zeros.shape == part.entities.shape
    assert not zeros.any()
    assert not [*tmp_path.iterdir()]  # the files have no name: nothing is left behind


def test_rows_on_disk_are_in_a_shared_mapping_of_a_file(tmp_path):
    rows = Rows(0, 100, 100, tmp_path / "not" / "there").new(7, torch.Tensor.zero_)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, *_ = line.split()
        first, last = (int(address, 16) for address in addresses.split("-"))
        if first <= rows.data_ptr() < last:
            break
    assert rights == "rw-s"
    assert line.endswith("(deleted)")


def fill_limited_disk(folder, message):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        Rows(0, 100, 100, folder).new(7, torch.Tensor.zero_)
    except StoreError as error:
        message.write_text(str(error))
        os._exit(3)


@pytest.mark.slow
def test_a_full_disk_is_found_at_the_start(tmp_path):
    """Not in the middle of a step, where a page that has no place ends the process."""
    assert in_process(fill_limited_disk, tmp_path, tmp_path / "message") == 3
    assert "The disk is full" in (tmp_path / "message").read_text()
