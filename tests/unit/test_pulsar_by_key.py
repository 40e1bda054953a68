"""Batches of one key each (`batching="key"`): a broker hands a whole batch to the worker that its first key belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import PulsarServer, metadata_of, receipt
from wireproto._codec import Columns
from wireproto.errors import OptionError, TimedOut
from wireproto.pulsar import PulsarApi_pb2 as api

KEYS = [b"a", b"b", b"a", None, b"c", b"b", b"a", None]


def batches(server: PulsarServer) -> list[tuple[bytes | None, list[bytes]]]:
    """(the batch's key, values) of each SEND; every message in it has that key."""
    found = []
    for entry in list(server.entries):
        metadata, payload = metadata_of(entry)
        key = metadata.partition_key.encode() if metadata.HasField("partition_key") else None
        values = []
        while payload:
            size = int.from_bytes(payload[:4], "big")
            single = api.SingleMessageMetadata.FromString(payload[4 : 4 + size])
            assert (single.partition_key.encode() if single.HasField("partition_key") else None) == key
            values.append(payload[4 + size : 4 + size + single.payload_size])
            payload = payload[4 + size + single.payload_size :]
        assert len(values) == metadata.num_messages_in_batch
        found.append((key, values))
    return found


def numbered(keys: Sequence[bytes | None]) -> list[tuple[bytes | None, bytes]]:
    return [(key, b"%d" % number) for number, key in enumerate(keys)]


WANTED = [(b"a", [b"0", b"2", b"6"]), (b"b", [b"1", b"5"]), (None, [b"3", b"7"]), (b"c", [b"4"])]


@pytest.mark.parametrize("how", ["flush", "close", "position", "linger", "rows", "another producer's flush"])
def test_a_batch_holds_one_key_and_all_leave_together(how: str) -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching="key", linger=1.0 if how == "linger" else 60.0)
        if how == "rows":
            rows = numbered(KEYS)
            out.send_batch(Columns.from_rows([value for _, value in rows], keys=[key for key, _ in rows]))
            out.flush(20.0)
        else:
            receipts = [out.send(value, key=key) for key, value in numbered(KEYS)]
            if how == "flush":
                out.flush(20.0)
            elif how == "close":
                out.close(20.0)
            elif how == "position":
                receipts[4].position(20.0)
            elif how == "another producer's flush":
                assert not server.count("send")
                out.seal()
            server.wait("send", 4)
            places = [one.position(20.0) for one in receipts]
            assert len(set(places)) == len(KEYS), "each record has its own place"
            entries = [one.entry for one in places]
            assert [place.index for place in places] == [0, 0, 1, 0, 0, 1, 2, 1]
            assert entries == [1, 2, 1, 3, 4, 2, 1, 3]
        assert batches(server) == WANTED
        assert [send.sequence_id for send in server.commands("send")] == [0, 3, 5, 7], "ids without a gap, in order of sending"


def test_a_full_batch_takes_the_others_along() -> None:
    """So there are never more of them than records close one."""
    with PulsarServer() as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching="key", linger=60.0, batch_records=3)
        for key, value in numbered([b"a", b"b", b"a", b"a", b"b"]):
            out.send(value, key=key)
        server.wait("send", 2)
        assert batches(server) == [(b"a", [b"0", b"2", b"3"]), (b"b", [b"1"])]
        for number in range(20):
            out.send(b"", key=b"%d" % number)
        server.wait("send", 2 + 3 + 12)
        out.flush(20.0)
        assert server.count("send") == 2 + 1 + 20


def test_without_a_linger_each_leaves_at_once() -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching="key", linger=0)
        for number, (key, value) in enumerate(numbered(KEYS)):
            out.send(value, key=key)
            server.wait("send", number + 1)
        assert batches(server) == [(key, [value]) for key, value in numbered(KEYS)]


def test_after_a_loss_all_go_again_in_order_under_their_ids() -> None:
    answer: Any = lambda link, send: receipt(send, send.sequence_id)  # noqa: E731
    with PulsarServer(send=lambda link, send: None) as server, wireproto.connect(server.url) as client:
        out = client.producer("t", batching="key", linger=60.0)
        receipts = [out.send(value, key=key) for key, value in numbered(KEYS)]
        out.seal()
        server.wait("send", 4)
        server.answers["send"] = answer
        server.links[-1].close()
        assert len({one.position(20.0) for one in receipts}) == len(KEYS)
        sends = [send.sequence_id for send in server.commands("send")]
        assert sends == [0, 3, 5, 7] * 2
        assert batches(server) == WANTED * 2


def test_what_is_not_sent_in_time_fails_whatever_its_key() -> None:
    with PulsarServer() as server, wireproto.connect(server.url, operation_timeout=0.5) as client:
        out = client.producer("t", batching="key", linger=0.9, delivery_timeout=1.0)
        server.answers["producer"] = lambda link, ask: None
        server.links[-1].close()
        until(lambda: server.count("producer") > 1)
        receipts = [out.send(value, key=key) for key, value in numbered(KEYS)]
        until(lambda: all(one.done for one in receipts))
        for one in receipts:
            with pytest.raises(TimedOut, match="not acknowledged within 1 s"):
                one.position(20.0)
        out.flush(20.0)
        assert client.cluster.budget.used == 0
        server.answers["producer"] = lambda link, ask: api.CommandProducerSuccess(request_id=ask.request_id, producer_name="p-1")

        def stored() -> bool:
            with suppress(TimedOut):
                return out.send(b"x", key=b"a").position(20.0) is not None
            return False

        until(stored, "records went into a batch that had failed")


def test_the_word_is_known_in_urls_and_no_other() -> None:
    with PulsarServer() as server:
        with wireproto.connect(f"{server.url}?batching=key&linger=1m") as client:
            out = client.producer("t")
            for key, value in numbered([b"a", b"b", b"a"]):
                out.send(value, key=key)
            out.flush(20.0)
        assert batches(server) == [(b"a", [b"0", b"2"]), (b"b", [b"1"])]
        with pytest.raises(OptionError, match="batching"):
            wireproto.connect(server.url, batching="keys")
