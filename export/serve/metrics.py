"""Metrics for Prometheus with TF Serving's names, so that TF Serving's dashboards work unchanged."""

import collections
from collections.abc import Iterator

import prometheus_client
from prometheus_client import registry
from prometheus_client.metrics_core import Metric

# Upper limits of the buckets for times, in microseconds, as in TF Serving.
_BUCKETS = tuple(10 * 1.8**power for power in range(33))
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MICROSECONDS = 1e6


class Metrics:
    """Counts requests, loaded versions and batches. All methods run in the event loop."""

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        self._requests = _Counts(
            ":tensorflow:serving:request_count", "requests by model and status", ("model_name", "status")
        )
        self._loads = _Counts(
            ":tensorflow:cc:saved_model:load_attempt_count", "loads of versions by folder", ("model_path", "status")
        )
        for counts in (self._requests, self._loads):
            self._registry.register(counts)
        self._latency = self._histogram(
            ":tensorflow:serving:request_latency", "microseconds for reading and answering a request",
            ("model_name", "API", "entrypoint"),
        )  # fmt: skip
        self._load_latency = self._histogram(
            ":tensorflow:cc:saved_model:load_latency", "microseconds to load and warm up a version", ("model_path",)
        )
        self._queuing = self._histogram(
            ":tensorflow:serving:batching_session:queuing_latency",
            "microseconds that the oldest request of a batch waited", (),
        )  # fmt: skip
        self._batch_sizes = self._histogram(
            ":tensorflow:serving:batching_session:batch_size", "rows of a batch", (), _BATCH_SIZES
        )

    def _histogram(self, name: str, help: str, labels: tuple[str, ...], buckets=_BUCKETS):
        return prometheus_client.Histogram(name, help, labels, registry=self._registry, buckets=buckets)

    def on_request(self, model: str, entrypoint: str, status: str, seconds: float) -> None:
        """Counts an answered Predict request; `model` is the name of a served model or ""."""
        self._requests.add(model, status)
        self._latency.labels(model, "predict", entrypoint).observe(seconds * _MICROSECONDS)

    def on_load(self, folder: str, seconds: float, succeeded: bool) -> None:
        """Counts an attempt to load a version from a model's folder."""
        self._loads.add(folder, "success" if succeeded else "fail")
        self._load_latency.labels(folder).observe(seconds * _MICROSECONDS)

    def on_batch(self, rows: int, waited: float) -> None:
        """Counts a batch and the seconds that its oldest request waited."""
        self._queuing.observe(waited * _MICROSECONDS)
        self._batch_sizes.observe(rows)

    def page(self) -> bytes:
        """Returns the page that Prometheus reads."""
        return prometheus_client.generate_latest(self._registry)


class _Counts(registry.Collector):
    """A counter with the given name. The counters of prometheus_client would append `_total` to the name."""

    def __init__(self, name: str, help: str, labels: tuple[str, ...]):
        self._name, self._help, self._labels = name, help, labels
        self._counts: collections.Counter[tuple[str, ...]] = collections.Counter()

    def add(self, *labels: str) -> None:
        self._counts[labels] += 1

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, self._help, "untyped")
        for labels, count in self._counts.items():
            metric.add_sample(self._name, dict(zip(self._labels, labels, strict=True)), count)
        yield metric
