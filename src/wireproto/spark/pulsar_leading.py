"""The driver of an exactly-once sink towards Pulsar: its topics, what attempts have left there, and the ends of their transactions.

    <decisionTopic>-decisions-<prefix>   what was decided: `pulsar_decisions`
    <decisionTopic>-begun-<prefix>       each attempt's transaction, noted before anything is in it: nothing else lists transactions
    <decisionTopic>-outbox-<prefix>      a record in each transaction that was handed over, with the transaction's number for its key

A coordinator forgets a transaction as it ends. One that is to be committed and is not known any more was committed by an earlier try, or
was rolled back for its time: its record in the outbox is there, or it is not. Readers are let to the first open transaction; so what is
open is rolled back first, and then a plain record is sent and read up to: what stood before it has ended when that is seen.

Pulsar deletes what no subscription keeps: one, of the same name in each topic, stands before what may be asked for yet.
What it is: the steps of which `pulsar_exactly` makes planning, commit and abort; and what drops a prefix for good.
May assume nothing of Spark. Must not: decide.
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
"""What the names of the sink's own topics begin with, unless decisionTopic says otherwise."""
SETTING = "pulsar.transaction_timeout"
"""What allows tasks' transactions their time."""
HOLD = "wireproto-sinks"
"""The subscription that keeps what may be asked for yet."""
_PATIENCE = 10.0
"""Seconds for the looking for what attempts have left open."""
_STEP = 1.0
"""Seconds for which the outbox may stand still before somebody is looked for who keeps it open."""


