"""What RocketMQ's roles are told to do: which queues, from where to where, and what they refuse; on the embedded broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import (
    Closed,
    ConcurrentUse,
    ConnectError,
    Malformed,
    OptionError,
    Revoked,
    TransportError,
    UsageError,
    ValueUnsupported,
)
from wireproto.position import AtTime, LogOffset, MessageId, QueueOffset
from wireproto.rocketmq.codes import ServerError, TopicNotExist
from wireproto.rocketmq.ids import OffsetId, UniqueId

PROTOCOL, BROKER, CLIENT = "rocketmq", {"auto_create": False}, {"timeout": 10.0}
_numbers = itertools.count()


@pytest.fixture
def topic(client: Any) -> str:
    """Three queues with 5 records each, `<partition>:<number>`."""
    name = f"uses-{next(_numbers)}"
    client.admin().create_topic(name, partitions=3)
    with client.producer(name) as out:
        for number in range(5):
            for partition in range(3):
                out.send(b"%d:%d" % (partition, number), partition=partition)
    return name


def values(role: Any, count: int | None = None) -> list[bytes]:
    """What a reader reads to its end, or so many records."""
    found: list[bytes] = []
    for _ in range(2000):
        if (count is None and role.done) or (count is not None and len(found) >= count):
            return sorted(found)
        batch = role.poll(0.5)
        found += batch.values() if batch is not None else []
    raise AssertionError(f"no end: {found}")


def of(partition: int, start: int, stop: int) -> list[bytes]:
    return [b"%d:%d" % (partition, number) for number in range(start, stop)]


def test_a_mapping_restricts_a_reader_to_its_queues(client: Any, topic: str) -> None:
    start = {(topic, 1): LogOffset(topic, 1, 2), (topic, 2): LogOffset(topic, 2, 4)}
    with client.reader(topic, start=start, stop=LATEST) as reader:
        assert set(reader.positions) == set(start)
        assert reader.positions[topic, 1] == QueueOffset(topic, 1, 2, "dev", 1)
        assert values(reader) == of(1, 2, 5) + of(2, 4, 5)
        assert reader.done
        assert reader.positions[topic, 2] == QueueOffset(topic, 2, 5, "dev", 2)
        assert reader.poll(0.0) is None
    with client.reader(topic, start=LogOffset(topic, 0, 1), stop=LogOffset(topic, 0, 3)) as reader:
        assert values(reader) == of(0, 1, 3)
    with client.reader(topic, stop={(topic, 1): LogOffset(topic, 1, 2)}) as reader:
        assert values(reader) == of(1, 0, 2), "the partitions that the stop names"
    with client.reader(topic, start={(topic, 1): LATEST, (topic, 2): LogOffset(topic, 2, 3)}, stop=LATEST) as reader:
        assert values(reader) == of(2, 3, 5), "places stand in mappings, too"
    with pytest.raises(OptionError, match=r"\[0\] has no stop: start and stop name the same partitions"):
        client.reader(topic, start=LogOffset(topic, 0, 1), stop={(topic, 1): LogOffset(topic, 1, 2)})


def test_a_reader_follows_the_log_without_a_stop(client: Any, topic: str) -> None:
    with client.reader(topic, start=LATEST) as reader:
        assert reader.poll(0.1) is None
        assert not reader.done
        client.producer(topic).send(b"new", partition=1).position(10.0)
        assert values(reader, 1) == [b"new"]


def test_iterating_yields_no_empty_batches_and_ends(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        sizes = [len(batch) for batch in reader]
    assert sum(sizes) == 15
    assert min(sizes) > 0
    with pytest.raises(Closed):
        reader.poll(0.0)
    reader.close()


def test_a_seek_moves_what_it_names(client: Any, topic: str) -> None:
    with client.reader(topic, start={(topic, 0): LogOffset(topic, 0, 0), (topic, 1): LogOffset(topic, 1, 0)}, stop=LATEST) as reader:
        assert len(values(reader)) == 10
        reader.seek({(topic, 1): LogOffset(topic, 1, 3)})
        assert values(reader) == of(1, 3, 5)
        reader.seek(EARLIEST)
        assert len(values(reader)) == 10, "a queue that is not read stays out"
        with pytest.raises(OptionError, match="does not read partition 2"):
            reader.seek(LogOffset(topic, 2, 0))


@pytest.mark.parametrize("where", [MessageId("T", 0, 1, 1), LogOffset("T", 7, 0), LogOffset("other", 0, 0)])
def test_what_is_no_place_in_the_queues_is_refused(client: Any, topic: str, where: Any) -> None:
    put = type(where)(*[topic if value == "T" else value for value in where]) if isinstance(where, tuple) else where
    if isinstance(where, LogOffset) and where.topic == "T":
        put = LogOffset(topic, where.partition, where.offset)
    elif isinstance(where, MessageId):
        put = MessageId(topic, 0, 1, 1)
    with pytest.raises(OptionError):
        client.reader(topic, start=put)
    with pytest.raises(TopicNotExist):
        client.reader("nowhere")


@pytest.mark.parametrize("role", ["producer", "record", "reader", "consumer", "queue"])
def test_an_unknown_topic_is_told_at_once_with_what_makes_one(client: Any, seen: Recording, role: str) -> None:
    """Nothing is sent that a broker could take for the wish to have it made: the route of TBW102 is not used."""
    name = f"nowhere-{role}"
    make: Any = partial(client.producer().send, b"x", topic=name) if role == "record" else partial(getattr(client, role), name)
    with pytest.raises(TopicNotExist, match=r"admin\(\)\.create_topic\(\) makes it, sending to it does not") as caught:
        make(**({"group": "g"} if role in ("consumer", "queue") else {}))
    assert caught.value.topic == name
    assert {one.message.topic for one in seen.requests("GetRouteInfoByTopic")} <= {name, "TBW102"}, "TBW102: a connection's first question"
    assert not [one for one in seen.requests() if one.name in ("SendMessageV2", "SendBatchMessage", "UpdateAndCreateTopic")]
    assert name not in client.admin().list_topics()
    client.admin().create_topic(name)
    with client.producer(name) as out:
        assert out.send(b"x").position(10.0).offset == 0


def test_times_are_looked_up_at_the_brokers(client: Any, seen: Recording) -> None:
    name = f"times-{next(_numbers)}"
    client.admin().create_topic(name)
    with client.producer(name) as out:
        out.send(b"before").position(10.0)
        begun = int(time.time() * 1000)
        while (between := int(time.time() * 1000)) < begun + 2:
            continue  # what comes now is stored in another millisecond: those are what a start by time tells apart
        out.send(b"after").position(10.0)
    with client.reader(name, start=AtTime(between), stop=LATEST) as reader:
        assert values(reader) == [b"after"]
    with client.reader(name, start=EARLIEST, stop=AtTime(between)) as reader:
        assert values(reader) == [b"before"]
    asked = seen.requests("SearchOffsetByTimestamp")
    assert {one.message.timestamp for one in asked} <= {between, between - 1, between + 1}


# consumers


@pytest.fixture
def member(client: Any, topic: str) -> Iterator[Any]:
    with client.consumer(topic, f"g-{topic}", start=EARLIEST) as made:
        yield made


def test_a_commit_is_what_was_handed_out_or_what_is_named(client: Any, topic: str, member: Any, seen: Recording) -> None:
    assert len(values(member, 15)) == 15
    assert member.committed() == {}
    member.commit({(topic, 1): LogOffset(topic, 1, 2)})
    [first] = seen.requests("UpdateConsumerOffset")
    assert (first.message.queue_id, first.message.commit_offset, first.message.consumer_group) == (1, 2, f"g-{topic}")
    assert member.committed() == {(topic, 1): QueueOffset(topic, 1, 2, "dev", 1)}
    member.commit()
    assert {key[1]: place.offset for key, place in member.committed().items()} == {0: 5, 1: 5, 2: 5}
    sent = len(seen.requests("UpdateConsumerOffset"))
    member.commit()
    assert len(seen.requests("UpdateConsumerOffset")) == sent, "nothing was handed out since"
    with pytest.raises(Revoked) as gone:
        member.commit({(topic, 9): QueueOffset(topic, 9, 2, "dev", 9), (topic, 0): LogOffset(topic, 0, 1)})
    assert gone.value.partitions == ((topic, 9),)
    assert member.committed()[topic, 0].offset == 1, "the others are committed"
    with pytest.raises(OptionError, match="is no position of"):
        member.commit({(topic, 1): LogOffset(topic, 2, 2)})
    with pytest.raises(OptionError, match="is no position of"):
        member.commit({(topic, 1): MessageId(topic, 1, 2, 2)})


def test_lag_is_what_is_left_to_hand_out(client: Any, topic: str, member: Any) -> None:
    member.seek({(topic, 0): LogOffset(topic, 0, 4), (topic, 1): LogOffset(topic, 1, 5)})
    assert member.lag() == {(topic, 0): 1, (topic, 1): 0, (topic, 2): 5}
    assert len(values(member, 6)) == 6
    assert set(member.lag().values()) == {0}
    member.seek(LATEST)
    assert member.poll(0.2) is None
    member.seek(EARLIEST)
    assert len(values(member, 15)) == 15


def test_a_paused_queue_waits_and_goes_on_where_it_stood(topic: str, member: Any) -> None:
    assert (topic, 1) in member.assignment
    member.pause([(topic, 1)])
    assert values(member, 10) == of(0, 0, 5) + of(2, 0, 5)
    assert member.poll(0.2) is None
    member.resume([(topic, 1)])
    assert values(member, 5) == of(1, 0, 5)
    for change in (member.pause, member.resume):
        with pytest.raises(Revoked, match=r"\[9\] is not assigned"):
            change([(topic, 9)])
    with pytest.raises(Revoked, match=r"\[9\] is not assigned to this consumer"):
        member.seek({(topic, 9): QueueOffset(topic, 9, 1, "dev", 9)})


def test_a_group_begins_where_it_is_told_and_goes_on_where_it_was(client: Any, topic: str, seen: Recording) -> None:
    with client.consumer(topic, "told", start={(topic, 1): LogOffset(topic, 1, 3)}) as first:
        assert values(first, 12) == of(0, 0, 5) + of(1, 3, 5) + of(2, 0, 5)
        first.commit({(topic, 0): LogOffset(topic, 0, 1)})
    with client.consumer(topic, "told", start=LATEST) as second:
        found = values(second, 4 + 2)
        assert found[:4] == of(0, 1, 5)
        assert set(of(1, 3, 5)) <= set(found) or set(of(2, 0, 5)) >= set(found[4:])
    with pytest.raises(OptionError, match="is no position of"):
        client.consumer(topic, "other", start={(topic, 1): MessageId(topic, 1, 1, 1)})
    with pytest.raises(OptionError, match="needs a topic"):
        client.consumer((), "g")


def test_closing_commits_only_where_that_is_automatic(client: Any, topic: str, seen: Recording) -> None:
    for group, options, commits in (("plain", {}, 0), ("auto", {"auto_commit": True, "auto_commit_interval": 60.0}, 3)):
        seen.clear()
        with client.consumer(topic, group, start=EARLIEST, **options) as one:
            values(one, 15)
        assert len({sent.message.queue_id for sent in seen.requests("UpdateConsumerOffset")}) == commits
        left = [sent.message.consumer_group for sent in seen.requests("UnregisterClient")]
        assert left == [group]
        with pytest.raises(Closed):
            one.poll(0.0)
        one.close()


def test_a_role_is_one_threads_at_a_time(client: Any, topic: str) -> None:
    for opened in (client.reader(topic), client.consumer(topic, "c"), client.queue(topic, "q")):
        with opened._only, pytest.raises(ConcurrentUse):
            opened.receive(0.0) if hasattr(opened, "receive") else opened.poll(0.0)
        opened.close()


def test_a_worker_ends_each_message_once(client: Any, topic: str, seen: Recording) -> None:
    with client.queue(topic, "workers") as worker:
        first = worker.receive(10.0)
        first.ack()
        with pytest.raises(UsageError, match="acknowledged before"):
            first.ack()
        second = worker.receive(10.0)
        second.release()
        [back] = seen.requests("ConsumerSendMsgBack")
        assert back.message.group == "workers"
        assert back.message.origin_topic == topic
        with pytest.raises(UsageError, match="released before"):
            second.release()
    with pytest.raises(Closed):
        worker.receive(0.0)


def test_a_key_waits_for_what_is_on_its_way_before_it_goes_to_new_queues(broker: DevBroker, client: Any, seen: Recording) -> None:
    topic = f"grows-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=1)
    with client.producer(topic) as out:
        routing = out._routing
        receipts = [out.send(b"%d" % number, key=b"k%d" % number) for number in range(8)]
        for receipt in receipts:
            receipt.position(10.0)
        from wireproto.rocketmq import messages as r

        grown = r.UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6, topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0, order=False,
        )  # fmt: skip
        client.request(grown, to=(topic, 0))
        client.cluster.routes.stale(topic)
        fault = broker.faults("rocketmq").delay("SendMessageV2", 1.0)
        slow = out.send(b"slow", key=b"k0")
        until(lambda: not fault.times)
        client.cluster.drive(routing.looking_up(), time.monotonic() + 30)
        late = [out.send(b"late", key=b"k%d" % number, timeout=0.0) for number in range(32)]
        waited = routing.coming is not None  # else a loaded machine took the second
        places = [receipt.position(10.0) for receipt in late]
        until(lambda: routing.coming is None)
        assert not waited or slow.done
        assert len(routing.route.queues) == len(routing.queues) == 4
        assert {place.partition for place in places} == {0, 1, 2, 3}
        partitions = {out.send(b"x", key=b"k%d" % number).position(10.0).partition for number in range(32)}
        assert len(partitions) == 4


# ids, ports


def test_message_ids_there_and_back() -> None:
    for text in ("7F00000100002A9F0000000000000010", "00000000000000000000000000000001" + "00002A9F0000000000000010"):
        assert str(OffsetId.parse(text)) == text
        assert str(OffsetId.parse(text.lower())) == text
        assert str(UniqueId.parse(text)) == text
    assert OffsetId.parse("7F00000100002A9F0000000000000010") == OffsetId("127.0.0.1", 10911, 16)
    assert OffsetId.parse("00000000000000000000000000000001" + "00002A9F0000000000000010").host == "::1"
    made = UniqueId(b"\1\2\3\4", 5, 6, 7, 8)
    assert str(made) == "01020304" + "0005" + "00000006" + "00000007" + "0008"
    assert UniqueId.parse(str(made)) == made
    for wrong in ("", "7F", "x" * 32, "7F00000100002A9F00000000000000", "7F 00000100002A9F000000000000010"):
        with pytest.raises(Malformed, match="is no message id"):
            OffsetId.parse(wrong)
        with pytest.raises(Malformed, match="is no message id"):
            UniqueId.parse(wrong)
    for host, port, offset in (("nohost", 1, 1), ("127.0.0.1", 1 << 40, 1), ("127.0.0.1", 1, -1 << 70)):
        with pytest.raises(ValueUnsupported, match="no offset id has"):
            str(OffsetId(host, port, offset))


def test_a_brokers_port_is_told_from_a_name_servers(broker: DevBroker, client: Any) -> None:
    broker.faults("rocketmq").error("GetBrokerClusterInfo", 3)  # what a broker says to it
    with pytest.raises(ConnectError, match="this is a broker's port") as refused:
        wireproto.connect(broker.url("rocketmq"), timeout=5.0)
    assert refused.value.peer is not None
    broker.faults("rocketmq").error("GetBrokerClusterInfo", 1)
    with pytest.raises(ServerError):
        wireproto.connect(broker.url("rocketmq"), timeout=5.0)


def test_a_topic_is_made_when_a_broker_has_come_to_the_name_server(broker: DevBroker, client: Any, seen: Recording) -> None:
    """One that was started a moment ago knows of nobody, until brokers come to it again."""
    broker.pause("rocketmq", "broker")
    try:
        with pytest.raises(TransportError, match="no broker with a master"):
            client.admin().create_topic("in-vain", timeout=0.5)
        before = len(seen.requests("GetBrokerClusterInfo"))
        with ThreadPoolExecutor(1) as threads:
            making = threads.submit(client.admin().create_topic, "late", timeout=60.0)
            seen.wait("GetBrokerClusterInfo", before + 2, timeout=30.0)
            broker.resume("rocketmq", "broker")
            making.result(60.0)
    finally:
        broker.resume("rocketmq", "broker")
