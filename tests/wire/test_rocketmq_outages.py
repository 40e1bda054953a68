"""One broker or name server that is silent, or gone, holds up what hangs on it and nothing else: members read on, and come back to it."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers.proxy import FaultProxy
from patience import until
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut, TransportError, WireprotoError
from wireproto.position import LATEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import ServerError, ServiceNotAvailable, SystemBusy, TopicNotExist
from wireproto.rocketmq.messages import UpdateAndCreateTopicRequest
from wireproto.rocketmq.route import Queue

_numbers = itertools.count()
BRISK = {"rebalance_interval": 0.3, "heartbeat_interval": 0.3}
NAMES = "GetRouteInfoByTopic"


class Cluster:
    """Masters "calm" and "dev"; a proxy before the name server, and one before "calm", which is asked first: it may be silent or refuse."""

    def __init__(self, first: DevBroker, other: DevBroker, names: FaultProxy, second: FaultProxy) -> None:
        self.first, self.other, self.names, self.second = first, other, names, second
        address = other.address("rocketmq", "broker")
        self.url = f"rocketmq://{names.through(first.address('rocketmq'))}"
        self.map = {address: second.through(address)}
        first.call("rocketmq", "register", "calm", address)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with (
        DevBroker(["rocketmq"], auto_create=False) as first,
        DevBroker(["rocketmq"], auto_create=False) as other,
        FaultProxy() as names,
        FaultProxy() as second,
    ):
        yield Cluster(first, other, names, second)


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    running.names.heal()
    running.second.heal()
    running.first.faults("rocketmq").clear()
    running.other.faults("rocketmq").clear()


@pytest.fixture
def dial(cluster: Cluster) -> Iterator[Callable[..., RocketClient]]:
    opened: list[RocketClient] = []

    def dial(**options: Any) -> RocketClient:
        opened.append(wireproto.connect(cluster.url, **{"address_map": cluster.map, "route_age": 0.3, **options}))
        return opened[-1]

    yield dial
    cluster.names.heal()
    cluster.second.heal()
    for client in opened:
        client.close(5.0)


@pytest.fixture
def topic(cluster: Cluster, dial: Callable[..., RocketClient]) -> str:
    """Partitions 0 and 1 are of "calm", 2 and 3 of "dev"."""
    name = f"outages-{next(_numbers)}"
    dial().admin().create_topic(name, partitions=4)
    return name


def put(client: RocketClient, topic: str, values: range, partitions: tuple[int, ...]) -> list[bytes]:
    with client.producer(topic) as out:
        for at, n in enumerate(values):
            out.send(b"%d" % n, partition=partitions[at % len(partitions)]).position(20.0)
    return sorted(b"%d" % n for n in values)


def direct(cluster: Cluster) -> RocketClient:
    """A writer that no proxy is before."""
    return wireproto.connect(cluster.first.url("rocketmq"))


class Polled:
    """A consumer or a reader, and what it has handed out, with the longest that a poll took beyond its timeout."""

    def __init__(self, role: Any, timeout: float = 0.2) -> None:
        self.role, self.timeout, self.found = role, timeout, []
        self.late = 0.0

    def until(self, wanted: list[bytes], patience: float = 60.0) -> None:
        deadline = time.monotonic() + patience
        while not set(wanted) <= set(self.found):
            assert time.monotonic() < deadline, f"missing {sorted({*wanted} - {*self.found})[:8]}"
            self.step()

    def step(self) -> None:
        began = time.monotonic()
        if hasattr(self.role, "receive"):
            delivery = self.role.receive(self.timeout)
            if delivery is not None:
                self.found.append(delivery.value)
                delivery.ack()
        else:
            batch = self.role.poll(self.timeout)
            self.found += batch.values() if batch is not None else []
        self.late = max(self.late, time.monotonic() - began - self.timeout)


def member(client: RocketClient, topic: str, role: str, **options: Any) -> Any:
    make = client.consumer if role == "consumer" else client.queue
    return make(topic, f"g-{topic}", **{**BRISK, **options})


@pytest.mark.parametrize("role", ["consumer", "queue"])
@pytest.mark.parametrize("how", ["refuse", "stall", "unknown"])
def test_members_and_producers_outlive_their_name_servers(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, how: str, role: str
) -> None:
    """Gone, silent, or started anew and empty."""
    client, seen = dial(), cluster.first.record("rocketmq")
    with client.producer(topic) as out, member(client, topic, role) as consumer, direct(cluster) as writer:
        polled = Polled(consumer)
        polled.until(put(writer, topic, range(20), (0, 1, 2, 3)))
        if how == "unknown":
            cluster.first.faults("rocketmq").error(NAMES, TopicNotExist.code, times=-1)
        else:
            getattr(cluster.names, how)()
        wanted = []
        for n in range(20, 80):
            out.send(b"%d" % n, partition=n % 4).position(20.0)
            wanted.append(b"%d" % n)
            polled.step()
        beats = len(seen.requests("HeartBeat"))
        polled.until(wanted)
        if role == "consumer":
            consumer.commit()
            assert {place.offset for place in consumer.committed().values()} == {20}
        seen.wait("HeartBeat", beats + 3, timeout=30.0)
        cluster.names.heal()
        cluster.first.faults("rocketmq").clear()
        polled.until([out.send(b"last", partition=2).position(20.0) and b"last"])


@pytest.mark.parametrize("role", ["consumer", "queue"])
@pytest.mark.parametrize("how", ["refuse", "stall"])
def test_a_broker_that_is_away_holds_up_its_own_queues_alone(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, how: str, role: str
) -> None:
    client = dial(request_timeout=2.0, connect_timeout=2.0)
    with member(client, topic, role) as consumer, direct(cluster) as writer:
        polled = Polled(consumer)
        polled.until(put(writer, topic, range(20), (0, 1, 2, 3)))
        if role == "consumer":
            consumer.commit()
        getattr(cluster.second, how)()
        theirs = put(writer, topic, range(1000, 1010), (0, 1))
        began, wanted = time.monotonic(), []
        while time.monotonic() - began < 6.0:  # longer than a broker is left alone for
            wanted += put(writer, topic, range(20 + len(wanted), 24 + len(wanted)), (2, 3))
            polled.until(wanted, 20.0)
            time.sleep(0.1)  # so some fifty times, and not as often as a processor can
        if role == "consumer":
            with pytest.raises((TimedOut, TransportError)):
                consumer.commit(writer.admin().positions(topic), timeout=3.0)
            committed = writer.admin().group_positions(f"g-{topic}", topic)
            assert committed[topic, 2].offset == 5 + len(wanted) // 2, "what is the other broker's is committed"
            assert committed[topic, 0].offset == 5
        cluster.second.heal()
        polled.until(theirs)


@pytest.mark.parametrize("how", ["refuse", "stall"])
def test_a_survivor_takes_what_it_can_and_a_new_member_opens(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, how: str
) -> None:
    """Another member leaves while a broker is away: what was its is read, that broker's queues when it is back."""
    client = dial(request_timeout=2.0, connect_timeout=2.0)
    leaving, staying = member(client, topic, "consumer"), member(client, topic, "consumer")
    with direct(cluster) as writer, staying:
        both = [Polled(leaving), Polled(staying)]
        wanted = put(writer, topic, range(20), (0, 1, 2, 3))
        deadline = time.monotonic() + 60
        while not (leaving.assignment and staying.assignment and {*wanted} <= {*both[0].found, *both[1].found}):
            assert time.monotonic() < deadline
            for one in both:
                one.step()
        leaving.commit()
        staying.commit()
        getattr(cluster.second, how)()
        threading.Thread(target=leaving.close, args=(3.0,)).start()
        ours = put(writer, topic, range(20, 30), (2, 3))
        theirs = put(writer, topic, range(30, 40), (0, 1))
        both[1].until(ours)
        with dial(request_timeout=2.0, connect_timeout=2.0).consumer(topic, f"h-{topic}", start=LATEST, **BRISK) as new:
            more = put(writer, topic, range(40, 50), (2, 3))
            late = put(writer, topic, range(50, 60), (0, 1))
            fresh = Polled(new)
            fresh.until(more)
            both[1].until(more)
            cluster.second.heal()
            both[1].until(theirs + late)
            fresh.until(late)
            assert {*fresh.found} <= {*more, *late}, "what was written before it began is not its, also where the broker was away then"


