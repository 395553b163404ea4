"""What Prometheus reads: requests by route, and the state of each manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from selector.live import LiveManifests
from selector.report.machine import versions

__all__ = ["Metrics"]

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Metrics:
    """The metrics of one service, apart from those of any other in the process."""

    def __init__(self, live: LiveManifests) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "attnsel_requests", "Requests.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "attnsel_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.rows = Counter("attnsel_batch_rows", "Rows of batches.", registry=self._registry)
        build = Info("attnsel_build", "Which attnsel this is.", registry=self._registry)
        build.info({"version": versions()["attnsel"] or "unknown"})
        self._counters: dict[tuple[str, int], Counter] = {}
        self._times: dict[str, Histogram] = {}
        self._registry.register(_Manifests(live))

    def add(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        key = (route, status)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._requests.labels(route, str(status))
            self._times[route] = self._seconds.labels(route)
        counter.inc()
        self._times[route].observe(seconds)

    def text(self) -> bytes:
        """All of them, in the text form of Prometheus."""
        return generate_latest(self._registry)


class _Manifests(Collector):
    """The state of live manifests, read when somebody asks."""

    def __init__(self, live: LiveManifests) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        """Yields a family for each thing that is known of a manifest."""
        names = ["manifest"]
        generation = GaugeMetricFamily(
            "attnsel_manifest_generation", "Number of the snapshot that is served.", labels=names
        )
        age = GaugeMetricFamily(
            "attnsel_manifest_age_seconds", "Time since it was loaded.", labels=names
        )
        degraded = GaugeMetricFamily(
            "attnsel_manifest_degraded", "1: the file no longer holds what is served.", labels=names
        )
        failures = CounterMetricFamily(
            "attnsel_manifest_failures", "Changes of a file that could not be served.", labels=names
        )
        kept = GaugeMetricFamily(
            "attnsel_manifest_kept", "1: a process that starts again finds it.", labels=names
        )
        for name, live in self._live.items():
            generation.add_metric([name], live.current.generation)
            age.add_metric([name], max(0.0, time.time() - live.current.loaded_at))
            degraded.add_metric([name], float(live.is_degraded))
            failures.add_metric([name], live.failures)
            kept.add_metric([name], float(live.is_kept))
        yield from (generation, age, degraded, failures, kept)
