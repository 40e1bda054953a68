"""Places in time, on a broker that lets go of a subscription over a SEEK as a real one does now and then."""

from __future__ import annotations

import time
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer
from wireproto import EARLIEST, LATEST, AtTime, MessageId
from wireproto.errors import TimedOut
from wireproto.pulsar import PulsarApi_pb2 as api

ENTRIES = 6
"""Entry n of ledger 7 was published at n * 10."""
TOPIC = "times"


class Broker:
    """Subscriptions that are not durable, each with the entry before which it stands.

    Args:
        tricks: what happens after the first SEEK, the second …: "closed" ends the consumer that comes next, "lost" its connection,
            "forgotten" drops the place.
    """

    def __init__(self, *tricks: str) -> None:
        self.tricks = list(tricks)
        self.trick = ""
        self.marks: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.server = PulsarServer(subscribe=self.subscribe, seek=self.seek, getLastMessageId=self.last, flow=lambda link, ask: None)

    def subscribe(self, link: Link, ask: Any) -> Any:
        assert not ask.durable
        start = ask.start_message_id
        begin = 0 if start.ledgerId >= 2**63 else start.entryId
        if self.trick == "forgotten":
            self.marks.pop(ask.subscription, None)
            self.trick = ""
        self.marks.setdefault(ask.subscription, begin)
        self.names[ask.consumer_id] = ask.subscription
        return api.CommandSuccess(request_id=ask.request_id)

    def seek(self, link: Link, ask: Any) -> Any:
        self.marks[self.names.pop(ask.consumer_id)] = min(ENTRIES, -(-ask.message_publish_time // 10))
        self.trick = self.tricks.pop(0) if self.tricks else ""
        return [api.CommandCloseConsumer(consumer_id=ask.consumer_id, request_id=2**64 - 1), api.CommandSuccess(request_id=ask.request_id)]

    def last(self, link: Link, ask: Any) -> Any:
        if self.trick == "closed":
            self.trick = ""
            self.marks.pop(self.names.pop(ask.consumer_id))
            return api.CommandError(request_id=ask.request_id, error="MetadataError", message="Consumer not found")
        if self.trick == "lost":
            self.trick = ""
            link.close()
            return None
        mark = self.marks[self.names[ask.consumer_id]] - 1
        return api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id,
            last_message_id=api.MessageIdData(ledgerId=7, entryId=ENTRIES - 1),
            consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=mark & (2**64 - 1)),
        )


@pytest.mark.parametrize("entry", [0, 3, ENTRIES])
@pytest.mark.parametrize(
    "tricks", [(), ("closed",), ("forgotten",), ("lost",), ("forgotten", "closed"), ("closed", "forgotten", "closed")], ids="-".join
)
def test_a_time_is_found_although_the_broker_forgets_what_was_sought(tricks: tuple[str, ...], entry: int) -> None:
    broker = Broker(*tricks)
    with broker.server, wireproto.connect(broker.server.url) as client:
        found = client.admin().positions(TOPIC, AtTime(entry * 10))
    end = MessageId(TOPIC, -1, 7, ENTRIES - 1, after=True)
    assert found == {(TOPIC, -1): MessageId(TOPIC, -1, 7, entry) if entry < ENTRIES else end}
    assert not broker.tricks


def test_the_first_and_the_last_place_need_no_seek() -> None:
    broker = Broker()
    with broker.server, wireproto.connect(broker.server.url) as client:
        assert client.admin().positions(TOPIC, EARLIEST) == {(TOPIC, -1): MessageId(TOPIC, -1, 7, 0)}
        assert client.admin().positions(TOPIC, LATEST) == {(TOPIC, -1): MessageId(TOPIC, -1, 7, ENTRIES - 1, after=True)}
    assert broker.server.count("seek") == 0


def test_a_broker_that_always_forgets_is_given_up_in_time() -> None:
    broker = Broker(*["forgotten"] * 100_000)
    with broker.server, wireproto.connect(broker.server.url) as client:
        begun = time.monotonic()
        with pytest.raises(TimedOut):
            client.admin().positions(TOPIC, AtTime(30), timeout=0.5)
        assert time.monotonic() - begun < 3.0


def test_a_reader_begins_at_a_time_that_was_forgotten_once() -> None:
    broker = Broker("forgotten")
    with broker.server, wireproto.connect(broker.server.url) as client, client.reader(TOPIC, start=AtTime(20)) as reader:
        assert reader.positions == {(TOPIC, -1): MessageId(TOPIC, -1, 7, 2)}
