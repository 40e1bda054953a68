"""A broker's fault that no client can mend: a failover subscription set elsewhere as its active consumer goes has none afterwards.

`resetcursor` closes the active consumer, which leaves the dispatcher in the moment in which this chooses no next one (4.2.4:
AbstractDispatcherSingleActiveConsumer.removeConsumer, while `closeFuture` is set). It expects that consumer to come again; where that
ends just then, who waits beside it is never told, until somebody joins or leaves. The guide tells of it, and the campaign keeps the two
apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from brokers.plugin import start
from patience import until
from pulsar_raw import Place, Sender, Worker
from wireproto.pulsar import PulsarApi_pb2 as api

REAL = "pulsar-4.2.4-curt"
FAILOVER = api.CommandSubscribe.Failover


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    broker: Any = start(request.config, REAL)
    found = Place(f"127.0.0.1:{broker.binary_port}", broker.admin)
    yield found
    found.close()


@pytest.mark.broker(REAL)
def test_who_waits_beside_an_active_consumer_that_a_reset_ends_is_not_told(place: Place) -> None:
    topic = place.make()
    out = Sender(place, topic)
    for number in range(3):
        out.send(b"%d" % number)
    pair = [Worker(place, topic, FAILOVER, name) for name in ("a", "b")]
    until(lambda: sorted(one.told[-1:] for one in pair) == [[False], [True]])  # who came first may have been the active one before
    waiting, active = sorted(pair, key=lambda one: one.told[-1])
    until(lambda: len(active.got) >= 3)
    before = len(waiting.got)
    place.call("POST", topic.replace("://", "/") + "/subscription/g/resetcursor", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})
    until(lambda: active.link.named("CommandCloseConsumer"))
    active.link.close()
    pings = len(waiting.link.named("CommandPing"))
    until(lambda: len(waiting.link.named("CommandPing")) >= pings + 2)
    assert (waiting.told[-1], len(waiting.got)) == (False, before)
    assert place.shares(topic)["consumers"][0]["availablePermits"] == 1000 - before
    comer = Worker(place, topic, FAILOVER, "c")
    until(lambda: sorted([*waiting.got[before:], *comer.got]) == [0, 1, 2])
