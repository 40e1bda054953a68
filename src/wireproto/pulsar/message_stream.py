"""Merges the partitions that one role reads into one stream of frames.

Has one mailbox for all partitions of a Reader, Consumer or QueueConsumer; sorts what arrives by partition and returns the frames of one
partition after the other. Belongs to one thread at a time; `subscriber` keeps the partitions subscribed meanwhile, in the I/O thread. It
does not decode what is handed out, nor know what a role does with it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from wireproto._net import Call, Mailbox, Push, consumer_channel
from wireproto.errors import Closed, Disconnected, TimedOut, WireprotoError
from wireproto.net.retry import BRIEFLY, Verdict, Waits, verdict
from wireproto.net.task import Steps, Task, fresh

from . import PulsarApi_pb2 as api
from .codes import ConsumerNotFound, PulsarError, TopicNotFound
from .frames import command_name, decode, reply_body
from .partition_consumer import PartitionConsumer
from .poll_in_progress import PollInProgress
from .subscriber import (
    RETRY,
    BegunEvent,
    FailedEvent,
    GoneEvent,
    GrownEvent,
    MarkedEvent,
    OpenedEvent,
    Place,
    Subscriber,
    SubscriptionTask,
    places,
)
from .subscription import OLDEST, Subscription

if TYPE_CHECKING:
    from wireproto._codec import PulsarEntry

    from .cluster import PulsarCluster

MESSAGE = 9
GATHER_FRAMES = 256
GATHER_BYTES = 1 << 20
"""Most frames and bytes of one partition that are handed out together."""
ACTIVE_STATE_TIMEOUT = 5.0
"""Seconds that a broker may take to inform a failover consumer whether it is active; it waits a second itself by default."""
ENOUGH = 5.0
"""Seconds in which a partition has to be opened where an attempt has failed, before a role begins with the others: brokers take some to
hand a topic over."""
MOST = 0.75
"""Share of a role's time to open after which it begins with the other partitions, where one is not answered."""
LEAST_SHARE = 1 << 16
"""Bytes that each partition may have in flight, however many there are."""


def _gathered(came: deque[bytes]) -> list[bytes]:
    """Return the first frames, as many as one batch is made of: up to `GATHER_FRAMES`, or until they have `GATHER_BYTES`."""
    frames = list(islice(came, GATHER_FRAMES))
    if sum(map(len, frames)) >= GATHER_BYTES:
        ends = accumulate(map(len, frames))
        frames = frames[: next(number for number, end in enumerate(ends, 1) if end >= GATHER_BYTES)]
    return frames


