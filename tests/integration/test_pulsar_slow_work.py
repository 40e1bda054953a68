"""A member that works for long on one batch, of records too large for all of them to be fetched ahead, keeps what it has.

The broker asks each few seconds whether its client lives, and gives one up that is silent for as many: what the client does not read for
want of room must not keep it from answering.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from patience import LONG
from pulsar_raw import Place, Raw

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-curt"], indirect=True)
SIZE, COUNT = 100_000, 300
ASKED_TWICE = 2
"""Silent clients that the broker gives up while the member works, one behind the other: as many times two keepalives."""
_numbers = itertools.count()


def given_up(place: Place) -> None:
    """As long as the broker bears with a client that says nothing."""
    assert Raw(place, pong=False).ended.wait(LONG)


def test_a_member_at_work_for_long_is_not_given_up(broker: Pulsar) -> None:
    """Two of them, beside each other: one has room for a part of what there is, and one for all of it."""
    place = Place(f"127.0.0.1:{broker.binary_port}", broker.admin)
    with ExitStack() as ends:
        works = [Work(broker, memory, ends) for memory in (4 << 20, 64 << 20)]
        for work in works:
            work.takes()
            assert len(work.found) < COUNT
        for _ in range(ASKED_TWICE):
            given_up(place)
            for work in works:
                assert work.waiting.poll(0.0) is None
        for work in works:
            while len(work.found) < COUNT:
                work.takes()
            assert work.found == work.sent
            work.member.commit()  # else it raises Revoked
            assert work.member.lag() == dict.fromkeys(work.member.assignment, 0)
    place.close()


class Work:
    """A topic, the member that works on it, and one that would take over from it."""

    def __init__(self, broker: Pulsar, memory: int, ends: ExitStack) -> None:
        topic = f"slow-{next(_numbers)}"
        client: Any = ends.enter_context(wireproto.connect(broker.url, receive_memory=memory))
        other: Any = ends.enter_context(wireproto.connect(broker.url))
        client.admin().create_topic(topic)
        self.sent = [b"%d" % number + b"x" * SIZE for number in range(COUNT)]
        self.found: list[bytes] = []
        with client.producer(topic, batching=False) as out:
            for value in self.sent:
                out.send(value)
        self.member = ends.enter_context(client.consumer(topic, "g", consumer_name="a", priority=0))
        self.waiting = ends.enter_context(other.consumer(topic, "g", consumer_name="b", priority=1))

    def takes(self) -> None:
        """Take one more batch."""
        batch = self.member.poll(30.0)
        assert batch is not None
        self.found += batch.values()
