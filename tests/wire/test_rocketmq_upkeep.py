"""What RocketMQ's roles see to by themselves: who is looked at again and when, what is not waited for, what a trouble leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from patience import until
from wireproto._codec import Columns
from wireproto.devbroker.faults import Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import BrokerError, Closed, Disconnected, TimedOut, Unanswered, ValueUnsupported
from wireproto.net.task import Steps
from wireproto.position import LATEST, LogOffset
from wireproto.rocketmq import cluster as clusters
from wireproto.rocketmq import dispatch, fastjson, member, queue_selector, record
from wireproto.rocketmq.admin import RocketAdmin
from wireproto.rocketmq.bodies import ConsumerConnection
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import PullOffsetMoved, TopicNotExist
from wireproto.rocketmq.dispatch import Dispatch
from wireproto.rocketmq.errors import NoMaster
from wireproto.rocketmq.groups import GroupOffsets
from wireproto.rocketmq.messages import GetBrokerClusterInfoRequest
from wireproto.rocketmq.route import NameServers, Queue

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}


def put(client: RocketClient, topic: str, count: int, **how: Any) -> None:
    with client.producer(topic) as out:
        for number in range(count):
            out.send(b"%d" % number, **how)


def drained(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    until(lambda: (found.extend(getattr(consumer.poll(0.1), "values", list)()), len(found) >= count)[1])
    return found


# members ------------------------------------------------------------------------------------------------------------------------------


def test_a_member_joins_over_a_connection_that_is_lost_at_its_first_heartbeat(client: RocketClient, topic: str, faults: Faults) -> None:
    faults.disconnect("HeartBeat", 2)
    with client.consumer(topic, f"g-{topic}") as consumer:
        assert consumer.assignment
    assert faults.seen("HeartBeat") >= 3


def test_a_broker_that_cuts_each_connection_is_not_stormed_by_a_member(
    client: RocketClient, topic: str, faults: Faults, broker: Any
) -> None:
    """Whoever is lost comes back at once, and then each second: with two heartbeats, by the connection that is made and by the member. A
    share that is being computed asks once more, and that is all until the owner has looked."""
    with client.consumer(topic, f"g-{topic}"):
        met, end = faults.seen("HeartBeat"), time.monotonic() + 3.0 * member.AGAIN
        while time.monotonic() < end:
            before = faults.seen("HeartBeat")
            broker.kick("rocketmq")
            until(lambda before=before: faults.seen("HeartBeat") > before or time.monotonic() >= end)  # type: ignore[misc]
        assert met < faults.seen("HeartBeat") <= met + 24, "at each cut it would be a thousand"


def test_a_member_comes_back_by_itself_where_connections_are_refused_for_a_while(
    client: RocketClient, topic: str, faults: Faults, broker: Any
) -> None:
    """Nobody polls, and its next regular heartbeat is far."""
    with client.consumer(topic, f"g-{topic}", heartbeat_interval=300.0):
        met, refused = faults.seen("HeartBeat"), faults.refuse(2)
        broker.kick("rocketmq")
        until(lambda: faults.seen("HeartBeat") > met)
        assert refused.times == 0


def test_a_share_is_looked_at_again_after_rebalance_interval_or_sooner_where_that_was_asked_for(client: RocketClient, topic: str) -> None:
    with client.consumer(topic, f"g-{topic}", rebalance_interval=50.0) as consumer:
        ours = consumer._assignment.member
        begun = time.monotonic()
        client.cluster.drive(ours.computing_share(begun + 30.0), begun + 30.0)
        assert ours.next_look <= time.monotonic() + 50.0
        for seconds, expected in ((20.0, 20.0), (40.0, 20.0), (0.5, 0.5)):
            now = time.monotonic()
            ours.look_again(seconds)
            assert ours.next_look <= time.monotonic() + expected
            assert ours.next_look >= now + expected - 19.0, "and not at once"
        ours._next_look = time.monotonic() + 600.0
        ours.look_again()
        assert ours.next_look <= time.monotonic() + member.AGAIN


def test_a_broker_that_was_silent_is_asked_last_and_not_waited_for_for_a_while(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.consumer(topic, f"g-{topic}") as consumer:
        ours, now = consumer._assignment.member, time.monotonic()
        monkeypatch.setattr(member, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
        assert (ours.is_unresponsive("h:1"), ours.is_unresponsive(None)) == (False, True)
        assert [ours.answer_by("h:1", now + left) - now for left in (2.0, 60.0)] == pytest.approx([2.0, 3.0])
        ours.mark_unresponsive("h:1")
        ours.mark_unresponsive(None)
        assert (ours.is_unresponsive("h:1"), ours.is_unresponsive("h:2")) == (True, False)
        assert [ours.answer_by(address, now + 60.0) - now for address in ("h:1", "h:2", None)] == pytest.approx([0.2, 3.0, 0.2])
        now += 4.9
        assert ours.is_unresponsive("h:1")
        now += 0.2
        assert not ours.is_unresponsive("h:1")


def test_a_round_asks_once_for_the_members_however_many_topics_there_are(client: RocketClient, topic: str, seen: Recording) -> None:
    """And beats once: else the last of many topics have no time left where one broker is silent."""
    names = [topic, *(f"{topic}-{number}" for number in range(9))]
    for name in names[1:]:
        client.admin().create_topic(name)
    with client.consumer(names, f"g-{topic}", rebalance_interval=600.0) as consumer:
        ours, before = consumer._assignment.member, len(seen.requests("GetConsumerListByGroup"))
        until = client.deadline(30.0)
        found, unknown, _ = client.cluster.drive(ours.computing_share(until), until)
        assert not unknown
        assert {name for name, _ in found} >= set(names)
        assert len(seen.requests("GetConsumerListByGroup")) <= before + 4, "not once a topic; the member's own round may be under way, too"


def test_a_member_that_its_broker_does_not_list_says_that_it_is_there(
    client: RocketClient, topic: str, seen: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.consumer(topic, f"g-{topic}", rebalance_interval=600.0) as consumer:
        ours = consumer._assignment.member
        until, ask, enough = client.deadline(30.0), ours.offsets.members, 1 << 30

        def members(*of: Any) -> Steps[tuple[str, ...]]:
            return (yield from ask(*of)) if len(seen.requests("HeartBeat")) >= enough else ("another",)

        monkeypatch.setattr(ours.offsets, "members", members)
        with pytest.raises(Unanswered, match="does not list this client"):
            client.cluster.drive(ours.computing_share(until), until)
        assert consumer.assignment == {(topic, 0)}, "it goes on as it was"
        enough = len(seen.requests("HeartBeat")) + 1
        found, unknown, _ = client.cluster.drive(ours.computing_share(until), until)
        assert (topic, 0) in found
        assert not unknown
        assert consumer.assignment == {(topic, 0)}


def test_a_connection_on_which_no_heartbeat_is_answered_is_given_up(
    dial: Callable[..., RocketClient], topic: str, seen: Recording, faults: Faults
) -> None:
    """Brokers know a member by its connection."""
    client = dial(request_timeout=0.2, connect_timeout=0.5)
    consumer = client.consumer(topic, f"g-{topic}", heartbeat_interval=0.2)
    before = {beat.connection for beat in seen.requests("HeartBeat")}
    faults.drop("HeartBeat", times=-1)
    until(lambda: {beat.connection for beat in seen.requests("HeartBeat")} - before)
    faults.clear()
    until(lambda: [one.member for one in client.admin().describe_group(f"g-{topic}").members] == [consumer.member_id])
    consumer.close()


def test_who_leaves_a_group_says_so_when_its_last_heartbeat_is_answered(
    client: RocketClient, topic: str, seen: Recording, faults: Faults
) -> None:
    """Brokers may take the two in either order, and then list who is gone."""
    consumer = client.consumer(topic, f"g-{topic}", heartbeat_interval=300.0)
    met, slow = len(seen.replies("HeartBeat")), faults.delay("HeartBeat", 0.5)
    beat = client.cluster.tasks.spawn(consumer._assignment.member.beating(client.deadline(30.0)), "a heartbeat that is answered late")
    until(lambda: slow.times == 0)
    consumer.close()
    until(lambda: beat.done)
    assert beat.result()
    (answer,), (goodbye,) = seen.replies("HeartBeat")[met:], seen.requests("UnregisterClient")
    assert answer.at < goodbye.at


@pytest.mark.parametrize("how", ["closed", "left"])
def test_who_has_left_a_group_beats_no_more(
    client: RocketClient, topic: str, seen: Recording, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nor does a round that was under way, and finds itself in no list."""
    with client.consumer(topic, f"g-{topic}", rebalance_interval=600.0) as consumer:
        ours = consumer._assignment.member
        if how == "closed":
            consumer.close()
        else:
            monkeypatch.setattr(ours, "_wake", lambda: None)  # no round begins …
            until(lambda: consumer._assignment._round is None or consumer._assignment._round.done)  # … nor is one under way
            ours._polled = -1e9
            ours._watch_owner()
            until(lambda: not client.admin().describe_group(f"g-{topic}").members)
        met, late = len(seen.requests("HeartBeat")), client.deadline(5.0)
        (queue,) = client.cluster.drive(client.cluster.routing(topic, late), late).readable()
        assert queue.address is not None
        with pytest.raises((Unanswered, Closed)):
            client.cluster.drive(ours._listed(queue.address, late), late)
        groups = [
            [one["groupName"] for one in fastjson.loads(bytes(beat.header.body))["consumerDataSet"]]
            for beat in seen.requests("HeartBeat")[met:]
        ]
        assert not any(groups)
        assert not client.admin().describe_group(f"g-{topic}").members


