"""KnowledgeGraph: named entities and relations, three splits, and sorted adjacency.

Relation i of the input becomes two directed relations: 2i as written and 2i + 1, its inverse,
written `~name`. All arrays live in a store of `.npy` files and are memory-mapped, so a graph opens
in milliseconds and processes share its pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.errors import AmbiguousName, StoreError, UnknownEntity, UnknownRelation
from betae.graph.edges import EDGES, SPLITS, Adjacency, Edges, Ids, Split
from betae.graph.integrity import find_fault
from betae.graph.names import Names
from betae.storage import (
    check_parts,
    read_arrays,
    read_manifest,
    write_arrays,
    write_manifest,
    writing_folder,
)

if TYPE_CHECKING:
    from betae.graph.triples import Triples

FORMAT_VERSION = 1
INVERSE = "~"
NAMES_PARTS = ("text", "offsets", "order")
ADJACENCY_PARTS = ("head_offsets", "relations", "tail_offsets", "tails")


class KnowledgeGraph:
    """Entities, relations and edges; make one with `from_triples` or `open`.

    `splits` holds the edges (n, 3) of train, valid and test as (head, relation, tail) with the
    relation in its written direction, i, sorted. `adjacency(edges)` holds those of train,
    train+valid or all in both directions, with the relations 2i and 2i + 1.
    """

    def __init__(
        self,
        entities: Names,
        relations: Names,
        splits: dict[Split, Ids],
        adjacencies: dict[Edges, Adjacency],
        entity_labels: Names | None = None,
        relation_labels: Names | None = None,
        fingerprint: str | None = None,
        ancestors: Sequence[str] = (),
    ):
        self.entities, self.relations = entities, relations
        self.entity_labels, self.relation_labels = entity_labels, relation_labels
        self.splits, self._adjacencies = splits, adjacencies
        self._fingerprint = fingerprint
        self.ancestors = tuple(ancestors)  # fingerprints of the graph before edges were added
        self.folder: Path | None = None  # where it was opened

    @classmethod
    def from_triples(cls, triples: Triples) -> KnowledgeGraph:
        """Build the graph in memory."""
        num_entities, num_relations = len(triples.entities), len(triples.relations)
        adjacencies: dict[Edges, Adjacency] = {}
        for edges, splits in EDGES.items():
            if edges != "train" and not len(triples.splits[splits[-1]]):
                continue  # no more edges than the choice before: `adjacency` falls back to that
            chosen = np.concatenate([triples.splits[split] for split in splits])
            adjacencies[edges] = Adjacency.from_triples(chosen, num_entities, num_relations)
        return cls(
            Names.from_strings(triples.entities),
            Names.from_strings(triples.relations),
            triples.splits,
            adjacencies,
            _label_names(triples.entities, triples.labels),
            _label_names(triples.relations, triples.labels),
        )

    # ---- size and parts -------------------------------------------------------------------

    @property
    def num_entities(self) -> int:
        """Number of entities."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """Number of directed relations: twice the number of relation names."""
        return 2 * len(self.relations)

    @property
    def prefixes(self) -> Mapping[str, str]:
        """Prefixes of IRIs, prefix -> IRI."""
        return {}

    def adjacency(self, edges: Edges = "train") -> Adjacency:
        """Return the edges of train, train+valid or all, with their inverses."""
        check_choice("edges", edges, EDGES)
        choices = list(EDGES)
        for candidate in reversed(choices[: choices.index(edges) + 1]):
            if candidate in self._adjacencies:
                return self._adjacencies[candidate]
        raise StoreError("The graph has no training edges.")

    def __repr__(self) -> str:
        edges = " + ".join(f"{len(self.splits[split]):,} {split}" for split in SPLITS)
        return (
            f"KnowledgeGraph({self.num_entities:,} entities, {len(self.relations):,} relations, "
            f"{edges} edges)"
        )

    # ---- names ----------------------------------------------------------------------------

    def entity_id(self, name: str) -> int:
        """Return the id of an entity by its name, or by its label if only one entity has it."""
        found = self.entities.find(name)
        if not found and self.entity_labels is not None:
            found = self.entity_labels.find(name)
        if len(found) > 1:
            raise AmbiguousName(name, [self.entities[entity] for entity in found])
        if not found:
            raise UnknownEntity(name, self._closest(name, self.entities, self.entity_labels))
        return found[0]

    def relation_id(self, name: str) -> int:
        """Return the id of a directed relation; `~name` is the inverse of `name`."""
        for offset, bare in ((0, name), (1, name.removeprefix(INVERSE))):
            found = self.relations.find(bare)
            if not found and self.relation_labels is not None:
                found = self.relation_labels.find(bare)
            if len(found) > 1:
                raise AmbiguousName(bare, [self.relations[relation] for relation in found])
            if found:
                return 2 * found[0] + offset
        raise UnknownRelation(
            name, self._closest(name.removeprefix(INVERSE), self.relations, self.relation_labels)
        )

    def entity_label(self, entity: int) -> str:
        """Return what to show a person: the label of the entity, else its name."""
        return (self.entity_labels or self.entities)[entity]

    def relation_name(self, relation: int) -> str:
        """Return the name of a directed relation, `~name` for an inverse."""
        return (INVERSE if relation % 2 else "") + self.relations[relation // 2]

    def _closest(self, name: str, names: Names, labels: Names | None) -> list[str]:
        return (labels or names).closest(name)

    # ---- disk -----------------------------------------------------------------------------

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write the graph to `folder`, whole or not at all."""
        with writing_folder(Path(folder), overwrite) as partial:
            facts = {**self._counts(), "fingerprint": self.fingerprint, "ancestors": self.ancestors}
            write_arrays(partial, self._arrays())
            write_manifest(partial, "graph", FORMAT_VERSION, facts)

    @classmethod
    def open(cls, folder: Path | str, verify: bool | None = None) -> KnowledgeGraph:
        """Memory-map a graph.

        Sizes, offsets and ids are always checked. `verify=True` compares every checksum,
        `verify=False` none; by default all of a graph up to 64 MiB, and those of the parts of a
        larger one that were modified since it was written.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "graph", FORMAT_VERSION)
        check_parts(folder, manifest, verify)
        arrays = read_arrays(folder, manifest)

        def names(prefix: str) -> Names:
            return Names(**{part: arrays[f"{prefix}.{part}"] for part in NAMES_PARTS})

        try:
            graph = cls(
                names("entities"),
                names("relations"),
                {split: arrays[split] for split in SPLITS},
                {
                    edges: Adjacency(
                        **{part: arrays[f"{edges}.{part}"] for part in ADJACENCY_PARTS}
                    )
                    for edges in EDGES
                    if f"{edges}.tails" in arrays
                },
                names("entity_labels") if "entity_labels.text" in arrays else None,
                names("relation_labels") if "relation_labels.text" in arrays else None,
                manifest["fingerprint"],
                manifest.get("ancestors", ()),
            )
        except KeyError as error:
            raise StoreError(f"{folder} is damaged: its manifest lacks {error}.") from error
        if fault := find_fault(arrays):
            raise StoreError(f"{folder} is damaged: {fault}. Make the graph again.")
        if graph._counts() != {key: manifest.get(key) for key in graph._counts()}:
            raise StoreError(f"{folder} is damaged: the counts in its manifest are wrong.")
        graph.folder = folder.resolve()
        return graph

    @property
    def fingerprint(self) -> str:
        """A hash of names and edges: equal for equal graphs, whatever order they were read in."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for names in (self.entities, self.relations):
                digest.update(names.text.data)
                digest.update(names.offsets.data)
            for split in SPLITS:
                digest.update(np.ascontiguousarray(self.splits[split]).data)
                digest.update(b"/")
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return every part of the store by its file name."""
        tables = {
            "entities": self.entities,
            "relations": self.relations,
            "entity_labels": self.entity_labels,
            "relation_labels": self.relation_labels,
        }
        arrays: dict[str, NDArray[Any]] = {}
        for prefix, names in tables.items():
            if names is not None:
                arrays |= {f"{prefix}.{part}": getattr(names, part) for part in NAMES_PARTS}
        for edges, adjacency in self._adjacencies.items():
            arrays |= {f"{edges}.{part}": getattr(adjacency, part) for part in ADJACENCY_PARTS}
        for split, triples in self.splits.items():
            arrays[split] = triples
        return arrays

    def export(self, path: Path | str, splits: Sequence[Split] = SPLITS) -> None:
        """Write the edges of some splits by name to a .tsv, .csv or .parquet file."""
        import polars as pl

        from betae.graph.formats import COLUMNS, write_table

        triples = np.concatenate([self.splits[split] for split in splits])
        entities, relations = pl.Series(list(self.entities)), pl.Series(list(self.relations))
        columns = zip(COLUMNS, (entities, relations, entities), triples.T, strict=True)
        frame = pl.DataFrame({column: names[ids] for column, names, ids in columns})
        write_table(frame, Path(path))

    def _counts(self) -> dict[str, Any]:
        return {
            "entities": self.num_entities,
            "relations": len(self.relations),
            "edges": {split: len(self.splits[split]) for split in SPLITS},
        }


def _label_names(names: Sequence[str], labels: dict[str, str]) -> Names | None:
    """Return a label for every name (the name itself where it has none), or None if none has."""
    if not labels or not any(name in labels for name in names):
        return None
    return Names.from_strings([labels.get(name, name) for name in names])
