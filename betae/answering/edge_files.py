"""Missing edges as files: with all that is known of them, or as N-Triples."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from betae.errors import InvalidArgument
from betae.storage import writing_file

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".tsv", ".parquet", ".nt")


def check_format(path: Path) -> None:
    """Raise unless edges can be written to a file of this name."""
    if path.suffix not in FORMATS:
        raise InvalidArgument(f"{path} must end in .tsv, .parquet or .nt.")


def write_edges(edges: pl.DataFrame, path: Path | str) -> None:
    """Write edges to a .tsv or .parquet file with all columns, or as N-Triples (.nt)."""
    path = Path(path)
    check_format(path)
    buffer = io.BytesIO()  # polars' own errors do not tell a full disk from any other
    if path.suffix == ".tsv":
        edges.write_csv(buffer, separator="\t")
    elif path.suffix == ".parquet":
        edges.write_parquet(buffer)
    else:
        for triple in zip(edges["head"], edges["relation"], edges["tail"], strict=True):
            buffer.write(f"{' '.join(map(_iri, triple))} .\n".encode())
    with writing_file(path) as partial:
        partial.write_bytes(buffer.getbuffer())


def _iri(name: str) -> str:
    """Return a name as an IRI: as it is if it is one, else percent-encoded under urn:betae."""
    import pyoxigraph as ox

    if "://" in name or name.startswith("urn:"):
        with suppress(ValueError):
            return str(ox.NamedNode(name))
    return f"<urn:betae:{quote(name, safe='')}>"
