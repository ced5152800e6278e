"""What the proxy tells Prometheus. Each proxy counts for itself, in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The counters of one proxy."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "onrecord_rollout_answers", "Chat requests by how they were answered", ["status"], registry=self.registry
        )
        self.turns = Counter(
            "onrecord_rollout_turns", "Turns by how they ended on record", ["finish"], registry=self.registry
        )
        self.tokens = Counter(
            "onrecord_rollout_tokens", "Token ids put on record, by what they are", ["what"], registry=self.registry
        )
        self.retries = Counter("onrecord_rollout_retries", "Aborted turns asked again", registry=self.registry)
        self.replays = Counter(
            "onrecord_rollout_replays", "Lost replies answered from the record", registry=self.registry
        )
        self.joined = Counter(
            "onrecord_rollout_joined", "Duplicates in flight that got the first one's answer", registry=self.registry
        )
        self.rehydrated = Counter(
            "onrecord_rollout_rehydrated", "Sessions brought back from their log", registry=self.registry
        )
        self.evicted = Counter("onrecord_rollout_evicted", "Sessions that left memory", registry=self.registry)
        self.in_flight = Gauge("onrecord_rollout_turns_in_flight", "Turns under way", registry=self.registry)
        self.in_memory = Gauge("onrecord_rollout_sessions_in_memory", "Sessions in memory", registry=self.registry)
        self.upstream_seconds = Histogram(
            "onrecord_rollout_upstream_seconds", "How long engines took", buckets=_SECONDS, registry=self.registry
        )
        self.record_seconds = Histogram(
            "onrecord_rollout_record_seconds", "How long putting a step of a turn on record took", ["step"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip

    def page(self) -> bytes:
        """All of it, in Prometheus' text form."""
        return bytes(generate_latest(self.registry))
