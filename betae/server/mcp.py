"""The MCP server: the tools, the page and the lesson of a graph for agents, on stdio or over HTTP.

https://modelcontextprotocol.io; the protocol is spoken by the official SDK.
"""

from __future__ import annotations

import asyncio
import logging
import os
from inspect import cleandoc
from threading import Thread
from typing import TYPE_CHECKING, Any, get_type_hints

import anyio
import mcp.types as types
import numpy as np
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from betae import __version__
from betae.errors import BetaeError
from betae.graph.graph import KnowledgeGraph
from betae.queries.spelling import spell_relation
from betae.server import guide
from betae.server.app import Served
from betae.server.limits import QUESTION_ERRORS, Refused
from betae.server.tools import Tools

if TYPE_CHECKING:
    from betae.run import Run

log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
NAMES = (
    "describe_graph",
    "find_names",
    "check_question",
    "ask_question",
    "why_edge",
    "missing_edges",
    "run_sparql",
)
PAGE, LESSON = "betae://graph", "ask_the_graph"
ABOUT_PAGE = "The graph on one page: its relations with direction and examples, classes, questions."
ABOUT_LESSON = "Teaches the language of questions on a page, with examples made from this graph."
INSTRUCTIONS = """\
A knowledge graph of {entities:,} entities, {relations:,} relations ({frequent}) and {edges:,}
edges, which lacks edges that are true. It tells what follows from its facts apart from what it
predicts, how probable each prediction is, and why.

Work like this: describe_graph once; find_names for every thing and relation that the question
needs; ask_question with logic text such as ?X . r(?X, "A name"); why_edge for a prediction.
check_question tells what is wrong with a question that fails or finds nothing. The prompt {lesson}
teaches the language. Present a predicted answer as a prediction, with its probability, never as a
fact."""
SHOWN_RELATIONS = 5  # in the instructions
OPENING = "The run is being opened: try again in a minute for predictions."
CALL_SHARE = 0.9  # of the time limit of a request, after which a call gives up