class MessageStream:
    """The frames of all partitions of one role.

    Args:
        cluster: of the client.
        names: (topic as the user named it, partition, full name).
        subscription: what SUBSCRIBE says of each partition.
        window: bytes for all partitions together.
        most: messages for all partitions together, one each at least; None: as many as the window has room for.
        recovery_timeout: seconds for which a partition that was open may be refused, for a reason that does not pass, before that is
            raised.
        flow: whether permits are granted as soon as a partition is open.
        begun: called with a partition at each SUBSCRIBE: what it had of the one before is over.
        opened: called with a partition when it is open, its mark-delete position, and whether the broker closed it before.
        marked: called with a partition when this member is active on it, and its mark-delete position.
        changed: called with a partition when the broker says whether this member is active (failover), and whether it was until then.
        ready: called with a partition when it is open, before permits are granted.
        answered: called with a call that was submitted with `box`, when it is over.

    Attributes:
        box: the mailbox.
        parts: the partitions.
        poll: the frames that `next` returned last, until the role sets it to None since they have reached the user.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        names: Sequence[tuple[str, int, str]],
        subscription: Subscription,
        *,
        window: int,
        most: int | None = None,
        recovery_timeout: float,
        flow: bool = True,
        begun: Callable[[PartitionConsumer], None] | None = None,
        opened: Callable[[PartitionConsumer, Place, bool], None] | None = None,
        marked: Callable[[PartitionConsumer, Place], None] | None = None,
        changed: Callable[[PartitionConsumer, bool], None] | None = None,
        ready: Callable[[PartitionConsumer], None] | None = None,
        answered: Callable[[Call], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self.box = Mailbox(cluster.loop, limit=window * 2)
        self._subscriber = Subscriber(cluster, self.box, marks=opened is not None)
        self._given = subscription
        self._window = window
        self._most = most
        self._recovery_timeout = recovery_timeout
        self._begun, self._opened, self._marked, self._changed = begun, opened, marked, changed
        self._ready_again, self._answered = ready, answered
        self.parts: list[PartitionConsumer] = []
        self._by_channel: dict[int, PartitionConsumer] = {}
        self._ready: deque[PartitionConsumer] = deque()
        self._came: deque[Any] = deque()  # taken from the mailbox, and not sorted yet
        self.poll: PollInProgress | None = None
        self._growth: Task[None] | None = None
        self._over = False
        for name in names:
            self._add(*name, subscription).flowing = flow

    def _add(self, topic: str, number: int, name: str, given: Subscription) -> PartitionConsumer:
        part = PartitionConsumer(topic, number, name, given, 0)
        self.parts.append(part)
        for each in self.parts:
            each.permits.window = max(LEAST_SHARE, self._window // len(self.parts))
            if self._most is not None:
                each.permits.most = max(1, self._most // len(self.parts))
        return part

    def opening(self, deadline: float, parts: Collection[PartitionConsumer] | None = None) -> Steps[list[PartitionConsumer]]:
        """Subscribe on every partition, or on these, all at a time. Steps.

        A partition that cannot be opened holds up no others: where an attempt has failed it is left behind after `ENOUGH` seconds, where
        nothing is answered after most of the time. It is tried again in the background, and the log names it.

        Args:
            deadline: as `time.monotonic()`. parts: those to open; None: all.

        Returns:
            those that were left behind.

        Raises:
            why none of them could be opened by `deadline`, where no other one is open either; at once what does not pass.
        """
        parts = list(self.parts if parts is None else parts)
        for part in parts:
            self.keep_subscribed(part)
        others = any(part.open or part.cursor.done for part in self.parts if part not in parts)
        begin = time.monotonic()
        most = begin + (deadline - begin) * MOST
        while left := [part for part in parts if not part.open]:
            until = deadline
            if others or len(left) < len(parts):
                until = most if any(part.trouble is None for part in left) else min(most, begin + ENOUGH)
            if time.monotonic() >= until:
                break
            yield from self.more(until)
        if left and len(left) == len(parts) and not others:
            yield from self.attached(left[0], deadline)  # raises why it is not open
        for part in left:
            self.leave_behind(part, part.trouble or part.stage)
        return left

    def leave_behind(self, part: PartitionConsumer, why: object) -> None:
        """Have the log name a partition that is not read yet, and why."""
        text = "%s[%d]: it cannot be opened now, and is read as soon as it can: %s"
        self._cluster.log.warning(("left behind", part.name), text, *part.owner, why)

    def keep_subscribed(self, part: PartitionConsumer) -> None:
        """Keep a partition subscribed from now on."""
        self._still_open()
        part.subscription_task = self._subscriber.begin(part)

    def grow(self) -> None:
        """Read partitions that the topics get, too, from their beginning."""
        known: dict[str, int] = {}
        for part in self.parts:
            if part.partition >= 0:
                known[part.topic] = known.get(part.topic, 0) + 1
        if known:
            self._growth = self._subscriber.watch(known, self._cluster.options.metadata_max_age)

    def part(self, number: int) -> PartitionConsumer:
        """Return the partition with that number, of a role with one topic."""
        return next(part for part in self.parts if part.partition == number)

    # -- what arrives -------------------------------------------------------------------------------------------

    def next(self, deadline: float, waits: Callable[[], object] | None = None) -> Steps[tuple[PartitionConsumer, list[bytes]] | None]:
        """Return MESSAGE frames of one partition, in order; None when none came until `deadline`. Steps.

        Frames that are put back into a partition's queue are returned when it is its turn again. `poll` keeps what was returned, until the
        role says that it has reached the user.

        Args:
            deadline: as `time.monotonic()`.
            waits: called before each wait; what it raises is raised.

        Raises:
            why a partition is not opened again: at once where its topic is gone; a refusal that does not pass by itself, when it has lasted
                for `recovery_timeout`. Opening is tried on, and an outage is never raised, however long it is.
            Closed: another thread closed the role meanwhile.
        """
        while True:
            self._drain()
            taken = self._take()
            if taken is not None:
                return taken
            if waits is not None:
                waits()
            if not (yield from self.more(deadline)):
                return None

    def more(self, deadline: float) -> Steps[bool]:
        """Wait for what arrives next and take it in. Steps.

        Args:
            deadline: as `time.monotonic()`.

        Returns:
            False when nothing came and `deadline` is over.

        Raises:
            Closed: the role was closed.
        """
        self._still_open()  # a closed mailbox is always ready, and empty
        if self._came or (yield self.box, deadline):  # `_came`: a signal handler raised while it was sorted
            self._still_open()
            self._drain()
            return True
        return time.monotonic() < deadline

    def _still_open(self) -> None:
        if self._over:
            raise Closed("the role was closed")

    def _drain(self) -> None:
        """Sort what has arrived. It is taken out in C, and is not forgotten before it was sorted: a signal handler may raise anywhere."""
        came, sort = self._came, self._sort
        if came:
            self._forget_sorted(came[0])
        came.extend(islice(iter(self.box.get, None), len(self.box)))
        while came:
            try:
                sort(came[0])
            except WireprotoError:
                came.popleft()
                raise
            came.popleft()

    def _forget_sorted(self, item: Any) -> None:
        """Forget an item whose sorting a signal handler broke into, where its message is in its queue already."""
        part = self._by_channel.get(item.channel) if isinstance(item, Push) else None
        if part is not None and part.frames and part.frames[-1] is item.frame:
            self._came.popleft()
            self._turn_to_all()

    def _turn_to_all(self) -> None:
        """Queue each partition that has frames, since a signal handler broke in."""
        self._ready = deque(part for part in self.parts if part.frames)
        for part in self.parts:
            part.queued = part in self._ready

    def take_back(self) -> bool:
        """Undo a poll that a signal handler interrupted: `next` returns the same frames again, since the user did not receive them.

        Returns:
            whether there were any.
        """
        poll, self.poll = self.poll, None
        if poll is not None:
            poll.take_back()
            if poll.part.subscription_task is None and not poll.part.cursor.done:  # the poll had read it to its end
                self.keep_subscribed(poll.part)
        self._turn_to_all()
        for part in self.parts:
            part.flow()
        return poll is not None

    def _take(self) -> tuple[PartitionConsumer, list[bytes]] | None:
        for _ in range(len(self._ready)):
            part = self._ready.popleft()
            if not part.frames:
                part.queued = False
                continue
            self._ready.append(part)
            if part.paused:
                continue
            came = part.frames  # a close in another thread leaves these as they are
            frames = _gathered(came)
            self.poll = PollInProgress(part, came, len(came), frames, part.cursor, part.cursor.mark(), part.permits.seen)
            if len(frames) == len(came):
                came.clear()
            else:
                for _ in frames:
                    came.popleft()
            return part, frames
        return None

    def _requeue(self, part: PartitionConsumer) -> None:
        """Queue a partition that has frames."""
        if not part.queued:
            part.queued = True
            self._ready.append(part)

    def _sort(self, item: Any) -> None:
        """Sort one item of the mailbox: a message to its partition's queue, or news about a partition."""
        if not isinstance(item, Push):
            if not isinstance(item, Call):
                self._tended(item)
            elif self._answered is not None:
                self._answered(item)
            return
        part = self._by_channel.get(item.channel)
        if part is None or part.link is not item.conn:
            return
        frame = item.frame
        if len(frame) > 5 and frame[4] == 8 and frame[5] == MESSAGE:
            self._message(part, frame)
        else:
            self._news(part, item)

    def _message(self, part: PartitionConsumer, frame: bytes) -> None:
        if part.ours:
            if not part.active:  # of a non-persistent topic, where the broker does not announce that this member is active
                part.fed(True)
                if self._changed is not None:
                    self._changed(part, False)
            part.frames.append(frame)
            self._requeue(part)
        else:
            part.dropped([frame])

    def _news(self, part: PartitionConsumer, item: Push) -> None:
        """Take in what a broker says of a consumer."""
        try:
            base = decode(item.frame, item.conn.peer)
            name = command_name(base)
            if name == "topicMigrated":
                self._cluster.lookup.migrated(part.name, base.topicMigrated, item.conn.peer)
        except WireprotoError as why:
            item.conn.close(str(why))
            return
        if name == "message":
            self._message(part, item.frame)
        elif name in ("close_consumer", "topicMigrated"):
            self._cluster.log.info(("moved", part.name), "%s: broker %s no longer serves the topic", part.name, item.conn.peer)
            if part.subscription_task is not None:
                part.subscription_task.doubt = True
            self.lost(part)
        elif name == "reachedEndOfTopic":
            part.ended = True
        elif name == "active_consumer_change":
            self._fed(part, base.active_consumer_change.is_active)

    def _fed(self, part: PartitionConsumer, fed: bool) -> None:
        """Take in whether this member is active: frames that came until now are redelivered, or another member's."""
        if part.active_known and not part.active and not fed:
            return
        before = part.fed(fed)
        part.dropped([part.frames.popleft() for _ in range(len(part.frames))])
        part.flow()
        if self._changed is not None:
            self._changed(part, before)
        if fed and part.subscription_task is not None:
            self._ask_for_mark(part.subscription_task)

    def _ask_for_mark(self, subscription_task: SubscriptionTask) -> None:
        if self._marked is not None:
            self._subscriber.mark_of(subscription_task)

    def _tended(self, item: Any) -> None:
        """Take in an event of a subscription."""
        if isinstance(item, GrownEvent):
            for number, name in item.names:
                self.keep_subscribed(self._add(item.topic, number, name, replace(self._given, initial=OLDEST, since=None)))
            return
        part: PartitionConsumer = item.subscription_task.part
        if item.subscription_task is not part.subscription_task:
            return
        if isinstance(item, BegunEvent):
            self._by_channel.pop(consumer_channel(part.id), None)
            part.begins(item.consumer)
            part.link = item.conn
            self._by_channel[consumer_channel(part.id)] = part
            if self._begun is not None:
                self._begun(part)
        elif isinstance(item, OpenedEvent):
            self._is_open(part, item)
        elif isinstance(item, MarkedEvent):
            if item.consumer == part.id and self._marked is not None:
                self._marked(part, item.mark)
        elif isinstance(item, GoneEvent):
            if item.consumer == part.id:
                part.lost()
        elif isinstance(item, FailedEvent):
            self._failed(part)

    def _is_open(self, part: PartitionConsumer, item: OpenedEvent) -> None:
        if item.consumer != part.id or item.gone.done or part.link is None:
            return
        part.opened()
        part.conn = part.link
        part.trouble = part.refused_since = None
        part.permits.largest = part.conn.context.max_message_size
        if item.mark is not None and self._opened is not None:
            self._opened(part, item.mark, item.doubt)
        elif part.active_known and part.active:
            self._ask_for_mark(item.subscription_task)
        if self._ready_again is not None:
            self._ready_again(part)
        part.flow()

    def _failed(self, part: PartitionConsumer) -> None:
        """Take in a failed attempt to open a partition.

        It is raised when the partition has never been open and the error cannot pass, or when that has lasted too long.
        """
        assert part.subscription_task is not None
        why, part.subscription_task.failure = part.subscription_task.failure, None
        if why is None:
            return
        now = time.monotonic()
        few = not part.subscription_task.known and part.subscription_task.failures <= BRIEFLY
        final = verdict(why, transient=(TimedOut,), brief=few) is Verdict.NEVER
        part.refused_since = (part.refused_since or now) if final else None
        part.trouble = why
        beside = isinstance(why, WireprotoError) and why.refresh and any(one.open for one in self.parts)  # it holds up no others
        if not part.subscription_task.known and final and not beside:
            raise fresh(why)
        self._cluster.log.info(("again", type(why), part.topic), "%s[%d]: tried again: %s", part.topic, part.partition, why)
        # once it was open, what stands in its way may be this very consumer, not yet gone at the broker
        if isinstance(why, TopicNotFound) or (part.refused_since is not None and now - part.refused_since > self._recovery_timeout):
            part.refused_since = None
            raise fresh(why)

    def unopened(self, part: PartitionConsumer) -> Exception:
        """Return the error that says why a partition is not open; it names the partition."""
        if part.trouble is None:
            return TimedOut(f"the partition is not open yet: {part.stage}", topic=part.topic, partition=part.partition)
        why = fresh(part.trouble)
        return why.with_context(topic=part.topic, partition=part.partition) if isinstance(why, WireprotoError) else why

    def lost(self, part: PartitionConsumer) -> None:
        """Note that the consumer of a partition is gone at its broker: it is opened again, and what was not handed out is redelivered."""
        part.lost()
        if part.subscription_task is not None:
            part.subscription_task.lost()

    # -- requests -----------------------------------------------------------------------------------------------

    def _take_in(self, call: Call, deadline: float, part: PartitionConsumer | None = None) -> Steps[None]:
        """Take in what arrives until the call is done, or `deadline`; with a partition, while that is attached by the call's connection."""
        while not call.done and (part is None or part.conn is call.conn):
            now = time.monotonic()
            if now >= deadline:
                break
            yield call, min(deadline, now + 0.05)
            self._drain()

    def attached(self, part: PartitionConsumer, deadline: float) -> Steps[PartitionConsumer]:
        """Wait until a partition is open, and return it. Steps.

        Raises:
            why it is not open at `deadline`. Else as `next`.
        """
        if part.subscription_task is None:
            self.keep_subscribed(part)
        self._drain()
        while not part.open:
            if not (yield from self.more(deadline)):
                raise self.unopened(part)
        return part

    def ask(self, part: PartitionConsumer, command: Message, deadline: float) -> Steps[Any]:
        """Send a request about an attached partition and return its typed reply. Steps.

        Args:
            part: the partition. command: with its consumer id. deadline: as `time.monotonic()`.

        Raises:
            PulsarError: the broker refuses. TimedOut, Disconnected: no answer.
        """
        call = part.submit(command)
        yield from self._take_in(call, deadline)
        return answer_of(part, call, command)

    def ask_again(self, part: PartitionConsumer, command: Any, deadline: float, fit: Callable[[], Steps[bool]] | None = None) -> Steps[Any]:
        """Send a request about a partition that may be repeated, and return its typed reply. Steps.

        It is sent again once the partition is back when its consumer is gone meanwhile: the broker answers "not found" then, or nothing at
        all (ACK), or ends the connection. When it refused for a while and then does not answer in time, the refusal is raised.

        Args:
            part: the partition. command: a message with a consumer_id, which is set here. deadline: as `time.monotonic()`.
            fit: steps taken before each attempt, which return whether the request still makes sense; None is returned when not.

        Raises:
            PulsarError: the broker refuses. TimedOut: no answer in time. Else as `attached`.
        """
        trouble: PulsarError | None = None
        waits = Waits(RETRY)
        while True:
            yield from self.attached(part, deadline)
            if fit is not None and not (yield from fit()):
                return None
            command.consumer_id = part.id
            try:
                call = part.submit(command)
                yield from self._take_in(call, deadline, part)
                if not call.done and part.conn is not call.conn:
                    call.cancel()
                    continue
                return answer_of(part, call, command)
            except TimedOut:
                if trouble is None:
                    raise
                raise trouble from None
            except (ConsumerNotFound, Disconnected):
                self.lost(part)
                continue
            except PulsarError as why:  # the consumer is there: a topic about to move, an entry that cannot be read just now
                wait = waits.next()
                if verdict(why) is Verdict.NEVER or time.monotonic() + wait >= deadline:
                    raise
                trouble = why
            yield time.monotonic() + wait

    def ask_once(self, part: PartitionConsumer, command: Any, calls: dict[object, Call], deadline: float) -> Steps[None]:
        """Send a request about an attached partition that must not be made twice. Steps.

        Args:
            part: the partition. command: as for `ask_again`. deadline: as `time.monotonic()`.
            calls: has the request while it is in flight, also after this has ended, wherever a signal handler raises.

        Raises:
            PulsarError: the broker refuses. Disconnected, TimedOut: whether it was done is not known.
        """
        command.consumer_id = part.id
        conn, token, frame = part.request(command)
        mine = object()
        calls.update(zip((mine,), map(conn.submit, (token,), (frame,)), strict=True))  # sent and known in one step of C
        call = calls[mine]
        yield from self._take_in(call, deadline, part)
        if not call.done and part.conn is call.conn:
            raise TimedOut(f"no answer to {type(command).__name__} in time", topic=part.topic, partition=part.partition)
        calls.pop(mine, None)
        if not call.done:
            call.cancel()
            raise Disconnected("the consumer was closed before it was answered", topic=part.topic, partition=part.partition)
        reply_body(call.result(0.0), call.conn.peer, topic=part.topic, partition=part.partition)

    def ask_each(
        self,
        parts: Collection[PartitionConsumer],
        make: Callable[[PartitionConsumer], Any],
        deadline: float,
        enough: Callable[[bool], bool] = lambda answered: False,
    ) -> Steps[tuple[dict[PartitionConsumer, Any], dict[PartitionConsumer, Exception]]]:
        """Send a request about each of the partitions, as `ask_again`, at the same time: none waits for another one's broker. Steps.

        Args:
            parts: the partitions. make: makes the request for one; its consumer_id is set here. deadline: as `time.monotonic()`.
            enough: gets whether there is a reply; returns whether to wait no longer.

        Returns:
            the typed replies, and why the other partitions have none.

        Raises:
            as `attached`, where that does not concern one of these partitions alone.
        """
        replies: dict[PartitionConsumer, Any] = {}
        failed: dict[PartitionConsumer, Exception] = {}
        questions = {part: _Question(make(part)) for part in parts}
        for part in parts:
            if part.subscription_task is None:
                self.keep_subscribed(part)
        try:
            while questions:
                self._still_open()
                self._drain()
                now = time.monotonic()
                for part, question in list(questions.items()):
                    try:
                        reply = question.put(part, now)
                    except (ConsumerNotFound, Disconnected):
                        self.lost(part)
                    except WireprotoError as why:
                        if not question.goes_on_after(why, now, deadline):
                            failed[part] = why
                            del questions[part]
                    else:
                        if reply is not None:
                            replies[part] = reply
                            del questions[part]
                if now >= deadline or enough(bool(replies)):
                    break
                calls = [question.call for question in questions.values() if question.call is not None]
                until = min(deadline, now + 0.05)
                if calls:
                    yield calls[0], until
                elif questions:
                    yield self.box, until
            for part, question in questions.items():
                failed[part] = question.unanswered(part) or self.unopened(part)
        finally:
            for question in questions.values():
                question.cancel()
        return replies, failed

    def place(self, part: PartitionConsumer, deadline: float) -> Steps[tuple[Place, Place]]:
        """Return the place of a partition's last message, and its mark-delete position: (ledger, entry) each, entry -1 for none. Steps.

        Raises:
            as `ask_again`.
        """
        return places((yield from self.ask_again(part, api.CommandGetLastMessageId(), deadline)))

    def rewind(self, part: PartitionConsumer, target: api.CommandSeek, deadline: float) -> Steps[None]:
        """Send SEEK, and subscribe again, since the broker closes the consumer over it. Steps.

        No permits are granted until the role sets `flowing` again.
        """
        before = target.consumer_id = part.id
        part.flowing = False
        assert part.subscription_task is not None
        part.subscription_task.made_progress = True  # so that it is opened again at once
        yield from self.ask(part, target, deadline)
        if part.id == before:
            self.lost(part)
        yield from self.attached(part, deadline)

    def anew(self, part: PartitionConsumer, deadline: float) -> Steps[None]:
        """Subscribe again, so that what is not acknowledged is redelivered. Steps; `attached` waits for that."""
        yield from self.attached(part, deadline)
        assert part.subscription_task is not None
        part.subscription_task.made_progress = True  # so that it is opened again at once
        with suppress(ConsumerNotFound, Disconnected):
            yield from self.ask(part, api.CommandCloseConsumer(consumer_id=part.id), deadline)
        self.lost(part)

    def ahead(self, part: PartitionConsumer) -> int:
        """Return how many frames of a partition may have arrived and are not handed out; it may count those of others, too."""
        return len(part.frames) + len(self._came) + len(self.box)

    def settle(self, part: PartitionConsumer, deadline: float) -> Steps[None]:
        """Take in what has arrived; wait a moment for a failover consumer that was just attached to learn whether it is active. Steps."""
        self._drain()
        until = min(deadline, time.monotonic() + ACTIVE_STATE_TIMEOUT)
        while not part.active_known and part.open and (yield from self.more(until)):
            pass

    def tell_skipped(self, part: PartitionConsumer, facts: Sequence[PulsarEntry]) -> None:
        """Have the log name entries that cannot be read."""
        for fact in facts:
            if fact.error is not None:
                self._cluster.log.skipped(part.topic, part.partition, f"{fact.ledger}:{fact.entry}", fact.error)

    # -- ends ---------------------------------------------------------------------------------------------------

    def stop(self, part: PartitionConsumer, *, closed: bool = False) -> None:
        """Close a partition's consumer at the broker without waiting, unless it is `closed` there already; `attached` opens it again."""
        part.lost()
        subscription_task, part.subscription_task = part.subscription_task, None
        if subscription_task is not None:
            self._subscriber.end(subscription_task, closed=closed)

    def closing(self, deadline: float) -> Steps[None]:
        """Close every consumer at its broker, and wait for the answers until `deadline`. Steps.

        A thread that waits in a call is woken at once.
        """
        self._ends()
        asked = []
        for part in self.parts:
            with suppress(WireprotoError):  # the connection's end closes it as well
                if part.open:
                    asked.append(part.submit(api.CommandCloseConsumer(consumer_id=part.id)))
            self.stop(part, closed=part.open)
        try:
            for call in asked:
                if not call.done:
                    yield call, deadline
        finally:
            for call in asked:
                call.cancel()
            self.end()

    def _ends(self) -> None:
        self._over = True
        self.box.close()

    def end(self) -> None:
        """Close everything, as `closing` does, without waiting."""
        self._ends()
        if self._growth is not None:
            self._growth.cancel(Closed("the role was closed"))
        for part in self.parts:
            self.stop(part)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the role's own connections; `attached` opens them again."""
        self._subscriber.hang_up()


