"""Pulsar's roles over a topic one of whose partitions cannot be opened: the others are read, and that one as soon as it can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import wireproto
from patience import KEPT, LONG, until
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut, WireprotoError
from wireproto.net.task import Steps
from wireproto.position import EARLIEST, LATEST, AtTime, MessageId
from wireproto.pulsar import message_stream, reader
from wireproto.pulsar.codes import AuthorizationError, MetadataError, ServiceNotReady, UnknownError
from wireproto.pulsar.lookup import Lookup

SHUT = 1


class Gate:
    """Look-ups of partition 1 of any topic are answered so while it is shut: with an error, or with None not at all."""

    def __init__(self) -> None:
        self.shut = False
        self.why: type[WireprotoError] | None = ServiceNotReady
        self.tries: list[float] = []

    def close(self, why: type[WireprotoError] | None = ServiceNotReady) -> None:
        self.shut, self.why = True, why

    def passing(self, asked: Callable[..., Steps[Any]]) -> Callable[..., Steps[Any]]:
        def finding(lookup: Lookup, topic: str, deadline: float, *kind: int) -> Steps[Any]:
            if topic.endswith(f"-partition-{SHUT}"):
                if self.shut:
                    self.tries.append(time.monotonic())
                while self.shut and self.why is None:
                    yield min(deadline, time.monotonic() + 0.05)
                    if time.monotonic() >= deadline:
                        raise TimedOut("nobody answers")
                if self.shut and self.why is not None:
                    raise self.why("not here now")
            return (yield from asked(lookup, topic, deadline, *kind))

        return finding


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as made:
        yield made


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(Lookup, "finding", gate.passing(Lookup.finding))
    monkeypatch.setattr(message_stream, "ENOUGH", 0.3, raising=False)
    monkeypatch.setattr(reader, "ENOUGH", 0.3, raising=False)
    return gate


@pytest.fixture
def client(broker: DevBroker, gate: Gate) -> Iterator[Any]:
    with wireproto.connect(broker.url("pulsar"), timeout=4.0) as made:
        yield made
        gate.shut = False


@pytest.fixture
def topic(client: Any, request: pytest.FixtureRequest) -> str:
    """One with three partitions, each of which has its number as its only record."""
    name = f"t-{abs(hash(request.node.name))}"
    client.admin().create_topic(name, partitions=3)
    with client.producer(name) as out:
        for number in range(3):
            out.send(b"%d" % number, partition=number).position(20.0)
    return name


def send(client: Any, topic: str) -> None:
    """As `topic`, once more."""
    with client.producer(topic) as out:
        for number in range(3):
            out.send(b"%d" % number, partition=number).position(20.0)


def took(role: Any, count: int) -> list[int]:
    """The partitions of so many records, sorted."""
    found: list[int] = []

    def enough() -> bool:
        batch = role.poll(0.2)
        found.extend([batch.partition] * len(batch) if batch is not None else [])
        return len(found) >= count

    until(enough, f"{count} records")
    return sorted(found)


@pytest.mark.parametrize("why", [ServiceNotReady, MetadataError, UnknownError, None])
def test_a_reader_hands_out_what_other_partitions_have(
    client: Any, topic: str, gate: Gate, why: type[WireprotoError] | None, caplog: pytest.LogCaptureFixture
) -> None:
    gate.close(why)
    with client.reader(topic, start=EARLIEST) as read:
        assert took(read, 2) == [0, 2]
        assert f"{topic}[{SHUT}]: it cannot be opened now, and is read as soon as it can" in caplog.text
        gate.shut = False
        assert took(read, 1) == [SHUT]
        assert not read.done


@pytest.mark.parametrize("start", [EARLIEST, AtTime(1), {}], ids=["earliest", "time", "positions"])
def test_a_reader_to_a_stop_is_done_when_the_partition_that_was_shut_is_read(client: Any, topic: str, gate: Gate, start: Any) -> None:
    places = client.admin().positions(topic, EARLIEST)
    gate.close()
    with client.reader(topic, start=start or places, stop=LATEST) as read:
        assert took(read, 2) == [0, 2]
        assert (read.poll(0.3), read.done) == (None, False)
        gate.shut = False
        assert took(read, 1) == [SHUT]
        assert (read.poll(LONG), read.done) == (None, True)


def test_a_reader_to_a_stop_names_the_partition_that_is_shut_when_its_time_is_over(client: Any, topic: str, gate: Gate) -> None:
    gate.close()
    with client.reader(topic, start=EARLIEST, stop=LATEST, timeout=1.0) as read:
        assert took(read, 2) == [0, 2]
        for _ in range(2):
            with pytest.raises(ServiceNotReady, match="not here now") as failed:
                read.poll(LONG)
            assert (failed.value.topic, failed.value.partition, read.done) == (topic, SHUT, False)
        gate.shut = False
        found: list[Any] = []

        def comes() -> bool:
            with suppress(ServiceNotReady):  # until it is open
                found.append(read.poll(0.2))
            return any(found)

        until(comes, "the last record")
        assert [batch.partition for batch in found if batch] == [SHUT]
        assert (read.poll(LONG), read.done) == (None, True)


def test_a_reader_from_now_on_begins_at_the_end_of_a_partition_that_was_shut(client: Any, topic: str, gate: Gate) -> None:
    gate.close()
    with client.reader(topic, start=LATEST) as read:
        assert sorted(number for _, number in read.positions) == [0, 2]
        gate.shut = False
        until(lambda: (read.poll(0.1), len(read.positions) == 3)[1], "it is open")
        send(client, topic)
        assert took(read, 3) == [0, SHUT, 2]


def test_a_seek_holds_up_no_partition_that_is_open(client: Any, topic: str, gate: Gate) -> None:
    with client.reader(topic, start=EARLIEST, stop=LATEST) as read:
        assert took(read, 3) == [0, SHUT, 2]
    with client.reader(topic, start=EARLIEST) as read:
        assert took(read, 3) == [0, SHUT, 2]
        gate.close()
        read.seek(EARLIEST)
        assert took(read, 2) == [0, 2]
        gate.shut = False
        assert took(read, 1) == [SHUT]


def test_a_reader_keeps_its_stop_over_a_seek_in_a_partition_that_is_shut(client: Any, topic: str, gate: Gate) -> None:
    gate.close()
    with client.reader(topic, start=EARLIEST, stop=LATEST) as read:
        assert took(read, 2) == [0, 2]
        read.seek(MessageId(topic, SHUT, -1, -1))
        gate.shut = False
        assert took(read, 1) == [SHUT]
        assert (read.poll(LONG), read.done) == (None, True)


def test_a_consumer_hands_out_what_other_partitions_have(client: Any, topic: str, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    gate.close()
    with client.consumer(topic, "g", start=EARLIEST) as member:
        assert took(member, 2) == [0, 2]
        assert f"{topic}[{SHUT}]: it cannot be opened now, and is read as soon as it can" in caplog.text
        member.commit()
        assert {number for _, number in member.assignment} == {0, 2}
        for ask in (member.lag, member.committed):
            with pytest.raises(ServiceNotReady) as failed:
                ask(timeout=1.0)
            assert (failed.value.topic, failed.value.partition) == (topic, SHUT)
            assert set(failed.value.known or ()) == {(topic, 0), (topic, 2)}
        gate.shut = False
        assert took(member, 1) == [SHUT]
        member.commit()
    with client.consumer(topic, "g", start=EARLIEST) as member:
        assert member.poll(0.5) is None


def test_a_consumer_rewinds_the_partitions_that_are_open(client: Any, topic: str, gate: Gate) -> None:
    gate.close()
    with client.consumer(topic, "g", start=EARLIEST) as member:
        assert took(member, 2) == [0, 2]
        member.rewind(timeout=LONG)
        assert took(member, 2) == [0, 2]
        gate.shut = False
        assert took(member, 1) == [SHUT]


def test_a_queue_hands_out_what_other_partitions_have(client: Any, topic: str, gate: Gate) -> None:
    def receive() -> int:
        got: list[Any] = []
        until(lambda: got.append(queue.receive(0.2)) or got[-1] is not None, "a message")
        got[-1].ack()
        return int(got[-1].record.partition)

    gate.close()
    with client.queue(topic, "g") as queue:
        assert {receive(), receive()} == {0, 2}
        gate.shut = False
        assert receive() == SHUT


def test_a_role_is_not_made_where_no_partition_can_be_opened(client: Any, topic: str, gate: Gate) -> None:
    gate.close()
    begin = time.monotonic()
    with pytest.raises(ServiceNotReady) as failed:
        client.reader(topic, start={(topic, SHUT): MessageId(topic, SHUT, -1, -1)}, timeout=1.0)
    assert (failed.value.topic, failed.value.partition) == (topic, SHUT)
    assert 1.0 - 0.5 <= time.monotonic() - begin < 1.0 + KEPT


def test_a_refusal_that_does_not_pass_is_raised_at_once(client: Any, topic: str, gate: Gate) -> None:
    gate.close(AuthorizationError)
    for make in (lambda: client.reader(topic, start=EARLIEST), lambda: client.consumer(topic, "g"), lambda: client.queue(topic, "q")):
        with pytest.raises(AuthorizationError):
            make()


def test_a_partition_that_is_shut_is_tried_less_and_less_often(client: Any, topic: str, gate: Gate) -> None:

    gate.close()
    with client.reader(topic, start=EARLIEST) as read:
        assert took(read, 2) == [0, 2]
        until(lambda: (read.poll(0.1), len(gate.tries) >= 5)[1], "five tries")
        pauses = [later - earlier for earlier, later in zip(gate.tries, gate.tries[1:], strict=False)]
        assert all(pause >= 0.08 * 2**number for number, pause in enumerate(pauses[:5])), pauses
