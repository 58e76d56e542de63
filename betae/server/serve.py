"""Serving for real: a socket, uvicorn, and an orderly end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from h11 import LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.server.app import app_of
from betae.server.limits import Limits
from betae.server.served import Served

if TYPE_CHECKING:
    from betae.run import Run

BACKLOG = 2048


def open_source(folder: Path, graph: Path | None = None) -> Run | KnowledgeGraph:
    """Open a run, or else a graph."""
    if (folder / "manifest.json").is_file():
        return KnowledgeGraph.open(folder)
    from betae.run import Run

    return Run.open(folder, graph)


def bind(host: str, port: int) -> socket.socket:
    """Take the port, before anything is loaded; port 0 is any that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        # Not `socket.create_server`, which names no protocol: asyncio then leaves small packets
        # waiting for 40 ms.
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        return listening
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"{host}, port {port} cannot be served: {reason}.") from error


def serve(
    source: Run | KnowledgeGraph,
    listening: socket.socket,
    host: str,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM comes; requests under way then are still answered."""
    limits = limits or Limits()
    _allow_many_files()
    served = Served(source, limits)
    served.open()  # raises what is wrong with a run, which uvicorn would show as a traceback
    config = uvicorn.Config(
        app_of(served, host=host, token=token),
        http=patient(limits.body_seconds),
        lifespan="on",
        log_level="error",  # not every request that is no HTTP
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(limits.seconds + limits.body_seconds),
    )
    _Server(config, ready).run(sockets=[listening])


def patient(seconds: float) -> type[H11Protocol]:
    """Return connections that are closed if nothing is asked for in this time."""

    class Patient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_later(seconds, self._close_if_nothing_came)

        def send_400_response(self, msg: str) -> None:
            try:
                super().send_400_response(msg)
            except LocalProtocolError:  # HEAD takes no body, and a response may have begun
                self.transport.close()

        def _close_if_nothing_came(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.close()

    return Patient


class _Server(uvicorn.Server):
    """Tells when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _allow_many_files() -> None:
    """Allow as many connections as the system lets this process have."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
