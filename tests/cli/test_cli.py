import json
import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from betae import KnowledgeGraph, cli
from betae.graph.triples import read_triples


def run(*arguments):
    """Run a command in this process; errors of betae come back as `exception`."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run_main(monkeypatch, capsys, *arguments):
    """Run `betae ...` as the console script does; return the exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["betae", *map(str, arguments)])
    with pytest.raises(SystemExit) as info:
        cli.main()
    captured = capsys.readouterr()
    return info.value.code, captured.out, captured.err


def run_process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "betae", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def flat(text: str) -> str:
    """Join the lines of a message, and take it out of its frame."""
    return " ".join(text.replace("│", " ").split())


# ---- help ---------------------------------------------------------------------------------------


def test_help_answers_at_once():
    """In CPU seconds, so that what else runs on the machine matters little."""
    seconds = []
    for _ in range(3):
        before = os.times()
        done = run_process("--help")
        after = os.times()
        children = (after.children_user, after.children_system)
        seconds.append(sum(children) - before.children_user - before.children_system)
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("demo", "ingest", "answer", "complete", "eval"))
    assert min(seconds) < 0.7


def commands():
    """Every command, with its words and what it says of itself."""
    found = {}

    def add(words, command):
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                add((*words, name), inner)
        else:
            found[" ".join(words)] = command

    add((), get_command(cli.app))
    return found


COMMANDS = commands()


