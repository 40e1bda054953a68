"""What the exactly-once sinks of all protocols share: what a planned micro-batch knows, what a decision says, and how it is told.

    driver    plans      `Plan`, which its tasks get: who the driver is, and what is in already
    task      ends       hands its transaction over, open, with what was the same for all tasks of the plan (`handed_over`)
    driver    commits    a decision (`Decided`), one record, names all transactions: the commit point; then each is committed

Must not: know a protocol, or talk to a broker. What makes a driver the only one, how a decision is kept and what ends a transaction are the
protocols' own.
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

logger = logging.getLogger("wireproto.spark")  # that of `log`, which the command line can do without: it needs Arrow
T = TypeVar("T")

QUERIES = 16
"""Other queries of a prefix whose last micro-batch is remembered: their checkpoint's text may be the same, or was once another query's."""
LEAST, PART, APART = 10.0, 0.1, 30.0
"""A transaction is not decided with less than so many seconds left, or this part of its time; seconds that clocks may be apart."""
LONGEST = 900.0
"""Seconds that a task's transaction may take, unless another time is given: what Kafka's brokers allow at most if not told otherwise."""
SOON = Policy(first=0.002, factor=2.0, ceiling=0.5)
"""Seconds between looks at what brokers have mostly done within milliseconds."""
_NAMED = 10
"""Tasks that a text names."""
OPTIONS = ("transactionalIdPrefix", "decisionTopic", "onExpired")
"""Of an exactly-once sink, beside exactlyOnce itself."""


# --- options ---


@dataclass(frozen=True, slots=True)
class Once:
    """What an exactly-once sink is told.

    Attributes:
        prefix: of all names of the query; None: of a batch write, which makes one. decisions: the decisionTopic, if one is named.
        again: tasks whose decided transactions took too long are written again.
    """

    prefix: str | None
    decisions: str | None
    again: bool


def once_options(options: Options) -> Once | None:
    """Take them; None: the sink is not to be one."""
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
    """A checkpoint's location as one text. Raises OptionError where another query's may be spelt the same."""
    if not re.match(r"/|[A-Za-z][\w+.-]*:", place):
        raise OptionError(f"checkpointLocation {place!r} is relative, as another query's may be: give it whole, or a transactionalIdPrefix")
    return re.sub(r"^file:/+", "/", place).rstrip("/")


def must_have_a_name(prefix: str | None, *, stream: bool) -> None:
    """Raises OptionError for a stream without one."""
    if stream and prefix is None:
        raise OptionError(
            "option exactlyOnce needs a name that stays the same over restarts: give the checkpointLocation to the writer, "
            "or a transactionalIdPrefix"
        )


# --- a micro-batch ---


@dataclass(frozen=True, slots=True)
class Plan:
    """What the driver knows as a micro-batch's tasks are planned; pickled to them.

    Attributes:
        job: of this planning alone. driver: who the driver is to its cluster.
        known: by query, the last micro-batch that was decided. again: tasks of the query that decided last which have to be written again.
        places: where what this micro-batch leaves in the protocol's own topics begins.
    """

    job: str
    driver: Any
    known: Mapping[str, int]
    last: str | None = None
    again: frozenset[int] = frozenset()
    places: Any = None

    @classmethod
    def after(cls, driver: Any, found: Decided[Any] | None, again: Sequence[Any], numbers: Iterable[int], places: Any = None) -> Self:
        """Behind what was decided last, of which all is committed but `again`, that tasks with these numbers have to write again."""
        known, last = ({}, None) if found is None else (found.known, found.query)
        if found is not None and again and found.undone(again):
            known, numbers = dict(found.others), ()
        return cls(uuid.uuid4().hex, driver, known, last, frozenset(numbers), places)

    def skips(self, task: Task) -> bool:
        """Whether all of a task is in already. Raises UsageError for a micro-batch that is older than what was decided last, and where
        another query's tasks have to be written again first."""
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
                "was set back, and what is in it now may be other rows. To write them all the same: wireproto sinks drop URL PREFIX"
            )
        return not (task.query == self.last and task.partition in self.again)

    def facts(self, transaction: Any, task: Task) -> dict[str, Any]:
        """What a task tells the driver."""
        same = {"driver": self.driver, "known": self.known, "rest": bool(self.again), "query": task.query, "places": self.places}
        return {"transaction": transaction, **same}


