"""Finds the transaction coordinators of a cluster (how many, which broker runs each), and sends requests to them.

All transactions of one client share it.

    PARTITIONED_METADATA of the assign topic    how many coordinators there are: its number of partitions
    LOOKUP of a partition                       the broker that runs that coordinator
    TC_CLIENT_CONNECT                           once on each connection to it, before any other request to that coordinator
    TransactionCoordinatorNotFound              it has moved, or is starting: all of that again

New transactions go to the coordinators in turn, and past one that does not answer; what belongs to a transaction goes to its own. The
module does not know what is done in a transaction, and repeats nothing that may be done once only.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from wireproto.errors import AuthError, Closed, Forked, TimedOut, TransportError, WireprotoError
from wireproto.net.retry import Verdict, briefly, verdict
from wireproto.net.task import Steps, reply

from . import PulsarApi_pb2 as api
from .codes import (
    InvalidTxnStatus,
    NotAllowedError,
    TopicNotFound,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
    UnknownError,
)
from .connection import asking
from .frames import encode, reply_body
from .request import COORDINATOR
from .topics import parse_topic

if TYPE_CHECKING:
    from wireproto._net import Call, Connection
    from wireproto.flow.lost_answer import LostAnswer

    from .cluster import PulsarCluster

ASSIGN = parse_topic(COORDINATOR.removesuffix("-partition-"))
OFF = "the cluster has no transactions: its brokers' setting transactionCoordinatorEnabled is false"
OVER = (TransactionNotFound, InvalidTxnStatus)
"""Answers to any request about a transaction that has ended, or is about to."""
_FINAL = (*OVER, NotAllowedError, AuthError, Closed, Forked)


class TransactionId(NamedTuple):
    """A transaction's number at its coordinator, which is `most`; written as Java writes it."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


class Coordinators:
    """The transaction coordinators of one cluster; see the module. May be shared by threads."""

    def __init__(self, cluster: PulsarCluster) -> None:
        self._cluster = cluster
        self._links: dict[int, Connection] = {}  # on which TC_CLIENT_CONNECT was answered
        self._count = 1
        self._turns = itertools.count(random.randrange(1 << 16))

    def finding(self, until: float) -> Steps[None]:
        """Look up the number of coordinators, and connect to one. Steps.

        Args:
            until: deadline, as `time.monotonic()`.

        Raises:
            NotAllowedError: there are none; the text names the brokers' setting. TransportError, PulsarError: no answer in time, or a
                refusal.
        """
        counting, retrying = self._cluster.lookup.counting, self._cluster.retrying
        try:
            self._count = (yield from retrying(lambda: counting(ASSIGN, until, create=False), until, judge=briefly())) or 1
            yield from retrying(lambda: self._linked(self._next(), until), until, judge=_passing())
        except (TopicNotFound, NotAllowedError) as why:
            raise NotAllowedError(OFF) from why

    def _next(self) -> int:
        return next(self._turns) % self._count

    def beginning(self, milliseconds: int, until: float) -> Steps[TransactionId]:
        """Begin a transaction (NEW_TXN) at the next coordinator. Steps.

        Args:
            milliseconds: after which the coordinator rolls it back. until: deadline, as `time.monotonic()`.

        Raises:
            TransportError: no coordinator answered. PulsarError: one refuses.
        """

        def attempt() -> Steps[Any]:
            number = self._next()
            command = api.CommandNewTxn(tc_id=number, txn_ttl_millis=milliseconds)
            return self._asked(number, command, until)

        made = yield from self._cluster.retrying(attempt, until, judge=_passing())
        return TransactionId(made.txnid_most_bits, made.txnid_least_bits)

    def asking(self, command: Any, until: float) -> Steps[Any]:
        """Send a request about a transaction that may be repeated, and return its reply. Steps.

        Args:
            command: with the transaction's number. until: deadline, as `time.monotonic()`.

        Raises:
            TransactionNotFound, InvalidTxnStatus: it has ended by now, or is about to. NotAllowedError, AuthError: refused.
            TimedOut: the coordinator did not answer.
        """
        number = command.txnid_most_bits
        return self._cluster.retrying(lambda: self._asked(number, command, until), until, judge=_passing())

    def ending(self, number: TransactionId, commit: bool, until: float, lost: LostAnswer) -> Steps[None]:
        """Send END_TXN until its coordinator has answered, whatever errors come before. Steps.

        Args:
            number: of the transaction. commit: whether to commit it; else it is rolled back. until: deadline, as `time.monotonic()`.
            lost: gets the attempts that were sent and failed.

        Raises:
            TransactionNotFound, InvalidTxnStatus: it has ended by now, or is about to. NotAllowedError, AuthError, Closed.
        """
        action = api.COMMIT if commit else api.ABORT
        command = api.CommandEndTxn(txnid_most_bits=number.most, txnid_least_bits=number.least, txn_action=action)

        def attempt() -> Steps[Any]:
            return self._asked(number.most, command, until, lost)

        yield from self._cluster.retrying(attempt, until, judge=_ending)

    def _asked(self, number: int, command: Any, until: float, lost: LostAnswer | None = None) -> Steps[Any]:
        """Make one attempt, within the option `operation_timeout`."""
        until = min(until, time.monotonic() + self._cluster.options.operation_timeout)
        conn = yield from self._linked(number, until)
        command.request_id = conn.next_token()
        call, sent = conn.submit(command.request_id, encode(command)), time.monotonic()
        try:
            return (yield from self._answer(number, call, until))
        except OVER:
            raise
        except WireprotoError as why:
            if lost is not None:
                lost.failed(why, sent)
            raise

    def _answer(self, number: int, call: Call, until: float) -> Steps[Any]:
        conn = call.conn
        try:
            return reply_body((yield from reply(call, until)), conn.peer)
        except TimedOut:
            self._forget(number, conn)
            raise TimedOut(f"transaction coordinator {number} has not answered in time", peer=conn.peer) from None
        except (TransportError, TransactionCoordinatorNotFound):
            self._forget(number, conn)
            raise

    def _linked(self, number: int, until: float) -> Steps[Connection]:
        """Return a connection to a coordinator on which TC_CLIENT_CONNECT was sent."""
        known = self._links.get(number)
        if known is not None and not known.closed:
            return known
        cluster = self._cluster
        broker = yield from cluster.lookup.finding(f"{COORDINATOR}{number}", until)
        conn = yield from cluster.connecting(broker, "main", until)
        yield from asking(conn, api.CommandTcClientConnectRequest(tc_id=number), until)
        self._links[number] = conn
        return conn

    def _forget(self, number: int, conn: Connection) -> None:
        if self._links.get(number) is conn:
            del self._links[number]


def _passing() -> Callable[[WireprotoError], Verdict]:
    """Return a judge of errors for what may be repeated: a coordinator that is starting answers UnknownError, too."""
    return briefly(transient=(TimedOut, UnknownError), final=_FINAL)


def _ending(error: WireprotoError) -> Verdict:
    return verdict(error, transient=(WireprotoError,), final=_FINAL)
