"""Answers check-backs: brokers ask what became of half messages without a commit or abort, and any process of the group answers.

There is one `Checks` for each role. A question (39) is read in the I/O thread and queued; the user's `check` is called in a worker thread,
one question after the other, and the answer (37) is sent on the connection on which the broker asked. Under asyncio a `check` that is a
coroutine function is awaited in the event loop instead. `presence.Presence` keeps the connections that brokers ask on. A plain `check`
never runs in the I/O thread, and no answer is sent twice.

    the half is                               answered with
    ended here, or its send failed            that end again, without calling `check`: the answer for one half is the same for ever
    committed, as this broker has confirmed   "abort", which removes a copy that it stored meanwhile: a commit would be a second message
    open here, or its end is under way        nothing: it is not decided, and another member's check may not know; the broker asks again
    left to the check, or another process's   what `check` returns; None, an exception, any other value: nothing, and a line in the log

Each time before it asks, a broker stores the half again, at another place (4.9.7 and 5.5.0): an answer has the offsets of its question,
and a half that is open here takes them over, so that its end removes the newest copy. 4.9.7 stores copies also while `check_after` lasts,
without asking, and asks about what was committed with the first offsets. By the connection that a broker asks on it is known that it is
still the process that confirmed the commit, and has lost nothing since.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from wireproto._codec import decode_rocketmq
from wireproto._net import Push
from wireproto.errors import WireprotoError
from wireproto.net.task import NEVER, Steps, is_async, offloaded

from . import broker_requests, remoting
from .half import VERDICTS, CheckedMessage, HalfMessage, Place, State, Verdict
from .messages import CheckTransactionStateRequest, EndTransactionRequest

if TYPE_CHECKING:
    from wireproto._net import Connection

    from .cluster import RocketCluster
    from .half import Check
    from .options import RocketOptions

WAITING = 2_000
"""Check-backs that may be queued, as with Java's producer. Others are dropped; the broker asks again."""
KEPT = 16_384
"""Number of ends that are kept. A check-back about an older one calls the check, as in any other process."""
ADDED = "__transactionId__"
"""A property that 5.x brokers, and Java's clients, put into halves."""
COMMIT_OR_ROLLBACK: Mapping[Verdict, int] = {"commit": 8, "abort": 12}
"""Ends on the wire: the transaction bits of a stored message's sysFlag."""


class Question(NamedTuple):
    """A check-back request of a broker, and the connection on which it came."""

    conn: Connection
    header: CheckTransactionStateRequest
    body: bytes

    @property
    def transaction_id(self) -> str:
        """Return the half's id, which all copies of it share."""
        return self.header.transaction_id or self.header.msg_id or self.header.offset_msg_id or ""


def end(group: str, verdict: Verdict, topic: str, transaction_id: str, place: Place) -> EndTransactionRequest:
    """Make the command that ends a half."""
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=place.table,
        commit_log_offset=place.log,
        commit_or_rollback=COMMIT_OR_ROLLBACK[verdict],
        from_transaction_check=False,
        msg_id=transaction_id,
        transaction_id=transaction_id,
        topic=topic,
    )


class KnownEnd(NamedTuple):
    """The end of a half message. by: the connection of the broker that confirmed it; None: no broker has."""

    verdict: Verdict
    by: Connection | None

    def to(self, question: Question) -> Verdict:
        """Return the answer to a check-back about this half message."""
        return "abort" if self.by is question.conn else self.verdict


