"""SPARQL 1.1 Protocol: queries over the facts, by GET, by form and as the body itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response

from betae.server.facts import RESULTS, Facts
from betae.server.refusals import Refused

FORM, DIRECT = "application/x-www-form-urlencoded", "application/sparql-query"
EXAMPLE = "SELECT ?city { betae:France betae:capital ?city }"
ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in RESULTS}, "description": "The result"}
}
GIVEN = {
    "parameters": [
        {
            "name": "query",
            "in": "query",
            "required": True,
            "schema": {"type": "string"},
            "example": EXAMPLE,
        }
    ]
}
POSTED = {
    "requestBody": {
        "required": True,
        "content": {
            DIRECT: {"schema": {"type": "string"}, "example": EXAMPLE},
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                },
                "example": {"query": EXAMPLE},
            },
        },
    }
}


def add_sparql(app: FastAPI, facts: Callable[[], Facts]) -> None:
    """Add `/sparql` to an app."""

    async def answer(request: Request, parameters: dict[str, list[str]], query: str) -> Response:
        for name in ("default-graph-uri", "named-graph-uri"):
            if name in parameters:
                raise Refused(400, f"There is one graph here: leave out {name}.")
        media_type = _choose(request.headers.get("accept", "*/*"))
        content = await facts().sparql(query, media_type)
        return Response(content, headers={"content-type": media_type})

    @app.get("/sparql", tags=["SPARQL"], responses=ANSWERED, openapi_extra=GIVEN)
    async def by_parameter(request: Request) -> Response:
        """Answer a SELECT or ASK in `query`, as SPARQL JSON, XML, CSV or TSV."""
        parameters = _parameters(request.url.query)
        return await answer(request, parameters, _query_of(parameters))

    @app.post("/sparql", tags=["SPARQL"], responses=ANSWERED, openapi_extra=POSTED)
    async def by_body(request: Request) -> Response:
        """Answer a SELECT or ASK, given as a form or as the body itself."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            text = (await request.body()).decode()
        except UnicodeDecodeError:
            raise Refused(400, "The body is not UTF-8.") from None
        if kind == DIRECT:
            return await answer(request, _parameters(request.url.query), text)
        if kind == FORM:
            parameters = _parameters(text)
            return await answer(request, parameters, _query_of(parameters))
        if kind == "application/sparql-update":
            raise Refused(403, "This endpoint is read-only: it takes no updates.")
        raise Refused(415, f"Send the query as {DIRECT} or {FORM}.")


def _parameters(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise Refused(400, f"The parameters cannot be read: {error}.") from None


def _query_of(parameters: dict[str, list[str]]) -> str:
    if "update" in parameters:
        raise Refused(403, "This endpoint is read-only: it takes no updates.")
    if len(parameters.get("query", ())) != 1:
        raise Refused(400, "Give one query: /sparql?query=SELECT...")
    return parameters["query"][0]


def _choose(accept: str) -> str:
    """Return the media type to answer in: the one that is liked best, else JSON."""

    def weight(given: str) -> float:
        for parameter in given.split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    return float(value)
                except ValueError:
                    return 0.0
        return 1.0

    ranges = sorted(accept.split(","), key=weight, reverse=True)
    liked = [given.partition(";")[0].strip().lower() for given in ranges]
    return next((media_type for media_type in liked if media_type in RESULTS), next(iter(RESULTS)))
