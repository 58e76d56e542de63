"""The app, with an endpoint for each job of the library, and `run_server`, which runs it."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs

import uvicorn
from anyio import to_thread
from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from h11 import LocalProtocolError
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import Field
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from betae import __version__
from betae.errors import InvalidArgument, UnresolvedName
from betae.exact.predicted import MAX_ANSWERS
from betae.graph.describe import describe_graph
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query as Tree
from betae.server import browse, schemas
from betae.server.facts import RESULTS, TRIPLES, Facts
from betae.server.guard import INTERNAL_ERROR, Guard, Metrics
from betae.server.home import Home
from betae.server.limits import QUESTION_ERRORS, Json, Limits, Refused, check_limit, refusal

if TYPE_CHECKING:  # a graph is served without torch
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from betae.run import Run
    from betae.server.questions import Questions

NO_MODEL = (
    "Only a graph is served, without predictions: use POST /query for exact answers, or serve a "
    "run."
)
NO_RUN = "No run is loaded, only a graph."
LONGEST_FIELD = 60  # last characters of the path of a wrong field
PAGE_FOLDER = Path(__file__).parent / "page"
Text = Annotated[str, Field(max_length=1_000)]  # long ones are not compared with all names
SearchField = Annotated[
    Text, Query(description="Text in a name or label, in any case.", examples=["paris"])
]
EdgePart = Annotated[Text, Query(description="Name or label.", examples=["France"])]
NameField = Annotated[
    Text, PathParameter(description="Name, label, or %23 and id.", examples=["Paris"])
]
in_thread = partial(to_thread.run_sync, abandon_on_cancel=True)


class Anything(PathConvertor):
    """A part of a path with slashes and, unlike starlette's own, line breaks."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())


class Served:
    """A graph, the run that was trained on it, if any, and their workers."""

    facts: Facts  # the processes that find exact answers; from `open` on

    def __init__(self, source: "Run | KnowledgeGraph", limits: Limits | None = None):
        self.limits, self.metrics = limits or Limits(), Metrics()
        self.run = None if isinstance(source, KnowledgeGraph) else source
        self.graph = source if isinstance(source, KnowledgeGraph) else source.graph
        self.opening = ""  # what is being done before there are predictions
        self.why_no_predictions = NO_RUN  # if there are none
        self._questions: Questions | None = None

    def open(self) -> None:
        """Load the run and start the workers, unless that is done."""
        if hasattr(self, "facts"):
            return
        if self.run is not None:
            self.predict_by(self.run)
        self.facts = Facts(self.graph, self.limits)

    def predict_by(self, run: "Run") -> None:
        """Load a run of the graph, and answer by it from now on."""
        from betae.server.questions import Questions

        batch_size, observe = self.limits.questions_per_batch, self.metrics.batches.observe
        questions = Questions(run, batch_size, observe)
        questions.call(questions.answerer).result()
        self.run, self._questions = run, questions

    def close(self) -> None:
        """End the workers."""
        if self._questions is not None:
            self._questions.close()
        if hasattr(self, "facts"):
            self.facts.close()

    @property
    def questions(self) -> "Questions":
        """The thread of the models; raises Refused without a run."""
        if self._questions is None:
            raise Refused(400, NO_MODEL)
        return self._questions

    @cache  # noqa: B019  # one object per server
    def describe(self) -> dict[str, Any]:
        """Return the content of `GET /model`; with a run, for use in its thread."""
        return {
            "betae": __version__,
            "graph": {**asdict(describe_graph(self.graph)), "prefixes": dict(self.graph.prefixes)},
            "model": None if self._questions is None else self._questions.describe(),
            "limits": asdict(self.limits),
        }

    def text_or_tree(self, question: schemas.QuestionField) -> str | Tree:
        """Convert a question to what the library reads; raise if it is too large."""
        if isinstance(question, str):
            self.limits.check_text(question)
            return question
        tree = schemas.to_query(question)
        self.limits.check_tree(tree)
        return tree

    async def ask(
        self, question: schemas.QuestionField, options: schemas.AnswerOptions
    ) -> dict[str, Any]:
        """Answer a question by the run."""
        questions = self.questions  # raises without a run
        from betae.answering.answerer import QuestionRequest  # here, since it imports torch

        tree, limit, notes = await self.facts.read(self.text_or_tree(question))
        k = options.k if options.k is not None else limit
        if k is not None:
            check_limit(f"k is {k:,}", k, self.limits.answers)
        chosen = k, options.only, options.threshold, options.explain
        asked = QuestionRequest(tree, *chosen, notes)
        return await asyncio.wrap_future(questions.ask(asked, options.method, options.edges))

    async def predicted(self, query: str, accepted: Sequence[str]) -> tuple[bytes, str]:
        """Answer SPARQL with ?probability and ?status by the run; return the media type too."""
        questions = self.questions  # raises without a run
        from betae.answering.answerer import QuestionRequest

        tree, variable = await self.facts.read_predicted(query)
        asked = QuestionRequest(tree, MAX_ANSWERS)
        found = await asyncio.wrap_future(questions.ask(asked, "completed", "all"))
        rows = [(each["entity"], each["probability"], each["status"]) for each in found["answers"]]
        return await self.facts.finish(query, variable, rows, accepted)


