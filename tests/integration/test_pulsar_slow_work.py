"""A member that works for long on one batch, of records too large for all of them to be fetched ahead, keeps what it has.

The broker asks each few seconds whether its client lives, and gives one up that is silent for as many: what the client does not read for
want of room must not keep it from answering.
"""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("memory", [4 << 20, 64 << 20], ids=["less than there is", "all of it"])
def test_a_member_at_work_for_long_is_not_given_up(broker: Pulsar, memory: int) -> None:
    topic, place = f"slow-{next(_numbers)}", Place(f"127.0.0.1:{broker.binary_port}", broker.admin)
    with wireproto.connect(broker.url, receive_memory=memory) as client, wireproto.connect(broker.url) as other:
        client.admin().create_topic(topic)
        sent = [b"%d" % number + b"x" * SIZE for number in range(COUNT)]
        with client.producer(topic, batching=False) as out:
            for value in sent:
                out.send(value)
        with (
            client.consumer(topic, "g", consumer_name="a", priority=0) as member,
            other.consumer(topic, "g", consumer_name="b", priority=1) as waiting,
        ):
            found: list[Any] = []
            while len(found) < COUNT:
                batch = member.poll(30.0)
                assert batch is not None
                found += batch.values()
                if len(found) == len(batch):
                    for _ in range(ASKED_TWICE):
                        given_up(place)
                        assert waiting.poll(0.0) is None
            assert found == sent
            member.commit()  # else it raises Revoked
            assert member.lag() == dict.fromkeys(member.assignment, 0)
    place.close()
