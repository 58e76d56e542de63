"""Middleware around the whole app: Host, token, body, limits, time, security headers, metrics.

Whatever goes wrong becomes JSON that reveals nothing about this machine.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Collection
from time import perf_counter
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from betae.server.limits import Json, Limits, Refused

log = logging.getLogger(__name__)

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::", "")
INTERNAL_ERROR = "Internal error; see the server log."
SMALL_BYTES = 2**10  # responses up to this size, /healthz and errors among them, are always sent
CHUNK_BYTES = 2**16  # of a response: the next is sent when the client has read
SECURITY_HEADERS = {
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


class Metrics:
    """Prometheus metrics of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "betae_requests", "Requests by path and status", ("path", "status"), registry=registry
        )
        self.seconds = Histogram(
            "betae_request_seconds", "Time to answer", ("path",), registry=registry
        )
        self.under_way = Gauge(
            "betae_requests_under_way", "Requests being answered", registry=registry
        )
        self.batches = Histogram(
            "betae_questions_at_once",
            "Questions answered together",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )


class Guard:
    """The middleware; `public` are the paths that need no token."""

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
        self.token, self.public = token, frozenset(public)
        self.num_requests = 0  # in progress
        self.sending_bytes = 0  # of responses in progress
        metrics.under_way.set_function(lambda: self.num_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            await _Request(self, scope, receive, send).serve()
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def check(self, path: str, headers: Headers) -> None:
        """Refuse a request for another host, from another site, or without the token."""
        if not self._is_own_host(headers.get("host", "")):
            raise Refused(
                421, "Unknown name in the Host header: to serve under this name, use --host."
            )
        origin = headers.get("origin")  # browsers send it with what scripts request
        if origin is not None and not self._is_own_host(urlsplit(origin).netloc):
            raise Refused(403, "Scripts of other web sites may not use this server.")
        if self.token is not None and path not in self.public:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_token = hmac.compare_digest(given.strip().encode(), self.token.encode())
            if scheme.lower() != "bearer" or not is_token:
                raise Refused(
                    401, "Missing or invalid bearer token. Send Authorization: Bearer TOKEN."
                )

    def _is_own_host(self, header: str) -> bool:
        """Check the Host header, against DNS rebinding.

        Starlette's TrustedHostMiddleware cannot allow any IP address, which --host 0.0.0.0 needs:
        an address, unlike a name, cannot be made to point here by another site.
        """
        try:
            name = (urlsplit(f"//{header}").hostname or "").rstrip(".")
            if name in (*LOCAL_NAMES, self.host.lower()):
                return bool(name)
            return self.host in ANY_ADDRESS and bool(ipaddress.ip_address(name))
        except ValueError:
            return False


class _Request:
    """One request: read its body, call the app, and send one response whatever happens."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send):
        if scope["method"] == "HEAD":  # as GET; the ASGI server drops the body
            scope = {**scope, "method": "GET"}
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.body: bytes | None = None  # until the app has received it
        self.status = 0  # of the response; 0 before it begins
        self.length = 0  # of the response
        self.is_sent = False  # the response is complete
        self.is_counted = False  # in `num_requests`

    async def serve(self) -> None:
        limits, started = self.guard.limits, perf_counter()
        try:
            headers = Headers(scope=self.scope)
            self.guard.check(self.scope["path"], headers)
            try:
                self.body = await asyncio.wait_for(self._read(headers), limits.body_seconds)
            except TimeoutError:
                raise Refused(408, "Timeout while reading the request body.") from None
            self._begin()
            async with asyncio.timeout(limits.seconds):
                await self._answer()
        except Refused as error:
            await self._respond(error)
        except TimeoutError:
            words = f"Timeout after {limits.seconds:g} seconds: ask for less."
            await self._respond(Refused(504, words))
        except ConnectionError:
            pass  # the client has left
        except Exception:
            log.exception("%s %r", self.scope["method"], self.scope["path"])
            await self._respond(Refused(500, INTERNAL_ERROR))
        finally:
            self._end()
            self.guard.sending_bytes -= self.length
            route = getattr(self.scope.get("route"), "path", "other")
            self.guard.metrics.requests.labels(route, str(self.status)).inc()
            self.guard.metrics.seconds.labels(route).observe(perf_counter() - started)

    async def _answer(self) -> None:
        """Call the app; stop it if the client leaves before."""
        answering = asyncio.ensure_future(self.guard.app(self.scope, self.receive, self.send))
        leaving = asyncio.create_task(self._wait_for_disconnect())
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not self.is_sent:
                raise ConnectionError
            await answering
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _wait_for_disconnect(self) -> None:
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
        """Give the app the body, then what the client sends."""
        if self.body is None:
            return await self._receive()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Send a message of the app, with the headers that every response has."""
        if self.is_sent:
            return  # an error has replaced the response of the app
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            length = int(headers.get("content-length", "0"))
            is_full = self.guard.sending_bytes + length > self.guard.limits.sending_bytes
            if is_full and length > SMALL_BYTES:
                await self._respond(Refused(429, "Too many large responses: try again later."))
                return
            self.length = length
            self.guard.sending_bytes += length
            self.status = message["status"]
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            self._end()  # clients that read slowly do not hold up others
            await self._send(message)
            return
        # In chunks: the server would otherwise copy the whole body for a client that reads none.
        body, has_more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, max(len(body), 1), CHUNK_BYTES):
            is_last = start + CHUNK_BYTES >= len(body)
            self.is_sent = is_last and not has_more
            part = body[start : start + CHUNK_BYTES]
            await self._send({**message, "body": part, "more_body": not self.is_sent})

    async def _respond(self, error: Refused) -> None:
        if self.status:
            return  # the response has begun
        headers = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}
        response = Json(error.content, error.status, headers.get(error.status))
        await response(self.scope, self._receive, self.send)

    def _begin(self) -> None:
        if self.scope["path"] == "/healthz":
            return
        if self.guard.num_requests >= self.guard.limits.requests:
            raise Refused(429, "Too many requests: try again in a second.")
        self.guard.num_requests += 1
        self.is_counted = True

    def _end(self) -> None:
        self.guard.num_requests -= self.is_counted
        self.is_counted = False
