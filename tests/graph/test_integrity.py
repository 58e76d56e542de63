"""Arrays of a graph that were changed together with their checksums."""

import numpy as np
import pytest

from betae import KnowledgeGraph, StoreError
from tests.manifests import approve_parts


def put(place, value):
    """Set one number of an array."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


ORDER, INSIDE = "out of order", "has an id that is not from 0 to"
FAULTS = {
    "an entity too large in a split": ("train", put((3, 0), 12), INSIDE),
    "a relation too large in a split": ("valid", put((1, 1), 4), INSIDE),
    "a negative entity in a split": ("test", put((0, 2), -1), INSIDE),
    "a tail too large": ("train.tails", put(5, 12), INSIDE),
    "a negative tail": ("all.tails", put(5, -1), INSIDE),
    "a relation too large": ("train+valid.relations", put(0, 8), INSIDE),
    "a negative relation": ("train.relations", put(0, -1), INSIDE),
    "offsets of heads that fall": ("train.head_offsets", put(4, 1_000), ORDER),
    "a negative offset": ("train.head_offsets", put(4, -1), ORDER),
    "offsets of heads that end early": ("train.head_offsets", put(-1, 3), ORDER),
    "offsets of heads that end late": ("train.head_offsets", put(-1, 1_000), ORDER),
    "offsets that begin late": ("train.tail_offsets", put(0, 1), ORDER),
    "offsets of tails that fall": ("all.tail_offsets", put(2, 0), ORDER),
    "a pair without tails": ("all.tail_offsets", lambda old: put(2, old[1])(old), ORDER),
    "offsets that are too few": ("train.head_offsets", lambda old: old[1:], ORDER),
    "offsets of names that fall": ("entities.offsets", put(3, 0), ORDER),
    "names beyond the text": ("relations.offsets", put(-1, 10**6), ORDER),
    "an order beyond the names": ("entities.order", put(0, 12), "not an order of 12 names"),
    "too few labels": ("entity_labels.order", lambda old: old[:-1], "not an order of 12 names"),
    "floats for ids": ("train.tails", lambda old: old.astype(np.float32), "not an array of that"),
    "wide ids": ("train.tails", lambda old: old.astype(np.int64), "not an array of that kind"),
    "two columns": ("valid", lambda old: old[:, :2], "not an array of that kind"),
    "a single number": ("entities.order", lambda old: old[0], "not an array of that kind"),
}


@pytest.mark.parametrize("verify", [None, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(toy_store, fault, verify):
    name, change, words = FAULTS[fault]
    path = toy_store / f"{name}.npy"
    np.save(path, change(np.load(path)))
    approve_parts(toy_store)
    with pytest.raises(StoreError, match=f"toy is damaged: {name.replace('+', '.')}.*{words}"):
        KnowledgeGraph.open(toy_store, verify=verify)


def test_a_graph_of_training_edges_alone_is_sound(write, tmp_path):
    from betae import read_triples

    KnowledgeGraph.from_triples(read_triples(write("facts.tsv", "a\tr\tb\n"))).save(tmp_path / "g")
    assert KnowledgeGraph.open(tmp_path / "g").num_entities == 2
