"""A signal handler that raises in the middle of a close: whatever it breaks into, the next close makes good. What an auto_commit consumer
has handed out is committed, and its group left; what a worker has in hand comes again."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wireproto
from interrupting import Signal
from patience import LONG, soon
from wireproto.devbroker import DevBroker

VALUES = [b"%d" % number for number in range(4)]
TOPIC = "t"


@contextmanager
def filled(protocol: str) -> Iterator[Any]:
    """A client of a broker whose topic holds the values, each in a batch of its own."""
    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol)) as opened:
        opened.admin().create_topic(TOPIC, partitions=1)
        with opened.producer(TOPIC) as out:
            for value in VALUES:
                out.send(value).position(10.0)
        yield opened


@pytest.fixture(scope="module", params=["kafka", "pulsar", "rocketmq"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with filled(request.param) as opened:
        yield opened


@pytest.fixture(scope="module", params=["pulsar", "rocketmq", "zookeeper"])
def other(request: pytest.FixtureRequest) -> Iterator[Any]:
    with filled(request.param) as opened:
        yield opened


def handed_out(log: Any) -> int:
    """Records of the first batch that comes."""
    deadline = soon()
    while (batch := log.poll(1.0)) is None:
        assert deadline > time.monotonic()
    return len(batch)


def committed(client: Any, group: str) -> int:
    """Records that the group has done."""
    place = client.admin().group_positions(group, TOPIC)[TOPIC, 0]
    return int(place.entry + 1 if client.protocol == "pulsar" else place.offset)


def members(client: Any, group: str) -> int:
    topic = {"topic": TOPIC} if client.protocol == "pulsar" else {}
    return len(client.admin().describe_group(group, **topic).members)


def test_a_consumer_s_close_broken_into_anywhere_is_made_good_by_the_next(client: Any) -> None:
    for number in itertools.count(1):
        group, signal = f"c{number}", Signal(number)
        log = client.consumer(TOPIC, group, auto_commit=True, auto_commit_interval=3600.0)
        done = handed_out(log)
        signal.within(log.close)
        log.close()
        assert committed(client, group) == done, f"after a signal at {signal.where}"
        assert members(client, group) == 0, f"after a signal at {signal.where}"
        if not signal.came:
            break
    assert number > 20


def test_a_worker_s_close_broken_into_anywhere_is_made_good_by_the_next(other: Any) -> None:
    """What it has in hand comes to the next worker, and the group is left where there are any."""
    for number in itertools.count(1):
        group, signal = f"w{number}", Signal(number)
        grouped = {} if other.protocol == "zookeeper" else {"group": group}
        worker = other.queue(TOPIC, **grouped)
        assert worker.receive(LONG) is not None
        signal.within(worker.close)
        worker.close()
        if grouped:
            assert members(other, group) == 0, f"after a signal at {signal.where}"
        else:
            assert other.tree().children("/t/taken")[0] == [], f"after a signal at {signal.where}"
        if not signal.came:
            break
    assert number > 20


@pytest.mark.parametrize("protocol", ["kafka", "pulsar", "rocketmq", "zookeeper"])
def test_a_client_s_close_broken_into_anywhere_keeps_no_other_out(protocol: str) -> None:
    with DevBroker([protocol]) as broker:
        for number in itertools.count(1):
            client: Any = wireproto.connect(broker.url(protocol))
            client.producer(TOPIC) if protocol == "zookeeper" else client.admin()
            signal = Signal(number)
            signal.within(client.close)
            thread = threading.Thread(target=client.close, args=(LONG,), daemon=True)
            thread.start()
            thread.join(LONG)
            assert not thread.is_alive(), f"after a signal at {signal.where}"
            assert client.closed, f"after a signal at {signal.where}"
            if not signal.came:
                break
    assert number > 5
