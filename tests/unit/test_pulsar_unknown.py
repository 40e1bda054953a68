"""UnknownError, which may be anything, while a role is opened: it is asked a few times more, and told then."""

from __future__ import annotations

from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto.net.retry import BRIEFLY
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import UnknownError

STEPS = [
    *(("producer", step) for step in ("partitionMetadata", "lookupTopic", "producer")),
    *(("reader", step) for step in ("partitionMetadata", "lookupTopic", "subscribe")),
    ("consumer", "subscribe"),
    ("queue", "subscribe"),
]


def refusal(step: str, ask: Any) -> Any:
    facts = {"request_id": ask.request_id, "error": "UnknownError", "message": "something came up"}
    if step == "partitionMetadata":
        return api.CommandPartitionedTopicMetadataResponse(response="Failed", **facts)
    return api.CommandLookupTopicResponse(response="Failed", **facts) if step == "lookupTopic" else api.CommandError(**facts)


def told(link: Link, ask: Any) -> None:
    link.send(success(link, ask))
    link.send(api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=True))


def use(client: Any, role: str) -> None:
    """Have it do all that opening takes."""
    if role == "producer":
        client.producer("t").close()
    elif role == "reader":
        with client.reader("t") as reader:
            reader.poll(5.0)
    else:
        with getattr(client, role)("t", "group") as opened:
            opened.receive(timeout=5.0) if role == "queue" else opened.poll(5.0)


def serving(step: str, refusals: int) -> PulsarServer:
    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=0, response="Success")

    def one(link: Link, ask: Any) -> None:
        link.message(ask.consumer_id, 0, stored([b"value"]))

    def last(link: Link, ask: Any) -> Any:
        end, mark = api.MessageIdData(ledgerId=7, entryId=100), api.MessageIdData(ledgerId=7, entryId=2**64 - 1)
        return api.CommandGetLastMessageIdResponse(request_id=ask.request_id, last_message_id=end, consumer_mark_delete_position=mark)

    server = PulsarServer(getLastMessageId=last, partitionMetadata=metadata, subscribe=told, flow=one, ack=acknowledged)
    usual = server.answers[step]

    def answer(link: Link, ask: Any) -> Any:
        return refusal(step, ask) if link.server.count(step) <= refusals else usual(link, ask)

    server.answers[step] = answer
    return server


@pytest.mark.parametrize(("role", "step"), STEPS)
def test_it_is_asked_again_a_few_times(role: str, step: str) -> None:
    with serving(step, BRIEFLY) as server, wireproto.connect(server.url, timeout=20.0) as client:
        use(client, role)
        assert server.count(step) > BRIEFLY


@pytest.mark.parametrize(("role", "step"), [STEPS[1], STEPS[2], STEPS[5]])
def test_then_it_is_told(role: str, step: str) -> None:
    with serving(step, 1000) as server, wireproto.connect(server.url, timeout=20.0) as client:
        with pytest.raises(UnknownError, match="something came up"):
            use(client, role)
        assert server.count(step) == BRIEFLY + 1
