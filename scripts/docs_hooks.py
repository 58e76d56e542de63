"""Hooks of the documentation site (`make docs`): generated references, files outside docs/.

The pages under `docs/` are also read on their own, so a reference has its place marked in a page:
`<!-- commands -->` and `<!-- endpoints -->`. A link to a file outside `docs/`, such as
`../results/report.md`, brings that file into the site.
"""

from __future__ import annotations

import html
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")
CONFIG = re.compile(r"^::: betae\.(\w+Config)$", flags=re.MULTILINE)
SETTING = re.compile(r"^    (\w+): (?!ClassVar)(.+?) = (.+?)(?:  # (.*))?$", flags=re.MULTILINE)
LOADED = re.compile(r"""<(?:script|img|iframe|link rel="stylesheet")[^>]*(?:src|href)="https?://""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to."""
    pages = [file.content_string for file in files.documentation_pages()]
    for path in sorted({path for page in pages for path in OUTSIDE.findall(page)}):
        if (ROOT / path).is_file():  # anything else is a broken link, which mkdocs reports
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the references, and point links at the files that `on_files` added."""
    if page.file.generated_by:
        return markdown.replace("](docs/", "](")
    if page.file.src_uri == "api.md":
        return CONFIG.sub(settings, markdown)
    if page.file.src_uri == "commands.md":
        markdown = markdown.replace("<!-- commands -->", commands())
    if page.file.src_uri == "http.md":
        markdown = markdown.replace("<!-- endpoints -->", endpoints())
    return OUTSIDE.sub(r"](\1", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads anything from another server."""
    for path in Path(config.site_dir).rglob("*.html"):
        if found := LOADED.search(path.read_text("utf-8")):
            raise PluginError(f"{path} loads from another server: {found[0]}")


def settings(found: re.Match[str]) -> str:
    """Add a table of the settings of a class, which are described by comments in its source."""
    import betae

    lines = [found[0], "", "| setting | type | default | |", "|---|---|---|---|"]
    for name, kind, default, comment in SETTING.findall(
        inspect.getsource(getattr(betae, found[1])).replace("  # type: ignore[assignment]", "")
    ):
        made = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", default)
        lines.append(
            f"| `{name}` | `{kind}` | `{made}` | {comment} |".replace(" | None", " or None")
        )
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Describe every command, as its `--help` does."""
    typer = [sys.executable, "-m", "typer", "betae.cli", "utils", "docs", "--name", "betae"]
    done = subprocess.run(typer, cwd=ROOT, capture_output=True, text=True, check=True)
    text = done.stdout.split("\n## ", 1)[1]  # what is before is the list of commands
    text = re.sub(r"^\* `--help`: .*\n", "", f"## {text}", flags=re.MULTILINE)
    text = re.sub(r"^```console$", "```", text, flags=re.MULTILINE)
    return re.sub(r"^Examples:\n\n((?:  .+\n\n?)+)", code_of_examples, text, flags=re.MULTILINE)


def code_of_examples(found: re.Match[str]) -> str:
    """Set the examples of a command as code."""
    lines = [html.unescape(line.strip()) for line in found[1].splitlines() if line.strip()]
    return "\n".join(["**Examples**:\n", "```", *lines, "```\n\n"])


def endpoints() -> str:
    """Describe every endpoint, from the server's OpenAPI description."""
    from starlette.testclient import TestClient

    import betae
    from betae.server.app import create_app

    client = TestClient(create_app(betae.world()), base_url="http://localhost")
    described = client.get("/openapi.json").json()
    parts = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts += [f"## `{method.upper()} {path}`", operation["description"]]
            parts += request_of(operation) + response_of(operation)
    parts.append("## Objects")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += [f"### {name}", schema.get("description", ""), fields_of(schema)]
    return "\n\n".join(filter(None, parts))


def request_of(operation: dict[str, Any]) -> list[str]:
    """Describe the parameters and the body of a request."""
    rows = [
        (each["name"], each["schema"], each.get("description", ""), each.get("required", False))
        for each in operation.get("parameters", [])
    ]
    parts = [table_of(rows)] if rows else []
    content = operation.get("requestBody", {}).get("content", {})
    if bodies := [type_of(each["schema"], kind) for kind, each in content.items()]:
        parts.append(f"Body: {', '.join(bodies)}.")
    return parts


def response_of(operation: dict[str, Any]) -> list[str]:
    """Describe the response of a request."""
    content = operation["responses"]["200"].get("content", {})
    found = [type_of(each.get("schema", {}), kind) for kind, each in content.items()]
    return [f"Response: {', '.join(found)}."] if found else []


def fields_of(schema: dict[str, Any]) -> str:
    """Describe the fields of an object."""
    required = schema.get("required", [])
    rows = [
        (name, field, field.get("description", ""), name in required)
        for name, field in schema.get("properties", {}).items()
    ]
    return table_of(rows) if rows else ""


def table_of(rows: list[tuple[str, dict[str, Any], str, bool]]) -> str:
    """Lay out parameters or fields as a table."""
    lines = ["| name | type | default | |", "|---|---|---|---|"]
    for name, schema, description, is_required in rows:
        default = "required" if is_required else ""
        if "default" in schema:
            default = f"`{json.dumps(schema['default'])}`"
        cells = (f"`{name}`", type_of(schema, "any"), default, description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def type_of(schema: dict[str, Any], otherwise: str) -> str:
    """Describe a type in a few words; `otherwise` is that of a schema that says none."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(type_of(each, otherwise) for each in schema[key])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}), 'any')}"
    return str(schema.get("type", otherwise))
