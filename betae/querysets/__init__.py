"""Sets of queries with their answers, on disk and sampled from a graph."""
