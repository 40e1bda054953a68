"""A member's conversation with its group coordinator: the hands of `group.Membership`.

What it is: join and sync as calls that stay under way over several polls, beats by a timer in the keeper, leaving. The coordinator has a
connection of its own, because a JoinGroup holds its connection until the whole group has joined.

    step()     caller's thread, in poll: one move forward; returns whether the membership is settled
    _beat()    keeper's timer: a heartbeat, or leaving when polls stay away for max_poll_interval
    _beaten()  keeper: a heartbeat's answer

May assume: `step` in one thread at a time. Must not: know offsets or fetches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from .._net import Mailbox
from ..errors import BrokerError, Disconnected, TimedOut, TransportError, WireprotoError
from ..net.errand import Errand
from ..net.retry import Policy, Verdict, Waits, verdict
from ..net.task import Steps
from . import wire
from .codes import error
from .group import LEFT, STABLE, SYNCING, GroupSettings, Membership
from .messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

if TYPE_CHECKING:
    from .._net import Call, Connection, Timer
    from .cluster import KafkaCluster
    from .options import KafkaOptions

_LOST = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)


class Coordinator:
    """One member.

    Args:
        wake: called in the keeper when a poll should look again.

    Attributes:
        membership: state, generation, assignment.
        problem: an error that ended the membership in the background; the next poll raises it.
    """

    def __init__(self, cluster: KafkaCluster, group: str, topics: tuple[str, ...], options: KafkaOptions, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._options = options
        self._wake = wake
        self._purpose = f"group {id(self):x}"
        self._lock = threading.RLock()
        self._call: Call | None = None
        self._beats = Mailbox(cluster.loop, self._beaten)
        self._timer: Timer | None = None
        self._beating: Call | None = None
        self._errand = Errand(cluster.loop, options.request_timeout)
        self._failing_since = 0.0
        self._waits = Waits(_LOST)
        self._connecting = False
        self.polled_at = time.monotonic()
        self.problem: WireprotoError | None = None
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
        return self.membership.settings.group

    def route(self, deadline: float) -> Steps[Connection]:
        """To the coordinator, by this member's own connection."""
        return self._cluster.to_coordinator(self.group, purpose=self._purpose)(deadline)

    def connection(self, deadline: float) -> Connection:
        """`route`, in the caller's thread."""
        return self._cluster.drive(self.route(deadline), deadline)

    # --- joining: in the caller's thread ---

    def step(self, deadline: float) -> bool:
        """One move towards a settled membership; False when the deadline came first. Raises what a membership cannot go on after."""
        if self.problem is not None:
            problem = copy(self.problem)
            if not problem.fenced:
                self.problem = None
            raise problem
        member = self.membership
        try:
            while member.state not in (STABLE, LEFT):
                if self._call is None:
                    self._call = self._syncing(deadline) if member.state == SYNCING else self._joining(deadline)
                if not self._call.wait(deadline):
                    return False
                call, self._call = self._call, None
                reply = _answer(call)
                with self._lock:
                    if member.state == SYNCING:
                        member.on_sync(reply)
                    else:
                        member.on_join(reply)
            self._failing_since = 0.0
            self._waits.over()
            if member.state == STABLE and self._timer is None:
                self._arm()
        except TimedOut:
            return False
        except (TransportError, BrokerError) as why:
            self._call = None
            if why.fenced:
                self._fenced(why)
            if verdict(why) is Verdict.NEVER:
                raise
            self._lost(why, deadline)
            return False
        return True

    def _fenced(self, why: WireprotoError) -> None:
        """Every later poll says so, too."""
        with self._lock:
            self.problem = copy(why)
            self.membership.fenced()

    def _joining(self, deadline: float) -> Call:
        conn = self._errand.ask("coordinator", self.connection, deadline)
        version = wire.version_for(conn, JoinGroupRequest)
        timeout_at = time.monotonic() + self._options.max_poll_interval + self._options.request_timeout
        return wire.submit(conn, self.membership.join_request(), timeout_at=timeout_at, version=version)

    def _syncing(self, deadline: float) -> Call:
        counts: dict[str, int] = {}
        if self.membership.leading:
            topics = self.membership.wanted_topics()
            self._errand.ask("topics", lambda until: self._cluster.refresh(topics, until), deadline)
            known = self._cluster.metadata.topics
            counts = {name: len(known[name].partitions) for name in topics if name in known}
        conn = self._errand.ask("coordinator", self.connection, deadline)
        timeout_at = time.monotonic() + self._options.max_poll_interval + self._options.request_timeout
        return wire.submit(
            conn, self.membership.sync_request(counts), timeout_at=timeout_at, version=wire.version_for(conn, SyncGroupRequest)
        )

    def _lost(self, why: WireprotoError, deadline: float) -> None:
        """The coordinator could not be reached or is another one now: go on trying for `request_timeout`."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        self._cluster.lost_coordinator(self.group)
        with self._lock:
            self.membership.rejoin()
        if now - self._failing_since > self._options.request_timeout:
            self._failing_since = 0.0
            raise why
        self._cluster.pause(min(self._waits.next(), max(0.0, deadline - now)))

    # --- beating: in the keeper ---

    def _arm(self) -> None:
        with self._lock:
            if self.membership.state == LEFT:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._cluster.loop.call_at(time.monotonic() + self._options.heartbeat_interval, self._beat)

    def _beat(self) -> None:
        with self._lock:
            self._timer = None
            member = self.membership
            if member.state == LEFT:
                return
            if member.beating and self._call is None:
                if time.monotonic() - self.polled_at > self._options.max_poll_interval:
                    self._give_up()
                    return
                if self._beating is None or self._beating.done:
                    self._send_beat()
            self._arm()

    def _send_beat(self) -> None:
        conn = self._peek()
        if conn is None:
            self._reconnect()
            return
        timeout_at = time.monotonic() + self._options.session_timeout / 2
        try:
            version = wire.version_for(conn, HeartbeatRequest)
            self._beating = wire.submit(
                conn,
                self.membership.heartbeat_request(),
                mailbox=self._beats,
                timeout_at=timeout_at,
                version=version,
                matter=self.membership.generation,
            )
        except WireprotoError:
            self._reconnect()

    def _peek(self) -> Connection | None:
        node = self._cluster.known_coordinator(self.group)
        return None if node is None else self._cluster.pool.peek(node.address, self._purpose)

    def _reconnect(self) -> None:
        if not self._connecting:
            self._connecting = True
            self._cluster.loop.background(self._connect)

    def _connect(self) -> None:
        """In the worker thread: find the coordinator again."""
        try:
            self.connection(time.monotonic() + self._options.session_timeout / 3)
        except WireprotoError:
            self._cluster.lost_coordinator(self.group)
        else:
            self._cluster.loop.call_soon(self._beat_now)
        finally:
            self._connecting = False

    def _beat_now(self) -> None:
        with self._lock:
            if self.membership.beating and self._call is None and (self._beating is None or self._beating.done):
                self._send_beat()

    def _beaten(self, call: Call) -> None:
        try:
            reply: Any = wire.result(call)
        except WireprotoError as why:
            if isinstance(why, TimedOut):
                call.conn.close("a heartbeat was not answered in time")
            self._cluster.lost_coordinator(self.group)
            self._reconnect()
            return
        if reply.error_code and verdict(error(reply.error_code)) is not Verdict.NEVER:
            self._cluster.lost_coordinator(self.group)
            self._reconnect()
            return
        with self._lock:
            try:
                news = self.membership.on_heartbeat(reply, call.context.matter)
            except BrokerError as why:
                if why.fenced:
                    self._fenced(why)
                else:
                    self.problem = why
                    self.membership.forget()
                news = True
        if news:
            self._wake()

    def _give_up(self) -> None:
        """Polls stay away: leave, so that others get our partitions; the next poll joins again."""
        conn = self._peek()
        if conn is not None and self._options.group_instance_id is None:
            try:
                version = wire.version_for(conn, LeaveGroupRequest)
                wire.submit(conn, self.membership.leave_request(version), timeout_at=time.monotonic() + 5.0, version=version)
            except WireprotoError:
                pass  # the session time-out will do
        self.membership.forget()

    # --- leaving ---

    def close(self, deadline: float) -> None:
        """Stop beating; leave the group unless the membership is static."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            leaving = bool(self.membership.member) and self._options.group_instance_id is None
            self.membership.leave()
            call, self._call = self._call, None
        if call is not None:
            call.cancel()
            call.conn.close("the consumer was closed while it joined")
        self._beats.close()
        try:
            if leaving:
                self._cluster.ask(
                    self.membership.leave_request,
                    min(deadline, time.monotonic() + 10.0),
                    self.route,
                    kind=LeaveGroupRequest,
                    refresh=lambda why: self._cluster.lost_coordinator(self.group),
                )
        finally:
            self._cluster.drop_purpose(self._purpose)


def _answer(call: Call) -> Any:
    """The reply to a join or sync; a coordinator that has let their time pass is one that is gone, though its connection stands."""
    try:
        return wire.result(call)
    except TimedOut as why:
        call.conn.close("the coordinator does not answer")
        raise Disconnected("the coordinator has not answered in time", peer=call.conn.peer) from why
