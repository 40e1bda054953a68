"""Permits: a small window never runs dry, and never asks for much more than it has room for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, stored, subscribed, success
from wireproto.devbroker import DevBroker
from wireproto.pulsar import PulsarApi_pb2 as api

MANY, SIZE, WINDOW = 5000, 1000, 64 << 10


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as made:
        yield made


def opened(client: Any, role: str) -> Any:
    given: dict[str, Any] = {"receive_memory": WINDOW}
    return client.reader("t", **given) if role == "reader" else getattr(client, role)("t", "group", **given)


def read(reading: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        if hasattr(reading, "receive"):
            delivery = reading.receive(20.0)
            assert delivery is not None, f"silence after {len(found)} of {count}"
            found.append(delivery.value)
        else:
            batch = reading.poll(20.0)
            assert batch is not None, f"silence after {len(found)} of {count}"
            found += batch.values()
    return found


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_small_window_never_runs_dry(broker: DevBroker, role: str, batching: bool) -> None:
    values = [b"%05d" % number + b"x" * (SIZE - 5) for number in range(MANY)]
    seen = broker.record("pulsar")
    with wireproto.connect(broker.url("pulsar")) as client:
        with client.producer("t", batching=batching, batch_records=7) as producer:
            for value in values:
                producer.send(value)
        with opened(client, role) as reading:
            assert read(reading, MANY) == values
    flows = [flow.message.messagePermits for flow in seen.requests("flow")]
    assert sum(flows) >= MANY
    room = 2 * WINDOW // SIZE
    assert flows[0] == 1, "before the size of a message is known: as many of the largest as fit"
    assert max(flows) <= room
    assert sum(flows) <= MANY + room
    assert len(flows) > MANY // room


def granted(reading: Any) -> int:
    """What we take the broker's permits for."""
    count: int = reading._stream.parts[0].permits._granted
    return count


def at_broker(reading: Any) -> int:
    """What the broker has: none where it is in debt."""
    part = reading._stream.parts[0]
    deadline = time.monotonic() + 20.0
    stats = reading._tasks.drive(reading._stream.ask(part, api.CommandConsumerStats(consumer_id=part.id), deadline), deadline)
    count: int = stats.availablePermits
    return count


def test_both_sides_count_the_same_permits_for_batches_that_come_again(broker: DevBroker) -> None:
    """Of a batch that is acknowledged in part the broker takes permits for the rest alone."""
    with wireproto.connect(broker.url("pulsar")) as client:
        with client.producer("t", batch_records=10, linger=60.0) as producer:
            for number in range(100):
                producer.send(b"%d" % number)
        with opened(client, "queue") as queue:
            held = []
            for _ in range(100):
                held.append(queue.receive(20.0))
                held[-1].ack() if held[-1].position.index else None
            for delivery in held[::10]:
                delivery.release()
                again = queue.receive(20.0)
                assert again.position == delivery.position
                again.ack()
            assert granted(queue) == at_broker(queue)


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_batch_whose_checksum_is_wrong_counts_as_what_it_holds(role: str) -> None:
    """The broker has counted that: were less granted anew, it would send nothing more one day."""
    batch = bytearray(stored([b"%d" % number for number in range(50)]))
    batch[-1] ^= 1

    def flow(link: Link, ask: Any) -> None:
        if link.server.count("flow") == 1:
            link.message(ask.consumer_id, 0, bytes(batch))
            link.message(ask.consumer_id, 1, stored([b"good"]))

    def last(link: Link, ask: Any) -> Any:
        place, mark = (api.MessageIdData(ledgerId=7, entryId=entry) for entry in (1, 2**64 - 1))
        return api.CommandGetLastMessageIdResponse(request_id=ask.request_id, last_message_id=place, consumer_mark_delete_position=mark)

    with (
        PulsarServer(subscribe=subscribed, flow=flow, getLastMessageId=last) as server,
        wireproto.connect(server.url, on_corrupt="skip") as client,
        opened(client, role) as reading,
    ):
        assert read(reading, 1) == [b"good"]
        with server.came:
            told = server.came.wait_for(lambda: sum(flow.messagePermits for flow in server.commands("flow")) == granted(reading) + 51, 20.0)
        assert told


def test_all_roles_of_a_client_hold_no_more_than_fetch_memory() -> None:
    """Each is within its own `receive_memory`, and what more comes stays with the broker until they read."""
    bound, count, size = 1 << 20, 32, 100_000

    def flow(link: Link, ask: Any) -> None:
        if [one.consumer_id for one in link.server.commands("flow")].count(ask.consumer_id) == 1:
            for number in range(count):
                link.message(ask.consumer_id, number, stored([b"%04d" % number + b"x" * size], number))

    with PulsarServer(subscribe=success, flow=flow) as server, wireproto.connect(server.url, fetch_memory=bound) as client:
        readings = [client.consumer("t", "group", mode="exclusive"), client.queue("t", "other")]
        ours = client.loop.connections[1:]
        until(lambda: all(conn.held_back for conn in ours), "neither is read on")
        for reading in readings:
            assert [int(value[:4]) for value in read(reading, count)] == list(range(count))
        until(lambda: not any(conn.held_back for conn in ours), "both are read again")


@pytest.mark.parametrize("most", [1, 10])
def test_a_slow_worker_keeps_few_messages_from_the_others(broker: DevBroker, most: int) -> None:
    with wireproto.connect(broker.url("pulsar")) as client, client.queue("t", "group", receive_messages=most) as slow:
        with client.producer("t", batching=False) as producer:
            for number in range(100):
                producer.send(b"%d" % number)
        taken = read(slow, 20)
        until(lambda: at_broker(slow) == 0, "it has all that it asked for")
        with client.queue("t", "group") as quick:
            taken += read(quick, 80 - most)
            while (delivery := quick.receive(1.0)) is not None:
                taken.append(delivery.value)
            kept = read(slow, 100 - len(taken))
        assert 1 <= len(kept) <= most
        assert len({*taken, *kept}) == 100


def test_a_batch_comes_whole_to_who_takes_one_at_a_time(broker: DevBroker) -> None:
    with wireproto.connect(broker.url("pulsar")) as client, client.queue("t", "group", receive_messages=1) as queue:
        with client.producer("t", linger=60.0) as producer:
            for _ in range(3):
                for number in range(10):
                    producer.send(b"%d" % number)
                producer.flush()
        places = []
        for _ in range(30):
            delivery = queue.receive(20.0)
            assert delivery is not None
            places.append((delivery.position.entry, delivery.position.index))
            assert len(queue._next) + len(queue._stream.parts[0].frames) < 10, "no batch comes beside another one"
            delivery.ack(20.0)
        first = places[0][0]
        assert places == [(first + entry, index) for entry in range(3) for index in range(10)]