class Checks:
    """Answers the check-backs of one role; see the module."""

    def __init__(self, cluster: RocketCluster, options: RocketOptions, group: str, check: Check) -> None:
        self._cluster, self._options, self._group, self._check = cluster, options, group, check
        self._awaiting = cluster.awaiting if is_async(check) else None
        self._key = ("checks", cluster.next_id())
        self._open: WeakValueDictionary[str, HalfMessage] = WeakValueDictionary()
        self._known_ends: OrderedDict[str, KnownEnd] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, Question] = OrderedDict()  # used in the I/O thread only
        self.closed = False

    # --- what is known here ---

    def opened(self, half: HalfMessage) -> None:
        """Note that the program has this half message and will end it."""
        with self._lock:
            self._open[half.transaction_id] = half
            self._known_ends.pop(half.transaction_id, None)

    def still_open(self) -> list[HalfMessage]:
        """Return the half messages whose end has not begun."""
        return [half for half in list(self._open.values()) if half.state is State.OPEN]

    def note(self, transaction_id: str, verdict: Verdict, by: Connection | None = None) -> None:
        """Record the end of a half message, with which later check-backs are answered. by: see `KnownEnd`."""
        with self._lock:
            self._known_ends[transaction_id] = KnownEnd(verdict, by)
            self._known_ends.move_to_end(transaction_id)
            while len(self._known_ends) > KEPT:
                self._known_ends.popitem(last=False)

    def _undecided(self, question: Question) -> bool:
        """Return whether the program has this half message and has not decided; if so, record its newest position."""
        half = self._open.get(question.transaction_id)
        if half is None or half.state not in (State.OPEN, State.COMMITTING, State.ABORTING):
            return False
        half.place = Place(question.header.tran_state_table_offset, question.header.commit_log_offset)
        return True

    # --- questions: in the I/O thread ---

    def pushed(self, item: object) -> None:
        """Handle what a broker sends."""
        if not isinstance(item, Push):
            return
        try:
            command = remoting.decode(item.frame)
            if command.code == CheckTransactionStateRequest.CODE:
                self._take(Question(item.conn, CheckTransactionStateRequest.from_ext(command.ext), bytes(command.body)))
            elif not command.is_one_way:
                item.conn.send(broker_requests.refusal(command, 3, f"request type {command.code} not supported").encode())
        except WireprotoError as why:
            item.conn.close(str(why))

    def _take(self, question: Question) -> None:
        if self.closed or self._undecided(question):
            return
        if len(self._waiting) >= WAITING and question.transaction_id not in self._waiting:
            return
        self._waiting[question.transaction_id] = question  # the newest question has the offsets that count
        self._cluster.tasks.shared(self._key, self._answering, f"check-backs of group {self._group}")

    def _answering(self) -> Steps[None]:
        while self._waiting and not self.closed:
            transaction_id, question = self._waiting.popitem(last=False)
            if transaction_id not in self._known_ends:
                found = yield from self._asking(question)
                if found is None:
                    continue
                if transaction_id not in self._known_ends:  # nor meanwhile
                    self.note(transaction_id, found)
            known = self._known_ends.get(transaction_id)
            if known is not None and not self.closed:
                yield from self._answer(question, known)

    def _asking(self, question: Question) -> Steps[Verdict | None]:
        """Call the user's check and return its answer; None: there is none, and the log says why."""
        if self._awaiting is not None:
            found: Verdict | None = yield from self._awaiting(self._await, question)
            return found
        return (yield from offloaded(self._cluster.loop, NEVER, self._ask, question))

    def _answer(self, question: Question, known: KnownEnd) -> Steps[None]:
        header, verdict = question.header, known.to(question)
        place = Place(header.tran_state_table_offset, header.commit_log_offset)
        message = end(self._group, verdict, header.topic or "", question.transaction_id, place)
        message.from_transaction_check = True
        try:
            yield from self._cluster.asking(question.conn, message, until=time.monotonic() + self._options.request_timeout)
        except WireprotoError as why:
            text = "group %s: the answer %r to %s about %s: %s"
            self._cluster.log.info(("answer", self._group), text, self._group, verdict, question.conn.peer, question.transaction_id, why)
        else:
            self.note(question.transaction_id, known.verdict, question.conn)

    # --- in a worker thread, or in the event loop ---

    def _ask(self, question: Question) -> Verdict | None:
        try:
            found = self._check(self._message(question))
        except BaseException as why:  # SystemExit and the like, too: this is a thread of the client
            self._failed(question, why)
            return None
        return self._checked_answer(question, found)

    async def _await(self, question: Question) -> Verdict | None:
        if self.closed:
            return None
        try:
            found: object = await self._check(self._message(question))  # type: ignore[misc]
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise  # this is a thread of the user's
        except BaseException as why:  # a cancellation, too
            self._failed(question, why)
            return None
        return self._checked_answer(question, found)

    def _failed(self, question: Question, why: BaseException) -> None:
        if not self.closed:
            text, trace = "group %s: the check of %s failed: %s", "".join(traceback.format_exception(why))
            self._cluster.log.warning(("check", self._group), text, self._group, question.transaction_id, trace)

    def _checked_answer(self, question: Question, found: object) -> Verdict | None:
        """Return the check's answer, if it is "commit" or "abort"; else log it and return None."""
        log = self._cluster.log
        if found is None:
            log.info(
                ("undecided", self._group),
                "group %s: the check of %s returned None: its outcome is not known yet",
                self._group,
                question.transaction_id,
            )
        elif isinstance(found, str) and found in VERDICTS:
            return found
        else:
            text = "group %s: the check of %s returned %r, which is neither 'commit', 'abort' nor None"
            log.warning(("word", self._group), text, self._group, question.transaction_id, found)
        return None

    def _message(self, question: Question) -> CheckedMessage:
        options = self._options
        columns, _ = decode_rocketmq(
            question.body, topic=question.header.topic or "", partition=0, limit=options.decompress_limit, check_crc=options.check_crc
        )
        facts, (record,) = columns.facts, columns.records("", 0)
        known: str = facts["unique_id"][0] or question.transaction_id
        headers = tuple(pair for pair in record.headers if pair[0] != ADDED)
        return CheckedMessage(facts["topic"][0], record.value, record.key, headers, record.timestamp, known)
