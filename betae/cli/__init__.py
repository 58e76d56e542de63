"""The command line: one command is one library call, plus how its result is shown.

Nothing heavy is imported at the top of these modules: `betae --help` must answer at once.
"""

from betae.cli import (  # noqa: F401  # each adds its commands
    graphs,
    indexes,
    ingest,
    learning,
    query,
    questions,
    serve,
)
from betae.cli.common import app, main

__all__ = ["app", "main"]
