"""Takes messages from a queue, one at a time; each is acked or given back (the QueueConsumer role over the queue's layout).

It is compatible with kazoo's LockingQueue: a message is claimed by an ephemeral node of its name under ``taken``, an ack deletes message
and claim in one transaction, a release deletes the claim. When the session is lost the servers delete the claims, and other workers take
the messages: at least once.

`attempt` follows the data version of the message's node: a release writes the node, so it counts releases; the death of a worker does not
count. All workers of a queue share it; `group` is only a name that the claim carries.

A signal handler may raise between any two bytecodes of `receive`, which may have claimed a message by then: a claim is noted before it is
sent, and a delivery until it is returned. The next `receive` continues with either, `close` gives it back. What a close has no time for is
given back by a task of the client: a claim that stays hides its message as long as the client lives.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .._codec import ColumnsBuilder
from ..deadlines import deadline_after
from ..errors import BrokerError, Closed, Revoked, TimedOut, WireprotoError
from ..flow.closing_role import ClosingRole
from ..flow.ended import note_ended, refuse_ended, taken_away
from ..net.retry import Waits
from ..net.task import NEVER, Steps, operation, steps
from ..records import Delivery
from .call import going_on
from .codes import BadVersion, NoAuth, NodeExists, NoNode, SessionExpired
from .errors import ConnectionLoss, Doubt, NotYet
from .layout import ENTRIES, TAKEN, Entry, by_priority, queue_path
from .multi import Delete, Operation, Set
from .paths import join
from .request_path import is_transient

if TYPE_CHECKING:
    from ..net.task import Task
    from .call import Call
    from .messages import ACL, Stat
    from .tree import Tree
    from .watch import Watch


BACKGROUND_TIMEOUT = 30.0
"""Seconds that the tasks which create the queue, and check whether a claim is ours, may take, however short the calls are that wait."""
ANSWER = 1.0
"""Seconds after which the next call repeats a request that is not answered, however short the calls are that wait for it."""
STALE = 1.0
"""Seconds after which a list that is known to have changed is read again, so that urgent and released messages get their turn."""


@dataclass(slots=True, eq=False)
class Claim:
    """A claim that a delivery holds.

    Attributes:
        name: the message's. scope: the tree within the session that claimed it. version: data version that the message had.
        ending: whether an ack or release has begun, so that the claim may be gone, and another worker's be there under its name.
        check: the task that checks whether the claim is ours, where one was begun.
    """

    name: str
    scope: Tree
    version: int
    ending: bool = False
    check: Task[bool] | None = None


@dataclass(slots=True)
class Claiming:
    """A claim under way.

    Attributes:
        entry: the message. scope: the tree within the session that claims it.
        call: the create request; None where it is unknown whether the claim is there: a signal handler raised, or it is being given back.
        get: the request for the message, sent at `asked_at` (seconds of `time.monotonic()`) once the claim is there.
        check: as of a `Claim`.
    """

    entry: Entry
    scope: Tree
    call: Call[str] | None = None
    get: Call[tuple[bytes | None, Stat]] | None = None
    asked_at: float = 0.0
    check: Task[bool] | None = None

    @property
    def name(self) -> str:
        """Return the message's name."""
        return self.entry.name


@dataclass(slots=True)
class Looking:
    """Requests that list the queue, in flight: its watch, and the two lists."""

    watch: Watch
    entries: Call[tuple[list[str], Stat]]
    taken: Call[tuple[list[str], Stat]]
    asked_at: float


