"""What a campaign's journals tell: every id sent, acknowledged, delivered and committed; every call that was slow or failed.

Sans-IO: `take` is given events as they stand in the journals (`[time, kind, role, …]`, times of one monotonic clock for all processes); the
judges (judge_*.py) read what is kept here. Must not: judge. An id is ``role:number``; a *log* names a partition for all clients alike,
and a *place* in it is a tuple of numbers that has the log's order.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Place = tuple[int, ...]
LOGIN = "login"  # the fault in which brokers refuse logins
CLOCK = "clock"  # the one in which wall clocks jump
HALTED = 3.0  # seconds that another client waited for an acknowledgement, from which on a broker stood still, and another one may lead
UNANSWERED = 4.0  # seconds for an acknowledgement from which on a request may have gone unanswered, and its connection with it
Truth = Mapping[str, Sequence[tuple[Place, str]]]
"""What the logs hold at the end, as a client read it that we did not write: log to places and ids, in order."""


@dataclass(frozen=True)
class Promise:
    """What a role's records may expect (docs/interface.md, "What is guaranteed").

    Attributes:
        kept: what is acknowledged stays, whatever one node suffers.
        once: no record stands in the log twice.
        ordered: in each log the records of one producer stand in the order in which they were sent.
        patience: seconds for which a send must go on trying; None: any failure is let pass.
        heard: brokers answer (all but acks 0): else what a connection still holds when a request on it goes unanswered, is gone unseen.
    """

    kept: bool = True
    once: bool = True
    ordered: bool = True
    patience: float | None = None
    heard: bool = True


@dataclass(frozen=True)
class Role:
    """One role of the workload.

    Attributes:
        kind: producer, reader, member, worker, setter, watcher or holder.
        topic: what it writes or reads. group: of members and workers.
        exact: a group's next owner begins at the commit, not before it; a worker never sees again what was acked.
        fixed: of a producer: key or number alone decide which partition a record is for.
        login: of one whose login is refused at times: the error that tells it so at once, in whatever it does; empty where it goes on
            trying. None: nobody asks it.
        asked_late: seconds that what it asked before may be held by brokers, which let it pass then.
        keys: of a producer whose order is by key, since keys go elsewhere while a broker is out of the route: how many it has.
        steady: is there from beginning to end, so that it must flow again within seconds of healing.
        fleeting: its topic is cut short or made again, so that the log tells at the end only what its last life held: what is judged is
            that no life of a reader goes back, or sees anything twice, without an end.
    """

    name: str
    kind: str
    topic: str = ""
    group: str = ""
    promise: Promise = Promise()
    exact: bool = True
    fixed: bool = False
    steady: bool = True
    fleeting: bool = False
    login: str | None = None
    asked_late: float = 0.0
    keys: int = 0


def key_of(number: int, keys: int) -> int:
    """Which of its keys a producer's record has."""
    return number * 7919 % keys


@dataclass(frozen=True)
class Finding:
    """One thing that a judge saw. `fault`: a promise is broken; else it is counted only."""

    check: str
    text: str
    at: float = 0.0
    fault: bool = True


@dataclass
class Ack:
    log: str
    place: Place
    at: float
    seconds: float


@dataclass
class Life:
    """One incarnation of a reader or member: from its opening to its end."""

    role: str
    number: int
    began: float
    facts: dict[str, Any]
    got: dict[str, list[tuple[float, Place, str]]] = field(default_factory=dict)
    stops: dict[str, Place] = field(default_factory=dict)  # the last record that it was to read, where it says so
    ended: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Commit:
    role: str
    life: int
    began: float
    at: float
    places: dict[str, Place]  # log to the last record that it covers
    done: bool
    why: str


@dataclass(frozen=True)
class Call:
    at: float
    role: str
    name: str
    timeout: float
    seconds: float
    outcome: str


@dataclass(frozen=True)
class Taken:
    at: float
    life: int
    role: str
    log: str
    place: Place
    name: str
    attempt: int


