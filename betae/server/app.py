"""The app: every endpoint, each a call of the library."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from betae import __version__
from betae.answering.answerer import Asked
from betae.errors import UnresolvedName
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query as Tree
from betae.queries.names import resolve
from betae.queries.read import read_question
from betae.queries.structures import structure_of
from betae.queries.trees import to_tree
from betae.run import Run
from betae.server import browse
from betae.server.facts import Facts
from betae.server.guard import SURPRISE, Guard
from betae.server.limits import Limits
from betae.server.metrics import CONTENT_TYPE, Metrics
from betae.server.questions import Questions
from betae.server.refusals import OF_THE_QUESTION, Refused, refusal
from betae.server.requests import AnswerRequest, BatchRequest, QueryRequest, TreeRequest, Wanted
from betae.server.sparql import add_sparql

PAGE = FilePath(__file__).parent / "page"
NO_MODEL = (
    "This server has a graph and no model, so it predicts nothing: ask POST /query, which answers "
    "from the facts. For predictions start it with a run: betae serve RUN."
)
Search = Annotated[
    str, Query(description="Text in a name or label, in any case.", examples=["paris"])
]
Result = TypeVar("Result")


class Served:
    """What is served: a graph, and the run that was trained on it, if there is one."""

    def __init__(self, source: Run | KnowledgeGraph, limits: Limits):
        self.limits, self.metrics = limits, Metrics()
        self.run = source if isinstance(source, Run) else None
        self.graph = source.graph if isinstance(source, Run) else source
        self._questions: Questions | None = None
        self._facts: Facts | None = None

    def open(self) -> None:
        """Start the processes and the thread; load the run."""
        self._facts = Facts(self.graph, self.limits)
        if self.run is not None:
            observe = self.metrics.batches.observe
            self._questions = Questions(self.run, self.limits.at_once, observe)
            self._questions.call(self._questions.answerer).result()

    def close(self) -> None:
        """End them."""
        if self._questions is not None:
            self._questions.close()
        if self._facts is not None:
            self._facts.close()

    @property
    def facts(self) -> Facts:
        """The processes that find exact answers."""
        assert self._facts is not None
        return self._facts

    @property
    def questions(self) -> Questions:
        """The run, for questions; refused if there is none."""
        if self._questions is None:
            raise Refused(400, NO_MODEL)
        return self._questions

    @property
    def has_model(self) -> bool:
        """Whether there is a run."""
        return self.run is not None

    @cache  # noqa: B019  # one of these lives as long as the server
    def description(self) -> dict[str, Any]:
        """Return what `GET /model` says; with a run, for use in its thread."""
        return browse.describe(self.graph, self._questions, self.limits)

    def read(self, text: str) -> tuple[Tree, int | None]:
        """Read a question into a tree of ids that is not too large, and its LIMIT."""
        if len(text) > self.limits.question_characters:
            most = self.limits.question_characters
            raise Refused(400, f"The question has {len(text):,} characters; {most:,} are the most.")
        try:
            asked = read_question(text, self.graph.prefixes)
            tree = resolve(to_tree(asked), self.graph)
            structure_of(tree)  # raises if it has placeholders
            self.limits.check_tree(tree)
        except OF_THE_QUESTION as error:
            raise refusal(error) from None
        return tree, asked.limit

    def asked(self, text: str, wanted: Wanted) -> Asked:
        """Read a question to the run."""
        tree, limit = self.read(text)
        k = wanted.k if wanted.k is not None else limit
        if k is not None and k > self.limits.answers:
            raise Refused(400, f"k is {k:,}; {self.limits.answers:,} are the most.")
        return Asked(tree, k, wanted.only, wanted.threshold, wanted.explain)


def create_app(
    source: Run | KnowledgeGraph,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    limits: Limits | None = None,
) -> ASGIApp:
    """Return the app of a run or a graph, ready for any ASGI server.

    It answers to the names of localhost and to `host`.
    """
    served = Served(source, limits or Limits())

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
    )
    _add_questions(app, served)
    _add_names(app, served)
    _add_service(app, served)
    add_sparql(app, lambda: served.facts)
    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    _add_errors(app)
    files = (f"/{path.relative_to(PAGE).as_posix()}" for path in PAGE.rglob("*") if path.is_file())
    public = ["/", "/healthz", *files]
    return Guard(app, served.limits, served.metrics, host, token, public)


async def _in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    return await to_thread.run_sync(partial(function, *arguments), abandon_on_cancel=True)


def _add_questions(app: FastAPI, served: Served) -> None:
    async def ask(text: str, wanted: Wanted) -> dict[str, Any]:
        asked = await _in_thread(served.asked, text, wanted)
        try:
            future = served.questions.ask(asked, wanted.method, wanted.edges)
            return await asyncio.wrap_future(future)
        except OF_THE_QUESTION as error:
            raise refusal(error) from None

    @app.post("/answer", tags=["questions"])
    async def answer(body: AnswerRequest) -> JSONResponse:
        """Answer a question: ranked entities, known or predicted, how probable, and why."""
        served.questions  # noqa: B018  # refused before the question is read
        return JSONResponse(await ask(body.question, body))

    @app.post("/answer/batch", tags=["questions"])
    async def answer_batch(body: BatchRequest) -> JSONResponse:
        """Answer many questions; one that cannot be answered has an `error` instead."""
        served.questions  # noqa: B018
        most = served.limits.questions
        if len(body.questions) > most:
            raise Refused(400, f"{len(body.questions):,} questions; {most:,} are the most.")

        async def one(text: str) -> dict[str, Any]:
            try:
                return await ask(text, body)
            except Refused as error:
                return error.content

        results = await asyncio.gather(*map(one, body.questions))
        return JSONResponse({"results": results})

    @app.post("/query", tags=["questions"])
    async def query(body: QueryRequest) -> JSONResponse:
        """List the exact answers of a question of any shape, from the facts alone."""
        limits = served.limits
        if len(body.question) > limits.question_characters:
            raise Refused(400, f"{limits.question_characters:,} characters are the most.")
        if body.limit > limits.rows:
            raise Refused(400, f"limit is {body.limit:,}; {limits.rows:,} are the most.")
        return JSONResponse(await served.facts.query(body.question, body.edges, body.limit))

    @app.post("/tree", tags=["questions"])
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

    @app.get("/entities", tags=["graph"])
    async def entities(
        search: Search = "", limit: Annotated[int, Query(ge=1, le=rows)] = 20
    ) -> JSONResponse:
        """List entities, those with the most edges first, or search for some."""
        return JSONResponse(await _in_thread(browse.entities, graph, search, limit))

    @app.get("/relations", tags=["graph"])
    async def relations(
        search: Search = "", limit: Annotated[int, Query(ge=1, le=rows)] = 100
    ) -> JSONResponse:
        """List relations, the most frequent first, or search for some."""
        return JSONResponse(await _in_thread(browse.relations, graph, search, limit))

    @app.get("/entities/{name:path}/edges", tags=["graph"])
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
            work = its.call(lambda: browse.missing_edges_of(its, entity, missing))
            found["missing"] = await asyncio.wrap_future(work)
        return JSONResponse(found)


def _add_service(app: FastAPI, served: Served) -> None:
    @app.get("/model", tags=["service"])
    async def model() -> JSONResponse:
        """Describe the graph, the model and the limits."""
        if not served.has_model:
            return JSONResponse(await _in_thread(served.description))
        work = served.questions.call(served.description)
        return JSONResponse(await asyncio.wrap_future(work))

    @app.get("/healthz", tags=["service"])
    async def healthz() -> JSONResponse:
        """Say that the server is there; this needs no token."""
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", tags=["service"])
    async def metrics() -> Response:
        """Return the figures for Prometheus."""
        return Response(served.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(_request: Request, error: Refused) -> JSONResponse:
        return JSONResponse(error.content, error.status)

    @app.exception_handler(Exception)  # it is raised again, and the guard logs it
    async def surprise(_request: Request, _error: Exception) -> JSONResponse:
        return JSONResponse({"error": SURPRISE}, 500)

    @app.exception_handler(HTTPException)
    async def of_http(_request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": f"{error.detail}."}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [
            f"{'.'.join(map(str, fault['loc'][1:])) or 'body'}: {fault['msg']}"
            for fault in error.errors()[:5]
        ]
        return JSONResponse({"error": f"{'; '.join(faults)}."}, 422)
