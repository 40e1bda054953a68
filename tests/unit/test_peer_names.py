"""An option that another client of the protocol has under its own name is refused with what to use here."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterable
from typing import Any

import pytest

from wireproto.errors import OptionError
from wireproto.net.options import CommonOptions, plain_name
from wireproto.protocols import find
from wireproto.url import parse

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
JAVA = {
    *("namesrvAddr", "consumerGroup", "producerGroup", "sendMsgTimeout", "retryTimesWhenSendFailed", "retryTimesWhenSendAsyncFailed"),
    *("compressMsgBodyOverHowmuch", "useTLS", "pollNameServerInterval", "heartbeatBrokerInterval", "mqClientApiTimeout"),
    *("consumeFromWhere", "messageModel", "pullBatchSize", "maxReconsumeTimes"),
    *("autoCommitIntervalMillis", "brokerSuspendMaxTimeMillis"),
}
"""Properties of rocketmq-client 5.5.0 (ClientConfig, DefaultMQProducer, DefaultMQPushConsumer, DefaultLitePullConsumer)."""
RENAMED = {"name_server_address", "group_id", "access_secret"}
"""Arguments of rocketmq 0.4.4: Producer(group_id), set_name_server_address, set_session_credentials(access_key, access_secret, …)."""
LIBRDKAFKA_ALONE = {
    *("metadata_broker_list", "group_protocol", "enable_auto_offset_store", "fetch_wait_max_ms", "fetch_message_max_bytes"),
    *("queued_max_messages_kbytes", "compression_codec", "queue_buffering_max_ms", "queue_buffering_max_kbytes"),
    *("queue_buffering_max_messages", "batch_num_messages", "message_max_bytes", "request_required_acks", "enable_gapless_guarantee"),
    *("message_timeout_ms", "message_send_max_retries", "retry_backoff_max_ms", "socket_timeout_ms"),
    *("socket_connection_setup_timeout_ms", "topic_metadata_refresh_interval_ms", "api_version_request", "broker_version_fallback"),
    *("sasl_mechanisms", "sasl_username", "sasl_password", "oauth_cb", "ssl_ca_location", "ssl_ca_pem", "ssl_certificate_location"),
    *("ssl_key_location", "ssl_key_password", "ssl_endpoint_identification_algorithm", "enable_ssl_certificate_verification"),
    "receive_message_max_bytes",
}


def options(protocol: str) -> type[CommonOptions]:
    found: type[CommonOptions] = find(protocol).option_class()
    return found


def every() -> Iterable[Any]:
    for protocol in PROTOCOLS:
        for name in options(protocol).PEER_NAMES:
            yield pytest.param(protocol, name, id=f"{protocol}-{name}")


@pytest.mark.parametrize(("protocol", "name"), list(every()))
def test_a_name_of_another_client_is_refused_with_what_to_use_here(protocol: str, name: str) -> None:
    kind = options(protocol)
    advice = re.escape(kind.PEER_NAMES[name])
    with pytest.raises(OptionError, match=f"there is no option {name!r}: {advice}"):
        kind.from_url(parse(f"{protocol}://h:1"), **{name: 1})
    with pytest.raises(OptionError, match=f"there is no option {name!r}: {advice}"):
        kind.from_url(parse(f"{protocol}://h:1?{name}=1"))
    for role in kind.ROLES:
        with pytest.raises(OptionError, match=f"a {role} has no option {name!r}: {advice}"):
            kind().for_role(role, {name: 1})


@pytest.mark.parametrize(("protocol", "name"), list(every()))
def test_what_is_advised_exists(protocol: str, name: str) -> None:
    fields = {field.name for field in dataclasses.fields(options(protocol)) if field.init}
    advice = options(protocol).PEER_NAMES[name]
    named = re.match(r"use ([a-z_0-9]+)(?![\w(.])", advice)
    assert (named and named[1] in fields) or re.match(r"give |no option needed: |use (the URL |client\.)|keys ", advice), advice
    assert name not in fields


@pytest.mark.parametrize("spelled", ["session.timeout.ms", "session-timeout-ms", "sessionTimeoutMs", "SESSION_TIMEOUT_MS"])
def test_a_name_is_known_in_each_spelling(spelled: str) -> None:
    assert plain_name(spelled) == "session_timeout_ms"
    with pytest.raises(OptionError, match="use session_timeout, in seconds"):
        options("kafka").from_mapping({spelled: 6000})


def test_names_of_kafka_exist_in_the_clients_installed_here() -> None:
    kafka, aiokafka, confluent = map(importlib.import_module, ("kafka", "aiokafka", "confluent_kafka"))
    known = {*kafka.KafkaConsumer.DEFAULT_CONFIG, *kafka.KafkaProducer.DEFAULT_CONFIG}
    for kind in (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer):
        known |= set(inspect.signature(kind.__init__).parameters)
    rest = options("kafka").PEER_NAMES.keys() - known
    assert rest <= LIBRDKAFKA_ALONE
    for name in sorted(LIBRDKAFKA_ALONE):
        assert known_by_librdkafka(confluent, name), name
    assert not known_by_librdkafka(confluent, "no_such_name")


def known_by_librdkafka(confluent: Any, name: str) -> bool:
    """Return whether librdkafka has a property of this name; it may not like the value."""
    unknown = confluent.KafkaError._INVALID_ARG, "No such configuration property"
    try:
        confluent.Consumer({"group.id": "g", name.replace("_", ".") if name != "oauth_cb" else name: "-1"})
    except confluent.KafkaException as why:
        return not (why.args[0].code() == unknown[0] and unknown[1] in why.args[0].str())
    except (TypeError, ValueError):
        return True
    return True


def test_names_of_pulsar_exist_in_the_client_installed_here() -> None:
    client = importlib.import_module("pulsar").Client
    makers = client.__init__, client.create_producer, client.subscribe, client.create_reader
    assert options("pulsar").PEER_NAMES.keys() <= {name for maker in makers for name in inspect.signature(maker).parameters}


def test_names_of_zookeeper_exist_in_the_client_installed_here() -> None:
    client = importlib.import_module("kazoo.client").KazooClient
    assert options("zookeeper").PEER_NAMES.keys() <= set(inspect.signature(client.__init__).parameters)


def test_names_of_rocketmq_are_properties_of_its_clients() -> None:
    assert options("rocketmq").PEER_NAMES.keys() == {plain_name(name) for name in JAVA} | RENAMED
