"""Rules mined from a graph: short paths that predict edges, and the evidence they give."""