@pytest.mark.parametrize("role", ["consumer", "queue"])
def test_a_broker_that_is_known_by_its_slave_alone_holds_up_its_own_queues_alone(role: str) -> None:
    """Its route tells that it is there, and no master that could be asked; a member leaves, and another one opens meanwhile."""
    options = {"auto_create": False}
    with (
        DevBroker(["rocketmq"], nodes={"rocketmq.slaves": 1}, **options) as first,
        DevBroker(["rocketmq"], **options) as calm,
        wireproto.connect(first.url("rocketmq"), route_age=0.3, request_timeout=2.0, connect_timeout=2.0) as client,
    ):
        first.call("rocketmq", "register", "calm", calm.address("rocketmq", "broker"))
        client.admin().create_topic("t", partitions=4)
        with member(client, "t", role) as staying:
            with member(client, "t", "consumer") as leaving:
                before = Polled(staying, 0.05)
                until(lambda: (leaving.poll(0.05), before.step(), leaving.assignment)[2])
                first.pause("rocketmq", "broker")
                until(lambda: {queue.broker: queue.address for queue in routed(client, "t")}["dev"] is None)
            polled = Polled(staying)
            polled.until(put(client, "t", range(8), (0, 1)))
            with client.consumer("t", "another", start=LATEST, **BRISK) as another:
                more = put(client, "t", range(20, 28), (0, 1))
                Polled(another).until(more)
                polled.until(more)
            first.resume("rocketmq", "broker")
            polled.until(put(client, "t", range(100, 108), (2, 3)))


