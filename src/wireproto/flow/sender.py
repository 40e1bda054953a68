"""Sends batches on the right connections as requests, and sets their outcomes from the replies.

A `Sender` has all partition queues of a producer, or of many, and keeps when what is due. It knows no protocol: a `Wire` says which
connection a key's batches go to, puts batches into requests, and reads the replies as verdicts; a `Sequencer` (flow.queue) numbers batches.
Everything happens in the thread that calls: one that sends, waits or flushes, the engine's when a reply has come, or a timer (`tick`).

    verdict     the batch
    Stored      is done
    Again       is sent again in its place, with its numbers; `now`: without a pause (the leader is known already)
    StartOver   the same; the sequencer may number all that is left again
    Split       is replaced by its parts, in its place (flow.parts); the whole has its outcome when each has
    Refused     fails, and its receipts with it

Draining: one thread a link at a time. Others that come meanwhile set `again` and return: no thread waits here.
`_due` holds the queues that may send now. A queue that waits for a reply comes back with it, one that pauses by the timer, one without a
link when the wire calls `ready`. So no step looks at more queues than have something to do. Linger and delivery timeout are the same for
all queues of a sender, so the open batches, and those that are not settled, are each in order of time, and one timer serves both.

Locks: `_lock` guards the queues and is held for moments; nothing is called under it that could wait, and no user's code. A link's lock
(`Outlet`) is tried, never waited for, and comes before it. `Wire.transmit` does not wait. Times are those of `clock`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from wireproto._codec import BriefLock, Outlet, SenderCore, unbroken
from wireproto.errors import BufferFull, TimedOut, WireprotoError
from wireproto.net import retry
from wireproto.net.client_log import ClientLog
from wireproto.net.task import Steps

from .interrupt_recovery import InterruptRecovery
from .linger import HeldBackBatches, SendTimes
from .parts import Parts
from .queue import Gate, PartitionQueue, Sequencer
from .verdicts import Again, Elsewhere, Refused, Split, StartOver, Stored, Verdict, Wire

__all__ = ["Again", "Refused", "SendTimes", "Sender", "Split", "StartOver", "Stored", "Verdict", "Wire"]
K = TypeVar("K", bound=Hashable)

FOREVER = float("inf")
CONGESTED_PAUSE = 0.005
"""Seconds until a connection with many unsent bytes is looked at again."""
TURN = 2 << 20
"""Bytes of records, in more than one batch, that are sent before the connection is looked at again."""
AT_ONCE = 3
"""Times in a row that a queue starts over without a pause."""


class Sender(InterruptRecovery, SenderCore):
    """Sends the batches of many queues.

    `current`, `opened`, `hurry`, `set_off` and `stored`, which each record sent one by one goes through, are the core's.

    Args:
        wire: the protocol's way of sending. sequencer: numbers batches. pace: linger, delivery timeout and pauses.
        make_batch: called with (queue, serial, now): an open batch, with `outcome` (an event: `done`, `set`, `fail`, `wait`) and `queue`.
        arm: called with a time: `tick` is to be called then, or a little later. Of several the earliest counts until it has come; infinity
            says that nothing is due.
        clock: returns the time, in seconds. log: the client's log, for what is sent again, and what failed.
    """

    def __init__(
        self,
        wire: Wire,
        sequencer: Sequencer,
        pace: SendTimes,
        make_batch: Callable[[PartitionQueue, int, float], Any],
        arm: Callable[[float], None],
        clock: Callable[[], float],
        log: ClientLog | None = None,
    ) -> None:
        self.pace = pace
        self._log = log
        self._wire = wire
        self._sequencer = sequencer
        self._make_batch = make_batch
        self._arm = arm
        self._clock = clock
        self._lock = BriefLock()
        self._serial = 0
        self._queues: dict[Hashable, PartitionQueue] = {}
        self._outlets: dict[int, Outlet] = {}
        self._due: dict[Hashable, PartitionQueue] = {}
        self._paused: dict[Hashable, PartitionQueue] = {}
        self._unlinked: dict[Hashable, PartitionQueue] = {}
        self._wanted: set[Hashable] = set()
        self._lingering: OrderedDict[Any, None] = OrderedDict()  # open batches
        self._alive: OrderedDict[Any, None] = OrderedDict()  # batches that are not settled; for a batch in parts, the whole
        self._parted: dict[Any, Parts] = {}
        self._armed = FOREVER
        self._lifetime, self._linger = pace.delivery_timeout, pace.linger
        self._held_back = HeldBackBatches(pace)

    # --- records in ---

    @property
    def lock(self) -> BriefLock:
        """Return the lock that is held while records are put into an open batch by `current`."""
        lock: BriefLock = self._lock
        return lock

    @property
    def due(self) -> bool:
        """Return whether anything waits for `drain`."""
        return bool(self._due)

    def queue(self, key: Hashable) -> PartitionQueue:
        """Return the queue of a key, a new one if need be. Lock held."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PartitionQueue(key, self._sequencer)
        return queue

    @unbroken
    def current_of(self, key: Hashable, lane: Hashable) -> Any:
        """Return the open batch of a key for one lane, where a key has several; they are sealed together. Else as `current`."""
        queue = self._queues.get(key) or self.queue(key)
        batch = queue.beside.get(lane)
        if batch is None:
            if queue.error is not None:
                raise copy(queue.error)
            self._serial += 1
            batch = queue.beside[lane] = self._make_batch(queue, self._serial, self._clock())
            self._alive[batch] = self._lingering[batch] = None
        return batch

    @unbroken
    def seal(self, key: Hashable) -> None:
        """Seal the open batch of a key; `drain` sends it. Lock held."""
        queue = self._queues.get(key)
        if queue is not None:
            self._seal(queue)

    @unbroken
    def discard(self, key: Hashable) -> None:
        """Drop the open batch of a key with its records, which were never taken. Lock held."""
        batch = self._queues[key].open
        if batch is not None:
            self._take_out(batch)

    def _seal(self, queue: PartitionQueue) -> None:
        opened = queue.taking()
        if queue.seal():
            self._note(queue)
        for batch in opened:
            self._lingering.pop(batch, None)
            if not batch.count:
                self._alive.pop(batch, None)

    def _stays(self, queue: PartitionQueue) -> None:
        """Note that a queue cannot send now: its open batch takes records for a limited time only. Lock held."""
        if (until := self._held_back.add(queue)) is not None:
            self._wake_at(until)

    def _note(self, queue: PartitionQueue) -> None:
        """Note that a queue has something to send, where it waits until it can. Lock held."""
        if queue.key in self._unlinked or (queue.held_until and queue.key in self._paused):
            self._stays(queue)
            return
        self._paused.pop(queue.key, None)
        self._due[queue.key] = queue

    # --- waiting ---

    @unbroken
    def _set_off_all(self, queue: PartitionQueue, batch: Any) -> None:
        """Send as `set_off` does, where other batches of the key are open, too: they are sent with it."""
        with self._lock:
            if not batch.sealed:
                self._seal(queue)
        if self._due:
            self.drain()

    @unbroken
    def release(self, batches: Iterable[Any]) -> None:
        """End the linger of these batches; they take records until they can be sent."""
        with self._lock:
            for batch in batches:
                if batch.queue.open is batch and self._lingering.pop(batch, self) is None:
                    self._note(batch.queue)
        self.drain()

    @unbroken
    def hurry_all(self) -> None:
        """End the linger of all open batches, since memory is short, or a flush waits."""
        with self._lock:
            for batch in list(self._lingering):
                self._seal(batch.queue)
        self.drain()

    def flushing(self, deadline: float, mine: Callable[[Any], bool], *, topic: str | None = None) -> Steps[None]:
        """Send all batches for which `mine` holds, and wait until each has an outcome, of any kind. Raises TimedOut."""
        began = self._clock()
        for batch in self.hurried(mine):
            if batch.count and not batch.outcome.done and not (yield batch.outcome, deadline):
                text = f"not all records were acknowledged within {max(deadline - began, 0.0):g} s"
                raise batch.queue.explain(TimedOut(text, topic=topic), batch)

    @unbroken
    def hurried(self, mine: Callable[[Any], bool]) -> list[Any]:
        """Send these batches now; returns those that are not settled."""
        with self._lock:
            left = [batch for batch in self._alive if mine(batch)]
            for queue in [batch.queue for batch in left if not batch.sealed]:
                self._seal(queue)
        self.drain()
        return left

    def unsettled(self, mine: Callable[[Any], bool]) -> list[Any]:
        """Return the batches that have no outcome yet, oldest first.

        Without the lock: the garbage collector may call it for a producer, in any thread.
        """
        return [batch for batch in list(self._alive) if mine(batch)]

    def keys_in_flight(self, keys: Iterable[K]) -> set[K]:
        """Return which of these keys have a batch in flight."""
        with self._lock:
            return {key for key in keys if key in self._queues and self._queues[key].in_flight}

    @unbroken
    def abandon(self, mine: Callable[[Any], bool], why: WireprotoError) -> None:
        """Fail all batches for which `mine` holds.

        What is in flight may be stored all the same, and its queue continues after its reply.
        """
        with self._lock:
            gone = [part for batch in list(self._alive) if mine(batch) for part in self._take_out(batch)]
        self._fail((batch, why) for batch in gone)

    @unbroken
    def fail(self, keys: Iterable[Hashable], why: WireprotoError) -> None:
        """End these queues: what they hold fails, and so does what is sent there later."""
        gone: list[Any] = []
        with self._lock:
            for key in keys:
                gone += self.queue(key).fail(why)
            for batch in gone:
                self._take_out(batch)
        self._fail((batch, why) for batch in gone)

    @unbroken
    def leave(self, keys: Iterable[Hashable] = ()) -> None:
        """Forget these keys, which no other producer uses, and, where no batch is left, stop the timer.

        Called when a producer is closed. The timer is set for the end of what was acknowledged long since, and would keep the sender alive,
        with all that it refers to, until then.
        """
        with self._lock:
            for key in keys:
                for queues in (self._queues, self._due, self._paused, self._unlinked):
                    queues.pop(key, None)
                self._held_back.forget(key)
            if not self._alive and not self.broken:
                self._armed = FOREVER
                self._arm(FOREVER)

    def _take_out(self, batch: Any) -> list[Any]:
        """Stop sending a batch; returns what fails with it: itself or its parts. Lock held."""
        self._alive.pop(batch, None)
        self._lingering.pop(batch, None)
        gone = list(self._pieces(batch))
        for part in gone:
            part.queue.expire(part)
        return gone

    def _pieces(self, batch: Any) -> Iterator[Any]:
        """Yield the batch, or its parts."""
        parts = self._parted.get(batch)
        if parts is None:
            yield batch
        else:
            for part in parts.batches:
                yield from self._pieces(part)

    # --- sending ---

    @unbroken
    def drain(self) -> None:
        """Send what can be sent now."""
        while self._due:
            progress = False
            for outlet in self._links():
                progress = self._drain_link(outlet) or progress
            if not progress:
                break
        if self._wanted:
            self._ask_for_links()

    def _links(self) -> list[Outlet]:
        """Return the links that due queues go to; queues without one are put aside."""
        now = self._clock()
        found: dict[int, Outlet] = {}
        with self._lock:
            for key, queue in list(self._due.items()):
                if not self._sendable(queue, now):
                    continue
                link = self._wire.target(key)
                if link is None:
                    self._unlink(queue)
                    continue
                outlet = self._outlets.get(id(link))
                if outlet is None or outlet.link is not link:
                    outlet = self._outlets[id(link)] = Outlet(link)
                found[id(link)] = outlet
        return list(found.values())

    def _sendable(self, queue: PartitionQueue, now: float) -> bool:
        """Return whether something of a due queue may be sent; takes it off `_due` when not. Lock held."""
        batch = queue.ready[0] if queue.ready else queue.open
        if batch is None or queue.gate is Gate.FAILED:
            del self._due[queue.key]
            return False
        if now < queue.held_until:
            del self._due[queue.key]
            self._paused[queue.key] = queue
            self._wake_at(queue.held_until)
            self._stays(queue)
            return False
        if not queue.free(now):
            del self._due[queue.key]  # comes back with the next answer
            self._stays(queue)
            return False
        return True

    def _unlink(self, queue: PartitionQueue) -> None:
        self._due.pop(queue.key, None)
        self._unlinked[queue.key] = queue
        self._wanted.add(queue.key)
        self._stays(queue)

    def _ask_for_links(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, set()
        if wanted:
            self._wire.want(wanted)

    def _drain_link(self, outlet: Outlet) -> bool:
        """Send on one link until nothing is due; returns whether anything was sent. Returns at once while another thread sends on it."""
        sent = False
        outlet.again = True
        while outlet.again and outlet.try_take():
            try:
                while outlet.again:
                    outlet.again = False
                    while not self._wire.congested(outlet.link):
                        if not self._send_some(outlet.link):
                            break
                        sent = True
                        if not self._due:
                            break
                    else:
                        self._wake_at(self._clock() + CONGESTED_PAUSE)
            finally:
                outlet.release()
        return sent

    def _take(self, link: Any, batches: list[Any]) -> None:
        """Fill `batches` with at most one of each due queue of this link, those that waited longest first, and at most a turn's bytes.

        What is due of many queues may be all that the producer holds, and `transmit` has no room for that.
        """
        now = self._clock()
        held = 0
        with self._lock:
            for key, queue in list(self._due.items()):
                if not self._sendable(queue, now):
                    continue
                target = self._wire.target(key)
                if target is not link:
                    if target is None:
                        self._unlink(queue)
                    continue
                if not queue.ready:
                    self._seal(queue)
                held += queue.ready[0].size if queue.ready else 0
                if batches and held > TURN:
                    break
                batch = queue.take(now)
                if batch is not None:
                    batches.append(batch)
                elif queue.ready:
                    self._unlink(queue)  # it cannot be numbered yet
                due = self._due.pop(key, None)
                if due is not None and queue.ready:
                    self._due[key] = due  # behind the others
        if len(batches) > 1:
            batches.sort(key=_created)

    def _send_some(self, link: Any) -> bool:
        """Send a batch of each queue that has one; returns whether there were any."""
        batches: list[Any] = []
        self._take(link, batches)
        if not batches:
            return False
        for part in self._wire.requests(link, batches) if len(batches) > 1 else [batches]:
            try:
                self.send_request(link, part)
            except WireprotoError as why:
                self._unsent(part, why)
        return True

    def _unsent(self, batches: list[Any], why: WireprotoError) -> None:
        final = retry.verdict(why, transient=(BufferFull,)) is retry.Verdict.NEVER
        verdict: Verdict = Refused(why) if final else Again(why)
        self.settle([(batch, verdict) for batch in batches])

    # --- answers ---

    @unbroken
    def answered(self, outcomes: Sequence[tuple[Any, Verdict]]) -> None:
        """Settle the batches of a request by its reply, or the lack of one; then send what is due. A second call changes nothing."""
        self.settle(outcomes)
        self.drain()

    @unbroken
    def settle(self, outcomes: Sequence[tuple[Any, Verdict]]) -> None:
        """Settle batches as `answered` does, without sending: for `Wire.transmit`, where there is no reply."""
        now = self._clock()
        stored: list[tuple[Any, Any]] = []
        failed: list[tuple[Any, WireprotoError]] = []
        with self._lock:
            for batch, verdict in outcomes:
                queue: PartitionQueue = batch.queue
                if type(verdict) is Stored:
                    queue.acked(batch)
                    self._alive.pop(batch, None)
                    stored.append((batch, verdict.base))
                else:
                    failed += self._unstored(queue, batch, verdict, now)
                if queue.ready or (queue.open is not None and queue.open not in self._lingering):
                    self._note(queue)
        if stored:
            self._wire.settled([batch for batch, _ in stored])
        for batch, base in stored:  # last: a caller that waits for it finds the rest done
            batch.outcome.set(base)
        if self._log is not None and len(stored) < len(outcomes):
            for batch, verdict in outcomes:
                if isinstance(verdict, Again | StartOver | Split) and verdict.why is not None:
                    self._log.info(("resent", type(verdict.why)), "%s: %d records are sent again: %s", batch.key, batch.count, verdict.why)
        self._fail(failed)

    def unreached(self, key: Hashable, why: WireprotoError, to: Elsewhere | None) -> None:
        """Note that no link was found for this key: it is requested again after a pause.

        Args:
            to: as in `Again`: batches that may go by another key do so at once.
        """
        with self._lock:
            queue = self.queue(key)
            now = self._clock()
            queue.note_error(why, now)
            queue.pause_after_failure(now, self._pause(queue))
            self._move(queue, to)
        self.ready((key,))

    def note_error(self, keys: Iterable[Hashable], why: WireprotoError) -> None:
        """Note what keeps these queues waiting, for the text of a TimedOut."""
        with self._lock:
            now = self._clock()
            for key in keys:
                self.queue(key).note_error(why, now)

    def move(self, key: Hashable, to: Elsewhere) -> None:
        """Move what this key holds and has not sent to the keys that `to` returns; `drain` sends it. Lock held."""
        self._unlinked.pop(key, None)
        self._move(self.queue(key), to)

    def _move(self, queue: PartitionQueue, to: Elsewhere | None) -> None:
        """Move the ready batches to the keys that `to` returns. Lock held."""
        if to is None:
            return
        self._seal(queue)
        for batch in list(queue.ready):
            key = to(batch)
            if key is not None and key != queue.key:
                other = self.queue(key)
                other.note_error(queue.last_error, queue.last_error_at)
                queue.hand_over(batch, other)
                self._note(other)

    def _unstored(self, queue: PartitionQueue, batch: Any, verdict: Verdict, now: float) -> list[tuple[Any, WireprotoError]]:
        """Apply all verdicts but Stored; returns the batches that fail by it. Lock held."""
        if isinstance(verdict, Again):
            queue.note_error(verdict.why, now)
            pause = 0.0 if verdict.now else self._pause(queue)
            queue.again(batch, now, pause, doubtful=verdict.doubtful)
            self._move(queue, verdict.to)
        elif isinstance(verdict, StartOver):
            queue.note_error(verdict.why, now)
            oldest = queue.oldest() is batch  # a batch behind another one is out of order for the same reason
            pause = 0.0 if queue.failures < AT_ONCE or not oldest else self._pause(queue)
            queue.start_over(batch, now, pause)
            queue.failures += oldest and not pause
        elif isinstance(verdict, Split):
            if queue.split(batch, verdict.parts.batches):
                self._parted[batch] = verdict.parts
                verdict.parts.ended = self._ended
        elif isinstance(verdict, Refused):
            queue.dropped(batch)
            self._alive.pop(batch, None)
            return [(batch, verdict.why)]
        return []

    def _ended(self, whole: Any) -> None:
        """Set the outcome of a batch each of whose parts has its own."""
        with self._lock:
            parts = self._parted.pop(whole, None)
            self._alive.pop(whole, None)
        if parts is not None:
            self._wire.settled([whole])
            whole.outcome.set(parts)

    def _pause(self, queue: PartitionQueue) -> float:
        return self.pace.backoff.delay(queue.failures + 1)

    def _fail(self, failures: Iterable[tuple[Any, WireprotoError]]) -> None:
        """Fail batches; their errors are noted for a flush before any caller is woken, by an outcome or by room."""
        failures = list(failures)
        new = [(batch, why) for batch, why in failures if not batch.outcome.done]
        for batch, why in new:
            self._wire.failed(batch, why)
        if failures:
            self._wire.settled([batch for batch, _ in failures])
        for batch, why in new:
            batch.outcome.fail(why)
        if self._log is not None:
            for batch, why in new:
                self._log.warning(("refused", type(why)), "%d records were not stored: %s", batch.count, why)

    # --- links and time ---

    @unbroken
    def ready(self, keys: Iterable[Hashable] | None = None) -> None:
        """Note that links or numbers may be there now for these keys (None: for all that lack one)."""
        with self._lock:
            for key in list(self._unlinked) if keys is None else keys:
                queue = self._unlinked.pop(key, None)
                if queue is not None:
                    self._note(queue)
        self.drain()

    def link_lost(self, link: Any) -> None:
        """Forget a connection. Its requests are answered by their failures."""
        with self._lock:
            self._outlets.pop(id(link), None)

    def tick(self) -> None:
        """Run the timer: expire batches, end lingers and pauses, and send."""
        self._armed = FOREVER
        if self.broken:
            self._recover()
        now = self._clock()
        with self._lock:
            oldest = next(iter(self._alive), None)
            ends = FOREVER if oldest is None else oldest.created + self.pace.delivery_timeout
            if now < ends and not (self._lingering or self._paused or self._due or self._held_back):
                self._wake_at(ends)  # all that lingered when it was set is sent; under the lock, or it would undo a `leave`
                return
            expired = list(self._overdue(now))
            while self._lingering:
                batch = next(iter(self._lingering))
                if now < batch.created + self.pace.linger:
                    break
                if batch.count and not batch.queue.beside:  # it takes records until it can be sent
                    del self._lingering[batch]
                    self._note(batch.queue)
                else:
                    self._seal(batch.queue)
            for queue in self._held_back.over(now):
                self._seal(queue)
            for key, queue in list(self._paused.items()):
                if now >= queue.held_until:
                    del self._paused[key]
                    self._due[key] = queue
        self._fail((batch, self._wire.overdue(batch)) for batch in expired)
        try:
            self.drain()
        finally:
            with self._lock:
                self._wake_at(self.wakeup())

    def _overdue(self, now: float) -> Iterator[Any]:
        """Take out and yield the batches whose delivery timeout is over, also those in flight. Lock held."""
        while self._alive:
            batch = next(iter(self._alive))
            if now < batch.created + self.pace.delivery_timeout:
                return
            gone = self._take_out(batch)
            if batch.count:
                yield from gone

    def wakeup(self) -> float:
        """Return when something is due next: a linger, the end of a pause, an expiry. Infinity when nothing is. Lock held."""
        soonest = FOREVER
        first = next(iter(self._alive), None)
        if first is not None:
            soonest = first.created + self.pace.delivery_timeout
        first = next(iter(self._lingering), None)
        if first is not None:
            soonest = min(soonest, first.created + self.pace.linger)
        for queue in self._paused.values():
            soonest = min(soonest, queue.held_until)
        return min(soonest, self._held_back.ends())


def _created(batch: Any) -> float:
    return float(batch.created)
