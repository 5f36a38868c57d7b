"""Metrics for Prometheus with TF Serving's names, so that TF Serving's dashboards work unchanged."""

import prometheus_client

# Upper limits of the buckets for times, in microseconds, as in TF Serving.
_BUCKETS = tuple(10 * 1.8**power for power in range(33))
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MICROSECONDS = 1e6


class Metrics:
    """Counts requests, loaded versions and batches. All methods run in the event loop."""

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        self._requests = self._count(
            ":tensorflow:serving:request_count", "requests by model and status", ("model_name", "status")
        )
        self._loads = self._count(
            ":tensorflow:cc:saved_model:load_attempt_count", "loads of versions by folder", ("model_path", "status")
        )
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

    def _count(self, name: str, help: str, labels: tuple[str, ...]):
        # A Counter would append `_total` to the name.
        return prometheus_client.Gauge(name, help, labels, registry=self._registry)

    def _histogram(self, name: str, help: str, labels: tuple[str, ...], buckets=_BUCKETS):
        return prometheus_client.Histogram(name, help, labels, registry=self._registry, buckets=buckets)

    def on_request(self, model: str, entrypoint: str, status: str, seconds: float) -> None:
        """Counts an answered Predict request; `model` is the name of a served model or ""."""
        self._requests.labels(model, status).inc()
        self._latency.labels(model, "predict", entrypoint).observe(seconds * _MICROSECONDS)

    def on_load(self, folder: str, seconds: float, succeeded: bool) -> None:
        """Counts an attempt to load a version from a model's folder."""
        self._loads.labels(folder, "success" if succeeded else "fail").inc()
        self._load_latency.labels(folder).observe(seconds * _MICROSECONDS)

    def on_batch(self, rows: int, waited: float) -> None:
        """Counts a batch and the seconds that its oldest request waited."""
        self._queuing.observe(waited * _MICROSECONDS)
        self._batch_sizes.observe(rows)

    def page(self) -> bytes:
        return prometheus_client.generate_latest(self._registry)
