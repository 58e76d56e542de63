"""Queries: one tree form, the notations that lead to it, and what is done with it."""
