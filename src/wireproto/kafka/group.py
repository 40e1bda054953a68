"""Keeps the state of a member of a classic consumer group.

Says which request is next and what a reply means, sans-IO. `coordinator` sends what `join_request` and `sync_request` return, feeds the
replies to `on_join` and `on_sync`, and sends heartbeats beside them on a timer while `beating`.

    state      request            on success                            on the errors that mean "join again"
    UNJOINED   JoinGroup          SYNCING                               UNJOINED, with or without the member id
    SYNCING    SyncGroup          STABLE, `assignment` set              UNJOINED
    STABLE     Heartbeat (timer)  -                                     UNJOINED
    LEFT       -

One request at a time between join and sync; heartbeats only while `beating`. Sends nothing, reads no clock, and knows no offsets.
Errors that mean "join again": ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID: the coordinator has forgotten the member, whose partitions are
lost without a commit; REBALANCE_IN_PROGRESS keeps the member id (the partitions are still ours until we join); MEMBER_ID_REQUIRED
brings one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import Malformed
from ..position import TopicPartition
from . import assignor, codes
from .messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

UNJOINED, SYNCING, STABLE, LEFT = "unjoined", "syncing", "stable", "left"

_KIND = "consumer"
_FORGOTTEN = (codes.IllegalGeneration.code, codes.UnknownMemberId.code)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Holds what a member sends to its coordinator.

    Attributes:
        group: the group's name.
        topics: the subscribed ones.
        session_timeout, rebalance_timeout: milliseconds.
        static_name: the group.instance.id of a static member; None: a dynamic one.
    """

    group: str
    topics: tuple[str, ...]
    session_timeout: int
    rebalance_timeout: int
    static_name: str | None = None


