"""Serves the requests of classic groups' members: FindCoordinator, joining and leaving, heartbeats, committed offsets.

The state is `group.Group`'s.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from ...kafka import messages as m
from .cluster import COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
from .group import ILLEGAL_GENERATION, REBALANCE, UNKNOWN_MEMBER, Group, Member

if TYPE_CHECKING:
    from .context import Context
    from .state import KafkaState

INCONSISTENT_PROTOCOL, MEMBER_ID_REQUIRED = 23, 79
INVALID_GROUP, UNSTABLE_OFFSET_COMMIT = 24, 88
UNSUPPORTED_VERSION = 35


def group_of(side: KafkaState, name: str) -> Group:
    """Return the group, made on first use."""
    return side.groups.setdefault(name, Group(name))


async def find_coordinator(context: Context) -> Any:
    """Serve FindCoordinator: the node that coordinates the name's slot."""
    if context.version >= 4:
        return m.FindCoordinatorResponse(coordinators=tuple(_coordinator(context, key) for key in context.request.coordinator_keys))
    found = _coordinator(context, context.request.key)
    return m.FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port, error_code=found.error_code)


def _coordinator(context: Context, key: str) -> Any:
    node = context.side.cluster.coordinator(key)
    error = context.error or (COORDINATOR_NOT_AVAILABLE if node is None else 0)
    host, port = context.side.place_of(node)
    return m.Coordinator(key=key, node_id=-1 if node is None else node.number, host=host, port=port, error_code=error)


async def refuse_consumer_groups(context: Context) -> Any:
    """Refuse KIP-848 groups for good, with UNSUPPORTED_VERSION, as a broker does that has them switched off.

    Without this request librdkafka would silently look for a coordinator that knows it, for ever.
    """
    return m.ConsumerGroupHeartbeatResponse(
        error_code=context.error or UNSUPPORTED_VERSION,
        error_message="the embedded broker has classic groups only (group.protocol=classic)",
    )


async def join(context: Context) -> Any:
    """Serve JoinGroup; answers when the generation begins."""
    side, request, version = context.side, context.request, context.version
    if context.error:
        return _refuse_join(context.error, "" if context.error == NOT_COORDINATOR else request.member_id)
    if not request.group_id:
        return m.JoinGroupResponse(error_code=INVALID_GROUP, protocol_name="", protocol_type=None)
    group = group_of(side, request.group_id)
    client_id, host = context.client_id, context.peer
    member_id, instance = request.member_id, request.group_instance_id
    former, holder = group.leader, None
    offered = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if not offered or (
        group.members and not {name for name, _ in offered} & {name for x in group.members.values() for name, _ in x.protocols}
    ):
        return _refuse_join(INCONSISTENT_PROTOCOL, member_id)
    if not member_id:
        member_id = f"{instance or client_id or 'client'}-{uuid.uuid4()}"
        holder = group.holder(instance)
        if holder is not None:
            group.take_over(holder, member_id)
        elif version >= 4 and instance is None:
            group.pending.add(member_id)
            return _refuse_join(MEMBER_ID_REQUIRED, member_id)
    elif member_id not in group.pending and (error := group.check(member_id, instance)):
        return _refuse_join(error, member_id)
    group.pending.discard(member_id)
    member = group.members.setdefault(member_id, Member(member_id, client_id, "/" + host.rpartition(":")[0], instance))
    member.session = request.session_timeout_ms / 1000
    member.rebalance = (request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms) / 1000
    same, member.protocols = member.protocols == offered, offered
    group.kind = request.protocol_type
    group.touch(member)
    if holder is not None and group.state == "Stable" and group.chosen() == group.protocol:
        # a static member is back: nothing changes for the others, and a leader of old has nothing to share out
        skips = version >= 9 and group.leader == member_id
        return _joined(group, member_id, leader=(group.leader if version >= 9 else former) or "", with_members=skips, skips=skips)
    leads = group.leader == member_id
    if same and holder is None and (group.state == "CompletingRebalance" or (group.state == "Stable" and not leads)):
        return _joined(group, member_id, leader=group.leader or "", with_members=leads)  # it had missed the answer
    if member.joining and not member.joining.done():
        member.joining.set_result(UNKNOWN_MEMBER)
    waiting = member.joining = asyncio.get_running_loop().create_future()
    group.prepare()
    error = await waiting
    if error:
        return _refuse_join(error, member_id)
    return _joined(group, member_id, leader=group.leader or "", with_members=group.leader == member_id)


