"""Transactions that one client fills and another one ends, on real brokers of both protocols; what is seen is librdkafka's word."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers import Broker
from kafka_committed import seen, settled
from patience import until
from wireproto.errors import Aborted, Fenced, UsageError
from wireproto.kafka import codes

SECONDS = 30.0
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize(
    "broker", ["kafka-4.4.0-transactions", "kafka-4.3.1-transactions", "kafka-4.3.1-level-1", "kafka-3.9.2-transactions"], indirect=True
)


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"handed-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Any, name: str) -> str:
    made = f"t-{name}"
    client.admin().create_topic(made, partitions=2)
    return made


def filled(broker: Broker, name: str, topic: str, values: list[bytes], **options: Any) -> Any:
    """What is left of a client that filled a transaction and is closed, as another process would have it."""
    with wireproto.connect(broker.url) as filling, filling.transactions(name, **options) as work, work.begin() as turn:
        for value in values:
            turn.send(value, topic=topic, partition=0)
        return pickle.loads(pickle.dumps(turn.hand_over(timeout=SECONDS)))


def test_another_client_commits_it_as_often_as_it_likes(broker: Broker, client: Any, name: str, topic: str) -> None:
    handed = filled(broker, name, topic, [b"one", b"two"])
    assert seen(broker, topic) == []
    admin = client.admin()
    for _ in range(3):
        assert admin.end_transactions([handed], commit=True, timeout=SECONDS) == {}
    settled(broker, topic, [b"one", b"two"])
    (found,) = admin.end_transactions([handed], commit=False, timeout=SECONDS).items()
    assert found[0] == handed
    assert isinstance(found[1], codes.InvalidTxnState)
    assert seen(broker, topic) == [b"one", b"two"]


def test_another_client_rolls_it_back(broker: Broker, client: Any, name: str, topic: str) -> None:
    handed = filled(broker, name, topic, [b"never"])
    admin = client.admin()
    for _ in range(2):
        assert admin.end_transactions([handed], commit=False, timeout=SECONDS) == {}
    assert list(admin.end_transactions([handed], commit=True, timeout=SECONDS)) == [handed]
    with client.producer(topic) as out:
        out.send(b"behind", partition=0).position(SECONDS)
    settled(broker, topic, [b"behind"])


def test_many_are_ended_together(broker: Broker, client: Any, name: str, topic: str) -> None:
    handed = [filled(broker, f"{name}-{number}", topic, [b"%03d" % number]) for number in range(12)]
    last = filled(broker, f"{name}-over", topic, [b"never"])
    client.admin().end_transactions([last], commit=False, timeout=SECONDS)
    assert list(client.admin().end_transactions([*handed, last], commit=True, timeout=SECONDS)) == [last]
    settled(broker, topic, [b"%03d" % number for number in range(12)])


def test_what_was_handed_over_is_closed_to_who_filled_it(client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work:
        with work.begin() as turn:
            receipt = turn.send(b"one", topic=topic, partition=0)
            handed = turn.hand_over(timeout=SECONDS)
        assert repr(turn).endswith("handed over to another client>")
        for call in (turn.commit, turn.abort, turn.hand_over, work.begin, lambda: turn.send(b"two", topic=topic)):
            with pytest.raises(UsageError, match=r"handed over|handed over to another client"):
                call()
        with pytest.raises(UsageError, match="the client that ends it"):
            receipt.position(SECONDS)
    assert client.admin().end_transactions([handed], commit=True, timeout=SECONDS) == {}


def test_of_an_empty_one_there_is_nothing_to_end(client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as work:
        with work.begin() as turn:
            assert turn.hand_over(timeout=SECONDS) is None
        with work.begin() as turn:
            receipt = turn.send(b"one", topic=topic, partition=0)
        assert receipt.position(SECONDS).offset == 0


def test_one_that_has_to_be_rolled_back_is_not_handed_over(broker: Broker, client: Any, name: str) -> None:
    topic = f"small-{name}"
    client.admin().create_topic(topic, partitions=2, config={"max.message.bytes": "2000"})
    with client.transactions(name) as work:
        turn = work.begin()
        turn.send(b"one", topic=topic, partition=0)
        turn.send(b"x" * 5000, topic=topic, partition=1)
        with pytest.raises(Aborted):
            turn.hand_over(timeout=SECONDS)
        with work.begin() as turn:
            turn.send(b"two", topic=topic, partition=0)
    settled(broker, topic, [b"two"])


def test_one_that_took_too_long_is_told(broker: Broker, client: Any, name: str, topic: str) -> None:
    handed = filled(broker, name, topic, [b"late"], transaction_timeout=4.0)  # a late machine fills it in time
    until(lambda: client.admin().describe_transactions(name)[name].state == "CompleteAbort")
    ((one, why),) = client.admin().end_transactions([handed], commit=True, timeout=SECONDS).items()
    assert one == handed
    assert isinstance(why, (codes.InvalidTxnState, codes.InvalidProducerEpoch, codes.ProducerFenced))
    assert seen(broker, topic) == []


def test_a_fenced_producer_commits_nothing(broker: Broker, client: Any, name: str, topic: str) -> None:
    handed = filled(broker, f"{name}-handed", topic, [b"handed"])
    with client.transactions(name) as work:
        turn = work.begin()
        turn.send(b"one", topic=topic, partition=0)
        work.topics.flush()
        client.admin().fence_producers([name, handed.name], timeout=SECONDS)
        with pytest.raises(Fenced):
            turn.commit(timeout=SECONDS)
    assert list(client.admin().end_transactions([handed], commit=True, timeout=SECONDS)) == [handed]
    with client.transactions(name) as work, work.begin() as turn:
        turn.send(b"two", topic=topic, partition=0)
    settled(broker, topic, [b"two"])


def test_who_goes_on_with_a_name_fences_nobody_who_has_taken_it_since(broker: Broker, client: Any, name: str, topic: str) -> None:
    with client.transactions(name) as first:
        before = pickle.loads(pickle.dumps(first.identity))
    with client.transactions(name, after=before) as second, second.begin() as turn:
        turn.send(b"one", topic=topic, partition=0)
    with client.transactions(name) as other:
        with pytest.raises(Fenced, match="has the transactional name"):
            client.transactions(name, after=before)
        with other.begin() as turn:
            turn.send(b"two", topic=topic, partition=0)
    settled(broker, topic, [b"one", b"two"])


def test_under_asyncio_it_is_handed_over_with_all_that_was_sent(broker: Broker, name: str, topic: str) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url) as client:
            async with client.transactions(name) as work, work.begin() as turn:
                for number in range(100):
                    await turn.send(b"%03d" % number, topic=topic, partition=0)
                handed = await turn.hand_over(timeout=SECONDS)
            assert await client.admin().end_transactions([handed], commit=True, timeout=SECONDS) == {}
            await client.admin().fence_producers(name, timeout=SECONDS)

    asyncio.run(main())
    settled(broker, topic, [b"%03d" % number for number in range(100)])
