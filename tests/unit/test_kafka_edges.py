"""Kafka's sans-IO parts at the edges: the node of each request, node 0, the first version of a form, what a good answer ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.errors import Truncated
from wireproto.kafka import admin, assignor, codes, outgoing
from wireproto.kafka import messages as m
from wireproto.kafka.fetch import Fetches, FetchSettings
from wireproto.kafka.group import LEFT, STABLE, GroupSettings, Membership
from wireproto.kafka.metadata import NO_ID, Metadata
from wireproto.kafka.offsets import committing, fetch_request, fetching
from wireproto.kafka.options import KafkaOptions
from wireproto.net.retry import Policy, Verdict, verdict

ID = b"i" * 16
WHERE = {
    "controller": "AlterPartitionReassignments AlterUserScramCredentials CreatePartitions CreateTopics DeleteTopics ElectLeaders "
    "ListPartitionReassignments UnregisterBroker UpdateFeatures",
    "group": "AlterShareGroupOffsets ConsumerGroupDescribe ConsumerGroupHeartbeat DeleteGroups DeleteShareGroupOffsets "
    "DescribeGroups DescribeShareGroupOffsets Heartbeat JoinGroup LeaveGroup OffsetCommit OffsetDelete OffsetFetch "
    "ShareGroupDescribe ShareGroupHeartbeat "
    "StreamsGroupDescribe StreamsGroupHeartbeat SyncGroup TxnOffsetCommit",
    "transaction": "AddOffsetsToTxn AddPartitionsToTxn DescribeTransactions EndTxn InitProducerId",
    "share": "DeleteShareGroupState InitializeShareGroupState ReadShareGroupState ReadShareGroupStateSummary WriteShareGroupState",
    "leader": "AlterReplicaLogDirs DeleteRecords DescribeProducers Fetch ListOffsets OffsetForLeaderEpoch Produce ShareAcknowledge "
    "ShareFetch WriteTxnMarkers",
    "configs": "AlterConfigs DescribeConfigs IncrementalAlterConfigs",
}


@pytest.mark.parametrize(("to", "names"), WHERE.items())
def test_the_requests_of_each_kind_of_node_are_these(to: str, names: str) -> None:
    requests = [kind for name in m.__all__ if name.endswith("Request") and hasattr(kind := getattr(m, name), "API_KEY")]
    assert len(requests) > 85
    assert {kind.NAME.removesuffix("Request") for kind in requests if to == kind.SENT_TO} == set(names.split())
    assert {kind.SENT_TO for kind in requests} == {*WHERE, "any"}


def described(*names: str) -> m.MetadataResponse:
    part = m.MetadataResponsePartition(partition_index=0, leader_id=0, leader_epoch=1)
    topics = tuple(m.MetadataResponseTopic(name=name, topic_id=name.encode() * 16, partitions=(part,)) for name in names)
    return m.MetadataResponse(brokers=(m.MetadataResponseBroker(node_id=0, host="h", port=9),), controller_id=0, topics=topics)


def test_an_answer_about_some_topics_keeps_the_others() -> None:
    known = Metadata()
    known.apply(described("t", "u"))
    known.apply(described("u"))
    assert set(known.topics) == {"t", "u"}
    known.apply(described("u"), all_topics=True)
    assert set(known.topics) == {"u"}


@pytest.mark.parametrize("version", range(m.OffsetFetchRequest.MIN_VERSION, m.OffsetFetchRequest.MAX_VERSION + 1))
def test_committed_offsets_are_asked_for_in_each_versions_form(version: int) -> None:
    asked = fetch_request("g", [("t", 1), ("t", 0)], {"t": ID}, version)
    again = m.OffsetFetchRequest.decode(asked.encode(version), version)
    assert again.require_stable == (version >= 7)
    entry = again.groups[0] if version >= 8 else again
    assert entry.group_id == "g"
    [topic] = entry.topics
    assert tuple(topic.partition_indexes) == (0, 1)
    assert (topic.topic_id == ID) if version >= 10 else (topic.name == "t")
    assert not (again.groups and version < 8)


class SentFetch:
    """A cluster that is asked for the offsets of a group; what it is asked by."""

    def __init__(self, *topics: str) -> None:
        self.metadata = Metadata()
        self.metadata.apply(described(*topics))
        self.how: dict[str, Any] = {}

    def asking(self, make: Any, *args: Any, **how: Any) -> Any:
        self.how = {"make": make, **how}
        return (yield)

    def lost_coordinator(self, group: str) -> None:
        pass

    def watching(self, group: str) -> None:
        pass


def by_id(*topics: tuple[bytes, int, int]) -> m.OffsetFetchResponse:
    """An answer of v10: (id, partition, offset)."""
    found = tuple(
        m.OffsetFetchResponseTopics(
            topic_id=known, partitions=(m.OffsetFetchResponsePartitions(partition_index=number, committed_offset=offset),)
        )
        for known, number, offset in topics
    )
    return m.OffsetFetchResponse(groups=(m.OffsetFetchResponseGroup(group_id="g", topics=found),))


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    cluster: Any = SentFetch("t")
    steps = fetching(cluster, "g", [("t", 0), ("strange", 0)], 1.0, to=cluster.asking)
    next(steps)
    assert cluster.how["cap"]() == 9
    cluster.metadata.apply(described("strange"))
    assert cluster.how["cap"]() is None


def test_offsets_by_id_are_those_of_the_topics_that_were_asked_for() -> None:
    """Somebody's look at all topics may have dropped one from the metadata meanwhile; its partition would begin at `start`."""
    cluster: Any = SentFetch("t", "u")
    steps = fetching(cluster, "g", [("t", 0), ("u", 0)], 1.0, to=cluster.asking)
    next(steps)
    cluster.how["cap"]()
    cluster.metadata.apply(described("u"), all_topics=True)
    answer = by_id((b"t" * 16, 0, 7), (b"u" * 16, 0, -1))
    assert cluster.how["check"](answer) is None
    with pytest.raises(StopIteration) as ended:
        steps.send(answer)
    assert ended.value.value == {("t", 0): 7}


