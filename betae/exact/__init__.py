"""Exact answers: compiled loops for trees, joins for questions of any shape."""
