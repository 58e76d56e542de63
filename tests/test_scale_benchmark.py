"""benchmarks/scale.py on a graph of a few hundred entities, all steps in this process."""

import argparse
import json
from pathlib import Path

import pytest

from betae.training import loop

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(loop, "REPORT_EVERY", loop.REPORT_EVERY)  # which it changes
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 3)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)
    import scale

    return scale


@pytest.mark.slow
def test_every_step_leaves_its_output_and_what_it_took(scale, tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "SHARE", 0.05)
    options = argparse.Namespace(
        entities=300,
        edges=3000,
        relations=5,
        dim=4,
        steps=20,
        questions=8,
        memory="512MB",
        table="memory",
        small=tmp_path / "graph",
    )
    for step, output in scale.STEPS.items():
        scale.work(step.__name__, tmp_path, options)
        assert (tmp_path / output).exists()
    took = {
        step.__name__: json.loads((tmp_path / f"{step.__name__}.json").read_text())
        for step in scale.STEPS
    }
    assert took["ingest"]["edges"] > 2000
    assert took["mine"]["rules"] > 100
    assert took["train"]["queries a CPU second"] > 0
    assert took["index"]["recall"] > 0.95
    assert took["answer"]["questions"] == 8
    assert took["answer"]["expected, median"] > 0
