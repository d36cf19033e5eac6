"""What `/metrics` tells Prometheus: requests, their time, batches, what waits, decisions. Never what a text says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}


class Monitoring:
    """The counters of one server, apart from those of any other in the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "laha_requests", "requests answered", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = self._histogram("laha_request_seconds", "from head to answer", SECONDS, ["route"])
        self._batches = self._histogram("laha_batch_texts", "texts the model read at once", TEXTS)
        self._model = self._histogram("laha_batch_seconds", "time of the model for a batch", SECONDS)
        self._decisions = Counter("laha_decisions", "decisions kept", ["decision"], registry=self.registry)
        self._ready = Gauge("laha_ready", "1 once the model can answer", registry=self.registry)
        self._waiting = Gauge("laha_texts_waiting", "texts that wait for the model", registry=self.registry)
        self._in_work = Gauge("laha_requests_in_work", "requests in work", registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
        return Histogram(name, what, labels, registry=self.registry, buckets=buckets)

    def watch(self, ready: Callable[[], float], waiting: Callable[[], float], in_work: Callable[[], float]) -> None:
        """Say where the gauges read."""
        self._ready.set_function(ready)
        self._waiting.set_function(waiting)
        self._in_work.set_function(in_work)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; routes and methods that do not exist count as one, lest clients invent names."""
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, texts: int, seconds: float) -> None:
        """Count a batch."""
        self._batches.observe(texts)
        self._model.observe(seconds)

    def decision(self, decision: str) -> None:
        """Count a decision."""
        self._decisions.labels(decision).inc()

    def text(self) -> bytes:
        """Return the metrics in Prometheus' format."""
        return generate_latest(self.registry)
