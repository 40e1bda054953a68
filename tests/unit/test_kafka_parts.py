"""Kafka's sans-IO parts: partitioner and assignor against kafka-python's, versions, metadata cache, membership, fetch plan."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.partitioner.default import murmur2 as their_murmur2

from wireproto._codec import Columns, KafkaBatchBuilder, kafka_section_end
from wireproto.errors import BrokerError, DataLoss, FrameTooLarge, Malformed, ProtocolError, UnsupportedVersion, ValueUnsupported
from wireproto.kafka import assignor, codes, outgoing
from wireproto.kafka import messages as m
from wireproto.kafka.fetch import Fetches, FetchSettings
from wireproto.kafka.group import STABLE, SYNCING, UNJOINED, GroupSettings, Membership
from wireproto.kafka.metadata import Metadata, Node
from wireproto.kafka.options import KafkaOptions
from wireproto.kafka.partitioner import Sticky, partition_for_key
from wireproto.kafka.versions import Versions, read_versions
from wireproto.net.retry import Policy


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_keys_hash_as_kafka_python_hashes_them(key: bytes, partitions: int) -> None:
    expected = (their_murmur2(key) & 0x7FFFFFFF) % partitions
    assert partition_for_key(key, partitions) == expected


def test_sticky_stays_for_its_stride_and_moves_on() -> None:
    sticky = Sticky(100, random.Random(3).choice)
    picks = [sticky.pick(10, (0, 1, 2)) for _ in range(60)]
    runs = [picks[start : start + 10] for start in range(0, 60, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in itertools.pairwise(runs))
    assert sticky.pick(1, (5,)) == 5, "a partition without a leader is left at once"


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4), st.sets(st.sampled_from(["t1", "t2", "t3", "gone"])), min_size=1, max_size=6
    ),
    st.fixed_dictionaries({"t1": st.integers(1, 9), "t2": st.integers(1, 9), "t3": st.integers(1, 9)}),
)
def test_assignors_give_what_kafka_pythons_give(members: dict[str, set[str]], counts: dict[str, int]) -> None:
    class Metadata:
        def topics(self) -> set[str]:
            return set(counts)

        def partitions_for_topic(self, topic: str) -> set[int] | None:
            return set(range(counts[topic])) if topic in counts else None

    from kafka.coordinator.consumer import ConsumerProtocolSubscription as Theirs

    class Member:
        def __init__(self, name: str, topics: set[str]) -> None:
            self.member_id, self.group_instance_id = name, None
            self.metadata = self.subscription = Theirs(3, topics=sorted(topics), user_data=b"")

    alike = dict.fromkeys(members, set().union(*members.values()))  # kafka-python's round robin fails where members subscribe differently
    for judge, given_members in ((RangePartitionAssignor, members), (RoundRobinPartitionAssignor, alike)):
        theirs = judge.assign(Metadata(), [Member(name, topics) for name, topics in given_members.items()])
        ours = assignor.ASSIGNORS[judge.name](given_members, counts)
        assert {name: sorted(share) for name, share in ours.items()} == {
            name: sorted((topic, number) for topic, numbers in given.assigned_partitions for number in numbers)
            for name, given in theirs.items()
        }


def test_roundrobin_passes_over_members_that_do_not_subscribe() -> None:
    """The example in the documentation of Java's RoundRobinAssignor."""
    members = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assert assignor.roundrobin_assign(members, {"t0": 1, "t1": 2, "t2": 3}) == {
        "C0": [("t0", 0)],
        "C1": [("t1", 0)],
        "C2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }
    assert assignor.roundrobin_assign({}, {"t0": 1}) == {}


def test_subscription_and_assignment_bytes() -> None:
    assert assignor.encode_subscription(["b", "a"]) == bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")
    assert assignor.decode_subscription(bytes.fromhex("0000 00000001 0001 61 ffffffff")) == ("a",)
    assert assignor.decode_subscription(bytes.fromhex("0001 00000001 0001 61 ffffffff 00000000")) == ("a",)
    assert assignor.decode_subscription(bytes.fromhex("0063 00000001 0001 61 ffffffff 00000000 ffffffff ffff aabb")) == ("a",), (
        "a later version"
    )
    data = assignor.encode_assignment([("a", 0), ("a", 2)])
    assert data == bytes.fromhex("0000 00000001 0001 61 00000002 00000000 00000002 ffffffff")
    assert assignor.decode_assignment(data) == {("a", 0), ("a", 2)}
    assert assignor.decode_assignment(b"") == frozenset()
    for cut in range(1, len(data)):
        with pytest.raises(ProtocolError):
            assignor.decode_assignment(data[:cut])
    with pytest.raises(Malformed):
        assignor.decode_assignment(b"\xff\xff" + data[2:])


def test_versions_fall_back_on_what_does_not_decode() -> None:
    reply = m.ApiVersionsResponse(
        api_keys=(m.ApiVersion(api_key=3, min_version=0, max_version=99), m.ApiVersion(api_key=1, min_version=20, max_version=30))
    )
    frame = b"\0\0\0\1" + reply.encode(4)
    found = read_versions(frame, 4)
    assert found is not None
    assert found.pick(m.MetadataRequest) == m.MetadataRequest.MAX_VERSION
    assert found.pick(m.MetadataRequest, 5) == 5
    for missing in (m.FetchRequest, m.ProduceRequest):
        with pytest.raises(UnsupportedVersion):
            found.pick(missing)
        assert not found.has(missing)
    assert read_versions(b"\0\0\0\1" + m.ApiVersionsResponse(error_code=35).encode(0), 4) is None, "version 0 with error 35"
    assert read_versions(b"\0\0\0\1\0\x23", 4) is None, "a malformed refusal"
    with pytest.raises(ProtocolError):
        read_versions(b"\0\0\0\1\0\x23", 0)
    with pytest.raises(BrokerError):
        read_versions(b"\0\0\0\1" + m.ApiVersionsResponse(error_code=29).encode(0), 0)
    for cut in range(4, len(frame)):
        assert read_versions(frame[:cut], 4) is None


def metadata(*leaders: tuple[int, int], topic_id: bytes = b"i" * 16, error: int = 0) -> m.MetadataResponse:
    partitions = tuple(
        m.MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=(1, 2), isr_nodes=(1, 2))
        for number, (leader, epoch) in enumerate(leaders)
    )
    brokers = tuple(m.MetadataResponseBroker(node_id=node, host="h", port=9000 + node) for node in (1, 2))
    topic = m.MetadataResponseTopic(name="t", topic_id=topic_id, partitions=partitions, error_code=error)
    return m.MetadataResponse(brokers=brokers, controller_id=1, cluster_id="c", topics=(topic,))


