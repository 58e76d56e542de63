"""What the server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "betae_requests",
            "Requests by path and status",
            ("path", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "betae_request_seconds", "Time to answer", ("path",), registry=self.registry
        )
        self.under_way = Gauge(
            "betae_requests_under_way", "Requests being answered", registry=self.registry
        )
        self.batches = Histogram(
            "betae_questions_at_once",
            "Questions answered together",
            buckets=SIZES,
            registry=self.registry,
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return all figures in the format of Prometheus."""
        return generate_latest(self.registry)
