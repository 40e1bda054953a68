"""Every blocking call keeps its timeout: measured against a peer that is silent, through the fault proxy."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import wireproto
from brokers import ports
from conformance.helpers import Stopwatch, poll_until, write
from conformance.seats import Seat
from wireproto import EARLIEST
from wireproto.errors import ConnectError, TimedOut, TransportError, WireprotoError
from wireproto.records import Batch

SLACK = 10.0  # a loaded machine; a missing timeout costs 30 s and more


@pytest.fixture
def led(seat: Seat, topic: str, dial: Any, fault_proxy: Any) -> Any:
    """A client whose every connection goes through the fault proxy; opened behind the topic, so that its server knows that too."""
    url, options = seat.through(fault_proxy)
    return dial(url, **options)


def timed(limit: float, call: Callable[[], Any], least: float | None = None) -> BaseException | None:
    """Run it; it must return or raise a typed error within limit + SLACK seconds, TimedOut not before its time: `least`, else limit."""
    error: BaseException | None = None
    with Stopwatch() as watch:
        try:
            call()
        except WireprotoError as why:
            error = why
    assert watch.seconds < limit + SLACK, f"took {watch.seconds:.1f} s of {limit} s"
    if isinstance(error, TimedOut):
        assert watch.seconds >= (limit if least is None else least), f"it gave up after {watch.seconds:.3f} s"
    return error


def silent(limit: float, call: Callable[[], Any]) -> None:
    """Run it; it must return nothing, after limit seconds and within SLACK more."""
    with Stopwatch() as watch:
        assert call() is None
    assert limit <= watch.seconds < limit + SLACK


def test_admin(led: Any, topic: str, fault_proxy: Any) -> None:
    admin = led.admin()
    assert topic in admin.list_topics()
    fault_proxy.stall()
    error = timed(1.0, lambda: admin.list_topics(timeout=1.0))
    assert isinstance(error, TimedOut)
    assert isinstance(error, TimeoutError)
    assert isinstance(timed(0.5, lambda: admin.describe_topic(topic, timeout=0.5)), TimedOut)
    fault_proxy.heal()
    assert topic in admin.list_topics(timeout=30.0), "the connection must be of use again"


def test_receipt_and_flush(led: Any, topic: str, fault_proxy: Any) -> None:
    producer = led.producer(topic)
    producer.send(b"first").position(30.0)
    fault_proxy.stall("down")
    receipt = producer.send(b"second")
    assert isinstance(timed(0.5, lambda: receipt.position(0.5)), TimedOut)
    assert isinstance(timed(0.5, lambda: producer.flush(0.5)), TimedOut)
    assert not receipt.done
    fault_proxy.heal()
    producer.flush(60.0)
    assert receipt.position(1.0) is not None
    producer.close(10.0)


def test_poll_returns_none_in_time(led: Any, topic: str, fault_proxy: Any) -> None:
    reader = led.reader(topic)
    for limit in (0.0, 0.2, 1.0):
        silent(limit, partial(reader.poll, timeout=limit))
    fault_proxy.stall()
    with Stopwatch() as watch:
        assert not reader.poll(timeout=0.5)
    assert watch.seconds < 0.5 + SLACK
    with Stopwatch() as watch, contextlib.suppress(TimedOut):
        reader.close(1.0)
    assert watch.seconds < 1.0 + SLACK


def until_it_comes(call: Callable[[], Any]) -> list[bytes]:
    """What short calls bring, until something does."""
    begun = time.monotonic()
    while time.monotonic() < begun + 60.0:
        found = call()
        if found is not None:
            return [record.value for record in found] if isinstance(found, Batch) else [found.value]
    return []


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_calls_shorter_than_a_connection_takes(
    seat: Seat, led: Any, client: Any, topic: str, group: str, fault_proxy: Any, role: str
) -> None:
    if not getattr(seat.features, role, True):
        pytest.skip(f"has no {role}")
    fault_proxy.delay(0.05)  # an answer takes 0.1 s, a connection several of them
    opened = {
        "reader": lambda: led.reader(topic),
        "consumer": lambda: led.consumer(topic, group, start=EARLIEST),
        "queue": lambda: led.queue(topic, group),
    }[role]()
    write(client, topic, [b"one"])
    brief = 0.15 if seat.real is None else 0.3  # what a real broker itself takes comes on top
    call = partial(opened.receive if role == "queue" else opened.poll, timeout=brief)
    assert until_it_comes(call) == [b"one"]
    fault_proxy.cut()
    write(client, topic, [b"two"])
    found = [b"one"]
    while found == [b"one"]:  # a queue's first one was not acknowledged
        found = until_it_comes(call)
    assert found[-1:] == [b"two"]
    fault_proxy.heal()
    opened.close(10.0)


def test_commit(seat: Seat, led: Any, client: Any, topic: str, group: str, fault_proxy: Any) -> None:
    if not seat.features.consumer:
        pytest.skip("has no log consumer")
    write(client, topic, [b"v"])
    consumer = led.consumer(topic, group)
    poll_until(consumer, lambda found: len(found) == 1)
    fault_proxy.stall()
    assert isinstance(timed(0.5, lambda: consumer.commit(timeout=0.5)), TimedOut)
    fault_proxy.heal()
    consumer.commit(timeout=60.0)
    consumer.close(10.0)


def test_queue_receive(seat: Seat, led: Any, topic: str, group: str, fault_proxy: Any) -> None:
    if not seat.features.queue:
        pytest.skip("has no queue consumer")
    queue = led.queue(topic, group)
    silent(0.3, partial(queue.receive, timeout=0.3))
    fault_proxy.stall()
    silent(0.5, partial(queue.receive, timeout=0.5))
    fault_proxy.heal()
    queue.close(10.0)


def test_close_keeps_its_timeout_before_a_silent_peer(led: Any, topic: str, fault_proxy: Any) -> None:
    producer = led.producer(topic)
    producer.send(b"first").position(30.0)
    fault_proxy.stall()
    producer.send(b"never answered")
    with Stopwatch() as watch:
        with contextlib.suppress(WireprotoError):  # it may say that a record is not known to have arrived
            producer.close(1.0)
        led.close(1.0)
    assert watch.seconds < 2.0 + SLACK


def test_close_is_prompt(dial: Any, client: Any, topic: str) -> None:
    """The better of two counts: a loaded machine spoils one."""
    took: list[float] = []
    for _ in range(2):
        other = dial()
        write(other, topic, [b"v"])
        with Stopwatch() as watch:
            reader = other.reader(topic)
            reader.poll(timeout=0.1)
            reader.close()
            other.close()
        took.append(watch.seconds)
    assert min(took) < 5.0, took


def _use(url: str, limit: float) -> None:
    """Connect and do one thing, all within the limit: where a client connects is its own affair."""
    client = wireproto.connect(url, timeout=limit)
    try:
        client.admin().list_topics(timeout=limit)
    finally:
        client.close(1.0)


def test_connect_to_a_silent_port(seat: Seat) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert isinstance(timed(3.0, lambda: _use(f"{seat.protocol}://127.0.0.1:{port}", 1.0), 1.0), (TimedOut, ConnectError))


def test_connect_to_a_closed_port_names_it(seat: Seat) -> None:
    port = ports.take()  # nobody's, also while others look for a free one
    error = timed(6.0, lambda: _use(f"{seat.protocol}://127.0.0.1:{port}", 3.0))
    ports.release(port)
    assert isinstance(error, TransportError)
    assert f"127.0.0.1:{port}" in str(error)
    assert "\n" not in str(error)


def test_connect_to_a_port_that_speaks_something_else(seat: Seat) -> None:
    """An HTTP server answers 400 and closes: one clear line within the timeout, no decoding of its words as lengths."""
    import threading

    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            while True:
                try:
                    sock, _ = other.accept()
                except OSError:
                    return
                with sock:
                    sock.settimeout(2.0)
                    try:
                        sock.recv(1024)
                        sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                    except OSError:
                        pass

        threading.Thread(target=serve, daemon=True).start()
        port = other.getsockname()[1]
        error = timed(6.0, lambda: _use(f"{seat.protocol}://127.0.0.1:{port}", 3.0))
        assert isinstance(error, TransportError), repr(error)
        assert f"127.0.0.1:{port}" in str(error)
        assert "\n" not in str(error)
        other.shutdown(socket.SHUT_RDWR)


def test_a_slow_peer_is_waited_for(led: Any, topic: str, fault_proxy: Any) -> None:
    led.admin().list_topics()
    fault_proxy.delay(0.2)
    began = time.monotonic()
    assert topic in led.admin().list_topics(timeout=30.0)
    assert time.monotonic() - began >= 0.2
    write(led, topic, [b"slow"])
