"""How consumers share a subscription: on a real broker and on the embedded one, by bare commands, each test on both.

The real one runs with a short keepalive, without the failover delay, and does not take parts of batches for acknowledged.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from brokers.plugin import start
from patience import until
from pulsar_raw import Place, Raw, Sender, Worker
from wireproto.devbroker import DevBroker
from wireproto.devbroker.pulsar.failover import active_of
from wireproto.errors import OptionError
from wireproto.pulsar import PulsarApi_pb2 as api

REAL = "pulsar-4.2.4-curt"
DEV = "dev-pulsar"
SHARED, FAILOVER, KEY_SHARED = api.CommandSubscribe.Shared, api.CommandSubscribe.Failover, api.CommandSubscribe.Key_Shared
KEYS = [b"key-%d" % number for number in range(12)]

numbers = itertools.count()
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
def test_a_client_that_says_anything_is_asked_again_and_kept_and_others_are_cut_off(place: Place) -> None:
    """One that answers to nothing is asked once before, one that does not even connect never."""
    alive, silent, nameless = Raw(place), Raw(place, pong=False), Raw(place, greet=False)
    until(nameless.ended.is_set)
    assert nameless.came == []
    until(silent.ended.is_set)
    assert len(silent.named("CommandPing")) == 1
    until(lambda: len(alive.named("CommandPing")) >= 3)
    alive.tell(api.CommandPing())
    until(lambda: alive.named("CommandPong"))
    assert not alive.ended.is_set()


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


@pytest.mark.broker(DEV)
def test_another_active_member_waits_for_the_failover_delay_where_there_is_one() -> None:
    with DevBroker(["pulsar"]) as broker, closing(Place(broker.address("pulsar"), f"http://{broker.address('pulsar', 'admin')}")) as place:
        broker.call("pulsar", "configure", failover_delay=3600.0)
        waits = Worker(place, place.make(), FAILOVER, "a")
        waits.link.ask(api.CommandConsumerStats(consumer_id=1))
        assert waits.told == []
        broker.call("pulsar", "configure", failover_delay=0.05)
        topic = place.make()
        sender = Sender(place, topic)
        sender.send(b"k")
        member = Worker(place, topic, FAILOVER, "a")
        until(lambda: (member.told, member.got) == ([True], [0]))


@pytest.mark.broker(DEV)
def test_partitions_go_by_the_ring_too_where_that_is_set() -> None:
    """As a topic of the same name without partitions, which the real one has the same member for."""
    topic = "persistent://public/default/ring-partition-0"
    by_number, by_ring = (active_of(topic, 0, [Member("a"), Member("b"), Member("c")], ring).name for ring in (False, True))
    with DevBroker(["pulsar"]) as broker, closing(Place(broker.address("pulsar"), f"http://{broker.address('pulsar', 'admin')}")) as place:
        place.make("ring", partitions=2)
        for ring, wanted in ((False, by_number), (True, by_ring)):
            broker.call("pulsar", "configure", failover_ring=ring)
            members = [Worker(place, topic, FAILOVER, name) for name in "abc"]
            assert place.shares(topic)["activeConsumerName"] == wanted
            for each in members:
                each.leave()
        assert by_number != by_ring
        with pytest.raises(OptionError, match="'colour'"):
            broker.call("pulsar", "configure", colour="red")


@dataclass
class Member:
    name: str
    priority: int = 0


# -- key-shared -----------------------------------------------------------------------------------------------------------


def meta(mode: Any = api.AUTO_SPLIT, *ranges: tuple[int, int], free: bool = False) -> Any:
    made = api.KeySharedMeta(keySharedMode=mode, allowOutOfOrderDelivery=free)
    for first, last in ranges:
        made.hashRanges.add(start=first, end=last)
    return made


def sharer(place: Place, topic: str, name: str, how: Any = None, **fields: Any) -> Worker:
    return Worker(place, topic, KEY_SHARED, name, keySharedMeta=meta() if how is None else how, **fields)


def in_order(worker: Worker, but: int = -1) -> None:
    """Of each key, `but` that of an index, the entries came one after the other; KEYS were sent again and again."""
    for key in range(len(KEYS)):
        if key == but:
            continue
        numbers = [number for number in worker.got if number % len(KEYS) == key]
        assert numbers == sorted(numbers)


@both
def test_a_key_that_goes_to_another_member_waits_until_the_former_one_is_done_with_it(place: Place, dev: Place) -> None:
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
    last = sender.send(KEYS[former.got[len(KEYS)] - len(KEYS)])
    until(lambda: last in former.got)  # and with it what comes before
    former.ack(last)
    moved = [number for number in range(len(KEYS)) if number + len(KEYS) not in former.got]
    stays = [number for number in range(len(KEYS)) if number not in moved]
    assert moved
    assert stays
    assert sorted(former.got) == sorted([*range(len(KEYS)), *(number + len(KEYS) for number in stays), last])
    assert other.got == []
    former.ack(moved[0])
    until(lambda: other.got == [moved[0] + len(KEYS)])
    given, behind = moved[1], moved[1] + len(KEYS)
    former.nack(given)
    until(lambda: sorted(other.got[1:]) == [given, behind])
    former.leave()
    until(lambda: set(other.got) == {*range(2 * len(KEYS))} - {moved[0]})
    if place.address == dev.address:
        in_order(other)
    else:  # PersistentDispatcherMultipleConsumers lets go of the key before the entry that was given back is to come again
        in_order(other, but=given)
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


# -- anything at all ------------------------------------------------------------------------------------------------------


class Sharing:
    """The same random steps on each place; `seen` is what the members of each step got since the step before, by key, in order.

    A place that is slower than the other is waited for; what comes that the other has not sent is noticed at the step's end or later.
    """

    def __init__(self, place: Place, kind: Any, name: str, partitions: int) -> None:
        self.place = place
        self.kind = kind
        self.topic = place.make(name, partitions) + ("-partition-0" if partitions else "")
        self.sender = Sender(place, self.topic)
        self.keys: list[bytes] = []
        self.members: list[Worker] = []

    def join(self, name: str, priority: int) -> None:
        fields = {"keySharedMeta": meta()} if self.kind == KEY_SHARED else {"priority_level": priority}
        self.members.append(Worker(self.place, self.topic, self.kind, name, **fields))

    def leave(self, which: int) -> None:
        self.members.pop(which % len(self.members)).leave()

    def send(self, key: bytes) -> None:
        self.keys.append(key)
        self.sender.send(key)

    def ack(self, which: int, number: int) -> None:
        member = self.members[which % len(self.members)]
        if member.got:
            member.ack(member.got[number % len(member.got)])

    def nack(self, which: int, number: int) -> None:
        member = self.members[which % len(self.members)]
        if member.got:
            member.nack(member.got[number % len(member.got)])

    def settle(self) -> None:
        """The embedded broker does all at once: what it answers now comes behind all that it sends."""
        for member in self.members:
            member.link.ask(api.CommandConsumerStats(consumer_id=1))

    @property
    def seen(self) -> dict[tuple[int, bytes], list[int]]:
        """By member and key the entries that it got. Of two keys it is nobody's business which came first."""
        found: dict[tuple[int, bytes], list[int]] = {}
        for number, member in enumerate(self.members):
            for entry in member.got:
                found.setdefault((number, self.keys[entry]), []).append(entry)
        return found

    @property
    def told(self) -> list[list[bool]]:
        return [member.told for member in self.members]


