"""The MCP server, used by the SDK's own client: in this process, on stdio and over HTTP."""

import asyncio
import json
import os
import random
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import jsonschema
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import betae
from betae import KnowledgeGraph
from betae.queries.read import read_question
from betae.queries.spelling import spell_query
from betae.server import guide
from betae.server.app import Served
from betae.server.examples import example_questions
from betae.server.limits import Limits
from betae.server.mcp import NAMES, _call, create_mcp_server
from betae.server.tools import Tools
from betae.server.words import in_words
from tests.server.conftest import serving
from tests.test_extras import betae as run_betae

QUESTION = "?X . exists ?C : parent(ann, ?C) & lives_in(?C, ?X)"


@contextmanager
def opened(source, **limits):
    served = Served(source, Limits(**limits))
    served.open()
    try:
        yield served
    finally:
        served.close()


@pytest.fixture(scope="module")
def of_run(run):
    with opened(run) as served:
        yield served


@pytest.fixture(scope="module")
def of_graph(graph):
    with opened(graph) as served:
        yield served


def call(served, name, **arguments):
    """Call a tool in this process by the SDK's client, and check what it returns."""

    async def ask():
        async with Client(create_mcp_server(served)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            result = await client.call_tool(name, arguments)
            if not result.is_error:
                jsonschema.validate(result.structured_content, tools[name].output_schema)
            return result

    return asyncio.run(ask())


def text_of(result):
    (content,) = result.content
    return content.text


def found(served, name, **arguments):
    result = call(served, name, **arguments)
    assert not result.is_error, text_of(result)
    return result.structured_content


def error(served, name, **arguments):
    result = call(served, name, **arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


# ---- the client's way: list, ask, fail, recover --------------------------------------------------


async def use(client):
    """List everything, ask, make a mistake, and correct it by what the error says."""
    tools = (await client.list_tools()).tools
    assert tuple(tool.name for tool in tools) == NAMES
    assert all(tool.description and tool.output_schema for tool in tools)
    (page,) = (await client.list_resources()).resources
    (content,) = (await client.read_resource(page.uri)).contents
    assert "`parent(?head, ?tail)`" in content.text
    (lesson,) = (await client.list_prompts()).prompts
    prompt = await client.get_prompt(lesson.name, {"question": "Where do Ann's children live?"})
    assert prompt.messages[0].content.text.endswith("Where do Ann's children live?\n")

    failed = await client.call_tool("ask_question", {"question": QUESTION.replace("ann", "Anne")})
    assert failed.is_error
    assert "'Anne'" in text_of(failed)
    names = await client.call_tool("find_names", {"text": "Ann"})
    name = names.structured_content["entities"][0]["name"]
    asked = await client.call_tool("ask_question", {"question": QUESTION.replace("ann", name)})
    assert {each["entity"] for each in asked.structured_content["known"]} == {"Oslo", "Lima"}
    return asked.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_http_with_the_token(run, mode):
    with serving(run, token="secret") as client:
        address = f"{client.base_url}/mcp"

        async def go(headers):
            async with (
                httpx_client(headers) as inner,
                Client(streamable_http_client(address, http_client=inner), mode=mode) as its,
            ):
                return await use(its)

        told = asyncio.run(go({"authorization": "Bearer secret"}))
        assert told["predicted"]
        assert client.post("/mcp", json={}).status_code == 401
        for name in ("GET", "DELETE"):  # no sessions
            response = client.request(name, "/mcp", headers={"authorization": "Bearer secret"})
            assert (response.status_code, response.headers["allow"]) == (405, "POST")


@asynccontextmanager
async def httpx_client(headers):
    import httpx2  # of the SDK

    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        yield client


def stdio(folder):
    """The command of a client's settings."""
    path = os.pathsep.join(sys.path)
    arguments = ["-m", "betae", "mcp", str(folder)]
    return StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": path})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_on_stdio(run, mode):
    async def go():
        async with Client(stdio(run.folder), mode=mode) as client:
            return await use(client)

    assert asyncio.run(go())["note"] is None


@pytest.mark.slow
def test_a_graph_is_answered_at_once_and_mined_meanwhile(tmp_path):
    betae.world().save(tmp_path / "graph")
    asked = {"question": "?X . capital(Austria, ?X)"}

    async def go():
        async with Client(stdio(tmp_path / "graph"), mode="legacy") as client:
            while True:
                answered = (await client.call_tool("ask_question", asked)).structured_content
                assert answered["known"][0]["label"] == "Vienna"
                if answered["expected"] is not None:
                    return answered
                assert "again" in answered["note"]
                await asyncio.sleep(1)

    assert asyncio.run(go())["note"] is None
    assert (tmp_path / "graph" / "mined").is_dir()


@pytest.mark.slow
def test_stdout_has_nothing_but_messages(tmp_path):
    """Raw lines, some of them no JSON; what is not for the client goes to stderr."""
    (tmp_path / "facts.tsv").write_text("a\tr\tb\n")
    KnowledgeGraph.from_triples(tmp_path / "facts.tsv").save(tmp_path / "graph")
    start = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    asked = {"name": "ask_question", "arguments": {"question": "?X . r(a, ?X)"}}
    messages = [
        {"id": 1, "method": "initialize", "params": start},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": asked},
        {"id": 3, "method": "tools/fly"},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    lines.insert(1, "no JSON")
    command = [sys.executable, "-m", "betae", "mcp", tmp_path / "graph"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.flush()
    received = {}
    while not {1, 2, 3} <= received.keys():
        message = json.loads(process.stdout.readline())
        received[message.get("id")] = message
    rest, _ = process.communicate(timeout=60)
    assert rest == ""
    assert process.returncode == 0
    assert received[3]["error"]["code"] == -32601
    answered = received[2]["result"]["structuredContent"]
    assert [each["entity"] for each in answered["known"]] == ["b"]
    assert "too small to predict" in answered["note"]


# ---- tools --------------------------------------------------------------------------------------


def test_names_are_found_in_any_case_and_in_english(of_run):
    told = found(of_run, "find_names", text="ANN LEE")["entities"][0]
    assert (told["name"], told["label"]) == ("ann", "Ann Lee")
    atoms = {use["atom"]: use["edges"] for use in told["uses"]}
    assert atoms['parent("Ann Lee", ?X)'] == 2
    assert atoms['parent(?X, "Ann Lee")'] == 1
    told = found(of_run, "find_names", text="Who are the parents of Bob?")
    assert told["relations"][0]["pattern"] == "parent(?head, ?tail)"
    assert told["entities"][0]["name"] == "bob"
    assert "share words" in told["note"]
    assert found(of_run, "find_names", text="Xylophon")["note"].startswith("No name has")


def test_names_come_page_by_page(of_run, graph):
    seen, offset = [], 0
    while offset is not None:
        told = found(of_run, "find_names", text="", kind="entity", limit=3, offset=offset)
        assert len(told["entities"]) <= 3
        assert told["relations"] == []
        seen += [each["name"] for each in told["entities"]]
        offset = told["next_offset"]
    assert sorted(seen) == sorted(graph.entities)


def test_a_question_is_checked_step_by_step(of_run):
    told = found(of_run, "check_question", question=QUESTION)
    assert told["valid"]
    assert told["predictable"]
    assert told["words"].startswith("everything that (something that ")
    assert [step["answers"] for step in told["steps"]] == [2, 2]
    told = found(of_run, "check_question", question="?X, ?Y . parent(?X, ?Y)")
    assert (told["valid"], told["predictable"]) == (True, False)
    told = found(of_run, "check_question", question="who is a parent of Bob?")
    assert not told["valid"]
    assert "Relations that you may mean: parent." in told["problem"]
    assert '"Bob Lee"' in told["problem"]
    told = found(of_run, "check_question", question="?X . parents(ann, ?X)")
    assert told["closest"][0] == "parent"


def test_statuses_are_told_apart(of_run, run):
    question = "?X . parent(ann, ?X) & !friend(bob, ?X)"
    told = found(of_run, "ask_question", question=question, min_probability=0)
    wanted = run.answer(question, k=100)
    for status in ("known", "assumed", "predicted"):
        expected = [(each.entity, each.probability) for each in wanted if each.status == status]
        assert [(each["entity"], each["probability"]) for each in told[status]] == expected[:10]
    assert [each["entity"] for each in told["assumed"]] == ["bob"]
    assert told["expected"] == wanted.expected
    missing = [step for each in told["predicted"] for step in each["why"]]
    assert any(step["status"] == "missing" for step in missing)
    text = text_of(call(of_run, "ask_question", question=question, status="assumed"))
    assert "Assumed (follows from the facts unless one is missing), 1 of 1:" in text
    assert "Predicted" not in text


def test_further_answers_follow_by_offset(of_run, run):
    question = "?X . lives_in(?X, Oslo)"
    seen, offset = [], 0
    while offset is not None:
        told = found(
            of_run,
            "ask_question",
            question=question,
            status="predicted",
            min_probability=0,
            limit=2,
            offset=offset,
        )
        seen += [each["entity"] for each in told["predicted"]]
        offset = told["next_offset"]
    wanted = run.answer(question, k=1000, status="predicted")
    assert seen == [each.entity for each in wanted]


def test_questions_that_are_no_trees_have_rows(of_run):
    told = found(of_run, "ask_question", question="?X, ?Y . parent(?X, ?Y)", limit=2)
    assert len(told["rows"]) == 2
    assert told["next_offset"] == 2
    assert "Exact answers only" in told["note"]
    told = found(of_run, "ask_question", question="SELECT ?x { <ann> <parent> ?x }")
    assert {each["entity"] for each in told["known"]} == {"bob", "cat"}


def test_an_edge_is_explained(of_run, run):
    told = found(of_run, "why_edge", head="Ann Lee", relation="parent", tail="bob")
    assert told["known"]
    told = found(of_run, "why_edge", head="ann", relation="friend", tail="dan")
    wanted = run.why("ann", "friend", "dan")
    assert told["probability"] == pytest.approx(wanted.probability)
    assert told["log_odds"] == pytest.approx(wanted.log_odds)
    assert told["note"] is None
    wrong = found(of_run, "why_edge", head="bob", relation="parent", tail="ann")
    assert wrong["note"] == "The graph has it the other way round: Ann Lee parent Bob Lee."
    swapped = found(of_run, "why_edge", head="dan", relation="~friend", tail="ann")
    assert (swapped["head"], swapped["tail"]) == ("Ann Lee", "dan")
    assert swapped["probability"] == pytest.approx(told["probability"])


def test_missing_edges_are_listed(of_run, run):
    options = {"relation": "friend", "min_probability": 0.001, "limit": 100}
    told = found(of_run, "missing_edges", **options)
    wanted = run.complete(relation="friend", above=0.001)
    assert told["total"] == len(wanted)
    pairs = [(each["head"], each["tail"]) for each in wanted]
    assert [(each["head"], each["tail"]) for each in told["edges"]] == pairs[:100]
    told = found(of_run, "missing_edges", **options, entity="dan")
    assert all("dan" in (each["head"], each["tail"]) for each in told["edges"])


def test_a_search_for_missing_edges_ends_in_time(of_run, monkeypatch):
    monkeypatch.setattr("betae.server.tools.SEARCH_SECONDS", -1)
    monkeypatch.setattr("betae.answering.missing.PAIRS_PER_BATCH", 1)
    assert "name an entity" in error(of_run, "missing_edges")


def test_sparql_of_all_kinds(of_run):
    query = "SELECT ?x (COUNT(?y) AS ?n) { ?x <parent> ?y } GROUP BY ?x ORDER BY DESC(?n) ?x"
    told = found(of_run, "run_sparql", query=query, limit=2)
    assert told["rows"][0] == {"x": "ann", "x_label": "Ann Lee", "n": "2"}
    assert told["next_offset"] == 2
    told = found(of_run, "run_sparql", query=query, limit=2, offset=2)
    assert len(told["rows"]) == 2
    assert found(of_run, "run_sparql", query="ASK { <ann> <parent> <bob> }")["boolean"]
    query = "CONSTRUCT { ?y <child> ?x } { ?x <parent> ?y }"
    assert len(found(of_run, "run_sparql", query=query, limit=2)["triples"]) == 2
    assert "not SPARQL" in error(of_run, "run_sparql", query="MATCH (n) RETURN n")
    assert error(of_run, "run_sparql", query="INSERT DATA { <a> <b> <c> }")
    assert "SERVICE" in error(
        of_run, "run_sparql", query="SELECT * { SERVICE <http://localhost/> { ?x ?y ?z } }"
    )


def test_a_graph_has_exact_answers_and_says_so(of_graph):
    told = found(of_graph, "ask_question", question="?X . parent(ann, ?X) & !friend(bob, ?X)")
    assert [each["entity"] for each in told["assumed"]] == ["bob"]
    assert "Predictions: none" in told["note"]
    assert found(of_graph, "why_edge", head="ann", relation="parent", tail="bob")["known"]
    assert "Predictions: none" in error(
        of_graph, "why_edge", head="ann", relation="parent", tail="eve"
    )
    assert "Predictions: none" in error(of_graph, "missing_edges")
    assert not found(of_graph, "describe_graph")["predictions"]


def test_a_question_does_not_wait_for_long(of_graph, monkeypatch):
    monkeypatch.setattr("betae.server.tools.PATIENCE", 0.0)
    monkeypatch.setattr(of_graph, "opening", "Rules are being mined (45% done).")
    told = found(of_graph, "ask_question", question="?X . parent(ann, ?X)")
    assert len(told["known"]) == 2
    assert "45% done" in told["note"]


# ---- examples -----------------------------------------------------------------------------------


def test_examples_are_valid_and_have_answers(graph, write):
    poor = KnowledgeGraph.from_triples(write("poor.tsv", "a\tr\tb\n"))
    odd = KnowledgeGraph.from_triples(
        write("odd.tsv", 'say "?X"\tis a\t?X\nb\tis a\t?X\nb\tlikes\tsay "?X"\nc\tis a\tx & y\n')
    )
    for each in (graph, betae.world(), poor, odd):
        examples = example_questions(each)
        assert examples
        for example in examples:
            assert len(list(each.select(example.text, limit=1))) == 1, example
            if "?Y" not in example.text:
                tree = read_question(example.text, each).tree
                assert in_words(each, tree)
                assert read_question(spell_query(each, tree), each).tree == tree
            assert example.text in guide.lesson(examples)
            assert example.text in guide.page(each, "", examples)
    assert len(example_questions(betae.world())) == 7
    assert len(guide.lesson(example_questions(betae.world())).splitlines()) <= 42


# ---- what is wrong ------------------------------------------------------------------------------


def test_wrong_calls_are_told_the_right_ones(of_run):
    assert "The tools are: describe_graph" in error(of_run, "ask")
    told = error(of_run, "missing_edges", limit=1_000_000, colour="red")
    assert "less than or equal to 100" in told
    assert "colour" in told
    assert "entity (None by default)" in told
    told = error(of_run, "ask_question", question="?X . parent(anne, ?X)")
    assert "Closest" in told
    assert "find_names" in told
    told = error(of_run, "ask_question", question="?X . parent(Sam, ?X)")  # two are called Sam
    assert '"cat"' in told
    told = error(of_run, "ask_question", question="?X . parent(?X, Bob Lee) and friend(?X, dan)")
    assert told.endswith('Write: ?X . parent(?X, "Bob Lee") & friend(?X, dan)')
    told = error(of_run, "ask_question", question="parent(ann, bob)")
    assert "yes or no" in told
    assert told.endswith("ask with an answer variable: ?X . exists ...")
    told = error(of_run, "ask_question", question="who is a parent of Bob Lee?")
    assert told.endswith('A start: ?X . parent(?X, "Bob Lee")')
    asked = found(of_run, "ask_question", question="?X . Parent('ann LEE', ?X)")
    assert {each["entity"] for each in asked["known"]} == {"bob", "cat"}
    assert "'ann LEE' was read as 'Ann Lee'" in asked["note"]
    assert "shorter" not in error(of_run, "ask_question", question="")
    assert "8,000" in error(of_run, "ask_question", question="?X . " + "x" * 9000)


def test_requests_of_other_sites_are_refused(graph):
    with serving(graph) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for origin, status in (("http://evil.example", 403), ("null", 403), (None, 200)):
            headers = {"accept": "application/json, text/event-stream"}
            headers |= {"origin": origin} if origin else {}
            response = client.post("/mcp", json=body, headers=headers)
            assert response.status_code == status, response.text
        own = {**headers, "origin": str(client.base_url).rstrip("/")}
        assert client.post("/mcp", json=body, headers=own).status_code == 200
        assert client.post("/mcp", content="x" * 300_000).status_code == 413


ODD_VALUES = [
    *(None, True, -1, 0, 10**30, 1.5, float("nan"), float("inf"), [], [[]], {}, {"a": {}}),
    *(
        "",
        " ",
        "?X",
        "?X .",
        "?X . r(",
        '"',
        "\x00",
        "\ud800",
        "é" * 2000,
        "(" * 500,
        "#99999999999",
    ),
    *("SELECT", "ASK {", "?X . _(_, ?X)", "?X . !" + "!" * 300 + "parent(ann, ?X)", "~parent"),
    *("DROP ALL", "MATCH (n) RETURN n", "?X . parent(ann, ?Y)", "ann", "parent", QUESTION),
]
KEYS = (
    *("text", "kind", "question", "status", "min_probability", "evidence", "head", "relation"),
    *("tail", "entity", "query", "limit", "offset", "colour", "", "\ud800"),
)


@pytest.mark.slow
def test_ten_thousand_malformed_calls(of_run):
    random.seed(0)
    tools, num_errors = Tools(of_run), 0

    async def one():
        keys = random.sample(KEYS, random.randrange(6))
        given = {key: random.choice(ODD_VALUES) for key in keys}
        name = random.choice([*NAMES, "fly", ""])
        if random.random() < 0.5 and name in NAMES[1:]:  # all that it requires, and little else
            wanted = ("text", "question", "head", "relation", "tail", "query")
            fields = tools_fields(name)
            given = {key: random.choice(ODD_VALUES) for key in wanted if key in fields}
        result = await asyncio.wait_for(_call(tools, name, given), 60)
        assert "Internal error" not in text_of(result), (name, given)
        assert "Traceback" not in text_of(result)
        return result.is_error

    async def storm():
        nonlocal num_errors
        for _ in range(100):
            num_errors += sum(await asyncio.gather(*(one() for _ in range(100))))
        return await _call(tools, "ask_question", {"question": QUESTION})

    assert not asyncio.run(storm()).is_error
    assert num_errors > 5_000


def tools_fields(name):
    from betae.server.mcp import _models

    return _models(name)[0].model_fields


def test_malformed_messages_are_answered(graph):
    """Over HTTP; none is a failure of the server."""
    random.seed(0)
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    bodies = [b"", b"{", b"[]", b"null", b"[" * 10_000, b"\xff", b'{"jsonrpc": "2.0"}', b'"x"']
    for _ in range(200):
        message = {
            "jsonrpc": random.choice(["2.0", "1.0", None]),
            "id": random.choice([1, "a", None, [], 1.5]),
            "method": random.choice(["tools/call", "tools/list", "initialize", "ping", "", None]),
            "params": random.choice([None, [], {}, {"name": 1}, {"name": "ask_question"}]),
        }
        bodies.append(json.dumps(message).encode())
    with serving(graph) as client:
        for body in bodies:
            for version in (
                {},
                {"mcp-protocol-version": "2026-07-28"},
                {"mcp-protocol-version": "x"},
            ):
                response = client.post("/mcp", content=body, headers=headers | version)
                assert response.status_code < 500, (body, response.text)
                assert "Traceback" not in response.text
        assert client.get("/healthz").status_code == 200


def test_the_message_without_the_sdk(graph, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setattr(
        "betae.cli.runs.find_spec", lambda name: None if name == "mcp" else object()
    )
    assert run_betae(monkeypatch, "mcp", graph.folder) == 2
    assert "betae mcp needs mcp: pip install 'betae[mcp]'." in capsys.readouterr().err


def test_the_server_runs_without_the_sdk(graph, monkeypatch):
    monkeypatch.setattr("betae.server.app.find_spec", lambda _name: None)
    with serving(graph) as client:
        assert client.post("/mcp", json={}).status_code == 404
        assert client.get("/model").status_code == 200