@pytest.mark.parametrize("answer", [by_id((b"t" * 16, 0, 7)), by_id((b"t" * 16, 0, 7), (b"?" * 16, 0, 3))])
def test_a_partition_that_an_answer_leaves_out_is_not_one_without_a_commit(answer: m.OffsetFetchResponse) -> None:
    cluster: Any = SentFetch("t", "u")
    next(fetching(cluster, "g", [("t", 0), ("u", 0)], 1.0, to=cluster.asking))
    cluster.how["cap"]()
    told = cluster.how["check"](answer)
    assert (told.topic, told.partition) == ("u", 0)
    assert verdict(told) is not Verdict.NEVER


def test_a_version_number_alone_is_cut_off_behind_it() -> None:
    with pytest.raises(Truncated):
        assignor.decode_assignment(b"\0\0")


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


class Reading:
    """One partition, read."""

    def __init__(self, start: int = 0, stop: int | None = None) -> None:
        self.asking = Fetches(SETTINGS, lambda cursor: 1)
        self.cursor = self.asking.add("t", 0, start, stop)

    def answer(self, now: float, **facts: Any) -> Any:
        """What the next Fetch is answered with; the next chunk."""
        (due,) = self.asking.due(now)
        _, asked = self.asking.request(due, lambda name: ID, lambda topic, partition: 7)
        part = m.FetchPartitionData(partition_index=0, **facts)
        topic = m.FetchableTopicResponse(topic="t", topic_id=ID, partitions=(part,))
        self.asking.answer(asked, m.FetchResponse(responses=(topic,)), 12, now)
        return next(iter(self.asking.plan.take()), None)


def test_a_topic_that_was_there_meanwhile_has_its_whole_patience_again() -> None:
    reading = Reading()
    missing = codes.UnknownTopicOrPartition.code
    assert reading.answer(10.0, error_code=missing) is None
    assert reading.answer(11.0, high_watermark=0, last_stable_offset=0) is None
    assert reading.answer(20.0, error_code=missing) is None, "unknown since now, not since 10"
    assert isinstance(reading.answer(22.1, error_code=missing).error, codes.UnknownTopicOrPartition)


def test_node_0_is_a_node() -> None:
    """As a nearer replica, as one that refuses, and as an end of the log."""
    reading = Reading()
    assert reading.answer(0.0, high_watermark=9, last_stable_offset=9, preferred_read_replica=0) is None
    assert reading.cursor.replica == 0
    assert reading.answer(1.0, error_code=codes.OffsetOutOfRange.code) is None, "whether it is in the log is the leader's to say"
    assert reading.cursor.replica == -1
    assert reading.answer(2.0, high_watermark=9, last_stable_offset=0) is None
    assert reading.cursor.end == 0, "an open transaction from the beginning on"
    lost = reading.answer(3.0, high_watermark=9, diverging_epoch=m.FetchEpochEndOffset(epoch=0, end_offset=0))
    assert lost.error.diverges_at == 0


def test_metadata_without_ids_have_none() -> None:
    known = Metadata()
    known.apply(described("t").replace(topics=(described("t").topics[0].replace(topic_id=NO_ID),)))
    assert known.topics["t"].id == NO_ID
    assert known.name(NO_ID) is None


