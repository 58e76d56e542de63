"""Graphs: names, edges, files of triples, and KnowledgeGraph."""