def test_an_older_epoch_never_overwrites_a_newer_one_of_the_same_topic() -> None:
    known = Metadata()
    known.apply(metadata((1, 5), (-1, 3)))
    assert known.topics["t"].available == (0,)
    assert known.leader("t", 1) is None
    known.apply(metadata((2, 4), (2, 4)))
    assert [known.leader("t", number).id for number in (0, 1)] == [1, 2]  # type: ignore[union-attr]
    assert known.hint("t", 0, 2, 6)
    assert not known.hint("t", 0, 1, 6), "no news"
    assert not known.hint("t", 0, 77, 9), "an unknown node"
    assert (known.leader("t", 0).id, known.epoch("t", 0)) == (2, 6)  # type: ignore[union-attr]
    known.apply(metadata((1, 0), (1, 0), topic_id=b"j" * 16))
    assert (known.epoch("t", 0), known.name(b"j" * 16), known.name(b"i" * 16)) == (0, "t", None), "made again: epochs begin anew"
    known.apply(metadata(error=3))
    problem = known.problem("t")
    assert isinstance(problem, codes.UnknownTopicOrPartition)


def member() -> Membership:
    return Membership(GroupSettings("g", ("t",), 10_000, 60_000))


def test_a_leader_joins_assigns_and_is_told_to_rejoin() -> None:
    one = member()
    one.on_join(m.JoinGroupResponse(error_code=79, member_id="m1"))
    assert (one.state, one.join_request().member_id) == (UNJOINED, "m1")
    others = tuple(m.JoinGroupResponseMember(member_id=name, metadata=assignor.encode_subscription(["t"])) for name in ("m1", "m2"))
    one.on_join(m.JoinGroupResponse(member_id="m1", leader="m1", generation_id=3, members=others, protocol_name="range"))
    assert (one.state, one.leading, one.wanted_topics()) == (SYNCING, True, ("t",))
    request = one.sync_request({"t": 3})
    shares = {entry.member_id: assignor.decode_assignment(bytes(entry.assignment)) for entry in request.assignments}
    assert shares == {"m1": {("t", 0), ("t", 1)}, "m2": {("t", 2)}}
    one.on_sync(m.SyncGroupResponse(assignment=assignor.encode_assignment([("t", 0), ("t", 1)])))
    assert (one.state, one.assignment, one.beating) == (STABLE, {("t", 0), ("t", 1)}, True)
    assert not one.on_heartbeat(m.HeartbeatResponse(error_code=27), 2), "of an earlier generation"
    assert one.on_heartbeat(m.HeartbeatResponse(error_code=27), 3)
    assert (one.state, one.member, one.lost, one.beating) == (UNJOINED, "m1", False, True), "still ours until we join, so we beat on"
    assert one.on_heartbeat(m.HeartbeatResponse(error_code=25), 3)
    assert (one.member, one.generation, one.lost, one.beating) == ("", -1, True, False)


