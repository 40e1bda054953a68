"""The line protocol of decode and encode as a script meets it: an answer a line, whatever the line; typed errors for wrong values."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz.targets import TARGETS
from wireproto import errors, wire
from wireproto.errors import WireprotoError

SRC = Path(__file__).parents[2] / "src"
GOOD = {"protocol": "kafka", "message": "MetadataRequest", "version": 1, "hex": "00000001000174"}
HEAD = b'{"protocol":"kafka","message":"MetadataRequest","version":'


def command(name: str, lines: list[bytes]) -> list[dict[str, Any]]:
    """The answers of one process to these lines."""
    done = subprocess.run(
        [sys.executable, "-m", "wireproto.cli", name, "--jsonl"],
        input=b"".join(line + b"\n" for line in lines),
        env=os.environ | {"PYTHONPATH": str(SRC)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    answers = done.stdout.decode("ascii").split("\n")
    assert answers.pop() == ""
    return [json.loads(answer) for answer in answers]


def line(**members: Any) -> bytes:
    return json.dumps({**GOOD, **members}).encode()


DECODE = [
    (line(), None),
    (b"not json", "OptionError"),
    (b"", "OptionError"),
    (b"  \t", "OptionError"),
    (b"[]", "OptionError"),
    (b"null", "OptionError"),
    (b"{}", "OptionError"),
    (b'{"protocol":"kafka"}', "OptionError"),
    (line(protocol=5), "OptionError"),
    (line(protocol=None), "OptionError"),
    (line(protocol="smtp"), "UnknownMessage"),
    (line(protocol="\ud800"), "UnknownMessage"),
    (line(message=[]), "OptionError"),
    (line(message="Nope"), "UnknownMessage"),
    (line(message="\ud800"), "UnknownMessage"),
    (line(message="_Struct"), "UnknownMessage"),
    (line(version="1"), "UnsupportedVersion"),
    (line(version=1.0), "UnsupportedVersion"),
    (line(version=True), "UnsupportedVersion"),
    (line(version=None), "UnsupportedVersion"),
    (line(version=-1), "UnsupportedVersion"),
    (line(version=99), "UnsupportedVersion"),
    (line(version=2**31), "UnsupportedVersion"),
    (line(version=2**70), "UnsupportedVersion"),
    (line(version=-(2**63)), "UnsupportedVersion"),
    (HEAD + b'NaN,"hex":""}', "UnsupportedVersion"),
    (HEAD + b'1e400,"hex":""}', "UnsupportedVersion"),
    (HEAD + b"9" * 5000 + b',"hex":""}', "OptionError"),
    (line(hex="0"), "Malformed"),
    (line(hex="zz"), "Malformed"),
    (line(hex=5), "OptionError"),
    (line(hex="\u0661\u0662"), "Malformed"),
    (line(hex=""), "Truncated"),
    (line(hex=GOOD["hex"] + "00"), "Malformed"),
    (line(hex=str(GOOD["hex"])[:-2]), "Truncated"),
    (b"[" * 100_000, "OptionError"),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, "OptionError"),
    (b"\xff\xfe", "OptionError"),
    (b'{"protocol"\x00', "OptionError"),
    (line(extra=1), None),
    (line() + b"\r", None),
    (line(protocol="pulsar", message="Frame", version=0, hex="00"), "Truncated"),
    (line(protocol="zookeeper", message="Stat", version=1), "UnsupportedVersion"),
]


def test_decode_answers_every_line_in_order_with_our_errors_only() -> None:
    answers = command("decode", [text for text, _ in DECODE])
    assert len(answers) == len(DECODE)
    for (text, kind), answer in zip(DECODE, answers, strict=True):
        assert answer.get("kind") == kind, (text[:100], answer)
        assert set(answer) == ({"message"} if kind is None else {"error", "kind"})
        assert kind is None or issubclass(getattr(errors, kind), WireprotoError)


def test_encode_answers_every_line_and_reverses_decode() -> None:
    samples = [(("kafka", name, version), data) for (_, name, _, version), data in list(TARGETS["kafka-messages"].corpus())[::9]]
    for target in ("zookeeper-multi", "pulsar-messages", "rocketmq-messages"):
        samples += list(TARGETS[target].corpus())[::5]
    requests = [
        json.dumps({"protocol": protocol, "message": name, "version": version, "hex": data.hex()}).encode()
        for (protocol, name, version), data in samples
    ]
    shown = command("decode", requests)
    back = [
        json.dumps({"protocol": protocol, "message": name, "version": version, "fields": answer["message"]}).encode()
        for ((protocol, name, version), _), answer in zip(samples, shown, strict=True)
    ]
    broken = [(b"", "OptionError"), (line(), "OptionError"), (line(fields=[]), "OptionError"), (line(fields={"nam": 1}), "Malformed")]
    broken += [(line(fields={"topics": [{"name": 2**70}]}), "Malformed"), (HEAD + b'1,"fields":{"topics":NaN}}', "Malformed")]
    answers = command("encode", [*(text for text, _ in broken), *back])
    assert [answer.get("kind") for answer in answers[: len(broken)]] == [kind for _, kind in broken]
    assert [answer.get("hex") for answer in answers[len(broken) :]] == [data.hex() for _, data in samples]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON value."""
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return made


WRONG: list[Any] = [
    *(None, True, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, float("nan"), float("inf"), "", "x", "\ud800", "NaN"),
    *([], {}, [None], [[]], [{}], {"a": 1}, "AA==", "a" * 40_000),
]


@pytest.mark.parametrize("target", ["kafka-messages", "zookeeper-messages", "zookeeper-multi", "pulsar-messages", "rocketmq-messages"])
def test_wrong_values_are_typed_errors_that_name_the_place(target: str) -> None:
    rng = random.Random(6)
    refused = 0
    for label, data in TARGETS[target].corpus():
        protocol, name, version = (label[0], label[1], label[3]) if len(label) == 4 else label
        fields = wire.decode(protocol, name, version, data)
        found = list(places(fields))
        for path in rng.sample(found, min(2, len(found))):
            for value in rng.sample(WRONG, 4):
                try:
                    wire.encode(protocol, name, version, changed(fields, path, value))
                except WireprotoError:
                    refused += 1
        with pytest.raises(WireprotoError) as caught:
            wire.encode(protocol, name, version, {**fields, "noSuchField": 1})
        assert "noSuchField" in (caught.value.path or ""), name
        for missing in fields:
            try:
                wire.encode(protocol, name, version, {key: fields[key] for key in fields if key != missing})
            except WireprotoError:
                refused += 1
    assert refused > 5
