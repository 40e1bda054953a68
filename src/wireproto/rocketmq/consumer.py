"""The Consumer role: a member of a group that reads its share of the queues, with offsets kept at the brokers.

What it is: `Member` says which queues are ours, a `Fetcher` reads them from the committed offsets on, `commit` writes offsets with a reply.
A queue without a committed offset begins at `start`; where that is not EARLIEST the place is committed at once, so that a member who takes
the queue over later does not begin later. LATEST is the end of the queues that there are when the group begins: whoever joins first commits
the ends of all of them, not of its share alone, so that a queue without an offset is known for one that came later. That one is read from
its first record.
The group's retry topic, %RETRY%group, is read like the topics asked for: what another member of the group (a Java push consumer, a
QueueConsumer) has given back is anybody's, and its one queue falls to whoever is first in order. Its batches bear its name and are
committed there; it is not counted in `assignment`, `lag` and `committed`, and `seek` moves it only by name.
Belongs to one thread at a time. Rebalances happen in `poll` and `commit`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wireproto.errors import OptionError, Revoked, TransportError, WireprotoError
from wireproto.flow.resolve import named
from wireproto.flow.role import Role
from wireproto.position import LATEST, AtTime, Earliest, Latest, LogOffset, Position, TopicPartition, Where, places

from ..due import due
from .asked import Standing
from .codes import TopicNotExist
from .fetch import Fetched, Fetcher
from .homes import own
from .member import Member
from .remoting import NoMaster
from .times import PLACES, Offsets

if TYPE_CHECKING:
    from wireproto.records import Batch

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Queue

LEAST = 0.5
"""Seconds that a rebalance may take beyond a shorter timeout of `poll`."""
HAND_OVER = 1.0
"""Seconds that a member which commits by itself leaves a new queue to its former owner, if there are others: to commit there."""
FOUNDING = 0.5
"""Seconds after which a group that seems to have begun on some brokers alone is looked at again, if it has other members."""


class Sharing:
    """What Consumer and QueueConsumer have in common: the share of queues, read from the committed offsets on.

    Args:
        topics: asked for; the group's retry topic is added.
        start: where queues without a committed offset begin.
        giving_up: called in a rebalance with a queue that falls to another member now, and until when that may take.
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
        giving_up: Callable[[TopicPartition, Queue, float], object] = lambda key, queue, deadline: None,
    ) -> None:
        self.cluster, self.options, self.group, self.start, self.giving_up = cluster, options, group, start, giving_up
        self.retry_topic = f"%RETRY%{group}"
        self.topics = tuple(dict.fromkeys((*topics, self.retry_topic)))
        optional = frozenset({self.retry_topic}) - set(topics)
        self.places = {topic: Offsets(cluster, topic, group) for topic in self.topics}
        self.queues: dict[TopicPartition, Queue] = {}
        self.set_back: set[TopicPartition] = set()
        self.gone: set[TopicPartition] = set()
        self.missing_since: float | None = None
        self.seen: dict[TopicPartition, float] = {}  # queues that are to be ours, and since when we know
        self.forgotten: dict[TopicPartition, float] = {}  # queues whose broker the name server has forgotten, and since when
        self.unfounded: dict[tuple[str, str, int], int] = {}  # queues whose broker was away when we began the group, and when that was (ms)
        self.uncommitted: dict[TopicPartition, int] = {}  # where an administrator has set queues that we read from there
        deadline = cluster.deadline(options.timeout)
        for topic in self.topics:
            if topic not in optional:
                cluster.route(topic, deadline)
        if named(start) is None:
            PLACES.requests(start, ())  # for its checks
        self.given = self.own({(start.topic, start.partition): start} if isinstance(start, Position) else start, deadline)
        self.member = Member(cluster, options, group, self.topics, self._wake, self._standing, optional)
        self.fetcher = Fetcher(cluster, options, group=group, purpose=self.member.id, facts=facts, on_reset=self._reset)
        try:
            self.member.join(deadline)
            if isinstance(start, Latest):
                for topic in self.topics:
                    if topic != self.retry_topic:
                        self._found(topic, deadline)
            self.rebalance(deadline)
        except BaseException:
            self.close(time.monotonic() + 1.0)
            raise

    def own(self, given: object, deadline: float) -> dict[TopicPartition, int]:
        """Offsets by our own partitions, of a mapping of positions; of anything else none. Raises OptionError (`homes.own`)."""
        found: dict[TopicPartition, int] = {}
        if isinstance(given, Mapping):
            for topic in dict.fromkeys(key[0] for key in given):
                found |= own(self.cluster, topic, {key: place for key, place in given.items() if key[0] == topic}, deadline)
        return found

    def _standing(self) -> Standing:
        """In the keeper: where we stand."""
        places = self.fetcher.positions()
        return {key: (queue, places[key]) for key, queue in list(self.queues.items()) if key in places}

    def asked_for(self) -> dict[TopicPartition, Queue]:
        """Our queues without the retry topic's."""
        return {key: queue for key, queue in self.queues.items() if key[0] != self.retry_topic}

    def _wake(self) -> None:
        fetcher = getattr(self, "fetcher", None)
        if fetcher is not None:
            fetcher.wake()

    def _reset(self, key: TopicPartition, offset: int) -> None:
        """A broker has told a pull that an administrator set the group there. Commits count again: that place is to be the first one."""
        self.set_back.add(key)
        self.uncommitted[key] = offset

    def rebalance(self, deadline: float) -> frozenset[TopicPartition]:
        """Take and give up queues as the lists say now; the ones given up.

        A queue whose broker cannot be asked is taken later, those of other brokers are read meanwhile.
        Raises:
            TransportError, BrokerError: there is nothing that we could read.
        """
        if self.member.left:
            for key in list(self.queues):
                self._drop(key)
        held = set(self.queues)
        share, unknown = self.member.share(deadline)
        missing = frozenset(key for key in self.queues.keys() - share.keys() if key[0] not in unknown)
        lost = missing - self._forgotten(missing)
        for key in lost:
            with contextlib.suppress(WireprotoError):  # then it comes again, from the last commit on
                self.giving_up(key, self.queues[key], self.member.patience(self.queues[key].address, deadline))
            self._drop(key)
        share = self._handed_over(share)
        problem: WireprotoError | None = None
        away: set[str] = set()
        alone = len({queue.broker for queue in share.values()}) == 1
        for key, queue in sorted(share.items(), key=lambda item: self.member.ails(item[1].address)):
            if key not in self.queues:
                if queue.broker in away:
                    continue
                try:
                    offset, earliest = self._begin(key, queue, deadline if alone else self.member.patience(queue.address, deadline))
                except (TransportError, NoMaster) as error:
                    problem = error
                    away.add(queue.broker)
                    self.member.ail(queue.address)
                    self.member.look_again()
                    continue
                except BaseException:
                    self.member.look_again()  # not all of our queues are read yet
                    raise
                self.fetcher.add(key[0], queue, offset, earliest=earliest)
            else:
                self.fetcher.follow(key, queue)
            self.queues[key] = queue
        if problem is not None and not self.queues:
            raise problem
        if lost or self.queues.keys() - held:
            self.cluster.told.rebalanced(self.member.group, self.queues.keys() - held, lost)
        return lost

    def _forgotten(self, missing: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Of queues that are ours no more, those whose broker the name server does not know just now, so that nobody can be given them.

        It forgets a broker with their connection, until the broker registers again (each 30 s): meanwhile they are read on where they were.
        """
        now, before = time.monotonic(), self.forgotten
        self.forgotten = {}
        for key in missing:
            route = self.cluster.routes.known(key[0])
            queue = None if route is None else route.find(*self.queues[key].home)
            since = before.get(key, now)
            if queue is not None and queue.address is None and now - since <= self.options.recovery_timeout:
                self.forgotten[key] = since
        return {*self.forgotten}

    def _handed_over(self, share: dict[TopicPartition, Queue]) -> dict[TopicPartition, Queue]:
        """The share without what its former owner may still be committing."""
        now = time.monotonic()
        since = {key: self.seen.get(key, now) for key in share.keys() - self.queues.keys()}
        self.seen = since if self.options.auto_commit and self.member.crowd > 1 else {}
        for when in self.seen.values():
            if now < when + HAND_OVER:
                self.member.look_again(when + HAND_OVER - now)
        return {key: queue for key, queue in share.items() if now >= self.seen.get(key, 0.0) + HAND_OVER}

    def _drop(self, key: TopicPartition) -> None:
        self.queues.pop(key, None)
        self.fetcher.plan.remove(key)
        self.gone.add(key)

    def _found(self, topic: str, deadline: float) -> None:
        """Where the group begins, committed for every queue there is; nothing where it has begun.

        The first queue of each broker comes last: one that has an offset tells that all others are done. A broker none of whose queues has
        one, beside another whose first queue has, came later, whatever its name.
        """
        queues = self.cluster.route(topic, deadline).readable()
        heads = [*{queue.broker: queue for queue in sorted(queues, key=lambda queue: -queue.queue_id)}.values()]
        for look in range(2):
            begun, away = self._begun(topic, heads, deadline)
            if look or not begun or len(begun) + len(away) == len(heads) or not self.member.others(deadline):
                break
            self.cluster.pause(FOUNDING)  # another member may be at it, and between two brokers just now
        rest = [queue for queue in queues if queue not in heads and queue.broker not in begun | away]
        heads = [queue for queue in heads if queue.broker not in begun | away]
        offsets, places = self.member.offsets, self.places[topic]
        if begun:
            under_way = {queue.broker for queue in rest if offsets.committed(topic, queue, deadline) is not None}
            rest = [queue for queue in rest if queue.broker in under_way]
            heads = [queue for queue in heads if queue.broker in under_way]
        else:
            self.unfounded |= {(topic, *queue.home): int(time.time() * 1000) for queue in queues if queue.broker in away}
        places.all_shown([*rest, *heads], deadline)
        for queue in (*rest, *heads):
            end = places.end(queue, deadline)
            if offsets.committed(topic, queue, deadline) is None:  # another member may have begun, and be on its way already
                offsets.commit(topic, queue, end, deadline)

    def _begun(self, topic: str, heads: Sequence[Queue], deadline: float) -> tuple[set[str], set[str]]:
        """Brokers on which the group has begun, and those that cannot be asked; raises when none can."""
        begun: set[str] = set()
        away: set[str] = set()
        for queue in sorted(heads, key=lambda queue: self.member.ails(queue.address)):
            try:
                until = deadline if len(heads) == 1 else self.member.patience(queue.address, deadline)
                if self.member.offsets.committed(topic, queue, until) is not None:
                    begun.add(queue.broker)
            except (TransportError, NoMaster):
                self.member.ail(queue.address)
                away.add(queue.broker)
                if len(away) == len(heads):
                    raise
        return begun, away

    def _begin(self, key: TopicPartition, queue: Queue, deadline: float) -> tuple[int, bool]:
        topic, offsets = key[0], self.member.offsets
        if key in self.uncommitted:
            return self.uncommitted[key], False
        committed = offsets.committed(topic, queue, deadline)
        if committed is not None:
            return committed, False
        start = self.start if not topic.startswith("%RETRY%") else Earliest()
        if isinstance(start, Latest):  # the queue came when the group had begun, or was away: see `_found`
            since = self.unfounded.get((topic, *queue.home))
            start = Earliest() if since is None else AtTime(since)
        if isinstance(start, Position | Mapping):
            if key in self.given:
                offsets.commit(topic, queue, self.given[key], deadline)
                return self.given[key], False
            start = Earliest()
        if not isinstance(start, Earliest):
            self.places[topic].all_shown([queue], deadline)
        offset = self.places[topic].of(queue, start, deadline)
        if not isinstance(start, Earliest):
            offsets.commit(topic, queue, offset, deadline)
        return offset, isinstance(start, Earliest)

    def where(self, at: Earliest | Latest | AtTime, deadline: float) -> dict[TopicPartition, int]:
        """The offsets that `at` means in our queues of the topics asked for."""
        ours = self.asked_for()
        if not isinstance(at, Earliest):
            self.places[self.retry_topic].all_shown(ours.values(), deadline)
        return {key: self.places[key[0]].of(queue, at, deadline) for key, queue in ours.items()}

    def settle(self, deadline: float) -> frozenset[TopicPartition]:
        """Rebalance if it is due; go where an administrator has set the group."""
        if not self.member.due and not self.uncommitted:
            return frozenset()
        deadline = max(deadline, time.monotonic() + LEAST)
        lost = self.rebalance(deadline) if self.member.due else frozenset()
        for (topic, broker, queue_id), offset in self.member.take_resets().items():
            for key, queue in self.queues.items():
                if (key[0], queue.broker, queue.queue_id) == (topic, broker, queue_id):
                    self.fetcher.seek(key, offset)
                    self.set_back.add(key)
                    self.uncommitted[key] = offset
        for key, offset in list(self.uncommitted.items()):
            if key in self.queues:
                self.member.offsets.commit(key[0], self.queues[key], offset, deadline)
            self.uncommitted.pop(key)
        return lost

    def try_settle(self, deadline: float) -> bool:
        """The same; False where not all brokers could be asked: what is ours is read on."""
        try:
            self.settle(deadline)
        except (TransportError, NoMaster):
            self.member.look_again()
            return False
        except TopicNotExist:
            self._missed(time.monotonic())
            return False
        now = time.monotonic()
        if any(self.cluster.routes.missing(topic) is not None for topic in self.topics if topic != self.retry_topic):
            self._missed(now)
        else:
            self.missing_since = None
        return True

    def _missed(self, now: float) -> None:
        """No name server knows a topic: a broker that is away takes its topics along, so it may come again."""
        self.missing_since = self.missing_since or now
        if now - self.missing_since > self.options.recovery_timeout:
            self.missing_since = None
            raise TopicNotExist("no name server knows it any more", topic=self.topics[0])

    def take_set_back(self) -> set[TopicPartition]:
        """Queues that were set back or forth since the last call: what was handed out of them counts no more."""
        found, self.set_back = self.set_back, set()
        return found

    def take_gone(self) -> set[TopicPartition]:
        """Queues that were given up since the last call, those that are ours again included: others may have read them meanwhile."""
        found, self.gone = self.gone, set()
        return found

    def fetch(self, deadline: float) -> Fetched | None:
        """The next batch of our queues, rebalancing where due; None when none came in time."""
        self.member.polled()
        while True:
            self.try_settle(deadline)
            found = self.fetcher.poll(min(deadline, max(self.member.next_look, time.monotonic() + LEAST)))
            if self.uncommitted:  # a reset was told: nothing from behind it is handed out before its place is committed
                self.try_settle(deadline)
            if found is not None or time.monotonic() >= deadline:
                self.member.polled()
                return found

    def close(self, deadline: float) -> None:
        self.member.close(deadline)
        if hasattr(self, "fetcher"):
            self.fetcher.close()


class RocketConsumer(Role):
    """Made by `RocketClient.consumer`."""

    def __init__(self, cluster: RocketCluster, topics: Sequence[str], group: str, start: Where, options: RocketOptions) -> None:
        if not topics:
            raise OptionError("a consumer needs a topic")
        super().__init__("consumer", cluster.loop)
        self.options = options
        self._cluster = cluster
        self._paused: set[TopicPartition] = set()
        self._handed: dict[TopicPartition, int] = {}  # not committed yet
        self._in_work: tuple[TopicPartition, int | None] | None = None  # the newest batch's queue, and what was handed out of it before
        self._given: set[TopicPartition] = set()  # queues out of which something was handed out since they are ours
        self._revoked: set[TopicPartition] = set()  # of those, the ones given up since; until they are ours and handed out again
        self._lost: set[TopicPartition] = set()  # of those, the ones with something to commit that no commit has told of
        self._elsewhere: set[TopicPartition] = set()  # set back or forth, and nothing handed out since
        self._last_commit = time.monotonic()
        self._sharing = Sharing(cluster, topics, group, start, options, giving_up=self._giving_up)

    @property
    def member_id(self) -> str:
        """Our client id, as brokers list it."""
        return self._sharing.member.id

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout`. Rebalances happen here.

        Raises: as `RocketReader.poll`.
        """
        with self._only:
            deadline = due(timeout)
            if self.options.auto_commit and time.monotonic() - self._last_commit >= self.options.auto_commit_interval:
                self._commit_handed(max(deadline, time.monotonic() + 1.0))
            self._in_work = None
            found = self._sharing.fetch(deadline)
            self._forget()
            if found is None:
                return None
            for key, position in found.batch.next_positions.items():
                assert isinstance(position, LogOffset)
                self._in_work = key, self._handed.get(key)
                self._handed[key] = position.offset
                self._given.add(key)
                self._revoked.discard(key)
                self._elsewhere.discard(key)
            return found.batch

    def _forget(self) -> None:
        """What was handed out of queues that were given up since, or set to another place, counts no more."""
        for key in self._sharing.take_gone() & self._given:
            self._given.discard(key)
            self._revoked.add(key)
            if self._handed.pop(key, None) is not None:
                self._lost.add(key)
        for key in self._sharing.take_set_back():
            self._elsewhere.add(key)
            self._handed.pop(key, None)

    def _giving_up(self, key: TopicPartition, queue: Queue, deadline: float) -> None:
        """Auto commit: what was handed out of a queue that falls to another member, unless that has got further already."""
        offset = self._handed.get(key)
        if self.options.auto_commit and offset is not None and not self._sharing.member.left:
            offsets = self._sharing.member.offsets
            if (offsets.committed(key[0], queue, deadline) or 0) < offset:
                offsets.commit(key[0], queue, offset, deadline)
            self._handed.pop(key)

    def _commit_handed(self, deadline: float) -> None:
        """Auto commit: what was handed out before this poll; of queues that are still ours."""
        self._last_commit = time.monotonic()
        if self._sharing.member.left:
            return  # others may have read on
        wanted = {key: offset for key, offset in self._handed.items() if key in self._sharing.queues}
        self._handed = dict(wanted)
        self._commit_all(wanted, deadline)

    def _commit_all(self, wanted: Mapping[TopicPartition, int], deadline: float) -> None:
        """Commit to our queues: a broker that does not answer is asked once more after all others; its error is raised then."""
        member, queues = self._sharing.member, self._sharing.queues
        late: list[TopicPartition] = []
        for key, offset in sorted(wanted.items(), key=lambda item: member.ails(queues[item[0]].address)):
            address = queues[key].address
            try:
                member.offsets.commit(key[0], queues[key], offset, deadline if len(wanted) == 1 else member.patience(address, deadline))
            except (TransportError, NoMaster):
                member.ail(address)
                late.append(key)
                continue
            self._done(key, offset)
        for key in late:
            member.offsets.commit(key[0], queues[key], wanted[key], deadline)
            self._done(key, wanted[key])

    def _done(self, key: TopicPartition, offset: int) -> None:
        if self._handed.get(key, -1) <= offset:
            self._handed.pop(key, None)

    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        """Commit where to resume; None commits what poll has handed out.

        Raises:
            Revoked: naming the partitions that another member owns now; the others are committed.
            TransportError: a broker cannot be asked; what belongs to the others is committed.
        """
        positions = places(positions, "commit")
        with self._only:
            deadline = due(timeout)
            sharing = self._sharing
            given = None if positions is None else sharing.own(positions, deadline)
            sharing.settle(deadline)
            self._forget()
            wanted = dict(self._handed) if given is None else {key: at for key, at in given.items() if key not in self._elsewhere}
            lost = list(self._lost) if given is None else []
            for key in list(wanted):
                if key not in sharing.queues or key in self._revoked:
                    lost.append(key)
                    self._done(key, wanted.pop(key))
                    if key not in sharing.queues:
                        self._handed.pop(key, None)
            self._commit_all(wanted, deadline)
            self._lost.difference_update(lost)
            if lost:
                names = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(lost))
                raise Revoked(f"another member owns {names} now; the other positions are committed", partitions=tuple(sorted(lost)))

    def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        """Where the group resumes in the partitions that are ours; those never committed are left out."""
        with self._only:
            deadline = due(timeout)
            found: dict[TopicPartition, Position] = {}
            for key, queue in self._sharing.asked_for().items():
                offset = self._sharing.member.offsets.committed(key[0], queue, deadline)
                if offset is not None:
                    found[key] = queue.at(key[0], offset)
            return found

    def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]:
        """Records that poll has not handed out yet, by partition that is ours."""
        with self._only:
            deadline = due(timeout)
            ends = self._sharing.where(LATEST, deadline)
            places = self._sharing.fetcher.positions()
            return {key: max(0, end - places[key]) for key, end in ends.items()}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`."""
        self._pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        self._pause(partitions, False)

    def _pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        with self._only:
            for key in partitions:
                if key not in self._sharing.queues:
                    raise Revoked(f"{key[0]}[{key[1]}] is not assigned to this consumer", partitions=(key,))
                self._sharing.fetcher.pause(key, paused)

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Go on from there, in the partitions that are ours (and that `where` names)."""
        with self._only:
            deadline = due(timeout)
            sharing = self._sharing
            if isinstance(where, Position):
                where = {(where.topic, where.partition): where}
            if isinstance(where, Mapping):
                found = sharing.own(where, deadline)
                if missing := found.keys() - sharing.queues.keys():
                    raise OptionError(f"not assigned to this consumer: {sorted(missing)}")
            else:
                PLACES.requests(where, (), "seek")  # for its checks
                found = sharing.where(where, deadline)
            for key, offset in found.items():
                sharing.fetcher.seek(key, offset, earliest=isinstance(where, Earliest))
                self._handed.pop(key, None)
                self._revoked.discard(key)
                self._elsewhere.discard(key)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours, of the topics asked for."""
        return frozenset(self._sharing.asked_for())

    def _let_go(self, deadline: float) -> None:
        """Leave the group: its other members take over at once. Commits nothing, unless auto_commit is on.

        An error that ends a `with` block leaves the newest batch uncommitted: its work was not done.
        """
        try:
            if self.options.auto_commit:
                self._commit_handed(deadline)
        finally:
            self._sharing.close(deadline)

    def _work_failed(self) -> None:
        if self._in_work is not None:
            key, before = self._in_work
            self._handed.pop(key, None)
            if before is not None:
                self._handed[key] = before