def create_app(
    source: "Run | KnowledgeGraph",
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    limits: Limits | None = None,
) -> ASGIApp:
    """Build the ASGI app of a run or a graph.

    It accepts requests to localhost and to `host`, with `token` only those that carry it.
    """
    return app_of(Served(source, limits), host, token)


def app_of(
    served: Served, host: str, token: str | None, ready: Callable[[], None] = lambda: None
) -> ASGIApp:
    """Build the app; at startup, what it serves is opened, if not before, and `ready` called."""

    agents = _mcp_manager(served)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await to_thread.run_sync(served.open)
        async with agents.run() if agents else nullcontext():
            ready()
            yield
        await to_thread.run_sync(served.close)

    app = FastAPI(
        title="betae",
        version=__version__,
        description="Answers from a knowledge graph: known facts and predictions.",
        docs_url=None,  # it loads scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
        responses={"default": {"model": schemas.ErrorResponse, "description": "Error"}},
    )
    _add_questions(app, served)
    _add_home(app, served)
    _add_names(app, served)
    _add_service(app, served)
    _add_sparql(app, served)
    page = _add_page(app)
    if agents:
        app.router.routes.append(Route("/mcp", agents.asgi_app, methods=["POST"]))
    _add_errors(app)
    return Guard(app, served.limits, served.metrics, host, token, public=["/healthz", *page])


def _mcp_manager(served: Served) -> "StreamableHTTPSessionManager | None":
    """Return the server of the Model Context Protocol, if its SDK is installed."""
    if find_spec("mcp") is None:
        return None
    from betae.server.mcp import http_manager

    return http_manager(served)


def _add_questions(app: FastAPI, served: Served) -> None:
    @app.post("/answer", tags=["questions"], response_model=schemas.AnswerResponse)
    async def answer(body: schemas.AnswerBody) -> Json:
        """Answer a question: ranked entities, known or predicted, how probable, and why."""
        return Json(await served.ask(body.question, body))

    @app.post("/answer/batch", tags=["questions"], response_model=schemas.BatchResponse)
    async def answer_batch(body: schemas.BatchBody) -> Json:
        """Answer many questions; one that fails has an `error` instead."""
        served.questions  # noqa: B018  # raises without a run
        number = len(body.questions)
        check_limit(f"{number:,} questions", number, served.limits.questions)

        async def one(question: schemas.QuestionField) -> dict[str, Any]:
            try:
                return await served.ask(question, body)
            except (Refused, *QUESTION_ERRORS) as error:
                return refusal(error).content

        return Json({"results": await asyncio.gather(*map(one, body.questions))})

    @app.post("/query", tags=["questions"], response_model=schemas.QueryResponse)
    async def query(body: schemas.QueryBody) -> Json:
        """List the exact answers of a question of any shape, from the facts alone."""
        check_limit(f"{body.limit:,} rows", body.limit, served.limits.rows)
        question = served.text_or_tree(body.question)
        return Json(await served.facts.query(question, body.edges, body.limit))

    @app.post("/tree", tags=["questions"], response_model=schemas.TreeResponse)
    async def tree(body: schemas.TreeBody) -> Json:
        """Return the computation tree of a question, with the exact answers of each node."""
        query, *_ = await served.facts.read(served.text_or_tree(body.question))
        described = await served.facts.tree(query, body.edges)
        if served.run is not None and served.run.has_model:
            its = served.questions
            work = its.call(lambda: browse.add_embeddings(described, query, its.model, body.dims))
            await asyncio.wrap_future(work)
        return Json(described)


