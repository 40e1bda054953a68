"""The Consumer: a member of a group, its batches and its commits.

What it is: the coordinator says which partitions are ours, the fetcher reads them from where the group resumes, and `poll` is where
both go on: rebalances, callbacks and automatic commits happen there and nowhere else.
May assume: one thread at a time. Must not: commit what poll has not handed out, or hand out what is not ours any more.

    at a rebalance, in this order       automatic commit of what was handed out · on_revoked · join, sync · committed offsets of what
    is ours ·
                                        `start` where there is none · on_assigned · fetching
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import BrokerError, OptionError, Revoked, TimedOut, TransportError
from ..flow.resolve import named
from ..flow.role import Role
from ..net.errand import Errand
from ..net.retry import Verdict, verdict
from ..net.task import Steps
from ..position import LogOffset, Position, TopicPartition, Where
from ..records import Batch
from . import offsets, positions
from .codes import IllegalGeneration, RebalanceInProgress, UnknownMemberId, UnstableOffsetCommit
from .coordinator import Coordinator
from .fetcher import Fetcher
from .group import STABLE

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .options import KafkaOptions

_NOT_OURS = (IllegalGeneration.code, UnknownMemberId.code, RebalanceInProgress.code)
_SOON = 0.2


class KafkaConsumer(Role):
    """See `wireproto.roles.Consumer`. Made by `KafkaClient.consumer`."""

    waits = True

    def __init__(self, cluster: KafkaCluster, topics: tuple[str, ...], group: str, start: Where, options: KafkaOptions) -> None:
        if not topics:
            raise OptionError("a consumer needs at least one topic")
        if not group:
            raise OptionError("a consumer needs the name of a group")
        if named(start) is not None:
            raise OptionError("a group starts at EARLIEST, LATEST or AtTime where it has no committed position; seek to go elsewhere")
        super().__init__("consumer", cluster.loop)
        self._cluster = cluster
        self._options = options
        self._start = start
        self._topics = topics
        self._committed_only = options.isolation == "committed"
        deadline = cluster.deadline()
        for topic in topics:
            cluster.topic_entry(topic, deadline)
        self._fetcher = Fetcher(cluster, options, f"bulk {id(self):x}")
        self._coordinator = Coordinator(cluster, group, topics, options, self._fetcher.wake)
        self._errand = Errand(cluster.loop, options.request_timeout)
        self._settled = -1
        self._unanswered_since = 0.0
        self._counts: dict[str, int] = {}
        self._looked_at = time.monotonic()
        self._saved: dict[TopicPartition, int] = {}
        self._saved_at = time.monotonic()

    # --- polling ---

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """See `wireproto.roles.Consumer.poll`.

        Raises:
            OffsetOutOfRange: the log does not hold the group's position any more; seek to go on. What cannot be decoded, with its place.
            DataLoss: the log was cut before the position, and goes on with other records; seek to go on (`diverges_at` tells where).
            The group's own errors: GroupAuthorizationFailed, FencedInstanceId, InconsistentGroupProtocol …
        """
        with self._only:
            deadline = time.monotonic() + timeout
            while True:
                self._coordinator.polled_at = time.monotonic()
                if not self._settle(deadline):
                    if time.monotonic() >= deadline:
                        return None
                    continue
                self._commit_sometimes(deadline)
                # A poll that waits for longer than max_poll_interval is no poll that stays away.
                batch = self._fetcher.poll(min(deadline, time.monotonic() + self._options.max_poll_interval / 3))
                if batch is not None or time.monotonic() >= deadline:
                    self._coordinator.polled_at = time.monotonic()
                    return batch

    def _settle(self, deadline: float) -> bool:
        """Whether we are a settled member that fetches what is its own."""
        member = self._coordinator.membership
        self._watch_partitions(deadline)
        if member.state == STABLE and self._settled == member.generation:
            return True
        if self._settled >= 0:
            self._give_up_partitions(deadline)
        if not self._coordinator.step(deadline):
            return False
        generation, mine = member.generation, member.assignment
        if generation < 0:  # the keeper has just been told that we are no member any more
            return False
        try:
            self._take_partitions(generation, mine, max(deadline, time.monotonic() + _SOON))
        except (TimedOut, TransportError):
            return False
        except BrokerError as why:
            now = time.monotonic()
            self._unanswered_since = self._unanswered_since or now
            # a transaction that commits offsets of the group ends some time
            patience = float("inf") if isinstance(why, UnstableOffsetCommit) else self._options.request_timeout
            if verdict(why) is Verdict.NEVER or now - self._unanswered_since > patience:
                self._unanswered_since = 0.0
                raise
            return False
        self._unanswered_since = 0.0
        return True

    def _give_up_partitions(self, deadline: float) -> None:
        """Before we join again: what we held goes back."""
        held = frozenset(self._fetcher.plan.cursors)
        lost = self._coordinator.membership.lost
        self._settled = -1
        if self._options.auto_commit and not lost:
            self._try_commit(max(deadline, time.monotonic() + _SOON))
        told = self._options.on_lost if lost and self._options.on_lost is not None else self._options.on_revoked
        if held and told is not None:
            self._call_back(told, held)
        for key in held:
            self._fetcher.plan.remove(key)
        self._saved.clear()
        self._cluster.told.rebalanced(self._coordinator.group, (), held)

    def _take_partitions(self, generation: int, mine: frozenset[TopicPartition], deadline: float) -> None:
        """Begin to fetch what is ours, from where the group resumes."""
        resume, begin, epochs = self._errand.ask((generation, mine), lambda until: self._resume(mine, until), deadline)
        self._saved = dict(resume)
        for key in sorted(mine):
            self._fetcher.asking.add(*key, resume.get(key, begin.get(key, 0)), epoch=epochs.get(key, -1))
            self._saved.setdefault(key, begin.get(key, -1))
        self._counts = self._partition_counts()
        self._settled = generation
        self._cluster.told.rebalanced(self._coordinator.group, mine, ())
        if self._options.on_assigned is not None:
            self._call_back(self._options.on_assigned, mine)

    def _resume(
        self, mine: frozenset[TopicPartition], deadline: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where the group goes on in our partitions, where we begin in those for which it has no position, and the leader epochs of the
        former."""
        return self._cluster.drive(self._resuming(mine, deadline), deadline)

    def _resuming(
        self, mine: frozenset[TopicPartition], deadline: float
    ) -> Steps[tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]]:
        cluster, group, to = self._cluster, self._coordinator.group, self._coordinator.route
        epochs: dict[TopicPartition, int] = {}
        resume = (yield from offsets.fetching(cluster, group, mine, deadline, to=to, epochs=epochs)) if mine else {}
        begin = positions.PLACES.requests(self._start, [key for key in sorted(mine) if key not in resume])
        return resume, (yield from positions.finding(cluster, begin, deadline, committed=self._committed_only)), epochs

    def _call_back(self, function: object, partitions: frozenset[TopicPartition]) -> None:
        """User code may commit, seek or pause from within."""
        with self._only.outside():
            function(partitions)  # type: ignore[operator]

    def _partition_counts(self) -> dict[str, int]:
        known = self._cluster.metadata.topics
        return {topic: len(known[topic].partitions) for topic in self._topics if topic in known}

    def _watch_partitions(self, deadline: float) -> None:
        """Join again when a topic has got more partitions."""
        now = time.monotonic()
        if now - self._looked_at < self._options.metadata_max_age or self._settled < 0:
            return
        self._looked_at = now
        try:
            self._cluster.refresh(self._topics, max(deadline, now + _SOON))
        except (TimedOut, TransportError):
            return
        if self._partition_counts() != self._counts:
            self._coordinator.membership.rejoin()

    # --- committing ---

    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        """See `wireproto.roles.Consumer.commit`."""
        with self._only:
            self._commit(positions, time.monotonic() + timeout)

    def _commit(self, given: Mapping[TopicPartition, Position] | None, deadline: float) -> None:
        cursors = self._fetcher.plan.cursors
        if given is None:
            wanted = {key: cursor.position for key, cursor in cursors.items() if cursor.position != self._saved.get(key)}
        else:
            wanted = {key: positions.offset_in(key, position, "commit") for key, position in given.items()}
        strange = tuple(sorted(key for key in wanted if key not in cursors))
        ours = {key: offset for key, offset in wanted.items() if key in cursors}
        gone: tuple[TopicPartition, ...] = ()
        member = self._coordinator.membership
        if ours:
            if member.lost or member.generation < 0:
                gone = tuple(sorted(ours))
            else:
                codes = offsets.commit(
                    self._cluster,
                    self._coordinator.group,
                    ours,
                    deadline,
                    to=self._coordinator.route,
                    member=member.member,
                    generation=member.generation,
                    static_name=self._options.group_instance_id,
                    ours=_NOT_OURS,
                    epochs={key: cursors[key].position_epoch for key, offset in ours.items() if offset == cursors[key].position},
                )
                gone = tuple(sorted(key for key, code in codes.items() if code))
                if gone:
                    member.refused_commit(codes[gone[0]])
                self._saved.update({key: offset for key, offset in ours.items() if key not in gone})
        self._saved_at = time.monotonic()
        if strange or gone:
            lost = tuple(sorted(strange + gone))
            shown = ", ".join(f"{topic}[{partition}]" for topic, partition in lost)
            raise Revoked(f"not ours any more, and not committed: {shown}", partitions=lost)

    def _commit_sometimes(self, deadline: float) -> None:
        if self._options.auto_commit and time.monotonic() - self._saved_at >= self._options.auto_commit_interval:
            self._try_commit(max(deadline, time.monotonic() + _SOON))

    def _try_commit(self, deadline: float) -> None:
        """An automatic commit: what fails is read again by whoever goes on."""
        try:
            self._commit(None, deadline)
        except (Revoked, TimedOut, TransportError):
            self._saved_at = time.monotonic()

    def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        """Where the group resumes, in the partitions assigned to us (of all its topics while none are); without those never committed."""
        with self._only:
            deadline = time.monotonic() + timeout
            keys = list(self._fetcher.plan.cursors) or self._all_partitions()
            fetching = offsets.fetching(self._cluster, self._coordinator.group, keys, deadline, to=self._coordinator.route)
            return positions.log_positions(self._cluster.drive(fetching, deadline))

    def _all_partitions(self) -> list[TopicPartition]:
        known = self._cluster.metadata.topics
        return [(topic, number) for topic in self._topics if topic in known for number in known[topic].partitions]

    def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]:
        """Offsets between what poll hands out next and the end, of each assigned partition."""
        with self._only:
            deadline = time.monotonic() + timeout
            cursors = self._fetcher.plan.cursors
            ends = positions.list_offsets(self._cluster, list(cursors), positions.LATEST_TIME, deadline, committed=self._committed_only)
            return {key: max(0, ends[key] - cursor.position) for key, cursor in cursors.items()}

    # --- moving ---

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`; a rebalance ends the pause."""
        with self._only:
            self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._only:
            self._set_paused(partitions, False)

    def _set_paused(self, keys: Iterable[TopicPartition], paused: bool) -> None:
        for key in keys:
            self._cursor_key(key)
            self._fetcher.plan.cursors[key].paused = paused

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Go on from there in the assigned partitions; a Position or mapping moves only those that it names."""
        with self._only:
            for key in named(where) or ():
                self._cursor_key(key)
            requests = positions.PLACES.requests(where, self._fetcher.plan.cursors, "seek")
            deadline = time.monotonic() + timeout
            finding = positions.finding(self._cluster, requests, deadline, committed=self._committed_only)
            for key, offset in self._cluster.drive(finding, deadline).items():
                self._fetcher.plan.seek(key, offset)

    def _cursor_key(self, key: TopicPartition) -> TopicPartition:
        if key not in self._fetcher.plan.cursors:
            raise Revoked(f"{key[0]}[{key[1]}] is not assigned to this consumer", partitions=(key,))
        return key

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours; changes only in `poll`."""
        return frozenset(self._fetcher.plan.cursors)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """What poll hands out next."""
        return {key: LogOffset(*key, cursor.position) for key, cursor in self._fetcher.plan.cursors.items()}

    # --- ending ---

    def _let_go(self, deadline: float) -> None:
        """Commit if that is automatic, leave the group, close our connections."""
        if self._options.auto_commit and self._settled >= 0:
            self._try_commit(deadline)
        self._fetcher.close()
        self._cluster.drop_purpose(f"bulk {id(self):x}")
        with suppress(TransportError):  # the coordinator will notice by itself, at the session time-out
            self._coordinator.close(deadline)
