"""Guard: what every request passes before the app sees it, and every response on its way out.

The Host and the token are checked, the body is read, requests under way are counted and timed, and
whatever goes wrong becomes JSON that says nothing about this machine.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Collection
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from betae.server.limits import Limits
from betae.server.metrics import Metrics
from betae.server.refusals import Refused

log = logging.getLogger(__name__)

LOCAL = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
SURPRISE = (
    "The server has failed at this request. It is not your fault; the server's log says more."
)
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Middleware around the whole app; `public` are the paths that need no token."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        host: str,
        token: str | None,
        public: Collection[str],
    ):
        self.app, self.limits, self.metrics, self.host = app, limits, metrics, host
        self.token = None if token is None else token.encode()
        self.public = frozenset(public)
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            await _Request(self, scope, receive, send).serve()
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def check(self, path: str, headers: Headers) -> None:
        """Refuse a request for another host, or one without the token."""
        if not self._is_host_of_mine(headers.get("host", "")):
            raise Refused(
                421,
                "This server does not answer to the name in the Host header: start it with --host "
                "and that name.",
            )
        if self.token is not None and path not in self.public:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_token = hmac.compare_digest(given.strip().encode(), self.token)
            if scheme.lower() != "bearer" or not is_token:
                raise Refused(401, "This server wants its token: Authorization: Bearer TOKEN.")

    def _is_host_of_mine(self, header: str) -> bool:
        """Tell whether a name is mine: pages of others could lead theirs to this address."""
        name = header.rpartition(":")[0] if header.rpartition("]")[2].count(":") else header
        name = name.strip("[]").lower().rstrip(".")
        if name in (*LOCAL, self.host.lower()):
            return True
        if self.host not in EVERYWHERE:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # an address is nobody's name


class _Request:
    """One request: reads its body, waits for the app, and sends a response whatever happens."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send):
        if scope["method"] == "HEAD":  # as GET; the ASGI server leaves the body out
            scope = {**scope, "method": "GET"}
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.status = 0  # of the response; 0 before it begins
        self.is_sent = False  # to its end
        self.body: bytes | None = b""
        self.counts = False

    async def serve(self) -> None:
        limits, started = self.guard.limits, perf_counter()
        try:
            headers = Headers(scope=self.scope)
            self.guard.check(self.scope["path"], headers)
            self.body = await asyncio.wait_for(self._read(headers), limits.body_seconds)
            self._begin()
            async with asyncio.timeout(limits.seconds):
                await self._answer()
        except Refused as error:
            await self._respond(error)
        except TimeoutError:
            if self.counts or self.status:
                words = f"This took longer than {limits.seconds:g} seconds: ask for less."
                await self._respond(Refused(504, words))
            else:
                await self._respond(Refused(408, "The body of the request did not come in time."))
        except ConnectionError:
            pass  # the client has left
        except Exception:
            log.exception("%s %r", self.scope["method"], self.scope["path"])
            await self._respond(Refused(500, SURPRISE))
        finally:
            self._end()
            route = getattr(self.scope.get("route"), "path", "other")
            self.guard.metrics.request(route, self.status, perf_counter() - started)

    async def _answer(self) -> None:
        """Let the app answer; stop it if the client leaves before."""
        answering = asyncio.create_task(self._call_app())
        leaving = asyncio.create_task(self._wait_until_it_leaves())
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not self.is_sent:
                raise ConnectionError
            await answering
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _call_app(self) -> None:
        await self.guard.app(self.scope, self.receive, self.send)

    async def _wait_until_it_leaves(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _read(self, headers: Headers) -> bytes:
        """Return the whole body."""
        most = self.guard.limits.body_bytes
        too_large = Refused(413, f"The body is larger than {most:,} bytes.")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise too_large
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body += message.get("body", b"")
            if len(body) > most:
                raise too_large
            if not message.get("more_body", False):
                return bytes(body)

    async def receive(self) -> Message:
        """Give the app the body, and then whatever comes."""
        if self.body is None:
            return await self._receive()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Send what the app says, with the headers that every response has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY.items():
                headers.setdefault(name, value)
            self._end()  # a client that reads slowly does not hold up others
        elif not message.get("more_body", False):
            self.is_sent = True
        await self._send(message)

    async def _respond(self, error: Refused) -> None:
        if self.status:
            return  # too late to say anything else
        headers = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}
        response = JSONResponse(error.content, error.status, headers.get(error.status))
        await response(self.scope, self._receive, self.send)

    def _begin(self) -> None:
        if self.scope["path"] == "/healthz":
            return
        if self.guard.under_way >= self.guard.limits.requests:
            raise Refused(429, "Too many requests are under way: try again in a second.")
        self.guard.under_way += 1
        self.counts = True
        self.guard.metrics.under_way.inc()

    def _end(self) -> None:
        if self.counts:
            self.guard.under_way -= 1
            self.guard.metrics.under_way.dec()
        self.counts = False
