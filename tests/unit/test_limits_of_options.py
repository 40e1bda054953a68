"""What an option may be: the last value that is taken and the first that is not, for each option that has limits."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto.errors import OptionError
from wireproto.kafka.options import KafkaOptions
from wireproto.net.debug import describe_first_bytes, hexdump
from wireproto.net.options import CommonOptions
from wireproto.pulsar.options import PulsarOptions
from wireproto.rocketmq.options import RocketOptions
from wireproto.zookeeper.options import ZooKeeperOptions

LIMITS: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    # class, taken, refused, what the refusal says
    (CommonOptions, {"timeout": 0.001}, {"timeout": 0.0}, "timeout must be above 0"),
    (CommonOptions, {"connect_timeout": 0.001}, {"connect_timeout": 0.0}, "connect_timeout must be above 0"),
    (CommonOptions, {"fetch_memory": 1 << 16}, {"fetch_memory": (1 << 16) - 1}, "fetch_memory must be at least 64 kB"),
    (CommonOptions, {"buffer_memory": 1 << 16}, {"buffer_memory": (1 << 16) - 1}, "buffer_memory must be at least 64 kB"),
    (KafkaOptions, {"idempotence": True}, {"idempotence": True, "acks": "1"}, "idempotence needs acks=all"),
    (KafkaOptions, {"idempotence": False, "acks": "1"}, {"idempotence": True, "acks": "0"}, "idempotence needs acks=all"),
    (KafkaOptions, {"message_format": 1}, {"message_format": 1, "idempotence": True}, "idempotence needs message_format=2"),
    (KafkaOptions, {"message_format": 0}, {"message_format": 3}, "message_format is 0, 1 or 2"),
    (KafkaOptions, {"message_format": 2}, {"message_format": -1}, "message_format is 0, 1 or 2"),
    (KafkaOptions, {"max_in_flight": 1}, {"max_in_flight": 0}, "max_in_flight is 1 to 5"),
    (KafkaOptions, {"max_in_flight": 5}, {"max_in_flight": 6}, "max_in_flight is 1 to 5"),
    (
        KafkaOptions,
        {"session_timeout": 6.0, "heartbeat_interval": 3.0},
        {"session_timeout": 5.9, "heartbeat_interval": 3.0},
        "heartbeat_interval must be at most half",
    ),
    (KafkaOptions, {"partitioner": max}, {"partitioner": 3}, "partitioner is a function"),
    *(
        (KafkaOptions, {name: 1}, {name: 0}, f"{name} must be above 0")
        for name in ("batch_size", "max_request_size", "max_bytes", "partition_bytes", "min_bytes")
    ),
    (KafkaOptions, {"linger": 0.0}, {"linger": -0.001}, "linger cannot be negative"),
    *(
        (PulsarOptions, {name: 1}, {name: 0}, f"{name} must be above 0")
        for name in ("batch_size", "batch_records", "operation_timeout", "delivery_timeout", "receive_memory")
    ),
    (PulsarOptions, {"linger": 0.0}, {"linger": -0.001}, "linger cannot be negative"),
    (PulsarOptions, {"admin": "http://h:8080"}, {"admin": "h:8080"}, "admin is the URL"),
    (PulsarOptions, {"first_sequence": 2**63 - 1}, {"first_sequence": 2**63}, "first_sequence must be from 0 to"),
    (PulsarOptions, {"first_sequence": 0}, {"first_sequence": -1}, "first_sequence must be from 0 to"),
    (PulsarOptions, {"admin": "https://h"}, {"admin": "pulsar://h"}, "admin is the URL"),
    *(
        (RocketOptions, {name: 1}, {name: 0}, f"{name} must be at least 1")
        for name in ("pull_ahead", "batch_bytes", "min_bytes", "batch_size", "max_unacked", "max_message_size", "max_in_flight")
    ),
    (RocketOptions, {"linger": 0.0}, {"linger": -0.1}, "linger cannot be negative"),
    *(
        (kind, {"auto_commit_interval": 0.0}, {"auto_commit_interval": -0.1}, "auto_commit_interval cannot be negative")
        for kind in (KafkaOptions, PulsarOptions, RocketOptions)
    ),
    (ZooKeeperOptions, {"delivery_timeout": 0.001}, {"delivery_timeout": 0.0}, "delivery_timeout must be above 0"),
    (RocketOptions, {"pull_suspend": 1.0}, {"pull_suspend": 0.9}, "pull_suspend is between 1 and 60"),
    (RocketOptions, {"pull_suspend": 60.0}, {"pull_suspend": 60.1}, "pull_suspend is between 1 and 60"),
    (ZooKeeperOptions, {"session_timeout": 0.001}, {"session_timeout": 0.0}, "session_timeout must be above 0"),
    (ZooKeeperOptions, {"session_timeout": 1_999_999.0}, {"session_timeout": 2_000_000.0}, "session_timeout must be above 0"),
    (ZooKeeperOptions, {"max_frame": 1024}, {"max_frame": 1023}, "max_frame must be at least 1024"),
    (ZooKeeperOptions, {"session": (1, b"x")}, {"session": (1, "x")}, "session is a pair"),
    (ZooKeeperOptions, {"session": (-(1 << 63), b"x")}, {"session": (-(1 << 63) - 1, b"x")}, "session is a pair"),
    (ZooKeeperOptions, {"session": ((1 << 63) - 1, b"x")}, {"session": (1 << 63, b"x")}, "session is a pair"),
    (ZooKeeperOptions, {}, {"session": 5}, "session is a pair"),
    (ZooKeeperOptions, {}, {"session": (1, b"x", 2)}, "session is a pair"),
    (ZooKeeperOptions, {}, {"session": ("a", b"x")}, "session is a pair"),
]


@pytest.mark.parametrize(("kind", "taken", "refused", "text"), LIMITS)
def test_the_last_value_taken_and_the_first_refused(kind: Any, taken: dict[str, Any], refused: dict[str, Any], text: str) -> None:
    kind(**taken)
    with pytest.raises(OptionError, match=text):
        kind(**refused)


def test_credentials_come_in_pairs() -> None:
    from wireproto.auth.secrets import Secret

    secret = Secret("s")
    ZooKeeperOptions(user="u", password=secret)
    for half in ({"user": "u"}, {"password": secret}):
        with pytest.raises(OptionError, match="user and password go together"):
            ZooKeeperOptions(**half)  # type: ignore[arg-type]
    by_key = RocketOptions(access_key="a", secret_key=secret)
    by_user = RocketOptions(user="a", password=secret)
    assert (by_key.access_key, by_key.secret_key) == (by_user.access_key, by_user.secret_key) == ("a", secret)
    assert RocketOptions(user="other", access_key="a", secret_key=secret).access_key == "a", "what is named wins"
    for half in ({"access_key": "a"}, {"secret_key": secret}, {"user": "u"}):
        with pytest.raises(OptionError, match="access_key and secret_key belong together"):
            RocketOptions(**half)  # type: ignore[arg-type]


def test_kafka_chooses_its_mechanism_by_what_is_given() -> None:
    from wireproto.auth.secrets import Secret

    secret = Secret("s")
    assert KafkaOptions().mechanism is None
    assert KafkaOptions(user="u", password=secret).mechanism == "PLAIN"
    assert KafkaOptions(token=secret).mechanism == "OAUTHBEARER"
    assert KafkaOptions(token=secret, user="u").mechanism == "OAUTHBEARER"
    assert KafkaOptions(token=secret, sasl="SCRAM-SHA-256").mechanism == "SCRAM-SHA-256"


@pytest.mark.parametrize(("given", "kept"), [(-1, "all"), (1, "1"), (0, "0"), ("all", "all")])
def test_kafka_acks_may_be_written_as_numbers(given: Any, kept: str) -> None:
    assert KafkaOptions().for_role("producer", {"acks": given}).acks == KafkaOptions.from_mapping({"acks": given}).acks == kept


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x15\x03\x04", "the peer speaks TLS"),
        (b"\x13\x03\x03\x00", ""),
        (b"\x16\x02\x03\x00", ""),
        (b"\x16\x03\x05\x00", ""),
        (b"\x16\x03", ""),
        (b"HTTP/1.1 400", "an HTTP server"),
        (b"SSH-2.0", "an SSH server"),
        *((start + b"x", "a text protocol") for start in (b"220 ", b"220-", b"+OK", b"* OK", b"-ERR", b"-NOAUTH")),
        (b"hello \x7e", "answers with text: 'hello ~'"),
        (b"hello\r\n\t", "answers with text: 'hello'"),
        (b" !", "answers with text: '!'"),
        (b"hello\x1f", ""),
        (b"hello\x7f", ""),
        (b"", ""),
    ],
)
def test_who_answers_is_told_by_the_first_bytes(data: bytes, said: str) -> None:
    found = describe_first_bytes(data)
    assert said in found
    assert bool(found) is bool(said)


def test_a_dump_shows_so_much_and_counts_the_rest() -> None:
    assert hexdump(b"ab\x1f\x7f ~").endswith("   ab.. ~")
    lines = hexdump(bytes(range(65, 65 + 18)), 17).splitlines()
    assert lines[0] == "  000000  41 42 43 44 45 46 47 48  49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP"
    assert lines[1].split() == ["000010", "51", "Q"]
    assert lines[2] == "  … 1 bytes more"
    assert "more" not in hexdump(b"x" * 17, 17)