class QueueWorker(ClosingRole):
    """A worker on one queue. `receive` belongs to one thread at a time; any thread may ack or release a delivery.

    Args:
        group: a name for this set of workers, which the claims carry.
        acl: access list of the claims, and of the queue's nodes where they are created here; None is the client's default. Whoever is to
            see that a message is taken needs to read the list of claims, and no claim.
    """

    def __init__(self, tree: Tree, topic: str, group: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__("queue consumer", tree.loop)
        self.topic = topic
        self.group = group
        self._acl = acl
        self._tasks = tree.tasks
        self._tree = tree.any_session()
        path = queue_path(topic)
        self._entries, self._taken = join(path, ENTRIES), join(path, TAKEN)
        self._id = f"{group}/{uuid.uuid4().hex}".encode()
        self._candidates: deque[Entry] = deque()
        self._watch: Watch | None = None
        self._looking: Looking | None = None
        self._making: Task[None] | None = None
        self._looked = 0.0
        self._claims: dict[str, Claim] = {}
        self._claiming: Claiming | None = None
        self._back: list[Claim] = []  # claims to be given back: the worker is closed
        self._later: Task[None] | None = None
        self._undelivered: tuple[Claim, Delivery] | None = None  # a delivery that an interrupted `receive` has not returned
        self._made = False  # whether the queue's nodes are there, as far as is known
        self._claim_failed = False  # whether a claim of a listed message failed since
        self._waits = Waits()

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """Claim the next message and return it, or None when none came within `timeout`.

        Args:
            timeout: seconds to wait.

        Raises:
            ConcurrentUse: another thread uses the worker. Closed. BrokerError: the server's error: NoAuth, for instance.
        """
        delivery = self._tasks.drive(self._receiving(timeout), NEVER)
        self._undelivered = None  # no signal handler runs from here to the caller
        return delivery

    def receiving(self, timeout: float = 1.0) -> Steps[Delivery | None]:
        """Run `receive` as steps."""
        delivery = yield from self._receiving(timeout)
        self._undelivered = None
        return delivery

    def _receiving(self, timeout: float) -> Steps[Delivery | None]:
        deadline = deadline_after(timeout)
        with self._only:
            try:
                return (yield from self._receive(deadline))
            except TimedOut:
                return None  # no server answered in time; the session is kept in the background
            except BrokerError as why:
                if not is_transient(why):
                    raise
                yield deadline  # a server answered "not now" as long as there was time to repeat the request
                return None

    def _receive(self, deadline: float) -> Steps[Delivery | None]:
        if self._undelivered is not None and (delivery := (yield from self._still_ours(*self._undelivered, deadline))) is not None:
            return delivery
        while True:
            self._still_open()
            if self._watch is not None and self._watch.fired and time.monotonic() - self._looked > STALE:
                self._candidates.clear()
            while self._candidates or self._claiming is not None:
                delivery = yield from self._claim(deadline)
                if delivery is not None:
                    return delivery
            if self._watch is None or self._watch.fired:
                yield from self._pausing(deadline)
                if (yield from self._look(max(deadline, time.monotonic() + 0.1))):
                    continue
            if self._watch is None:  # the queue was deleted meanwhile
                if time.monotonic() >= deadline:
                    return None
                continue
            self._still_open()
            self._waits.over()
            if not (yield from self._watch.waiting(deadline)):
                return None

    def _pausing(self, deadline: float) -> Steps[None]:
        """Pause before the queue is listed again, where what was listed came to nothing several times in a row."""
        if self._claim_failed:
            self._claim_failed = False
            pause = self._waits.next()
            if self._waits.failures > 1:
                yield min(time.monotonic() + pause, deadline)

    def _wake(self) -> None:
        watch = self._watch
        if watch is not None:
            watch.wake()

    def _still_ours(self, held: Claim, delivery: Delivery, deadline: float) -> Steps[Delivery | None]:
        """Return what an interrupted `receive` would have returned, unless the claim went since, with its session."""
        if (yield from self._checked(held, deadline)):
            return delivery
        self._claims.pop(held.name, None)
        self._undelivered = None
        return None

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Give back what is claimed; later where no server answers, or there is no time: a claim would hide its message."""
        self._forget_watch()
        if self._making is not None:
            self._making.cancel(Closed("the queue consumer was closed"))
        try:
            yield from self._giving_back(deadline)
        except BaseException:
            self._give_back_later()
            raise

    def _give_back_later(self) -> None:
        """Start a task that gives back, as soon as there is a connection, what the close had no time for."""
        with suppress(WireprotoError):  # the client is closed, and its session with it
            if self._later is None:
                self._later = self._tasks.spawn(self._giving_back_later(), f"giving back what a worker of {self.topic} has")

    def _giving_back_later(self) -> Steps[None]:
        with suppress(WireprotoError):  # `close` has raised the reason
            yield from self._giving_back(NEVER)

    def _giving_back(self, deadline: float) -> Steps[None]:
        self._back += self._claims.values()
        self._claims.clear()
        while self._back:
            claim = self._back[0]
            doubtful, claim.ending = claim.ending, True
            yield from self._drop(claim.name, claim.scope, deadline, doubtful=doubtful)
            self._back.pop(0)
        if self._claiming is not None:
            yield from self._drop(self._claiming.entry.name, self._claiming.scope, deadline, doubtful=True)
            self._claiming = None

    def _forget_watch(self) -> None:
        looking, self._looking = self._looking, None
        watch, self._watch = self._watch, None
        for one in (watch, looking.watch if looking is not None else None):
            if one is not None:
                self._tree.forget(one, self._entries, self._taken)

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _look(self, deadline: float) -> Steps[bool]:
        """List the queue, with a watch on both lists; returns whether there is anything to claim.

        When time runs out (TimedOut) the requests stay in flight, and the next call takes their replies: a reply may take longer than each
        call has.
        """
        if not self._made:
            yield from self._make(deadline)
        try:
            if self._looking is None:
                yield from self._list(deadline)
            if (looking := self._looking) is None:  # closed meanwhile
                return False
            names = yield from self._names(looking, looking.entries, deadline)
            claimed = yield from self._names(looking, looking.taken, deadline)
        except NotYet:
            raise
        except NoNode:
            self._list_again()
            return False
        except BaseException:  # the next listing sets a watch of its own
            self._forget_watch()
            raise
        held = set(claimed)
        self._candidates = deque(entry for entry in by_priority(names) if entry.name not in held)
        self._looked = time.monotonic()
        self._watch, self._looking = looking.watch, None  # last: if interrupted before this line, the next call lists again
        return bool(self._candidates)

    def _names(self, looking: Looking, call: Call[tuple[list[str], Stat]], deadline: float) -> Steps[list[str]]:
        yield from going_on(call, looking.asked_at, ANSWER, deadline, "the queue is not listed")
        names, _ = yield from call.getting(max(deadline, time.monotonic() + 1.0))
        return names

    def _make(self, deadline: float) -> Steps[None]:
        """Create both lists where they are missing."""
        if self._making is None:
            self._making = self._tasks.spawn(making(self._tree, (self._entries, self._taken), self._acl), f"making the queue {self.topic}")
        task = self._making
        if not (yield task, deadline):
            raise TimedOut("the queue's node was not created in time", topic=self.topic)
        self._making = None
        task.result()
        self._made = True

    def _list(self, deadline: float) -> Steps[None]:
        """Request both lists."""
        self._forget_watch()  # the one of the list that has not changed
        watch, list_ = self._tree.watch(), steps(self._tree.children_async)
        try:
            entries = yield from list_(self._entries, watch=watch, timeout=max(deadline - time.monotonic(), 0.0))
            taken = yield from list_(self._taken, watch=watch, timeout=max(deadline - time.monotonic(), 0.0))
            self._looking = Looking(watch, entries.unordered(), taken.unordered(), time.monotonic())
        except BaseException:
            self._looking = None
            self._tree.forget(watch, self._entries, self._taken)
            raise

    def _claim(self, deadline: float) -> Steps[Delivery | None]:
        """Continue the claim under way, or begin the next one; returns None when another worker was first.

        When time runs out (TimedOut) the claim stays under way and the next call continues it: it must not be forgotten that it is ours.
        """
        if self._claiming is None:
            yield from self._begin(self._candidates[0], deadline)
        if self._claiming is None or not (yield from self._claimed(self._claiming, deadline)):
            return None
        claiming, entry, scope = self._claiming, self._claiming.entry, self._claiming.scope
        try:
            data, stat = yield from self._fetched(claiming, deadline)
        except (NoNode, NoAuth) as why:  # finished by its worker between our listing and our claim; or not readable by us
            claiming.call = None
            yield from self._drop(entry.name, scope, deadline)
            self._claiming = None
            self._claim_failed = True
            if isinstance(why, NoAuth):
                raise
            return None
        except SessionExpired:
            self._list_again()
            return None
        made = Claim(entry.name, scope, stat.version)
        builder = ColumnsBuilder("sequence")
        builder.append(data, timestamp=stat.ctime, position=entry.sequence)
        delivery = Delivery(builder.finish().record(0, self.topic, 0), stat.version + 1, partial(self._end, made))
        self._claims[entry.name] = made
        self._claim_failed = False
        self._waits.over()
        self._undelivered, self._claiming = (made, delivery), None  # in one step: it is under way, or to be returned
        return delivery

    def _fetched(self, claiming: Claiming, deadline: float) -> Steps[tuple[bytes | None, Stat]]:
        """Return the data and stat of the claimed message; when time runs out (NotYet) it continues, as the claim does.

        A reply that lay here for a session timeout is requested again: the claim may have gone with its session.
        """
        try:
            if claiming.get is None or time.monotonic() - claiming.asked_at > claiming.scope.session_timeout:
                path = join(self._entries, claiming.name)
                get = yield from steps(claiming.scope.get_async)(path, timeout=max(deadline - time.monotonic(), 0.0))
                claiming.get, claiming.asked_at = get.unordered(), time.monotonic()
            yield from going_on(claiming.get, claiming.asked_at, ANSWER, deadline, "the message is not there")
        except NotYet:
            raise
        except BaseException:
            claiming.get = None
            raise
        get, claiming.get = claiming.get, None  # if interrupted after this line, the next call requests it again: it may be old by then
        return (yield from get.getting(max(deadline, time.monotonic() + 1.0)))

    def _begin(self, entry: Entry, deadline: float) -> Steps[None]:
        """Send a claim; none is under way afterwards when the session has ended."""
        claiming = self._claiming = Claiming(entry, self._tree.session_scope())
        begin, path = steps(claiming.scope.create_async), join(self._taken, entry.name)
        try:
            claiming.call = yield from begin(path, self._id, ephemeral=True, acl=self._acl, timeout=max(deadline - time.monotonic(), 0.0))
        except SessionExpired:
            self._list_again()
        except WireprotoError:  # nothing was sent
            self._claiming = None
            raise
        else:
            self._candidates.popleft()

    def _claimed(self, claiming: Claiming, deadline: float) -> Steps[bool]:
        """Return whether the claim under way succeeded; where it did not, none is under way afterwards."""
        try:
            if claiming.call is None:
                raise ConnectionLoss("whether the message was claimed is not known", topic=self.topic)
            if not (yield from claiming.call.waiting(deadline)):
                raise TimedOut("the request to claim the message is not answered yet", topic=self.topic)
            yield from claiming.call.getting(max(deadline, time.monotonic() + 1.0))
        except NodeExists:
            self._claiming = None
            return False
        except ConnectionLoss:
            if not (yield from self._checked(claiming, deadline)):
                self._list_again()
                return False
        except NoNode:
            self._list_again()
            return False
        except TimedOut:
            raise
        except WireprotoError as why:
            self._list_again()
            if not self._tree.link.passes(why, deadline, self._waits.failures):
                raise
            return False
        return True

    def _list_again(self) -> None:
        """Drop the claim under way, which came to nothing, and list the queue again.

        No event may report that the claim failed, and the queue may have been created again.
        """
        self._claiming = None
        self._claim_failed = True
        self._forget_watch()
        self._candidates.clear()
        self._made = False

    @operation
    def _end(self, held: Claim, delivery: Delivery, ack: bool, timeout: float, wait: bool = False) -> Steps[None]:
        deadline = deadline_after(timeout)
        name, version, scope = held.name, held.version, held.scope
        if self._claims.get(name) is not held:
            self._still_open()
            refuse_ended(delivery)
            raise self._revoked(delivery, name)
        entry, claim = join(self._entries, name), join(self._taken, name)
        if held.ending and not (yield from self._ours(claim, scope, deadline)):
            self._claims.pop(name, None)
            raise self._revoked(delivery, name)
        held.ending = True
        work: list[Operation] = [Delete(entry), Delete(claim)] if ack else [Delete(claim), Set(entry, delivery.value, version)]
        with Doubt() as doubt:
            while True:
                try:
                    yield from steps(scope.multi)(work, timeout=deadline - time.monotonic())
                except ConnectionLoss as why:
                    doubt.lost(why)
                    continue
                except SessionExpired:  # the claim went with it, and another worker may have the message
                    self._claims.pop(name, None)
                    revoked = doubt.explain(self._revoked(delivery, name))
                    raise revoked from revoked.__cause__
                except (NoNode, BadVersion):
                    self._claims.pop(name, None)
                    if doubt.there:
                        note_ended(delivery, ack)
                        return  # the first attempt, whose answer was lost, did it: the claim was ours until then
                    raise self._revoked(delivery, name) from None
                self._claims.pop(name, None)
                note_ended(delivery, ack)
                return

    def _revoked(self, delivery: Delivery, name: str) -> Revoked:
        why = f"message {name} is no longer held by this consumer: its session has ended, or a call without an answer has ended it"
        return taken_away(delivery, Revoked(why, partitions=((self.topic, 0),), topic=self.topic, position=delivery.position))

    def _checked(self, held: Claim | Claiming, deadline: float) -> Steps[bool]:
        """Run `_ours` in a task that continues when time runs out (TimedOut): the next call takes its result."""
        if held.check is None:
            ours = self._ours(join(self._taken, held.name), held.scope, deadline_after(BACKGROUND_TIMEOUT))
            held.check = self._tasks.spawn(ours, f"looking whether {held.name} is ours")
        check = held.check
        if not (yield check, deadline):
            raise TimedOut("whether this consumer holds the message is not known yet", topic=self.topic)
        held.check = None
        return check.result()

    def _ours(self, claim: str, scope: Tree, deadline: float) -> Steps[bool]:
        """Return whether a claim is there and this worker's. The connected server may be behind the one that created or deleted it."""
        try:
            yield from steps(scope.catch_up)(self._taken, timeout=deadline - time.monotonic())
            data, _ = yield from steps(scope.get)(claim, timeout=deadline - time.monotonic())
            return data == self._id
        except (NoNode, SessionExpired):  # with its session it goes by itself
            return False
        except NoAuth:  # by its own access list: the stat, which names its session, may be read all the same
            stat = yield from steps(scope.exists)(claim, timeout=deadline - time.monotonic())
            return stat is not None and stat.ephemeral_owner == scope.session[0]

    def _drop(self, name: str, scope: Tree, deadline: float, *, doubtful: bool = False) -> Steps[None]:
        """Give a claim back: one that is ours stays so until we delete it, or its session ends.

        Args:
            doubtful: whether it may be gone, so that another worker's claim would be deleted under its name. Each repeated attempt is
                doubtful too.
        """
        claim = join(self._taken, name)
        with Doubt() as doubt:
            while True:
                try:
                    if doubtful and not (yield from self._ours(claim, scope, deadline)):
                        return
                    yield from steps(scope.delete)(claim, timeout=deadline - time.monotonic())
                except (NoNode, SessionExpired):
                    return
                except ConnectionLoss as why:
                    doubt.lost(why)
                    doubtful = True  # the next attempt shows it: a claim that stays hides the message as long as the session lives
                    continue
                return


def making(tree: Tree, paths: Sequence[str], acl: Sequence[ACL] | None) -> Steps[None]:
    """Create these nodes where they are missing. Steps."""
    for path in paths:
        yield from steps(tree.ensure)(path, acl=acl, timeout=BACKGROUND_TIMEOUT)
