"""The app: every endpoint, each a call of the library."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

from betae import __version__
from betae.errors import UnresolvedName
from betae.graph.graph import KnowledgeGraph
from betae.server import browse, responses
from betae.server.guard import SURPRISE, Guard
from betae.server.limits import Limits
from betae.server.metrics import CONTENT_TYPE
from betae.server.refusals import OF_THE_QUESTION, Refused, refusal
from betae.server.requests import (
    AnswerRequest,
    BatchRequest,
    QueryRequest,
    Question,
    TreeRequest,
    Wanted,
)
from betae.server.served import Served
from betae.server.sparql import add_sparql

if TYPE_CHECKING:
    from betae.run import Run

PAGE = FilePath(__file__).parent / "page"
Search = Annotated[
    str, Query(description="Text in a name or label, in any case.", examples=["paris"])
]
Result = TypeVar("Result")
LONGEST_PLACE = 60  # characters of where in a body something is wrong


def create_app(
    source: "Run | KnowledgeGraph",
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    limits: Limits | None = None,
) -> ASGIApp:
    """Return the app of a run or a graph, ready for any ASGI server.

    It answers to the names of localhost and to `host`.
    """
    return app_of(Served(source, limits or Limits()), host=host, token=token)


def app_of(served: Served, *, host: str, token: str | None) -> ASGIApp:
    """Return the app of what is served; it is opened when the app starts, if not before."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await to_thread.run_sync(served.open)
        yield
        await to_thread.run_sync(served.close)

    app = FastAPI(
        title="betae",
        version=__version__,
        description="Questions to a knowledge graph, from its facts and from those it lacks.",
        docs_url=None,  # it loads scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
        responses={"default": {"model": responses.Problem, "description": "What is wrong"}},
    )
    _add_questions(app, served)
    _add_names(app, served)
    _add_service(app, served)
    add_sparql(app, lambda: served.facts)
    page = _add_page(app)
    _add_errors(app)
    return Guard(app, served.limits, served.metrics, host, token, public=["/healthz", *page])


def _returns(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}}


async def _in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    return await to_thread.run_sync(partial(function, *arguments), abandon_on_cancel=True)


def _add_questions(app: FastAPI, served: Served) -> None:
    async def ask(question: Question, wanted: Wanted) -> dict[str, Any]:
        asked = await _in_thread(served.asked, question, wanted)
        try:
            future = served.questions.ask(asked, wanted.method, wanted.edges)
            return await asyncio.wrap_future(future)
        except OF_THE_QUESTION as error:
            raise refusal(error) from None

    @app.post("/answer", tags=["questions"], responses=_returns(responses.Answers))
    async def answer(body: AnswerRequest) -> JSONResponse:
        """Answer a question: ranked entities, known or predicted, how probable, and why."""
        served.questions  # noqa: B018  # refused before the question is read
        return JSONResponse(await ask(body.question, body))

    @app.post("/answer/batch", tags=["questions"], responses=_returns(responses.Results))
    async def answer_batch(body: BatchRequest) -> JSONResponse:
        """Answer many questions; one that cannot be answered has an `error` instead."""
        served.questions  # noqa: B018
        most = served.limits.questions
        if len(body.questions) > most:
            raise Refused(400, f"{len(body.questions):,} questions; {most:,} are the most.")

        async def one(question: Question) -> dict[str, Any]:
            try:
                return await ask(question, body)
            except Refused as error:
                return error.content

        results = await asyncio.gather(*map(one, body.questions))
        return JSONResponse({"results": results})

    @app.post("/query", tags=["questions"], responses=_returns(responses.Rows))
    async def query(body: QueryRequest) -> JSONResponse:
        """List the exact answers of a question of any shape, from the facts alone."""
        question, most = served.text_or_tree(body.question), served.limits.rows
        if body.limit > most:
            raise Refused(400, f"limit is {body.limit:,}; {most:,} are the most.")
        return JSONResponse(await served.facts.query(question, body.edges, body.limit))

    @app.post("/tree", tags=["questions"], responses=_returns(responses.ComputationTree))
    async def tree(body: TreeRequest) -> JSONResponse:
        """Return the computation tree of a question, with the exact answers of each node."""
        from betae.server.tree import describe_tree

        parsed, _ = await _in_thread(served.read, body.question)
        arguments = served.graph, parsed, body.edges
        if not served.has_model:
            return JSONResponse(await _in_thread(describe_tree, *arguments, None, 0))
        its = served.questions
        work = its.call(lambda: describe_tree(*arguments, its.model, body.dims))
        return JSONResponse(await asyncio.wrap_future(work))


