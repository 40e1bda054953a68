"""What cannot be says so: roles, unknown topics, concurrent use, use after close, a forked child, wrong options."""

from __future__ import annotations

import os
import threading
import time
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest

import wireproto
from conformance.helpers import eventually, write
from conformance.seats import Seat
from wireproto._codec import Columns
from wireproto.errors import BrokerError, Closed, ConcurrentUse, Forked, OptionError, RoleUnsupported, ValueUnsupported
from wireproto.position import LATEST


@pytest.mark.parametrize("role", ["consumer", "queue", "tree"])
def test_a_role_that_is_not_there_names_the_nearest(seat: Seat, client: Any, topic: str, role: str) -> None:
    calls = {
        "consumer": lambda: client.consumer(topic, "g"),
        "queue": lambda: client.queue(topic, "g"),
        "tree": lambda: client.tree(),
    }
    if getattr(seat.features, role):
        calls[role]().close(10.0)
        return
    with pytest.raises(RoleUnsupported) as caught:
        calls[role]()
    nearest = seat.features.nearest[role]
    if nearest:
        assert nearest in str(caught.value.nearest)


@pytest.mark.parametrize("use", ["describe", "delete", "positions", "reader"])
def test_an_unknown_topic_is_the_brokers_own_error(seat: Seat, client: Any, use: str) -> None:
    name = "/no-such-queue" if seat.protocol == "zookeeper" else "no-such-topic"
    uses = {
        "describe": lambda: client.admin().describe_topic(name, timeout=10.0),
        "delete": lambda: client.admin().delete_topic(name, timeout=10.0),
        "positions": lambda: client.admin().positions(name, timeout=10.0),
        "reader": lambda: list(client.reader(name, stop=wireproto.LATEST)),
    }
    began = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        uses[use]()
    assert caught.value.code is not None
    assert caught.value.name
    assert time.monotonic() - began < 20.0


def test_producing_to_an_unknown_topic_fails(seat: Seat, client: Any) -> None:
    if seat.protocol == "zookeeper":
        pytest.skip("the queue recipe makes its path")
    with pytest.raises(BrokerError), client.producer("no-such-topic") as producer:
        producer.send(b"v", timeout=10.0).position(10.0)


def test_creating_what_exists_fails(client: Any, topic: str) -> None:
    with pytest.raises(BrokerError):
        client.admin().create_topic(topic, timeout=10.0)


def test_topics_come_and_go(client: Any, fresh: Any) -> None:
    name = fresh()
    admin = client.admin()
    eventually(lambda: name in admin.list_topics(), "the node that is asked has heard of it")
    assert admin.describe_topic(name).name == name
    again = f"{name}-2"
    admin.create_topic(again)
    admin.delete_topic(again)
    eventually(lambda: again not in admin.list_topics(), "the node that is asked has heard of its end")


def assert_one_at_a_time(role: Any) -> None:
    """One thread stays in `poll`; another that keeps asking meanwhile is refused."""
    over = threading.Event()

    def stay() -> None:
        while not over.is_set():
            try:
                role.poll(timeout=1.0)
            except ConcurrentUse:
                continue  # the other one was inside just then

    inside = threading.Thread(target=stay)
    inside.start()
    deadline = time.monotonic() + 30
    refused = False
    while time.monotonic() < deadline and not refused:
        try:
            role.poll(timeout=0.0)
        except ConcurrentUse:
            refused = True
    over.set()
    inside.join(10)
    assert refused
    assert not inside.is_alive()


def test_two_threads_in_one_reader(client: Any, topic: str) -> None:
    with client.reader(topic) as reader:
        assert_one_at_a_time(reader)
        assert reader.poll(timeout=0.1) is None, "the reader must stay usable"


def test_two_threads_in_one_consumer(seat: Seat, client: Any, topic: str, group: str) -> None:
    if not seat.features.consumer:
        pytest.skip("has no log consumer")
    with client.consumer(topic, group) as consumer:
        consumer.poll(timeout=1.0)
        assert_one_at_a_time(consumer)


def test_a_producer_is_shared_by_threads(client: Any, topic: str) -> None:
    from conformance.helpers import values

    with client.producer(topic) as producer:
        failures: list[BaseException] = []

        def send(name: int) -> None:
            try:
                for number in range(100):
                    producer.send(b"%d-%03d" % (name, number))
            except BaseException as why:
                failures.append(why)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.flush(60.0)
    assert not failures
    got = values(client, topic)
    assert len(got) == 400
    for name in range(4):
        mine = [value for value in got if value and value.startswith(b"%d-" % name)]
        assert mine == sorted(mine), "each thread's records stay in order"


def test_use_after_close(dial: Any, topic: str) -> None:
    client = dial()
    producer, reader, admin = client.producer(topic), client.reader(topic), client.admin()
    write(client, topic, [b"v"])
    client.close(10.0)
    client.close(10.0)  # once more does no harm
    for use in (
        lambda: producer.send(b"v").position(5.0),
        lambda: reader.poll(timeout=1.0),
        lambda: admin.list_topics(timeout=5.0),
        lambda: client.producer(topic).send(b"v"),
    ):
        with pytest.raises(Closed):
            use()


def test_a_forked_child_is_refused_and_the_parent_goes_on(client: Any, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(b"before").position(30.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            verdict = 1
            try:
                client.admin().list_topics(timeout=5.0)
            except Forked:
                try:
                    producer.send(b"child").position(5.0)
                except Forked:
                    verdict = 0
                except BaseException:
                    verdict = 3
            except BaseException:
                verdict = 2
            finally:
                os._exit(verdict)
        deadline = time.monotonic() + 30
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                pytest.fail("the child hung")
            time.sleep(0.05)
        assert os.waitstatus_to_exitcode(ended[1]) == 0, "1: no error, 2: another error than Forked, 3: the same for the producer"
        producer.send(b"after").position(30.0)
    from conformance.helpers import values

    assert values(client, topic) == [b"before", b"after"]


def test_unknown_options_are_refused(seat: Seat) -> None:
    with pytest.raises(OptionError) as caught:
        wireproto.connect(seat.url, no_such_option=1)
    assert "no_such_option" in str(caught.value)


def test_text_where_bytes_belong_is_refused(client: Any, topic: str) -> None:
    with client.producer(topic) as producer, pytest.raises((TypeError, ValueError)):
        producer.send("text")


@pytest.mark.parametrize("when", [1_795_353_112.5, datetime(2026, 11, 22, tzinfo=UTC), True, "1795353112000"])
def test_a_timestamp_that_is_no_whole_number_is_refused(client: Any, topic: str, when: Any) -> None:
    """Seconds as a float would be stored as a day of January 1970, and deleted by a broker that keeps records by time."""
    with client.producer(topic) as producer:
        with pytest.raises(ValueUnsupported):
            producer.send(b"x", timestamp=when)
        with pytest.raises(ValueUnsupported):
            producer.send_batch(Columns.from_rows([b"x"], timestamps=[when]))
    assert list(client.reader(topic, stop=LATEST)) == []
