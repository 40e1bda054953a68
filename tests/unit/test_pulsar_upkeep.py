"""What Pulsar's roles do beside handing out records: turns, coming back at once or after a pause, looking for partitions, ends."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto import EARLIEST, LATEST, MessageId
from wireproto.errors import TimedOut
from wireproto.net.retry import Policy
from wireproto.position import AtTime
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import partition_producer, queue, subscriber
from wireproto.pulsar.unacked import KEPT, Unacked

NEVER = Policy(first=600.0, factor=1.0, ceiling=600.0, jitter=0.0)


def told(link: Link, ask: Any) -> None:
    """SUCCESS, and that this member is fed."""
    link.send(success(link, ask))
    link.send(api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=True))


def first_flow(link: Link, ask: Any) -> bool:
    return sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1


def topic_of(server: PulsarServer, consumer: int) -> str:
    return str(next(one.topic for one in server.commands("subscribe") if one.consumer_id == consumer))


def ends(last: int, mark: int = -1) -> Any:
    def answer(link: Link, ask: Any) -> Any:
        return api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id,
            last_message_id=api.MessageIdData(ledgerId=7, entryId=last & (2**64 - 1)),
            consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=mark & (2**64 - 1)),
        )

    return answer


def serving(partitions: int = 0, **answers: Any) -> PulsarServer:
    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=partitions, response="Success")

    def one(link: Link, ask: Any) -> None:
        """Entry 0, to each consumer."""
        if first_flow(link, ask):
            link.message(ask.consumer_id, 0, stored([b"0"]))

    usual = {"subscribe": told, "ack": acknowledged, "getLastMessageId": ends(0), "flow": one, "seek": success}
    return PulsarServer(**(usual | {"partitionMetadata": metadata} | answers))


def close_consumer(server: PulsarServer) -> None:
    last = server.commands("subscribe")[-1].consumer_id
    server.links[-1].send(api.CommandCloseConsumer(consumer_id=last, request_id=2**64 - 1))


# -- reading --------------------------------------------------------------------------------------------------------------


def test_partitions_take_turns_whatever_lies_unread_of_one() -> None:
    """600 entries of one partition have come, one by one, and then one entry of the other: it is handed out second."""

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 2:  # both are open
            numbers = {topic_of(server, one.consumer_id)[-1]: one.consumer_id for one in server.commands("subscribe")}
            for entry in range(600):
                link.message(numbers["0"], entry, stored([b"busy"]))
            link.message(numbers["1"], 0, stored([b"quiet"]))

    with serving(2, flow=flow) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        until(lambda: len(consumer._stream.box) >= 601, "all that was sent is here")
        batches = [consumer.poll(20.0) for _ in range(3)]
        assert [batch.partition for batch in batches if batch is not None] == [0, 1, 0]


def test_a_partition_that_is_read_through_is_closed_at_its_broker() -> None:
    """While the reader goes on with others: the broker does not keep for it what nobody reads."""

    def flow(link: Link, ask: Any) -> None:
        if first_flow(link, ask) and topic_of(server, ask.consumer_id).endswith("0"):
            link.message(ask.consumer_id, 0, stored([b"0"]))

    with serving(2, flow=flow) as server, wireproto.connect(server.url) as client, client.reader("t", stop=LATEST) as reader:
        batch = reader.poll(20.0)
        assert batch is not None
        assert batch.partition == 0
        closed = server.wait("close_consumer")
        assert topic_of(server, closed.consumer_id).endswith("0")
        assert not reader.done


@pytest.mark.parametrize(
    ("start", "begins"), [(EARLIEST, (7, 2)), (LATEST, (7, 5)), (MessageId("t", -1, 7, 4), None)], ids=["earliest", "latest", "position"]
)
def test_a_reader_tells_where_it_begins_before_anything_has_come(start: Any, begins: tuple[int, int] | None) -> None:
    with serving(getLastMessageId=ends(5, 2)) as server, wireproto.connect(server.url) as client:
        where = start if begins is None else MessageId("t", -1, *begins, after=True)
        with client.reader("t", start=start) as reader:
            assert reader.positions == {("t", -1): where}


def test_nothing_is_before_the_beginning() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", stop=EARLIEST) as reader:
        assert reader.done
        assert server.count("flow") == 0


def test_a_reader_that_seeks_asks_for_nothing_before_it_knows_where_it_stands() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t") as reader:
        assert reader.poll(20.0) is not None
        before = len(server.seen)
        reader.seek(LATEST)
        server.wait("flow", 2)
        names = [name for name, _ in server.seen[before:] if name in ("subscribe", "getLastMessageId", "flow")]
        assert names == ["subscribe", "getLastMessageId", "flow"]


def test_a_group_that_begins_at_a_time_goes_back_for_as_long_as_its_broker_may_take() -> None:
    """Seconds before the broker comes to it: from the time asked for, and what the SUBSCRIBE may take, 10 s here."""
    with serving() as server, wireproto.connect(server.url, operation_timeout=10.0) as client:
        client.consumer("t", "group", start=AtTime(int((time.time() - 100.0) * 1000))).close()
        [asked] = server.commands("subscribe")
        assert 110 <= asked.start_message_rollback_duration_sec <= 150


# -- coming back ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["records", "a seek"])
def test_what_came_of_something_comes_back_at_once(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that closes the consumer after records came, or over a seek, is met without a pause, time after time."""
    monkeypatch.setattr(subscriber, "RETRY", NEVER)

    def flow(link: Link, ask: Any) -> None:
        """The next entry, to each consumer."""
        if first_flow(link, ask):
            link.message(ask.consumer_id, link.server.count("subscribe"), stored([b"x"]))

    with serving(flow=flow) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        for number in range(1, 4):
            if after == "records":
                assert consumer.poll(30.0) is not None
                assert server.count("subscribe") == number
                close_consumer(server)  # it may be back before this returns
            else:
                consumer.seek(EARLIEST, timeout=30.0)
                assert server.count("subscribe") == number + 1
        assert consumer.poll(30.0) is not None


