"""Reads a member's share of the queues from the committed offsets on: what Consumer and QueueConsumer have in common.

`Member` computes which queues are assigned to us, a `Fetcher` reads them. A queue without a committed offset begins at `start`; where that
is not EARLIEST the offset is committed at once, so that a member that gets the queue later does not begin later. LATEST is the end of the
queues that exist when the group begins: the member that joins first commits the ends of all of them, not of its share alone, so that a
queue without an offset is known to have come later. Such a queue is read from its first record.
The group's retry topic, %RETRY%group, is read like the topics asked for: what another member of the group (a Java push consumer, a
QueueConsumer) has given back may be read by any member, and its one queue is assigned to the first member in order.

What takes time runs in tasks of the client, so that queues are read meanwhile and no broker delays another one's queues:

    a round     computes the share when it is due: begun by the I/O thread when a broker notifies us, by `look` when its time has come
    a taking    looks up where those queues of one broker begin that are assigned and not read yet
    a giving    the last commit of a queue that is assigned to another member now
    a placing   commits offsets to which an administrator has set the group, behind the owner's `commits` in flight; their queues are held
                back until it is answered

`look` takes in their results, in the owner's thread. It may run twice for the same result, since a signal handler may raise anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wireproto.errors import Closed, TimedOut, WireprotoError
from wireproto.flow.resolve import named
from wireproto.net.task import NEVER, Steps, Task, after
from wireproto.position import AtTime, Earliest, Latest, Position, TopicPartition, Where

from .codes import TopicNotExist
from .fetch import Fetched, Fetcher
from .member import AGAIN, Member, MemberState, Share
from .offset_lookup import PLACES, OffsetLookup
from .queue_ids import own
from .transient_errors import TransientErrors, away, passes

if TYPE_CHECKING:
    from .broker_requests import ReadPositions
    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Queue

FORMER_OWNER_WAIT = 1.0
"""Seconds that a member with automatic commits waits before it reads a new queue, for its former owner's last commit, if it has others."""
BEGIN_GROUP_PAUSE = 0.5
"""Seconds after which a group that seems to have begun on some brokers only is looked at again, if it has other members."""
ELSEWHERE, NOT_READ = "fell to another member", "is not to be read now, by its topic's route"
AWAY, SET = "was given up, since nothing was polled for max_poll_interval", "was set to another offset by an administrator"
UNKNOWN = "is not this member's"
"""Why what was delivered of a queue cannot be committed any more."""
Taken = MemberState[tuple[int, bool]]
"""By queue its first offset, and whether reading may begin at a later one where that is gone; and errors by queue."""
Committed = tuple[dict[TopicPartition, int], WireprotoError | None]
"""The offsets that were committed, and the first error."""


