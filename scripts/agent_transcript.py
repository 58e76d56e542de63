"""Write the transcript of docs/agents.md: an agent's calls of `betae mcp` on Hetionet.

    betae ingest edges.tsv.gz --labels labels.tsv.gz --out hetionet
    python scripts/agent_transcript.py hetionet

Every call is made, by the SDK's own client, and its result is printed in full.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters

PAGE = Path(__file__).parents[1] / "docs" / "agents.md"
BEGIN, END = "<!-- made by scripts/agent_transcript.py -->\n", "<!-- end -->\n"
TREATS = "Compound_treats_Disease"
DISEASE = "epilepsy syndrome"


async def ask_as_an_agent(folder: Path) -> str:
    """Go from a question in English to an answer with evidence; return what was said."""
    said = ["> Which drugs might treat epilepsy, and why?\n"]
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "betae", "mcp", str(folder)]
    )

    async with Client(command) as client:

        async def call(why: str, tool: str, **arguments: object) -> dict:
            result = await client.call_tool(tool, arguments)
            given = json.dumps(arguments, ensure_ascii=False)
            said.append(f"{why}\n\n```\n{tool} {given}\n\n{result.content[0].text}\n```\n")
            return result.structured_content

        # Not part of the transcript: the first time, rules are mined for a minute or two.
        asked = {"entity": DISEASE, "relation": TREATS}
        while (await client.call_tool("missing_edges", asked)).is_error:
            await asyncio.sleep(1)

        await call(
            "A guess, in words that the graph does not use:",
            "ask_question",
            question="?X . treats(?X, epilepsy)",
        )
        await call(
            "The error names the relation. The names of the graph, by the words of the question:",
            "find_names",
            text="which drugs might treat epilepsy?",
        )
        question = f'?X . {TREATS}(?X, "{DISEASE}")'
        told = await call(
            "The atom that was returned is the question:",
            "ask_question",
            question=question,
            limit=4,
        )
        best = told["predicted"][0]
        why = await call(
            f"Everything that speaks for {best['label']}:",
            "why_edge",
            head=best["label"],
            relation=TREATS,
            tail=DISEASE,
        )
        other = await call(
            "Those that do not bind GABRA1, a target of some of the known ones:",
            "ask_question",
            question=f"{question} & !Compound_binds_Gene(?X, GABRA1)",
            limit=3,
            status="predicted",
        )
    said.append(f"The agent can now answer, from what was returned:\n\n{_answer(told, why, other)}")
    return "\n".join(said)


def _answer(told: dict, why: dict, other: dict) -> str:
    """Write the answer that the calls support."""
    names = ", ".join(each["label"] for each in told["predicted"])
    best, reason = told["predicted"][0], why["reasons"][0]
    expected = told["expected"] - told["num_known"]
    others = ", ".join(each["label"] for each in other["predicted"])
    return f"""\
> The graph knows {told["num_known"]} drugs that treat epilepsy, such as \
{told["known"][0]["label"]}. It does not say so, but predicts it, of some others, of which about \
{expected:.0f} can be expected to be true; the most probable are {names}. None of these is likely: \
{best["label"]}, the first, has {best["probability"]:.1%}. What speaks most for it: \
{reason["text"].rstrip(".")}. Without drugs known to bind GABRA1, the first are {others}.
"""


def main() -> None:
    """Make the calls and write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", type=Path, help="Folder of Hetionet, ingested.")
    transcript = asyncio.run(ask_as_an_agent(parser.parse_args().graph))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{transcript}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
