"""A graph in other processes, here or on other machines: each opens it from its folder."""

from __future__ import annotations

from functools import lru_cache

from betae.errors import InvalidArgument, StoreError
from betae.graph.graph import KnowledgeGraph
from betae.remote import address_of, local_folder


def place_of(graph: KnowledgeGraph) -> str:
    """Return the path or address of a graph's folder; raise if it is in memory only."""
    if graph.folder is None:
        raise InvalidArgument(
            "The graph is in memory only, where no other process can open it: save it, and use "
            "KnowledgeGraph.open."
        )
    return address_of(graph.folder)


@lru_cache(maxsize=2)
def reopen(place: str, fingerprint: str) -> KnowledgeGraph:
    """Open a graph that was pickled in another process; raise if it is not the same one."""
    graph = KnowledgeGraph.open(local_folder(place))
    if graph.fingerprint != fingerprint:
        raise StoreError(
            f"{place} holds another graph here: its fingerprint is {graph.fingerprint[:12]}…, not "
            f"{fingerprint[:12]}…"
        )
    return graph