def routed(client: RocketClient, topic: str) -> tuple[Queue, ...]:
    """As the name server tells now."""
    return client.cluster.route(topic, client.deadline(10.0), fresh=True).queues


BUSY = pytest.mark.parametrize("code", [SystemBusy.code, ServiceNotAvailable.code, ServerError.code])


def shared(client: RocketClient, topic: str, **options: Any) -> tuple[Any, Any]:
    """Two members that have a broker's queues each: who is to leave, with those of "calm", and who stays."""
    both = member(client, topic, "consumer", **options), member(client, topic, "consumer", **options)
    until(lambda: [one.poll(0.05) for one in both] and all(len(one.assignment) == 2 for one in both))
    return both if (topic, 0) in both[0].assignment else both[::-1]


@BUSY
@pytest.mark.parametrize("asked", ["QueryConsumerOffset", "HeartBeat"])
def test_a_broker_that_refuses_for_a_while_holds_up_its_own_queues_alone(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, asked: str, code: int
) -> None:
    """Where queues begin, and whom it lists, when another member has left."""
    leaving, staying = shared(dial(request_timeout=1.0), topic, rebalance_interval=1.0)  # SYSTEM_ERROR is told at the fifth time
    with direct(cluster) as writer, staying:
        refused = cluster.other.faults("rocketmq")
        refused.error(asked, code, times=-1)
        cluster.other.kick("rocketmq")
        leaving.close()
        polled = Polled(staying)
        polled.until(put(writer, topic, range(10), (2, 3)))
        theirs = put(writer, topic, range(100, 110), (0, 1))
        seen = refused.seen(asked)
        while refused.seen(asked) < seen + 2:
            polled.step()
        refused.clear()
        polled.until(theirs)
        assert len(staying.assignment) == 4


