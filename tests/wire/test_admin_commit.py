"""Admin.commit: where a group resumes, said by who is no member of it. On the dev broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto import LogOffset
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError, OptionError

CAME = 30.0


@pytest.fixture(params=["kafka", "rocketmq"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with DevBroker([request.param]) as broker, wireproto.connect(broker.url(request.param)) as client:
        client.admin().create_topic("t", partitions=2)
        with client.producer("t") as out:
            for n in range(5):
                out.send(b"%d" % n, partition=0).position(CAME)
        yield client


def first(client: Any, group: str) -> bytes | None:
    with client.consumer("t", group) as consumer:
        for _ in range(60):
            batch = consumer.poll(0.5)
            if batch is not None and len(batch):
                return batch.values()[0]
    raise AssertionError("nothing came")


def test_a_group_resumes_where_it_was_told_from_outside(client: Any) -> None:
    admin = client.admin()
    assert admin.commit("g", {("t", 0): LogOffset("t", 0, 3), ("t", 1): LogOffset("t", 1, 0)}) == frozenset()
    assert {key[1]: place.offset for key, place in admin.group_positions("g", "t").items()} == {0: 3, 1: 0}
    assert first(client, "g") == b"3"
    admin.commit("g", {("t", 0): LogOffset("t", 0, 1)})
    assert first(client, "g") == b"1", "back, too"


def test_what_is_no_position_of_the_partition_is_refused(client: Any) -> None:
    with pytest.raises(OptionError):
        client.admin().commit("g", {("t", 0): LogOffset("t", 1, 3)})


def test_of_a_topic_that_is_gone_the_partitions_are_told(client: Any) -> None:
    if client.protocol == "kafka":
        found = client.admin().commit("g", {("t", 0): LogOffset("t", 0, 2), ("gone", 0): LogOffset("gone", 0, 3)})
        assert found == {("gone", 0)}
        assert client.admin().group_positions("g", "t")["t", 0].offset == 2, "the others are committed"
    else:
        with pytest.raises(BrokerError):
            client.admin().commit("g", {("gone", 0): LogOffset("gone", 0, 3)})
