"""The jobs whose kills are judged: Kafka → Kafka, the same with its tasks cut otherwise at each start, exactly once, and Kafka → Pulsar,
with sequence ids and with transactions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from brokers import Kafka, Pulsar

from . import ends, harness
from .records import Judge

Say = Callable[[str], None]
ONCE_KINDS = 4
"""Kinds of kills of the job that writes once."""
SOON = 30.0
"""Seconds until what was committed can be read, on a loaded machine; what is left open stays so for a quarter of an hour."""

BACK_SOON = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""Of Kafka: a broker that was killed may come back when its old session is over, and until then a thread of it that has markers of
transactions to send does nothing else, without a pause."""


@dataclass(frozen=True)
class Size:
    """How much: records, kills of each kind, records to a micro-batch; and the seed of the kills' points."""

    total: int
    each: int
    batch: int
    seed: int


def kafka_to_kafka(size: Size, folder: Path, say: Say, kafka: Kafka | None = None) -> list[str]:
    """Kafka → transform → Kafka: at least once, each key in order, also where each start has micro-batches of another size."""
    return _kafka_to_kafka(size, folder, say, kafka, "out", tasks=False)


def kafka_to_kafka_recut(size: Size, folder: Path, say: Say, kafka: Kafka | None = None) -> list[str]:
    """The same with other tasks at each start, also of a micro-batch that runs again: nothing is lost; between tasks a key has no order."""
    return _kafka_to_kafka(size, folder, say, kafka, "recut", tasks=True)


def _kafka_to_kafka(size: Size, folder: Path, say: Say, kafka: Kafka | None, target: str, *, tasks: bool) -> list[str]:
    """What is wrong with the target, nothing when all is right."""
    with ExitStack() as stack:
        kafka = kafka or stack.enter_context(filled(size))
        ends.make(kafka, target)
        sink = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target}
        job = harness.Job(source(kafka, size), "kafka-wire", sink, size.batch, harness.cuts(size.seed, size.batch, tasks=tasks))
        run = harness.Run(job, (kafka, target), {"kafka": kafka}, Judge(size.total, ordered=not tasks), folder, say)
        return through(run, size, once=False)


def kafka_to_kafka_once(
    size: Size, folder: Path, say: Say, kafka: Kafka | None = None, *, form: str = "kafka-wire", patience: float = SOON
) -> list[str]:
    """Kafka → transform → Kafka, exactly once: each start has other tasks and micro-batches of another size, and the driver is killed alone
    and with all of its processes, at the steps of its commit too.

    Args:
        form: of the sink; another one's for the judge to judge. patience: seconds until no transaction may be open any more.
    """
    with ExitStack() as stack:
        kafka = kafka or stack.enter_context(filled(size))
        target, prefix = f"once-{form}", f"kills-{form}"
        ends.make(kafka, target)
        sink = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "exactlyOnce": "true", "transactionalIdPrefix": prefix}
        decisions = ("__wireproto_sinks", zlib.crc32(prefix.encode()) % 16)
        if form != "kafka-wire":
            sink["kafka.transaction.timeout.ms"] = "30000"  # so that what it leaves open is rolled back soon
        ends.make(kafka, decisions[0], 16, **{"cleanup.policy": "compact"})
        job = harness.Job(source(kafka, size), form, sink, size.batch, harness.cuts(size.seed, size.batch, tasks=True), decisions)
        run = harness.Run(job, (kafka, target), {"kafka": kafka}, Judge(size.total, ordered=False), folder, say)
        return through(run, size, once=True, kinds=("driver", "all"), patience=patience)


def kafka_to_pulsar(size: Size, folder: Path, say: Say, kafka: Kafka | None = None) -> list[str]:
    """Kafka → transform → Pulsar, which de-duplicates: exactly once, each key in order. What is wrong with the target.

    Its starts all cut alike: that a micro-batch which runs again has the same rows in the same tasks is what its sink asks for.
    """
    with ExitStack() as stack:
        kafka = kafka or stack.enter_context(filled(size))
        pulsar = stack.enter_context(Pulsar("4.2.4", settings={"brokerDeduplicationEnabled": "true"}))
        ends.make_pulsar(pulsar, "out")
        sink = {"service.url": pulsar.service, "admin.url": pulsar.admin, "topic": "out", "batchRows": "100"}
        job = harness.Job(source(kafka, size), "pulsar-wire", sink, size.batch)
        run = harness.Run(job, (pulsar, "out"), {"kafka": kafka, "pulsar": pulsar}, Judge(size.total), folder, say)
        return through(run, size, once=True)


def kafka_to_pulsar_once(size: Size, folder: Path, say: Say, kafka: Kafka | None = None) -> list[str]:
    """Kafka → transform → Pulsar with transactions, exactly once, as to Kafka: each start has other tasks and micro-batches."""
    with ExitStack() as stack:
        kafka = kafka or stack.enter_context(filled(size))
        pulsar = stack.enter_context(Pulsar("4.2.4", transactions=True))
        ends.make_pulsar(pulsar, "out")
        sink = {
            "service.url": pulsar.service,
            "admin.url": pulsar.admin,
            "topic": "out",
            "exactlyOnce": "true",
            "transactionalIdPrefix": "kills",
        }
        decisions = ("wireproto-sinks-decisions-kills", -1)
        job = harness.Job(source(kafka, size), "pulsar-wire", sink, size.batch, harness.cuts(size.seed, size.batch, tasks=True), decisions)
        brokers = {"kafka": kafka, "pulsar": pulsar}
        run = harness.Run(job, (pulsar, "out"), brokers, Judge(size.total, ordered=False), folder, say)
        return through(run, size, once=True, kinds=("driver", "all"))


@contextmanager
def filled(size: Size) -> Iterator[Kafka]:
    """A broker with the input, for a job or several."""
    with Kafka("4.3.1", settings=BACK_SOON) as kafka:
        ends.fill(kafka, "in", size.total)
        yield kafka


def source(kafka: Kafka, size: Size) -> dict[str, str]:
    """Options of the input."""
    limit = {"maxOffsetsPerTrigger": str(size.batch)}
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "in", "startingOffsets": "earliest", **limit}


def through(run: harness.Run, size: Size, *, once: bool, kinds: tuple[str, ...] = ("driver",), patience: float = SOON) -> list[str]:
    """Run it with its kills, then read the target anew."""
    kills = harness.plan(size.seed, (*kinds, "worker", *run.brokers), size.each, size.total, size.batch, run.job.moments)
    run.say(f"kafka-wire → {run.job.form}: {size.total:,} records, {len(kills)} kills, seed {size.seed}")
    run.all_of_it(kills)
    left = ends.hanging(*run.target, patience)
    judge = Judge(size.total, ordered=run.judge.ordered)
    with ends.sight(*run.target) as target:
        target.read_all(judge)
    found = judge.verdict(once=once) + ([f"{left} offsets cannot be read: transactions are open"] if left else [])
    limit = size.batch * (len(kills) + len(run.failures))
    if judge.repeats > limit:
        found.append(f"{judge.repeats} records were repeated; a micro-batch for each kill and failure is {limit}")
    figures = f"{run.starts} starts of the driver, {len(run.failures)} failures of the query, {judge.repeats:,} repeats"
    run.note(f"{'WRONG' if found else 'all right'}: {figures}")
    return found


JOBS: dict[str, Callable[..., list[str]]] = {
    "kafka": kafka_to_kafka,
    "once": kafka_to_kafka_once,
    "pulsar": kafka_to_pulsar,
    "pulsar-once": kafka_to_pulsar_once,
    "recut": kafka_to_kafka_recut,
}
