"""Checks the configuration of topics: the names that brokers know, and the values that each takes.

    whole number    may be -1 where that means "no bound"
    yes or no       true, false
    one of some     several, separated by commas, for `cleanup.policy`

Source: DescribeConfigs of Kafka 4.3.1. The embedded broker stores and shows these values; most of them have no effect.
"""

from __future__ import annotations

INVALID_CONFIG = 40
NUMBERS = frozenset({
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms",
    "flush.messages", "flush.ms", "index.interval.bytes", "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms",
    "max.message.bytes", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "min.compaction.lag.ms",
    "min.insync.replicas", "retention.bytes", "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
})  # fmt: skip
SWITCHES = frozenset({
    "preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "unclean.leader.election.enable",
})  # fmt: skip
CHOICES = {
    "cleanup.policy": {"compact", "delete"},
    "compression.type": {"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
TEXTS = frozenset({"follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "min.cleanable.dirty.ratio"})
KNOWN = NUMBERS | SWITCHES | TEXTS | CHOICES.keys()


def wrong(name: str, value: str | None) -> str | None:
    """Return why a broker refuses this value; None: it is accepted."""
    if name not in KNOWN:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    fits = True
    if name in NUMBERS:
        fits = value.removeprefix("-").isdecimal()
    elif name in SWITCHES:
        fits = value in ("true", "false")
    elif name in CHOICES:
        fits = set(value.split(",") if name == "cleanup.policy" else [value]) <= CHOICES[name]
    return None if fits else f"Invalid value {value} for configuration {name}"
