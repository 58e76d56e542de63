"""The server: a run or a graph behind HTTP, see docs/server.md."""
