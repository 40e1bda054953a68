"""Hostile bytes: each message of the four protocols in every version, cut at every byte, changed thousands of ways, with lengths that lie.

A typed error or a value: never another exception, and never memory beyond a small multiple of the input. The same checks run for as long as
one likes under the sanitizers: `make fuzz`, which has its share of `make test`, too.
"""

from __future__ import annotations

import ast
import contextlib
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import chance
from fuzz.mutate import Mutator
from fuzz.samples import filled, proto_messages, schema_messages
from fuzz.targets import TARGETS
from wireproto import wire
from wireproto._codec import RemotingCommand, decode_kafka, decode_pulsar, decode_rocketmq
from wireproto.errors import Malformed, ProtocolError, Truncated, WireprotoError
from wireproto.message import message_class

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
INPUTS = {"kafka-messages": 40_000, "pulsar-messages": 5_000, "zookeeper-messages": 20_000}


@pytest.mark.parametrize("protocol", ["kafka", "zookeeper"])
def test_every_strict_prefix_of_every_message_is_truncated(protocol: str) -> None:
    cuts = 0
    for name, version, cls, data in schema_messages(protocol, seed=21):
        for cut in range(len(data)):
            with pytest.raises(Truncated):
                cls.decode(data[:cut], version)
            cuts += 1
        if data:
            with pytest.raises(Truncated):
                wire.decode(protocol, name, version, data[: len(data) // 2])
        with pytest.raises(Malformed):
            cls.decode(data + b"\0", version)
    assert cuts > {"kafka": 60_000, "zookeeper": 2_000}[protocol]


def test_every_strict_prefix_of_a_frame_is_truncated() -> None:
    for target in ("rocketmq-messages", "pulsar-messages", "zookeeper-multi"):
        for (protocol, name, version), data in TARGETS[target].corpus():
            if protocol == "pulsar" and name != "Frame":
                continue
            for cut in range(len(data)):
                with pytest.raises(Truncated):
                    wire.decode(protocol, name, version, data[:cut])
            with pytest.raises(Malformed):
                wire.decode(protocol, name, version, data + b"\0")


def test_a_prefix_of_a_bare_protobuf_is_truncated_unless_it_is_a_message_itself() -> None:
    """protobuf ends where its bytes end: what is cut between two optional fields is whole."""
    whole = cut_off = 0
    for name, data in proto_messages():
        for cut in range(len(data)):
            try:
                fields = wire.decode("pulsar", name, 0, data[:cut])
            except Truncated:
                cut_off += 1
            else:
                assert wire.encode("pulsar", name, 0, fields) == data[:cut]
                whole += 1
    assert cut_off > 3 * whole


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_changed_inputs_give_a_typed_error_or_a_value(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    mutator = Mutator(tmp_path / "memory", chance.seed())
    for label, data in target.corpus():
        mutator.add(label, data)
    decoded = 0
    runs = INPUTS.get(name, 10_000)
    for _ in range(runs):
        label, data = mutator.input()
        with contextlib.suppress(WireprotoError):
            target.check(label, data)
            decoded += 1
    assert runs // 200 < decoded


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.hex")), ids=lambda path: path.stem)
def test_what_once_went_wrong(path: Path) -> None:
    head, *_, text = path.read_text().splitlines()
    name = next(name for name in TARGETS if path.name.startswith(name))
    label = ast.literal_eval(head.removeprefix("# "))
    if name in ("kafka-messages", "zookeeper-messages"):
        label = (label[0], label[1], message_class(label[0], label[1]), label[2])
    with contextlib.suppress(WireprotoError):
        for _ in range(100):  # some checks are made now and then only
            TARGETS[name].check(label, bytes.fromhex(text))


# ---- memory -----------------------------------------------------------------------------------------------------------------------

MULTIPLE = 40  # bytes of objects per byte of input: a tuple's pointer and a struct of the smallest kind, doubled while a list grows
ROOM = 64 << 10  # an error's text and traceback, what is cached on first use


def peak_of(act: object, *arguments: object) -> int:
    """Bytes that a call had at most at a time."""
    tracemalloc.clear_traces()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with contextlib.suppress(ProtocolError):
        act(*arguments)  # type: ignore[operator]
    return tracemalloc.get_traced_memory()[1] - before


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("protocol", ["kafka", "zookeeper"])
def test_lengths_and_counts_that_lie_take_no_memory(protocol: str) -> None:
    """The largest numbers are put over every place of a message, in every version."""
    rng = random.Random(3)
    lies = [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\x7f\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f"]
    for _, version, cls, data in schema_messages(protocol, seed=22):
        cls.decode(data, version)
        for at in rng.sample(range(len(data)), min(len(data), 6)):
            lie = rng.choice(lies)
            bad = data[:at] + lie + data[at + len(lie) :]
            peak = peak_of(cls.decode, bad, version)
            assert peak <= MULTIPLE * len(bad) + ROOM, (cls.__name__, version, at, peak, len(bad))


@pytest.mark.usefixtures("traced")
def test_the_densest_messages_take_a_small_multiple_of_their_bytes() -> None:
    """A megabyte of the smallest items that there are: what an item costs, times as many as the bytes can hold."""
    size = 1 << 20
    count = size.to_bytes(4, "big")
    dense = {
        ("kafka", "MetadataRequest", 0): (size // 2).to_bytes(4, "big") + bytes(size),  # empty names of two bytes
        ("kafka", "OffsetFetchRequest", 8): b"\x81\x80\x40" + bytes(size),  # groups of a few zero bytes
        ("kafka", "ListGroupsRequest", 5): b"\x81\x80\x40" + b"\x01" * size,  # empty texts of one byte
        ("kafka", "FetchRequest", 12): b"\xff" * 12 + bytes(9) + b"\x81\x80\x20" + b"\x01\x01\x00" * (size // 3),
        ("zookeeper", "GetChildrenResponse", 0): (size // 4).to_bytes(4, "big") + bytes(size),
        ("zookeeper", "SetWatches", 0): bytes(8) + (size // 4).to_bytes(4, "big") + bytes(size),
    }
    for (protocol, name, version), data in dense.items():
        cls = message_class(protocol, name)
        with contextlib.suppress(ProtocolError):
            cls.decode(data[:50], version)
        assert peak_of(cls.decode, data, version) <= MULTIPLE * len(data), name
    tags = b"\x00" * 7 + b"\xff\xff\xff\x7f" + b"".join(bytes([0x80 | n & 127, n >> 7, 0]) for n in range(128, 16_000))
    assert peak_of(message_class("kafka", "ApiVersionsResponse").decode, tags, 3) <= MULTIPLE * len(tags) + ROOM
    assert peak_of(message_class("kafka", "MetadataRequest").decode, count, 0) < ROOM


@pytest.mark.usefixtures("traced")
def test_records_that_lie_take_no_memory() -> None:
    readers = {
        "kafka-records": lambda data: decode_kafka(data, topic="t", partition=0, fetch_offset=0, check_crc=False, limit=1 << 16),
        "pulsar-entries": lambda data: decode_pulsar([data], topic="t", partition=0, check_crc=False, limit=1 << 16),
        "rocketmq-stored": lambda data: decode_rocketmq(data, topic="t", partition=0, check_crc=False, limit=1 << 16),
        "rocketmq-headers": RemotingCommand.decode,
    }
    rng = random.Random(4)
    for name, read in readers.items():
        for _, data in TARGETS[name].corpus():
            with contextlib.suppress(ProtocolError):
                read(data)
            for _ in range(40):
                at = rng.randrange(len(data))
                lie = rng.choice([b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\x0f\xff\xff\xff\x7f"])
                bad = data[:at] + lie + data[at + len(lie) :]
                assert peak_of(read, bad) <= MULTIPLE * len(bad) + 4 * ROOM + (1 << 16), (name, at)


def test_a_table_of_columns_is_not_sized_by_a_lie() -> None:
    """The core's own memory is not Python's: the process may not grow while batches claim two thousand million records."""
    code = """
import resource, struct, sys
from fuzz.targets import TARGETS
from wireproto._codec import decode_kafka, decode_pulsar, decode_rocketmq
from wireproto.errors import WireprotoError
def all_of(sign):
    for label, data in TARGETS["kafka-records"].corpus():
        if data[16] != 2: continue
        for at in (23, 57):
            bad = data[:at] + sign + data[at + 4:]
            try: decode_kafka(bad, topic="t", partition=0, fetch_offset=0, check_crc=False)
            except WireprotoError: pass
    for label, data in TARGETS["pulsar-entries"].corpus():
        for at in range(0, len(data) - 4):
            try: decode_pulsar([data[:at] + sign + data[at + 4:]], topic="t", partition=0, check_crc=False)
            except WireprotoError: pass
    for label, data in TARGETS["rocketmq-stored"].corpus():
        for at in range(0, len(data) - 4):
            try: decode_rocketmq(data[:at] + sign + data[at + 4:], topic="t", partition=0, check_crc=False)
            except WireprotoError: pass
all_of(bytes(4))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for sign in (b"\\x7f\\xff\\xff\\xff", b"\\x0f\\xff\\xff\\xff", b"\\xff\\xff\\xff\\x7f"): all_of(sign)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    paths = [str(Path(__file__).parents[1]), *[path for path in sys.path if path.endswith("src")]]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) < 32 << 10  # KiB


# ---- what is not canonical --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "version", "text", "refused"),
    [
        ("ApiVersionsRequest", 3, "0261026200", ""),  # canonical
        ("ApiVersionsRequest", 3, "02610262026401616501aa", ""),  # with tags that no schema has
        ("ApiVersionsRequest", 3, "01010202000100", ""),  # such tags out of order
        ("MetadataRequest", 9, "82800002740000000000", ""),  # a count as an overlong varint
        ("MetadataRequest", 9, "0202740001000000", ""),  # canonical
        ("MetadataRequest", 9, "020274000100000000", "1 bytes left over"),
        ("MetadataRequest", 1, "0000000100017400", "1 bytes left over"),
        ("MetadataRequest", 9, "020000010000", "null where this version has none"),
    ],
)
def test_what_is_written_otherwise_comes_back_as_it_was_or_is_refused(message: str, version: int, text: str, refused: str) -> None:
    data = bytes.fromhex(text)
    if refused:
        with pytest.raises(Malformed, match=refused):
            wire.decode("kafka", message, version, data)
    else:
        assert wire.encode("kafka", message, version, wire.decode("kafka", message, version, data)) == data


def test_a_default_on_the_wire_and_tags_out_of_order_are_kept() -> None:
    """Kafka reads both and writes neither: the fields are Kafka's, the bytes stay."""
    canonical = bytes.fromhex("0000010000000000")
    plain = wire.decode("kafka", "ApiVersionsResponse", 3, canonical)
    assert wire.ORIGINAL not in plain
    defaulted = canonical[:-1] + bytes.fromhex("010108ffffffffffffffff")  # finalizedFeaturesEpoch, which is -1 anyway
    fields = wire.decode("kafka", "ApiVersionsResponse", 3, defaulted)
    assert fields.pop(wire.ORIGINAL)
    assert fields == plain
    fields = wire.decode("kafka", "ApiVersionsResponse", 3, defaulted)
    assert wire.encode("kafka", "ApiVersionsResponse", 3, fields) == defaulted
    fields["throttleTimeMs"] = 5  # changed by hand: what the bytes were does not count any more
    assert wire.encode("kafka", "ApiVersionsResponse", 3, fields) == canonical[:3] + b"\0\0\0\5" + b"\0"
    disordered = canonical[:-1] + bytes.fromhex("026501aa6401bb")
    fields = wire.decode("kafka", "ApiVersionsResponse", 3, disordered)
    assert [item["tag"] for item in fields["unknownTags"]] == [100, 101]
    assert wire.encode("kafka", "ApiVersionsResponse", 3, fields) == disordered
    for twice in ("026401aa6401bb", "020108ffffffffffffffff01080000000000000000"):
        with pytest.raises(Malformed, match="twice"):
            wire.decode("kafka", "ApiVersionsResponse", 3, canonical[:-1] + bytes.fromhex(twice))


def test_samples_are_what_they_claim() -> None:
    """The checks above would be empty if the samples were."""
    rng = random.Random(1)
    sizes = [len(filled(message_class("kafka", "FetchResponse"), 12, rng).encode(12)) for _ in range(20)]
    assert max(sizes) > 100
    for name, target in TARGETS.items():  # what is whole passes its check to the end; Pulsar's frames that hold no entry are refused
        refused = 0
        entries = list(target.corpus())
        for label, data in entries:
            try:
                target.check(label, data)
            except WireprotoError:
                refused += 1
        assert refused == 0 < len(entries) or (name == "pulsar-entries" and 3 * refused < len(entries)), name
