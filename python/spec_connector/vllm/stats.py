"""What the connector counts, for vLLM's log and /metrics.

Each side counts into a Counts; take() gives what was counted since the last time as the object that
vLLM carries to its loggers. "family/label" names a counter; levels are the plugin's own.
Threads: the engine's one of each process.
"""
import time
from collections import Counter

import prometheus_client
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics, KVConnectorStats)
from vllm.logger import init_logger

from ..requests import Refusals

logger = init_logger("vllm.spec_connector")

SECOND_NS = 10**9
PREFIX = "vllm:spec_connector_"
FAMILIES = {
    "requests": ("outcome", "Requests by what the store had: hit, absent, short (no whole block to "
                            "ask for), disabled (by themselves), refused, error"),
    "refused_requests": ("kind", "Requests that use the tier no more, by the reason: salt, media, "
                                 "adapter, tokens, params (kv_transfer_params), plugin (it found "
                                 "their inputs invalid), failure (of the connector's own)"),
    "tokens": ("kind", "Tokens: matched (promised), loaded, stored, gap (lost to the ring of the "
                       "writer's way)"),
    "failed_loads": ("reason", "Promised loads that were computed: stale, corrupt, late, room (no "
                               "staging), other"),
    "dropped_saves": ("reason", "Saves that were not stored: reset, error, distrust (computed on "
                                "rows that never came), refused (a refused request's), reader "
                                "(another engine stores so far)"),
    "plugin": ("counter", "The plugin's own: read_bytes, write_bytes, dropped_chunks, io_errors, "
                          "corrupt_ranges, no_space, collisions, evicted_chunks, "
                          "bypassed_lookups, bypassed_chunks"),
    "timed_steps": ("outcome", "Steps of 128 new tokens and more: told (the plugin knows what they "
                               "took), error"),
    "layered": ("counter", "Layered loads: layered.COUNTS; bytes and rows of those alone"),
    "hook_calls": ("hook", "Calls of the connector by the engine"),
    "hook_seconds": ("hook", "Time inside them"),
}
PLUGIN = ("read_bytes", "write_bytes", "dropped_chunks", "io_errors", "corrupt_ranges", "no_space",
          "collisions", "evicted_chunks", "bypassed_lookups", "bypassed_chunks")
LEVELS = {"quarantine_bytes": "Bytes dropped and not reusable before leases on them have ended",
          "disk_bytes_used": "Bytes of the store", "poisoned": "1: the plugin answers misses",
          "bypassing": "1: a bypass makes every lookup a miss",
          "requests_open": "Requests that the plugin holds"}


class SpecStats(KVConnectorStats):
    """data: {"counts": {name: number}, "levels": {name: number}}; levels of ranks: the highest."""

    def reset(self):
        self.data = {"counts": {}, "levels": {}}

    def aggregate(self, other):
        counts = Counter(self.data["counts"])
        counts.update(other.data["counts"])
        levels = dict(self.data["levels"])
        for name, value in other.data["levels"].items():
            levels[name] = max(value, levels.get(name, value))
        return SpecStats({"counts": dict(counts), "levels": levels})

    def reduce(self):
        counts = self.data["counts"]
        shown = {name: value for name, value in sorted(counts.items()) if "hook_" not in name}
        for name, calls in counts.items():
            if name.startswith("hook_calls/"):
                hook = name.split("/")[1]
                shown[f"{hook}_us"] = round(1e6 * counts[f"hook_seconds/{hook}"] / calls, 1)
        return {**shown, **self.data["levels"]}

    def is_empty(self):
        return not self.data["counts"]


class Counts:
    def __init__(self):
        self.counts, self.levels = Counter(), {}
        self.before, self.asked_ns = Counter(), 0
        self.said = set()
        self.refusals = Refusals(lambda kind: self.add("refused_requests", kind), logger)

    def add(self, family, label, number=1):
        self.counts[f"{family}/{label}"] += number

    def is_first(self, what):
        """Whether nobody has asked this before: such a line is logged once."""
        is_first = what not in self.said
        self.said.add(what)
        return is_first

    def hook(self, name, ns):
        self.counts["hook_calls/" + name] += 1
        self.counts["hook_seconds/" + name] += ns / 1e9

    def grown(self, family, numbers):
        """Counters that somebody else keeps: what came to them since the last time."""
        for name, number in numbers.items():
            before = self.before[family, name]
            if number != before:
                self.add(family, name, number - before)
                self.before[family, name] = number

    def _ask(self, conn):
        """The plugin's counters, once a second."""
        now = time.monotonic_ns()
        if now - self.asked_ns < SECOND_NS:
            return
        self.asked_ns, stats = now, conn.stats()
        self.grown("plugin", {name: stats[name] for name in PLUGIN})
        self.levels = {name: stats[name] for name in LEVELS}

    def take(self, conn=None):
        """What was counted since the last time; None: nothing. conn: whose own counters count."""
        if conn is not None:
            self._ask(conn)
        if not self.counts:
            return None
        counts, self.counts = self.counts, Counter()
        return SpecStats({"counts": dict(counts), "levels": self.levels})


class SpecPromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        counter, gauge = (metric_types[cls] for cls in (prometheus_client.Counter,
                                                        prometheus_client.Gauge))
        self.counters = {family: counter(name=PREFIX + family, documentation=text,
                                         labelnames=[*labelnames, label])
                         for family, (label, text) in FAMILIES.items()}
        self.levels = {name: gauge(name=PREFIX + name, documentation=text, labelnames=labelnames)
                       for name, text in LEVELS.items()}

    def observe(self, transfer_stats_data, engine_idx=0):
        engine = self.per_engine_labelvalues[engine_idx]
        for name, number in transfer_stats_data["counts"].items():
            family, label = name.split("/")
            self.counters[family].labels(*engine, label).inc(number)
        for name, value in transfer_stats_data["levels"].items():
            self.levels[name].labels(*engine).set(value)
