"""Implements what the exactly-once sinks of all protocols share: plans, decisions, and their error texts.

    driver    plans      `Plan`, which its tasks get: the driver's identity, and what is committed already
    task      ends       leaves its transaction open and sends its identity to the driver, with the facts of the plan (`handed_over`)
    driver    commits    a decision (`Decided`), one record, names all transactions: the commit point; then each is committed

The protocols implement themselves how one driver fences others, how a decision is stored and what ends a transaction. This module must not
know a protocol, or talk to a broker.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..errors import Aborted, Malformed, OptionError, UsageError
from ..net.retry import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .options import Options
    from .write import Task, Written

logger = logging.getLogger("wireproto.spark")  # the same as in `log`, which needs PySpark; the command line imports this module without it
T = TypeVar("T")

QUERIES = 16
"""Number of other queries of a prefix whose last micro-batch is kept: locations of checkpoints may be spelt alike, or be used again."""
LEAST, PART, APART = 10.0, 0.1, 30.0
"""A transaction is not decided with less than `LEAST` seconds or `PART` of its time left; clocks may be `APART` seconds apart (`late`)."""
LONGEST = 900.0
"""Default of the seconds that a task's transaction may take: the default of Kafka's transaction.max.timeout.ms."""
SOON = Policy(first=0.002, factor=2.0, ceiling=0.5)
"""Pauses in seconds while waiting for something that brokers mostly do within milliseconds."""
_NAMED = 10
"""Number of tasks that an error text names."""
OPTIONS = ("transactionalIdPrefix", "decisionTopic", "onExpired")
"""Options of an exactly-once sink, beside exactlyOnce itself."""


# --- options ---


@dataclass(frozen=True, slots=True)
class Once:
    """The options of an exactly-once sink.

    Attributes:
        prefix: of all transactional names of the query; None for a batch write, which makes one.
        decisions: the option decisionTopic, None where it is not given.
        again: whether tasks are written again whose transactions were decided, but rolled back for taking too long.
    """

    prefix: str | None
    decisions: str | None
    again: bool


def once_options(options: Options) -> Once | None:
    """Take these options; None where exactlyOnce is not set.

    Raises:
        OptionError: a value that an option cannot have, or an option that needs exactlyOnce=true.
    """
    once, place = options.flag("exactlyOnce"), options.text("checkpointLocation")
    prefix, decisions, expired = (options.text(name) for name in OPTIONS)
    if not once:
        given = [name for name, text in zip(OPTIONS, (prefix, decisions, expired), strict=True) if text is not None]
        if given:
            raise OptionError(f"option {given[0]} goes with exactlyOnce=true")
        return None
    if expired not in (None, "fail", "replay"):
        raise OptionError(f"option onExpired is {expired!r}; it takes fail or replay")
    if prefix is not None and not re.fullmatch(r"[\w.-]+", prefix, re.ASCII):
        raise OptionError(f"option transactionalIdPrefix is {prefix!r}; it takes letters, digits, dots, dashes and underscores")
    if prefix is None and place is not None:
        prefix = f"wireproto-{hashlib.sha256(absolute(place).encode()).hexdigest()[:16]}"
    return Once(prefix, decisions, expired == "replay")


def absolute(place: str) -> str:
    """Return a checkpoint's location in one spelling.

    Raises:
        OptionError: the location is relative, so that another query's may have the same text.
    """
    if not re.match(r"/|[A-Za-z][\w+.-]*:", place):
        raise OptionError(f"checkpointLocation {place!r} is relative, as another query's may be: give it whole, or a transactionalIdPrefix")
    return re.sub(r"^file:/+", "/", place).rstrip("/")


def must_have_a_name(prefix: str | None, *, stream: bool) -> None:
    """Raise OptionError for a stream without a prefix."""
    if stream and prefix is None:
        raise OptionError(
            "option exactlyOnce needs a name that stays the same over restarts: give the checkpointLocation to the writer, "
            "or a transactionalIdPrefix"
        )


# --- a micro-batch ---


@dataclass(frozen=True, slots=True)
class Plan:
    """What the driver knows when it plans the tasks of a micro-batch; pickled to the tasks.

    Attributes:
        job: unique name of this planning. driver: the driver's identity at its cluster.
        known: the last micro-batch that was decided, by query.
        last: the query that decided last; None where there was no decision.
        again: numbers of those tasks of `last` that have to be written again.
        places: where the records begin that this micro-batch leaves in the protocol's own topics.
    """

    job: str
    driver: Any
    known: Mapping[str, int]
    last: str | None = None
    again: frozenset[int] = frozenset()
    places: Any = None

    @classmethod
    def after(cls, driver: Any, found: Decided[Any] | None, again: Sequence[Any], numbers: Iterable[int], places: Any = None) -> Self:
        """Plan after the last decision.

        Args:
            driver: the driver's identity. found: the last decision, None where there was none.
            again: its transactions that were rolled back; all others are committed. numbers: of the tasks that have to write them again.
            places: as in the attribute.
        """
        known, last = ({}, None) if found is None else (found.known, found.query)
        if found is not None and again and found.undone(again):
            known, numbers = dict(found.others), ()
        return cls(uuid.uuid4().hex, driver, known, last, frozenset(numbers), places)

    def skips(self, task: Task) -> bool:
        """Return whether all rows of a task are committed already.

        Raises:
            UsageError: the micro-batch is older than the last decided one, or tasks of another query have to be written again first.
        """
        if self.again and task.query != self.last:
            raise UsageError(
                f"{tasks(self.again)} of the query {self.last}, which has the same transactionalIdPrefix, have to be written again first: "
                "start that query"
            )
        done = self.known.get(task.query or "")
        if task.batch is None or done is None or task.batch > done:
            return False
        if task.batch < done:
            raise UsageError(
                f"micro-batch {task.batch} of the query {task.query} is older than the last one that was decided, {done}: its checkpoint "
                "was set back, and its rows may be others now. To write them all the same: wireproto sinks drop URL PREFIX"
            )
        return not (task.query == self.last and task.partition in self.again)

    def facts(self, transaction: Any, task: Task) -> dict[str, Any]:
        """Return what a task sends to the driver.

        Args:
            transaction: the task's open transaction, None where it wrote nothing.
        """
        same = {"driver": self.driver, "known": self.known, "rest": bool(self.again), "query": task.query, "places": self.places}
        return {"transaction": transaction, **same}


def handed_over(messages: Iterable[Written | None]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the open transactions of the tasks that wrote anything, and the facts that all their messages share."""
    facts_of_tasks = [message.facts for message in messages if message is not None and message.facts.get("transaction") is not None]
    facts = {name: facts_of_tasks[0][name] for name in ("driver", "known", "rest", "query", "places")} if facts_of_tasks else {}
    return tuple(one["transaction"] for one in facts_of_tasks), facts