def test_all_commands():
    names = "ingest export info entities relations sample explain query demo answer ask complete"
    names += " train plot inspect eval report serve mcp mine rules why"
    assert set(COMMANDS) == {*names.split(), "index build", "index bench", "index export"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_shows_all_of_it(name):
    command = COMMANDS[name]
    wide = {"COLUMNS": "1000"}
    result = CliRunner().invoke(cli.app, [*name.split(), "-h"], prog_name="betae", env=wide)
    assert result.exit_code == 0
    shown = flat(result.output)
    assert f"Usage: betae {name} " in shown
    assert flat(command.help.splitlines()[0]) in shown
    texts = [parameter.help for parameter in command.params]
    assert all(texts)
    for text in texts:
        assert text.replace("\\[", "[") in shown
    for line in (command.epilog or "").splitlines():
        assert flat(line) in shown


def test_version():
    from betae import __version__

    assert run("--version").output.strip() == f"betae {__version__}"


# ---- the commands -------------------------------------------------------------------------------


def test_ingest_info_export(toy_folder, toy_graph, tmp_path):
    result = run(
        "ingest", toy_folder / "train.tsv", "--valid", toy_folder / "valid.tsv",
        "--test", toy_folder / "test.tsv", "--labels", toy_folder / "labels.tsv",
        "--out", tmp_path / "graph",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "18 read" in flat(result.output)
    assert "1 labels unused" in flat(result.output)
    assert "duplicates" not in result.output
    assert KnowledgeGraph.open(tmp_path / "graph").fingerprint == toy_graph.fingerprint

    told = json.loads(run("info", tmp_path / "graph", "--json").stdout)
    assert told["entities"] == 12
    assert told["relations"] == 4
    assert told["edges"] == {"train": 14, "valid": 2, "test": 2}
    assert told["frequent_relations"] == {"lives_in": 6, "parent": 6, "friend": 3, "in": 3}
    assert told["fingerprint"] == toy_graph.fingerprint
    assert told["labelled"] is True

    shown = flat(run("info", tmp_path / "graph").stdout)
    for words in ("12 entities (with labels)", "4 relations", "14 edges in train", "lives_in"):
        assert words in shown

    for split, count in (("all", 18), ("train", 14), ("valid", 2), ("test", 2)):
        file = tmp_path / f"{split}.csv"
        assert run("export", tmp_path / "graph", file, "--split", split).exit_code == 0
        assert len(read_triples(file).splits["train"]) == count


def test_ingest_splits_by_fraction(write, tmp_path):
    facts = write("facts.tsv", "".join(f"a{i}\tr\ta{j}\n" for i in range(10) for j in range(10)))
    graphs = []
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        arguments = ["--valid", 0.1, "--test", "0.2", "--seed", seed, "--out", tmp_path / name]
        assert run("ingest", facts, *arguments).exit_code == 0
        graphs.append(KnowledgeGraph.open(tmp_path / name))
    assert [len(part) for part in graphs[0].written_ids.values()] == [70, 10, 20]
    assert graphs[0].fingerprint == graphs[1].fingerprint != graphs[2].fingerprint


@pytest.mark.slow
def test_ingest_of_a_release(shared_data, tmp_path):
    result = run("ingest", shared_data / "FB15k-237-betae", "--out", tmp_path / "graph")
    assert result.exit_code == 0, result.output
    told = json.loads(run("info", tmp_path / "graph", "--json").stdout)
    assert (told["entities"], told["relations"]) == (14_505, 237)
    assert told["edges"] == {"train": 272_115, "valid": 17_526, "test": 20_438}


def test_ingest_overwrites_only_when_told(toy_store, write):
    facts = write("facts.tsv", "a\tr\tb\n")
    assert "already exists" in str(run("ingest", facts, "--out", toy_store).exception)
    assert KnowledgeGraph.open(toy_store).num_entities == 12
    assert run("ingest", facts, "--out", toy_store, "--overwrite").exit_code == 0
    assert KnowledgeGraph.open(toy_store).num_entities == 2


# ---- errors -------------------------------------------------------------------------------------


def test_an_error_is_one_message_without_a_traceback(monkeypatch, capsys, write, tmp_path):
    facts = write("facts.tsv", "a\tr\tb\na\tr\n")
    arguments = ["ingest", facts, "--out", tmp_path / "graph"]
    code, out, error = run_main(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "Traceback" not in error
    assert flat(error).startswith("Error:")
    assert re.search(r"line 2: 2 columns, 3 expected", flat(error))
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["facts.tsv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "STORE", "out.csv", "--split", "half"], "'train', 'valid', 'test', 'all'"),
        (["export", "STORE", "out.rdf"], "cannot write '.rdf'"),
        (["ingest", "facts.tsv", "--valid", "1.5", "--out", "graph"], "fractions"),
        (["ingest", "facts.tsv", "--valid", "nan", "--out", "graph"], "fractions"),
        (["ingest", "facts.tsv", "--valid", "no.tsv", "--out", "graph"], "no such file"),
        (["ingest", "no.tsv", "--out", "graph"], "no such file"),
        (["ingest", "STORE", "--out", "graph"], "the folder has no files of triples"),
        (["ingest", "facts.tsv"], "--out"),
        (["ingest", "[bold].tsv", "--out", "graph"], "[bold].tsv"),
        (["info", "odd[/name]"], "odd[/name]"),
        (["fly"], "fly"),
    ],
    ids=str,
)
def test_errors_say_what_to_do(monkeypatch, capsys, toy_store, write, tmp_path, arguments, words):
    write("facts.tsv", "a\tr\tb\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    filled = [toy_store if argument == "STORE" else argument for argument in arguments]
    code, _, error = run_main(monkeypatch, capsys, *filled)
    assert code == 2
    assert words in flat(error)
    assert "Traceback" not in error
    assert sorted(tmp_path.iterdir()) == before


def test_odd_folder_names_are_shown_as_they_are(write, tmp_path):
    facts = write("facts.tsv", "a\tr\tb\n")
    target = tmp_path / "odd[/name]"
    result = run("ingest", facts, "--out", target)
    assert result.exit_code == 0, result.exception
    assert "odd[/name]" in result.output.replace("\n", "")
    assert "odd[/name]" in run("info", target).output.replace("\n", "")


def test_an_error_in_a_process(tmp_path):
    """A path in its message can be copied, however narrow the terminal is taken to be."""
    path = tmp_path / ("long name " * 12)
    done = run_process("info", path, COLUMNS="80")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == f"Error: There is no folder {path}."