def test_errors_that_end_a_membership_are_raised() -> None:
    one = member()
    with pytest.raises(codes.GroupAuthorizationFailed):
        one.on_join(m.JoinGroupResponse(error_code=30))
    with pytest.raises(codes.InconsistentGroupProtocol):
        one.on_join(m.JoinGroupResponse(error_code=23))


@pytest.mark.parametrize("version", range(m.LeaveGroupRequest.MIN_VERSION, m.LeaveGroupRequest.MAX_VERSION + 1))
def test_a_group_request_encodes_in_every_version(version: int) -> None:
    one = member()
    one.member, one.generation = "m", 1
    assert one.leave_request(version).encode(version)
    for request in (one.join_request(), one.heartbeat_request(), one.sync_request({})):
        for each in range(type(request).MIN_VERSION, type(request).MAX_VERSION + 1):
            assert type(request).decode(request.encode(each), each).group_id == "g"


SETTINGS = FetchSettings(
    committed=True,
    max_wait=0.5,
    min_bytes=1,
    max_bytes=1 << 20,
    partition_bytes=1000,
    largest=4000,
    backoff=Policy(first=0.1, jitter=0.0),
    unknown_topic_timeout=2.0,
    trouble=30.0,
)


def batch(*values: bytes, magic: int = 2) -> bytes:
    builder = KafkaBatchBuilder(magic=magic)
    for value in values:
        assert builder.append(value, None, (), 0)
    return builder.finish()


def fetches() -> Fetches:
    return Fetches(SETTINGS, lambda cursor: 1)


def ask(asking: Fetches, now: float = 0.0, epoch: int = 7) -> Any:
    (due,) = asking.due(now)
    return asking.request(due, lambda name: b"i" * 16, lambda topic, partition: epoch)


