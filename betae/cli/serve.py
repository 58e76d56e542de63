"""The server: serve."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from betae.cli.common import MovedGraph, app, err, existing_folder, say, warn
from betae.errors import InvalidArgument

NEEDED = ("fastapi", "uvicorn", "prometheus_client", "pebble")
LOCAL = ("127.0.0.1", "localhost", "::1")


@app.command(
    epilog="Examples:\n\n"
    "  betae serve run\n\n"
    "  betae serve graph --port 9000\n\n"
    "  BETAE_TOKEN=secret betae serve run --host 0.0.0.0"
)
def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, or of a graph, which is answered from by exact facts alone.",
            metavar="RUN|GRAPH",
            callback=existing_folder,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address or name to serve at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What clients must send as a bearer token.", envvar="BETAE_TOKEN"),
    ] = None,
    graph: MovedGraph = None,
) -> None:
    """Serve a run or a graph over HTTP: questions, SPARQL, and a page."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InvalidArgument(f"The server needs {', '.join(missing)}: pip install 'betae[serve]'.")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise InvalidArgument("The token must be printable ASCII characters.")
    from betae.server.serve import bind, open_source
    from betae.server.serve import serve as run_server

    with bind(host, port) as listening:
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listening.getsockname()[1]}"
        if host not in LOCAL and token is None:
            warn(f"anyone who can reach {host} can ask; --token keeps others out.")
        with err.status("Opening"):
            source = open_source(folder, graph)
        run_server(source, listening, host, token=token, ready=lambda: say(f"Serving at {url}"))
