"""What a RocketMQ producer sends, how often and when: seen on the wire of the embedded broker, not only in what comes back."""

from __future__ import annotations

import calendar
import itertools
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto._codec import Columns, RemotingCommand
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording, Seen
from wireproto.errors import BrokerError, BufferFull, Closed, Disconnected, TimedOut, ValueUnsupported
from wireproto.net.retry import BRIEFLY
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.sending import RESEND

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
_numbers = itertools.count()
SENDS = ("SendMessageV2", "SendBatchMessage")
HARDLY = 0.9
"""Of a wait with jitter: what of it is certain, and no rounding in doubt."""


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"sending-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


@pytest.fixture
def seen(broker: DevBroker, topic: str) -> Recording:
    return broker.record("rocketmq")


def sends(seen: Recording) -> list[Seen]:
    return [request for request in seen.requests() if request.name in SENDS]


def stored(client: RocketClient, topic: str) -> list[bytes]:
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


def test_a_record_is_sent_with_its_key_its_headers_and_its_time(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.producer(topic) as producer:
        producer.send(b"v", key=b"k", headers=[("h", b"x"), ("i", b"y")], timestamp=1_357_034_400_000).position(30.0)
        producer.send(b"w").position(30.0)
    told, plain = (request.message for request in sends(seen))
    properties = dict(pair.split("\1") for pair in told.properties.rstrip("\2").split("\2"))
    assert (properties["KEYS"], properties["h"], properties["i"], told.born_timestamp) == ("k", "x", "y", 1_357_034_400_000)
    assert not {"KEYS", "h"} & {pair.split("\1")[0] for pair in plain.properties.split("\2")}
    assert abs(plain.born_timestamp - 1000 * time.time()) < 1000 * 3600, "else the time of the call"


def test_a_producer_of_many_months_makes_ids_that_tell_their_time(
    client: RocketClient, topic: str, seen: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools look for a message around the time that its id tells, from the start of a month on; 50 days do not fit in."""
    clock = SimpleNamespace(time=lambda: calendar.timegm((2026, 1, 20, 0, 0, 0)) + 86_400 * clock.days, days=0)
    monkeypatch.setattr("wireproto.rocketmq.producer.time", clock)
    with client.producer(topic) as producer:
        for clock.days in (0, 1, 12, 40, 100):
            producer.send(b"v").position(30.0)
            producer.send_batch(Columns.from_rows([b"w"], [b"k"]))[0].position(30.0)
    ids = [re.findall(rb"UNIQ_KEY.*?([0-9A-F]{32})(?![0-9A-F])", request.frame)[-1] for request in sends(seen)]
    assert [int(made[20:28], 16) / 86_400_000 for made in ids] == [day for day in (19, 20, 0, 0, 29) for _ in range(2)]
    assert [ids[n][:20] == ids[n + 1][:20] for n in range(9)] == [True, True, True, False, True, False, True, False, True]


GIVEN = ((b"a", 1), (b"b", 1), (b"c", 2), (b"d", None), (b"e", None), (b"f", 2), (bytes(6000), 2), (bytes(6000), 3))


@pytest.mark.parametrize("rows", [False, True])
def test_records_of_any_time_go_together_and_each_keeps_its_own(client: RocketClient, topic: str, seen: Recording, rows: bool) -> None:
    """A command has one time, its first record's, which one that goes alone has exactly; and no more in it than `batch_size`."""
    begun = 1000 * time.time()
    with client.producer(topic, linger=60.0, batch_size=13_000) as producer:
        if rows:
            values, stamps = zip(*GIVEN, strict=True)
            producer.send_batch(Columns.from_rows(values, timestamps=stamps), partition=0)
        else:
            for value, stamp in GIVEN:
                producer.send(value, partition=0, timestamp=stamp)
        producer.flush(30.0)
    first, *others = [(request.name, request.message.born_timestamp) for request in sends(seen)]
    assert first == ("SendBatchMessage", 1)
    assert others == ([] if rows else [("SendMessageV2", 3)])  # rows are counted by the bytes that they take
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        found = [(record.value, record.timestamp, record.headers) for batch in reader for record in batch]
    assert [value for value, _, _ in found] == [value for value, _ in GIVEN]
    assert all(
        stamp == at if stamp is not None else begun - 1 <= at <= 1000 * time.time()
        for (_, stamp), (_, at, _) in zip(GIVEN, found, strict=True)
    )
    assert not any(headers for _, _, headers in found)


@pytest.mark.parametrize("rows", [False, True])
def test_records_with_times_of_their_own_cost_no_commands(client: RocketClient, topic: str, seen: Recording, rows: bool) -> None:
    with client.producer(topic, linger=0.2) as producer:
        if rows:
            producer.send_batch(Columns.from_rows([b"v"] * 4000, timestamps=list(range(4000))), partition=0)
        else:
            for number in range(4000):
                producer.send(b"v", timestamp=number, partition=0)
        producer.flush(30.0)
    assert len(sends(seen)) <= 20
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        assert [stamp for batch in reader for stamp in batch.columns.timestamps()] == list(range(4000))


def test_a_record_whose_properties_have_no_room_for_a_time_opens_a_command(client: RocketClient, topic: str, seen: Recording) -> None:
    large = {"h": b"x" * (32767 - 52 - 3 - 20)}
    with client.producer(topic, linger=60.0) as producer:
        for stamp, headers in ((1, None), (2, large), (3, None)):
            producer.send(b"v", partition=0, timestamp=stamp, headers=headers)
        producer.flush(30.0)
    assert [request.message.born_timestamp for request in sends(seen)] == [1, 2]
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        assert [stamp for batch in reader for stamp in batch.columns.timestamps()] == [1, 2, 3]


@pytest.mark.parametrize("code", [13])
def test_a_part_that_is_left_alone_has_its_time_as_its_commands(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording, code: int
) -> None:
    broker.faults("rocketmq").error("SendBatchMessage", code, times=-1)
    with client.producer(topic, linger=60.0) as producer:
        receipts = [producer.send(b"%d" % number, partition=0, timestamp=100 + number) for number in range(4)]
        producer.flush(30.0)
        assert [receipt.position(30.0).offset for receipt in receipts] == [0, 1, 2, 3]
    alone = [request for request in sends(seen) if request.name == "SendMessageV2"]
    assert [request.message.born_timestamp for request in alone] == [100, 101, 102, 103]
    assert not any("BORN_TIMESTAMP" in request.message.properties for request in alone)


def test_a_foreign_header_of_that_name_is_refused(client: RocketClient, topic: str) -> None:
    with client.producer(topic) as producer, pytest.raises(ValueUnsupported, match="BORN_TIMESTAMP"):
        producer.send(b"v", headers={"BORN_TIMESTAMP": b"7"})


# what may pass --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [2, 14, 16, 17, 1500])
def test_a_refusal_that_may_pass_is_tried_again(broker: DevBroker, client: RocketClient, topic: str, seen: Recording, code: int) -> None:
    broker.faults("rocketmq").error("SendMessageV2", code)
    with client.producer(topic) as producer:
        assert producer.send(b"once").position(30.0).offset == 0
    assert len(sends(seen)) == 2
    assert stored(client, topic) == [b"once"]


@pytest.mark.parametrize("code", [1, 16, 17])
def test_what_may_come_right_and_does_not_is_told_after_a_few_refusals(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording, code: int
) -> None:
    broker.faults("rocketmq").error("SendMessageV2", code, times=-1)
    producer = client.producer(topic)
    with pytest.raises(BrokerError) as caught:
        producer.send(b"x").position(30.0)
    assert caught.value.code == code
    assert len(sends(seen)) == BRIEFLY + 1, "the first, and those behind so many refusals in a row"
    broker.faults("rocketmq").clear()
    producer.flush()


def test_a_refusal_that_cannot_pass_is_told_at_once(broker: DevBroker, client: RocketClient, topic: str, seen: Recording) -> None:
    broker.faults("rocketmq").error("SendMessageV2", 13)
    with client.producer(topic) as producer:
        receipt = producer.send(b"bad")
        with pytest.raises(BrokerError) as caught:
            receipt.position(30.0)
        assert caught.value.code == 13
        producer.flush()
    assert len(sends(seen)) == 1


def test_attempts_wait_longer_and_longer(broker: DevBroker, client: RocketClient, topic: str, seen: Recording) -> None:
    broker.faults("rocketmq").error("SendMessageV2", 2, times=5)
    with client.producer(topic) as producer:
        producer.send(b"x").position(30.0)
    times = [request.at for request in sends(seen)]
    assert len(times) == 6
    for attempt, (before, after) in enumerate(itertools.pairwise(times), 1):
        assert after - before >= RESEND.first * RESEND.factor ** (attempt - 1) * (1 - RESEND.jitter) * HARDLY


def test_refusals_for_ever_end_at_delivery_timeout(broker: DevBroker, client: RocketClient, topic: str, seen: Recording) -> None:
    broker.faults("rocketmq").error("SendMessageV2", 2, times=-1)
    producer = client.producer(topic, delivery_timeout=0.6)
    begun = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        producer.send(b"x").position(30.0)
    assert caught.value.code == 2
    assert time.monotonic() - begun >= 0.5, "it was tried for as long as it may take"
    assert len(sends(seen)) <= 12, "with back-off"
    producer.flush()


# silence --------------------------------------------------------------------------------------------------------------------------


def test_a_command_that_is_not_answered_goes_out_again_after_request_timeout(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording
) -> None:
    """On a connection that stays open all the while."""
    broker.faults("rocketmq").drop("SendMessageV2")
    with client.producer(topic, request_timeout=0.4) as producer:
        begun = time.monotonic()  # not when the first one came: that may have been late
        assert producer.send(b"x").position(30.0).offset >= 1, "the first one was stored, too"
    first, second, *_ = sends(seen)
    assert 0.4 * HARDLY <= second.at - begun < 15.0
    assert RemotingCommand.decode(first.frame).body == RemotingCommand.decode(second.frame).body
    assert first.connection == second.connection


@pytest.mark.parametrize("how", ["long way", "alone"])
def test_a_broker_that_stays_silent_does_not_hold_a_record_beyond_delivery_timeout(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording, how: str
) -> None:
    broker.faults("rocketmq").drop("SendMessageV2", times=-1)
    broker.faults("rocketmq").drop("SendBatchMessage", times=-1)
    producer = client.producer(topic, delivery_timeout=0.5, request_timeout=60.0, linger=0.01 if how == "long way" else 0.0)
    begun = time.monotonic()
    receipts = [producer.send(b"x"), *producer.send_batch(Columns.from_rows([b"x"]), partition=0)]
    for receipt in receipts:
        with pytest.raises(TimedOut):
            receipt.position(30.0)
    assert 0.5 * HARDLY <= time.monotonic() - begun < 10.0
    producer.flush(10.0)
    producer.send(b"y")
    assert client.cluster.budget.used > 0
    with pytest.raises(TimedOut):
        producer.close(10.0)
    assert client.cluster.budget.used == 0, "the buffer has been given back"


def test_what_waits_for_others_that_are_stored_is_not_given_up(broker: DevBroker, client: RocketClient, topic: str) -> None:
    """A backlog takes several times the delivery timeout, each command much less."""
    broker.faults("rocketmq").delay("SendMessageV2", 0.1, times=-1)
    with client.producer(topic, delivery_timeout=1.0, batch_size=1) as producer:
        begun = time.monotonic()
        receipts = [producer.send(b"%d" % number, partition=0) for number in range(30)]
        producer.flush(60.0)
        assert time.monotonic() - begun > 2.5
        assert [receipt.position(0.0).offset for receipt in receipts] == list(range(30))


def test_what_waits_is_given_up_when_nothing_is_stored_any_more(broker: DevBroker, client: RocketClient, topic: str) -> None:
    faults = broker.faults("rocketmq")
    faults.delay("SendMessageV2", 0.1, times=12)
    faults.drop("SendMessageV2", times=-1)
    producer = client.producer(topic, delivery_timeout=1.0, batch_size=1)
    begun = time.monotonic()
    receipts = [producer.send(b"%d" % number, partition=0) for number in range(30)]
    with pytest.raises(TimedOut):
        producer.flush(60.0)
    assert 2.0 * HARDLY < time.monotonic() - begun < 20.0
    stored = [receipt for receipt in receipts if not receipt.batch.outcome.error]
    assert 10 <= len(stored) <= 13
    with pytest.raises(TimedOut):
        receipts[-1].position(0.0)
    assert client.cluster.budget.used == 0
    producer.close(10.0)


def test_what_is_tried_again_and_again_has_an_end_though_others_are_stored(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording
) -> None:
    """An empty value goes by the other command, which is not refused."""
    broker.faults("rocketmq").error("SendMessageV2", 2, times=-1)
    with client.producer(topic, delivery_timeout=2.0, batch_size=1, max_in_flight=4) as producer:
        begun = time.monotonic()
        refused = producer.send(b"x", partition=0)
        while not refused.done and time.monotonic() < begun + 20.0:
            producer.send(b"", partition=0)
            time.sleep(0.05)
        with pytest.raises((TimedOut, BrokerError)):
            refused.position(30.0)
        assert 2.0 * HARDLY <= time.monotonic() - begun < 15.0
    assert len([request for request in seen.requests() if request.name == "SendBatchMessage"]) > 1


def test_a_silent_broker_is_told_though_nobody_waits(broker: DevBroker, topic: str) -> None:
    broker.faults("rocketmq").drop("SendMessageV2", times=-1)
    with wireproto.connect(broker.url("rocketmq"), buffer_memory=1 << 16) as client:
        producer = client.producer(topic, delivery_timeout=0.3)
        producer.send(bytes(60_000))
        with pytest.raises(BufferFull):
            producer.send(bytes(60_000), timeout=0.05)
        producer.send(bytes(60_000), timeout=30.0)  # there is room when the first one's time is over
        with pytest.raises(TimedOut):
            producer.flush()


# options --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_so_many_commands_of_a_queue_are_on_the_wire(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording, most: int
) -> None:
    """None is answered: the next one that comes is an old one again."""
    broker.faults("rocketmq").drop("SendMessageV2", times=most)
    with client.producer(topic, max_in_flight=most, request_timeout=0.5, batch_size=1) as producer:
        for number in range(6):
            producer.send(b"%d" % number)
        bodies = [request.header.body for request in seen.wait("SendMessageV2", most + 1, timeout=30.0)[: most + 1]]
    assert [bytes(body) for body in bodies[:most]] == [b"%d" % number for number in range(most)]
    assert bytes(bodies[most]) == b"0"


def test_records_wait_for_company_as_long_as_linger_says(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.producer(topic, linger=1.0) as producer:
        begun = time.monotonic()
        for number in range(5):
            producer.send(b"%d" % number)
        (batch,) = seen.wait("SendBatchMessage", timeout=30.0)
        assert batch.at - begun >= 1.0 * HARDLY
        producer.flush()
    assert len(sends(seen)) == 1
    assert stored(client, topic) == [b"%d" % number for number in range(5)]


def test_no_command_is_larger_than_batch_size(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.producer(topic, linger=5.0, batch_size=5000) as producer:
        for _ in range(30):
            producer.send(bytes(1000))
    sizes = [len(request.header.body) for request in sends(seen)]
    assert len(sizes) >= 6
    assert max(sizes) <= 5000 + 1500, "the one that fills it is taken"


def test_the_limit_of_a_value_is_the_option_s(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.producer(topic, max_message_size=1000) as producer:
        with pytest.raises(ValueUnsupported, match="1000"):
            producer.send(bytes(1001))
        with pytest.raises(ValueUnsupported):
            producer.send_batch(Columns.from_rows([b"", bytes(1001)]))
        producer.send(bytes(1000)).position(30.0)
    assert [len(request.header.body) for request in sends(seen)] == [1000]


@pytest.mark.parametrize(("codec", "flag"), [("none", 0), ("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_bodies_above_the_option_s_size_are_packed(client: RocketClient, topic: str, seen: Recording, codec: str, flag: int) -> None:
    with client.producer(topic, compression=codec, compress_above=500) as producer:
        producer.send(bytes(499)).position(30.0)
        producer.send(bytes(500)).position(30.0)
    small, large = sends(seen)
    assert (small.message.sys_flag, len(small.header.body)) == (0, 499)
    assert large.message.sys_flag == flag
    assert (len(large.header.body) < 100) == bool(flag)
    assert stored(client, topic) == [bytes(499), bytes(500)]


def test_the_group_of_a_producer_is_sent(client: RocketClient, topic: str, seen: Recording) -> None:
    for group in (None, "orders"):
        with client.producer(topic, group=group) as producer:
            producer.send(b"x").position(30.0)
    assert [request.message.producer_group for request in sends(seen)] == ["wireproto", "orders"]


@pytest.mark.parametrize(("header", "kind"), [("json", 0), ("binary", 1)])
def test_the_header_of_a_command_is_the_option_s(dial: Any, topic: str, seen: Recording, header: str, kind: int) -> None:
    with dial(header=header).producer(topic) as producer:
        producer.send(b"x").position(30.0)
    assert {request.frame[0] for request in sends(seen)} == {kind}


def test_credentials_and_their_token_are_sent(dial: Any, topic: str, seen: Recording) -> None:
    other = dial(access_key="me", secret_key="hidden", security_token="for a while")
    with other.producer(topic) as producer:
        producer.send(b"x").position(30.0)
    (request,) = sends(seen)
    assert request.header.ext["AccessKey"] == "me"
    assert request.header.ext["SecurityToken"] == "for a while"
    assert request.header.ext["Signature"]
    assert b"hidden" not in request.frame


def test_a_route_is_looked_at_again_when_it_is_old(dial: Any, topic: str, seen: Recording) -> None:
    for age, most in ((0.2, None), (300.0, 1)):
        seen.clear()
        with dial(route_age=age).producer(topic):
            of_topic = lambda request: request.message.topic == topic  # noqa: E731
            if most is None:
                looks = seen.wait("GetRouteInfoByTopic", 4, timeout=30.0, when=of_topic)
                assert all(after.at - before.at >= 0.2 * HARDLY for before, after in itertools.pairwise(looks))
            else:
                assert len([look for look in seen.requests("GetRouteInfoByTopic") if of_topic(look)]) == most


# compacted topics -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def compacted(client: RocketClient) -> str:
    name = f"compacted-{next(_numbers)}"
    client.admin().create_topic(name, config={"attributes": "+cleanup.policy=COMPACTION"})
    return name


def test_a_compacted_topic_takes_no_record_without_a_key(client: RocketClient, compacted: str) -> None:
    """Its brokers acknowledge one that shares a command, and lose it."""
    with client.producer(compacted, linger=0.2) as producer:
        for _ in range(2):
            with pytest.raises(ValueUnsupported, match="key"):
                producer.send(b"lost")
        with pytest.raises(ValueUnsupported, match="key"):
            producer.send_batch(Columns.from_rows([b"a", b"b"]))
        with pytest.raises(ValueUnsupported, match="key"):
            producer.send_batch(Columns.from_rows([b"a", b"b"], keys=[b"k", None]))
        for number in range(5):
            producer.send(b"%d" % number, key=b"k%d" % number)
        producer.send_batch(Columns.from_rows([b"5", b"6"], keys=[b"k", b"l"]))
    assert stored(client, compacted) == [b"%d" % number for number in range(7)]


def test_while_nobody_tells_what_a_topic_is_records_without_a_key_go_alone(
    broker: DevBroker, dial: Callable[..., RocketClient], compacted: str, topic: str
) -> None:
    """A broker refuses them then, each for itself; those of any other topic arrive."""
    seen = broker.record("rocketmq")
    broker.faults("rocketmq").error("GetTopicConfig", 16, times=2)
    with dial().producer(compacted, linger=0.1) as producer:
        receipts = [producer.send(b"lost %d" % number) for number in range(3)]
        receipts += producer.send_batch(Columns.from_rows([b"lost", b"too"], timestamps=[7, 7]))
        kept = [producer.send(b"%d" % number, key=b"k") for number in range(3)]
        for receipt in receipts:
            with pytest.raises(BrokerError, match="key is missing"):
                receipt.position(30.0)
        assert [receipt.position(30.0).offset for receipt in kept] == [0, 1, 2]
        producer.flush()
    assert {request.name for request in sends(seen) if b"lost" in bytes(request.header.body)} == {"SendMessageV2"}
    with dial().producer(topic, linger=0.1) as producer:
        producer.send_batch(Columns.from_rows([b"a", b"b", b"c"]))
        producer.send(b"d")
    assert sorted(stored(dial(), topic)) == [b"a", b"b", b"c", b"d"]


def test_what_a_topic_is_is_asked_again_until_somebody_tells(
    broker: DevBroker, dial: Callable[..., RocketClient], client: RocketClient, topic: str
) -> None:
    seen = broker.record("rocketmq")
    broker.faults("rocketmq").error("GetTopicConfig", 1)
    with dial(route_age=0.1).producer(topic, linger=0.2) as producer:
        seen.wait("GetTopicConfig", 2, timeout=30.0)
        deadline = time.monotonic() + 30
        while not seen.requests("SendBatchMessage"):
            assert time.monotonic() < deadline
            producer.send_batch(Columns.from_rows([b"a", b"b"]))


# many topics ----------------------------------------------------------------------------------------------------------------------


def test_a_producer_without_a_topic_sends_to_the_one_that_each_record_names(client: RocketClient, topic: str, seen: Recording) -> None:
    other = f"{topic}-other"
    client.admin().create_topic(other)
    with client.producer(group="many") as producer:
        assert producer.send(b"a", topic=topic).position(30.0).topic == topic
        producer.send(b"b", topic=other, key=b"k")
        producer.send_batch(Columns.from_rows([b"c", b"d"]), topic=topic)
        producer.flush()
        assert stored(client, other) == [b"b"]
    assert sorted(stored(client, topic)) == [b"a", b"c", b"d"]
    assert {request.message.producer_group for request in sends(seen)} == {"many"}
    with pytest.raises(Closed):
        producer.send(b"late", topic=f"{topic}-third")


def test_a_failure_of_one_topic_is_told_when_all_are_flushed(broker: DevBroker, client: RocketClient, topic: str) -> None:
    other = f"{topic}-other"
    client.admin().create_topic(other)
    with client.producer() as producer:
        broker.faults("rocketmq").error("SendMessageV2", 13)
        producer.send(b"bad", topic=topic)
        producer.send(b"good", topic=other)
        with pytest.raises(BrokerError):
            producer.flush()
    assert (stored(client, topic), stored(client, other)) == ([], [b"good"])


def test_what_becomes_of_an_older_sending_says_nothing_of_the_newer_one(
    broker: DevBroker, client: RocketClient, topic: str, seen: Recording
) -> None:
    """A signal broke into a transmit: the batch has gone out again, by another connection, before the first one's call fails."""
    with client.producer(topic) as producer:
        producer.send(b"first", partition=0).position()
        before = len(sends(seen))
        broker.faults("rocketmq").delay("SendMessageV2", 1.0)
        receipt = producer.send(b"second", partition=0)
        until(lambda: len(sends(seen)) == before + 1, "it is on its way")
        (batch,) = producer._sending.core.queue(0).in_flight
        another: Any = SimpleNamespace(closed=False)
        older: Any = SimpleNamespace(context=batch, frame=None, error=Disconnected("the connection that it went by first"), conn=another)
        producer._sending._replied(older)
        assert [*producer._sending.core.queue(0).in_flight] == [batch]
        receipt.position()
        assert len(sends(seen)) == before + 1
