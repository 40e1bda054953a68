"""Entries that cannot be read, or are of a kind that is not supported: a Reader or Consumer says which, and how to go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, standing, stored, subscribed, success
from wireproto._codec import crc32c
from wireproto.errors import Malformed
from wireproto.position import MessageId
from wireproto.pulsar import PulsarApi_pb2 as api


def entry(what: str) -> bytes:
    """Of one record, encrypted or a part of a larger one."""
    meta = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if what == "encrypted":
        meta.encryption_keys.add(key="k", value=b"v")
    else:
        meta.uuid, meta.num_chunks_from_msg, meta.chunk_id, meta.total_chunk_msg_size = "u", 2, 0, 4
    head = meta.SerializeToString()
    checked = len(head).to_bytes(4, "big") + head + b"xx"
    return b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked


@pytest.mark.parametrize("role", ["reader", "consumer"])
@pytest.mark.parametrize(("what", "why"), [("encrypted", "is encrypted"), ("chunk", "chunk of a larger message")])
def test_the_way_on_from_what_is_not_supported_is_told(role: str, what: str, why: str) -> None:
    """Entries 0 to 3, the second of which cannot be read. The error comes again until the place behind it is sought."""
    sought = [0]

    def flow(link: Link, ask: Any) -> None:
        if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) > 1:
            return
        subscribe = link.server.commands("subscribe")[-1]
        first = subscribe.start_message_id.entryId + 1 if subscribe.start_message_id.ledgerId == 7 else sought[0]
        for number in range(first, 4):
            link.message(ask.consumer_id, number, entry(what) if number == 1 else stored([b"%d" % number]))

    def seek(link: Link, ask: Any) -> Any:
        sought[0] = ask.message_id.entryId
        return success(link, ask)

    answers = {"subscribe": subscribed, "ack": acknowledged, "getLastMessageId": standing(3), "seek": seek, "flow": flow}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        opened = client.reader("t") if role == "reader" else client.consumer("t", "g")
        with opened as log:
            assert log.poll(20.0).values() == [b"0"]
            for _ in range(2):
                with pytest.raises(Malformed, match=rf"{why}; seek behind it, or set on_corrupt, to continue") as caught:
                    log.poll(20.0)
            place = caught.value.position
            assert place == MessageId("t", -1, 7, 1)
            log.seek(replace(place, after=True))
            found: list[bytes] = []
            while len(found) < 2:
                batch = log.poll(20.0)
                assert batch is not None
                found += batch.values()
            assert found == [b"2", b"3"]
