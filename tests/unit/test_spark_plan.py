"""How Spark's ranges are cut and its micro-batches limited: plain sums; and Java's configuration made ours."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wireproto.errors import OptionError
from wireproto.kafka.options import KafkaOptions
from wireproto.position import AtTime, LogOffset
from wireproto.spark import plan, register
from wireproto.spark.kafka_options import client_config, read_options
from wireproto.spark.options import Options, parse_bound

A, B, C = ("t", 0), ("t", 1), ("t", 2)
SERVERS = {"kafka.bootstrap.servers": "a:1, b:2"}


def read(**options: str) -> object:
    found = Options({**SERVERS, **options})
    settings = read_options(found)
    found.finish()
    return settings


ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=6).map(
    lambda pairs: [(("t", number), start, start + size) for number, (start, size) in enumerate(pairs)]
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 400))
def test_tasks_cover_each_range_once_and_in_order(cuts: list[plan.Cut], least: int | None, most: int | None) -> None:
    found = plan.split(cuts, least, most)
    for key, start, stop in cuts:
        mine = [(first, last) for name, first, last in found if name == key]
        edges = [start, *(last for _, last in mine)]
        assert mine == list(itertools.pairwise(edges))
        assert edges[-1] == (stop if mine else start)
    assert all(first < last and (most is None or last - first <= most) for _, first, last in found)


def test_a_large_range_is_cut_and_small_ones_are_not() -> None:
    assert plan.split([(A, 0, 900), (B, 0, 50), (C, 0, 50)], 6, None) == [
        (A, 0, 225),
        (A, 225, 450),
        (A, 450, 675),
        (A, 675, 900),
        (B, 0, 50),
        (C, 0, 50),
    ]


@given(ranges, st.integers(1, 5000))
def test_a_limit_takes_something_of_every_partition_and_not_too_much(cuts: list[plan.Cut], limit: int) -> None:
    start = {key: first for key, first, _ in cuts}
    latest = {key: last for key, _, last in cuts}
    ends = plan.limited(limit, start, latest)
    assert all(start[key] <= end <= latest[key] and (end > start[key] or latest[key] == start[key]) for key, end in ends.items())
    assert sum(ends[key] - start[key] for key in ends) <= max(limit, 0) + len(ends)


def test_a_limit_in_bytes_weighs_rows() -> None:
    ends = plan.limited(1000, {A: 0, B: 0}, {A: 100, B: 100}, {A: 10.0, B: 90.0})
    assert ends == {A: 10, B: 10}


def test_offsets_are_read_as_the_connector_writes_them() -> None:
    assert read(subscribe="t", startingOffsets='{"t":{"0":23,"1":-1,"2":-2}}').start == parse_bound('{"t":{"0":23,"1":-1,"2":-2}}', "x")
    assert parse_bound('{"t":{"0":23}}', "x") == {A: LogOffset("t", 0, 23)}
    assert read(assign='{"t":[0,1]}', startingTimestamp="5", startingOffsets="earliest").start == AtTime(5)
    assert read(subscribe="t", endingOffsetsByTimestamp='{"t":{"0":7}}').stop == {A: AtTime(7)}


def test_times_are_read_as_spark_writes_them() -> None:
    assert [read(subscribe="t", maxTriggerDelay=text).max_delay for text in ("15m", "30s", "500ms", "1h", "250")] == [
        900,
        30,
        0.5,
        3600,
        0.25,
    ]


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ({}, {}),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"},
            {"tls": True, "tls_ca_file": "/ca.pem"},
        ),
        ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": ""}, {"tls": True, "tls_verify_host": False}),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a b" password="c\\"d;e";',
            },
            {"tls": True, "sasl": "SCRAM-SHA-512", "user": "a b", "password": 'value:c"d;e'},
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required\n username=u password=p;",
            },
            {"sasl": "PLAIN", "user": "u", "password": "value:p"},
        ),
        ({"linger.ms": "20", "acks": "-1", "batch.size": "262144", "compression.type": "lz4"}, None),
        ({"session.timeout.ms": "10", "max.poll.records": "5", "metrics.num.samples": "2", "group.id": "g"}, {}),
        ({"address_map": "a:1=b:2", "connect.timeout": "3"}, {"address_map": "a:1=b:2", "connect_timeout": "3"}),
    ],
)
def test_java_s_configuration_becomes_ours(config: dict[str, str], ours: dict[str, object] | None) -> None:
    found = client_config(config)
    KafkaOptions.from_mapping(found)
    assert found == (ours or {"linger": 0.02, "acks": "all", "batch_size": 262144, "compression": "lz4"} if ours is None else ours)


def test_an_unsecured_token_is_made_of_its_claims() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    found = client_config({**config, "sasl.jaas.config": f'{module} unsecuredLoginStringClaim_sub="alice";'})
    head, body, sign = found["token"].split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(body + "=="))["sub"] == "alice"
    assert not sign
    with pytest.raises(OptionError, match=r"kafka\.token"):
        client_config({**config, "sasl.jaas.config": f'{module} clientId="x";'})


def test_a_password_is_in_no_error() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required password="hush";'
    with pytest.raises(OptionError) as caught:
        client_config({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    assert "hush" not in str(caught.value)


def test_options_of_the_writer_are_passed_over_by_the_reader() -> None:
    assert read(subscribe="t", topic="u", checkpointLocation="/c", includeTimestamp="true").topics == ("t",)
    with pytest.raises(OptionError, match=r"unknown option 'subscrib'; did you mean subscribe\?"):
        read(assign='{"t":[0]}', subscrib="t")


def test_a_misspelt_strategy_is_told_with_the_right_word() -> None:
    with pytest.raises(OptionError, match="unknown option 'subscibe'; did you mean subscribe"):
        read(subscibe="orders")
    with pytest.raises(OptionError, match="One of the following options must be specified"):
        read(startingOffsets="earliest")


@pytest.mark.parametrize("ms", [datetime(2026, 1, 1, tzinfo=UTC), 5.0, "5", True])
def test_a_time_is_whole_milliseconds(ms: object) -> None:
    with pytest.raises(OptionError, match=r"AtTime takes milliseconds since 1970 as an int, not .*AtTime.of takes an aware datetime"):
        AtTime(ms)  # type: ignore[arg-type]


class Session:
    """As much of a Spark session as `register` looks at."""

    def __init__(self, python: str) -> None:
        self.sparkContext, self.pythonExec = self, python
        self.dataSource, self.conf = self, self
        self.made: list[str] = []

    def register(self, source: type) -> None:
        self.made.append(source.__name__)

    def set(self, name: str, value: str) -> None:
        self.made.append(name)


@pytest.mark.parametrize(("python", "told"), [(sys.executable, False), ("/usr/bin/env", True), ("no-such-python", True)])
def test_register_tells_where_tasks_run_another_python(python: str, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    session = Session(python)
    register(session)  # type: ignore[arg-type]
    assert session.made[:4] == ["KafkaWire", "PulsarWire", "RocketMQWire", "ZooKeeperWire"]
    assert [f"set PYSPARK_PYTHON={sys.executable}" in record.getMessage() for record in caplog.records] == [True] * told


@pytest.mark.parametrize("given", ["one:1;two:2", "one:1,two:2", "rocketmq://one:1,two:2"])
def test_name_servers_are_separated_as_rocketmq_does_it_too(given: str) -> None:
    from wireproto.spark.rocketmq import RocketMQWire
    from wireproto.spark.rocketmq_sink import write_options

    assert RocketMQWire({}).read_settings(Options({"nameServer": given, "topic": "t"})).url == "rocketmq://one:1,two:2"
    assert write_options(Options({"nameServer": given})).url == "rocketmq://one:1,two:2"
