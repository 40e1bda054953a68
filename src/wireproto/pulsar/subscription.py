"""Keeps what one member of a subscription knows of one partition.

Sans-IO; no clock but what it is given. Used by Reader, Consumer and QueueConsumer alike. Sends nothing and decodes no entries.

    generation   consumer id of the SUBSCRIBE that counts: what belongs to another one is passed over
    frames       MESSAGE frames that have come and were not handed over
    permits      FLOW grants messages, not entries, and grants add up; a batch that is larger than what is left comes whole. What arrived is
                 counted when it is handed over; when less than half of what is wanted is left, more is granted
    cursor       how far the partition is read: where a subscription that is not durable is opened again, and what is passed over then
    active       of a failover subscription, whether the broker sends to this member. It may read on for a member where the last one
                 stopped, and go back to the mark-delete position afterwards: it says "active" then, each time. So nothing counts that
                 comes before that word

A subscription that is lost drops what was not handed over; the broker sends that again after the next SUBSCRIBE.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wireproto.position import MessageId, TopicPartition

from . import PulsarApi_pb2 as api
from .frames import message_id
from .places import Cursor, unread

if TYPE_CHECKING:
    from wireproto._codec import PulsarEntry
    from wireproto.errors import WireprotoError

MOST_PERMITS = 200_000
GROWTH = 4
"""Factor by which grants may grow beyond what has come so far: the first messages show their size."""

EXCLUSIVE = api.CommandSubscribe.Exclusive
SHARED = api.CommandSubscribe.Shared
FAILOVER = api.CommandSubscribe.Failover
KEY_SHARED = api.CommandSubscribe.Key_Shared
NEWEST, OLDEST = 0, 1
"""CommandSubscribe.InitialPosition."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What SUBSCRIBE says, the same for every partition of a role.

    Attributes:
        name: of the subscription.
        kind: CommandSubscribe.SubType.
        durable: whether the broker keeps its position.
        renamed: whether each SUBSCRIBE has a name of its own. Of a subscription that is not durable a broker drops the former one in a
            thread of its own. Under the same name it would give us what is left of that, which begins where the former one was, or take the
            new one's cursor away by its name, and then nothing comes any more (PersistentSubscription.removeConsumer).
        initial: CommandSubscribe.InitialPosition of a new durable subscription.
        since: milliseconds since 1970 at which a new durable subscription begins; None: at `initial`.
        consumer_name: what brokers show of the member; None: they make one up.
        priority: CommandSubscribe.priority_level, or None.
        read_compacted: whether the compacted form of a topic is read.
        create_topic: whether the broker may create the topic.
        properties: of the subscription, as (key, value) pairs.
    """

    name: str
    kind: int
    durable: bool = True
    renamed: bool = False
    initial: int = OLDEST
    since: int | None = None
    consumer_name: str | None = None
    priority: int | None = None
    read_compacted: bool = False
    create_topic: bool = True
    properties: tuple[tuple[str, str], ...] = ()

    def command(self, topic: str, consumer: int, begin: tuple[int, int, int] | None, latest: float) -> api.CommandSubscribe:
        """Make SUBSCRIBE, without its request id.

        Args:
            topic: full name of the partition. consumer: its new consumer id.
            begin: of a subscription that is not durable: after (ledger, entry) with index -1, at the entry with another index.
            latest: latest time at which the broker handles it, as `time.time()`.
        """
        command = api.CommandSubscribe(
            topic=topic,
            subscription=f"{self.name}-{uuid.uuid4().hex[:12]}" if self.renamed else self.name,
            subType=self.kind,  # type: ignore[arg-type]
            consumer_id=consumer,
            durable=self.durable,
            read_compacted=self.read_compacted,
            initialPosition=self.initial,  # type: ignore[arg-type]
            force_topic_creation=self.create_topic,
        )
        if self.consumer_name is not None:
            command.consumer_name = self.consumer_name
        if self.priority is not None:
            command.priority_level = self.priority
        if self.since is not None:
            # whole seconds back from when the broker handles it: rather too much than too little
            command.start_message_rollback_duration_sec = max(1, math.ceil(latest - self.since / 1000))
        for key, value in self.properties:
            command.subscription_properties.add(key=key, value=value)
        if self.kind == KEY_SHARED:
            command.keySharedMeta.keySharedMode = api.AUTO_SPLIT
        if not self.durable and begin is not None:
            command.start_message_id.CopyFrom(message_id(*begin))
        return command


class Permits:
    """Counts how many messages a broker may send.

    Args:
        window: bytes of messages that may be in flight or unread.

    Attributes:
        largest: bytes of the largest entry that there may be: the first grants are for that much, before any size is known.
        most: messages that may be in flight or unread; of a batch all come.
        seen: messages that left the queue.
        look_at: value of `seen` before which `more` cannot grant anything.
    """

    __slots__ = ("_granted", "_size", "_unsent", "largest", "look_at", "most", "seen", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.largest = window
        self.most = MOST_PERMITS
        self._granted = 0
        self._unsent = 0  # of these: perhaps not sent to the broker, since a signal handler broke in
        self.seen = self.look_at = 0
        self._size = 0.0

    def over(self) -> None:
        """Forget all grants: the consumer is gone."""
        self._granted = self._unsent = self.look_at = 0

    def handed(self, messages: int, size: int) -> None:
        """Count `messages` of `size` bytes that left the queue."""
        self.left(messages)
        self.measured(messages, size)

    def left(self, messages: int) -> None:
        """Count messages that left the queue."""
        self._granted -= messages
        self.seen += messages

    def measured(self, messages: int, size: int) -> None:
        """Take the mean size of messages from `messages` that have `size` bytes."""
        if messages:
            self._size = size / messages if not self._size else (self._size * 3 + size / messages) / 4
            self.look_at = 0

    def back(self, seen: int) -> None:
        """Undo what `left` has counted since `seen` had this value."""
        self._granted += self.seen - seen
        self.seen = seen
        self.look_at = 0

    def sent(self) -> None:
        """Note that the broker has been granted what `more` returned."""
        self._unsent = 0

    def more(self) -> int:
        """Return how many messages to grant now; `sent` is to follow. They count as granted.

        A grant that perhaps did not reach the broker is made once more: rather too many than too few.
        """
        want = max(1, min(self.most, self.window // self.largest))
        if self._size:
            want = max(1, min(self.most, int(self.window / self._size), want + GROWTH * self.seen))
        granted = self._granted - self._unsent
        if granted * 2 > want:
            # not before that many more have left: each takes one from what is granted, and lets `GROWTH` more be wanted at most
            self.look_at = self.seen + -(-(granted * 2 - want) // (2 + GROWTH))
            return 0
        self.look_at = 0
        self._granted, self._unsent = want, want - granted
        return self._unsent


class SubscriptionState:
    """One partition, as one member of a subscription sees it.

    Args:
        topic, partition: as the user names them.
        name: full name of the partition.
        given: what SUBSCRIBE says.
        window: bytes of messages that may be in flight or unread.

    Attributes:
        id: consumer id of the last SUBSCRIBE; 0 before the first.
        open: whether that was answered, and nothing has ended it since.
        active: whether the broker sends to this member (failover).
        active_known: whether the broker has said so since SUBSCRIBE.
        ended: whether the topic is terminated, and the broker has no more.
        flowing: whether permits are granted once it is open.
        paused: whether the user wants nothing of it.
        frames: MESSAGE frames that were not handed over.
        permits: granted to the broker.
        cursor: how far the partition is read.
    """

    def __init__(self, topic: str, partition: int, name: str, given: Subscription, window: int) -> None:
        self.topic = topic
        self.partition = partition
        self.name = name
        self.given = given
        self.id = 0
        self.open = False
        self.active = True
        self.active_known = True
        self.ended = False
        self.flowing = True
        self.paused = False
        self.frames: deque[bytes] = deque()
        self.permits = Permits(window)
        self.cursor = Cursor(unread(topic, partition))

    @property
    def owner(self) -> TopicPartition:
        """The partition as the user names it: (topic, number)."""
        return self.topic, self.partition

    def place(self, ledger: int, entry: int) -> MessageId:
        """Return the position of an entry of this partition."""
        return MessageId(self.topic, self.partition, ledger, entry)

    def unreadable(self, fact: PulsarEntry, way: str = "; seek behind it, or set on_corrupt, to continue") -> WireprotoError:
        """Return why an entry cannot be read, with its position; the text ends with `way`, which says what to do."""
        why = fact.error
        assert why is not None
        why.text += way
        why.position = self.place(fact.ledger, fact.entry)
        return why.with_context(topic=self.topic, partition=self.partition)

    @property
    def kept(self) -> bool:
        """Whether the topic keeps its messages. In one that does not positions have no meaning: its ids start again when it is loaded."""
        return not self.name.startswith("non-persistent:")

    def passed(self, ledger: int, entry: int) -> None:
        """Note that an entry was handed out whole.

        In a topic that keeps nothing each entry may be called 0:0: the next one is no repetition.
        """
        if self.kept:
            self.cursor.handed(ledger, entry)
        else:
            self.cursor.next = MessageId(self.topic, self.partition, ledger, entry, after=True)

    def begins(self, consumer: int) -> None:
        """Note that SUBSCRIBE is being sent: everything of earlier consumers is over."""
        self.lost()
        self.id = consumer
        self.ended = False
        self.active = self.active_known = self.given.kind != FAILOVER

    def opened(self) -> None:
        """Note that SUBSCRIBE was answered."""
        self.open = True
        self.permits.over()

    def lost(self) -> None:
        """Note that the consumer is gone at the broker: what was not handed over is redelivered."""
        self.open = False
        self.frames = deque()

    @property
    def ours(self) -> bool:
        """Whether what comes now is for this member; always so in topics that keep nothing, where brokers do not announce it."""
        return self.active or not self.kept

    def fed(self, fed: bool) -> bool:
        """Note whether the broker sends to this member, as it has said (ACTIVE_CONSUMER_CHANGE).

        Returns:
            whether it did before, as far as this member knew: what it was handed may be another one's now.
        """
        before = self.active_known and self.active
        self.active_known, self.active = True, fed
        return before

    def grant(self) -> int:
        """Return the number of messages to grant now; 0 while nothing is wanted."""
        wanted = self.open and self.flowing and not self.paused and (self.ours or not self.active_known)
        return self.permits.more() if wanted else 0
