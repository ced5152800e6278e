"""Prometheus metrics. Each proxy has its own registry."""

from __future__ import annotations

from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


M = TypeVar("M", Counter, Histogram)


class Metrics:
    """The counters of one proxy."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "onrecord_rollout_answers",
            "Chat requests by the status of their answer",
            ["status"],
            registry=self.registry,
        )
        self.turns = Counter(
            "onrecord_rollout_turns", "Recorded turns by how they ended", ["finish"], registry=self.registry
        )
        self.tokens = Counter(
            "onrecord_rollout_tokens", "Recorded token ids by origin", ["what"], registry=self.registry
        )
        self.retries = Counter("onrecord_rollout_retries", "Retries of aborted turns", registry=self.registry)
        self.replays = Counter(
            "onrecord_rollout_replays", "Lost replies answered from the record", registry=self.registry
        )
        self.joined = Counter(
            "onrecord_rollout_joined", "Duplicate requests that joined a running turn", registry=self.registry
        )
        self.rehydrated = Counter(
            "onrecord_rollout_rehydrated", "Sessions loaded from their log", registry=self.registry
        )
        self.evicted = Counter("onrecord_rollout_evicted", "Sessions evicted from memory", registry=self.registry)
        self.in_flight = Gauge("onrecord_rollout_turns_in_flight", "Running turns", registry=self.registry)
        self.in_memory = Gauge("onrecord_rollout_sessions_in_memory", "Sessions in memory", registry=self.registry)
        self.upstream_seconds = Histogram(
            "onrecord_rollout_upstream_seconds", "How long engines took", buckets=_SECONDS, registry=self.registry
        )
        self.record_seconds = Histogram(
            "onrecord_rollout_record_seconds", "How long recording a step of a turn took", ["step"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip

        self._found: dict[tuple[Counter | Histogram, str], Any] = {}

    def labelled(self, metric: M, label: str) -> M:
        """A metric with its label; looking that up in the library costs more than counting."""
        found: M | None = self._found.get((metric, label))
        if found is None:
            found = self._found[metric, label] = metric.labels(label)
        return found

    def recorded(self, step: str, seconds: float) -> None:
        """Count how long a step took."""
        self.labelled(self.record_seconds, step).observe(seconds)

    def page(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return bytes(generate_latest(self.registry))
