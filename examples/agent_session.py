"""An agent's session over MCP: from a question in English to an answer with its reasons.

python examples/agent_session.py

It writes agent_session.png: what speaks for the best prediction.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from mcp import Client, StdioServerParameters

import betae


async def talk(folder: Path) -> dict:
    """Make the calls of an agent; return its evidence."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "betae", "mcp", str(folder)])
    async with Client(server) as client:

        async def call(tool: str, **arguments: object) -> dict:
            result = await client.call_tool(tool, arguments)
            print(f"> {tool} {arguments}\n{result.content[0].text}\n")
            return result.structured_content

        while (await client.call_tool("missing_edges", {"entity": "France"})).is_error:
            await asyncio.sleep(0.2)  # until rules are mined, answers are exact
        await call("find_names", text="which countries are in Europe?", limit=2)
        told = await call("ask_question", question="?X . located_in(?X, Europe)", limit=2)
        best = told["predicted"][0]["label"]
        return await call("why_edge", head=best, relation="located_in", tail="Europe")


with tempfile.TemporaryDirectory() as name:
    graph, folder = betae.world(), Path(name) / "graph"
    graph.without(graph.to_polars("test")).save(folder)
    why = asyncio.run(talk(folder))

figure = Figure(figsize=(9, 3), layout="constrained")
axes = figure.subplots()
for row, reason in enumerate(why["reasons"]):
    axes.barh(row, reason["log_odds"], color="skyblue")
    axes.text(0, row, reason["text"].partition(":")[0], va="center")
axes.invert_yaxis()
axes.set_yticks([])
axes.set_xlabel("log-odds")
axes.set_title("reasons for {head} {relation} {tail}: {probability:.0%}".format(**why), loc="left")
figure.savefig("agent_session.png")
