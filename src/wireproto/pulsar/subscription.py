"""What one member of a subscription knows of one partition.

What it is: sans-IO; no clock but what it is given. Used by Reader, Consumer and QueueConsumer alike.

    generation   consumer id of the SUBSCRIBE that counts: what belongs to another one is passed over
    frames       MESSAGE frames that have come and were not handed over
    permits      FLOW grants messages, not entries, and grants add up; a batch that is larger than what is left comes whole. What arrived is
                 counted when it is handed over; when less than half of what is wanted is left, more is granted
    cursor       how far the partition is read: where a subscription that is not durable is opened again, and what is passed over then
    active       of a failover subscription, whether this member is fed. The broker may read on for a member where the last one stopped, and
                 go back to the mark afterwards: it says "fed" then, each time. So nothing counts that comes before that word

A subscription that is lost drops what was not handed over; the broker sends that again after the next SUBSCRIBE.
Must not: send anything, or decode entries.
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
"""How many times what has come at all may be wanted next: the first messages tell their size."""

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
        renamed: each SUBSCRIBE has a name of its own. Of a subscription that is not durable a broker lets the former one go in a thread of
            its own. Under the same name it would give us what is left of that, which begins where the former one stood, or take the new
            one's cursor away by its name, and then nothing comes any more (PersistentSubscription.removeConsumer).
        initial: CommandSubscribe.InitialPosition of a new durable subscription.
        since: milliseconds at which a new durable subscription begins, None: at `initial`.
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
        """SUBSCRIBE, without its request id.

        Args:
            topic: full name of the partition.
            begin: of a subscription that is not durable: after (ledger, entry) with index -1, at the entry with another index.
            latest: time.time() at which the broker comes to it at the latest.
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
            # whole seconds back from when the broker comes to it: rather too much than too little
            command.start_message_rollback_duration_sec = max(1, math.ceil(latest - self.since / 1000))
        for key, value in self.properties:
            command.subscription_properties.add(key=key, value=value)
        if self.kind == KEY_SHARED:
            command.keySharedMeta.keySharedMode = api.AUTO_SPLIT
        if not self.durable and begin is not None:
            command.start_message_id.CopyFrom(message_id(*begin))
        return command


class Permits:
    """How many messages a broker may send.

    Args:
        window: bytes of messages that may be on their way or unread.

    Attributes:
        largest: bytes of the largest entry that there may be: the first grants are for that much, before any size is known.
        seen: how many left the queue. look_at: how many may have left it before `more` can give anything.
        most: messages that may be on their way or unread; of a batch they come all.
    """

    __slots__ = ("_granted", "_size", "_unsent", "largest", "look_at", "most", "seen", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.largest = window
        self.most = MOST_PERMITS
        self._granted = 0
        self._unsent = 0  # of these: perhaps nobody has told the broker, for a signal handler broke in
        self.seen = self.look_at = 0
        self._size = 0.0

    def over(self) -> None:
        """The consumer is gone, and what it was granted."""
        self._granted = self._unsent = self.look_at = 0

    def handed(self, messages: int, size: int) -> None:
        """`messages` of `size` bytes left the queue."""
        self.left(messages)
        self.measured(messages, size)

    def left(self, messages: int) -> None:
        """So many left the queue."""
        self._granted -= messages
        self.seen += messages

    def measured(self, messages: int, size: int) -> None:
        """So many have so many bytes."""
        if messages:
            self._size = size / messages if not self._size else (self._size * 3 + size / messages) / 4
            self.look_at = 0

    def back(self, seen: int) -> None:
        """What left the queue since then is there again."""
        self._granted += self.seen - seen
        self.seen = seen
        self.look_at = 0

    def sent(self) -> None:
        """The broker has been told of what `more` gave."""
        self._unsent = 0

    def more(self) -> int:
        """How many to grant now, `sent` to follow; they count as granted. What the broker may not have heard of is granted once more:
        rather too many than too few."""
        want = max(1, min(self.most, self.window // self.largest))
        if self._size:
            want = max(1, min(self.most, int(self.window / self._size), want + GROWTH * self.seen))
        granted = self._granted - self._unsent
        if granted * 2 > want:
            # not before so many more have left: each takes one from what is granted, and lets `GROWTH` more be wanted at most
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
        window: bytes of messages that may be on their way or unread.

    Attributes:
        id: consumer id of the last SUBSCRIBE; 0 before the first.
        open: whether that was answered, and nothing has ended it since.
        active: whether this member is fed (failover). told: whether the broker has said so since SUBSCRIBE.
        ended: the topic is terminated, and the broker has no more.
        flowing: whether permits are granted once it is open. paused: the user wants nothing of it.
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
        return self.topic, self.partition

    def place(self, ledger: int, entry: int) -> MessageId:
        """Of an entry of this partition."""
        return MessageId(self.topic, self.partition, ledger, entry)

    def unreadable(self, fact: PulsarEntry, way: str = "; seek behind it, or set on_corrupt, to go on") -> WireprotoError:
        """Why an entry of it cannot be handed out, with its place and the way on."""
        why = fact.error
        assert why is not None
        why.text += way
        why.position = self.place(fact.ledger, fact.entry)
        return why.with_context(topic=self.topic, partition=self.partition)

    @property
    def kept(self) -> bool:
        """Whether the topic keeps its messages. One that does not has no places to speak of: its ids begin anew when it is loaded."""
        return not self.name.startswith("non-persistent:")

    def passed(self, ledger: int, entry: int) -> None:
        """The entry was handed out whole. Where nothing is kept each one may be called 0:0: the next is no repeat of it."""
        if self.kept:
            self.cursor.handed(ledger, entry)
        else:
            self.cursor.next = MessageId(self.topic, self.partition, ledger, entry, after=True)

    def begins(self, consumer: int) -> None:
        """SUBSCRIBE is on its way: everything of the consumers before is over."""
        self.lost()
        self.id = consumer
        self.ended = False
        self.active = self.active_known = self.given.kind != FAILOVER

    def opened(self) -> None:
        """It was answered."""
        self.open = True
        self.permits.over()

    def lost(self) -> None:
        """The consumer is gone at the broker: what was not handed over comes again."""
        self.open = False
        self.frames = deque()

    @property
    def ours(self) -> bool:
        """Whether what comes now is for this member. Of topics that keep nothing a broker says only who is not fed at first."""
        return self.active or not self.kept

    def fed(self, fed: bool) -> bool:
        """The broker says whether this member is fed; whether it was, as far as it knew: what it was handed may be another one's now."""
        before = self.active_known and self.active
        self.active_known, self.active = True, fed
        return before

    def grant(self) -> int:
        """Messages to grant now; 0 while nothing is wanted."""
        wanted = self.open and self.flowing and not self.paused and (self.ours or not self.active_known)
        return self.permits.more() if wanted else 0