def test_a_refusal_that_names_the_new_leader_needs_no_look_up_and_no_pause() -> None:
    """A name that is no news changes nothing: the leader is looked up, after a pause."""
    told: list[Any] = []

    def hint(*facts: Any) -> bool:
        told.append(facts)
        return len(told) == 1

    asking = Fetches(SETTINGS, lambda cursor: 1, hint=hint)
    asking.add("t", 0, 0)
    moved = reply(error_code=6, current_leader=m.FetchLeaderIdAndEpoch(leader_id=2, leader_epoch=9))
    moved = moved.replace(node_endpoints=(m.FetchNodeEndpoint(node_id=2, host="b", port=1, rack=None),))
    _, asked = ask(asking)
    asking.answer(asked, moved, 16, 1.0)
    assert told == [("t", 0, 2, 9, [Node(2, "b", 1, None)])]
    assert not asking.stale
    _, asked = ask(asking, 1.0)
    asking.answer(asked, moved, 16, 1.0)
    assert asking.stale == {"t"}
    assert not asking.due(1.0)


def pop(asking: Fetches) -> Any:
    """The next chunk; None."""
    return next(iter(asking.plan.take()), None)


def reply(**facts: Any) -> m.FetchResponse:
    part = m.FetchPartitionData(partition_index=0, **facts)
    return m.FetchResponse(responses=(m.FetchableTopicResponse(topic="t", topic_id=b"i" * 16, partitions=(part,)),))


@pytest.mark.parametrize("version", [12, 17])
def test_a_fetch_moves_ahead_before_it_is_handed_out(version: int) -> None:
    asking = fetches()
    plan = asking.plan
    cursor = asking.add("t", 0, 0, 3)
    request, asked = ask(asking)
    assert request.topics[0].partitions[0].current_leader_epoch == 7
    assert asking.due(0.0) == [], "one Fetch of a partition at a time"
    asking.answer(asked, reply(high_watermark=3, last_stable_offset=3, records=batch(b"a", b"b", b"c")), version, 0.0)
    assert (cursor.ahead, cursor.position, plan.done) == (3, 0, False)
    assert asking.due(0.0) == [], "fetched up to the stop"
    chunk = pop(asking)
    assert chunk is not None
    plan.moved(chunk, 3)
    assert plan.done


def test_a_fetch_names_the_epoch_of_the_last_batch_before_it() -> None:
    """Under whatever epoch it was asked, and with the last batch cut; forgotten with a seek and over offsets without records."""
    first, second = bytearray(batch(b"a")), bytearray(batch(b"b"))
    first[12:16], second[12:16], second[0:8] = (5).to_bytes(4, "big"), (6).to_bytes(4, "big"), (1).to_bytes(8, "big")
    section = bytes(first + second)
    assert kafka_section_end(section) == (2, 6)
    assert kafka_section_end(section[:-1]) == (1, 5)
    assert kafka_section_end(section + (2).to_bytes(8, "big") + batch(b"c", magic=1)[8:]) == (3, -1), "the last one's format has none"
    assert kafka_section_end(b"") == kafka_section_end(section[:30]) == (-1, -1)
    asking = fetches()
    plan = asking.plan
    cursor = asking.add("t", 0, 0, 9, epoch=4)
    request, asked = ask(asking)
    assert request.topics[0].partitions[0].last_fetched_epoch == 4
    asking.answer(asked, reply(high_watermark=12, last_stable_offset=9, records=section), 12, 0.0)
    request, asked = ask(asking)
    assert request.topics[0].partitions[0].last_fetched_epoch == 6
    asking.answer(asked, reply(high_watermark=9, diverging_epoch=m.FetchEpochEndOffset(epoch=5, end_offset=1)), 12, 0.0)
    chunk = pop(asking)
    assert chunk is not None
    assert (chunk.next, chunk.error, cursor.position_epoch) == (2, None, 4), "what was fetched before is handed out"
    plan.moved(chunk, 2)
    assert cursor.position_epoch == 6
    chunk = pop(asking)
    assert chunk is not None
    assert isinstance(chunk.error, DataLoss)
    plan.seek(("t", 0), 2)
    assert (cursor.position_epoch, cursor.ahead_epoch) == (-1, -1)


