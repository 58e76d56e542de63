"""What scripts/odd_inputs.py replays, but for what needs a process of its own."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(scope="module")
def odd():
    """The script, as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        import odd_inputs

        yield odd_inputs
    for name in [name for name in sys.modules if name.startswith("odd_")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def places(odd, tmp_path_factory):
    return odd.make_places(tmp_path_factory.mktemp("places"))


def test_all_that_need_no_process(odd, places, capsys):
    cases = [case for case in odd.all_cases() if not case.shell]
    assert len(cases) > 700
    faults, number = odd.run_cases(cases, places)
    assert not faults, capsys.readouterr().out
    assert number == len(cases)


# ---- the script sees what is wrong --------------------------------------------------------------

FILE = {"a.tsv": "a\tr\tb\n"}


def fault_of(odd, **case):
    return odd.run_case(odd.Case("x", **case), {})[0]


def test_what_is_right_is_no_fault(odd):
    right = {"command": "ingest a.tsv --out graph", "files": FILE, "triples": {("a", "r", "b")}}
    assert fault_of(odd, **right, says="1 read") == ""
    assert fault_of(odd, call=lambda: 7, returns=7) == ""


@pytest.mark.parametrize("place", ["betae.cli.main", "betae.cli.common.app"])
def test_an_error_that_nobody_foresaw_is_a_traceback(odd, monkeypatch, tmp_path, place):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert fault_of(odd, call=fail) == "tracebacks"
    monkeypatch.setattr(place, fail)
    assert fault_of(odd, command="info none") == "tracebacks"


def test_triples_and_answers_that_differ_are_losses(odd, monkeypatch):
    command = {"command": "ingest a.tsv --out graph", "files": FILE}
    assert fault_of(odd, **command, triples={("a", "r", "c")}) == "silent losses"
    assert fault_of(odd, call=lambda: 7, returns=8) == "silent losses"
    csv = odd.Outcome(0, "X,X_label\r\na,A\r\n")
    monkeypatch.setattr(odd, "run_main", lambda *_: csv)
    assert fault_of(odd, answers={("a",)}) == ""
    assert fault_of(odd, answers={("a",), ("b",)}) == "silent losses"


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ("  1 read\n  1 blank lines skipped\n", ""),
        ("  1 read\n", "silent losses"),
        ("  2 read\n  1 blank lines skipped\n", "silent losses"),
        ("  2 read\n  1 duplicates\n", ""),
    ],
)
def test_rows_that_are_not_accounted_for_are_losses(odd, monkeypatch, told, fault):
    monkeypatch.setattr(odd, "triples_of", lambda _: odd.AB)
    monkeypatch.setattr(odd, "run_main", lambda *_: odd.Outcome(0, told))
    files = {"a.tsv": "a\tr\tb\n\n"}
    assert fault_of(odd, command="ingest a.tsv", files=files, triples=odd.AB) == fault


def test_other_faults(odd, monkeypatch):
    assert fault_of(odd, command="info none") == "unexpected outcomes"
    assert fault_of(odd, command="info none", code=2, says="gone") == "unexpected outcomes"
    left = {"command": "info none --out graph", "code": 2}
    assert fault_of(odd, **left, prepare=lambda folder: (folder / "graph").mkdir()) == (
        "unexpected outcomes"
    )
    monkeypatch.setattr(odd, "SECONDS", 0.2)
    assert fault_of(odd, shell="sleep 5") == "endless runs"
    assert fault_of(odd, call=lambda: next(n for n in iter(int, 1) if n)) == "endless runs"


def test_the_script_counts_and_exits(odd, monkeypatch, capsys):
    cases = [
        odd.Case("good", call=lambda: 1, returns=1),
        odd.Case("bad", call=lambda: 1, returns=2),
    ]
    monkeypatch.setattr(odd, "all_cases", lambda: cases)
    monkeypatch.setattr(odd, "make_places", lambda _: {})
    monkeypatch.setattr(sys, "argv", ["odd_inputs.py"])
    assert odd.main() == 1
    assert "2 inputs: 0 tracebacks, 1 silent losses, 0 endless" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["odd_inputs.py", "good"])
    assert odd.main() == 0
    assert "1 inputs: 0 tracebacks, 0 silent losses" in capsys.readouterr().out