def test_a_client_is_called_as_its_option_says(dial: Callable[..., RocketClient], topic: str, seen: Recording) -> None:
    with dial(client_id="one-of-us").consumer(topic, f"g-{topic}") as consumer:
        assert consumer.member_id.startswith("one-of-us@")
    named = [fastjson.loads(bytes(beat.header.body))["clientID"] for beat in seen.requests("HeartBeat")]
    assert {name.partition("@")[0] for name in named} == {"one-of-us"}
    assert "one-of-us" in named, "the first word on a connection"


# commits ------------------------------------------------------------------------------------------------------------------------------


def test_what_was_committed_for_the_next_owner_is_not_told_as_lost(client: RocketClient) -> None:
    topic = f"given-{time.monotonic_ns()}"
    client.admin().create_topic(topic, partitions=2)
    for partition in range(2):
        put(client, topic, 3, partition=partition)
    automatic: dict[str, Any] = {"auto_commit": True, "auto_commit_interval": 600.0}
    with client.consumer(topic, "g", **automatic) as first:
        drained(first, 6)
        with client.consumer(topic, "g", **automatic) as second:
            until(lambda: (first.poll(0.05), second.poll(0.05), len(first.assignment) == len(second.assignment) == 1)[2])
            (kept,) = first.assignment
            first.commit()
            assert {key: place.offset for key, place in first.committed().items()} == {kept: 3}
            assert {place.offset for place in second.committed().values()} == {3}