class Assignment:
    """Keeps the assigned queues of one member, and reads them; see the module. It has to be opened by `opening`.

    Args:
        topics: those asked for; the group's retry topic is added. group: name of the consumer group.
        start: where queues without a committed offset begin. facts: as of `fetch.Fetcher`.
        giving_up: called by `look` with a queue that another member gets now; returns the steps of its last commit, which do not fail, or
            None.
        pausing: called before each wait of `fetching`; what it raises `fetching` raises.

    Attributes:
        queues: those that are read. assigned: those assigned by the last round.
        given: offsets that `start` names, by queue. why: the reason why what was delivered of a queue cannot be committed any more.
        set_back: queues that an administrator has set: what was delivered of them cannot be committed. The owner removes what it has seen.
        commits: the owner's newest commit of each queue, in flight or done: set offsets are committed behind it.
        gone: queues that were given up, also those that are assigned again: others may have read them meanwhile. Cleared like `set_back`.
        seen: by queue that is to be ours, since when we know (`time.monotonic()`).
        forgotten: by queue whose broker the name server does not know any more, since when.
        begun_without: by queue whose broker was away when the group began, when that was: milliseconds since 1970.
        uncommitted: offsets to which an administrator has set queues that are read.
        held: of these the ones held back until it is committed, and whether they were paused before.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        topics: Sequence[str],
        group: str,
        start: Where,
        options: RocketOptions,
        *,
        facts: bool = False,
        giving_up: Callable[[TopicPartition, Queue], Steps[None] | None] = lambda key, queue: None,
        pausing: Callable[[], None] = lambda: None,
    ) -> None:
        if named(start) is None:
            PLACES.requests(start, ())  # for its checks
        self.cluster, self.options, self.group, self.start, self.giving_up = cluster, options, group, start, giving_up
        self._pausing = pausing
        self.retry_topic = f"%RETRY%{group}"
        self.topics = tuple(dict.fromkeys((*topics, self.retry_topic)))
        self._searched = [topic for topic in self.topics if topic != self.retry_topic]
        self._needed, optional = tuple(topics), frozenset({self.retry_topic}) - set(topics)
        self.places = {topic: OffsetLookup(cluster, topic, group) for topic in self.topics}
        self.given: dict[TopicPartition, int] = {}
        self.queues: dict[TopicPartition, Queue] = {}
        self.assigned: dict[TopicPartition, Queue] = {}
        self.set_back: set[TopicPartition] = set()
        self.commits: dict[TopicPartition, Task[Any]] = {}
        self.gone: set[TopicPartition] = set()
        self.why: dict[TopicPartition, str] = {}
        self.missing_since: float | None = None
        self.seen: dict[TopicPartition, float] = {}
        self.forgotten: dict[TopicPartition, float] = {}
        self.begun_without: dict[tuple[str, str, int], int] = {}
        self.uncommitted: dict[TopicPartition, int] = {}
        self.held: dict[TopicPartition, bool] = {}
        self._round: Task[Share] | None = None
        self._older: list[Task[Share]] = []  # rounds after which a broker has notified us again before `look` took them in
        self._opening_tasks: dict[str, Task[Taken]] = {}
        self._last_commits: dict[TopicPartition, Task[None]] = {}
        self._placing: Task[Committed] | None = None
        self._place_at = 0.0
        self._open = False
        self.transient = TransientErrors(options.recovery_timeout)
        self.member = Member(cluster, options, group, self.topics, self._called, self._read_positions, optional)
        self.fetcher = Fetcher(cluster, options, group=group, purpose=self.member.id, facts=facts, on_reset=self._reset)

    def opening(self) -> Steps[None]:
        """Join the group, and take our share; raises when none of its queues can be read."""
        cluster, until = self.cluster, self.cluster.deadline(self.options.timeout)
        try:
            self.member.check_topics()
            for topic in self._needed:
                yield from cluster.routing(topic, until)
            start = self.start
            self.given = yield from self.own({(start.topic, start.partition): start} if isinstance(start, Position) else start, until)
            yield from self.member.joining(until)
            if isinstance(start, Latest):
                for topic in self.topics:
                    if topic != self.retry_topic:
                        yield from self._begin_group(topic, until)
            self._shared((yield from self.member.computing_share(until)), until)
            problems: list[WireprotoError] = []
            for taking in [*self._opening_tasks.values()]:
                yield taking
                problems += taking.result()[1].values()
            self._open = True
            self.look()
            if problems and not self.queues:
                raise problems[0]
        except Exception:
            yield from self.closing(time.monotonic() + 1.0)
            raise
        except BaseException:
            self.end()
            raise

    def own(self, given: object, until: float) -> Steps[dict[TopicPartition, int]]:
        """Return offsets by our own partitions, of a mapping of positions; of anything else none. Raises OptionError (`queue_ids.own`)."""
        found: dict[TopicPartition, int] = {}
        if isinstance(given, Mapping):
            for topic in dict.fromkeys(key[0] for key in given):
                found |= yield from own(self.cluster, topic, {key: place for key, place in given.items() if key[0] == topic}, until)
        return found

    def _read_positions(self) -> ReadPositions:
        """Return the queues that are read and their next offsets; called in the I/O thread."""
        places = self.fetcher.positions()
        return {key: (queue, places[key]) for key, queue in list(self.queues.items()) if key in places}

    def asked_for(self) -> dict[TopicPartition, Queue]:
        """Return our queues without the retry topic's."""
        return {key: queue for key, queue in self.queues.items() if key[0] != self.retry_topic}

    # results of tasks --------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take in the results of tasks, and begin what is due; waits for nothing.

        Raises:
            BrokerError: a broker refuses for good, or for `recovery_timeout`. TopicNotExist: no name server knows a topic any more.
        """
        member = self.member
        if member.left and self.queues:  # others may have read on
            for key in list(self.queues):
                self._drop(key, AWAY)
        if self._round is not None and self._round.done:
            self._take_round(self._round)
        if self._opening_tasks:
            self._take_begun()
        for key, giving in [*self._last_commits.items()]:
            if giving.done:
                del self._last_commits[key]
        for (topic, broker, queue_id), offset in member.take_resets().items():
            for key, queue in self.queues.items():
                if (key[0], queue.broker, queue.queue_id) == (topic, broker, queue_id):
                    self._reset(key, offset)
                    self.fetcher.set_to(key, offset)
        if self.uncommitted or self._placing is not None:
            self._place()
        self._begin_round()
        for topic in self._searched:
            if self.cluster.routes.missing(topic) is not None:
                self._missed(time.monotonic())
                break
        else:
            self.missing_since = None

    def _called(self) -> None:
        """Begin a round, in the I/O thread: the share may have changed, or offsets were reset. It is computed before the next `look`."""
        if self._open and not self.member.left:
            with suppress(Closed):
                self._begin_round()
        self.fetcher.wake()

    def _begin_round(self) -> None:
        """Have the share computed, if it is due, also where `look` has not taken in the last one yet.

        Called by the owner and by the I/O thread; if both call at once, they begin one round.
        """
        older = self._round
        if (older is None or older.done) and self.member.due and not self.member.closed:
            if older is not None:
                self._older.append(older)
            task = self.cluster.tasks.shared(("share", self.member.id), self._computing, f"the share of group {self.group}")
            self._round = task
            after(task, self.fetcher.wake)

    def _computing(self) -> Steps[Share]:
        while True:
            share = yield from self.member.computing_share(time.monotonic() + self.options.request_timeout)
            if not self.member.called or self.member.left or self.member.closed:
                return share

    def _take_round(self, task: Task[Share]) -> None:
        """Apply the newest share. Queues that an older round took from us other members have owned since: they are given up first."""
        while self._older:
            with suppress(WireprotoError):
                older = self._older[0].result()
                self._shared(older._replace(queues={key: queue for key, queue in older.queues.items() if key in self.queues}))
            del self._older[0]
        try:
            share = task.result()
        except WireprotoError as why:
            self._taken_in(task)
            self._failed("share", why)
        else:
            self.transient.over("share")
            self._shared(share)
            self._taken_in(task)

    def _taken_in(self, task: Task[Share]) -> None:
        if self._round is task:  # else the I/O thread has begun another one, since a broker has notified us
            self._round = None

    def _failed(self, what: Hashable, why: WireprotoError) -> None:
        """Schedule a retry of what failed; raises an error that is permanent, or has lasted for `recovery_timeout`."""
        self.member.look_again()
        if isinstance(why, TopicNotExist):
            self._missed(time.monotonic())
        else:
            self.pass_over(what, why)

    def pass_over(self, what: Hashable, why: WireprotoError) -> None:
        """Log a failure that is tried again; raises what does not pass by itself, or has lasted `recovery_timeout`."""
        if not self.transient.pass_over(what, why, time.monotonic()):
            raise why
        self.cluster.log.info(("group", self.group, what, type(why)), "group %s: tried again: %s", self.group, why)

    def _missed(self, now: float) -> None:
        """Note that no name server knows a topic, and raise TopicNotExist after `recovery_timeout`.

        Name servers forget the topics of a broker that is away, so the topic may come back.
        """
        self.missing_since = self.missing_since or now
        if now - self.missing_since > self.options.recovery_timeout:
            self.missing_since = None
            raise TopicNotExist("no name server has a route of the topic any more", topic=self.topics[0])

    # queues that come and go -------------------------------------------------------------------------------------------------------

    def _shared(self, share: Share, until: float | None = None) -> None:
        """Give up queues and begin to take others, by this share. until: deadline for taking them; None: see `_take`."""
        found = share.queues
        missing = frozenset(key for key in self.queues.keys() - found.keys() if key[0] not in share.unknown)
        lost = missing - self._forgotten(missing, share.forgotten)
        for key in lost:
            giving = self.giving_up(key, self.queues[key])
            if giving is not None:
                self._last_commits[key] = task = self.cluster.tasks.spawn(giving, f"the last commit of {key[0]}[{key[1]}]")
                after(task, self.fetcher.wake)
            self._drop(key, ELSEWHERE if self._readable(key) else NOT_READ)
        if lost:
            self.cluster.log.rebalanced(self.group, (), lost)
        self.assigned = self._handed_over(found)
        for key, queue in self.assigned.items():
            if key in self.queues:
                self.fetcher.follow(key, queue)
                self.queues[key] = queue
        self._take(until)

    def _forgotten(self, missing: Iterable[TopicPartition], unrouted: Set[tuple[str, str]]) -> set[TopicPartition]:
        """Return those of the missing queues whose broker the name server did not know, so that no member can have got them.

        A name server forgets a broker when their connection is lost, until the broker registers again (each 30 s): meanwhile its queues are
        read on where they were.
        """
        now, before = time.monotonic(), self.forgotten
        self.forgotten = {}
        for key in missing:
            since = before.get(key, now)
            if (key[0], self.queues[key].broker) in unrouted and now - since <= self.options.recovery_timeout:
                self.forgotten[key] = since
                route = self.cluster.routes.known(key[0])
                queue = None if route is None else route.find(*self.queues[key].home)
                if queue is not None and queue.address is not None:  # known again since the share was computed
                    self.member.look_again()
        return {*self.forgotten}

    def _handed_over(self, share: dict[TopicPartition, Queue]) -> dict[TopicPartition, Queue]:
        """Return the share without queues for which the former owner's last commit may still be under way."""
        now = time.monotonic()
        since = {key: self.seen.get(key, now) for key in share.keys() - self.queues.keys()}
        self.seen = since if self.options.auto_commit and self.member.member_count > 1 else {}
        for when in self.seen.values():
            if now < when + FORMER_OWNER_WAIT:
                self.member.look_again(when + FORMER_OWNER_WAIT - now)
        return {key: queue for key, queue in share.items() if now >= self.seen.get(key, 0.0) + FORMER_OWNER_WAIT}

    def _readable(self, key: TopicPartition) -> bool:
        """Return whether the route says that a queue of ours may be read, so that another member owns it now."""
        route = self.cluster.routes.known(key[0])
        queue = None if route is None else route.find(*self.queues[key].home)
        return queue is not None and queue.readable

    def _drop(self, key: TopicPartition, why: str) -> None:
        self.why[key] = why
        self.queues.pop(key, None)
        self.fetcher.plan.remove(key)
        self.held.pop(key, None)
        self.gone.add(key)

    def _take(self, until: float | None = None) -> None:
        """Begin to look up where assigned queues begin that are not read yet: one task for each broker.

        Each broker has the time of `Member.answer_by`; a single broker has `request_timeout`.
        """
        wanted: dict[str, dict[TopicPartition, Queue]] = {}
        for key, queue in self.assigned.items():
            if key not in self.queues and queue.broker not in self._opening_tasks:
                wanted.setdefault(queue.broker, {})[key] = queue
        alone = len({queue.broker for queue in self.assigned.values()}) == 1
        for broker, queues in wanted.items():
            late = until or time.monotonic() + self.options.request_timeout if alone else None
            task = self.cluster.tasks.spawn(self._taking(queues, late), f"beginning queues of {broker}")
            self._opening_tasks[broker] = task
            after(task, self.fetcher.wake)

    def _taking(self, queues: Mapping[TopicPartition, Queue], until: float | None) -> Steps[Taken]:
        late = {key: until or self.member.answer_by(queue.address, NEVER) for key, queue in queues.items()}
        asked = {key: (queue, self._begin(key, queue, late[key])) for key, queue in queues.items()}
        return self.member.asking(asked, "the beginning")

    def _take_begun(self) -> None:
        """Read the queues whose first offset is known now."""
        problems: dict[str, WireprotoError] = {}
        taken: list[TopicPartition] = []
        for broker, taking in [*self._opening_tasks.items()]:
            if not taking.done:
                continue
            found, why = taking.result()
            for key, (offset, earliest) in found.items():
                if key in self.assigned and key not in self.queues:
                    self.fetcher.add(key[0], self.assigned[key], offset, earliest=earliest)
                    self.queues[key] = self.assigned[key]
                    taken.append(key)
            for key, problem in why.items():
                problems.setdefault(broker, problem)
                if key in self.assigned:
                    self._warn(key, self.assigned[key], problem)
            if not why:
                self.transient.over(("beginning", broker))
            del self._opening_tasks[broker]
        if taken:
            self.cluster.log.rebalanced(self.group, taken, ())
        if not problems:
            self._take()
        for broker, problem in problems.items():
            self._failed(("beginning", broker), problem)

    def _warn(self, key: TopicPartition, queue: Queue, why: WireprotoError) -> None:
        """Have the log name a queue that is not read yet, since its broker does not answer."""
        if away(why):
            text = "%s[%d]: broker %s does not tell where it begins, and it is read as soon as it does: %s"
            self.cluster.log.warning(("no answer", key), text, *key, queue.broker, why)

    def _begin(self, key: TopicPartition, queue: Queue, until: float) -> Steps[tuple[int, bool]]:
        topic, offsets = key[0], self.member.offsets
        giving = self._last_commits.get(key)
        if giving is not None:
            yield giving, until
        if key in self.uncommitted:
            return self.uncommitted[key], False
        committed = yield from offsets.committed(topic, queue, until)
        if committed is not None:
            return committed, False
        start = self.start if not topic.startswith("%RETRY%") else Earliest()
        if isinstance(start, Latest):  # the queue came after the group began, or its broker was away: see `_begin_group`
            since = self.begun_without.get((topic, *queue.home))
            start = Earliest() if since is None else AtTime(since)
        if isinstance(start, Position | Mapping):
            if key in self.given:
                yield from offsets.commit(topic, queue, self.given[key], until)
                return self.given[key], False
            start = Earliest()
        if isinstance(start, Earliest):
            return (yield from self.places[topic].first(queue, until)), True
        yield from self.places[topic].all_shown([queue], until)
        offset = yield from self.places[topic].of(queue, start, until)
        yield from offsets.commit(topic, queue, offset, until)
        return offset, False

    # the beginning of a group ------------------------------------------------------------------------------------------------------

    def _begin_group(self, topic: str, until: float) -> Steps[None]:
        """Commit where the group begins, for every queue of the topic; does nothing where it has begun.

        The first queue of each broker is committed last: if it has an offset, all others of that broker have one. A broker none of whose
        queues has one, beside another broker whose first queue has, came later, whatever its name.
        """
        queues = (yield from self.cluster.routing(topic, until)).readable()
        heads = [*{queue.broker: queue for queue in sorted(queues, key=lambda queue: -queue.queue_id)}.values()]
        for look in range(2):
            begun, away = yield from self._begun(topic, heads, until)
            if look or not begun or len(begun) + len(away) == len(heads) or not (yield from self.member.others(until)):
                break
            yield time.monotonic() + BEGIN_GROUP_PAUSE  # another member may be committing the ends, and be between two brokers just now
        rest = [queue for queue in queues if queue not in heads and queue.broker not in begun | away]
        heads = [queue for queue in heads if queue.broker not in begun | away]
        offsets = self.member.offsets
        if begun:
            known = yield from self.cluster.gathering({queue: offsets.committed(topic, queue, until) for queue in rest}, "the offset")
            under_way = {queue.broker for queue in rest if known[queue] is not None}
            rest = [queue for queue in rest if queue.broker in under_way]
            heads = [queue for queue in heads if queue.broker in under_way]
        since = int(time.time() * 1000)
        alone = len({queue.broker for queue in queues}) == 1
        silent = yield from self._committing_ends(topic, rest, heads, until, alone=alone, needed=not begun)
        if not begun:
            self.begun_without |= {(topic, *queue.home): since for queue in queues if queue.broker in away | silent}

    def _committing_ends(
        self, topic: str, rest: Sequence[Queue], heads: Sequence[Queue], until: float, *, alone: bool, needed: bool
    ) -> Steps[set[str]]:
        """Commit the ends of these queues, of each broker the first queue last; returns the brokers that do not answer.

        Args:
            rest, heads: the queues; those that are the first of their broker. alone: whether the topic has one broker, which has all the
                time. needed: whether one of the brokers has to answer.
        Raises:
            WireprotoError: a broker refuses for good, or none answers and one is needed.
        """

        def commit(broker: str, late: float) -> Steps[None]:
            ours = [[queue for queue in some if queue.broker == broker] for some in (rest, heads)]
            yield from self.places[topic].all_shown([*ours[0], *ours[1]], late)
            for some in ours:
                yield from self.cluster.gathering({queue: self._found(topic, queue, late) for queue in some}, "the end")

        asked: dict[TopicPartition, tuple[Queue, Steps[None]]] = {}
        for queue in heads:
            late = until if alone else self.member.answer_by(queue.address, until)
            asked[topic, queue.partition] = queue, commit(queue.broker, late)
        found, problems = yield from self.member.asking(asked, "the end")
        for key, why in problems.items():
            if not passes(why) or (needed and not found):
                raise why
            self._warn(key, asked[key][0], why)
        return {asked[key][0].broker for key in problems}

    def _found(self, topic: str, queue: Queue, until: float) -> Steps[None]:
        offsets = self.member.offsets
        end = yield from self.places[topic].end(queue, until)
        if (yield from offsets.committed(topic, queue, until)) is None:  # another member may have committed and read on already
            yield from offsets.commit(topic, queue, end, until)

    def _begun(self, topic: str, heads: Sequence[Queue], until: float) -> Steps[tuple[set[str], set[str]]]:
        """Return the brokers on which the group has begun, and those that do not answer; raises when none answers."""
        late = [until if len(heads) == 1 else self.member.answer_by(queue.address, until) for queue in heads]
        steps = [(queue, self.member.offsets.committed(topic, queue, until)) for queue, until in zip(heads, late, strict=True)]
        found, problems = yield from self.member.asking({(topic, of[0].partition): of for of in steps}, "the beginning")
        for why in problems.values():
            if not passes(why) or not found:
                raise why
        names = {(topic, queue.partition): queue.broker for queue in heads}
        return {names[key] for key, offset in found.items() if offset is not None}, {names[key] for key in problems}

    # offsets that an administrator has set -----------------------------------------------------------------------------------------

    def _reset(self, key: TopicPartition, offset: int) -> None:
        """Take the queue to the offset that an administrator has set, which a pull's reply or a broker's request said.

        That offset is committed first, and nothing is delivered before that.
        """
        self.why[key] = SET
        self.set_back.add(key)
        self.uncommitted[key] = offset
        cursor = self.fetcher.plan.cursors[key]
        self.held.setdefault(key, cursor.paused)
        cursor.paused = True

    def _place(self) -> None:
        """Read on where set offsets are committed by now, and begin to commit others."""
        placing, problem = self._placing, None
        if placing is not None and placing.done:
            done, problem = placing.result()
            for key, offset in done.items():
                if self.uncommitted.get(key) == offset:
                    del self.uncommitted[key]
                    self.pause(key, self.held.pop(key, False))
            self._placing = None
            self._place_at = time.monotonic() + AGAIN if problem is not None else 0.0
            if problem is None:
                self.transient.over("placing")
        for key in self.uncommitted.keys() - self.queues.keys() - self.assigned.keys():
            del self.uncommitted[key]
        wanted = {key: offset for key, offset in self.uncommitted.items() if key in self.queues}
        if wanted and self._placing is None and time.monotonic() >= self._place_at:
            self._placing = task = self.cluster.tasks.spawn(self._setting(wanted), f"setting group {self.group}")
            after(task, self.fetcher.wake)
        if problem is not None:
            self._failed("placing", problem)

    def _setting(self, wanted: Mapping[TopicPartition, int]) -> Steps[Committed]:
        """Commit set offsets behind the commits in flight: a broker may serve two in either order, and would keep the one from before."""
        for key in wanted:
            earlier = self.commits.get(key)
            if earlier is not None:
                yield earlier
        return (yield from self.committing(wanted))

    def _setting_last(self, until: float) -> Steps[WireprotoError | None]:
        """Commit set offsets that are not committed yet, also those that no call has taken in; returns why that failed."""
        if self.member.left:
            return None
        if self._placing is not None and (yield self._placing, until):
            self._place()
        wanted = {key: offset for key, offset in self.uncommitted.items() if key in self.queues}
        wanted |= {key: offset for key in self.queues if (offset := self._asked_to_set(key)) is not None}
        if not wanted:
            return None
        task = self.cluster.tasks.spawn(self._setting(wanted), f"setting group {self.group}")
        if not (yield task, until):
            return TimedOut("no answer to the offsets that an administrator has set", topic=self.topics[0])
        return task.result()[1]

    def _asked_to_set(self, key: TopicPartition) -> int | None:
        """Return the offset to which a broker's request has set a queue of ours, and which `look` has not taken in."""
        asked = self.member.resets
        queue = self.queues.get(key) if asked else None
        return None if queue is None else asked.get((key[0], queue.broker, queue.queue_id))

    def is_set(self, key: TopicPartition) -> bool:
        """Return whether an administrator has set a queue to another offset, and the owner has not forgotten what was delivered before."""
        return key in self.set_back or self._asked_to_set(key) is not None

    def pause(self, key: TopicPartition, paused: bool) -> None:
        """Deliver nothing of one of our queues, or deliver again."""
        if key in self.held:
            self.held[key] = paused
        elif key in self.queues:
            self.fetcher.pause(key, paused)

    # for the owner -----------------------------------------------------------------------------------------------------------------

    def committing(self, wanted: Mapping[TopicPartition, int], until: float | None = None) -> Steps[Committed]:
        """Commit offsets of our queues, concurrently. until: deadline; None: each broker has the time of `Member.answer_by`."""
        member, asked = self.member, {}
        for key, offset in wanted.items():
            queue = self.queues[key]
            late = until or member.answer_by(queue.address, NEVER)
            asked[key] = queue, member.offsets.commit(key[0], queue, offset, late)
        done, problems = yield from member.asking(asked, "the commit")
        return {key: wanted[key] for key in done}, next(iter(problems.values()), None)

    def lost(self, keys: Iterable[TopicPartition]) -> str:
        """Return a text that says why these queues are not ours, or were not for a while."""
        return ", ".join(f"{key[0]}[{key[1]}] {SET if self.is_set(key) else self.why.get(key, UNKNOWN)}" for key in sorted(keys))

    @property
    def stale(self) -> bool:
        """Whether a newer share was computed than the one that `look` has applied, so that queues of ours may be another member's."""
        return self._round is not None and self._round.done

    def last_commits(self) -> list[Task[None]]:
        """Return the last commits of queues that were given up, which are under way."""
        return list(self._last_commits.values())

    def settling(self, until: float) -> Steps[None]:
        """Wait for a round that is under way, last commits and placings, until the deadline, so that it is known which queues are ours."""
        self.look()
        if self._round is not None:
            yield self._round, until
            self.look()
        tasks: list[Task[Any]] = [*self._last_commits.values()]
        for task in tasks if self._placing is None else [*tasks, self._placing]:
            yield task, until
        self.look()

    def where(
        self, at: Earliest | Latest | AtTime, until: float, keys: Set[TopicPartition] | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """Find the offsets that `at` means in our queues of the topics asked for, or in those of them that `keys` names.

        Raises:
            WireprotoError: a broker does not answer, or refuses; `known` has the offsets that the others returned.
        """
        assigned = {key: queue for key, queue in self.asked_for().items() if keys is None or key in keys}
        found: dict[TopicPartition, int] = {}
        problems: list[WireprotoError] = []

        def look(broker: str) -> Steps[None]:
            some = {key: queue for key, queue in assigned.items() if queue.broker == broker}
            try:
                if not isinstance(at, Earliest):
                    yield from self.places[next(iter(some))[0]].all_shown(some.values(), until)
                looks = {key: self.places[key[0]].of(queue, at, until) for key, queue in some.items()}
                found.update((yield from self.cluster.gathering(looks, "the place")))
            except WireprotoError as why:
                problems.append(why)

        yield from self.cluster.gathering(
            {broker: look(broker) for broker in dict.fromkeys(queue.broker for queue in assigned.values())}, "the places"
        )
        if problems:
            problems[0].known = found
            raise problems[0]
        return {key: found[key] for key in assigned}

    def fetch(self, deadline: float) -> Fetched | None:
        """Return the next batch of our queues; None when none came in time."""
        self.member.polled()
        self.look()
        found = self.fetcher.poll(deadline, self.fetching)
        self.member.polled()
        return found

    def fetching(self, deadline: float) -> Steps[Fetched | None]:
        """Run `fetch` as steps."""
        while True:
            self.member.polled()
            self.look()
            self._pausing()
            soon = time.monotonic() + self.options.max_poll_interval / 3  # notes that the owner is alive while a poll waits
            until = min(deadline, soon) if self._round is not None else min(deadline, soon, self.member.next_look)
            found = yield from self.fetcher.polling(until)
            if found is not None or time.monotonic() >= deadline:
                self.member.polled()
                return found

    def closing(self, until: float) -> Steps[None]:
        """Leave the group, after the last commits of queues that were given up."""
        self.fetcher.close()  # ends the wait of another thread at once
        for giving in [*self._last_commits.values()]:
            yield giving, until
        try:
            problem = yield from self._setting_last(until)
            yield from self.member.closing(until)
        finally:
            self.end()
        if problem is not None:
            raise problem

    def end(self) -> None:
        """Release everything without leaving the group."""
        tasks: list[Task[Any] | None] = [self._round, self._placing, *self._opening_tasks.values()]
        for task in tasks:
            if task is not None:
                task.cancel(Closed("the consumer was closed"))
        self.member.end()
        self.fetcher.close()
