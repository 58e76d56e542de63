"""Install the wheel in dist/ into an empty environment, and use it as a stranger would.

    python -m build && python scripts/check_release.py
    python scripts/check_release.py --python python3.12 --python python3.13

For each Python it prints what was installed, the megabytes, and the seconds of each step.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FACTS = "Ada\tworks_at\tAcme\nAcme\tbased_in\tParis\n"
QUESTION = "?X . exists ?C : works_at(Ada, ?C) & based_in(?C, ?X)"


def run(*command: str, folder: Path) -> str:
    """Run a command and return its output; say how many seconds it took."""
    began = time.perf_counter()
    # Nothing of this folder or of another environment may be imported.
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    name = Path(command[0]).name
    if done.returncode:
        sys.exit(f"{name} {' '.join(command[1:])}\n{done.stdout}\n{done.stderr}")
    print(f"  {time.perf_counter() - began:6.1f} s  {name} {' '.join(command[1:3])}", flush=True)
    return done.stdout


def installed_bytes(folder: Path) -> int:
    """Add up the sizes of the files of an environment."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def check(wheel: Path, python: str, folder: Path) -> None:
    """Install a wheel with one Python; ask for help, run the demo, and ask a question."""
    run(python, "-m", "venv", "env", folder=folder)
    bin = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    betae, pip = str(bin / "betae"), str(bin / "pip")
    before = installed_bytes(folder / "env")
    run(pip, "install", str(wheel), folder=folder)
    size = installed_bytes(folder / "env") - before
    packages = run(pip, "list", "--format", "freeze", folder=folder).split()
    run(betae, "--help", folder=folder)
    version = run(betae, "--version", folder=folder).split()[1]
    expected = wheel.name.split("-")[1]
    if version != expected:
        sys.exit(f"betae --version says {version}, the wheel is {expected}.")

    (folder / "facts.tsv").write_text(FACTS, encoding="utf-8")
    run(betae, "ingest", "facts.tsv", "--out", "graph", folder=folder)
    answer = run(betae, "query", "graph", QUESTION, folder=folder)
    if "Paris" not in answer:
        sys.exit(f"Paris is not among the answers:\n{answer}")
    demo = run(betae, "demo", "--out", "demo", folder=folder)
    if "predicted" not in demo:
        sys.exit(f"betae demo predicts nothing:\n{demo}")
    run(betae, "answer", "demo/run", "?X . capital(France, ?X)", folder=folder)
    print(f"  {len(packages)} packages, {size / 1e6:,.0f} MB: {', '.join(packages)}")


def main() -> None:
    """Check the wheel with each Python."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", help="one or more [this one]")
    pythons = parser.parse_args().python or [sys.executable]
    wheels = sorted((ROOT / "dist").glob("betae-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"dist/ has {len(wheels)} wheels; one is needed: python -m build")
    print(f"{wheels[0].name}: {wheels[0].stat().st_size / 1e3:,.0f} kB")
    for python in pythons:
        print(python)
        with tempfile.TemporaryDirectory() as folder:
            check(wheels[0], python, Path(folder))


if __name__ == "__main__":
    main()