def answer_of(part: PartitionConsumer, call: Call, command: Message) -> Any:
    """Return the typed reply to a call about a partition that was waited for; TimedOut gives the call up."""
    try:
        frame = call.result(0.0)
    except TimedOut as why:
        call.cancel()
        raise why.with_context(message=command.DESCRIPTOR.name, topic=part.topic, partition=part.partition) from None
    return reply_body(frame, call.conn.peer, topic=part.topic, partition=part.partition)


class _Question:
    """A request about one partition of several: in flight, or to be sent when the partition is open and a pause is over.

    Attributes:
        call: the request that is in flight, or None.
    """

    def __init__(self, command: Any) -> None:
        self.call: Call | None = None
        self._command = command
        self._refusal: PulsarError | None = None
        self._waits = Waits(RETRY)
        self._again = 0.0

    def put(self, part: PartitionConsumer, now: float) -> Any:
        """Return the typed reply where it is here; else have the request in flight, if the partition is open. Raises what was answered."""
        call = self.call
        if call is not None and not call.done and part.conn is not call.conn:
            self.cancel()
        if self.call is None:
            if part.open and now >= self._again:
                self._command.consumer_id = part.id
                self.call = part.submit(self._command)
        elif self.call.done:
            done, self.call = self.call, None
            return answer_of(part, done, self._command)
        return None

    def goes_on_after(self, why: WireprotoError, now: float, deadline: float) -> bool:
        """Note a refusal; return whether the request is sent again."""
        wait = self._waits.next()
        if not isinstance(why, PulsarError) or verdict(why) is Verdict.NEVER or now + wait >= deadline:
            return False
        self._refusal, self._again = why, now + wait
        return True

    def unanswered(self, part: PartitionConsumer) -> WireprotoError | None:
        """Return why there is no reply: the last refusal, or that the request in flight is not answered; None: it was never sent."""
        if self._refusal is not None or self.call is None:
            return self._refusal
        return TimedOut(
            "no reply in time",
            peer=self.call.conn.peer,
            message=self._command.DESCRIPTOR.name,
            topic=part.topic,
            partition=part.partition,
        )

    def cancel(self) -> None:
        """Give the request in flight up."""
        call, self.call = self.call, None
        if call is not None:
            call.cancel()
