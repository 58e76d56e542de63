"""What the tests of evaluation share: evaluations made by hand, and readers of pages."""

from dataclasses import replace
from html.parser import HTMLParser

from markdown_it import MarkdownIt  # rich brings it

from betae.evaluation.results import (
    Average,
    Correlation,
    CountError,
    EmptyResult,
    Evaluation,
    GraphFacts,
    MissingResult,
    QueryFacts,
    RankMetrics,
    StructureResult,
    save_evaluation,
)
from betae.evaluation.tables import make_tables
from betae.queries.structures import EPFO, NEGATION

FB237, NELL = (14505, 237), (63361, 200)
BETAE, QUERY2BOX = {"kind": "betae"}, {"kind": "query2box"}
ODD = "a<b> & c|d"  # a name of a run
OWN = '?X . r("<p> & q", ?X) | !_(_, ?X)'  # a structure of a user's own


# ---- evaluations ------------------------------------------------------------------------------


def metrics(mrr):
    return RankMetrics(mrr, mrr - 4, mrr + 4, mrr + 8, 10)


def result(mrr, num_edges=1, missing=None, strict_mrr=None, **more):
    by_missing = missing or {1: MissingResult(mrr, 10)}
    interval = (mrr - 2, mrr + 2)
    return StructureResult(
        metrics(mrr), interval, metrics(5.0), num_edges, by_missing, strict_mrr, 2.0, **more
    )


def uncertain(mrr, spearman=0.5, pearson=0.25):
    """The result of a structure whose uncertainty is measured."""
    return result(
        mrr,
        correlation=Correlation(spearman, pearson),
        count_error=CountError(1.5, 2.5),
        points=[(0.5, 3), (1.5, 9)],
    )


def evaluation(
    structures,
    model_name="betae",
    counts=(30, 3),
    origin=None,
    cannot=(),
    empty=None,
    split="test",
    fingerprint="f" * 64,
    num_queries=1000,
    method="embedding",
    predictors=(),
    run="",
    name="",
):
    """An evaluation with these results, or MRRs, by structure."""
    results = {k: v if isinstance(v, StructureResult) else result(v) for k, v in structures.items()}
    averages = {}
    for kind, members in {"EPFO": EPFO, "negation": NEGATION}.items():
        there = [name for name in members if name in results]
        if there:
            mrr = sum(results[name].metrics.mrr for name in there) / len(there)
            averages[kind] = Average(there, metrics(mrr), (mrr - 1, mrr + 1), metrics(5.0))
    return Evaluation(
        model_name,
        GraphFacts(fingerprint, *counts),
        QueryFacts(split, origin or {"source": "sampled"}, num_queries),
        results,
        averages,
        list(cannot),
        {name: EmptyResult(area, 9, 9, [(0.0, 0.0), (1.0, 1.0)]) for name, area in empty.items()}
        if empty
        else {},
        1.0,
        method,
        list(predictors),
        run,
        name,
    )


def kept(*arguments, run="run", name="queries", **keywords):
    """An evaluation as it is read from its run."""
    return evaluation(*arguments, run=run, name=name, **keywords)


def save(folder, *arguments, name="queries", **keywords):
    """Put an evaluation into a run; return the run."""
    folder.mkdir(exist_ok=True)
    save_evaluation(kept(*arguments, run=folder.name, name=name, **keywords), folder)
    return folder


def table_of(evaluations, title):
    return next(table for table in make_tables(evaluations) if table.title.startswith(title))


def row_of(table, label):
    """The one row of that label, as column: cell."""
    (cells,) = [cells for name, cells in table.rows if name == label]
    return dict(zip(table.columns, cells, strict=True))


def labels_of(table):
    return [label for label, _ in table.rows]


# ---- evaluating -------------------------------------------------------------------------------


def evaluate(model, graph, queries, empty_queries=0, **options):
    """Evaluate a model by embedding, by default without the slow test of empty queries."""
    from betae.evaluation.evaluate import evaluate  # imports torch, which few tests need
    from betae.evaluation.ranks import EmbeddingRanker

    return evaluate(EmbeddingRanker(model), graph, queries, empty_queries=empty_queries, **options)


def only(queries, *names):
    """Some structures of a query set."""
    return replace(queries, blocks={name: queries.blocks[name] for name in names})


# ---- pages ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """HTML taken apart; it must be well formed. A table is a list of rows, of texts of cells."""

    EMPTY = ("meta", "img", "hr", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.headings, self.links, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for key, value in attributes if key.endswith(("href", "src"))]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings[-1] += data
        elif self.open and self.open[-1] in ("table", "tr", "thead", "tbody"):
            assert not data.strip()


def from_markdown(text):
    return Page(MarkdownIt("commonmark").enable("table").render(text))
