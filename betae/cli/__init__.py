"""The command line: one command is one library call, plus how its result is shown.

Nothing heavy is imported at the top of these modules: `betae --help` must answer at once.
"""

# Each module adds its commands, in the order in which `betae --help` lists them.
from betae.cli import graphs, questions, runs, rules  # noqa: F401, I001
from betae.cli.common import app, main

__all__ = ["app", "main"]