@dataclass
class Window:
    """A fault: from its beginning until the brokers answer again, `healed`; `ended`: when it began to be taken out. `sick`: nodes that have
    it; None: all of them."""

    name: str
    began: float
    sick: frozenset[int] | None
    healed: float | None = None
    ended: float = 0.0
    spread: float = 0.0  # seconds that its effects may outlast it: a killed member's session


def topic_of(log: str) -> str:
    """The topic of a log's name."""
    return log.rpartition("/")[0]


class Ledger:
    """See the module."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self.roles = dict(roles)
        self.sent: dict[str, dict[int, float]] = collections.defaultdict(dict)
        self.acked: dict[str, dict[int, Ack]] = collections.defaultdict(dict)
        self.failed: dict[str, dict[int, tuple[float, str, float]]] = collections.defaultdict(dict)
        self.refused: dict[str, dict[int, tuple[float, str]]] = collections.defaultdict(dict)
        self.lives: dict[tuple[str, int], Life] = {}
        self.commits: list[Commit] = []
        self.resets: list[tuple[float, float, str, dict[str, Place]]] = []  # when one began and was told, of which group, to where
        self.calls: list[Call] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.taken: list[Taken] = []
        self.done: dict[tuple[str, str, Place], tuple[float, float, str]] = {}  # group, log, place: when its ack began and ended, by whom
        self.tried: set[tuple[str, str, Place]] = set()  # acks in doubt
        self.memory: dict[str, list[tuple[float, int]]] = collections.defaultdict(list)
        self._waits: list[tuple[float, float]] = []
        self.jumps: dict[str, list[float]] = collections.defaultdict(list)  # process to when its wall clock was seen to jump
        self.stalls: list[tuple[float, float]] = []  # until when, and for how long, a process of the campaign got no processor
        self.controls: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)  # what the same took another client
        self.trees: list[list[Any]] = []
        self.windows: list[Window] = []
        self.last_ack: dict[tuple[str, str], float] = {}  # role and log: latest moment of sending that is acknowledged
        self.last_got: dict[tuple[str, str], float] = {}  # role (or group) and log: latest moment of sending that was delivered
        self.since = float("inf")
        self.first: dict[tuple[str, str], float] = {}  # role (or group) and log: when something that was sent behind `since` got through

    def take(self, event: Sequence[Any]) -> None:
        at, kind, role, *rest = event
        getattr(self, "_" + kind)(at, role, *rest)

    def begin(self, since: float) -> None:
        """From here on, note when what is sent behind that moment gets through."""
        self.since, self.first = since, {}

    def _through(self, who: str, log: str, sent: float, at: float) -> None:
        if sent > self.since:
            self.first[who, log] = min(at, self.first.get((who, log), at))

    # What the journals hold, an event a method.

    def _sent(self, at: float, role: str, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.sent[role][number] = at

    def _acked(self, at: float, role: str, rows: Sequence[tuple[int, str, Sequence[int], float]]) -> None:
        for number, log, place, seconds in rows:
            self.acked[role][number] = Ack(log, tuple(place), at, seconds)
            if seconds > UNANSWERED:
                self._waits.append((at - seconds, at))
            self.last_ack[role, log] = max(self.last_ack.get((role, log), 0.0), at - seconds)
            self._through(role, log, at - seconds, at)

    def _failed(self, at: float, role: str, number: int, why: str, seconds: float) -> None:
        self.failed[role][number] = (at, why, seconds)

    def _refused(self, at: float, role: str, number: int, why: str) -> None:
        self.refused[role][number] = (at, why)

    def _life(self, at: float, role: str, life: int, facts: dict[str, Any]) -> None:
        self.lives[role, life] = Life(role, life, at, facts)

    def _stops(self, _at: float, role: str, life: int, stops: dict[str, Sequence[int]]) -> None:
        self.lives[role, life].stops = {log: tuple(place) for log, place in stops.items()}

    def _ended(self, at: float, role: str, life: int, why: str) -> None:
        found = self.lives.get((role, life))
        if found is not None:
            found.ended, found.why = at, why
        if why:
            self.counts[f"{role} began again"] += 1

    def _got(self, at: float, role: str, life: int, log: str, rows: Sequence[tuple[Sequence[int], str]]) -> None:
        whole = self.lives[role, life].got.setdefault(log, [])
        whole.extend((at, tuple(place), name) for place, name in rows)
        self._seen(at, role, log, (name for _, name in rows))

    def _seen(self, at: float, role: str, log: str, names: Any) -> None:
        known = self.roles.get(role)
        who = known.group if known is not None and known.group else role
        for name in names:
            source, _, number = name.rpartition(":")
            when = self.sent[source].get(int(number), 0.0) if source in self.sent else 0.0
            self.last_got[who, log] = max(self.last_got.get((who, log), 0.0), when)
            self._through(who, log, when, at)

    def _commit(self, at: float, role: str, life: int, began: float, places: dict[str, Sequence[int]], done: bool, why: str) -> None:
        self.commits.append(Commit(role, life, began, at, {log: tuple(place) for log, place in places.items()}, done, why))

    def _reset(self, at: float, group: str, places: dict[str, Sequence[int]], began: float | None = None) -> None:
        self.resets.append((at if began is None else began, at, group, {log: tuple(place) for log, place in places.items()}))

    def _taken(self, at: float, role: str, life: int, log: str, place: Sequence[int], name: str, attempt: int) -> None:
        self.taken.append(Taken(at, life, role, log, tuple(place), name, attempt))
        self._seen(at, role, log, (name,))

    def _tried(self, _at: float, role: str, log: str, place: Sequence[int], maybe: bool) -> None:
        (self.tried.add if maybe else self.tried.discard)((self.roles[role].group, log, tuple(place)))

    def _done(self, at: float, role: str, life: int, log: str, place: Sequence[int], began: float) -> None:
        self.done.setdefault((self.roles[role].group, log, tuple(place)), (began, at, role))

    def _call(self, at: float, role: str, name: str, timeout: float, seconds: float, outcome: str) -> None:
        self.calls.append(Call(at, role, name, timeout, seconds, outcome))

    def _count(self, _at: float, role: str, what: str, many: int) -> None:
        self.counts[f"{role} {what}"] += many

    def _memory(self, at: float, process: str, kilobytes: int) -> None:
        self.memory[process].append((at, kilobytes))

    def _stall(self, at: float, _process: str, seconds: float) -> None:
        self.stalls.append((at, seconds))

    def _jumped(self, at: float, process: str, _seconds: int) -> None:
        self.jumps[process].append(at)

    def _control(self, at: float, log: str, seconds: float) -> None:
        self.controls[log].append((at, seconds))

    def _tree(self, at: float, role: str, *facts: Any) -> None:
        self.trees.append([at, role, *facts])

    # What judges ask.

    def stalled(self, begin: float, end: float) -> float:
        """The longest that a process of the campaign stood still for want of a processor, overlapping these moments."""
        return max((seconds for at, seconds in self.stalls if at - seconds < end and at > begin), default=0.0)

    def waited(self, begin: float, end: float) -> bool:
        """Whether somebody's acknowledgement took so long between these moments that a request may have gone unanswered."""
        return any(first < end and last > begin for first, last in self._waits)

    def control(self, log: str, begin: float, end: float) -> float:
        """The longest that another client waited for an acknowledgement of this log, overlapping these moments."""
        return max((seconds for at, seconds in self.controls.get(log, ()) if at - seconds < end and at > begin), default=0.0)

    def halted(self, begin: float, end: float) -> bool:
        """Whether a broker stood still so long by itself between these moments that it may have been taken for dead."""
        return any(self.control(log, begin, end) > HALTED for log in self.controls)

    def kind(self, *kinds: str) -> list[Role]:
        return [role for role in self.roles.values() if role.kind in kinds]

    def barred(self, role: Role, at: float, why: str) -> bool:
        """Whether this is how a role was to be told that its login was refused."""
        known = bool(role.login) and why.startswith(role.login or "")
        return known and any(w.name == LOGIN and w.began <= at and (w.healed is None or at < w.healed + 10.0) for w in self.windows)

    def troubled(self, begin: float, end: float) -> bool:
        """Whether a fault was there, or its effects, between these moments."""
        return any(w.began < end and (w.healed is None or w.healed + w.spread + 10.0 > begin) for w in self.windows)