def test_a_topic_made_again_is_told_where_its_first_records_would_be_missed() -> None:
    """Its log may be as long by then as what was read of the old one."""

    def of(topic_id: bytes, **facts: Any) -> m.FetchResponse:
        part = m.FetchPartitionData(partition_index=0, **facts)
        return m.FetchResponse(responses=(m.FetchableTopicResponse(topic="", topic_id=topic_id, partitions=(part,)),))

    def ask_of(topic_id: bytes) -> Any:
        (due,) = asking.due(0.0)
        return asking.request(due, lambda topic: topic_id, lambda topic, partition: 0)[1]

    asking = fetches()
    cursor = asking.add("t", 0, 0)
    old, new, third = b"o" * 16, b"n" * 16, b"t" * 16
    asking.answer(ask_of(old), of(old, high_watermark=0), 17, 0.0)
    asking.answer(ask_of(new), of(new, high_watermark=1, records=batch(b"a")), 17, 0.0)
    taken = pop(asking)
    assert (taken.error, cursor.topic_id) == (None, new), "nothing had been read of the old one"
    asking.plan.moved(taken, 1)
    following = bytearray(batch(b"b"))
    following[0:8] = (1).to_bytes(8, "big")
    for _ in range(2):
        asking.answer(ask_of(third), of(third, high_watermark=9, records=bytes(following)), 17, 0.0)
        told = pop(asking).error
        assert isinstance(told, DataLoss)
        assert (told.diverges_at, told.topic, told.partition) == (0, "t", 0)
        assert "made again" in str(told)
    asking.answer(ask_of(third), of(third, error_code=1), 17, 0.0)
    told = pop(asking).error
    assert isinstance(told, DataLoss), "a log that is shorter yet: to go on from its end would miss what it holds"
    assert told.diverges_at == 0
    asking.answer(ask_of(new), of(new, error_code=1), 17, 0.0)
    told = pop(asking).error
    assert isinstance(told, codes.OffsetOutOfRange)
    assert str(told) == "OFFSET_OUT_OF_RANGE [1]: the log does not hold that offset (any more) (FetchResponse, t[0])"
    asking.plan.seek(("t", 0), 1)
    asking.answer(ask_of(third), of(third, high_watermark=9, records=bytes(following)), 17, 0.0)
    assert pop(asking).error is None, "a seek goes on with the topic that there is"


def test_what_was_fetched_before_a_seek_is_dropped() -> None:
    asking = fetches()
    plan = asking.plan
    asking.add("t", 0, 0)
    _, asked = ask(asking)
    plan.seek(("t", 0), 1)
    asking.answer(asked, reply(high_watermark=9, records=batch(b"a")), 12, 0.0)
    assert pop(asking) is None
    _, asked = ask(asking)
    asking.answer(asked, reply(high_watermark=9, records=batch(b"a", b"b")), 12, 0.0)
    plan.seek(("t", 0), 0)
    assert pop(asking) is None


def test_a_batch_that_does_not_fit_is_asked_for_with_more_room_up_to_the_bound() -> None:
    asking = fetches()
    cursor = asking.add("t", 0, 0)
    for size in (1000, 2000, 4000):
        request, asked = ask(asking)
        assert request.topics[0].partitions[0].partition_max_bytes == size
        asking.answer(asked, reply(high_watermark=9, records=batch(b"x" * 500)[:300]), 2, 0.0)
    assert cursor.ahead == 0
    chunk = pop(asking)
    assert chunk is not None
    assert isinstance(chunk.error, FrameTooLarge)


def test_refusals_are_retried_looked_up_or_raised() -> None:
    asking = fetches()
    cursor = asking.add("t", 0, 5)
    _, asked = ask(asking)
    asking.answer(asked, reply(error_code=6), 12, 10.0)
    assert (asking.stale, cursor.retry_at, cursor.ahead) == ({"t"}, 10.1, 5)
    assert asking.due(10.05) == []
    _, asked = ask(asking, 10.2)
    asking.answer(asked, reply(error_code=1), 12, 10.2)
    chunk = pop(asking)
    assert chunk is not None
    assert isinstance(chunk.error, codes.OffsetOutOfRange)
    _, asked = ask(asking, 10.3)
    asking.answer(asked, reply(error_code=3), 12, 10.3)
    assert pop(asking) is None, "a topic may be unknown for a moment"
    _, asked = ask(asking, 20.0)
    asking.answer(asked, reply(error_code=3), 12, 20.0)
    chunk = pop(asking)
    assert chunk is not None
    assert isinstance(chunk.error, codes.UnknownTopicOrPartition)


