"""Questions with several variables and cycles: betae's joins against pyoxigraph.

    python benchmarks/joins.py FB15K237

FB15K237 is a folder of that graph, made by `betae ingest`. Both start from the open graph and find
all rows. pyoxigraph gets only the relations of the question;
the time to load them is shown apart, and so is that of the whole graph, which a store that is kept
for several questions needs.
"""

import sys
from itertools import islice
from time import perf_counter

import numpy as np
import pyoxigraph as ox

from betae import KnowledgeGraph
from betae.exact.select import select
from betae.queries.read import read_question

MOST = 2_000_000  # rows that pyoxigraph is asked for
RELATIONS = {  # of FB15k-237
    "nominee": "/award/award_nominee/award_nominations./award/award_nomination/award_nominee",
    "award": "/award/award_nominee/award_nominations./award/award_nomination/award",
    "acts_in": "/film/actor/film./film/performance/film",
    "genre": "/film/film/genre",
    "profession": "/people/person/profession",
    "nationality": "/people/person/nationality",
}
QUESTIONS = {
    "nominated together: triangle": "?x :nominee ?y . ?y :nominee ?z . ?z :nominee ?x",
    "the same award, together": "?x :nominee ?y . ?x :award ?z . ?y :award ?z",
    "square of actors and films": "?x :acts_in ?f . ?y :acts_in ?f . ?x :acts_in ?g . "
    "?y :acts_in ?g FILTER(?x != ?y && ?f != ?g)",
    "actors and genres": "?x :acts_in ?f . ?f :genre ?g",
    "not mutual": "?x :nominee ?y MINUS { ?y :nominee ?x }",
    "compatriots of one profession": "?x :nationality ?n . ?y :nationality ?n . "
    "?x :nominee ?y . ?x :profession ?p . ?y :profession ?p",
    "the same profession": "?x :profession ?p . ?y :profession ?p FILTER(?x != ?y)",
}


def main(folder: str) -> None:
    graph = KnowledgeGraph.open(folder)
    triples = np.concatenate(list(graph.written_ids.values()))
    entity = [ox.NamedNode(f"e:{number}") for number in range(graph.num_entities)]
    relation = [ox.NamedNode(f"r:{number}") for number in range(len(graph.relations))]

    def store_of(chosen: np.ndarray) -> ox.Store:
        store = ox.Store()
        store.bulk_extend(ox.Quad(entity[h], relation[r], entity[t]) for h, r, t in chosen.tolist())
        return store

    started = perf_counter()
    store_of(triples)
    print(f"all {len(triples):,} edges into pyoxigraph: {perf_counter() - started:.1f} s")
    read_question(f"SELECT * {{ ?x <{graph.relations[0]}> ?y }}", graph)  # imports the parser
    print(f"{'question':32}{'rows':>12}{'betae, s':>10}{'load, s':>10}{'pyoxigraph, s':>15}")
    for name, pattern in QUESTIONS.items():
        ours = theirs = pattern
        used = []
        for short, long in RELATIONS.items():
            if f":{short} " in pattern:
                number = graph.relation_id(long) // 2
                used.append(number)
                ours = ours.replace(f":{short}", f"<{long}>")
                theirs = theirs.replace(f":{short}", f"<r:{number}>")
        started = perf_counter()
        asked = read_question(f"SELECT * {{ {ours} }}", graph)
        rows = sum(len(piece) for piece in select(graph, asked).ids())
        own = perf_counter() - started
        started = perf_counter()
        store = store_of(triples[np.isin(triples[:, 1], used)])
        load = perf_counter() - started
        started = perf_counter()
        solutions = store.query(f"SELECT DISTINCT * {{ {theirs} }}")
        found = sum(1 for _ in islice(solutions, MOST))
        theirs_took = perf_counter() - started
        assert found == min(rows, MOST), (found, rows)
        first = "" if rows <= MOST else f" for the first {MOST:,}"
        print(f"{name:32}{rows:>12,}{own:>10.2f}{load:>10.2f}{theirs_took:>15.2f}{first}")


if __name__ == "__main__":
    main(sys.argv[1])
