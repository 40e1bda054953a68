"""SEND_ERROR: what becomes of the entry that is refused, and of those around it.

A broker names a batch by its highest sequence id there, and by its lowest in a receipt; its answer to a refused entry overtakes the
receipts of those before it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, receipt
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import ChecksumError, NotAllowedError
from wireproto.pulsar.partition_producer import RETRY, intact

NEVER = 3600.0


def refusal(send: Any, code: str, text: str = "no") -> Any:
    highest = max(send.sequence_id, send.highest_sequence_id)
    return api.CommandSendError(producer_id=send.producer_id, sequence_id=highest, error=code, message=text)


def three_batches(producer: Any) -> list[Any]:
    """Receipts of the first record of each of three batches of five, which leave one behind the other."""
    receipts = [[producer.send(b"%d" % (5 * batch + number)) for number in range(5)] for batch in range(3)]
    return [batch[0] for batch in receipts]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_refused_batch_fails_alone_and_nothing_is_sent_again(which: int) -> None:
    """Its refusal comes before the receipts of those before it."""
    kept: list[Any] = []

    def send(link: Link, sent: Any) -> Any:
        if sent.sequence_id == 5 * which:
            return refusal(sent, "NotAllowedError", "Exceed maximum message size")
        kept.append(sent)
        return [receipt(one, one.sequence_id) for one in kept] if len(kept) == 2 else None

    with (
        PulsarServer(send=send) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batch_records=5, linger=NEVER) as producer,
    ):
        receipts = three_batches(producer)
        with pytest.raises(NotAllowedError, match="Exceed maximum message size"):
            receipts.pop(which).position(20.0)
        assert [one.position(20.0).entry for one in receipts] == [first for first in (0, 5, 10) if first != 5 * which]
        with pytest.raises(NotAllowedError):
            producer.flush(20.0)
        assert [sent.sequence_id for sent in server.commands("send")] == [0, 5, 10]
        assert (server.count("producer"), len(server.links)) == (1, 2)
        assert client.cluster.budget.used == 0


def test_a_refusal_of_what_is_not_on_its_way_is_passed_over() -> None:
    def send(link: Link, sent: Any) -> Any:
        stranger = api.CommandSendError(producer_id=sent.producer_id, sequence_id=77, error="NotAllowedError", message="no")
        return [stranger, receipt(sent, 0)]

    with PulsarServer(send=send) as server, wireproto.connect(server.url) as client, client.producer("t") as producer:
        assert producer.send(b"x").position(20.0).entry == 0
        assert (server.count("producer"), server.count("send")) == (1, 1)


@pytest.mark.parametrize("code", ["PersistenceError", "MetadataError", "UnknownError"])
def test_what_may_pass_is_sent_again_in_order_on_the_same_connection(code: str) -> None:
    """Two of three are refused in one flight: the producer is opened again once, and all three go out anew."""

    flight: list[Any] = []

    def send(link: Link, sent: Any) -> Any:
        if link.server.count("producer") > 1:
            return receipt(sent, sent.sequence_id)
        flight.append(sent)
        return [refusal(one, code) for one in flight[1:]] if len(flight) == 3 else None

    with (
        PulsarServer(send=send) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batch_records=5, linger=NEVER) as producer,
    ):
        assert [one.position(20.0).entry for one in three_batches(producer)] == [0, 5, 10]
        assert [sent.sequence_id for sent in server.commands("send")] == [0, 5, 10] * 2
        assert [name for name, _ in server.seen if name in ("producer", "close_producer")] == ["producer", "close_producer", "producer"]
        assert len(server.links) == 2


def test_a_receipt_behind_a_refused_entry_does_not_end_the_connection() -> None:
    """What is stored behind it is sent again with it, so that the order is kept."""

    def send(link: Link, sent: Any) -> Any:
        first = link.server.count("producer") == 1
        return refusal(sent, "PersistenceError") if first and sent.sequence_id == 0 else receipt(sent, sent.sequence_id)

    with (
        PulsarServer(send=send) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batch_records=5, linger=NEVER) as producer,
    ):
        assert [one.position(20.0).entry for one in three_batches(producer)] == [0, 5, 10]
        assert len(server.links) == 2


def test_what_is_refused_for_ever_is_tried_less_and_less_often_and_told() -> None:
    with PulsarServer(send=lambda link, sent: refusal(sent, "PersistenceError", "no bookie")) as server:
        with wireproto.connect(server.url, delivery_timeout=2.5) as client:
            producer = client.producer("t")
            with pytest.raises(TimedOut, match="no bookie"):
                producer.send(b"x").position(20.0)
            producer.close()
        tries = server.moments("send")
    assert 3 <= len(tries) <= 8
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    least = RETRY.first * (1.0 - RETRY.jitter)
    assert all(pause >= least * RETRY.factor**number for number, pause in enumerate(pauses))


@pytest.mark.parametrize("times", [1, 9])
def test_an_entry_whose_checksum_is_refused_is_sent_once_more(times: int) -> None:
    """It was changed on its way. Changed twice it is given up, and not those behind it."""
    refused: list[int] = []

    def send(link: Link, sent: Any) -> Any:
        if sent.sequence_id == 0 and len(refused) < times:
            refused.append(sent.sequence_id)
            return refusal(sent, "ChecksumError")
        return receipt(sent, sent.sequence_id)

    with (
        PulsarServer(send=send) as server,
        wireproto.connect(server.url) as client,
        client.producer("t", batching=False) as producer,
    ):
        first, second = producer.send(b"1"), producer.send(b"2")
        if times == 1:
            assert first.position(20.0).entry == 0
        else:
            with pytest.raises(ChecksumError):
                first.position(20.0)
            producer.flush(20.0)
        assert second.position(20.0).entry == 1
        assert len(refused) == min(times, 2)


def test_an_entry_that_was_changed_in_memory_is_known() -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as producer:
        server.answers["send"] = lambda link, sent: None
        waiting = producer.send(b"some value")
        server.wait("send")
        (batch,) = producer._partitions[0]._queue.in_flight
        frame = batch.builder.seal(1, 0, 0)
        assert intact(frame)
        data = bytearray(b"".join(frame))
        data[-1] ^= 1
        assert not intact([bytes(data)])
        frame[:] = [bytes(data)]
        server.links[-1].send(refusal(server.commands("send")[0], "ChecksumError"))
        with pytest.raises(ChecksumError):
            waiting.position(20.0)
        assert server.count("producer") == 1
        producer.flush(20.0)


def test_the_dev_broker_names_a_refused_batch_as_a_broker_does() -> None:
    with DevBroker(["pulsar"]) as broker, wireproto.connect(broker.url("pulsar")) as client:
        seen = broker.record("pulsar")
        broker.faults("pulsar").error("send", 22)
        with client.producer("t", batch_records=5, linger=NEVER) as producer:
            receipts = three_batches(producer)
            with pytest.raises(NotAllowedError):
                receipts[0].position(20.0)
            assert [one.position(20.0).entry for one in receipts[1:]] == [0, 1]
            with pytest.raises(NotAllowedError):
                producer.flush(20.0)
        assert [reply.message.sequence_id for reply in seen.replies("send_error")] == [4]
        assert len(seen.requests("send")) == 3
        read = [value for batch in client.reader("t", stop=wireproto.LATEST) for value in batch.values()]
        assert read == [b"%d" % number for number in range(5, 15)]


def test_a_producer_whose_ids_are_told_ends_with_its_first_failure() -> None:
    """It is repeated from the first id on: what came behind the failure would have the missing batch taken for a duplicate."""

    def send(link: Link, sent: Any) -> Any:
        return refusal(sent, "NotAllowedError", "too large") if sent.sequence_id == 7 else receipt(sent, sent.sequence_id)

    with PulsarServer(send=send) as server, wireproto.connect(server.url) as client:
        producer = client.producer("t", batching=False, first_sequence=7)
        with pytest.raises(NotAllowedError):
            producer.send(b"a").position(20.0)
        with pytest.raises(NotAllowedError):
            producer.send(b"b")
        producer.close()
        assert [one.sequence_id for one in server.commands("send")] == [7]
        assert client.cluster.budget.used == 0
