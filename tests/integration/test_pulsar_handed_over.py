"""Pulsar's transactions that one client fills and another one ends, on a real broker; what is seen is the official client's word."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, new_topic, pulsar, theirs
from patience import LONG, until
from wireproto.errors import Aborted, UsageError
from wireproto.pulsar import codes

SECONDS = 30.0
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


@pytest.fixture
def judge(broker: Pulsar) -> Iterator[Any]:
    with theirs(broker) as official:
        yield official


def seen(judge: Any, topic: str) -> list[bytes]:
    """What there is in front of a plain record that is sent now, which nothing open keeps from being read."""
    end, found = b"end-%d" % next(_numbers), []
    producer = judge.create_producer(PREFIX + topic)
    producer.send(end)
    producer.close()
    reader = judge.create_reader(PREFIX + topic, pulsar.MessageId.earliest)
    while (value := reader.read_next(int(LONG * 1000)).data()) != end:
        found += [] if value.startswith(b"end-") else [value]
    reader.close()
    return found


def filled(broker: Pulsar, topic: str, values: list[bytes], **options: Any) -> Any:
    """What is left of a client that filled a transaction and is closed, as another process would have it.

    One that is rolled back, since its broker moved the topic just then, is filled again.
    """
    while True:
        try:
            with wireproto.connect(broker.url) as filling, filling.transactions("filling", **options) as work, work.begin() as turn:
                for value in values:
                    turn.send(value, topic=topic)
                return pickle.loads(pickle.dumps(turn.hand_over(timeout=LONG)))
        except Aborted:
            continue


def test_another_client_commits_it(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    handed = filled(broker, topic, [b"one", b"two"])
    assert client.admin().end_transactions([handed], commit=True, timeout=SECONDS) == {}
    assert seen(judge, topic) == [b"one", b"two"]
    ((one, why),) = client.admin().end_transactions([handed], commit=True, timeout=SECONDS).items()
    assert one == handed
    assert isinstance(why, codes.TransactionNotFound), "it is forgotten as it ends"
    assert seen(judge, topic) == [b"one", b"two"]


def test_another_client_rolls_it_back(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    handed = filled(broker, topic, [b"never"])
    assert client.admin().end_transactions([handed], commit=False, timeout=SECONDS) == {}
    assert seen(judge, topic) == []


def test_many_are_ended_together(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    handed = [filled(broker, topic, [b"%02d" % number]) for number in range(8)]
    assert client.admin().end_transactions(handed, commit=True, timeout=SECONDS) == {}
    assert sorted(seen(judge, topic)) == [b"%02d" % number for number in range(8)]


def test_one_that_took_too_long_is_told(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    handed = filled(broker, topic, [b"late"], transaction_timeout=1.0)
    assert seen(judge, topic) == [], "readers are let past it when it is rolled back"
    assert list(client.admin().end_transactions([handed], commit=True, timeout=SECONDS)) == [handed]


def test_which_can_still_be_committed_is_told(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    one, two, three, four = (filled(broker, topic, [b"%d" % number]) for number in range(4))
    late = filled(broker, topic, [b"late"], transaction_timeout=1.0)
    admin = client.admin()
    assert admin.open_transactions([one, two, three, four]) == {one, two, three, four}
    assert admin.end_transactions([one], commit=True) == {}
    assert admin.end_transactions([two], commit=False) == {}
    until(lambda: late not in admin.open_transactions([late]), "its time is over")
    assert admin.open_transactions([one, two, three, late, four]) == {three, four}
    assert admin.end_transactions([three, four], commit=True) == {}, "having looked changes nothing"
    assert sorted(seen(judge, topic)) == [b"0", b"2", b"3"]


def test_what_was_handed_over_is_closed_to_who_filled_it_and_the_next_one_works(client: Any, judge: Any, topic: str) -> None:
    with client.transactions("work") as work:
        with work.begin() as turn:
            receipt = turn.send(b"one", topic=topic)
            handed = turn.hand_over(timeout=SECONDS)
        for call in (turn.commit, turn.abort, turn.hand_over, lambda: turn.send(b"two", topic=topic)):
            with pytest.raises(UsageError, match="handed over to another client"):
                call()
        with pytest.raises(UsageError, match="the client that ends it"):
            receipt.position(SECONDS)
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    assert client.admin().end_transactions([handed], commit=True, timeout=SECONDS) == {}
    assert sorted(seen(judge, topic)) == [b"next", b"one"]


def test_one_that_acknowledges_is_not_handed_over(broker: Pulsar, client: Any, judge: Any, topic: str) -> None:
    source = new_topic(broker)
    with client.producer(source) as out:
        out.send(b"order").position(SECONDS)
    with client.queue(source, "g") as queue, client.transactions("work") as work:
        turn = work.begin()
        delivery = queue.receive(SECONDS)
        turn.send(b"of it", topic=topic)
        turn.ack(delivery)
        with pytest.raises(UsageError, match="cannot be handed over"):
            turn.hand_over(timeout=SECONDS)
        turn.commit(timeout=SECONDS)
    until(lambda: seen(judge, topic) == [b"of it"])
