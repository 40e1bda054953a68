"""A signal handler raises inside a role's call, wherever: what its caller did not get comes with the next call, and no commit covers it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from patience import until
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.consumer import RocketConsumer
from wireproto.rocketmq.fetch import Fetcher
from wireproto.rocketmq.member import Member
from wireproto.rocketmq.queue import Prefix, RocketQueueConsumer

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
RECORDS = 120
_numbers = itertools.count()


class Struck(BaseException):
    """What the handler raises."""


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"interrupted-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    with client.producer(name) as out:
        for number in range(RECORDS):
            out.send(b"%d" % number, partition=number % 2)
    return name


class Striking:
    """A method in whose calls a handler raises, ahead of it or behind it: while `armed`, at every seventh, for a poll makes several."""

    def __init__(self, patch: pytest.MonkeyPatch, of: type, name: str, *, behind: bool) -> None:
        self.armed, self.struck, calls = False, 0, itertools.count()
        function = getattr(of, name)

        def called(*args: Any, **how: Any) -> Any:
            strikes = self.armed and next(calls) % 7 == 0
            if not strikes or behind:
                found = function(*args, **how)
            if strikes:
                self.struck += 1
                raise Struck
            return found

        patch.setattr(of, name, called)

    def __call__(self, call: Any) -> Any:
        self.armed = True
        try:
            return call(0.2)
        except Struck:
            return None
        finally:
            self.armed = False


@pytest.mark.parametrize(
    ("of", "name", "behind"),
    [
        (RocketConsumer, "_hand", False),
        (RocketConsumer, "_hand", True),
        (RocketConsumer, "_forget", True),
        (RocketConsumer, "_begin_poll", True),
        (Fetcher, "poll", True),
        (Member, "polled", True),
    ],
)
def test_a_consumer_s_batch_that_was_not_returned_comes_again_and_is_not_committed(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch, of: type, name: str, behind: bool
) -> None:
    striking = Striking(monkeypatch, of, name, behind=behind)
    found: dict[int, list[int]] = {0: [], 1: []}
    with client.consumer(topic, f"group-{topic}", start=EARLIEST, batch_bytes=300) as consumer:

        def done() -> bool:
            batch = striking(consumer.poll)
            if batch is not None:
                found[batch.partition] += [int(value) for value in batch.values()]
            consumer.commit()
            committed = {key[1]: place.offset for key, place in consumer.committed().items()}
            assert all(offset <= len(found[partition]) for partition, offset in committed.items())
            return sum(map(len, found.values())) >= RECORDS

        until(done)
    assert found == {partition: list(range(partition, RECORDS, 2)) for partition in (0, 1)}
    assert striking.struck


@pytest.mark.parametrize(
    ("of", "name", "behind"),
    [
        (RocketQueueConsumer, "_at_hand", True),
        (RocketQueueConsumer, "_forget", True),
        (RocketQueueConsumer, "_unpack", False),
        (RocketQueueConsumer, "_unpack", True),
        (Prefix, "opened", True),
        (Prefix, "advance", False),
        (Fetcher, "drive", True),
        (Member, "polled", True),
    ],
)
def test_a_message_that_was_not_returned_is_the_next_one(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch, of: type, name: str, behind: bool
) -> None:
    striking = Striking(monkeypatch, of, name, behind=behind)
    found: dict[int, list[int]] = {0: [], 1: []}
    group = f"group-{topic}"
    with client.queue(topic, group, batch_bytes=300) as queue:

        def done() -> bool:
            delivery = striking(queue.receive)
            if delivery is not None:
                value = int(delivery.record.value)
                found[value % 2].append(value)
                delivery.ack()
            return sum(map(len, found.values())) >= RECORDS

        until(done)
    assert found == {partition: list(range(partition, RECORDS, 2)) for partition in (0, 1)}
    assert striking.struck
    assert {key[1]: place.offset for key, place in client.admin().group_positions(group, topic).items()} == {
        0: RECORDS // 2,
        1: RECORDS // 2,
    }


def test_a_reader_s_batch_that_was_not_returned_comes_again(client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    striking = Striking(monkeypatch, Fetcher, "poll", behind=True)
    found: dict[int, list[int]] = {0: [], 1: []}
    with client.reader(topic, stop=LATEST, batch_bytes=300) as reader:
        while not reader.done:
            batch = striking(reader.poll)
            if batch is not None:
                found[batch.partition] += [int(value) for value in batch.values()]
    assert found == {partition: list(range(partition, RECORDS, 2)) for partition in (0, 1)}
    assert striking.struck