def _add_home(app: FastAPI, served: Served) -> None:
    home = Home(served)

    @app.get("/home", tags=["page"], response_model=schemas.HomeResponse)
    async def described() -> Json:
        """Describe the graph: figures, classes, relations with examples."""
        return Json(await in_thread(lambda: home.described))

    @app.get("/examples", tags=["page"], response_model=list[schemas.ExampleQuestion])
    async def examples() -> Json:
        """Return up to five questions of different kinds that have good answers."""
        return Json(await home.examples())

    @app.post("/read", tags=["page"], response_model=schemas.ReadResponse)
    async def read(body: schemas.ReadBody) -> Json:
        """Say a question in every notation; make one from the names in an English text."""
        return Json(await home.read(body.question))

    @app.post("/steps", tags=["page"], response_model=schemas.StepsResponse)
    async def steps(body: schemas.ReadBody) -> Json:
        """Tell what can be asked next about the exact answers of a question."""
        query, *_ = await served.facts.read(served.text_or_tree(body.question))
        return Json(await served.facts.steps(query))


def _add_names(app: FastAPI, served: Served) -> None:
    graph, rows = served.graph, served.limits.rows

    @app.get("/entities", tags=["graph"], response_model=schemas.EntitiesResponse)
    async def entities(
        search: SearchField = "", limit: Annotated[int, Query(ge=1, le=rows)] = 20
    ) -> Json:
        """List entities, those with the most edges first, or search for some."""
        return Json(await in_thread(browse.find_entities, graph, search, limit))

    @app.get("/why", tags=["questions"], response_model=schemas.EvidenceResponse)
    async def why(
        head: EdgePart, tail: EdgePart, relation: Annotated[Text, Query(examples=["capital"])]
    ) -> Json:
        """Tell what speaks for an edge, known or not: its parts add up to the log-odds."""
        its = served.questions
        found = await asyncio.wrap_future(its.call(lambda: its.why(head, relation, tail)))
        return Json(found.to_json())

    @app.get("/relations", tags=["graph"], response_model=schemas.RelationsResponse)
    async def relations(
        search: SearchField = "", limit: Annotated[int, Query(ge=1, le=rows)] = 100
    ) -> Json:
        """List relations, the most frequent first, or search for some."""
        return Json(await in_thread(browse.find_relations, graph, search, limit))

    @app.get(
        "/entities/{name:anything}/edges", tags=["graph"], response_model=schemas.EdgesResponse
    )
    async def edges(
        name: NameField,
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=rows)] = 100,
        missing: Annotated[
            int, Query(ge=0, le=100, description="Number of missing edges; needs a run.")
        ] = 0,
    ) -> Json:
        """List the known edges of an entity, page by page, and the most probable missing ones."""
        try:
            entity = await in_thread(browse.find_entity, graph, name)
        except UnresolvedName as error:
            raise refusal(error, 404) from None
        found = await in_thread(browse.edges_of, graph, entity, offset, limit)
        if missing:
            its = served.questions
            work = its.call(lambda: its.missing_edges_of(entity, missing))
            found["missing"] = await asyncio.wrap_future(work)
        return Json(found)