@BUSY
def test_an_automatic_commit_that_is_refused_for_a_while_is_made_up_for(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, code: int
) -> None:
    refused = cluster.other.faults("rocketmq")
    with (
        direct(cluster) as writer,
        member(dial(request_timeout=1.0), topic, "consumer", auto_commit=True, auto_commit_interval=0.5) as consumer,
    ):  # SYSTEM_ERROR is told at the fifth commit that fails so: not before all is read
        polled = Polled(consumer, 0.05)
        refused.error("UpdateConsumerOffset", code, times=-1)
        seen = refused.seen("UpdateConsumerOffset")
        polled.until(put(writer, topic, range(20), (0, 1, 2, 3)))
        while refused.seen("UpdateConsumerOffset") < seen + 3:
            polled.step()
        refused.clear()

        def committed() -> bool:
            polled.step()
            places = writer.admin().group_positions(f"g-{topic}", topic)
            return [places[topic, partition].offset for partition in range(4) if (topic, partition) in places] == [5, 5, 5, 5]

        until(committed)


@BUSY
def test_a_place_whose_commit_is_refused_for_a_while_is_gone_to_in_the_end(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, code: int
) -> None:
    """Where an administrator has set the group: nothing is handed out before the place is committed."""
    refused = cluster.other.faults("rocketmq")
    with direct(cluster) as writer, member(dial(request_timeout=1.0), topic, "consumer") as consumer:
        polled = Polled(consumer, 0.05)
        polled.until(put(writer, topic, range(20), (0, 1, 2, 3)))
        consumer.commit()
        polled.found.clear()
        refused.error("UpdateConsumerOffset", code, times=-1)
        seen = refused.seen("UpdateConsumerOffset")
        consumer._assignment.member.reset({(topic, "calm", 0): 2, (topic, "dev", 0): 3})
        polled.until([b"14", b"18"])
        while refused.seen("UpdateConsumerOffset") < seen + 2:
            polled.step()
        assert sorted(polled.found) == [b"14", b"18"], "the other broker's queue has gone on, this one's stands"
        refused.clear()
        polled.until([b"8", b"12", b"16"])


