"""Stores the decisions of an exactly-once sink's driver: one record for each micro-batch, in a compacted topic.

    key              value, JSON; all keys of a prefix are in one of the first 16 partitions
    <prefix>         {"id": …, "query": …, "batch": …, "run": …, "transactions": [[name within the run, producer id, epoch, joins], …],
                      "others": {query: its last micro-batch that was decided, …}, "topics": {topic: [partition, …], …}}
    <prefix>/ended   {"id": …}: all transactions of that decision are committed
    <prefix>/fence   null: everything before it was decided before its writer had the driver's name

Each is written in a transaction of the driver's. The decision is the commit point: before it is committed nothing of the micro-batch is
visible, and once it is, all of it will be. It is found by reading back from the partition's end, which is quick, since a micro-batch's own
decision is among the last records.

A reader of decisions must have taken the driver's transactional name just now, so that no decision of an earlier driver is in flight. It
must not take a decision for absent which cannot be read yet since another sink's driver has a transaction open before it.
"""

from __future__ import annotations

import json
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import AuthError, OptionError, TimedOut, ValueUnsupported
from ..kafka.admin import STATE
from ..kafka.codes import TopicAlreadyExists, UnknownTopicOrPartition
from ..kafka.messages import DescribeClusterRequest, DescribeConfigsRequest, DescribeConfigsResource
from ..kafka.transactions import OpenTransaction
from ..net.retry import Waits
from ..position import EARLIEST, LATEST, LogOffset
from .exactly import SOON, Decided, logger, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..flow.transactions import Transaction
    from ..kafka.admin import KafkaAdmin
    from ..kafka.client import KafkaClient
    from ..kafka.transactions import KafkaTransactions
    from ..position import Position
    from ..records import Receipt

PARTITIONS = 16
_COPIES = 3
_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
_BACK = (100, 10_000)
"""Numbers of offsets before the end that are read first; if the decision is not in them, all are read."""
_TOPIC_RESOURCE = 2
_MOMENT = 1.0
"""Seconds in which committed records become readable, unless brokers have left their transaction open."""


@dataclass(frozen=True, slots=True)
class Decision(Decided[OpenTransaction]):
    """A decision of Kafka's sink; see `exactly.Decided`.

    Attributes:
        topics: the partitions that its transactions wrote to, by topic.
    """

    topics: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    def to_json(self) -> bytes:
        """Return the record's value; raises ValueUnsupported for transactions of two runs."""
        run = self.transactions[0].name.rpartition("/")[0] if self.transactions else ""
        if any(one.name.rpartition("/")[0] != run for one in self.transactions):
            raise ValueUnsupported("transactions of two runs in one decision")
        rows = [[one.name.rpartition("/")[2], one.producer_id, one.producer_epoch, one.joins] for one in self.transactions]
        topics = {topic: list(numbers) for topic, numbers in self.topics.items()}
        return json.dumps(self.parts() | {"run": run, "transactions": rows, "topics": topics}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes, ended: str | None) -> Decision:
        """Parse the record's value; raises Malformed.

        Args:
            ended: the id of the last decision that is noted as ended.
        """
        try:
            found = json.loads(text)
            run, rows = found["run"], found["transactions"]
            named = tuple(OpenTransaction(f"{run}/{name}", int(number), int(epoch), bool(joins)) for name, number, epoch, joins in rows)
            topics = {str(topic): tuple(map(int, numbers)) for topic, numbers in found.get("topics", {}).items()}
            return cls(transactions=named, ended=found["id"] == ended, topics=topics, **cls.taken(found))
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            raise unreadable(text) from why