def _add_service(app: FastAPI, served: Served) -> None:
    @app.get("/model", tags=["service"], response_model=schemas.ModelResponse)
    async def model() -> Json:
        """Describe the graph, the model and the limits."""
        if served.run is None:
            return Json(await in_thread(served.describe))
        work = served.questions.call(served.describe)
        return Json(await asyncio.wrap_future(work))

    @app.get("/healthz", tags=["service"], response_model=dict[str, str])
    async def healthz() -> Json:
        """Check that the server is up; needs no token."""
        return Json({"status": "ok"})

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        content = generate_latest(served.metrics.registry)
        return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})


def _add_page(app: FastAPI) -> list[str]:
    """Add the files of the page; return their addresses."""
    files = StaticFiles(directory=PAGE_FOLDER, html=True)
    addresses = ["/", *(f"/{path.name}" for path in PAGE_FOLDER.iterdir())]
    # A route for each: mounted at /, they would answer other methods of the app's own paths.
    app.router.routes += [Route(address, files, methods=["GET"]) for address in addresses]
    return addresses


def _add_errors(app: FastAPI) -> None:
    for kind in (Refused, *QUESTION_ERRORS):

        @app.exception_handler(kind)
        async def refused(_request: Request, error: Exception) -> Json:
            answer = refusal(error)
            return Json(answer.content, answer.status)

    @app.exception_handler(Exception)  # starlette raises it again; the guard logs it
    async def failed(_request: Request, _error: Exception) -> Json:
        return Json({"error": INTERNAL_ERROR}, 500)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Json:
        headers = dict(error.headers or {})
        if error.status_code == 405:  # starlette lists the methods of the first route only
            routes = [each for each in app.routes if each.matches(request.scope)[0] != Match.NONE]
            methods = {method for route in routes for method in getattr(route, "methods", ())}
            if "GET" in methods:
                methods.add("HEAD")
            headers["Allow"] = ", ".join(sorted(methods))
        return Json({"error": f"{error.detail}."}, error.status_code, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Json:
        faults = [
            f"{'.'.join(map(str, fault['loc'][1:]))[-LONGEST_FIELD:] or 'body'}: {fault['msg']}"
            for fault in error.errors()[:5]
        ]
        return Json({"error": f"{'; '.join(faults)}."}, 422)


# ---- SPARQL 1.1 Protocol: a query by GET, as a form, or as the body -----------------------------

FORM, DIRECT = "application/x-www-form-urlencoded", "application/sparql-query"
MAX_RANGES = 100  # of Accept
ACCEPT_WEIGHT = re.compile(r";\s*q=(\d\.?\d*|)")  # of a range
EXAMPLE_SPARQL = "SELECT ?city { betae:France betae:capital ?city }"
ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in (*RESULTS, *TRIPLES)}, "description": "The result"}
}
TEXT = {"schema": {"type": "string"}, "example": EXAMPLE_SPARQL}
FIELDS = {
    "schema": {"type": "object", "properties": {"query": TEXT["schema"]}, "required": ["query"]},
    "example": {"query": EXAMPLE_SPARQL},
}
PREDICTED = {
    "name": "predicted",
    "in": "query",
    "description": "Answer from the completed graph, with ?probability and ?status.",
    "schema": {"type": "boolean", "default": False},
}
GIVEN = {"parameters": [{"name": "query", "in": "query", "required": True, **TEXT}, PREDICTED]}
POSTED = {
    "parameters": [PREDICTED],
    "requestBody": {"required": True, "content": {DIRECT: TEXT, FORM: FIELDS}},
}