def test_what_nothing_came_of_comes_back_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that closes the consumer as soon as it is open."""
    monkeypatch.setattr(subscriber, "RETRY", Policy(first=0.2, factor=1.0, ceiling=0.2, jitter=0.0))

    def subscribe(link: Link, ask: Any) -> None:
        told(link, ask)
        if server.count("subscribe") < 4:
            link.send(api.CommandCloseConsumer(consumer_id=ask.consumer_id, request_id=2**64 - 1))

    with serving(subscribe=subscribe, flow=lambda link, ask: None) as server, wireproto.connect(server.url) as client:
        consumer = client.consumer("t", "group")
        assert consumer.poll(0.0) is None
        until(lambda: consumer.poll(0.05) is None and server.count("subscribe") == 4, "it is opened again")
        times = server.moments("subscribe")
        assert min(later - sooner for sooner, later in itertools.pairwise(times)) >= 0.19
        consumer.close()


def test_a_seek_that_is_not_answered_leaves_out_nothing_of_what_comes_then() -> None:
    """It may have taken effect: what was handed out before comes again and is handed out."""
    silent = serving(seek=lambda link, ask: close_consumer(server))
    with silent as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert consumer.poll(20.0) is not None
        with pytest.raises(TimedOut):
            consumer.seek(EARLIEST, timeout=0.3)
        batch = consumer.poll(20.0)
        assert batch is not None
        assert batch.values() == [b"0"]


@pytest.mark.parametrize(
    ("policy", "pauses"),
    [
        (subscriber.RETRY, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (partition_producer.RETRY, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (queue.UNREADABLE, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
    ],
    ids=["reading", "producing", "unreadable"],
)
def test_pauses_are_those_that_the_guide_tells(policy: Policy, pauses: list[float]) -> None:
    """In the middle; they differ by a fifth either way, so that clients that failed together do not come back together."""
    for number, pause in enumerate(pauses, 1):
        assert policy.delay(number, lambda: 0.5) == pytest.approx(pause)
        assert policy.delay(number, lambda: 0.0) == pytest.approx(pause * 0.8)


# -- looking for partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["reader", "consumer", "queue", "producer"])
def test_looking_for_partitions_makes_no_topic(role: str) -> None:
    """It may be deleted while it is read: whoever looks would bring it back."""
    with serving(1) as server, wireproto.connect(server.url, metadata_max_age=0.05) as client:
        made: Any = getattr(client, role)("t", *(["group"] if role in ("consumer", "queue") else []))
        server.wait("partitionMetadata", 3)
        made.close()
        first, *later = server.commands("partitionMetadata")
        assert first.metadata_auto_creation_enabled
        assert not any(one.metadata_auto_creation_enabled for one in later)


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_looking_for_partitions_ends_with_the_role(role: str) -> None:
    """Also in the midst of a look-up that nobody answers."""
    with serving(1) as server, wireproto.connect(server.url, metadata_max_age=0.05) as client:
        made: Any = client.reader("t") if role == "reader" else getattr(client, role)("t", "group")
        usual = server.answers.pop("partitionMetadata")
        growth = made._stream._growth
        server.wait("partitionMetadata", server.count("partitionMetadata") + 1)
        made.close()
        until(lambda: growth.done, "nobody looks any more", 20.0)
        server.answers["partitionMetadata"] = usual


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("describe_topic", ["t"]),
        ("positions", ["t"]),
        ("delete_topic", ["t"]),
        ("describe_group", ["g"]),
        ("group_positions", ["g", "t"]),
    ],
)
def test_asking_about_a_topic_makes_none(question: str, given: list[str]) -> None:
    error = lambda link, ask: api.CommandError(request_id=ask.request_id, error="TopicNotFound", message="none")  # noqa: E731
    with serving(partitionMetadata=error) as server, wireproto.connect(server.url, admin="http://127.0.0.1:1") as client:
        more = {"topic": "t"} if question == "describe_group" else {}
        with pytest.raises(wireproto.pulsar.codes.TopicNotFound):
            getattr(client.admin(), question)(*given, timeout=20.0, **more)
        assert [one.metadata_auto_creation_enabled for one in server.commands("partitionMetadata")] == [False]


# -- ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["reader", "consumer", "queue", "producer"])
def test_a_client_that_closes_while_a_role_comes_back_leaves_nothing_waiting(role: str, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server, wireproto.connect(server.url) as client:
        getattr(client, role)("t", *(["group"] if role in ("consumer", "queue") else []))
        server.answers["lookupTopic"] = lambda link, ask: None
        asked = server.count("lookupTopic")
        server.links[-1].close()
        server.wait("lookupTopic", asked + 1)
        client.close(0.0)
    assert not [record for record in caplog.records if "though the client is closed" in record.getMessage()]


def test_a_connection_is_listened_to_once_however_often_its_consumers_come_back() -> None:
    class Listened:
        closed = False
        listeners = 0

        def on_lost(self, tell: Any) -> None:
            self.listeners += 1

    with serving() as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        conn: Any = Listened()
        for _ in range(3):
            consumer._stream._subscriber._watch_loss(conn)
        assert conn.listeners == 1
        consumer._stream._subscriber._watched.discard(conn)


def test_counts_of_what_went_to_other_workers_are_not_kept_for_ever() -> None:
    hand = Unacked(None)  # type: ignore[arg-type]
    for entry in range(KEPT + 10):
        made = hand.looks_at((7, entry), 2)
        assert made is not None
        assert made.arrives(0)
        assert made.arrives(1)
        made.waiting.discard(0)
        made.held.add(0)
        hand.released((7, entry), 0)
    assert not hand.entries
    assert len(hand._unmet) == KEPT
    assert (7, 9) not in hand._unmet, "the oldest go"
