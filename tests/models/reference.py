"""Small models with lively weights, and the obvious way to evaluate queries and Betas."""

import torch
from hypothesis import strategies as st

from betae.models import (
    GQE,
    BetaConfig,
    BetaE,
    ComplEx,
    ComplexConfig,
    GQEConfig,
    Query2Box,
    Query2BoxConfig,
)
from betae.models.store import write_model
from betae.queries.ast import And, Entity, Not, Project, Query, nodes, rebuild
from betae.queries.rewrite import dnf_branches, num_branches, to_de_morgan
from betae.queries.structures import STRUCTURES, fill, num_symbols, structure_of
from betae.storage import writing_folder
from tests.queries.strategies import trees

NUM_ENTITIES, NUM_RELATIONS = 12, 4
NUM_ANCHORS = 8  # random queries start from these; the others are only ever scored
MODELS = {
    "betae": (BetaE, BetaConfig(dim=4, hidden=6, layers=2)),
    "beta as released": (
        BetaE,
        BetaConfig(dim=4, hidden=16, layers=1, projection="concatenated", bound="clamp"),
    ),
    "query2box": (Query2Box, Query2BoxConfig(dim=5, inside=0.3)),
    "gqe": (GQE, GQEConfig(dim=6)),
    "complex": (ComplEx, ComplexConfig(dim=4)),
}
SET_MODELS = [name for name in MODELS if name != "complex"]  # they embed more than single steps
BETA_CONFIGS = {
    f"{projection}, {bound}": BetaConfig(dim=4, hidden=6, projection=projection, bound=bound)
    for projection in ("modulated", "concatenated")
    for bound in ("smooth", "clamp")
}
ALL_TREES = trees(NUM_ANCHORS, NUM_RELATIONS)
SINGLE_STEPS = st.builds(
    Project,
    st.builds(Entity, st.integers(0, NUM_ANCHORS - 1)),
    st.integers(0, NUM_RELATIONS - 1),
)
can_negate = {name: name.startswith("betae") for name in MODELS}


def enliven(model, seed=0, spread=0.5):
    """Give every parameter a random value, so that nothing is zero or one by its initialisation."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(spread * drawn)
    return model


def make_model(name, dtype=torch.float32, seed=0):
    kind, config = MODELS[name]
    return enliven(kind(NUM_ENTITIES, NUM_RELATIONS, config), seed).to(dtype)


def without_complements(query):
    return rebuild(query, lambda node: node.operand if isinstance(node, Not) else node)


def is_small(query):
    return sum(1 for _ in nodes(query)) <= 40 and num_branches(query) <= 24


@st.composite
def queries_for(draw, name):
    """Random queries with every operator that the model has, at most five operators deep."""
    if name == "complex":
        return draw(SINGLE_STEPS)
    query = draw(ALL_TREES)
    if not can_negate[name]:
        query = without_complements(query)
    while not is_small(query):
        query = query.operands[-1]
    return query


def batches_for(name, most=5):
    return st.lists(queries_for(name), min_size=1, max_size=most)


# ---- the obvious way ----------------------------------------------------------------------------


def embed_slowly(model, query: Query):
    """Evaluate a query without unions by recursion: (width,)."""
    values = [embed_slowly(model, operand) for operand in query.operands]
    match query:
        case Entity(name):
            return model.embed_entities(torch.tensor([name]))[0]
        case Project(_, relation):
            return model.project(values[0][None], torch.tensor([relation]))[0]
        case Not():
            return model.negate(values[0][None])[0]
        case And():
            return model.intersect(torch.stack(values)[None])[0]
    raise AssertionError(query)


def normal_form(query: Query, union: str) -> list[Query]:
    """Rewrite unions in the query's shape: operands that happen to be the same stay apart."""
    structure, symbols = structure_of(query)
    numbered = fill(structure, range(len(symbols)))
    branches = dnf_branches(numbered) if union == "DNF" else [to_de_morgan(numbered)]

    def put_symbols(node):
        if isinstance(node, Entity):
            return Entity(symbols[node.name])
        return Project(node.operand, symbols[node.relation]) if isinstance(node, Project) else node

    return [rebuild(branch, put_symbols) for branch in branches]


def score_slowly(model, queries, table, union="DNF"):
    """Score query by query, branch by branch; the best branch counts."""
    rows = []
    for query in queries:
        branches = [embed_slowly(model, branch) for branch in normal_form(query, union)]
        distances = [model.distance(branch[None], table)[0] for branch in branches]
        rows.append(torch.stack(distances).amin(dim=0))
    return torch.stack(rows)


def betas(params):
    """Return the rows of parameters as distributions, in float64."""
    return torch.distributions.Beta(*params.double().chunk(2, dim=-1))


def kl_slowly(queries, entities):
    """Return sum KL(entity || query) through torch.distributions: (num_queries, num_entities)."""
    every_query, every_entity = betas(queries[:, None]), betas(entities[None])
    return torch.distributions.kl_divergence(every_entity, every_query).sum(dim=-1)


def assert_close(found, expected, tolerance):
    """Compare within `tolerance` times the largest number (or 1)."""
    assert found.shape == expected.shape
    assert torch.isfinite(expected).all()
    found, expected = found.detach().double(), expected.detach().double()
    scale = max(1.0, float(expected.abs().max()))
    worst = float((found - expected).abs().max())
    assert worst <= tolerance * scale, f"off by {worst}, with numbers up to {scale}"


def grounded(structure, number):
    """Return some queries of a named structure."""
    shape = STRUCTURES[structure]
    size = num_symbols(shape)
    return [
        fill(shape, [(3 * i + 5 * row) % NUM_RELATIONS for i in range(size)])
        for row in range(number)
    ]


MIXED = [query for structure in STRUCTURES for query in grounded(structure, 2)]


def mixed_for(name):
    """Return the mixed batch in an order that is not that of its structures."""
    if name == "complex":
        return grounded("1p", 12)
    batch = [query for query in MIXED if can_negate[name] or not any_not(query)]
    return batch[::2] + batch[1::2]


def any_not(query):
    return any(isinstance(node, Not) for node in nodes(query))


class Spy(BetaE):
    """BetaE that remembers the shapes it was called with."""

    def __init__(self):
        super().__init__(NUM_ENTITIES, NUM_RELATIONS, MODELS["betae"][1])
        self.calls = {verb: [] for verb in ("embed", "project", "intersect", "negate", "distance")}

    def embed_entities(self, ids):
        self.calls["embed"].append(len(ids))
        return super().embed_entities(ids)

    def project(self, sets, relations):
        self.calls["project"].append(len(sets))
        return super().project(sets, relations)

    def intersect(self, sets):
        self.calls["intersect"].append(tuple(sets.shape[:2]))
        return super().intersect(sets)

    def negate(self, sets):
        self.calls["negate"].append(len(sets))
        return super().negate(sets)

    def distance(self, sets, table):
        self.calls["distance"].append((len(sets), len(table)))
        return super().distance(sets, table)


def save_model(model, folder, graph_fingerprint="", overwrite=False):
    """Write a model to a folder, as a run does."""
    with writing_folder(folder, overwrite) as partial:
        write_model(model, partial, graph_fingerprint)
