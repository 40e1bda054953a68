"""Positions go from client to client, and over the joining and leaving of brokers, though each client numbers the queues for itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import wireproto
from wireproto.cli.where import parse_place
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError, Revoked, TimedOut
from wireproto.position import (
    EARLIEST,
    LATEST,
    LogOffset,
    QueueOffset,
    TopicPartition,
    format_positions,
    parse_position,
    parse_positions,
    positions_from_json,
    positions_to_json,
)
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.errors import NoMaster

_numbers = itertools.count()
Resume = dict[TopicPartition, Any]


class Cluster:
    """Masters "dev" and "late"; a third, "ahead", whose name sorts before both, may join and leave."""

    def __init__(self) -> None:
        self.brokers = {name: DevBroker(["rocketmq"], auto_create=False) for name in ("dev", "late", "ahead")}

    @property
    def url(self) -> str:
        return self.brokers["dev"].url("rocketmq")

    def show(self, name: str, there: bool = True) -> None:
        """As an ordered start or stop does it: at once."""
        address = self.brokers[name].address("rocketmq", "broker") if there else None
        self.brokers["dev"].call("rocketmq", "register", name, address)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    cluster = Cluster()
    for broker in cluster.brokers.values():
        broker.start()
    yield cluster
    for broker in cluster.brokers.values():
        broker.stop()


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.show("late")
    running.show("ahead", False)
    return running


@pytest.fixture
def dial(cluster: Cluster) -> Iterator[Callable[..., RocketClient]]:
    opened: list[RocketClient] = []

    def dial(**options: Any) -> RocketClient:
        opened.append(wireproto.connect(cluster.url, **options))
        return opened[-1]

    yield dial
    for client in opened:
        client.close(5.0)


@pytest.fixture
def topic(cluster: Cluster, dial: Callable[..., RocketClient]) -> str:
    """Two queues on each of the three, of which two are seen."""
    name = f"numbers-{next(_numbers)}"
    cluster.show("ahead")
    dial().admin().create_topic(name, partitions=6)
    cluster.show("ahead", False)
    return name


def homes(client: RocketClient, topic: str) -> dict[int, str]:
    found = client.admin().describe_topic(topic).partitions
    return {part.partition: f"{part.details['broker']}/{part.details['queue']}" for part in found}


def write(client: RocketClient, topic: str, label: str, count: int = 5) -> list[bytes]:
    """So many values to each queue, which tell the queue's name."""
    with client.producer(topic) as out:
        for number, home in homes(client, topic).items():
            for n in range(count):
                out.send(f"{home} {label} {n}".encode(), partition=number).position(10.0)
    return sorted(f"{home} {label} {n}".encode() for home in homes(client, topic).values() for n in range(count))


def read(client: RocketClient, topic: str, start: Any = EARLIEST, stop: Any = LATEST) -> tuple[list[bytes], Resume]:
    found: list[bytes] = []
    with client.reader(topic, start=start, stop=stop) as reader:
        for batch in reader:
            found += [value for value in batch.values() if value is not None]
            for record in batch:
                home = str(record.value, "ascii").split()[0]
                assert record.position.text() == f"{home}:{record.offset}", "a record tells its queue"
                assert homes(client, topic)[record.partition] == home, "and bears this client's number"
        return sorted(found), dict(reader.positions)


KEPT: list[Callable[[Resume], Any]] = [
    dict,
    lambda places: positions_from_json(positions_to_json(places)),
    lambda places: parse_positions(format_positions(places), next(iter(places))[0]),
    lambda places: parse_place(",".join(place.text() for place in places.values()), next(iter(places))[0]),
]


@pytest.mark.parametrize("kept", KEPT, ids=["as it is", "JSON", "text", "text without numbers"])
def test_what_one_client_has_noted_another_resumes_after_a_third_broker_has_joined(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, kept: Callable[[Resume], Any]
) -> None:
    first = dial()
    assert homes(first, topic) == {0: "dev/0", 1: "dev/1", 2: "late/0", 3: "late/1"}
    before = write(first, topic, "before")
    found, places = read(first, topic)
    assert found == before
    noted = kept(places)
    cluster.show("ahead")
    second = dial()
    assert homes(second, topic) == {0: "ahead/0", 1: "ahead/1", 2: "dev/0", 3: "dev/1", 4: "late/0", 5: "late/1"}
    after = write(second, topic, "after")
    rest, _ = read(second, topic, noted)
    assert rest == [value for value in after if not value.startswith(b"ahead")]
    assert read(first, topic, noted)[0] == rest, "the older client does, too"
    with pytest.raises(OptionError, match="has no start: start and stop name the same partitions"):
        read(second, topic, noted, second.admin().positions(topic))


