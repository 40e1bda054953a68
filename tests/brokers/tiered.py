"""Kafka 4.3.1 with tiered storage: a topic's older segments lie in another storage, a folder that is slow to read (SlowStore.java)."""

from __future__ import annotations

import os
from pathlib import Path

from . import java
from .kafka import Kafka

POM = "kafka-tiered-4.3.1"
TOPIC = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.ms": "1000", "local.retention.bytes": "1"}
"""Settings of a topic whose segments leave the broker's disk as soon as they may."""


def tiered(store: Path) -> Kafka:
    """A broker that is not started yet; `store` is an empty folder."""
    classes, *jars = java.compiled(POM, "SlowStore").split(os.pathsep)
    ours = [classes, *(jar for jar in jars if jar.endswith("-test.jar"))]  # all else has to be the broker's own, classes and interfaces
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "SlowStore",
        "remote.log.storage.manager.class.path": os.pathsep.join(ours),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(store),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "remote.log.manager.fetch.quota.window.num": "5",
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": "500",
    }
    return Kafka("4.3.1", settings=settings)
