"""Implements the steps of an exactly-once sink's driver at Pulsar: its topics, what attempts have left open, and ending their transactions.

    <decisionTopic>-decisions-<prefix>   what was decided: `pulsar_decisions`
    <decisionTopic>-begun-<prefix>       each attempt's transaction, noted before it is used: Pulsar has no list of transactions
    <decisionTopic>-outbox-<prefix>      a record in each transaction that was handed over, with the transaction's id

A coordinator forgets a transaction as it ends. One that is to be committed and is not known any more was either committed by an earlier
try, or rolled back for taking too long: its record in the outbox is there, or it is not. Readers see a topic up to the first open
transaction; so what is open is rolled back first, then a plain record is sent and the outbox read up to that: what was sent before it has
ended when it is read.

Pulsar deletes records that no subscription keeps: one subscription, of the same name in each topic, is kept before what may still be
needed. `pulsar_exactly` makes planning, commit and abort of these steps; `drop` removes a prefix for good (the command line's
`sinks drop`). This module knows nothing of Spark, and leaves to its callers what is decided.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from ..errors import AuthError, BrokerError, Malformed, OptionError, TimedOut, TransportError
from ..position import EARLIEST, LATEST, MessageId, parse_position
from ..pulsar.codes import ConsumerBusy, TopicExists, TopicNotFound
from ..pulsar.transactions import TransactionId
from .exactly import logger
from .pulsar_decisions import Decision, Decisions, Places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..position import Earliest, Position
    from ..pulsar.client import PulsarClient
    from ..records import Record
    from .pulsar_decisions import Driver, Found, Handed

DECISIONS = "persistent://public/default/wireproto-sinks"
"""Default of the option decisionTopic: what the names of the sink's own topics begin with."""
SETTING = "pulsar.transaction_timeout"
"""The option that bounds the time of tasks' transactions."""
HOLD = "wireproto-sinks"
"""The subscription that keeps what may still be needed."""
_SWEEP_TIMEOUT = 10.0
"""Seconds to look for transactions that attempts have left open, and to roll them back."""
_STEP = 1.0
"""Seconds without a record from the outbox before open transactions are looked for again."""