def handed_over(messages: Iterable[Written | None]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The transactions of the tasks that wrote anything, and what is the same in all of their messages."""
    facts_of_tasks = [message.facts for message in messages if message is not None and message.facts.get("transaction") is not None]
    facts = {name: facts_of_tasks[0][name] for name in ("driver", "known", "rest", "query", "places")} if facts_of_tasks else {}
    return tuple(one["transaction"] for one in facts_of_tasks), facts


def late(left: float, allowed: float, least: float = LEAST, part: float = PART) -> bool:
    """Whether a transaction with so many seconds left of so many is not to be decided; not where clocks are too far apart to tell."""
    return -APART < left < min(least, allowed * part)


def expired(numbers: Iterable[int], setting: str, prefix: str) -> Aborted:
    """What is raised for a micro-batch of which these tasks' transactions are over, or nearly so."""
    return Aborted(
        f"{tasks(numbers)} were rolled back, and nothing is written of all of them: they took longer than "
        f"{setting}, or another query begins with the transactionalIdPrefix {prefix}"
    )


# --- a decision ---


@dataclass(frozen=True, slots=True)
class Decided(Generic[T]):
    """That all transactions of a micro-batch are to be committed.

    Attributes:
        number: its own name. query: Spark's id of the query, which a checkpoint keeps; None: of a batch write, as its `batch`.
        ended: whether they all are committed. others: the last micro-batches that were decided of other queries of this prefix.
        rest: whether others of the micro-batch were committed before, and these were written again.
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
        """A new one, of what the tasks have told."""
        others = {query: done for query, done in facts["known"].items() if query != facts["query"]}
        newest = dict(list(others.items())[-QUERIES:])
        return cls(uuid.uuid4().hex, facts["query"], batch, transactions, others=newest, rest=facts["rest"], **more)

    @property
    def known(self) -> dict[str, int]:
        """By query, the last micro-batch that was decided."""
        mine = {self.query: self.batch} if self.query is not None and self.batch is not None else {}
        return {**self.others, **mine}

    @property
    def named(self) -> str:
        """For texts: which micro-batch."""
        return "a batch write" if self.batch is None else f"micro-batch {self.batch} of the query {self.query}"

    def undone(self, lost: Sequence[T]) -> bool:
        """Whether nothing at all of the micro-batch is seen, nor will be: then it is as if it had not been decided."""
        return len(lost) == len(self.transactions) and not self.rest

    def text(self, lost: Sequence[T], numbers: Iterable[int], setting: str) -> str:
        """For texts: what was decided, and rolled back all the same."""
        rest = "nothing of it is seen" if self.undone(lost) else "the others are committed"
        return (
            f"{self.named} is decided, but coordinators have rolled back {tasks(numbers)}, which took longer than "
            f"{setting} until they could be committed; {rest}"
        )

    def judged(self, lost: Sequence[T], numbers: Iterable[int], setting: str, source: str, *, again: bool) -> None:
        """Raises Aborted for what was rolled back for its time, where it is not to be written again: of a batch write never, for the next
        one may have other rows."""
        if not lost:
            return
        text = self.text(lost, numbers, setting)
        if not self.undone(lost) and (not again or self.query is None):
            raise Aborted(text if self.query is not None else f"{text}. To give them up: wireproto sinks drop URL PREFIX")
        logger.warning("%s: %s; it is written again", source, text)

    def start_again(self, numbers: Iterable[int]) -> Aborted:
        """What ends a query whose micro-batch was decided just now, and in part rolled back for its time."""
        return Aborted(f"{tasks(numbers)} of {self.named} have to be written again: start the query again")

    def parts(self) -> dict[str, Any]:
        """As its record has it, but for the transactions."""
        found = {"id": self.number, "query": self.query, "batch": self.batch, "others": dict(self.others)}
        return found | ({"rest": True} if self.rest else {})

    @staticmethod
    def taken(found: Mapping[str, Any]) -> dict[str, Any]:
        """`parts`, as arguments. Raises what is raised by what is no such record."""
        others = {str(query): int(batch) for query, batch in found["others"].items()}
        return {
            "number": found["id"],
            "query": found["query"],
            "batch": found["batch"],
            "others": others,
            "rest": found.get("rest", False),
        }


def unreadable(text: bytes) -> Malformed:
    """What is raised for a record that is none of ours."""
    return Malformed(f"a decision in the sinks' topic cannot be read: {text[:200]!r}")


def tasks(numbers: Iterable[int]) -> str:
    """For texts: which tasks."""
    found = sorted(numbers)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"the transactions of the tasks {', '.join(map(str, found[:_NAMED]))}{more}"