def test_a_broker_without_a_master_holds_up_no_other_s_commit(client: RocketClient, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"masters-{time.monotonic_ns()}"
    client.admin().create_topic(topic, partitions=2)
    for partition in range(2):
        put(client, topic, 2, partition=partition)
    with client.consumer(topic, "g") as consumer:
        drained(consumer, 4)
        commit, tried = consumer._assignment.member.offsets.commit, []

        def away(of: str, queue: Queue, *how: Any) -> Steps[None]:
            tried.append(queue.queue_id)
            if queue.queue_id == tried[0]:
                raise NoMaster("its broker has no master now")
            yield from commit(of, queue, *how)

        with monkeypatch.context() as patch:
            patch.setattr(consumer._assignment.member.offsets, "commit", away)
            with pytest.raises(NoMaster):
                consumer.commit()
        assert sorted(tried) == [0, 1]
        assert {key[1]: place.offset for key, place in consumer.committed().items()} == {1 - tried[0]: 2}
        consumer.commit()
        assert {place.offset for place in consumer.committed().values()} == {2}


@pytest.mark.parametrize(("version", "asked", "offset"), [(None, 2, None), (412, 2, None), (413, 1, 0), (503, 1, 0)])
def test_only_a_broker_of_4_9_is_asked_whether_its_zero_was_committed(version: int | None, asked: int, offset: int | None) -> None:
    answers = [SimpleNamespace(message=SimpleNamespace(offset=0)), SimpleNamespace(body=b'{"offsetTable":{"t@other":{0:0}}}')]
    told = iter(answers)
    cluster: Any = SimpleNamespace(
        routing=lambda topic, until: given(SimpleNamespace(find=lambda *home: None)),
        invoking=lambda *of, **how: given(next(told)),
        connecting=lambda address, until: given(SimpleNamespace(context=version)),
        retrying=lambda attempt, until, refresh: attempt(),
        tasks=SimpleNamespace(shared=lambda key, make, name: SimpleNamespace(result=partial(through, make()))),
        deadline=lambda seconds: seconds,
        options=SimpleNamespace(request_timeout=3.0),
    )
    assert through(GroupOffsets(cluster, "g").committed("t", Queue(0, "b", 0, "h:1", True, True), 9.0)) == offset
    assert len(list(told)) == 2 - asked


def through(steps: Steps[Any]) -> Any:
    """Their result, where all that they wait for has come."""
    try:
        next(steps)
        while True:
            steps.send(True)
    except StopIteration as ended:
        return ended.value


def given(what: Any) -> Steps[Any]:
    """Steps that have nothing to wait for."""
    return what
    yield 0.0


# reading and sending --------------------------------------------------------------------------------------------------------------------


def test_a_pull_that_does_not_leave_is_sent_again(client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection was lost between the look at it and the sending."""
    put(client, topic, 3)
    with client.reader(topic, stop=LATEST) as reader:
        pull, lost = reader._fetcher._pull, iter([True, True])

        def broken(*of: Any) -> None:
            if next(lost, False):
                raise Disconnected("gone")
            pull(*of)

        monkeypatch.setattr(reader._fetcher, "_pull", broken)
        assert drained(reader, 3) == [b"0", b"1", b"2"]
        assert next(lost, None) is None


def failing(times: int, then: Callable[..., Steps[Any]] | None = None) -> tuple[Callable[..., Steps[Any]], list[float]]:
    """Steps that fail so often, then do what they should; and when each began."""
    begun: list[float] = []

    def steps(*of: Any, **how: Any) -> Steps[Any]:
        begun.append(time.monotonic())
        if len(begun) <= times or then is None:
            raise Disconnected("gone")
        return (yield from then(*of, **how))

    return steps, begun


def test_a_look_up_that_fails_while_a_queue_is_looked_for_is_made_again(
    client: RocketClient, topic: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, topic, 3)
    with client.reader(topic, stop=LATEST) as reader:
        steps, begun = failing(2, client.cluster.routing)
        monkeypatch.setattr(client.cluster, "routing", steps)
        faults.error("PullMessage", 17)
        assert drained(reader, 3) == [b"0", b"1", b"2"]
        assert len(begun) == 3


def test_a_broker_that_cannot_be_dialled_is_tried_with_pauses_and_told_after_recovery_timeout(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.reader(topic, recovery_timeout=3.0) as reader:
        steps, begun = failing(1 << 30)
        monkeypatch.setattr(client.cluster, "dial", lambda address, purpose: client.cluster.tasks.spawn(steps(), "dialling"))
        with pytest.raises(Disconnected, match="gone"):
            reader.poll(50.0)
        assert 3.0 <= time.monotonic() - begun[0] < 25.0, "and not when the poll's time is over"
    assert 3 <= len(begun) <= 8, "50, 100, 200 ms … between them"


def test_a_place_that_is_not_there_is_doubted_until_the_broker_has_told_how_far_it_is(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, topic, 3)
    with client.reader(topic) as reader:
        reader.seek({(topic, 0): LogOffset(topic, 0, 1000)})
        steps, begun = failing(2, Dispatch.catching_up)
        monkeypatch.setattr(Dispatch, "catching_up", steps)
        with pytest.raises(PullOffsetMoved):
            until(lambda: (reader.poll(0.1), False)[1])
        assert len(begun) == 3, "it was asked again until it told"


def test_bytes_that_readers_hold_are_bounded_by_the_option(dial: Callable[..., RocketClient]) -> None:
    assert dial(fetch_memory=1 << 20).cluster.fetch_budget.limit == 1 << 20


def test_a_link_is_forgotten_when_the_queue_s_master_is_another_or_none(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.producer(topic) as out:
        out.send(b"x").position(30.0)
        sending = out._sending
        (link,) = sending._links.values()
        sending._learnt()
        assert list(sending._links.values()) == [link], "it is the same"
        with monkeypatch.context() as patch:
            patch.setattr(client.cluster, "peek", lambda address, purpose="main": object())
            sending._learnt()
        assert sending._links == {}, "its address is another's"
        out.send(b"y").position(30.0)
        assert list(sending._links.values()) == [link]
        queues = sending.routing.queues
        sending.routing.queues = [replace(queue, address=None) for queue in queues]
        sending._learnt()
        assert sending._links == {}, "it has none"
        sending.routing.queues = queues


def test_rows_of_a_key_share_a_command_while_nothing_moves_and_find_their_place_where_keys_do(
    client: RocketClient, topic: str, seen: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Columns.from_rows([b"%d" % number for number in range(30)], keys=[b"k"] * 30)
    with client.producer(topic) as out:
        for receipt in out.send_batch(rows):
            receipt.position(30.0)
        assert [one.name for one in seen.requests() if one.name.startswith("Send")] == ["SendBatchMessage"]
        moved: list[bytes] = []
        monkeypatch.setattr(out._routing, "moving", lambda route: True)
        monkeypatch.setattr(out._routing, "place", lambda key: moved.append(key) or 0)
        for receipt in out.send_batch(rows[:5]):
            receipt.position(30.0)
        assert moved == [b"k"] * 5, "each by itself"
    with client.reader(topic, stop=LATEST) as reader:
        assert drained(reader, 35) == [*(b"%d" % number for number in range(30)), *(b"%d" % number for number in range(5))]


@pytest.mark.parametrize(("count", "anywhere", "stays"), [(1, False, True), (2, True, False), (0, False, False), (0, True, False)])
def test_keys_wait_for_records_that_have_their_place_and_for_no_others(count: int, anywhere: bool, stays: bool) -> None:
    batch: Any = SimpleNamespace(count=count, anywhere=anywhere)
    assert queue_selector._stays(batch) is stays


def test_a_closed_worker_keeps_no_messages(client: RocketClient, topic: str) -> None:
    put(client, topic, 5)
    worker = client.queue(topic, f"g-{topic}")
    assert worker.receive(30.0) is not None
    assert len(worker._ready) == 4
    worker.close()
    assert (len(worker._ready), len(worker._held)) == (0, 0)


# administration ---------------------------------------------------------------------------------------------------------------------------


def test_a_topic_is_asked_for_with_every_field(client: RocketClient, topic: str, seen: Recording) -> None:
    client.admin().create_topic(f"{topic}-new", partitions=2, config={"perm": "6", "attributes": "+a=b"})
    (made,) = seen.requests("UpdateAndCreateTopic")
    numbers = {"readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicSysFlag": "0"}
    texts = {"topic": f"{topic}-new", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+a=b"}
    assert made.header.ext == numbers | texts


class Listed:
    """Name servers that list the topic until told otherwise, and masters that say as many things of it."""

    def __init__(self, *said: BrokerError | None, listed: bool = True) -> None:
        self.said = dict(zip(("m:1", "m:2"), said, strict=False))
        self.listed = listed
        self.sent: list[tuple[str, str]] = []
        self.names = SimpleNamespace(all=lambda: ("n:1", "n:2"))
        self.tasks = None

    def routing(self, topic: str, until: float, *, fresh: bool) -> Steps[None]:
        assert fresh
        if not self.listed:
            raise TopicNotExist("no")
        return given(None)

    def invoking(self, address: str, message: Any, *, until: float) -> Steps[None]:
        assert (message.topic, until) == ("t", 9.0)
        self.sent.append((address, type(message).NAME.removesuffix("Request")))
        why = self.said.get(address)
        if why is not None:
            raise why
        return given(None)


NO, WILL_NOT = TopicNotExist("no"), BrokerError("will not tell")


@pytest.mark.parametrize(
    ("cluster", "gone", "asked", "unlisted"),
    [
        (Listed(listed=False), True, [], False),
        (Listed(NO, NO), False, ["m:1", "m:2"], True),
        (Listed(NO, None), False, ["m:1", "m:2"], False),
        (Listed(None, NO), False, ["m:1"], False),
        (Listed(NO, WILL_NOT), False, ["m:1", "m:2"], False),
    ],
    ids=["gone", "put back", "still there", "still on the first", "not told"],
)
def test_a_topic_that_no_master_has_is_taken_off_the_lists_again(cluster: Any, gone: bool, asked: list[str], unlisted: bool) -> None:
    """A list that was on its way put it back; where a master has it, it will be deleted there."""
    with pytest.raises(StopIteration) as ended:
        next(RocketAdmin(cluster)._gone("t", ["m:1", "m:2"], 9.0))
    assert ended.value.value is gone
    again = [(address, "DeleteTopicInNamesrv") for address in ("n:1", "n:2")] if unlisted else []
    assert cluster.sent == [(address, "GetTopicStatsInfo") for address in asked] + again


def test_where_one_name_server_knows_no_topic_the_others_have_a_few_seconds(client: RocketClient, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[tuple[str, float]] = []

    def invoking(address: str, message: Any, body: bytes, *, until: float, accept: Any) -> Steps[Any]:
        left.append((address, until - time.monotonic()))
        raise TopicNotExist("no") if address == "a:1" else TimedOut("silent")
        yield 0.0

    cluster = client.cluster
    monkeypatch.setattr(cluster, "names", NameServers(["a:1", "b:1", "c:1"]))
    monkeypatch.setattr(cluster, "invoking", invoking)
    with pytest.raises(TopicNotExist):
        cluster.drive(cluster.asking_names(GetBrokerClusterInfoRequest(), until=time.monotonic() + 90.0), time.monotonic() + 90.0)
    assert [address for address, _ in left] == ["a:1", "b:1", "c:1"]
    assert 28.0 < left[0][1] <= 30.0, "an even share"
    assert 0.0 < left[1][1] <= 1.5, "half of what the others have"
    assert 1.5 < left[2][1] <= 3.0
    assert clusters.SECOND_LOOKUP_TIMEOUT == 3.0


def test_a_group_is_described_as_its_broker_tells(client: RocketClient, topic: str) -> None:
    body = b'{"connectionSet":[],"subscriptionTable":{"b":{},"a":{}},"consumeType":"X","messageModel":"Y","consumeFromWhere":"Z","more":1}'
    found = ConsumerConnection.decode(body)
    assert (found.topics, found.details) == (("a", "b"), {"consumeType": "X", "messageModel": "Y", "consumeFromWhere": "Z"})
    assert ConsumerConnection.decode(b'{"messageModel":"Y"}').details == {"messageModel": "Y"}
    with client.consumer(topic, f"g-{topic}") as member:
        details = client.admin().describe_group(f"g-{topic}").details
        assert details["topics"] == (f"%RETRY%g-{topic}", topic)
        assert member.member_id


def test_a_broker_in_its_first_seconds_is_waited_for_no_longer_than_that() -> None:
    assert dispatch.STARTING == 5.0


# limits -----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["x", "é"])
def test_properties_fill_their_field_to_the_last_byte(letter: str) -> None:
    empty = len(record.properties(None, {"a": b"x"}, "ID").encode()) - 1
    fits = letter.encode() * ((record.MAX_PROPERTIES - empty) // len(letter.encode()))
    fits += b"y" * (record.MAX_PROPERTIES - empty - len(fits))
    assert len(record.properties(None, {"a": fits}, "ID").encode()) == record.MAX_PROPERTIES == 32_767
    with pytest.raises(ValueUnsupported, match="more than 32767 bytes"):
        record.properties(None, {"a": fits + b"y"}, "ID")