def empty_responses(asking: Fetches, *times: float, epoch: int = 7, **facts: Any) -> None:
    """Answers without records, though the log goes on."""
    for now in times:
        request, asked = ask(asking, now, epoch)
        assert request.rack_id == ("" if asking.plan.cursors["t", 0].empty_responses else SETTINGS.rack)
        asking.answer(asked, reply(high_watermark=12, last_stable_offset=9).replace(**facts), 12, now)


def test_an_answer_without_records_proves_nothing() -> None:
    asking = fetches()
    cursor = asking.add("t", 0, 5, 9)
    empty_responses(asking, 0.0, 1.0)
    assert asking.due(1.05) == [], "it is asked again after a pause"
    assert asking.doubted(100.0) is None, "not after two of them"
    empty_responses(asking, 1.5)
    assert asking.doubted(1.5) is None, "nor after a moment"
    assert asking.doubted(2.0) is cursor
    assert pop(asking) is None
    asking.settle(cursor, cursor.generation, local=6, epoch=7)
    assert (cursor.ahead, pop(asking), asking.doubted(100.0)) == (5, None, None), "they are in remote storage: ask on"
    empty_responses(asking, 3.0, 4.0, 5.0)
    asking.settle(cursor, cursor.generation, local=5, epoch=8)
    assert (cursor.ahead, pop(asking)) == (5, None), "another leader has a log of its own"
    empty_responses(asking, 6.0, 7.0, 8.0, throttle_time_ms=10)
    assert asking.doubted(100.0) is None, "held back"
    empty_responses(asking, 9.0, 10.0, 11.0)
    asking.settle(cursor, cursor.generation + 1, local=5, epoch=7)
    assert pop(asking) is None, "it was about another position"


def test_an_end_without_records_is_reached_when_the_leaders_own_disk_has_none() -> None:
    """The last offsets before the stop were compacted away."""
    for local in (-1, 0, 5):
        asking = fetches()
        cursor = asking.add("t", 0, 5, 9)
        empty_responses(asking, 0.0, 1.0, 2.0)
        asking.settle(cursor, cursor.generation, local=local, epoch=7)
        chunk = pop(asking)
        assert chunk is not None
        assert (chunk.records, chunk.next, cursor.ahead) == (None, 9, 9)


def test_offsets_that_are_stepped_over_are_told_with_their_range(caplog: pytest.LogCaptureFixture) -> None:
    """A cleaner may have emptied them, or a disk that was lost: the answers do not tell which."""
    asking = fetches()
    cursor = asking.add("t", 0, 5, 9)
    empty_responses(asking, 0.0, 1.0, 2.0)
    asking.settle(cursor, cursor.generation, local=6, epoch=7)
    assert not caplog.records, "nothing is stepped over yet"
    empty_responses(asking, 3.0, 4.0, 5.0)
    asking.settle(cursor, cursor.generation, local=5, epoch=7)
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("t[0]: offsets 5 to 8 hold no record")


