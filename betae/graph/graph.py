"""KnowledgeGraph: named entities and relations, three splits, and sorted adjacency.

Relation i of the input becomes two directed relations: 2i as written and 2i + 1, its inverse,
written `~name`. All arrays live in a store of `.npy` files and are memory-mapped, so a graph opens
in milliseconds and processes share its pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.errors import AmbiguousName, StoreError, UnknownEntity, UnknownRelation
from betae.graph.edges import EDGES, SPLITS, Adjacency, Edges, Ids, Split
from betae.graph.integrity import find_fault
from betae.graph.labels import AllLabels, Label, label_names, labels_of
from betae.graph.names import Names, closest, expand, local_name, shorten
from betae.storage import (
    check_parts,
    read_arrays,
    read_manifest,
    write_arrays,
    write_manifest,
    writing_folder,
)

if TYPE_CHECKING:
    import networkx
    import polars as pl

FORMAT_VERSION = 2  # 1 had one label for each entity and no prefixes
INVERSE = "~"
NUM_CLOSEST = 3  # names that an unknown one is answered with
ADJACENCY_PARTS = ("head_offsets", "relations", "tail_offsets", "tails")


class KnowledgeGraph:
    """Entities, relations and edges; make one with `from_triples` or `open`.

    `splits` holds the edges (n, 3) of train, valid and test as (head, relation, tail) with the
    relation in its written direction, i, sorted. `adjacency(edges)` holds those of train,
    train+valid or all in both directions, with the relations 2i and 2i + 1. `prefixes` are those of
    the RDF files it was read from: prefix -> what its IRIs begin with.
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
        entity_all_labels: AllLabels | None = None,
        relation_all_labels: AllLabels | None = None,
        prefixes: Mapping[str, str] = MappingProxyType({}),
    ):
        self.entities, self.relations = entities, relations
        self.entity_labels, self.relation_labels = entity_labels, relation_labels  # one each
        self.entity_all_labels, self.relation_all_labels = entity_all_labels, relation_all_labels
        self.prefixes: Mapping[str, str] = dict(prefixes)
        self.splits, self._adjacencies = splits, adjacencies
        self._fingerprint = fingerprint
        self.ancestors = tuple(ancestors)  # fingerprints of the graph before edges were added
        self.folder: Path | None = None  # where it was opened

    @classmethod
    def from_triples(cls, triples: Any) -> KnowledgeGraph:
        """Build the graph in memory, of what `read_triples` returned or of what it reads.

        That is a list of (head, relation, tail), a polars or pandas frame whose columns say which
        is which, a NumPy array (n, 3), an rdflib graph, or a file.
        """
        from betae.graph.triples import Triples, read_triples

        if not isinstance(triples, Triples):
            triples = read_triples(triples)
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
            label_names(triples.entities, triples.labels),
            label_names(triples.relations, triples.labels),
            entity_all_labels=AllLabels.of(triples.entities, triples.all_labels),
            relation_all_labels=AllLabels.of(triples.relations, triples.all_labels),
            prefixes=triples.prefixes,
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

    def adjacency(self, edges: Edges = "train") -> Adjacency:
        """Return the edges of train, train+valid or all, with their inverses."""
        check_choice("edges", edges, EDGES)
        choices = list(EDGES)
        for candidate in reversed(choices[: choices.index(edges) + 1]):
            if candidate in self._adjacencies:
                return self._adjacencies[candidate]
        raise StoreError("The graph has no training edges.")

    def __repr__(self) -> str:
        return in_words(self._counts())

    # ---- names ----------------------------------------------------------------------------

    def entity_id(self, name: str) -> int:
        """Return the id of an entity by its name, or by a label if only one entity has it.

        An IRI may be shortened by the graph's prefixes: `schema:Person`.
        """
        found = self._find(name, self.entities, self.entity_labels, self.entity_all_labels)
        if len(found) > 1:
            raise AmbiguousName(name, [self.entities[entity] for entity in found])
        if not found:
            labels = self.entity_labels, self.entity_all_labels
            raise UnknownEntity(name, self._closest(name, self.entities, *labels))
        return found[0]

    def relation_id(self, name: str) -> int:
        """Return the id of a directed relation; `~name` is the inverse of `name`."""
        for offset, bare in ((0, name), (1, name.removeprefix(INVERSE))):
            found = self._find(bare, self.relations, self.relation_labels, self.relation_all_labels)
            if len(found) > 1:
                raise AmbiguousName(bare, [self.relations[relation] for relation in found])
            if found:
                return 2 * found[0] + offset
        labels = self.relation_labels, self.relation_all_labels
        offered = self._closest(name.removeprefix(INVERSE), self.relations, *labels)
        raise UnknownRelation(name, offered)

    def entity_label(self, entity: int) -> str:
        """Return what to show a person: the label of the entity, else its name, by a prefix."""
        return shorten((self.entity_labels or self.entities)[entity], self.prefixes)

    def relation_name(self, relation: int) -> str:
        """Return the name of a directed relation, `~name` for an inverse."""
        return (INVERSE if relation % 2 else "") + self.relations[relation // 2]

    def labels_of_entity(self, entity: int) -> list[Label]:
        """Return every label of an entity, the one to show first; none if it has only a name."""
        return labels_of(entity, self.entities, self.entity_labels, self.entity_all_labels)

    def labels_of_relation(self, relation: int) -> list[Label]:
        """Return every label of relation i (of 2i and 2i + 1), the one to show first."""
        return labels_of(relation, self.relations, self.relation_labels, self.relation_all_labels)

    def _find(
        self, name: str, names: Names, labels: Names | None, all_labels: AllLabels | None
    ) -> list[int]:
        found = names.find(name)
        if not found and labels is not None:
            found = labels.find(name)
        if not found and all_labels is not None:
            found = all_labels.find(name)
        return found or names.find(expand(name, self.prefixes))

    def _closest(
        self, name: str, names: Names, labels: Names | None, all_labels: AllLabels | None
    ) -> list[str]:
        """Return what looks most like `name`: labels as they are, and names by their last part."""
        offered = [*names, *(labels or ()), *(all_labels.texts if all_labels else ())]
        texts = [local_name(each) for each in offered]
        found = closest(local_name(expand(name, self.prefixes)), texts, 3 * NUM_CLOSEST)
        distinct = dict.fromkeys(shorten(offered[i], self.prefixes) for i in found)
        return list(distinct)[:NUM_CLOSEST]

    # ---- disk -----------------------------------------------------------------------------

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write the graph to `folder`, whole or not at all."""
        with writing_folder(Path(folder), overwrite) as partial:
            facts = {
                **self._counts(),
                "fingerprint": self.fingerprint,
                "ancestors": self.ancestors,
                "prefixes": dict(self.prefixes),
            }
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
            if (table := Names.from_arrays(arrays, prefix)) is None:
                raise KeyError(f"{prefix}.text")
            return table

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
                Names.from_arrays(arrays, "entity_labels"),
                Names.from_arrays(arrays, "relation_labels"),
                manifest["fingerprint"],
                manifest.get("ancestors", ()),
                AllLabels.from_arrays(arrays, "entity"),
                AllLabels.from_arrays(arrays, "relation"),
                manifest.get("prefixes", {}),
            )
        except KeyError as error:
            raise StoreError(f"{folder} is damaged: its manifest lacks {error}.") from error
        if fault := find_fault(arrays):
            raise StoreError(f"{folder} is damaged: {fault}. Make the graph again.")
        if graph._counts() != {key: manifest.get(key) for key in graph._counts()}:
            raise StoreError(f"{folder} is damaged: the counts in its manifest are wrong.")
        graph.folder = folder.resolve()
        return graph

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the place of its folder, for processes that open it there."""
        from betae.graph.shared import place_of, reopen

        return reopen, (place_of(self), self.fingerprint)

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
                arrays |= names.arrays(prefix)
        if self.entity_all_labels is not None:
            arrays |= self.entity_all_labels.arrays("entity")
        if self.relation_all_labels is not None:
            arrays |= self.relation_all_labels.arrays("relation")
        for edges, adjacency in self._adjacencies.items():
            arrays |= {f"{edges}.{part}": getattr(adjacency, part) for part in ADJACENCY_PARTS}
        for split, triples in self.splits.items():
            arrays[split] = triples
        return arrays

    # ---- changed, and in other forms ------------------------------------------------------

    def extended(self, triples: Any) -> KnowledgeGraph:
        """Return the graph with more training edges, given as `from_triples` takes them.

        Ids stay, new names come after them. Blank nodes of RDF are new nodes each time.
        """
        from betae.graph.append import append_triples

        return append_triples(self, triples)

    def without(self, triples: Any) -> KnowledgeGraph:
        """Return the graph without these edges, in whichever split they are; ids stay."""
        from betae.graph.remove import remove_triples

        return remove_triples(self, triples)[0]

    def export(
        self, path: Path | str, splits: Sequence[Split] = SPLITS, format: str | None = None
    ) -> None:
        """Write the edges of some splits by name to a file, `-` for standard output.

        The file's ending gives the format (.tsv, .csv, .parquet, .nt, .ttl), unless `format` does;
        `.gz` may follow. RDF has the labels too.
        """
        from betae.graph.convert import export_graph

        export_graph(self, Path(path), splits, format)

    def to_polars(self, splits: Sequence[Split] = SPLITS) -> pl.DataFrame:
        """Return the edges of some splits by name: a frame of head, relation and tail."""
        from betae.graph.convert import to_polars

        return to_polars(self, splits)

    def to_networkx(self, splits: Sequence[Split] = SPLITS) -> networkx.MultiDiGraph:
        """Return a networkx graph: nodes by name with their `label`, relations as edge keys."""
        from betae.graph.convert import to_networkx

        return to_networkx(self, splits)

    def _counts(self) -> dict[str, Any]:
        return {
            "entities": self.num_entities,
            "relations": len(self.relations),
            "edges": {split: len(self.splits[split]) for split in SPLITS},
        }


def in_words(counts: Mapping[str, Any]) -> str:
    """Say how large a graph is, by the counts in its manifest."""
    edges = " + ".join(f"{counts['edges'][split]:,} {split}" for split in SPLITS)
    names = f"{counts['entities']:,} entities, {counts['relations']:,} relations"
    return f"KnowledgeGraph({names}, {edges} edges)"
