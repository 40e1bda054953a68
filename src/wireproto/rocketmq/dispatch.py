"""Waits until a broker's queues show what its commit log holds.

A broker acknowledges a record when it is in its commit log, and dispatches it to its queue a little later, after a crash or under load
seconds later. The end of a queue is therefore worth asking for only when everything is dispatched that the log held at that time.

GetBrokerRuntimeInfo (28) has both numbers, but a 5.x broker with timers, which it has by default, goes over the 1.2 million slots of its
timer wheel to answer: a tenth of a second of a core. So 5.x is asked once a connection. From then on the log's end comes from
GetBrokerHaStatus (907), and what is dispatched from the last entries of the queues that matter (321): a broker dispatches in the log's
order, so that an entry proves all before it. Where they prove too little, since other topics have been written to, 28 is asked again.
(GetMaxOffset has a field ``committed`` for that, which the brokers do not read.)
What an earlier connection proved is not used, since the broker may have been restarted, and may dispatch again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wireproto.errors import AuthError, BrokerError, TimedOut
from wireproto.net.retry import Policy, Waits

from .acl import FIRST_5X
from .bodies import entries_end, log_end, runtime_info
from .codes import RequestCodeNotSupported
from .messages import GetBrokerHaStatusRequest, GetBrokerRuntimeInfoRequest, GetMaxOffsetRequest, QueryConsumeQueueRequest

if TYPE_CHECKING:
    from wireproto._net import Connection
    from wireproto.net.task import Steps

    from .route import Queue

K = TypeVar("K")
T = TypeVar("T")

STARTING = 5.0
"""Seconds that a broker which just started may answer 28 with an error."""
AGAIN = Policy(first=0.1, factor=1.0, ceiling=0.1, jitter=0.2)
BEHIND = Policy(first=0.005, factor=2.0, ceiling=0.2, jitter=0.2)
"""Waits for a broker that answers 28 with an error, and for one that has not caught up."""
LOOKS = 3
"""How often the last entries of queues are looked at, between waits of BEHIND, before 28 is asked."""
MANY = 64
"""Number of queues of one broker above which looking at their entries costs more than an answer to 28."""


class Brokers(Protocol):
    """Is the part of a `RocketCluster` that sends requests to brokers."""

    def connecting(self, address: str, until: float) -> Steps[Connection]:
        """Return the open connection to ``host:port``, dialled when there is none."""
        ...

    def asking(self, conn: Connection, message: Any, *, until: float, again: bool) -> Steps[Any]:
        """Send a command and return its reply."""
        ...

    def gathering(self, asked: Mapping[K, Steps[T]], what: str) -> Steps[dict[K, T]]:
        """Run steps concurrently and return what each gives."""
        ...


class Dispatch:
    """Keeps up to where the brokers of one cluster have dispatched their logs, and waits for more."""

    def __init__(self, cluster: Brokers) -> None:
        self._cluster = cluster
        self._proven: dict[str, tuple[Connection, int]] = {}  # by address: everything before this offset of the log is in its queue

    def catching_up(self, address: str, until: float, topic: str = "", queues: Sequence[Queue] = ()) -> Steps[None]:
        """Wait until the queues of a broker hold everything that its log holds now; returns at once where the broker refuses to answer.

        Args:
            address: of the broker. until: deadline, a `time.monotonic()` value.
            topic, queues: the queues that matter, whose last entries may prove it.
        Raises:
            TimedOut: it has not caught up in time. TransportError: the broker does not answer.
        """
        conn = yield from self._cluster.connecting(address, until)
        goal = -1
        if self._known(address, conn) is not None:
            goal = yield from self._log_end(address, conn, until)
            if goal >= 0 and (yield from self._shown(address, conn, goal, topic, queues, until)):
                return
        yield from self._reaching(address, conn, goal, topic, until)

    def _known(self, address: str, conn: Connection) -> int | None:
        of, place = self._proven.get(address, (None, -1))
        return place if of is conn else None

    def _prove(self, address: str, conn: Connection, place: int) -> None:
        if (conn.context or 0) >= FIRST_5X:
            self._proven[address] = conn, max(place, self._known(address, conn) or 0)

    def _log_end(self, address: str, conn: Connection, until: float) -> Steps[int]:
        """Return where the log ends; -1: the broker refuses to answer, or its log was cut, as that of a master that became a slave."""
        before = self._known(address, conn)
        try:
            reply = yield from self._cluster.asking(conn, GetBrokerHaStatusRequest(), until=until, again=True)
        except BrokerError:
            return -1
        end = log_end(reply.body)
        if before is not None and end < before:
            self._proven.pop(address, None)
            return -1
        return end

    def _shown(self, address: str, conn: Connection, goal: int, topic: str, queues: Sequence[Queue], until: float) -> Steps[bool]:
        """Return whether it is proven that everything before `goal` is in its queue."""
        waits = Waits(BEHIND)
        for look in range(LOOKS):
            known = self._known(address, conn)
            if known is not None and known >= goal:
                return True
            if known is None or not 0 < len(queues) <= MANY:
                return False
            if look:
                yield min(until, time.monotonic() + waits.next())
            looks = {queue.partition: self._last(conn, topic, queue, until) for queue in queues}
            self._prove(address, conn, max((yield from self._cluster.gathering(looks, "the last entry")).values()))
        known = self._known(address, conn)
        return known is not None and known >= goal

    def _last(self, conn: Connection, topic: str, queue: Queue, until: float) -> Steps[int]:
        """Return where in the log the last record of a queue ends; 0: it has none, or the broker refuses to answer."""
        try:
            message = GetMaxOffsetRequest(topic=topic, queue_id=queue.queue_id)
            end = int((yield from self._cluster.asking(conn, message, until=until, again=True)).message.offset)
            if end <= 0:
                return 0
            entry = QueryConsumeQueueRequest(topic=topic, queue_id=queue.queue_id, index=end - 1, count=1)
            return entries_end((yield from self._cluster.asking(conn, entry, until=until, again=True)).body)
        except BrokerError:
            return 0

    def _reaching(self, address: str, conn: Connection, goal: int, topic: str, until: float) -> Steps[None]:
        """Send 28 until its answer says that everything before `goal` is dispatched.

        Trap: in their first second brokers answer it with SYSTEM_ERROR, since they have no samples yet; others may refuse it for ever.
        """
        waits, limit = Waits(BEHIND), time.monotonic() + STARTING
        while True:
            try:
                reply = yield from self._cluster.asking(conn, GetBrokerRuntimeInfoRequest(), until=until, again=True)
            except (AuthError, RequestCodeNotSupported):
                return
            except TimedOut as late:
                if goal < 0:
                    raise
                raise _behind(address, topic) from late  # whichever request the time ended in, the error names what was waited for
            except BrokerError:
                again = time.monotonic() + AGAIN.delay(1)
                if again >= min(limit, until):
                    return
                yield again
                continue
            facts = runtime_info(reply.body)
            try:
                end, behind = int(facts["commitLogMaxOffset"]), int(facts["dispatchBehindBytes"])
            except (KeyError, ValueError):
                return
            self._prove(address, conn, end - behind)
            goal = end if goal < 0 else goal
            if end - behind >= goal:
                return
            again = time.monotonic() + waits.next()
            if again >= until:
                raise _behind(address, topic)
            yield again


def _behind(address: str, topic: str) -> TimedOut:
    return TimedOut("the broker has not yet put all of its commit log into its consume queues", peer=address, topic=topic)