def _add_names(app: FastAPI, served: Served) -> None:
    graph, rows = served.graph, served.limits.rows

    @app.get("/entities", tags=["graph"], responses=_returns(responses.Entities))
    async def entities(
        search: Search = "", limit: Annotated[int, Query(ge=1, le=rows)] = 20
    ) -> JSONResponse:
        """List entities, those with the most edges first, or search for some."""
        return JSONResponse(await _in_thread(browse.entities, graph, search, limit))

    @app.get("/relations", tags=["graph"], responses=_returns(responses.Relations))
    async def relations(
        search: Search = "", limit: Annotated[int, Query(ge=1, le=rows)] = 100
    ) -> JSONResponse:
        """List relations, the most frequent first, or search for some."""
        return JSONResponse(await _in_thread(browse.relations, graph, search, limit))

    @app.get(
        "/entities/{name:path}/edges",
        tags=["graph"],
        responses=_returns(responses.EdgesOfEntity),
    )
    async def edges(
        name: Annotated[str, Path(description="Name, label, or %23 and id.", examples=["Paris"])],
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=rows)] = 100,
        missing: Annotated[
            int, Query(ge=0, le=100, description="How many missing edges; a run is needed.")
        ] = 0,
    ) -> JSONResponse:
        """List the known edges of an entity, page by page, and the most probable missing ones."""
        try:
            entity = await _in_thread(browse.find_entity, graph, name)
        except UnresolvedName as error:
            raise refusal(error, 404) from None
        found = browse.edges_of(graph, entity, offset, limit)
        if missing:
            its = served.questions
            from betae.server.models import missing_edges_of

            work = its.call(lambda: missing_edges_of(its, entity, missing))
            found["missing"] = await asyncio.wrap_future(work)
        return JSONResponse(found)


def _add_service(app: FastAPI, served: Served) -> None:
    @app.get("/model", tags=["service"], responses=_returns(responses.Description))
    async def model() -> JSONResponse:
        """Describe the graph, the model and the limits."""
        if not served.has_model:
            return JSONResponse(await _in_thread(served.description))
        work = served.questions.call(served.description)
        return JSONResponse(await asyncio.wrap_future(work))

    @app.get("/healthz", tags=["service"], responses=_returns(responses.Health))
    async def healthz() -> JSONResponse:
        """Say that the server is there; this needs no token."""
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return the figures for Prometheus."""
        return Response(served.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _add_page(app: FastAPI) -> list[str]:
    """Add the files of the page, and return their addresses."""
    files = StaticFiles(directory=PAGE, html=True)
    addresses = ["/", *(f"/{path.name}" for path in PAGE.iterdir())]
    # A route for each: mounted at /, it would answer for other methods of the app's own paths.
    app.router.routes += [Route(address, files, methods=["GET"]) for address in addresses]
    return addresses


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(_request: Request, error: Refused) -> JSONResponse:
        return JSONResponse(error.content, error.status)

    @app.exception_handler(Exception)  # it is raised again, and the guard logs it
    async def surprise(_request: Request, _error: Exception) -> JSONResponse:
        return JSONResponse({"error": SURPRISE}, 500)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_methods_of(app, request.scope))
        return JSONResponse({"error": f"{error.detail}."}, error.status_code, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [
            f"{shortened('.'.join(map(str, fault['loc'][1:]))) or 'body'}: {fault['msg']}"
            for fault in error.errors()[:5]
        ]
        return JSONResponse({"error": f"{'; '.join(faults)}."}, 422)

    def shortened(place: str) -> str:
        return place if len(place) <= LONGEST_PLACE else f"...{place[-LONGEST_PLACE:]}"


def _methods_of(app: FastAPI, scope: Scope) -> list[str]:
    """Return the methods of a path, of all routes that have it."""
    routes = [route for route in app.routes if route.matches(scope)[0] != Match.NONE]
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))
