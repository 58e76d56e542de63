"""Graphs: names, edges, readers and writers of triples, KnowledgeGraph."""
