"""What RocketMQ's roles leave behind, ask again for, and refuse at the door; on the embedded broker."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import wireproto
from patience import quickest, until
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.devbroker.faults import Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import OptionError, TimedOut
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import ServerError

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
OPEN = Path("/proc/self/fd")


def of_topic(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """Requests for one topic, for a fault's `when`."""
    return lambda facts: facts["ext"].get("topic") == name


def sockets() -> int:
    """Of this process."""
    found = 0
    for one in OPEN.iterdir():
        try:
            found += str(one.readlink()).startswith("socket:")
        except OSError:  # it was the folder's own
            continue
    return found


@pytest.mark.skipif(not OPEN.is_dir(), reason="the system does not tell which descriptors are open")
def test_a_client_that_could_not_be_made_leaves_no_connection_behind(broker: DevBroker, faults: Faults) -> None:
    url = broker.url("rocketmq")
    wireproto.connect(url).close()
    until(lambda: gc.collect() or True)
    before = sockets()
    kept = []
    for _ in range(5):
        faults.error("GetBrokerClusterInfo", 1)
        with pytest.raises(ServerError) as refused:
            wireproto.connect(url, timeout=30.0)
        kept.append(refused)  # who keeps the error keeps what its traceback holds
    until(lambda: sockets() <= before, "connections of clients that could not be made", 20.0)


def test_a_member_that_was_closed_is_not_kept_by_its_timers(client: RocketClient, topic: str) -> None:
    consumer = client.consumer(topic, f"g-{topic}", heartbeat_interval=0.05, max_poll_interval=0.1)
    consumer.poll(0.0)
    gone = weakref.ref(consumer._assignment.member)
    consumer.close()
    del consumer
    until(lambda: gc.collect() is not None and gone() is None, "the member of a closed consumer is still there", 20.0)


def test_a_retry_topic_that_is_not_there_is_looked_for_again_and_read_when_it_is(
    faults: Faults, client: RocketClient, topic: str, seen: Recording
) -> None:
    """Sooner than the share is looked at otherwise, and at waits that grow."""
    retry = f"%RETRY%g-{topic}"
    faults.error("GetRouteInfoByTopic", 17, times=-1, when=of_topic(retry))
    with client.consumer(topic, f"g-{topic}", rebalance_interval=600.0) as consumer:
        assert (retry, 0) not in consumer._assignment.queues
        assert consumer.assignment == {(topic, 0)}
        looks = lambda: [one.at for one in seen.requests("GetRouteInfoByTopic") if one.message.topic == retry]  # noqa: E731
        before = len(looks())
        until(lambda: (consumer.poll(0.05), len(looks()) > before)[1])
        faults.clear()
        until(lambda: (consumer.poll(0.05), (retry, 0) in consumer._assignment.queues)[1])
        assert consumer.assignment == {(topic, 0)}, "it is no topic of the user's"
    assert looks()[-1] - looks()[before - 1] >= 0.7, "not at each poll"


@pytest.mark.parametrize("partition", [1, -1, 7])
def test_a_record_for_a_queue_that_there_is_not_is_refused_and_holds_nothing(
    client: RocketClient, topic: str, seen: Recording, partition: int
) -> None:
    with client.producer(topic) as out:
        sends: list[Callable[[], object]] = [
            lambda: out.send(b"x", partition=partition),
            lambda: out.send(b"x", key=b"k", partition=partition),
            lambda: out.send_batch(Columns.from_rows([b"x"]), partition=partition),
            lambda: out.send_batch(Columns.from_rows([b"a", b"b"], partitions=[0, partition])),
        ]
        for send in sends:
            with pytest.raises(OptionError, match=f"has no partition {partition}: it has 1") as caught:
                send()
            assert caught.value.topic == topic
        assert client.cluster.budget.used == 0
        assert out.send(b"y", partition=0).position(30.0).offset == 0
    assert len([one for one in seen.requests() if one.name.startswith("Send")]) == 1


def test_a_broker_that_is_silent_on_what_a_topic_is_is_asked_again_after_connect_timeout(
    faults: Faults, dial: Callable[..., RocketClient], topic: str, seen: Recording
) -> None:
    faults.drop("GetTopicConfig", times=-1)
    with dial(route_age=0.05, connect_timeout=0.3).producer(topic) as out:
        asked = [one.at for one in seen.wait("GetTopicConfig", 5, timeout=30.0)]
        gaps = [after - before for before, after in itertools.pairwise(asked[1:])]  # the first one is the opening's
        assert sorted(gaps)[len(gaps) // 2] >= 0.3 * 0.9, gaps  # one that came late shortens the gap behind it
        assert min(gaps) < 2.5, gaps
        assert out.send(b"x").position(30.0).offset == 0, "meanwhile records go"


def test_a_route_that_nobody_knows_any_more_is_waited_for_no_longer_than_connect_timeout(
    faults: Faults, dial: Callable[..., RocketClient], topic: str
) -> None:
    client = dial(connect_timeout=0.3)
    with client.producer(topic) as out:
        faults.drop("GetRouteInfoByTopic", times=-1, when=of_topic(topic))
        client.cluster.routes.forget(topic)

        def look() -> None:
            with pytest.raises(TimedOut):
                client.cluster.drive(out._routing.looking_up(), time.monotonic() + 60.0)

        assert 0.3 * 0.9 <= quickest(look, 2) < 2.5
        faults.clear()


def test_records_wait_for_company_no_longer_than_linger_says(client: RocketClient, topic: str) -> None:
    with client.producer(topic, linger=0.2) as out:

        def send() -> None:
            receipt = out.send(b"x")
            until(lambda: receipt.done)

        assert 0.2 * 0.9 <= quickest(send, 3) < 1.8


def test_routes_are_asked_for_as_json_that_anybody_reads(client: RocketClient, topic: str, seen: Recording) -> None:
    client.admin().describe_topic(topic)
    (asked,) = seen.requests("GetRouteInfoByTopic")
    assert (asked.message.topic, asked.message.accept_standard_json_only) == (topic, True)


@pytest.mark.parametrize("kind", ["consumer", "queue"])
def test_a_member_that_was_closed_is_not_kept(client: RocketClient, topic: str, kind: str) -> None:
    role: Any = getattr(client, kind)(topic, f"g-{topic}")
    if kind == "consumer":
        role.poll(0.1)
    else:
        role.receive(0.1)
    sharing, member = weakref.ref(role._assignment), weakref.ref(role._assignment.member)
    role.close()
    del role

    def gone() -> bool:
        gc.collect()
        return sharing() is None and member() is None

    until(gone, "it is kept", 10.0)