def _joined(group: Group, member_id: str, *, leader: str, with_members: bool, skips: bool = False) -> Any:
    """Make the answer to a join; the leader's has the members."""
    members: tuple[Any, ...] = ()
    if with_members:
        members = tuple(
            m.JoinGroupResponseMember(
                member_id=x.id, group_instance_id=x.instance, metadata=dict(x.protocols).get(group.protocol or "", b"")
            )
            for x in group.members.values()
        )
    return m.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.kind,
        protocol_name=group.protocol or "",
        leader=leader,
        skip_assignment=skips,
        member_id=member_id,
        members=members,
    )


def _refuse_join(error: int, member_id: str) -> Any:
    return m.JoinGroupResponse(error_code=error, generation_id=-1, protocol_name="", leader="", member_id=member_id)


def check(side: KafkaState, group_id: str, member_id: str, instance: str | None, generation: int) -> int:
    """Return the error of a request from a member that is unknown, fenced or of another generation, or 0."""
    group = side.groups.get(group_id)
    error = UNKNOWN_MEMBER if group is None else group.check(member_id, instance)
    return error or (ILLEGAL_GENERATION if group is not None and generation != group.generation else 0)


async def sync(context: Context) -> Any:
    """Serve SyncGroup: the leader's has the assignment, each member gets its part."""
    side, request = context.side, context.request
    error = context.error or check(side, request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    group = side.groups.get(request.group_id)
    if not error and group is not None:
        member = group.members[request.member_id]
        group.touch(member)
        if group.state == "PreparingRebalance":
            error = REBALANCE
        elif group.state == "CompletingRebalance":
            waiting = member.syncing = asyncio.get_running_loop().create_future()
            if group.leader == member.id:
                given = {item.member_id: bytes(item.assignment) for item in request.assignments}
                group.state = "Stable"
                for each in group.members.values():
                    each.assignment = given.get(each.id, b"")
                    if each.syncing and not each.syncing.done():
                        each.syncing.set_result(0)
            error = await waiting
            member.syncing = None
    if error or group is None:
        return m.SyncGroupResponse(error_code=error, assignment=b"")
    assignment = group.members[request.member_id].assignment
    return m.SyncGroupResponse(protocol_type=group.kind, protocol_name=group.protocol, assignment=assignment)


async def heartbeat(context: Context) -> Any:
    """Serve Heartbeat, which renews the session and reports a rebalance."""
    side, request = context.side, context.request
    error = context.error or check(side, request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    if not error:
        group = side.groups[request.group_id]
        group.touch(group.members[request.member_id])
        error = REBALANCE if group.state == "PreparingRebalance" else 0
    return m.HeartbeatResponse(error_code=error)


async def leave(context: Context) -> Any:
    """Serve LeaveGroup: one member, or from version 3 on several."""
    side, request, version = context.side, context.request, context.version
    if context.error:
        return m.LeaveGroupResponse(error_code=context.error)
    group = group_of(side, request.group_id)
    wanted = [(x.member_id, x.group_instance_id) for x in request.members] if version >= 3 else [(request.member_id, None)]
    results = []
    for member_id, instance in wanted:
        holder = group.holder(instance) if not member_id else None
        error = 0
        if member_id in group.pending:
            group.pending.discard(member_id)
        elif holder is not None:  # from an administrator, by the static name alone
            group.drop(holder.id)
        elif not (error := group.check(member_id, instance)):
            group.drop(member_id)
        results.append(m.MemberResponse(member_id=member_id, group_instance_id=instance, error_code=error))
    if version >= 3:
        return m.LeaveGroupResponse(members=tuple(results))
    return m.LeaveGroupResponse(error_code=results[0].error_code)


async def offset_commit(context: Context) -> Any:
    """Serve OffsetCommit; from outside the group (generation -1) only while it has no members."""
    side, request, version = context.side, context.request, context.version
    group = group_of(side, request.group_id)
    error = context.error
    if error:
        pass
    elif request.generation_id_or_member_epoch >= 0 or request.member_id:
        error = check(side, request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
        if not error:
            group.touch(group.members[request.member_id])
            error = REBALANCE if group.state == "CompletingRebalance" else 0
    elif group.members:
        error = UNKNOWN_MEMBER
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            known = side.topics.log(topic.name, part.partition_index) is not None
            code = context.error if context.error not in (0, NOT_COORDINATOR) else error if known else 3
            if not code:
                epoch = part.committed_leader_epoch if version >= 6 else -1
                group.keep(topic.name, part.partition_index, (part.committed_offset, epoch, part.committed_metadata or ""))
            results.append(m.OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code))
        topics.append(m.OffsetCommitResponseTopic(name=topic.name, partitions=tuple(results)))
    return m.OffsetCommitResponse(topics=tuple(topics))


async def offset_fetch(context: Context) -> Any:
    """Serve OffsetFetch: -1 where nothing is committed; all of the group's offsets when no topics are named."""
    side, request, version = context.side, context.request, context.version
    if context.error and version >= 2:
        return m.OffsetFetchResponse(topics=(), error_code=context.error)
    group = group_of(side, request.group_id)
    stable = version >= 7 and request.require_stable
    if request.topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, number in sorted(group.offsets):
            wanted.setdefault(topic, []).append(number)
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in request.topics}
    topics = []
    for name, numbers in wanted.items():
        results = []
        for number in numbers:
            code = context.error or (UNSTABLE_OFFSET_COMMIT if stable and group.undecided(name, number) else 0)
            offset, epoch, note = (-1, -1, "") if code else group.offsets.get((name, number), (-1, -1, ""))
            results.append(
                m.OffsetFetchResponsePartition(
                    partition_index=number, committed_offset=offset, committed_leader_epoch=epoch, metadata=note, error_code=code
                )
            )
        topics.append(m.OffsetFetchResponseTopic(name=name, partitions=tuple(results)))
    return m.OffsetFetchResponse(topics=tuple(topics))


async def describe(context: Context) -> Any:
    """Serve DescribeGroups; a group that was never used is Dead, one of another node is refused."""
    side, request = context.side, context.request
    results = []
    for name in request.groups:
        elsewhere = side.cluster.coordinator(name) is not context.node
        if context.error or elsewhere:
            error = context.error or NOT_COORDINATOR
            results.append(
                m.DescribedGroup(group_id=name, error_code=error, group_state="", protocol_type="", protocol_data="", members=())
            )
            continue
        group = side.groups.get(name)
        if group is None:
            results.append(m.DescribedGroup(group_id=name, group_state="Dead", protocol_type="", protocol_data="", members=()))
            continue
        members = tuple(
            m.DescribedGroupMember(
                member_id=x.id,
                group_instance_id=x.instance,
                client_id=x.client_id,
                client_host=x.host,
                member_metadata=dict(x.protocols).get(group.protocol or "", b""),
                member_assignment=x.assignment,
            )
            for x in group.members.values()
        )
        results.append(
            m.DescribedGroup(
                group_id=name,
                group_state=group.state,
                protocol_type=group.kind,
                protocol_data=group.protocol or "",
                members=members,
            )
        )
    return m.DescribeGroupsResponse(groups=tuple(results))


async def list_groups(context: Context) -> Any:
    """Serve ListGroups: this node's groups that have members or offsets."""
    side, request, version = context.side, context.request, context.version
    mine = [group for name, group in side.groups.items() if side.cluster.coordinator(name) is context.node]
    found = [group for group in mine if group.members or group.offsets]
    if version >= 4 and request.states_filter:
        found = [group for group in found if group.state in request.states_filter]
    return m.ListGroupsResponse(groups=tuple(m.ListedGroup(group_id=x.name, protocol_type=x.kind, group_state=x.state) for x in found))