def test_a_seek_ends_the_patience_with_a_topic_that_was_missing() -> None:
    """What was told of the place before says nothing of this one: the topic has its whole time again."""
    reading = Reading()
    missing = codes.UnknownTopicOrPartition.code
    assert reading.answer(10.0, error_code=missing) is None
    assert reading.answer(12.1, error_code=missing).error is not None
    reading.asking.plan.seek(("t", 0), 5)
    assert reading.answer(20.0, error_code=missing) is None
    assert reading.answer(22.1, error_code=missing).error is not None


def test_a_leader_of_which_nothing_else_is_wanted_may_wait_for_news() -> None:
    """A partition that is fetched up to its stop is not one that waits for room; one short of it, or without a stop, is."""
    for stop, wait in ((3, 500), (4, 20), (None, 20)):
        reading = Reading()
        other = reading.asking.add("t", 1, 0, stop)
        other.ahead = 3
        other.held = SETTINGS.partition_bytes  # it is not asked for now
        (due,) = reading.asking.due(0.0)
        request, _ = reading.asking.request(due, lambda name: ID, lambda topic, partition: 7)
        assert request.max_wait_ms == wait


def test_a_commit_names_topics_by_id_where_all_ids_are_known() -> None:
    known = Metadata()
    known.apply(described("t", "u"))
    asked: list[dict[str, Any]] = []

    def asking(make: Any, until: float, to: Any, **how: Any) -> Any:
        asked.append(how | {"make": make})
        yield from ()

    cluster: Any = SimpleNamespace(metadata=known, asking=asking, watching=lambda group: None)
    offsets = {("t", 0): 5, ("u", 3): 6}
    committed = committing(cluster, "g", offsets, 1.0, to=None, member="m", generation=0, static_name="s", ours=(25,), epochs={("t", 0): 0})  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as ended:
        next(committed)
    (how,) = asked
    assert how["cap"]() is None
    request = m.OffsetCommitRequest.decode(how["make"](10).encode(10), 10)
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "m", "s")
    assert request.generation_id_or_member_epoch == 0
    parts = {topic.topic_id: topic.partitions for topic in request.topics}
    told = {key: [(one.partition_index, one.committed_offset, one.committed_leader_epoch) for one in parts[key]] for key in parts}
    assert told == {b"t" * 16: [(0, 5, 0)], b"u" * 16: [(3, 6, -1)]}
    assert {one.committed_metadata for key in parts for one in parts[key]} == {""}
    assert [topic.name for topic in m.OffsetCommitRequest.decode(how["make"](9).encode(9), 9).topics] == ["t", "u"]
    assert [how["make"](version).group_instance_id for version in (6, 7)] == [None, "s"]

    def answer(code: int) -> Any:
        part = m.OffsetCommitResponsePartition(partition_index=3, error_code=code)
        return m.OffsetCommitResponse(topics=(m.OffsetCommitResponseTopic(topic_id=b"u" * 16, partitions=(part,)),))

    assert how["check"](answer(25)) is None, "the caller's to deal with"
    assert ended.value.value == {("u", 3): 25}
    refused = how["check"](answer(30))
    assert isinstance(refused, codes.GroupAuthorizationFailed)
    assert (refused.topic, refused.partition) == ("u", 3)
    known.forget("u")
    assert how["cap"]() == 9, "what has no id goes by its name"


def test_old_formats_and_topics_without_an_id_have_their_last_version_of_produce() -> None:
    for message_format, nameless, newest in ((0, False, 1), (1, True, 2), (2, False, None), (2, True, outgoing.BY_ID - 1)):
        assert outgoing.version_cap(KafkaOptions(message_format=message_format), nameless) == newest
    assert outgoing.BY_ID == 13


def test_who_is_fenced_has_lost_what_it_held() -> None:
    made = Membership(GroupSettings("g", ("t",), 10_000, 60_000, "static"))
    made.member, made.generation, made.state = "m", 0, STABLE
    assert made.beating
    made.fenced()
    assert (made.state, made.generation, made.lost, made.beating) == (LEFT, -1, True, False)


def test_a_refusal_is_told_in_the_broker_s_own_words() -> None:
    results = [
        m.CreatableTopicResult(name="t", error_code=0),
        m.CreatableTopicResult(name="t", error_code=40, error_message="Unknown topic config name: bogus"),
    ]
    why = admin._first_error(results, "t")
    assert isinstance(why, codes.InvalidConfig)
    assert "Unknown topic config name: bogus" in str(why)
    bare = admin._first_error([m.CreatableTopicResult(name="t", error_code=40, error_message=None)], "t")
    assert isinstance(bare, codes.InvalidConfig)
    assert admin._first_error(results[:1], "t") is None