def create_mcp_server(served: Served) -> Server[Any]:
    """Build the MCP server of a run or a graph."""
    tools, graph = Tools(served), served.graph

    async def list_tools(_context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(name) for name in NAMES])

    async def call_tool(
        _context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await _call(tools, params.name, params.arguments or {})

    async def list_resources(_context: Context, _params: Any) -> types.ListResourcesResult:
        page = types.Resource(
            uri=PAGE, name="graph", description=ABOUT_PAGE, mime_type="text/markdown"
        )
        return types.ListResourcesResult(resources=[page])

    async def read_resource(
        _context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        if str(params.uri) != PAGE:
            raise MCPError(types.INVALID_PARAMS, f"There is no {params.uri}, only {PAGE}.")
        text = await asyncio.to_thread(tools.page)
        content = types.TextResourceContents(uri=PAGE, text=text, mime_type="text/markdown")
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(_context: Context, _params: Any) -> types.ListPromptsResult:
        question = types.PromptArgument(
            name="question", description="A question in English to answer.", required=False
        )
        lesson = types.Prompt(name=LESSON, description=ABOUT_LESSON, arguments=[question])
        return types.ListPromptsResult(prompts=[lesson])

    async def get_prompt(
        _context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        if params.name != LESSON:
            raise MCPError(
                types.INVALID_PARAMS, f"There is no prompt {params.name}, only {LESSON}."
            )
        text = await asyncio.to_thread(tools.lesson)
        if asked := (params.arguments or {}).get("question"):
            text += f"\nAnswer this question: {asked}\n"
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=ABOUT_LESSON, messages=[message])

    return Server(
        "betae",
        version=__version__,
        title="betae",
        description="Questions to a knowledge graph, answered by facts and by predictions.",
        instructions=_instructions(graph),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def _instructions(graph: KnowledgeGraph) -> str:
    counts = guide.relation_counts(graph)
    frequent = np.argsort(-counts, kind="stable")[:SHOWN_RELATIONS].tolist()
    return INSTRUCTIONS.format(
        entities=graph.num_entities,
        relations=len(graph.relations),
        edges=counts.sum(),
        frequent=", ".join(spell_relation(graph, each) for each in frequent),
        lesson=LESSON,
    )


# ---- tools --------------------------------------------------------------------------------------


def _models(name: str) -> tuple[type[BaseModel], type[BaseModel]]:
    """Return the models of the arguments and of the result of a tool."""
    *arguments, result = get_type_hints(getattr(Tools, name)).values()
    return arguments[0], result


def _describe(name: str) -> types.Tool:
    arguments, result = _models(name)
    return types.Tool(
        name=name,
        description=cleandoc(getattr(Tools, name).__doc__).replace("\n", " "),
        input_schema=arguments.model_json_schema(),
        output_schema=result.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


async def _call(tools: Tools, name: str, given: dict[str, Any]) -> types.CallToolResult:
    """Call a tool; whatever goes wrong is a result that a model can act on."""
    if name not in NAMES:
        return _failed(f"There is no tool {name[:100]!r}. The tools are: {', '.join(NAMES)}.")
    model, _ = _models(name)
    seconds = tools.served.limits.seconds * CALL_SHARE
    try:
        arguments = model.model_validate(given)
    except ValidationError as error:
        return _failed(_wrong_arguments(name, model, error))
    await tools.started()
    try:
        async with asyncio.timeout(seconds):
            result = await getattr(tools, name)(arguments)
    except (Refused, *QUESTION_ERRORS) as error:
        text = given.get("question")
        return _failed(f"{tools.problem(error)}\n{await tools.advice(error, text)}".rstrip())
    except TimeoutError:
        return _failed(f"It takes longer than {seconds:g} seconds: ask for less.")
    except Exception:
        log.exception("%s failed", name)
        return _failed("Internal error; see the log of the server.")
    return types.CallToolResult(
        content=[types.TextContent(text=result.text())],
        structured_content=result.model_dump(mode="json"),
    )


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _wrong_arguments(name: str, model: type[BaseModel], error: ValidationError) -> str:
    """Name the wrong arguments of a call, and list the right ones."""
    faults = [
        f"{'.'.join(map(str, fault['loc']))[:60] or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)[:5]
    ]
    fields = (
        f"{key}{'' if field.is_required() else f' ({field.default!r} by default)'}"
        for key, field in model.model_fields.items()
    )
    return f"{'; '.join(faults)}.\nThe arguments of {name} are: {', '.join(fields) or 'none'}."


# ---- transports ---------------------------------------------------------------------------------


def http_manager(served: Served) -> StreamableHTTPSessionManager:
    """Return the server for HTTP: no sessions, one response in JSON for each request."""
    return StreamableHTTPSessionManager(
        create_mcp_server(served),
        json_response=True,
        stateless=True,
        max_request_body_size=served.limits.body_bytes,
    )


def run_stdio(source: Run | KnowledgeGraph) -> None:
    """Serve a run, or a graph in a folder, on stdin and stdout until the client closes them.

    The client is answered at once, with exact answers until the run has been opened or the rules of
    the graph have been mined, by another thread.
    """
    served = Served(source if isinstance(source, KnowledgeGraph) else source.graph)
    served.opening = OPENING
    opening = Thread(target=_open, args=(served, source), daemon=True)

    async def serve() -> None:
        server = create_mcp_server(served)
        async with stdio_server() as (incoming, outgoing):
            opening.start()  # with stdout diverted, as in all of its processes
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)
    if opening.is_alive():  # mining cannot be interrupted; a run is written whole or not at all
        served.close()
        os._exit(0)
    served.close()


def _open(served: Served, source: Run | KnowledgeGraph) -> None:
    """Start the workers, then open the run, or make it; say why if that fails."""

    def progress(done: int, total: int) -> None:
        served.opening = (
            f"Rules are being mined from the graph, once ({done / max(total, 1):.0%} done): try "
            "again in a minute for predictions."
        )

    try:
        served.open()
        if isinstance(source, KnowledgeGraph):
            from betae.run import open_or_mine  # here, since it imports torch

            assert source.folder is not None
            source = open_or_mine(source.folder, progress=progress)
        served.opening = OPENING
        served.predict_by(source)
    except BetaeError as error:
        served.why_no_predictions = str(error)
    except Exception:
        log.exception("The run cannot be opened")
        served.why_no_predictions = "The run cannot be opened; see the log of the server."
    finally:
        served.opening = ""
