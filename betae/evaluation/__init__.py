"""Measure how good a model is: filtered ranks and what follows from them."""