def test_a_broker_that_is_away_keeps_its_place_until_it_is_back(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    cluster.show("ahead")
    first = dial()
    write(first, topic, "before")
    _, places = read(first, topic)
    after = write(first, topic, "after")
    cluster.show("ahead", False)
    second = dial(route_age=0.1)
    with second.reader(topic, start=positions_from_json(positions_to_json(places))) as reader:
        found: list[bytes] = []
        while len(found) < 20:
            batch = reader.poll(10.0)
            assert batch is not None
            found += [value for value in batch.values() if value is not None]
        assert sorted(found) == [value for value in after if not value.startswith(b"ahead")]
        cluster.show("ahead")
        while len(found) < 30:
            batch = reader.poll(10.0)
            assert batch is not None
            found += [value for value in batch.values() if value is not None]
        assert sorted(found) == after


@pytest.mark.parametrize("stop", [LATEST, None])
def test_a_broker_that_has_just_come_back_is_read_though_the_route_is_from_before(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, stop: Any
) -> None:
    cluster.show("ahead")
    client = dial(route_age=600.0)
    written = write(client, topic, "whole", 1)
    cluster.show("ahead", False)
    assert len([part for part in client.admin().describe_topic(topic).partitions if part.leader]) == 4
    cluster.show("ahead")
    with client.reader(topic, stop=stop) as reader:
        assert len(reader.positions) == 6
        found: list[bytes] = []
        while len(found) < 6:
            batch = reader.poll(30.0)
            assert batch is not None, found
            found += [value for value in batch.values() if value is not None]
    assert sorted(found) == written


def test_a_read_that_is_to_be_whole_is_refused_while_a_broker_that_is_known_is_away(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str
) -> None:
    """In its client's timeout; one without a stop begins without it."""
    cluster.show("ahead")
    client = dial(route_age=600.0)
    assert len(client.admin().describe_topic(topic).partitions) == 6
    cluster.show("ahead", False)
    client.admin().describe_topic(topic)
    client._options = replace(client._options, timeout=1.0)
    with pytest.raises((NoMaster, TimedOut)):  # whichever was met last
        client.reader(topic, stop=LATEST)
    client._options = replace(client._options, timeout=30.0)
    with client.reader(topic) as reader:
        assert len(reader.positions) == 4


def test_a_group_is_committed_and_set_by_queue(cluster: Cluster, dial: Callable[..., RocketClient], topic: str) -> None:
    first = dial()
    write(first, topic, "x")
    group = f"g-{topic}"
    with first.consumer(topic, group) as member:
        noted = {(topic, 2): QueueOffset(topic, 2, 3, "late", 0), (topic, 0): QueueOffset(topic, 0, 1, "dev", 0)}
        member.commit(noted)
        assert member.committed() == noted
    cluster.show("ahead")
    second = dial()
    places = second.admin().group_positions(group, topic)
    assert {place.text() for place in places.values()} == {"late/0:3", "dev/0:1"}
    assert {key[1] for key in places} == {4, 2}
    with second.consumer(topic, group, start=LATEST) as member:
        member.commit({key: QueueOffset(topic, key[1], 2, place.broker, place.queue) for key, place in noted.items()})  # type: ignore[attr-defined]
        member.seek({(topic, 0): QueueOffset(topic, 0, 4, "dev", 1), (topic, 1): QueueOffset(topic, 1, 4, "late", 1)})
        assert member.lag()[topic, 3] == member.lag()[topic, 5] == 1
        with pytest.raises(Revoked):
            member.commit({(topic, 0): QueueOffset(topic, 0, 4, "gone", 1)})
    assert {place.text() for place in first.admin().group_positions(group, topic).values()} == {"late/0:2", "dev/0:2"}
    with first.consumer(topic, f"h-{topic}", start={(topic, 9): QueueOffset(topic, 9, 4, "late", 1)}) as member:
        committed = member.committed()
        assert committed == {(topic, 3): QueueOffset(topic, 3, 4, "late", 1)}
        assert list(committed) == [(topic, 3)]


def test_a_number_without_a_queue_is_refused_where_it_may_mean_several(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str
) -> None:
    client = dial()
    write(client, topic, "x")
    for place in (LogOffset(topic, 1, 3), parse_position("3", topic, 1), positions_from_json(json.dumps({topic: {"1": "3"}}))):
        for use in (
            lambda: client.reader(topic, start=place),  # noqa: B023
            lambda: client.admin().positions(topic, place),  # noqa: B023
            lambda: client.consumer(topic, f"g-{topic}", start=place),  # noqa: B023
        ):
            with pytest.raises(OptionError, match=r"does not say of which queue.*dev, late.*name the queue, as in dev/0:123"):
                use()
    cluster.show("late", False)
    alone = dial()
    assert read(alone, topic, LogOffset(topic, 1, 3), LogOffset(topic, 1, 5))[0] == [b"dev/1 x 3", b"dev/1 x 4"]
    with pytest.raises(OptionError, match=r"has 2 partitions; there is no .*\[3\]"):
        alone.reader(topic, start={(topic, 0): LogOffset(topic, 0, 0), (topic, 3): LogOffset(topic, 3, 0)})
    with pytest.raises(OptionError, match="two positions of one queue"):
        alone.reader(topic, start={(topic, n): QueueOffset(topic, n, 0, "dev", 0) for n in range(2)})


def test_two_positions_are_one_place_whatever_their_clients_call_it() -> None:
    ours, theirs = QueueOffset("t", 0, 5, "a", 1), QueueOffset("t", 7, 5, "a", 1)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert QueueOffset("t", 7, 6, "a", 1) > ours
    assert len({ours, QueueOffset("t", 0, 5, "b", 1), QueueOffset("t", 0, 5, "a", 2), QueueOffset("t", 0, 6, "a", 1)}) == 4
    assert ours != LogOffset("t", 0, 5)
    with pytest.raises(TypeError, match="different partitions"):
        ours < QueueOffset("t", 0, 5, "b", 1)  # noqa: B015
    for name in ("broker-a", "a b,c=d/e:f%", "10.0.0.1", "бр"):
        place = QueueOffset("t", 3, 12, name, 4)
        assert parse_position(place.text(), "t", 3) == place
        assert parse_positions(format_positions({("t", 3): place, ("t", 1): ours}), "t") == {("t", 3): place, ("t", 1): ours}
    for text in ("a/b:3", "/0:3", "a/0:", "a/0", "a/-1:3"):
        with pytest.raises(OptionError, match="is not a position"):
            parse_position(text, "t", 0)


def test_a_broker_whose_name_sorts_first_is_no_beginning_of_the_group(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str
) -> None:
    """What was written there before its members knew of it came after the group began."""
    group = f"g-{topic}"
    write(dial(), topic, "before")
    with dial().consumer(topic, group, start=LATEST) as member:
        assert member.poll(0.0) is None
    cluster.show("ahead")
    writer = dial()
    assert writer.cluster.route(topic, writer.cluster.deadline(5.0)).queues[0].broker == "ahead"
    wanted = write(writer, topic, "after")
    found: list[bytes] = []
    with dial().consumer(topic, group, start=LATEST) as member:
        while len(found) < len(wanted):
            batch = member.poll(10.0)
            assert batch is not None, sorted({*wanted} - {*found})
            found += [value for value in batch.values() if value is not None]
    assert sorted(found) == wanted


@pytest.mark.parametrize("done", [["late/1"], ["late/1", "dev/1"], ["late/1", "dev/1", "late/0"]])
def test_a_beginning_that_was_cut_short_is_gone_on_with(
    cluster: Cluster, dial: Callable[..., RocketClient], topic: str, done: list[str]
) -> None:
    """A founder that died left some queues committed: those of a broker before its first one."""
    client, group = dial(), f"g-{topic}"
    write(client, topic, "before")
    with client.consumer(topic, group, start=EARLIEST) as founder:
        founder.commit({key: place for key, place in client.admin().positions(topic, LATEST).items() if place.text().split(":")[0] in done})
    with dial().consumer(topic, group, start=LATEST) as member:
        assert {place.text() for place in member.committed().values()} == {"dev/0:5", "dev/1:5", "late/0:5", "late/1:5"}
        assert member.poll(0.0) is None


def test_queues_are_found_by_name_and_brokers_told(cluster: Cluster, dial: Callable[..., RocketClient]) -> None:
    topic = f"found-{next(_numbers)}"
    client = dial()
    admin = client.admin()
    admin.create_topic(topic, partitions=4)
    assert [name for name, master in admin.brokers().items() if master] == ["dev", "late"]
    found = admin.queues(topic, ["late/1", "dev/0"])
    assert {name: place.text() for name, place in found.items()} == {"late/1": "late/1:0", "dev/0": "dev/0:0"}
    numbers = {part.partition: f"{part.details['broker']}/{part.details['queue']}" for part in admin.describe_topic(topic).partitions}
    assert {name: numbers[place.partition] for name, place in found.items()} == {"late/1": "late/1", "dev/0": "dev/0"}
    number = found["late/1"].partition
    assert [*admin.positions(topic, LATEST, partitions=[number]).values()] == [found["late/1"]]
    with pytest.raises(OptionError, match="the option does not say of which queue"):
        admin.queues(topic, [0], what="the option")
    with pytest.raises(OptionError, match="no queue"):
        admin.queues(topic, ["late"])
    cluster.show("late", False)
    assert "late" not in dial().admin().brokers()
    assert admin.queues(topic, ["late/7"])["late/7"].text() == "late/7:0", "a number for one whose broker is away"
