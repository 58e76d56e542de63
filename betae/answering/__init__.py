"""Questions to a trained run: ranked entities, known or predicted, how sure, and why."""
