"""What the driver of an exactly-once sink has decided: one record a micro-batch, in a compacted topic.

    key              value, JSON; both keys of a prefix in the same partition of 16
    <prefix>         {"id": …, "query": …, "batch": …, "run": …, "transactions": [[name within the run, producer id, epoch, joins], …],
                      "others": {query: its last micro-batch that was decided, …}, "topics": {topic: [partition, …], …}}
    <prefix>/ended   {"id": …}: all transactions of that decision are committed
    <prefix>/fence   null: what stands before it was decided before whoever wrote it had the driver's name

Each is written in a transaction of the driver's. The decision is the commit point: before it is committed nothing of the micro-batch is
seen, and once it is all of it will be. It is found by reading back from the partition's end, which is soon done, for a micro-batch's own
decision is among the last.

May assume: who reads has taken the driver's transactional name just now, so that no decision of an earlier driver is on its way. Must not:
take what cannot be read yet, because another sink's driver has a transaction open before it, for what is not there.
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
"""Offsets from the end that are read first; then all."""
_TOPIC_RESOURCE = 2
_MOMENT = 1.0
"""Seconds in which what was committed can be read, unless brokers have left it open."""


@dataclass(frozen=True, slots=True)
class Decision(Decided[OpenTransaction]):
    """See `exactly.Decided`. `topics`: the partitions that its transactions wrote to."""

    topics: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    def to_json(self) -> bytes:
        run = self.transactions[0].name.rpartition("/")[0] if self.transactions else ""
        if any(one.name.rpartition("/")[0] != run for one in self.transactions):
            raise ValueUnsupported("transactions of two runs in one decision")
        rows = [[one.name.rpartition("/")[2], one.producer_id, one.producer_epoch, one.joins] for one in self.transactions]
        topics = {topic: list(numbers) for topic, numbers in self.topics.items()}
        return json.dumps(self.parts() | {"run": run, "transactions": rows, "topics": topics}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes, ended: str | None) -> Decision:
        """Raises Malformed."""
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
        """Make the topic, behind the first transactional name, unless it is there. Raises OptionError for one that keeps no decisions."""
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
        """With as many copies as the cluster keeps its transactions in, and not what a topic is given that asks for none.

        While nodes are away it may be fewer. One copy may always be away: decisions of a topic whose copies all had to be there would wait.
        """
        most = _COPIES
        with suppress(UnknownTopicOrPartition, AuthError):  # the embedded broker has none; who writes need not have a right to it
            kept = admin.describe_topic(STATE, timeout=self._timeout)
            most = max(len(part.details["replicas"]) for part in kept.partitions)
        copies = min(most, len(self._client.request(DescribeClusterRequest(), timeout=self._timeout).brokers))
        config = _CONFIG | {"min.insync.replicas": str(max(1, copies - 1))}
        with suppress(TopicAlreadyExists):
            admin.create_topic(self.topic, partitions=PARTITIONS, replication=copies, config=config, timeout=self._timeout)

    def find(self, work: KafkaTransactions) -> Decision | None:
        """The last decision; None: there is none. Raises TimedOut where a transaction is open in the partition for as long.

        It stands before a record that is written now, by the driver's own transactions: a node that was frozen while others took over, and
        still takes itself for the partition's leader, would answer with an older end of the log, but cannot store anything.
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
        text, mark = found.get(self._key), found.get(self._ended)
        if text is None:  # none was made, or it was dropped
            self._must_keep()
            return None
        return Decision.from_json(text, json.loads(mark)["id"] if mark else None)

    def _read(self, start: LogOffset, stop: LogOffset, deadline: float) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Keys and values of committed records."""
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
        """Raises OptionError where the topic forgets what is old."""
        resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=self.topic, configuration_keys=("cleanup.policy",))
        (found,) = self._client.request(DescribeConfigsRequest(resources=(resource,)), timeout=self._timeout).results
        if found.error_code:
            logger.warning("kafka-wire: whether the topic %s keeps decisions cannot be seen: %s", self.topic, found.error_message)
            return
        policy = {one.name: one.value for one in found.configs}.get("cleanup.policy", "compact")
        if policy != "compact":
            raise OptionError(f"the topic {self.topic} has cleanup.policy={policy}, so that it forgets decisions: set it to compact")

    def decide(self, turn: Transaction[Any], decision: Decision) -> Receipt:
        """Put a decision into the driver's transaction."""
        return self._put(turn, self._key, decision.to_json())

    def end(self, turn: Transaction[Any], decision: Decision) -> Receipt:
        """Note that all of a decision is carried out; in the driver's transaction too, for one that was fenced must not note anything."""
        return self._put(turn, self._ended, json.dumps({"id": decision.number}).encode())

    def drop(self, turn: Transaction[Any]) -> Receipt:
        """Forget the prefix."""
        self._put(turn, self._key, None)
        return self._put(turn, self._ended, None)

    def _put(self, turn: Transaction[Any], key: bytes, value: bytes | None) -> Receipt:
        return turn.send(value, topic=self.topic, key=key, partition=self.partition, timeout=self._timeout)

    def stand(self, work: KafkaTransactions, sent: Receipt, timeout: float | None = None) -> None:
        """Wait until what was committed here is over. Where brokers have left it open (`kafka_hanging`), it ends as the driver's next
        transaction in this partition does; so that it ends, such a one is made.

        Raises:
            TimedOut: it does not.
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
        """Whether no transaction of this producer is open there: what others have open before it holds readers up, and changes nothing."""
        admin, key = self._client.admin(), (self.topic, self.partition)
        if admin.positions(self.topic, {key: LATEST}, committed=True, timeout=timeout)[key] > place:
            return True
        found = admin.describe_producers(self.topic, partitions=[self.partition], timeout=timeout)[key]
        starts = [one.transaction_start for one in found if one.producer_id == producer and one.transaction_start is not None]
        return all(LogOffset(*key, start) > place for start in starts)
