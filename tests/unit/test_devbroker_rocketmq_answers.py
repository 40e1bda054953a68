"""The dev broker's RocketMQ side does what a real broker does with a message or a pull that asks for more, or refuses as real ones can."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError
from wireproto.position import LATEST
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import NoPermission, QueryNotFound, ServerError
from wireproto.rocketmq.messages import (
    CheckClientConfigRequest,
    EndTransactionRequest,
    PullMessageRequest,
    QueryMessageRequest,
    SendMessageRequest,
)

DAY = 86_400_000


@pytest.fixture(scope="module")
def client() -> Iterator[RocketClient]:
    with DevBroker(["rocketmq"], auto_create=False) as broker, wireproto.connect(broker.url("rocketmq")) as opened:
        for topic in ("plain", "delayed", "tagged", "keyed"):
            opened.admin().create_topic(topic)
        yield opened


def send(client: RocketClient, topic: str, body: bytes, sys_flag: int = 0, **properties: str) -> object:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    message = SendMessageRequest(
        producer_group="g", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=sys_flag,
        born_timestamp=1, flag=0, properties=text,
    )  # fmt: skip
    return client.request(message, body=body, to=(topic, 0))


def pull(client: RocketClient, topic: str, expression: str, kind: str = "TAG", flag: int = 4) -> bytes:
    message = PullMessageRequest(
        consumer_group="g", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=flag, commit_offset=0,
        suspend_timeout_millis=0, subscription=expression, sub_version=0, expression_type=kind,
    )  # fmt: skip
    return client.request(message, to=(topic, 0)).body


def test_halves_and_timers_are_refused_and_never_seen(client: RocketClient) -> None:
    for flag, properties in ((4, {"TRAN_MSG": "true", "PGROUP": "g"}), (4, {}), (0, {"TRAN_MSG": "true"})):
        with pytest.raises(NoPermission, match="transaction"):
            send(client, "plain", b"half", flag, **properties)
    for name in ("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"):
        with pytest.raises(ServerError, match="timer"):
            send(client, "plain", b"timed", **{name: "1000"})
    with pytest.raises(BrokerError):
        client.request(
            EndTransactionRequest(
                producer_group="g", tran_state_table_offset=0, commit_log_offset=0, commit_or_rollback=8, from_transaction_check=False,
                msg_id="x",
            ),
            to="dev",
        )  # fmt: skip
    assert client.admin().positions("plain", LATEST)["plain", 0].offset == 0


def test_a_delayed_message_is_shown_when_its_level_is_over(client: RocketClient) -> None:
    began = time.monotonic()
    send(client, "delayed", b"later", DELAY="1")
    send(client, "delayed", b"hours later", DELAY="99")
    send(client, "delayed", b"now")
    with client.reader("delayed") as reader:
        found: list[bytes | None] = []
        while len(found) < 2:
            batch = reader.poll(30.0)
            assert batch is not None
            found += batch.values()
            assert b"later" not in found or time.monotonic() - began >= 1.0
        assert found == [b"now", b"later"]
        assert reader.poll(0.2) is None


def test_tags_are_compared_by_their_hash_code_alone(client: RocketClient) -> None:
    for body, tag in ((b"one", "Aa"), (b"two", "BB"), (b"three", "C")):
        send(client, "tagged", body, TAGS=tag)
    found = pull(client, "tagged", "Aa")
    assert (b"one" in found, b"two" in found, b"three" in found) == (True, True, False)
    found = pull(client, "tagged", "C || D")
    assert (b"one" in found, b"three" in found) == (False, True)


def test_filters_by_sql_are_refused_as_by_a_broker_as_it_is_out_of_the_box(client: RocketClient) -> None:
    with pytest.raises(ServerError, match="SQL92"):
        pull(client, "plain", "a > 3", "SQL92")
    for kind in ("TAG", "SQL92"):
        body = {"clientId": "c", "group": "g", "subscriptionData": {"expressionType": kind}}
        with pytest.raises(ServerError, match="SQL92") if kind == "SQL92" else contextlib.nullcontext():
            client.request(CheckClientConfigRequest(), body=body, to="dev")


def test_messages_are_found_by_key_and_by_unique_id(client: RocketClient) -> None:
    send(client, "keyed", b"first", KEYS="k1 k2", UNIQ_KEY="ID1")
    send(client, "keyed", b"second", KEYS="k2", UNIQ_KEY="ID2")
    now = int(time.time() * 1000)

    def query(key: str, most: int = 32, begin: int = now - DAY, **more: str) -> bytes:
        message = QueryMessageRequest(topic="keyed", key=key, max_num=most, begin_timestamp=begin, end_timestamp=now + DAY, **more)
        return client.request(message, to=("keyed", 0)).body

    assert [body in query("k2") for body in (b"first", b"second")] == [True, True]
    assert [body in query("k1") for body in (b"first", b"second")] == [True, False]
    assert [body in query("ID2", unique_key_query="true") for body in (b"first", b"second")] == [False, True]
    assert len(query("k2")) > len(query("k2", most=1)) > 0
    for key, begin in (("k3", now - DAY), ("ID1", now - DAY), ("k1", now + DAY)):
        with pytest.raises(QueryNotFound):
            query(key, begin=begin)