class Decisions:
    """The decisions of one prefix.

    Args:
        client: of the driver. topic: where decisions are stored. prefix: the sink's transactionalIdPrefix.
        timeout: seconds for each call.
    """

    def __init__(self, client: KafkaClient, topic: str, prefix: str, timeout: float) -> None:
        self._client = client
        self.topic = topic
        self.prefix = prefix
        self._timeout = timeout
        self._key, self._ended, self._fence = prefix.encode(), f"{prefix}/ended".encode(), f"{prefix}/fence".encode()
        self.partition = zlib.crc32(self._key) % PARTITIONS

    def prepare(self) -> None:
        """Create the topic unless it exists; called after the driver's first transactional name was taken.

        Raises:
            OptionError: the topic has too few partitions.
        """
        admin = self._client.admin()
        try:
            info = admin.describe_topic(self.topic, timeout=self._timeout)
        except UnknownTopicOrPartition:
            self._make(admin)
            info = admin.describe_topic(self.topic, timeout=self._timeout)
        if len(info.partitions) < PARTITIONS:
            raise OptionError(
                f"the topic {self.topic} has {len(info.partitions)} partitions; for decisions of sinks it takes {PARTITIONS} or more"
            )

    def _make(self, admin: KafkaAdmin) -> None:
        """Create the topic with as many replicas as the cluster keeps of its transaction log, instead of the default for new topics.

        While nodes are away it may be fewer. min.insync.replicas is one less than the replicas: with one replica away decisions can still
        be written.
        """
        most = _COPIES
        with suppress(UnknownTopicOrPartition, AuthError):  # the embedded broker has no such topic; a writer may lack the right to see it
            kept = admin.describe_topic(STATE, timeout=self._timeout)
            most = max(len(part.details["replicas"]) for part in kept.partitions)
        copies = min(most, len(self._client.request(DescribeClusterRequest(), timeout=self._timeout).brokers))
        config = _CONFIG | {"min.insync.replicas": str(max(1, copies - 1))}
        with suppress(TopicAlreadyExists):
            admin.create_topic(self.topic, partitions=PARTITIONS, replication=copies, config=config, timeout=self._timeout)

    def find(self, work: KafkaTransactions) -> Decision | None:
        """Return the last decision, or None where there is none.

        It is searched before a record that the driver's own transaction writes now: a node that was frozen while others took over, and
        still takes itself for the partition's leader, would answer with an older end of the log, but cannot store anything.

        Raises:
            TimedOut: another transaction stays open in the partition, so that it cannot be read up to that record.
            Malformed: a decision cannot be parsed. OptionError: there is none, and the topic's cleanup.policy is not compact.
        """
        deadline = time.monotonic() + self._timeout
        key = (self.topic, self.partition)
        with work.begin(timeout=self._timeout) as turn:
            fence = self._put(turn, self._fence, None)
        last = fence.position(self._timeout)
        first = self._client.admin().positions(self.topic, {key: EARLIEST}, timeout=self._timeout)[key]
        assert isinstance(first, LogOffset)
        assert isinstance(last, LogOffset)
        for start in (*(max(first.offset, last.offset - back) for back in _BACK), first.offset):
            found = {name: value for name, value in self._read(LogOffset(*key, start), last, deadline) if name in (self._key, self._ended)}
            if self._key in found or start == first.offset:
                return self._decision(found)
        return None

    def _decision(self, found: dict[bytes, bytes | None]) -> Decision | None:
        """Make the decision from the records found by key."""
        text, mark = found.get(self._key), found.get(self._ended)
        if text is None:  # no decision was made, or it was dropped
            self._must_keep()
            return None
        return Decision.from_json(text, json.loads(mark)["id"] if mark else None)

    def _read(self, start: LogOffset, stop: LogOffset, deadline: float) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield keys and values of committed records; raises TimedOut at the deadline."""
        if start >= stop:
            return
        key = (self.topic, self.partition)
        with self._client.reader(self.topic, start={key: start}, stop={key: stop}, isolation="committed") as reader:
            while not reader.done:
                batch = reader.poll(max(0.0, deadline - time.monotonic()))
                if batch is not None:
                    yield from ((record.key, record.value) for record in batch)
                elif not reader.done and time.monotonic() >= deadline:
                    at = reader.positions[key]
                    raise TimedOut(f"{self.topic}-{self.partition} cannot be read from {at} up to {stop}: a transaction is open there")

    def _must_keep(self) -> None:
        """Raise OptionError where the topic deletes old records; where that may not be seen, log a warning."""
        resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=self.topic, configuration_keys=("cleanup.policy",))
        (found,) = self._client.request(DescribeConfigsRequest(resources=(resource,)), timeout=self._timeout).results
        if found.error_code:
            logger.warning("kafka-wire: the cleanup.policy of the decisions' topic %s cannot be read: %s", self.topic, found.error_message)
            return
        policy = {one.name: one.value for one in found.configs}.get("cleanup.policy", "compact")
        if policy != "compact":
            raise OptionError(f"the topic {self.topic} has cleanup.policy={policy}, so that decisions get deleted: set it to compact")

    def decide(self, turn: Transaction[Any], decision: Decision) -> Receipt:
        """Send a decision in the driver's transaction."""
        return self._put(turn, self._key, decision.to_json())

    def end(self, turn: Transaction[Any], decision: Decision) -> Receipt:
        """Send the note that a decision is carried out; in the driver's transaction, so that a fenced driver cannot write it."""
        return self._put(turn, self._ended, json.dumps({"id": decision.number}).encode())

    def drop(self, turn: Transaction[Any]) -> Receipt:
        """Send tombstones for the prefix's decision."""
        self._put(turn, self._key, None)
        return self._put(turn, self._ended, None)

    def _put(self, turn: Transaction[Any], key: bytes, value: bytes | None) -> Receipt:
        """Send a record to the prefix's partition."""
        return turn.send(value, topic=self.topic, key=key, partition=self.partition, timeout=self._timeout)

    def wait_committed(self, work: KafkaTransactions, sent: Receipt, timeout: float | None = None) -> None:
        """Wait until the transaction in which a record was committed is not open in the partition any more.

        Where brokers have left it open (`kafka_hanging`), it ends with the driver's next transaction in this partition; so one is made.

        Args:
            work: the driver's transactions. sent: receipt of the record. timeout: seconds; None: the decisions' own.
        Raises:
            TimedOut: it is still open.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        place = sent.position(self._timeout)
        asked, waits = time.monotonic() + _MOMENT, Waits(SOON)
        while not self._over(work.identity.producer_id, place, max(0.0, deadline - time.monotonic())):
            pause = waits.next()
            if time.monotonic() + pause >= deadline:
                raise TimedOut(f"{self.topic}-{self.partition}: a transaction is open before or at {place}")
            time.sleep(pause)
            if time.monotonic() > asked:
                with work.begin(timeout=max(_MOMENT, deadline - time.monotonic())) as turn:
                    self._put(turn, self._fence, None)
                asked = time.monotonic() + _MOMENT

    def _over(self, producer: int, place: Position, timeout: float) -> bool:
        """Return whether this producer has no transaction open up to this position.

        Transactions of others that are open before it delay readers, but change nothing.
        """
        admin, key = self._client.admin(), (self.topic, self.partition)
        if admin.positions(self.topic, {key: LATEST}, committed=True, timeout=timeout)[key] > place:
            return True
        found = admin.describe_producers(self.topic, partitions=[self.partition], timeout=timeout)[key]
        starts = [one.transaction_start for one in found if one.producer_id == producer and one.transaction_start is not None]
        return all(LogOffset(*key, start) > place for start in starts)
