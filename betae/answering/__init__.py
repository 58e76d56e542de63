"""Answers of a trained run: ranked entities, known or predicted, with probabilities and reasons.

results        Answers, what a person gets; Ranking, what a ranker returns
answerer       Answerer: from questions to answers; opens the rankers of a run's folder

over the completed graph, in which every missing edge has a probability:
edges          the probability of a missing edge, from rules, scores of models and counts of edges
scores         scores of models: what needs torch
sparse         the same probabilities by rules alone, as sparse rows
edge_fit       fits the weights of that probability on validation edges
completed      CompletedGraph: rows of probabilities, cached
whole          what embeddings of whole questions add
identities     simplifies a query, so that what is said twice counts once
truth          evaluates queries: a truth value for every entity
by_completion  ranker: entities by truth value, explained by their best derivation
by_parts       the same for a large graph, over the part of it around a question
missing        the most probable missing edges, as a table or a file

by distance from the embedding of the whole question:
calibration    from distances and ranks to probabilities
by_embedding   ranker: entities by distance, all of them or those that an index finds
"""
