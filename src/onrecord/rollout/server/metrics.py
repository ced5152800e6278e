"""Prometheus metrics. Each proxy has its own registry.

The numbers are plain ones, and become metrics when they are read: a turn counts a dozen times, and the library's own
counters would cost it more than reading its request. Only the event loop counts.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LIMITS = (*map(str, map(float, _SECONDS)), "+Inf")


class Count:
    """How often something happened; by a label, if it has one."""

    def __init__(self, name: str, about: str, label: str = "") -> None:
        self._name, self._about, self._labels = f"onrecord_rollout_{name}", about, [label] if label else []
        self._counted: dict[str, float] = {} if label else {"": 0}

    def inc(self, by: float = 1, label: str = "") -> None:
        """Count."""
        self._counted[label] = self._counted.get(label, 0) + by

    def family(self) -> Metric:
        """The metric."""
        found = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for label, count in self._counted.items():
            found.add_metric([label] if self._labels else [], count)
        return found


class Durations:
    """How long something took, in the steps of `_SECONDS`; by a label, if it has one."""

    def __init__(self, name: str, about: str, label: str = "") -> None:
        self._name, self._about, self._labels = f"onrecord_rollout_{name}", about, [label] if label else []
        self._counted: dict[str, list[int]] = {} if label else {"": [0] * len(_LIMITS)}
        self._sums: dict[str, float] = {}

    def observe(self, seconds: float, label: str = "") -> None:
        """Count a duration."""
        if label not in self._counted:
            self._counted[label] = [0] * len(_LIMITS)
        self._counted[label][bisect_left(_SECONDS, seconds)] += 1
        self._sums[label] = self._sums.get(label, 0.0) + seconds

    def family(self) -> Metric:
        """The metric."""
        found = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        for label, counts in self._counted.items():
            upto = list(zip(_LIMITS, accumulate(counts), strict=True))
            found.add_metric([label] if self._labels else [], upto, self._sums.get(label, 0.0))
        return found


class Metrics(Collector):
    """The counters of one proxy."""

    def __init__(self) -> None:
        self.answers = Count("answers", "Chat requests by the status of their answer", "status")
        self.turns = Count("turns", "Recorded turns by how they ended", "finish")
        self.tokens = Count("tokens", "Recorded token ids by origin", "what")
        self.retries = Count("retries", "Retries of aborted turns")
        self.replays = Count("replays", "Lost replies answered from the record")
        self.joined = Count("joined", "Duplicate requests that joined a running turn")
        self.rehydrated = Count("rehydrated", "Sessions loaded from their log")
        self.evicted = Count("evicted", "Sessions evicted from memory")
        self.in_flight = self.in_memory = 0
        """The running turns, and the sessions in memory."""
        self.upstream_seconds = Durations("upstream_seconds", "How long engines took")
        self.record_seconds = Durations("record_seconds", "How long recording a step of a turn took", "step")
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
        for one in vars(self).values():
            if isinstance(one, Count | Durations):
                yield one.family()
        yield GaugeMetricFamily("onrecord_rollout_turns_in_flight", "Running turns", self.in_flight)
        yield GaugeMetricFamily("onrecord_rollout_sessions_in_memory", "Sessions in memory", self.in_memory)

    def page(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return bytes(generate_latest(self.registry))
