"""How consumers share a subscription: on a real broker and on the embedded one, by bare commands, each test on both.

The real one runs with a short keepalive, without the failover delay, and does not take parts of batches for acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from brokers.plugin import start
from patience import until
from pulsar_raw import Place, Raw, Sender, Worker
from wireproto.devbroker import DevBroker
from wireproto.pulsar import PulsarApi_pb2 as api

REAL = "pulsar-4.2.4-curt"
DEV = "dev-pulsar"
SHARED, FAILOVER, KEY_SHARED = api.CommandSubscribe.Shared, api.CommandSubscribe.Failover, api.CommandSubscribe.Key_Shared
KEYS = [b"key-%d" % number for number in range(12)]

both = pytest.mark.parametrize("place", [pytest.param(name, marks=pytest.mark.broker(name)) for name in (DEV, REAL)], indirect=True)


@pytest.fixture(scope="module")
def dev() -> Iterator[Place]:
    with DevBroker(["pulsar"]) as broker:
        broker.call("pulsar", "configure", keep_alive=1.0, batch_index_acks=False)
        yield Place(broker.address("pulsar"), f"http://{broker.address('pulsar', 'admin')}")


@pytest.fixture
def place(request: pytest.FixtureRequest, dev: Place) -> Iterator[Place]:
    found = dev
    if request.param != DEV:
        broker: Any = start(request.config, request.param)
        found = Place(f"127.0.0.1:{broker.binary_port}", broker.admin)
    yield found
    found.close()


# -- keepalive ------------------------------------------------------------------------------------------------------------


@both
def test_a_silent_client_is_asked_and_then_cut_off(place: Place) -> None:
    link = Raw(place, pong=False)
    until(link.ended.is_set)
    assert len(link.named("CommandPing")) == 1


@both
def test_a_client_that_says_anything_is_asked_again_and_kept(place: Place) -> None:
    link = Raw(place)
    until(lambda: len(link.named("CommandPing")) >= 3)
    link.tell(api.CommandPing())
    until(lambda: link.named("CommandPong"))
    assert not link.ended.is_set()


@both
def test_a_client_that_does_not_connect_is_cut_off(place: Place) -> None:
    link = Raw(place, greet=False)
    until(link.ended.is_set)
    assert link.came == []


# -- parts of batches -----------------------------------------------------------------------------------------------------


@both
def test_a_part_of_a_batch_is_not_acknowledged_where_that_is_off(place: Place) -> None:
    topic = place.make()
    sender = Sender(place, topic)
    first = Worker(place, topic, SHARED)
    sender.send(b"k", values=3)
    sender.send(b"k", values=3)
    until(lambda: first.got == [0, 1])
    first.ack(0, bits=(0b110,))
    first.ack(1)
    first.leave()
    second = Worker(place, topic, SHARED)
    until(lambda: second.got)
    (message,) = second.link.named("CommandMessage")
    assert (message.message_id.entryId, list(message.ack_set)) == (0, [])
    second.leave()


@both
def test_a_cumulative_acknowledgement_inside_a_batch_is_one_of_what_is_before_it_where_parts_are_off(place: Place) -> None:
    topic = place.make()
    sender = Sender(place, topic)
    first = Worker(place, topic, FAILOVER, "a")
    for _ in range(3):
        sender.send(b"k", values=3)
    until(lambda: first.got == [0, 1, 2])
    first.ack(1, bits=(0b100,), cumulative=True)
    first.leave()
    second = Worker(place, topic, FAILOVER, "a")
    until(lambda: second.got == [1, 2])
    assert [list(one.ack_set) for one in second.link.named("CommandMessage")] == [[], []]
    second.leave()


# -- failover -------------------------------------------------------------------------------------------------------------


@both
def test_in_a_partition_the_member_at_its_number_is_active_among_the_best_by_name(place: Place) -> None:
    whole = place.make(partitions=3)
    for number, wanted in enumerate(["a", "b", "a"]):
        topic = f"{whole}-partition-{number}"
        members = [Worker(place, topic, FAILOVER, name, priority_level=level) for name, level in (("b", 1), ("c", 2), ("a", 1))]
        until(lambda members=members, wanted=wanted: [each.name for each in members if each.told[-1:] == [True]] == [wanted])  # type: ignore[misc]
        assert place.shares(topic)["activeConsumerName"] == wanted
        for each in members:
            each.leave()


@both
def test_who_is_active_gets_all_that_is_not_acknowledged_and_all_are_told(place: Place) -> None:
    topic = place.make(partitions=1) + "-partition-0"
    sender = Sender(place, topic)
    b = Worker(place, topic, FAILOVER, "b")
    for _ in range(3):
        sender.send(b"k")
    until(lambda: b.got == [0, 1, 2])
    b.ack(0)
    a = Worker(place, topic, FAILOVER, "a")
    until(lambda: a.got == [1, 2] and b.told == [True, False] and a.told == [True])
    c = Worker(place, topic, FAILOVER, "c")
    until(lambda: c.told == [False])
    assert (a.told, b.told) == ([True], [True, False])
    a.leave()
    until(lambda: b.got == [0, 1, 2, 1, 2] and c.told == [False, False])
    for each in (b, c):
        each.leave()


@both
def test_only_the_active_member_has_messages_come_again_and_then_all_of_them(place: Place) -> None:
    topic = place.make(partitions=1) + "-partition-0"
    sender = Sender(place, topic)
    a, b = (Worker(place, topic, FAILOVER, name) for name in "ab")
    for _ in range(3):
        sender.send(b"k")
    until(lambda: a.got == [0, 1, 2])
    b.nack()
    a.nack(2)
    until(lambda: len(a.got) == 6)
    assert (a.got[3:], b.got) == ([0, 1, 2], [])
    for each in (a, b):
        each.leave()


# -- key-shared -----------------------------------------------------------------------------------------------------------


def meta(mode: Any = api.AUTO_SPLIT, *ranges: tuple[int, int], free: bool = False) -> Any:
    made = api.KeySharedMeta(keySharedMode=mode, allowOutOfOrderDelivery=free)
    for first, last in ranges:
        made.hashRanges.add(start=first, end=last)
    return made


def sharer(place: Place, topic: str, name: str, how: Any = None, **fields: Any) -> Worker:
    return Worker(place, topic, KEY_SHARED, name, keySharedMeta=meta() if how is None else how, **fields)


def in_order(worker: Worker) -> None:
    """Of each key the entries came one after the other; KEYS were sent again and again."""
    for key in range(len(KEYS)):
        numbers = [number for number in worker.got if number % len(KEYS) == key]
        assert numbers == sorted(numbers)


@both
def test_a_key_that_goes_to_another_member_waits_until_the_former_one_is_done_with_it(place: Place) -> None:
    topic = place.make()
    sender = Sender(place, topic)
    former = sharer(place, topic, "one")
    for key in KEYS:
        sender.send(key)
    until(lambda: len(former.got) == len(KEYS))
    other = sharer(place, topic, "two")
    for key in KEYS:
        sender.send(key)
    until(lambda: len(former.got) > len(KEYS))
    moved = [number for number in range(len(KEYS)) if number + len(KEYS) not in former.got]
    stays = [number for number in range(len(KEYS)) if number not in moved]
    assert moved
    assert stays
    until(lambda: sorted(former.got) == sorted([*range(len(KEYS)), *(number + len(KEYS) for number in stays)]))
    assert other.got == []
    former.ack(moved[0])
    until(lambda: other.got == [moved[0] + len(KEYS)])
    former.nack(moved[1])
    until(lambda: other.got == [moved[0] + len(KEYS), moved[1], moved[1] + len(KEYS)])
    former.leave()
    until(lambda: set(other.got) == {*range(2 * len(KEYS))} - {moved[0]})
    in_order(other)
    other.leave()


@both
def test_a_key_does_not_wait_where_its_members_allow_any_order(place: Place) -> None:
    topic = place.make()
    sender = Sender(place, topic)
    former = sharer(place, topic, "one", meta(free=True))
    for key in KEYS:
        sender.send(key)
    until(lambda: len(former.got) == len(KEYS))
    other = sharer(place, topic, "two", meta(free=True))
    for key in KEYS:
        sender.send(key)
    until(lambda: sorted([*former.got, *other.got]) == [*range(2 * len(KEYS))])
    assert other.got
    for each in (former, other):
        each.leave()


@both
def test_a_member_without_permits_keeps_its_own_keys_waiting_and_no_others(place: Place) -> None:
    topic = place.make()
    sender = Sender(place, topic)
    members = [sharer(place, topic, "one", permits=1), sharer(place, topic, "two")]
    for key in KEYS * 2:
        sender.send(key)
    until(lambda: members[0].got and len(members[1].got) > 2)
    members[0].flow(1000)
    until(lambda: sorted([*members[0].got, *members[1].got]) == [*range(2 * len(KEYS))])
    for each in members:
        in_order(each)
        each.leave()


@both
def test_ranges_that_members_ask_for_are_theirs_alone(place: Place) -> None:
    topic = place.make()
    sender = Sender(place, topic)
    low = sharer(place, topic, "low", meta(api.STICKY, (0, 20000)))
    wrong = [
        meta(api.STICKY, (20000, 30000)),
        meta(api.STICKY, (30000, 40000), (35000, 50000)),
        meta(api.STICKY, (30000, 29999)),
        meta(api.STICKY),
    ]
    assert [refused(place, topic, each) for each in wrong] == ["ConsumerAssignError"] * 4
    assert [refused(place, topic, each) for each in (meta(), meta(api.STICKY, (20001, 65535), free=True))] == ["ConsumerBusy"] * 2
    for key in KEYS:
        sender.send(key)
    high = sharer(place, topic, "high", meta(api.STICKY, (20001, 65535)))
    until(lambda: sorted([*low.got, *high.got]) == [*range(len(KEYS))])
    assert low.got
    assert high.got
    for each in (low, high):
        each.leave()


def refused(place: Place, topic: str, how: Any) -> str:
    """Why a member is not let in."""
    worker = sharer(place, topic, "late", how)
    assert worker.refusal is not None
    return api.ServerError.Name(worker.refusal.error)


@both
def test_the_hashes_of_members_are_those_of_a_ring_of_their_names(place: Place) -> None:
    """As 4.2.4 told them: of each how many ranges there are, the first of them, and how many hashes."""
    topic = place.make()
    members = [sharer(place, topic, name) for name in ("one", "two", "two", "")]
    found = [[tuple(one) for one in each["keyHashRangeArrays"]] for each in place.shares(topic)["consumers"]]
    shown = sorted((len(one), one[0], sum(last - first + 1 for first, last in one)) for one in found)
    assert shown == [(70, (253, 630), 16306), (71, (1, 252), 15075), (74, (1646, 2092), 19254), (76, (1241, 1645), 14900)]
    for each in members:
        each.leave()
