"""A SEND with a transaction's number: the number is in both places, all else is as it was, and the checksum is right."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto._codec import PulsarBatchBuilder, crc32c
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.coordinators import TransactionId
from wireproto.pulsar.transactional import in_transaction

LARGEST = 2**63 - 1


def built(count: int, **options: Any) -> list[bytes]:
    builder = PulsarBatchBuilder("producer-é", **options)
    for number in range(count):
        assert builder.append(b"value %d" % number * 50, b"key %d" % number, [("h", b"1")], 1_700_000_000_000)
    made: list[bytes] = builder.seal(300, 2**40, 1_700_000_000_001)
    return made


def parts(frame: list[bytes]) -> tuple[Any, Any, bytes]:
    """Command, metadata and payload of a SEND whose checksum is right."""
    data = b"".join(frame)
    at = 4 + int.from_bytes(data[:4], "big")
    base = api.BaseCommand.FromString(data[4:at])
    assert data[at : at + 2] == b"\x0e\x01"
    assert crc32c(data[at + 6 :]) == int.from_bytes(data[at + 2 : at + 6], "big")
    size = int.from_bytes(data[at + 6 : at + 10], "big")
    return base.send, api.MessageMetadata.FromString(data[at + 10 : at + 10 + size]), data[at + 10 + size :]


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"batched": False}, {"batched": False, "compression": "zstd"}])
@pytest.mark.parametrize("number", [TransactionId(0, 0), TransactionId(3, 127), TransactionId(15, 128), TransactionId(LARGEST, LARGEST)])
def test_a_number_is_added_and_nothing_else_changed(options: dict[str, Any], number: TransactionId) -> None:
    plain = built(3 if options.get("batched", True) else 1, **options)
    command, metadata, payload = parts(in_transaction(plain, number))
    for said in (command, metadata):
        assert said.HasField("txnid_most_bits")
        assert said.HasField("txnid_least_bits")
        assert (said.txnid_most_bits, said.txnid_least_bits) == number
        said.ClearField("txnid_most_bits")
        said.ClearField("txnid_least_bits")
    assert (command, metadata, payload) == parts(plain)


def test_a_number_is_shown_as_java_shows_it() -> None:
    assert str(TransactionId(3, 17)) == "(3,17)"
