"""Keeps a member in its group: sends what `group.Membership` says, and receives the replies.

One task of the client, from the first poll on: it joins when a poll asks for that, sends heartbeats in between, finds the coordinator again
when that is lost, and leaves when there is no poll for max_poll_interval. The coordinator has a connection of its own, because a JoinGroup
holds its connection until the whole group has joined.

    settling()  the caller's thread, in poll: asks for a stable membership, and waits for it; one thread at a time
    _run_membership()     the task: joins and heartbeats

Knows nothing of offsets or fetches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._net import Event
from ..errors import BrokerError, Closed, Disconnected, TimedOut, TransportError, WireprotoError
from ..net.retry import Policy, Verdict, Waits, verdict
from ..net.task import Steps, Task, fresh
from . import wire
from .codes import error
from .group import LEFT, STABLE, SYNCING, GroupSettings, Membership
from .messages import LeaveGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .options import KafkaOptions

_LOST = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
_AT_ONCE = 2
"""Times that a member joins again without a wait: it is forgotten, then gets its member id."""
_LEAVING = 10.0
"""Seconds that leaving takes at most."""
_NEVER = float("inf")


class Coordinator:
    """Runs one member's requests to its group coordinator.

    Args:
        wake: called in the I/O thread when a poll should look at the membership again.

    Attributes:
        membership: state, generation, assignment.
        problem: an error that ended the membership, or the attempts at one; the next poll raises it.
        counts: of a leader: partitions by topic, of all topics of the group, as it has assigned them.
        route: the way to the coordinator, by this member's connection.
    """

    def __init__(self, cluster: KafkaCluster, group: str, topics: tuple[str, ...], options: KafkaOptions, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._options = options
        self._wake = wake
        self._purpose = f"group {id(self):x}"
        self.route = cluster.to_coordinator(group, purpose=self._purpose)
        self._lock = threading.Lock()
        self._task: Task[None] | None = None
        self._signal = Event(cluster.loop)  # set when there is something to do before the next heartbeat
        self._wanted: Event | None = None  # a poll asks for a stable membership, and waits for this
        self._beat_at = _NEVER
        self._out_at = 0.0  # when the join or sync in flight was sent; 0.0: it was not
        self._naming = False  # a join is in flight whose reply has the member id
        self._waits = Waits(_LOST)
        self._refusals = Waits(_LOST)  # replies in a row that mean "join again"
        self.polled_at = time.monotonic()
        self.problem: Exception | None = None
        self.counts: dict[str, int] = {}
        self.membership = Membership(
            GroupSettings(
                group=group,
                topics=tuple(sorted(topics)),
                session_timeout=int(options.session_timeout * 1000),
                rebalance_timeout=int(options.max_poll_interval * 1000),
                static_name=options.group_instance_id,
            )
        )

    @property
    def group(self) -> str:
        """Return the group's name."""
        return self.membership.settings.group

    # --- in the caller's thread ---

    def settling(self, deadline: float) -> Steps[bool]:
        """Ask for a stable membership, and wait for it.

        Returns:
            whether it is stable, or over; False when the deadline came first.
        Raises:
            the error that ended the membership, or the attempts at one.
        """
        self._raise_problem()
        member = self.membership
        if member.state in (STABLE, LEFT):
            return True
        wanted = self._wanted
        if wanted is None:
            wanted = self._wanted = Event(self._cluster.loop)
        # Done by each poll: a signal handler may have interrupted the one before at any of these.
        self._task = self._cluster.tasks.shared(("membership", id(self)), self._run_membership, f"membership of group {self.group!r}")
        self._signal.set()
        if not (yield wanted, deadline):
            return False
        self._raise_problem()
        return member.state in (STABLE, LEFT)

    def wake(self) -> None:
        """End a wait in `settling`, whatever the membership's state. Any thread."""
        wanted = self._wanted
        if wanted is not None:
            wanted.set()

    def _raise_problem(self) -> None:
        """Raise `problem`, if any; one that fences the member is raised by every later call, too."""
        problem = self.problem
        if problem is not None:
            if not getattr(problem, "fenced", False):
                self.problem = None
            raise fresh(problem)

    def rejoin(self) -> None:
        """Have the member join again: the topics have other partitions now."""
        with self._lock:
            self.membership.rejoin()

    def refused_commit(self, code: int) -> None:
        """Take in the error code of a commit."""
        with self._lock:
            self.membership.refused_commit(code)

    # --- the task ---

    def _run_membership(self) -> Steps[None]:
        """Run until the membership is over. An error that ends it before, such as an internal one, is raised by the next poll.

        That poll starts the task again.
        """
        try:
            yield from self._join_and_beat()
        except Exception as why:
            if not isinstance(why, Closed):
                with self._lock:
                    self.problem = self.problem or why
                    self.membership.rejoin()
                self._wake()
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                wanted.set()
            raise

    def _join_and_beat(self) -> Steps[None]:
        """Join at once when a poll asks for it; send heartbeats in between."""
        member = self.membership
        while member.state != LEFT:
            signal = self._signal = Event(self._cluster.loop)
            if self._wanted is not None:
                yield from self._join()
            elif not (yield signal, self._beat_at if member.beating else _NEVER):
                yield from self._beat()

    def _join(self) -> Steps[None]:
        """Join and sync, until the membership is stable, or has not been for `request_timeout` seconds, or cannot be."""
        member = self.membership
        failing_since = 0.0
        while member.state not in (STABLE, LEFT):
            try:
                reply = yield from self._asked()
                with self._lock:  # by the kind of reply: a refused commit, say, may have changed the state meanwhile
                    (member.on_sync if isinstance(reply, SyncGroupResponse) else member.on_join)(reply)
            except Closed:
                raise  # the membership is over; `_run_membership` handles it
            except Exception as why:
                now = time.monotonic()
                failing_since = failing_since + self._time_held(why, now) if failing_since else now
                if not isinstance(why, WireprotoError) or self._ends(why) or now - failing_since > self._options.request_timeout:
                    self.problem = self.problem or why
                    break
                self._lost()
                yield now + self._waits.next()
            else:
                failing_since = 0.0
                if reply.error_code:
                    yield from self._sent_back(reply.error_code)
        else:
            self._waits.over()
            self._refusals.over()
            self._beat_at = time.monotonic() + self._options.heartbeat_interval
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.set()

    def _time_held(self, why: Exception, now: float) -> float:
        """Return for how many seconds a coordinator held the request that failed so: it was reached, and waited for the other members."""
        return now - self._out_at if self._out_at and not isinstance(why.__cause__, TimedOut) else 0.0

    def _sent_back(self, code: int) -> Steps[None]:
        """Wait before joining again, unless this is one of the first refusals in a row: else our requests keep the coordinator busy."""
        wait = self._refusals.next()
        if self._refusals.failures > _AT_ONCE:
            again = error(code, f"group {self.group!r}")
            self._cluster.log.info(("again", self.group), "tried again, while there is time: %s", again)
            yield time.monotonic() + wait

    def _ends(self, why: WireprotoError) -> bool:
        """Return whether a membership cannot continue after this error. A TimedOut is of one request alone: the next may be answered."""
        if why.fenced:
            self._fenced(why)
        return verdict(why, transient=(TimedOut,)) is Verdict.NEVER

    def _asked(self) -> Steps[Any]:
        """Send a join or a sync, and return the reply. A coordinator that does not answer in time is lost, though still connected."""
        options, member, self._out_at = self._options, self.membership, 0.0
        soon = time.monotonic() + options.request_timeout
        if member.state == SYNCING and member.leading:
            topics = member.wanted_topics()
            yield from self._cluster.refreshing(topics, soon)
            self.counts = self._cluster.metadata.counts(topics)
        conn = yield from self.route(soon)
        with self._lock:
            syncing = member.state == SYNCING
            request = member.sync_request(self.counts) if syncing else member.join_request()
            self._naming = not member.member
        self._out_at = time.monotonic()
        until = self._out_at + options.request_timeout
        if not syncing:  # a join waits for the other members' next polls, a sync only for the leader
            until += options.max_poll_interval
        try:
            return (yield from wire.asking(conn, request, until, meanwhile=self._cluster.watching(self.group)))
        except Closed:
            conn.close("the consumer was closed while it joined")
            raise
        except TimedOut as why:
            conn.close("the coordinator does not answer")
            raise Disconnected("the coordinator has not answered in time", peer=conn.peer) from why
        finally:
            self._naming = False

    def _fenced(self, why: Exception) -> None:
        """Note that the member is fenced: every later poll raises the error."""
        with self._lock:
            self.problem = why
            self.membership.fenced()

    def _lost(self) -> None:
        """Note that the coordinator could not be reached, or is another node now: look it up again, and rejoin."""
        self._cluster.lost_coordinator(self.group)
        with self._lock:
            self.membership.rejoin()

    def _beat(self) -> Steps[None]:
        """Send a heartbeat and take in the reply; or leave, when there have been no polls for max_poll_interval."""
        options, member = self._options, self.membership
        now = time.monotonic()
        if now - self.polled_at > options.max_poll_interval:
            yield from self._give_up()
            return
        try:
            conn = yield from self.route(now + options.session_timeout / 3)
            until = time.monotonic() + options.session_timeout / 2
            generation, request = member.generation, member.heartbeat_request()
            try:
                reply = yield from wire.asking(conn, request, until, meanwhile=self._cluster.watching(self.group))
            except TimedOut:
                conn.close("a heartbeat was not answered in time")
                raise
            if reply.error_code and verdict(error(reply.error_code)) is not Verdict.NEVER:
                raise error(reply.error_code)
        except Closed:
            raise
        except WireprotoError:
            self._cluster.lost_coordinator(self.group)
            self._beat_at = time.monotonic() + min(self._waits.next(), options.heartbeat_interval)
            return
        self._waits.over()
        self._beat_at = now + options.heartbeat_interval
        self._beaten(reply, generation)

    def _beaten(self, reply: Any, generation: int) -> None:
        """Take in the reply to a heartbeat; wake the poll where it has to join again."""
        try:
            with self._lock:
                news = self.membership.on_heartbeat(reply, generation)
        except BrokerError as why:
            if why.fenced:
                self._fenced(why)
            else:
                with self._lock:
                    self.problem = why
                    self.membership.forget()
            news = True
        if news:
            self._wake()

    def _give_up(self) -> Steps[None]:
        """Leave, since there are no polls, so that other members get our partitions; the next poll joins again."""
        member, until = self.membership, time.monotonic() + 5.0
        request: LeaveGroupRequest | None = None
        with suppress(TransportError, BrokerError):  # else the session timeout ends the membership
            conn = yield from self.route(until)
            version = wire.version_for(conn, LeaveGroupRequest)
            request = member.leave_request(version)
        with self._lock:
            member.forget()
        if request is not None and self._options.group_instance_id is None:
            with suppress(TransportError):
                yield from wire.asking(conn, request, until, version=version)

    # --- leaving ---

    def closing(self, deadline: float) -> Steps[None]:
        """Stop the heartbeats; leave the group unless the membership is static.

        If the first join is in flight, its reply is waited for, because it has the member id. Without a LeaveGroup of that id the
        coordinator keeps the member until the session timeout, and no rebalance of the group ends before that.
        """
        dynamic = self._options.group_instance_id is None
        until = min(deadline, time.monotonic() + _LEAVING)
        with self._lock:
            self.membership.leave()
        if self._task is not None:
            if dynamic and self._naming:
                yield self._task, until
            self._task.cancel(Closed("the consumer was closed"))
            yield self._task, deadline
        try:
            if dynamic and self.membership.member:
                yield from self._cluster.asking(
                    self.membership.leave_request,
                    until,
                    self.route,
                    kind=LeaveGroupRequest,
                    refresh=lambda why: self._cluster.lost_coordinator(self.group),
                )
        finally:
            self._cluster.drop_purpose(self._purpose)
