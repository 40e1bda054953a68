"""ACL and TLS on real brokers of both lines: right and wrong secrets, either header."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ, judge
from patience import until
from wireproto.errors import AuthError, TlsError
from wireproto.position import LATEST
from wireproto.rocketmq import messages

_numbers = itertools.count()
SECRET = "12345678"

pytestmark = [
    pytest.mark.parametrize("broker", ["rocketmq-4.9.7-secure", "rocketmq-5.5.0-secure"], indirect=True),
    pytest.mark.parametrize("header", ["json", "binary"]),
]


def roles(client: Any, topic: str) -> None:
    """One of everything: create, write, read, share, look up by unique key."""
    client.admin().create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        producer.send(b"kept", key=b"k", headers={"TAGS": b"t"}).position(30)
        producer.send(b"")
    with client.reader(topic, stop=LATEST) as reader:
        assert sorted(record.value for batch in reader for record in batch) == [b"", b"kept"]
    with client.consumer(topic, f"g-{topic}") as consumer:
        seen: list[bytes] = []
        while len(seen) < 2:
            batch = consumer.poll(30.0)
            assert batch is not None
            seen += batch.values()
        consumer.commit()
    ends = {key: end for key, end in client.admin().positions(topic).items() if end.offset}
    assert client.admin().group_positions(f"g-{topic}", topic) == ends, "nothing is committed where nothing was read"


def test_right_credentials(broker: RocketMQ, header: str) -> None:
    topic = f"Secure-{os.getpid()}-{next(_numbers)}"
    with wireproto.connect(broker.url, header=header, access_key="RocketMQ", secret_key=SECRET) as client:
        roles(client, topic)
        by_key = messages.QueryMessageRequest(topic=topic, key="k", max_num=32, begin_timestamp=0, end_timestamp=1 << 60)
        assert b"kept" in client.request(by_key).body
        unique = messages.QueryMessageRequest(
            topic=topic, key="none", max_num=32, begin_timestamp=0, end_timestamp=1 << 60, unique_key_query="true"
        )
        with pytest.raises(wireproto.WireprotoError) as caught:
            client.request(unique)
        assert not isinstance(caught.value, AuthError), "the flag is left out of the text signed for 4.9 brokers, and is in it for 5.x"
    found = judge.ask(broker.version, "pull", broker.name_server, topic, "RocketMQ", SECRET)
    assert len(found) == 2


def test_halves_are_ended_and_asked_about(broker: RocketMQ, header: str) -> None:
    topic = f"Halves-{os.getpid()}-{next(_numbers)}"
    with wireproto.connect(broker.url, header=header, access_key="RocketMQ", secret_key=SECRET) as client:
        client.admin().create_topic(topic)
        with client.transactional(f"g-{topic}", lambda message: "commit" if message.key == b"left" else None) as work:
            work.send(b"v", topic=topic, key=b"left")
            with work.send(b"v", topic=topic, key=b"ended"):
                pass
            work.send(b"v", topic=topic, key=b"away").abort()
            until(lambda: client.admin().positions(topic)[topic, 0].offset == 2, limit=90.0)
    found = judge.ask(broker.version, "pull", broker.name_server, topic, "RocketMQ", SECRET)
    assert [message["keys"] for message in found] == ["ended", "left"]


def test_wrong_and_missing_credentials_are_told_and_not_shown(broker: RocketMQ, header: str) -> None:
    topic = f"Refused-{os.getpid()}-{next(_numbers)}"
    with wireproto.connect(broker.url, header=header, access_key="RocketMQ", secret_key=SECRET) as client:
        client.admin().create_topic(topic)
    for credentials in ({"access_key": "RocketMQ", "secret_key": "wrong-secret"}, {"access_key": "nobody1", "secret_key": SECRET}, {}):
        with wireproto.connect(broker.url, header=header, **credentials) as client, pytest.raises(AuthError) as caught:
            client.producer(topic).send(b"x").position(30)
        shown = f"{caught.value!s} {caught.value!r} {client.cluster.options!r}"
        assert "wrong-secret" not in shown
        assert SECRET not in shown


def test_over_tls(broker: RocketMQ, header: str) -> None:
    assert broker.certificates is not None
    url, authority = broker.urls["tls"], str(broker.certificates.ca)
    common = {"header": header, "access_key": "RocketMQ", "secret_key": SECRET, "tls_server_name": "localhost"}
    with wireproto.connect(url, tls_ca_file=authority, **common) as client:
        roles(client, f"Tls-{os.getpid()}-{next(_numbers)}")
    with pytest.raises(TlsError):
        wireproto.connect(url, **common)