@pytest.mark.parametrize("stop", [9, None])
def test_a_leader_that_has_nothing_for_long_is_told_and_ever_more_rarely(stop: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """Though its log goes on: remote storage that never answers, say. Whoever waits for that is to know why."""
    asking = fetches()
    cursor = asking.add("t", 0, 5, stop)
    told: list[float] = []
    for now in range(100):
        empty_responses(asking, float(now))
        if stop is not None and asking.doubted(float(now)) is not None:
            asking.settle(cursor, cursor.generation, local=6, epoch=7)
        told += [float(now)] * len(caplog.records)
        if caplog.records:
            assert caplog.records[0].getMessage().startswith(f"t[0] has not been read for {now:.1f} s: ")
        caplog.clear()
    assert told == [10.0, 20.0, 40.0, 80.0]
    asking.plan.seek(("t", 0), 4)
    empty_responses(asking, 200.0, 205.0)
    assert not caplog.records, "of another place it is not known yet"


def test_a_reader_of_committed_records_never_passes_an_open_transaction() -> None:
    """Its stop may lie behind: what is between is not there for it yet, whatever the high watermark says and however often it asks."""
    asking = fetches()
    plan = asking.plan
    cursor = asking.add("t", 0, 5, 12)
    for now in range(100):
        due = asking.due(float(now))
        if due:
            _, asked = asking.request(due[0], lambda name: b"i" * 16, lambda topic, partition: 7)
            asking.answer(asked, reply(high_watermark=12, last_stable_offset=9), 12, float(now))
        while (chunk := pop(asking)) is not None:
            plan.moved(chunk, chunk.next)
    assert cursor.ahead <= 9
    assert cursor.position <= 9
    assert not plan.done


def test_a_leader_that_names_a_nearer_replica_says_nothing_of_the_log() -> None:
    """Its answer has no records though there are some: that is no gap. A replica that refuses sends us back to the leader."""
    asking = fetches()
    plan = asking.plan
    cursor = asking.add("t", 0, 5, 9)
    _, asked = ask(asking)
    asking.answer(asked, reply(high_watermark=12, last_stable_offset=12, preferred_read_replica=3), 12, 0.0)
    assert pop(asking) is None
    assert (cursor.ahead, cursor.replica, plan.done) == (5, 3, False)
    _, asked = ask(asking)
    asking.answer(asked, reply(error_code=1), 12, 1.0)
    assert pop(asking) is None, "whether the offset is in the log is the leader's to say"
    assert (cursor.ahead, cursor.replica) == (5, -1)
    _, asked = ask(asking, 2.0)
    asking.answer(asked, reply(high_watermark=12, last_stable_offset=12, preferred_read_replica=3), 12, 2.0)
    assert cursor.replica == 3
    asking.due(2.0 + 301.0)
    assert cursor.replica == -1, "the leader is asked anew after a while"


def test_paused_partitions_keep_their_chunks_in_order() -> None:
    asking = fetches()
    first = asking.add("t", 0, 0)
    for start in (0, 1):
        _, asked = ask(asking)
        asking.answer(asked, reply(high_watermark=9, records=batch(*[b"x"] * (start + 1))), 12, 0.0)
    first.paused = True
    assert pop(asking) is None
    first.paused = False
    for start in (0, 1):
        chunk = pop(asking)
        assert chunk.start == start
        asking.plan.moved(chunk, chunk.next)


def test_versions_know_nothing_by_default() -> None:
    assert Versions({}).newest(m.MetadataRequest) is None


@pytest.mark.parametrize("limit", [100, 2000, 3000])
@pytest.mark.parametrize(
    "columns",
    [Columns.from_rows, lambda rows: Columns.from_arrow(pyarrow.record_batch({"value": pyarrow.array(rows, pyarrow.binary_view())}))],
)
def test_a_row_is_refused_where_a_batch_of_it_is_larger_than_a_request(columns: Any, limit: int) -> None:
    """Wherever it stands, and to the byte."""
    options = KafkaOptions(max_request_size=limit, batch_size=50)
    for size in range(limit - 80, limit - 60):
        alone = KafkaBatchBuilder()
        alone.append(bytes(size))
        for before, behind in ((0, 0), (3, 0), (0, 4), (1000, 7)):
            table = columns([b"x"] * before + [bytes(size)] + [b"y"] * behind)
            if alone.size > limit:
                with pytest.raises(ValueUnsupported, match=f"{alone.size} bytes is larger"):
                    outgoing.check_columns(options, table, "t")
            else:
                outgoing.check_columns(options, table, "t")
