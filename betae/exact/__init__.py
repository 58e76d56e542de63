"""Exact answers: compiled sets of entities, traversal, derivations."""