class Leading:
    """The driver of one prefix.

    Args:
        client: of the driver; the caller closes it. stem: what the names of its topics begin with. prefix: the sink's
            transactionalIdPrefix.
        timeout: seconds for each call.
    """

    def __init__(self, client: PulsarClient, stem: str, prefix: str, timeout: float) -> None:
        self._client = client
        self._admin = client.admin()
        self._timeout = timeout
        self.prefix = prefix
        self.begun, self.outbox = f"{stem}-begun-{prefix}", f"{stem}-outbox-{prefix}"
        self._before: Position = MessageId("", -1, -1, -1)  # end of the decisions' topic when it was prepared
        self.decisions = Decisions(client, f"{stem}-decisions-{prefix}", prefix, timeout)

    # --- topics ---

    @property
    def topics(self) -> tuple[str, str, str]:
        """Return the names of the sink's topics: decisions, log of attempts, outbox."""
        return self.decisions.topic, self.begun, self.outbox

    def prepare(self) -> Places:
        """Create the topics that do not exist, with a subscription that keeps their records.

        Returns:
            where the records of the next micro-batch will begin.
        Raises:
            OptionError: a topic cannot be created, or has partitions.
        """
        ends = [self._end(topic) for topic in self.topics]
        self._before = ends[0]
        return Places(ends[1].text(), ends[2].text())

    def _end(self, topic: str) -> Position:
        """Return where a topic ends; it is created where it does not exist."""
        try:
            found = self._admin.positions(topic, LATEST, timeout=self._timeout)
        except TopicNotFound:
            self._make(topic)
            found = self._admin.positions(topic, LATEST, timeout=self._timeout)
            self._keep(found)
        place = found.get((topic, -1))
        if place is None:
            raise OptionError(f"the topic {topic} has partitions; what a sink's driver writes goes into topics without them")
        return place

    def _make(self, topic: str) -> None:
        """Create a topic without partitions: by the admin interface, else by opening a producer."""
        if self._admin.url is not None:
            try:
                self._admin.create_topic(topic, partitions=0, timeout=self._timeout)
            except TopicExists:
                return
            except AuthError as why:
                raise OptionError(f"there is no topic {topic}, and this role may not create it: create it, without partitions") from why
            return
        try:
            self._client.producer(topic, timeout=self._timeout).close(self._timeout)
        except TopicNotFound as why:
            text = f"there is no topic {topic}, and it may not be created on use: create it, without partitions, or give admin.url"
            raise OptionError(text) from why

    def _keep(self, places: Mapping[tuple[str, int], Position]) -> None:
        """Move the subscription, so that brokers keep the records from these positions on."""
        try:
            with self._client.hold(HOLD, consumer_name=self.prefix) as hold:
                hold.move(places, timeout=self._timeout)
        except ConsumerBusy as why:  # harmless: it keeps more than it must until the next time
            logger.info("pulsar-wire: the subscription %s was not moved: %s", HOLD, why)

    def keep(self, found: Found, now: Places, *, swept: bool) -> None:
        """Let brokers delete what is not needed any more.

        That is what lies before the last decision, the outbox if that decision is carried out, and notes of attempts that are rolled back.

        Args:
            found: the last decision. now: where the topics ended when they were prepared. swept: whether all open attempts were rolled
                back.
        """
        decision = found.decision
        places: dict[tuple[str, int], Position] = {(self.decisions.topic, -1): found.at or self._before}
        if swept and now.begun is not None:
            places[self.begun, -1] = parse_position(now.begun, self.begun, -1)
        if decision is None or decision.ended:
            places[self.outbox, -1] = parse_position(now.outbox, self.outbox, -1)
        self._keep(places)

    def _read(self, topic: str, start: Position | Earliest, stop: MessageId, deadline: float) -> Iterator[Record | None]:
        """Yield records up to a position; None: none came for `_STEP` seconds. Raises TimedOut."""
        with self._client.reader(
            topic, start={(topic, -1): start}, stop={(topic, -1): stop}, create_topic=False, reset="earliest"
        ) as reader:
            while not reader.done:
                batch = reader.poll(max(0.0, min(_STEP, deadline - time.monotonic())))
                if batch is not None:
                    yield from batch
                elif not reader.done:
                    if time.monotonic() >= deadline:
                        raise TimedOut(f"{topic} cannot be read up to {stop}: a transaction is open there that began before")
                    yield None

    def make_ready(self, topic: str | None) -> None:
        """Have brokers create their transaction buffer in the outbox and in each partition of a topic that may have had no transaction.

        That is done by a transaction that is rolled back. Until the buffer's state is stored, the end of a transaction leaves no mark in
        the partition, and records in flight are stored behind the end: readers would wait for them (TopicTransactionBuffer.abortTxn of
        4.2.4, where it is not ready).
        """
        with self._client.transactions(self.prefix, timeout=self._timeout) as work:
            turn = work.begin(timeout=self._timeout)
            for name in (self.outbox,) if topic is None else (self.outbox, topic):
                out = turn.producer(name)
                for part in self._admin.describe_topic(name, timeout=self._timeout).partitions:
                    out.send(b"", partition=max(0, part.partition), timeout=self._timeout)
                out.flush(self._timeout)
            turn.abort(timeout=self._timeout)

    # --- attempts ---

    def attempts(self, since: str | None, epoch: int, deadline: float) -> list[TransactionId]:
        """Return the transactions that attempts of this driver and earlier ones have begun, from a position on.

        Args:
            since: text of the position; None: the topic's beginning. epoch: of this driver. deadline: of `time.monotonic`.
        Raises:
            TimedOut, Malformed.
        """
        stop = self._admin.positions(self.begun, LATEST, timeout=max(0.0, deadline - time.monotonic()))[self.begun, -1]
        assert isinstance(stop, MessageId)
        start = EARLIEST if since is None else parse_position(since, self.begun, -1)
        found = []
        for record in self._read(self.begun, start, stop, deadline):
            if record is not None:
                number, of = begun(record.value)
                found += [number] if of <= epoch else []  # an older driver must not end what a newer driver's tasks have begun
        return found

    def roll_back(self, transactions: Iterable[TransactionId], timeout: float | None = None) -> None:
        """Roll back transactions; those that are over already are no error.

        Args:
            timeout: seconds; None: the driver's own.
        """
        self._admin.end_transactions(transactions, commit=False, timeout=self._timeout if timeout is None else timeout)

    def roll_back_others(self, epoch: int, decision: Decision | None, within: float = _SWEEP_TIMEOUT) -> bool:
        """Roll back what attempts have left open, which readers wait behind.

        Nothing else depends on it: where a broker does not answer that is logged, and left to the next call, or to the transactions'
        time-out.

        Args:
            epoch: of this driver. decision: the last one, whose transactions are not rolled back. within: seconds for all of it, at most.
        Returns:
            whether all of them are rolled back.
        """
        kept, since = (set(), None) if decision is None else ({one.id for one in decision.transactions}, decision.begun)
        deadline = time.monotonic() + min(self._timeout, within)
        try:
            others = [one for one in self.attempts(since, epoch, deadline) if one not in kept]
            self.roll_back(others, max(0.0, deadline - time.monotonic()))
        except (TransportError, BrokerError) as why:
            logger.warning(
                "pulsar-wire: transactions that attempts of %s have left open could not be rolled back yet: %s", self.prefix, why
            )
            return False
        return True

    # --- a decision ---

    def carried_out(self, driver: Driver, decision: Decision) -> tuple[Handed, ...]:
        """Commit each transaction of a decision, and note that.

        Returns:
            the transactions that were rolled back for taking too long; if there are any, nothing is noted.
        Raises:
            TransportError, BrokerError: it is not noted.
        """
        gone = self._admin.end_transactions([one.id for one in decision.transactions], commit=True, timeout=self._timeout)
        lost: tuple[Handed, ...] = ()
        if gone:
            there = self._committed(driver, decision)
            lost = tuple(one for one in decision.transactions if one.id in gone and one.id not in there)
        if not lost:
            driver.end(decision)
        return lost

    def _committed(self, driver: Driver, decision: Decision) -> set[TransactionId]:
        """Return the transactions whose records are visible in the outbox, from where the decision's began.

        What was open there has ended when this returns.
        """
        self.roll_back_others(driver.epoch, decision)
        with self._client.producer(self.outbox, batching=False, timeout=self._timeout) as out:
            fence = out.send(b"", key=b"fence").position(self._timeout)
        assert isinstance(fence, MessageId)
        start = EARLIEST if decision.places is None else parse_position(decision.places.outbox, self.outbox, -1)
        stop = MessageId(self.outbox, -1, fence.ledger, fence.entry, after=True)
        found: set[TransactionId] = set()
        deadline = time.monotonic() + self._timeout
        for record in self._read(self.outbox, start, stop, deadline):
            if record is None:  # an attempt that was noted after the first look keeps the outbox open
                self.roll_back_others(driver.epoch, decision, max(0.0, deadline - time.monotonic()))
            elif record.value:
                found.add(read_number(record.value))
        return found

    # --- the end of a query ---

    def forget(self) -> None:
        """Drop the subscription of the topics, and delete them where the admin interface is known.

        Else brokers delete them, unless `brokerDeleteInactiveTopicsEnabled` is off.
        """
        for topic in self.topics:
            try:
                with self._client.hold(HOLD, consumer_name=self.prefix) as hold:
                    hold.drop([(topic, -1)], timeout=self._timeout)
                if self._admin.url is not None:
                    self._admin.delete_topic(topic, timeout=self._timeout)
            except TopicNotFound:
                continue
            except (TransportError, BrokerError) as why:
                logger.warning("pulsar-wire: the topic %s of %s was not deleted: %s", topic, self.prefix, why)

    def drop(self) -> tuple[Decision | None, str, list[TransactionId]]:
        """End a query for good: carry out what it decided, roll back what else it left open, and forget its decisions.

        Returns:
            the last decision; a text about what of it could not be carried out, empty if nothing; ids of what was rolled back.
        """
        wrong = ""
        try:
            self._admin.positions(self.decisions.topic, LATEST, timeout=self._timeout)
        except TopicNotFound:
            return None, wrong, []
        self.prepare()
        with self.decisions.take() as driver:
            found = driver.find()
            decision = found.decision
            if decision is not None and not decision.ended:
                try:
                    lost = self.carried_out(driver, decision)
                    wrong = decision.text(lost, [one.task for one in lost], SETTING) if lost else ""
                except TimedOut as why:
                    wrong = f"what of {decision.named} was committed is not known: {why}"
            decided = {one.id for one in decision.transactions} if decision is not None else set()
            since = None if decision is None else decision.begun
            noted = self.attempts(since, driver.epoch, time.monotonic() + self._timeout)
            open_now = self._admin.open_transactions(noted, timeout=self._timeout)
            others = sorted(open_now - decided)
            self.roll_back(others)
            driver.drop()
        self.forget()
        return decision, wrong, others


def note(number: TransactionId, epoch: int, **more: object) -> bytes:
    """Return the note of an attempt's transaction, which is stored before the transaction is used.

    Args:
        number: the transaction's id. epoch: of its driver. more: further facts.
    """
    return json.dumps({"transaction": list(number), "epoch": epoch, **more}, separators=(",", ":")).encode()


def begun(text: bytes | None) -> tuple[TransactionId, int]:
    """Parse a note: the transaction's id, and its driver's epoch; raises Malformed."""
    try:
        return read_number(text), int(json.loads(text or b"")["epoch"])
    except (ValueError, KeyError, TypeError) as why:
        raise unreadable_note(text) from why


def read_number(text: bytes | None) -> TransactionId:
    """Parse the transaction's id of a note or of a record of the outbox; raises Malformed."""
    try:
        most, least = json.loads(text or b"")["transaction"]
        return TransactionId(int(most), int(least))
    except (ValueError, KeyError, TypeError) as why:
        raise unreadable_note(text) from why


def unreadable_note(text: bytes | None) -> Malformed:
    """Build the error for a note that no attempt wrote."""
    return Malformed(f"the note of a write attempt cannot be parsed: {(text or b'')[:200]!r}")