def test_a_refusal_that_lasts_is_told(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    """Once in `recovery_timeout`; other queues are read on behind it."""
    leaving, staying = shared(dial(request_timeout=1.0), topic, recovery_timeout=1.0)
    with direct(cluster) as writer, staying:
        cluster.other.faults("rocketmq").error("QueryConsumerOffset", SystemBusy.code, times=-1)
        leaving.close()
        polled = Polled(staying)
        with pytest.raises(SystemBusy):
            polled.until([b"never"])
        polled.until(put(writer, topic, range(10), (2, 3)))


def test_a_refusal_that_hardly_passes_is_told_soon(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    """SYSTEM_ERROR may be anything: a few tries, though `recovery_timeout` is long."""
    leaving, staying = shared(dial(request_timeout=1.0), topic, recovery_timeout=600.0)
    refused = cluster.other.faults("rocketmq")
    with staying:
        refused.error("QueryConsumerOffset", ServerError.code, times=-1)
        before = refused.seen("QueryConsumerOffset")
        leaving.close()
        with pytest.raises(ServerError):
            Polled(staying).until([b"never"])
        assert refused.seen("QueryConsumerOffset") - before == 15, "two queues and the retry topic's, five times"


@BUSY
def test_a_member_opens_where_a_broker_refuses_for_a_while(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, code: int
) -> None:
    refused = cluster.other.faults("rocketmq")
    with direct(cluster) as writer:
        put(writer, topic, range(4), (0, 1, 2, 3))
        for name in ("QueryConsumerOffset", "HeartBeat", "GetConsumerListByGroup"):
            refused.error(name, code, times=-1)
        brisk = {**BRISK, "rebalance_interval": 1.0}  # SYSTEM_ERROR is told at the fifth time
        with dial(request_timeout=1.0).consumer(topic, f"g-{topic}", start=LATEST, **brisk) as consumer:
            polled = Polled(consumer)
            polled.until(put(writer, topic, range(10, 20), (2, 3)))
            refused.clear()
            polled.until(put(writer, topic, range(20, 30), (0, 1)))
            assert {*polled.found} == {b"%d" % n for n in range(10, 30)}


def test_name_servers_that_are_busy_are_outlived(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    with member(dial(), topic, "consumer") as consumer, direct(cluster) as writer:
        polled = Polled(consumer)
        refused = cluster.first.faults("rocketmq")
        refused.error(NAMES, SystemBusy.code, times=-1)
        while refused.seen(NAMES) < 8:
            polled.step()
        refused.clear()
        polled.until(put(writer, topic, range(10), (0, 1)))


def test_a_name_server_that_does_not_know_a_topic_says_nothing_of_the_others(cluster: Cluster, topic: str) -> None:
    with DevBroker(["rocketmq"], auto_create=False) as empty:
        url = f"rocketmq://{empty.address('rocketmq')},{cluster.first.address('rocketmq')}"
        with wireproto.connect(url) as client:
            assert len(client.admin().describe_topic(topic).partitions) == 4
            with pytest.raises(TopicNotExist):
                client.admin().describe_topic("nowhere")


def test_a_topic_that_stays_away_is_told(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    with dial().consumer(topic, f"g-{topic}", recovery_timeout=1.0, **BRISK) as consumer:
        cluster.first.faults("rocketmq").error(NAMES, TopicNotExist.code, times=-1)
        polled = Polled(consumer)
        with pytest.raises(TopicNotExist):
            polled.until([b"never"])


def keys_of(client: RocketClient, topic: str, broker: str) -> Iterator[bytes]:
    """Keys whose queue is that broker's."""
    route = client.cluster.route(topic, client.cluster.deadline(10.0))
    return (key for n in itertools.count() if route.queues[route.by_key(key := b"key-%d" % n)].broker == broker)


@pytest.mark.parametrize("fate", ["comes back", "is gone"])
def test_the_records_of_a_key_keep_their_order_over_a_broker_that_leaves_the_route(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, fate: str
) -> None:
    """What is on its way to it arrives, or fails, before a later one of that key is stored elsewhere; other keys do not wait."""
    client = dial(request_timeout=1.0, connect_timeout=1.0)
    ours, other = next(keys_of(client, topic, "calm")), next(keys_of(client, topic, "dev"))
    address = cluster.other.address("rocketmq", "broker")
    with client.producer(topic, delivery_timeout=60.0 if fate == "comes back" else 8.0) as out, direct(cluster) as reading:
        out.send(b"before", key=ours).position(10.0)
        cluster.second.stall()
        first = out.send(b"first", key=ours)
        cluster.first.call("rocketmq", "register", "calm", None)
        try:
            until(lambda: out._routing.coming is not None)
            assert out.send(b"beside", key=other, timeout=5.0).position(10.0).broker == "dev"
            second = out.send(b"second", key=ours, timeout=0.0)
            rows = Columns.from_rows([b"third", b"beside", b"fourth"], [ours, other, ours])
            places = dict.fromkeys(out.send_batch(rows, timeout=0.0))
            assert not first.done
            assert not second.done
            assert "pending" in repr(second)
            assert second.sequence in {receipt.sequence for receipt in places}, "what waits gathers, so that it is soon made up for"
            if fate == "comes back":
                cluster.second.heal()
                cluster.first.call("rocketmq", "register", "calm", address)
                elsewhere = second.position(30.0).broker != "calm"
                assert first.done, "in any case it is stored before the other one"
                assert first.position(0.0).broker == "calm"
                assert elsewhere or first.position(0.0).offset < second.position(0.0).offset
            else:
                with pytest.raises(WireprotoError):
                    first.position(30.0)
                with contextlib.suppress(WireprotoError):  # its own time may be over, too
                    assert second.position(30.0).broker == "dev"
                assert out.send(b"last", key=ours).position(30.0).broker == "dev"
            for receipt in places:
                with contextlib.suppress(WireprotoError):
                    receipt.position(30.0)
        finally:
            cluster.second.heal()
            cluster.first.call("rocketmq", "register", "calm", address)
        with contextlib.suppress(WireprotoError):
            out.flush(30.0)
        until(lambda: out._routing.coming is None)
        with reading.reader(topic, stop=LATEST) as reader:
            found = [record.value for batch in reader for record in batch if record.key == ours]
    wanted = [b"before", b"first", b"second", b"third", b"fourth"]
    if fate == "comes back":
        assert sorted(found) == sorted(wanted)
    else:
        assert {b"before", b"last"} <= {*found}


def test_a_silent_broker_holds_up_the_keys_of_its_own_queues_alone_when_a_topic_grows(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str
) -> None:
    """Where every key goes changes then; what is on its way to the silent one does not hold back the rest."""
    client = dial(request_timeout=1.0, connect_timeout=1.0)
    ours, others = next(keys_of(client, topic, "calm")), list(itertools.islice(keys_of(client, topic, "dev"), 20))
    with client.producer(topic) as out, direct(cluster) as beside:
        out.send(b"before", key=ours).position(10.0)
        cluster.second.stall()
        first = out.send(b"first", key=ours)
        grown = UpdateAndCreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=6, write_queue_nums=6, perm=6, topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0, order=False,
        )  # fmt: skip
        for master in (cluster.other, cluster.first):  # the latter names the queues of both
            beside.request(grown, to=master.address("rocketmq", "broker"))
        until(lambda: out._routing.coming is not None)
        began = time.monotonic()
        receipts = [out.send(b"beside", key=key) for key in others]
        second = out.send(b"second", key=ours)
        assert time.monotonic() - began < 15.0, "nobody waits in send"
        new = [receipt for receipt in receipts if out._routing.queues[receipt.batch.home].broker == "dev"]
        assert new
        assert any(receipt.position(30.0).partition >= 4 for receipt in new), "they go by the new queues"
        assert not first.done
        assert not second.done
        cluster.second.heal()
        until(lambda: out._routing.coming is None)
        second.position(30.0)
        assert first.done


def test_members_follow_a_broker_whose_master_is_elsewhere(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    """The old one may live on as a slave, and answer pulls: what is written from now on it may not have."""
    here = cluster.other.address("rocketmq", "broker")
    with DevBroker(["rocketmq"], auto_create=False) as heir, direct(cluster) as writer:
        there = heir.address("rocketmq", "broker")
        try:
            cluster.first.call("rocketmq", "register", "calm", there)
            with direct(cluster) as other:
                request = UpdateAndCreateTopicRequest(
                    topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6, topic_filter_type="SINGLE_TAG",
                    topic_sys_flag=0, order=False,
                )  # fmt: skip
                other.request(request, to=there)
                put(other, topic, range(10), (0, 1))
            cluster.first.call("rocketmq", "register", "calm", here)
            with member(dial(), topic, "consumer", pull_suspend=1.0) as consumer:
                polled = Polled(consumer)
                polled.until(put(writer, topic, range(10), (0, 1)))
                cluster.first.call("rocketmq", "register", "calm", there)
                with direct(cluster) as other:
                    polled.until(put(other, topic, range(100, 110), (0, 1)))
        finally:
            cluster.first.call("rocketmq", "register", "calm", here)


@pytest.mark.parametrize("what", ["read to the end", "positions", "read on"])
def test_a_broker_that_has_come_back_is_not_left_out_by_the_route_of_before(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, what: str
) -> None:
    """A route of a moment when the name server did not know the broker, as when it was started before it."""
    client = dial(route_age=600.0)
    with direct(cluster) as writer:
        wanted = put(writer, topic, range(8), (0, 1, 2, 3))
    assert len(client.admin().positions(topic)) == 4
    cluster.first.call("rocketmq", "register", "calm", None)
    try:
        route = client.cluster.route(topic, client.deadline(10.0), fresh=True)
        assert {queue.broker for queue in route.readable()} == {"dev"}
    finally:
        cluster.first.call("rocketmq", "register", "calm", cluster.other.address("rocketmq", "broker"))
    if what == "positions":
        assert len(client.admin().positions(topic)) == 4
    elif what == "read on":
        with client.reader(topic) as reader:
            Polled(reader).until(wanted)
    else:
        with client.reader(topic, stop=LATEST) as reader:
            assert sorted(value for batch in reader for value in batch.values()) == wanted