def _add_sparql(app: FastAPI, served: Served) -> None:
    async def answer(request: Request, given: str, query: str | None = None) -> Response:
        """Answer the query, or else the one in `given`, the encoded parameters."""
        try:
            parameters = parse_qs(given, keep_blank_values=True, max_num_fields=100)
        except ValueError as error:
            raise Refused(400, f"Invalid parameters: {error}.") from None
        for name in ("default-graph-uri", "named-graph-uri"):
            if name in parameters:
                raise Refused(400, f"There is only one graph: leave out {name}.")
        if query is None:
            if "update" in parameters:
                raise Refused(403, "This endpoint is read-only.")
            if len(parameters.get("query", ())) != 1:
                raise Refused(400, "Give one query: /sparql?query=SELECT...")
            query = parameters["query"][0]
        accepted = _accepted(request.headers.get("accept", ""))
        is_predicted = parameters.get("predicted", ["false"])
        if is_predicted not in (["true"], ["false"]):
            raise Refused(400, "predicted is true or false.")
        answered = served.predicted if is_predicted == ["true"] else served.facts.sparql
        content, media_type = await answered(query, accepted)
        return Response(content, headers={"content-type": media_type})

    @app.get("/sparql", tags=["SPARQL"], responses=ANSWERED, openapi_extra=GIVEN)
    async def by_parameter(request: Request) -> Response:
        """Answer the SPARQL in `query`: as JSON, XML, CSV or TSV, or as triples."""
        return await answer(request, request.url.query)

    @app.post("/sparql", tags=["SPARQL"], responses=ANSWERED, openapi_extra=POSTED)
    async def by_body(request: Request) -> Response:
        """Answer SPARQL given as a form or as the body."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            text = (await request.body()).decode()
        except UnicodeDecodeError:
            raise Refused(400, "The body is not UTF-8.") from None
        if kind == DIRECT:
            return await answer(request, request.url.query, text)
        if kind == FORM:
            return await answer(request, text)
        if kind == "application/sparql-update":
            raise Refused(403, "This endpoint is read-only.")
        raise Refused(415, f"Send the query as {DIRECT} or {FORM}.")


def _accepted(accept: str) -> list[str]:
    """Return the media types that the client prefers and this endpoint has, the best first."""

    def weight(given: str) -> float:
        found = ACCEPT_WEIGHT.search(given)
        return float(found[1] or 0) if found else 1.0

    ranges = sorted(accept.split(",")[:MAX_RANGES], key=weight, reverse=True)
    preferred = (given.partition(";")[0].strip().lower() for given in ranges)
    return [kind for kind in preferred if kind in RESULTS or kind in TRIPLES]


# ---- serving ------------------------------------------------------------------------------------

BACKLOG = 2048
UNREAD_MILLISECONDS = 60_000
RECEIVE_BYTES = 4096


def bind(host: str, port: int) -> socket.socket:
    """Listen at a port, before anything is loaded; port 0 is any free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        # Not `socket.create_server`, which names no protocol: asyncio then delays small
        # packets by 40 ms.
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(AttributeError):  # Linux: drop clients that never read a response
                listening.setsockopt(protocol, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        return listening
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"Could not listen at {host}, port {port}: {reason}.") from error


def run_server(
    source: "Run | KnowledgeGraph",
    listening: socket.socket,
    host: str,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests in progress are still answered."""
    with suppress(ImportError, ValueError, OSError):  # a connection is an open file
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    served = Served(source, limits)
    served.open()  # here, since uvicorn would show its errors as a traceback
    config = uvicorn.Config(
        app_of(served, host, token, ready),
        http=patient(served.limits.body_seconds),
        lifespan="on",
        log_level="critical",  # not every malformed request
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(served.limits.seconds + served.limits.body_seconds),
    )
    uvicorn.Server(config).run(sockets=[listening])


def patient(seconds: float) -> type[H11Protocol]:
    """Return a protocol that closes connections without a request for this time."""

    class Patient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            # Thousands of tiny chunks in one read would block the event loop.
            transport.max_size = RECEIVE_BYTES
            super().connection_made(transport)
            self._close_later()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._close_later()

        def send_400_response(self, msg: str) -> None:
            try:
                super().send_400_response(msg)
            except LocalProtocolError:  # to HEAD, or after the response has begun
                self.transport.close()

        def _close_later(self) -> None:
            asyncio.get_running_loop().call_later(seconds, self._close_if_idle, self.cycle)

        def _close_if_idle(self, cycle: Any) -> None:
            if self.cycle is cycle and (cycle is None or cycle.response_complete):
                self.transport.close()

    return Patient
