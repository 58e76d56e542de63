"""Scoring, products, the entity table and mixed batches, each against the straightforward way.

    python benchmarks/models.py [--repeat 5]

The sizes are those of FB15k-237 (14,505 entities, 474 directed relations) at dim 400, with random
weights. The two sides of a ratio are measured in turn, and the median of several is reported.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.distributions import Beta, kl_divergence

from betae.models import BetaConfig, BetaE
from betae.models.base import inner_products
from betae.models.divergence import entity_table
from betae.models.execute import Group, embed_queries
from betae.queries.ast import Entity, nodes
from betae.queries.structures import STRUCTURES, TRAINING, is_placeholder

NUM_ENTITIES, NUM_RELATIONS = 14_505, 474


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(title: str, slow: Callable[[], float], fast: Callable[[], float], repeat: int) -> None:
    fast()  # compile, allocate
    pairs = [(slow(), fast()) for _ in range(repeat)]
    ratio = statistics.median(one / other for one, other in pairs)
    slow_median, fast_median = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{title}: {1e3 * slow_median:.1f} ms against {1e3 * fast_median:.1f} ms, {ratio:.1f} times"
    )


def benchmark_scoring(model: BetaE, repeat: int) -> None:
    """64 queries against all entities; the slow way on 2 of them, times 32."""
    queries = model.project(model.embed_entities(torch.arange(64)), torch.arange(64))
    table, params = model.table(), model.bound(model.entities).exp()

    def objects() -> float:
        entities = Beta(*params.chunk(2, dim=-1))

        def one_by_one() -> None:
            for query in queries[:2].exp():
                kl_divergence(entities, Beta(*query.chunk(2))).sum(dim=-1).topk(10, largest=False)

        return 32 * seconds(one_by_one)

    def product() -> float:
        return seconds(lambda: model.distance(queries, table).topk(10, largest=False))

    compare("score 64 queries, torch.distributions / product", objects, product, repeat)


def benchmark_products(model: BetaE, repeat: int) -> None:
    """Products of few and many rows with the table, by PyTorch's `@` and by ours."""
    table = model.table()
    for number in (1, 16, 64, 256):
        rows = torch.randn(number, table.shape[1])
        compare(
            f"{number} rows times the table, @ / inner_products",
            lambda rows=rows: seconds(lambda: rows @ table.T),
            lambda rows=rows: seconds(lambda: inner_products(rows, table)),
            repeat,
        )


def benchmark_table(model: BetaE, repeat: int) -> None:
    """The table of all entities and its gradient, by PyTorch's functions and autograd."""
    params = model.bound(model.entities).exp().detach().requires_grad_()
    weight = torch.randn(NUM_ENTITIES, 2 * model.dim + 1)

    def native() -> Callable[[], object]:
        a, b = params.chunk(2, dim=-1)
        s = a + b
        first, second = (torch.digamma(s) - torch.digamma(x) for x in (a, b))
        log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(s)
        offset = -(log_beta + a * first + b * second).sum(dim=-1, keepdim=True)
        return torch.cat([first, second, offset], dim=-1).backward(weight)

    compare(
        "entity table with gradient, PyTorch's functions / ours",
        lambda: seconds(native),
        lambda: seconds(lambda: entity_table(params).backward(weight)),
        repeat,
    )


def benchmark_batch(model: BetaE, repeat: int) -> None:
    """512 queries of the 10 training structures, forward and backward."""
    generator = torch.Generator().manual_seed(0)
    groups, start = [], 0
    for number, name in enumerate(TRAINING):
        size = 52 if number < 2 else 51
        columns = [
            torch.randint(
                NUM_ENTITIES if isinstance(node, Entity) else NUM_RELATIONS,
                (size,),
                generator=generator,
            )
            for node in nodes(STRUCTURES[name])
            if is_placeholder(node)
        ]
        positions = torch.arange(start, start + size)
        groups.append(Group(STRUCTURES[name], torch.stack(columns, dim=1), positions))
        start += size

    def run(batches: list[list[Group]]) -> float:
        def step() -> None:
            model.zero_grad()
            sum(embed_queries(model, batch).sets.square().mean() for batch in batches).backward()

        return seconds(step)

    compare(
        "512 queries of 10 structures forward and backward, one by one / mixed",
        lambda: run([[group] for group in groups]),
        lambda: run([groups]),
        repeat,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    torch.manual_seed(0)
    model = BetaE(NUM_ENTITIES, NUM_RELATIONS, BetaConfig())
    with torch.no_grad():
        benchmark_scoring(model, repeat)
        benchmark_products(model, repeat)
    benchmark_table(model, repeat)
    benchmark_batch(model, repeat)


if __name__ == "__main__":
    main()