class Leading:
    """The driver of one prefix.

    Args:
        stem: what the names of its topics begin with. timeout: seconds for each call.
    """

    def __init__(self, client: PulsarClient, stem: str, prefix: str, timeout: float) -> None:
        self._client = client
        self._admin = client.admin()
        self._timeout = timeout
        self.prefix = prefix
        self.begun, self.outbox = f"{stem}-begun-{prefix}", f"{stem}-outbox-{prefix}"
        self._before: Position = MessageId("", -1, -1, -1)  # where the decisions' topic ended when it was prepared
        self.decisions = Decisions(client, f"{stem}-decisions-{prefix}", prefix, timeout)

    # --- topics ---

    @property
    def topics(self) -> tuple[str, str, str]:
        return self.decisions.topic, self.begun, self.outbox

    def prepare(self) -> Places:
        """Make the topics that are not there, and have them kept. Where what comes now begins.

        Raises:
            OptionError: they cannot be made, or one has partitions.
        """
        ends = [self._end(topic) for topic in self.topics]
        self._before = ends[0]
        return Places(ends[1].text(), ends[2].text())

    def _end(self, topic: str) -> Position:
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
        try:
            with self._client.hold(HOLD, consumer_name=self.prefix) as hold:
                hold.move(places, timeout=self._timeout)
        except ConsumerBusy as why:  # it is there, and keeps more than it must until the next time
            logger.info("pulsar-wire: the subscription %s stays where it is: %s", HOLD, why)

    def keep(self, found: Found, now: Places, *, swept: bool) -> None:
        """Let go of what nobody asks for any more: what stands before the last decision, what that wrote if it is carried out, and
        attempts that are rolled back."""
        decision = found.decision
        places: dict[tuple[str, int], Position] = {(self.decisions.topic, -1): found.at or self._before}
        if swept and now.begun is not None:
            places[self.begun, -1] = parse_position(now.begun, self.begun, -1)
        if decision is None or decision.ended:
            places[self.outbox, -1] = parse_position(now.outbox, self.outbox, -1)
        self._keep(places)

    def _read(self, topic: str, start: Position | Earliest, stop: MessageId, deadline: float) -> Iterator[Record | None]:
        """Records up to a place; None: none for a while."""
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
        """Have brokers begin what they keep of transactions in each partition of a topic that may have had none, and in the outbox.

        Until that is stored, which its first transaction has done, an end of a transaction leaves nothing there, and what was on its way
        to it comes behind its end: readers wait for that then (TopicTransactionBuffer.abortTxn of 4.2.4, where it is not ready).
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
        """Transactions that attempts of this driver and those before it have begun, from a place on."""
        stop = self._admin.positions(self.begun, LATEST, timeout=max(0.0, deadline - time.monotonic()))[self.begun, -1]
        assert isinstance(stop, MessageId)
        start = EARLIEST if since is None else parse_position(since, self.begun, -1)
        found = []
        for record in self._read(self.begun, start, stop, deadline):
            if record is not None:
                number, of = begun(record.value)
                found += [number] if of <= epoch else []  # what a newer driver's tasks have begun is not an older one's to end
        return found

    def roll_back(self, transactions: Iterable[TransactionId], timeout: float | None = None) -> None:
        """Have nothing of these seen; those that are over are no error."""
        self._admin.end_transactions(transactions, commit=False, timeout=self._timeout if timeout is None else timeout)

    def roll_back_others(self, epoch: int, decision: Decision | None, within: float = _PATIENCE) -> bool:
        """End what attempts have left open, which readers wait behind: whether all of it is ended.

        Nothing else waits for that: where a broker is silent it is told, and left to the next time, or to the transactions' time-out.

        Args:
            decision: the last one, whose transactions are not to be rolled back. within: seconds for all of it, at most.
        """
        kept, since = (set(), None) if decision is None else ({one.id for one in decision.transactions}, decision.begun)
        deadline = time.monotonic() + min(self._timeout, within)
        try:
            others = [one for one in self.attempts(since, epoch, deadline) if one not in kept]
            self.roll_back(others, max(0.0, deadline - time.monotonic()))
        except (TransportError, BrokerError) as why:
            logger.warning("pulsar-wire: what attempts of %s have left open could not be rolled back yet: %s", self.prefix, why)
            return False
        return True

    # --- a decision ---

    def carried_out(self, driver: Driver, decision: Decision) -> tuple[Handed, ...]:
        """Commit each transaction of a decision, and note that.

        Returns:
            those that were rolled back for their time, of which nothing was written then.
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
        """Transactions whose records are seen in the outbox, from where the decision's began: what was open there has ended when this
        returns."""
        self.roll_back_others(driver.epoch, decision)
        with self._client.producer(self.outbox, batching=False, timeout=self._timeout) as out:
            fence = out.send(b"", key=b"fence").position(self._timeout)
        assert isinstance(fence, MessageId)
        start = EARLIEST if decision.places is None else parse_position(decision.places.outbox, self.outbox, -1)
        stop = MessageId(self.outbox, -1, fence.ledger, fence.entry, after=True)
        found: set[TransactionId] = set()
        deadline = time.monotonic() + self._timeout
        for record in self._read(self.outbox, start, stop, deadline):
            if record is None:  # an attempt that was not noted yet has finished meanwhile
                self.roll_back_others(driver.epoch, decision, max(0.0, deadline - time.monotonic()))
            elif record.value:
                found.add(read_number(record.value))
        return found

    # --- the end of a query ---

    def forget(self) -> None:
        """Have nothing kept any more, and delete the topics, where the admin interface is known: else brokers do, unless they are told not
        to (`brokerDeleteInactiveTopicsEnabled`)."""
        for topic in self.topics:
            try:
                with self._client.hold(HOLD, consumer_name=self.prefix) as hold:
                    hold.drop([(topic, -1)], timeout=self._timeout)
                if self._admin.url is not None:
                    self._admin.delete_topic(topic, timeout=self._timeout)
            except TopicNotFound:
                continue
            except (TransportError, BrokerError) as why:
                logger.warning("pulsar-wire: the topic %s of %s is still there: %s", topic, self.prefix, why)

    def drop(self) -> tuple[Decision | None, str, list[TransactionId]]:
        """End a query for good: what it decided is carried out, what else it left open is rolled back, and its decisions are forgotten.

        Returns:
            the last decision; what of it could not be carried out, empty if nothing; what was rolled back.
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
                    wrong = f"what of {decision.named} was committed cannot be told: {why}"
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
    """What an attempt notes before anything is in its transaction."""
    return json.dumps({"transaction": list(number), "epoch": epoch, **more}, separators=(",", ":")).encode()


def begun(text: bytes | None) -> tuple[TransactionId, int]:
    """A transaction that was noted, and its driver's epoch."""
    try:
        return read_number(text), int(json.loads(text or b"")["epoch"])
    except (ValueError, KeyError, TypeError) as why:
        raise unreadable_note(text) from why


def read_number(text: bytes | None) -> TransactionId:
    """The transaction that a note or a record of the outbox is about."""
    try:
        most, least = json.loads(text or b"")["transaction"]
        return TransactionId(int(most), int(least))
    except (ValueError, KeyError, TypeError) as why:
        raise unreadable_note(text) from why


def unreadable_note(text: bytes | None) -> Malformed:
    return Malformed(f"what an attempt has noted cannot be read: {(text or b'')[:200]!r}")