def late(left: float, allowed: float, least: float = LEAST, part: float = PART) -> bool:
    """Return whether a transaction has too little time left to be decided.

    Clocks of driver and worker may differ: where the time seems to be over by more than `APART`, nothing can be said, and the answer is
    False.

    Args:
        left: seconds until its coordinator rolls it back. allowed: seconds that it may take in all.
        least, part: too little is less than `least` seconds, or less than this part of `allowed`, whichever is shorter.
    """
    return -APART < left < min(least, allowed * part)


def expired(numbers: Iterable[int], setting: str, prefix: str) -> Aborted:
    """Build the error for a micro-batch of which these tasks' transactions are over, or nearly so."""
    return Aborted(
        f"{tasks(numbers)} were rolled back, and nothing is written of all of them: they took longer than "
        f"{setting}, or another query begins with the transactionalIdPrefix {prefix}"
    )


# --- a decision ---


@dataclass(frozen=True, slots=True)
class Decided(Generic[T]):
    """The decision to commit all transactions of a micro-batch.

    Attributes:
        number: its unique name.
        query: Spark's id of the query, which its checkpoint keeps; None for a batch write.
        batch: number of the micro-batch; None for a batch write.
        transactions: one for each task that wrote anything.
        ended: whether all of them are committed.
        others: the last micro-batches decided of other queries of this prefix.
        rest: whether other transactions of the micro-batch were committed before, and these were written again.
    """

    number: str
    query: str | None
    batch: int | None
    transactions: tuple[T, ...]
    ended: bool = False
    others: Mapping[str, int] = field(default_factory=dict, hash=False)
    rest: bool = False

    @classmethod
    def made(cls, facts: Mapping[str, Any], batch: int | None, transactions: tuple[T, ...], **more: Any) -> Self:
        """Make a new decision from the facts that the tasks sent."""
        others = {query: done for query, done in facts["known"].items() if query != facts["query"]}
        newest = dict(list(others.items())[-QUERIES:])
        return cls(uuid.uuid4().hex, facts["query"], batch, transactions, others=newest, rest=facts["rest"], **more)

    @property
    def known(self) -> dict[str, int]:
        """Return the last micro-batch that was decided, by query."""
        mine = {self.query: self.batch} if self.query is not None and self.batch is not None else {}
        return {**self.others, **mine}

    @property
    def named(self) -> str:
        """Return which micro-batch this is, for texts."""
        return "a batch write" if self.batch is None else f"micro-batch {self.batch} of the query {self.query}"

    def undone(self, lost: Sequence[T]) -> bool:
        """Return whether nothing of the micro-batch is visible, nor will be: then it counts as not decided.

        Args:
            lost: its transactions that were rolled back.
        """
        return len(lost) == len(self.transactions) and not self.rest

    def text(self, lost: Sequence[T], numbers: Iterable[int], setting: str) -> str:
        """Return the text about transactions that were rolled back although they were decided."""
        rest = "nothing of it is seen" if self.undone(lost) else "the others are committed"
        return (
            f"{self.named} is decided, but coordinators have rolled back {tasks(numbers)}, which took longer than "
            f"{setting} until they could be committed; {rest}"
        )

    def judged(self, lost: Sequence[T], numbers: Iterable[int], setting: str, source: str, *, again: bool) -> None:
        """Raise Aborted for transactions that were rolled back for taking too long, unless they are to be written again.

        Those of a batch write never are, since the next write may have other rows.

        Args:
            lost: transactions that were rolled back. numbers: of their tasks. setting: the option that bounds a transaction's time.
            source: the format, for the log. again: whether they may be written again (the option onExpired).
        """
        if not lost:
            return
        text = self.text(lost, numbers, setting)
        if not self.undone(lost) and (not again or self.query is None):
            raise Aborted(text if self.query is not None else f"{text}. To discard them: wireproto sinks drop URL PREFIX")
        logger.warning("%s: %s; it is written again", source, text)

    def start_again(self, numbers: Iterable[int]) -> Aborted:
        """Build the error that ends a query whose micro-batch was decided just now, and in part rolled back for taking too long."""
        return Aborted(f"{tasks(numbers)} of {self.named} have to be written again: start the query again")

    def parts(self) -> dict[str, Any]:
        """Return its record but for the transactions."""
        found = {"id": self.number, "query": self.query, "batch": self.batch, "others": dict(self.others)}
        return found | ({"rest": True} if self.rest else {})

    @staticmethod
    def taken(found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the class's arguments from what `parts` made; other input raises KeyError, TypeError, ValueError or AttributeError."""
        others = {str(query): int(batch) for query, batch in found["others"].items()}
        return {
            "number": found["id"],
            "query": found["query"],
            "batch": found["batch"],
            "others": others,
            "rest": found.get("rest", False),
        }


def unreadable(text: bytes) -> Malformed:
    """Build the error for a record that no sink wrote."""
    return Malformed(f"a decision in the sinks' topic cannot be read: {text[:200]!r}")


def tasks(numbers: Iterable[int]) -> str:
    """Name tasks, for texts."""
    found = sorted(numbers)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"the transactions of the tasks {', '.join(map(str, found[:_NAMED]))}{more}"