def steps(chance: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Of members that come and go, sends and acknowledgements; there is always a member."""
    made: list[tuple[Any, ...]] = [("join", "first", 1)]
    there = 1
    for _ in range(count):
        kind = chance.choice(["join", "leave", "send", "send", "send", "send", "ack", "ack", "nack"])
        if kind == "join" and there < 5:
            made.append(("join", chance.choice(["", "a", "b", "c", "same"]), chance.choice([0, 1, 1])))
            there += 1
        elif kind == "leave" and there > 1:
            made.append(("leave", chance.randrange(100)))
            there -= 1
        elif kind in ("ack", "nack"):
            made.append((kind, chance.randrange(100), chance.randrange(100)))
        elif kind == "send":
            made.append(("send", chance.choice(KEYS)))
    return made


@pytest.mark.broker(REAL)
@pytest.mark.parametrize(("kind", "partitions"), [(KEY_SHARED, 0), (FAILOVER, 1), (FAILOVER, 0)], ids=["key-shared", "partition", "ring"])
@pytest.mark.parametrize("chosen", [7])
@pytest.mark.parametrize("place", [REAL], indirect=True)
def test_members_that_come_and_go_get_what_a_real_broker_gives_them(
    kind: Any, partitions: int, chosen: int, place: Place, dev: Place
) -> None:
    name = f"sharing-{next(numbers)}"  # decides on the ring
    ours, real = Sharing(dev, kind, name, partitions), Sharing(place, kind, name, partitions)
    done: list[tuple[Any, ...]] = []
    try:
        for name, *arguments in steps(random.Random(chosen), 60):
            done.append((name, *arguments))
            for each in (ours, real):
                getattr(each, name)(*arguments)
            ours.settle()
            with suppress(AssertionError):
                until(lambda: (ours.seen, ours.told) == (real.seen, real.told), limit=20.0)
            assert (ours.seen, ours.told) == (real.seen, real.told), f"after {done}"
    finally:
        dev.close()
