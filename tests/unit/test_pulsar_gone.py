"""A broker closes a consumer while a request about it is on its way: the request is made again once the consumer is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
from patience import LATE
from pulsar_server import Link, PulsarServer
from wireproto import LATEST, MessageId
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import MetadataError

TOPIC = "gone"
PLACE = MessageId(TOPIC, -1, 7, 4, after=True)


def not_found(link: Link, ask: Any) -> Any:
    return api.CommandError(request_id=ask.request_id, error="MetadataError", message="Consumer not found")


def closed(link: Link, ask: Any) -> Any:
    """What a real broker does with an ACK of a consumer that it has closed: no answer."""
    return api.CommandCloseConsumer(consumer_id=ask.consumer_id, request_id=2**64 - 1)


def hung_up(link: Link, ask: Any) -> Any:
    link.close()


def first(trouble: Callable[[Link, Any], Any], then: Callable[[Any], Any]) -> Callable[[Link, Any], Any]:
    """An answer that is trouble once."""
    seen: list[Any] = []

    def answer(link: Link, ask: Any) -> Any:
        seen.append(ask)
        return trouble(link, ask) if len(seen) == 1 else then(ask)

    return answer


def last(ask: Any) -> Any:
    place = api.MessageIdData(ledgerId=7, entryId=4)
    return api.CommandGetLastMessageIdResponse(request_id=ask.request_id, last_message_id=place, consumer_mark_delete_position=place)


def server(trouble: Callable[[Link, Any], Any]) -> PulsarServer:
    return PulsarServer(
        subscribe=lambda link, ask: api.CommandSuccess(request_id=ask.request_id),
        ack=first(trouble, lambda ask: api.CommandAckResponse(consumer_id=ask.consumer_id, request_id=ask.request_id)),
        getLastMessageId=lambda link, ask: last(ask),
        consumerStats=first(trouble, lambda ask: api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=3)),
    )


@pytest.mark.parametrize("trouble", [not_found, closed, hung_up])
def test_questions_and_acknowledgements_are_put_again(trouble: Callable[[Link, Any], Any]) -> None:
    with server(trouble) as broker, wireproto.connect(broker.url) as client:
        with client.consumer(TOPIC, "group", mode="exclusive") as consumer:
            consumer.commit({(TOPIC, -1): PLACE}, timeout=5.0)
            broker.answers["getLastMessageId"] = first(trouble, last)
            assert consumer.committed(timeout=5.0) == {(TOPIC, -1): PLACE}
            assert consumer.lag(timeout=5.0) == {(TOPIC, -1): 3}
        acks = broker.commands("ack")
    assert [ack.message_id[0].entryId for ack in acks] == [4, 4]
    assert acks[0].consumer_id != acks[1].consumer_id
    assert broker.count("subscribe") == 4


@pytest.mark.parametrize("trouble", [closed, hung_up])
def test_a_query_s_subscription_moves_on_though_its_consumer_is_gone(trouble: Callable[[Link, Any], Any]) -> None:
    with server(trouble) as broker, wireproto.connect(broker.url, timeout=5.0) as client:
        client.hold("group").move({(TOPIC, -1): MessageId(TOPIC, -1, 7, 5)})
        assert [ack.message_id[0].entryId for ack in broker.commands("ack")] == [4, 4]
        assert broker.count("flow") == 0


def test_a_broker_that_cannot_say_just_now_is_asked_again() -> None:
    """The consumer stays: nothing is subscribed anew."""

    def unready(link: Link, ask: Any) -> Any:
        return api.CommandError(request_id=ask.request_id, error="MetadataError", message="Failed to get batch size for entry")

    with server(unready) as broker, wireproto.connect(broker.url) as client:
        with client.consumer(TOPIC, "group", mode="exclusive") as consumer:
            consumer.commit({(TOPIC, -1): PLACE}, timeout=20.0)
            broker.answers["getLastMessageId"] = first(unready, last)
            assert consumer.committed(timeout=20.0) == {(TOPIC, -1): PLACE}
            assert consumer.lag(timeout=20.0) == {(TOPIC, -1): 3}
        assert [broker.count(name) for name in ("ack", "getLastMessageId", "consumerStats", "subscribe")] == [2, 3, 2, 1]


@pytest.mark.parametrize("silent", [False, True])
def test_a_refusal_that_lasts_is_told(silent: bool) -> None:
    """Also where the broker says nothing more in the end."""

    def refused(link: Link, ask: Any) -> Any:
        if silent and link.server.count("getLastMessageId") > 2:
            return None
        return api.CommandError(request_id=ask.request_id, error="MetadataError", message="Failed to get batch size for entry")

    with (
        PulsarServer(subscribe=lambda link, ask: api.CommandSuccess(request_id=ask.request_id), getLastMessageId=refused) as broker,
        wireproto.connect(broker.url) as client,
        client.consumer(TOPIC, "group", mode="exclusive") as consumer,
    ):
        with pytest.raises(MetadataError):
            consumer.committed(timeout=2.0)
        assert broker.count("getLastMessageId") > 2


def test_a_bounded_read_that_asks_in_vain_whether_more_comes_asks_again() -> None:
    """Nothing came for a while, and the broker owes the answer whether anything is left: a poll finds nothing, and fails nobody."""
    asked: list[Any] = []

    def stats(link: Link, ask: Any) -> Any:
        asked.append(ask)
        return None if len(asked) == 1 else api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=0)

    def unread(link: Link, ask: Any) -> Any:
        end, mark = api.MessageIdData(ledgerId=7, entryId=4), api.MessageIdData(ledgerId=7, entryId=-1 % 2**64)
        return api.CommandGetLastMessageIdResponse(request_id=ask.request_id, last_message_id=end, consumer_mark_delete_position=mark)

    scripted = PulsarServer(
        subscribe=lambda link, ask: api.CommandSuccess(request_id=ask.request_id),
        getLastMessageId=unread,
        consumerStats=stats,
    )
    with scripted, wireproto.connect(scripted.url) as client, client.reader(TOPIC, stop=LATEST) as reader:
        begun = time.monotonic()
        assert reader.poll(1.2) is None
        assert time.monotonic() - begun < 1.2 + 1.0 + LATE
        assert len(asked) == 1
        assert reader.poll(30.0) is None
        assert (reader.done, len(asked)) == (True, 2)
