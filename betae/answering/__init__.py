"""Answers of a trained run: ranked entities, known or predicted, how probable, and why."""
