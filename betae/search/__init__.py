"""The nearest entities of a query: exactly, by an index, or in a vector database."""