class Membership:
    """Keeps the state of one member.

    Attributes:
        settings: what the member sends.
        state: one of the four above.
        member: the member id that the coordinator gave; "" before.
        generation: that of the last join; -1: none.
        protocol: the assignor's name, as the coordinator chose it.
        leading: whether the member is the group's leader, which assigns the partitions.
        assignment: what is ours; meaningful in STABLE, and until the next join.
        lost: whether the coordinator forgot the member: what was assigned may belong to others already.
    """

    __slots__ = ("_others", "assignment", "generation", "leading", "lost", "member", "protocol", "settings", "state")

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.state = UNJOINED
        self.member = ""
        self.generation = -1
        self.protocol = ""
        self.leading = False
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.lost = False
        self._others: Mapping[str, tuple[str, ...]] = {}

    def wanted_topics(self) -> tuple[str, ...]:
        """Return the topics whose partition counts are needed: for the leader, before it can sync, those of all members; else our own."""
        if not self.leading:
            return self.settings.topics
        return tuple(sorted({topic for topics in self._others.values() for topic in topics}))

    def join_request(self) -> JoinGroupRequest:
        """Make the request to become, or stay, a member. It is answered when all members have joined or the rebalance timeout is over."""
        settings = self.settings
        subscription = assignor.encode_subscription(settings.topics)
        return JoinGroupRequest(
            group_id=settings.group,
            session_timeout_ms=settings.session_timeout,
            rebalance_timeout_ms=settings.rebalance_timeout,
            member_id=self.member,
            group_instance_id=settings.static_name,
            protocol_type=_KIND,
            protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=subscription) for name in assignor.ASSIGNORS),
        )

    def on_join(self, reply: JoinGroupResponse) -> None:
        """Take in the reply to a join. One that comes after the member has left brings the member id, to leave by, and nothing else.

        Raises:
            the broker's error, unless it only means to join again.
        """
        if self.state == LEFT:
            self.member = self.member or reply.member_id
            return
        if reply.error_code == codes.MemberIdRequired.code:
            self.member = reply.member_id
            return
        if reply.error_code:
            self._refused(reply.error_code, reply.NAME)
            return
        self.member = reply.member_id
        self.generation = reply.generation_id
        self.protocol = reply.protocol_name or ""
        self.leading = reply.leader == reply.member_id and not reply.skip_assignment
        self._others = {m.member_id: assignor.decode_subscription(bytes(m.metadata)) for m in reply.members} if self.leading else {}
        self.state = SYNCING

    def sync_request(self, partitions: Mapping[str, int]) -> SyncGroupRequest:
        """Make the request for our assignment; the leader's has the assignments of all members.

        Args:
            partitions: the number of partitions of each topic, for the leader.
        Raises:
            Malformed: the coordinator chose an assignor that we did not offer.
        """
        shares: Mapping[str, Sequence[TopicPartition]] = {}
        if self.leading:
            if self.protocol not in assignor.ASSIGNORS:
                raise Malformed(f"the coordinator chose the assignor {self.protocol!r}, which we did not offer")
            shares = assignor.ASSIGNORS[self.protocol](self._others, partitions)
        return SyncGroupRequest(
            group_id=self.settings.group,
            generation_id=self.generation,
            member_id=self.member,
            group_instance_id=self.settings.static_name,
            protocol_type=_KIND,
            protocol_name=self.protocol,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=assignor.encode_assignment(share))
                for member, share in shares.items()
            ),
        )

    def on_sync(self, reply: SyncGroupResponse) -> None:
        """Take in our assignment. It is ignored when the member has left or is to join again by now.

        Raises:
            the broker's error, unless it only means to join again.
        """
        if self.state != SYNCING:
            return
        if reply.error_code:
            self._refused(reply.error_code, reply.NAME)
            return
        self.assignment = assignor.decode_assignment(bytes(reply.assignment))
        self.lost = False
        self.state = STABLE

    def heartbeat_request(self) -> HeartbeatRequest:
        """Make the heartbeat of this member and generation."""
        settings = self.settings
        return HeartbeatRequest(
            group_id=settings.group,
            generation_id=self.generation,
            member_id=self.member,
            group_instance_id=settings.static_name,
        )

    @property
    def beating(self) -> bool:
        """Return whether the coordinator expects heartbeats: from the sync on, also while a rebalance waits for our next join."""
        return self.generation >= 0 and bool(self.member) and self.state in (UNJOINED, STABLE)

    def on_heartbeat(self, reply: HeartbeatResponse, generation: int) -> bool:
        """Take in the reply to a heartbeat of `generation`; that of an earlier generation says nothing about this one.

        Returns:
            whether the member has to join again, and did not know that.
        Raises:
            the broker's error, when a membership cannot continue after it.
        """
        code = reply.error_code
        if not code or generation != self.generation or not self.beating:
            return False
        if code == codes.RebalanceInProgress.code:
            news = self.state == STABLE
            self.rejoin()
            return news
        if code in _FORGOTTEN:
            self.forget()
            return True
        raise codes.error(code, f"group {self.settings.group!r}", message=reply.NAME)

    def leave_request(self, version: int) -> LeaveGroupRequest:
        """Make the request to leave; from v3 on members are a list."""
        settings = self.settings
        if version < 3:
            return LeaveGroupRequest(group_id=settings.group, member_id=self.member)
        identity = MemberIdentity(member_id=self.member, group_instance_id=settings.static_name)
        return LeaveGroupRequest(group_id=settings.group, members=(identity,))

    def rejoin(self) -> None:
        """Start a rebalance of our own accord: the topics have other partitions now, or the coordinator moved."""
        if self.state != LEFT:
            self.state = UNJOINED

    def forget(self) -> None:
        """Start as a new member: the coordinator does not know us (any more), or we have left for want of polls."""
        self.member = ""
        self.generation = -1
        self.lost = True
        self.rejoin()

    def leave(self) -> None:
        """Leave for good."""
        self.state = LEFT

    def fenced(self) -> None:
        """End the membership for good: another member took our static name. Joining again would have the two fence each other for ever."""
        self.generation = -1
        self.lost = True
        self.state = LEFT

    def refused_commit(self, code: int) -> bool:
        """Take in the error code of a commit; return whether it says that the partitions are no longer ours."""
        if code not in (*_FORGOTTEN, codes.RebalanceInProgress.code):
            return False
        self._refused(code, "OffsetCommitResponse")
        return True

    def _refused(self, code: int, message: str) -> None:
        """Take in an error code that means "join again"; raises any other."""
        if code == codes.RebalanceInProgress.code:
            self.rejoin()
        elif code in _FORGOTTEN:
            self.forget()
        else:
            raise codes.error(code, f"group {self.settings.group!r}", message=message)
