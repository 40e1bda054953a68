"""`buffer_memory` bounds what all producers of a client hold together: on the embedded broker, which answers no send for a while."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import KEPT, until
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.errors import BufferFull, Closed, OptionError, TimedOut, ValueUnsupported

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
LINGERING = ("kafka", "pulsar", "rocketmq")
SENDS = {"kafka": ("Produce",), "pulsar": ("send",), "rocketmq": ("SendMessageV2", "SendBatchMessage"), "zookeeper": ("create",)}
BOUND = 128 << 10
SECONDS = 30.0
_numbers = itertools.count()


@pytest.fixture
def client(broker: DevBroker, protocol: str) -> Iterator[Any]:
    with wireproto.connect(broker.url(protocol), buffer_memory=BOUND) as made:
        yield made
        silent(broker, protocol, over=True)


def silent(broker: DevBroker, protocol: str, *, over: bool = False) -> None:
    """From now on the broker reads no connection any more that a record came by; over: it takes others for them."""
    faults = broker.faults(protocol)
    if over:
        faults.clear()
        broker.kick(protocol)
    else:
        for name in SENDS[protocol]:
            faults.stall(name, times=-1)


def producers(client: Any, count: int, partitions: int = 1, **options: Any) -> list[Any]:
    made = []
    for _ in range(count):
        topic = f"budget-{next(_numbers)}"
        if client.protocol != "zookeeper":
            client.admin().create_topic(topic, partitions=partitions)
        made.append(client.producer(topic, **options))
    return made


def used(client: Any) -> int:
    found: int = client.cluster.budget.used
    return found


def fill(producer: Any, value: bytes, timeout: float = 0.0) -> int:
    """Send until there is no room; how many were taken."""
    for taken in range(10_000):
        try:
            producer.send(value, timeout=timeout)
        except BufferFull:
            return taken
    raise AssertionError("there is no bound")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_four_producers_hold_no_more_than_one_would(broker: DevBroker, client: Any, protocol: str) -> None:
    outs = producers(client, 4)
    silent(broker, protocol)
    taken = sum(fill(out, bytes(1000)) for out in outs)
    assert BOUND // 2 < taken * 1000 <= BOUND
    assert 0 < used(client) <= BOUND
    silent(broker, protocol, over=True)
    for out in outs:
        out.flush(SECONDS)
    assert used(client) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sixteen_threads_are_never_above_the_bound(broker: DevBroker, client: Any, protocol: str) -> None:
    outs = producers(client, 4)
    silent(broker, protocol)
    taken: list[int] = []
    most = 0
    begin = threading.Barrier(16)

    def work(number: int) -> None:
        nonlocal most
        begin.wait(SECONDS)
        taken.append(fill(outs[number % 4], bytes(4000)))
        most = max(most, used(client))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(before)
    assert len(taken) == 16
    assert sum(taken) * 4000 <= BOUND
    assert most <= BOUND


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_many_records_at_a_time_keep_the_bound(broker: DevBroker, client: Any, protocol: str) -> None:
    outs = producers(client, 2)
    silent(broker, protocol)
    rows = Columns.from_rows([bytes(1000)] * 500)
    counts = []
    for out in outs:
        with pytest.raises(BufferFull) as caught:
            out.send_batch(rows, timeout=0.1)
        counts.append(sum((caught.value.taken or {}).values()))
        assert counts[-1] == out.unsettled(), "the error counts the rows that were taken"
    assert counts[0] > 0
    assert 0 < used(client) <= BOUND


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_many_records_with_one_that_is_too_large_none_is_taken(client: Any, protocol: str) -> None:
    (out,) = producers(client, 1)
    with pytest.raises(ValueUnsupported) as caught:
        out.send_batch(Columns.from_rows([b"small", bytes(60 << 20)]), timeout=SECONDS)
    assert not caught.value.taken
    assert used(client) == 0
    out.flush(SECONDS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_waits_gets_the_room_of_another_producer(broker: DevBroker, client: Any, protocol: str) -> None:
    """The one that waits has nothing on its way, and nobody waits for the answers of the other."""
    one, other = producers(client, 2)
    broker.faults(protocol).delay(SENDS[protocol][0], 0.3)
    fill(one, bytes(4000))
    begun = time.monotonic()
    other.send(bytes(4000), timeout=SECONDS)
    assert time.monotonic() - begun < 10.0
    other.flush(SECONDS)
    one.flush(SECONDS)
    assert used(client) == 0


@pytest.mark.parametrize("protocol", LINGERING)
def test_nobody_keeps_records_back_for_others_to_join_while_somebody_waits_for_room(broker: DevBroker, client: Any, protocol: str) -> None:
    one, other = producers(client, 2, linger=600.0)
    for _ in range(3):
        fill(one, bytes(1000))
        other.send(bytes(BOUND // 2), timeout=SECONDS)  # takes what the first one keeps back
        one.send(bytes(BOUND // 2), timeout=SECONDS)
    one.flush(SECONDS)
    other.flush(SECONDS)
    assert used(client) == 0


@pytest.mark.parametrize("protocol", LINGERING)
def test_what_has_expired_gives_its_room_back(broker: DevBroker, client: Any, protocol: str) -> None:
    one, other = producers(client, 2, delivery_timeout=0.3)
    silent(broker, protocol)
    fill(one, bytes(1000))
    begun = time.monotonic()
    other.send(bytes(BOUND // 2), timeout=SECONDS)
    assert time.monotonic() - begun < 10.0
    for out in (one, other):
        with pytest.raises(TimedOut):
            out.flush(SECONDS)
    assert used(client) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_tells_who_waits_for_room_and_frees_what_was_held(broker: DevBroker, client: Any, protocol: str) -> None:
    one, other = producers(client, 2)
    silent(broker, protocol)
    fill(one, bytes(1000))
    problems: list[BaseException] = []

    def send() -> None:
        try:
            one.send(bytes(4000), timeout=SECONDS)
        except BaseException as why:
            problems.append(why)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    until(lambda: client.cluster.budget.waiting)
    with pytest.raises(TimedOut):
        one.close(0.2)
    thread.join(SECONDS)
    assert [type(why) for why in problems] == [Closed]
    assert used(client) == 0
    one.close(0.2)
    with pytest.raises(Closed):
        one.send(b"")
    assert fill(other, bytes(1000)) > 50, "the others go on"
    with pytest.raises(TimedOut):
        other.close(0.2)


@pytest.mark.parametrize("protocol", ["rocketmq", "zookeeper"])
def test_the_bound_is_the_clients_and_no_option_of_a_producer(client: Any, protocol: str) -> None:
    with pytest.raises(OptionError, match="buffer_memory"):
        client.producer("t", buffer_memory=1 << 20)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_send_keeps_its_time_though_the_broker_reads_nothing(broker: DevBroker, protocol: str) -> None:
    """More than the kernel and the engine take of one connection is within the bound, and waits in the producer."""
    size = 900_000
    with wireproto.connect(broker.url(protocol)) as client:
        (out,) = producers(client, 1, partitions=40)
        silent(broker, protocol)
        slowest, taken = 0.0, 0
        while True:
            begun = time.monotonic()
            try:
                out.send(bytes(size), timeout=0.2)
            except BufferFull:
                break
            finally:
                slowest = max(slowest, time.monotonic() - begun)
            taken += 1
        assert slowest < 0.2 + KEPT
        assert 30 << 20 < taken * size <= 32 << 20
        silent(broker, protocol, over=True)
        out.flush(SECONDS)


@pytest.mark.parametrize("protocol", LINGERING)
def test_a_flush_of_many_partitions_keeps_its_time_though_the_broker_reads_nothing(broker: DevBroker, protocol: str) -> None:
    """All that waited becomes due at once, and is several times what a connection takes."""
    with wireproto.connect(broker.url(protocol)) as client:
        (out,) = producers(client, 1, partitions=30, linger=60.0, batch_size=1_000_000)
        silent(broker, protocol)
        for partition in range(30):
            out.send(bytes(500_000), partition=partition, timeout=0.2)
        begun = time.monotonic()
        with pytest.raises(TimedOut, match="not all records were acknowledged"):
            out.flush(0.2)
        assert time.monotonic() - begun < 0.2 + KEPT
        silent(broker, protocol, over=True)
        out.flush(SECONDS)


@pytest.mark.parametrize("protocol", LINGERING)
def test_a_record_that_a_queue_refuses_at_the_door_holds_no_room(client: Any, protocol: str) -> None:
    """Its topic has ended: who goes on trying is told so, and never that there is no room."""
    (out,) = producers(client, 1)
    key = out._key(0) if protocol != "rocketmq" else 0
    out._sender.fail([key], Closed("the topic has ended"))
    for _ in range(2 * BOUND // 1000):
        with pytest.raises(Closed, match="the topic has ended"):
            out.send(bytes(1000), partition=0, timeout=0.0)
    assert used(client) <= BOUND // 16, "what is taken ahead, at most"
