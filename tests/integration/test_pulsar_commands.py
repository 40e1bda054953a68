"""Every command of a client that a broker of Pulsar 4.2.4 answers, once, by `client.request`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, drain, new_topic, ours
from wireproto._codec import PulsarBatchBuilder, crc32c
from wireproto.errors import OptionError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import PulsarError, TopicNotFound

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)
NAMESPACE = "public/default"


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with ours(broker) as made:
        yield made


@pytest.fixture
def asked(client: Any) -> Callable[..., Any]:
    """`client.request` that checks the answer's type and counts the commands."""
    done: set[str] = set()

    def ask(command: Any, answer: str | None, **where: Any) -> Any:
        reply = client.request(command, timeout=20.0, **where)
        assert (None if reply is None else type(reply).__name__) == answer
        done.add(type(command).__name__)
        return reply

    ask.done = done  # type: ignore[attr-defined]
    return ask


def entry(value: bytes, sequence: int, producer: str) -> tuple[api.CommandSend, bytes]:
    """What the producer's own builder makes, apart: the command and the stored entry."""
    builder = PulsarBatchBuilder(producer, batched=False)
    builder.append(value)
    frame = b"".join(builder.finish(1, sequence, 1000))
    size = int.from_bytes(frame[:4], "big")
    base = api.BaseCommand.FromString(frame[4 : 4 + size])
    return base.send, frame[4 + size :]


def test_every_command_by_request(broker: Pulsar, client: Any, asked: Any, oracle: Callable[..., None]) -> None:
    short = new_topic(broker)
    topic, here = PREFIX + short, {"topic": short}
    parted = PREFIX + new_topic(broker, partitions=3)
    # where things are
    assert asked(api.CommandPartitionedTopicMetadata(topic=parted), "CommandPartitionedTopicMetadataResponse").partitions == 3
    found = asked(api.CommandLookupTopic(topic=topic), "CommandLookupTopicResponse")
    assert found.response == api.CommandLookupTopicResponse.Connect
    listed = asked(api.CommandGetTopicsOfNamespace(namespace=NAMESPACE, mode="ALL"), "CommandGetTopicsOfNamespaceResponse")
    assert topic in listed.topics
    watched = asked(
        api.CommandWatchTopicList(watcher_id=1, namespace=NAMESPACE, topics_pattern=f"{PREFIX}.*"), "CommandWatchTopicListSuccess"
    )
    assert topic in watched.topic
    asked(api.CommandWatchTopicListClose(watcher_id=1), "CommandSuccess")
    # a producer
    made = asked(api.CommandProducer(topic=topic, producer_id=1, producer_name="p-raw"), "CommandProducerSuccess")
    assert (made.producer_name, made.last_sequence_id) == ("p-raw", -1)
    for number in range(3):
        command, stored = entry(b"value %d" % number, number, "p-raw")
        receipt = asked(command, "CommandSendReceipt", entry=stored, **here)
        assert receipt.message_id.entryId == number
    # a consumer
    subscribe = api.CommandSubscribe(topic=topic, subscription="s", subType="Exclusive", consumer_id=1, initialPosition="Earliest")
    asked(subscribe, "CommandSuccess")
    last = asked(api.CommandGetLastMessageId(consumer_id=1), "CommandGetLastMessageIdResponse", **here).last_message_id
    assert last.entryId == 2
    asked(api.CommandFlow(consumer_id=1, messagePermits=10), None, **here)
    ack = api.CommandAck(consumer_id=1, ack_type="Individual", message_id=[api.MessageIdData(ledgerId=last.ledgerId, entryId=0)])
    assert not asked(ack, "CommandAckResponse", **here).HasField("error")
    asked(api.CommandRedeliverUnacknowledgedMessages(consumer_id=1), None, **here)
    stats = asked(api.CommandConsumerStats(consumer_id=1), "CommandConsumerStatsResponse", **here)
    assert (stats.type, stats.msgBacklog) == ("Exclusive", 2)
    seek = api.CommandSeek(consumer_id=1, message_id=api.MessageIdData(ledgerId=last.ledgerId, entryId=1))
    asked(seek, "CommandSuccess", **here)
    # the broker closes the consumer at a seek: the next subscribe goes on there
    subscribe.consumer_id = 2
    asked(subscribe, "CommandSuccess")
    asked(api.CommandUnsubscribe(consumer_id=2), "CommandSuccess", **here)
    subscribe.consumer_id = 3
    asked(subscribe, "CommandSuccess")
    asked(api.CommandCloseConsumer(consumer_id=3), "CommandSuccess", **here)
    # schemas
    schema = api.Schema(name="", type="String", schema_data=b"")
    given = asked(api.CommandGetOrCreateSchema(topic=topic, schema=schema), "CommandGetOrCreateSchemaResponse")
    assert given.schema_version == (0).to_bytes(8, "big")
    read = asked(api.CommandGetSchema(topic=topic), "CommandGetSchemaResponse")
    assert (read.schema.type, read.schema_version) == (api.Schema.String, given.schema_version)
    asked(api.CommandCloseProducer(producer_id=1), "CommandSuccess", **here)
    asked(api.CommandPing(), None)
    assert [record.value for record in drain(client.reader(short), 3)] == [b"value 0", b"value 1", b"value 2"]
    oracle("Pulsar 4.2.4, live", commands_by_request=len(asked.done))


def test_a_transaction_by_request(broker: Pulsar, client: Any, asked: Any, oracle: Callable[..., None]) -> None:
    short, source = new_topic(broker), new_topic(broker)
    topic = PREFIX + short
    with client.producer(source) as out:
        out.send(b"input")
    asked(api.CommandTcClientConnectRequest(tc_id=0), "CommandTcClientConnectResponse")
    for action, kept in ((api.ABORT, []), (api.COMMIT, [b"kept"])):
        begun = asked(api.CommandNewTxn(tc_id=0, txn_ttl_millis=60_000), "CommandNewTxnResponse")
        ids = {"txnid_least_bits": begun.txnid_least_bits, "txnid_most_bits": begun.txnid_most_bits}
        asked(api.CommandAddPartitionToTxn(partitions=[topic], **ids), "CommandAddPartitionToTxnResponse")
        client.request(api.CommandProducer(topic=topic, producer_id=10 + action, producer_name=f"t-{action}", txn_enabled=True))
        command, stored = entry(b"kept", 0, f"t-{action}")
        command.producer_id = 10 + action
        command.txnid_least_bits, command.txnid_most_bits = begun.txnid_least_bits, begun.txnid_most_bits
        client.request(command, entry=in_transaction(stored, ids), topic=short)
        joined = api.Subscription(topic=PREFIX + source, subscription="s")
        subscribe = api.CommandSubscribe(topic=PREFIX + source, subscription="s", subType="Shared", consumer_id=20 + action)
        subscribe.initialPosition = api.CommandSubscribe.Earliest
        client.request(subscribe)
        asked(api.CommandAddSubscriptionToTxn(subscription=[joined], **ids), "CommandAddSubscriptionToTxnResponse")
        first = client.request(api.CommandGetLastMessageId(consumer_id=20 + action), topic=source).last_message_id
        ack = api.CommandAck(consumer_id=20 + action, ack_type="Individual", message_id=[first], **ids)
        assert not client.request(ack, topic=source).HasField("error")
        asked(api.CommandEndTxn(txn_action=action, **ids), "CommandEndTxnResponse")
        with client.reader(short) as reader:
            assert [record.value for record in drain(reader, len(kept) or 1, seconds=20.0 if kept else 1.0)] == kept
        # what the coordinator tells the brokers in the end: telling it once more changes nothing
        asked(api.CommandEndTxnOnPartition(topic=topic, txn_action=action, **ids), "CommandEndTxnOnPartitionResponse")
        again = api.CommandEndTxnOnSubscription(subscription=joined, txn_action=action, **ids)
        asked(again, "CommandEndTxnOnSubscriptionResponse", topic=source)
        client.request(api.CommandCloseConsumer(consumer_id=20 + action), topic=source)
    with pytest.raises(PulsarError):
        client.request(api.CommandEndTxn(txn_action="COMMIT", txnid_most_bits=0, txnid_least_bits=999_999))
    oracle("Pulsar 4.2.4, live", commands_by_request=len(asked.done))


def in_transaction(stored: bytes, ids: dict[str, int]) -> bytes:
    """The same entry with the transaction's number in its metadata."""
    size = int.from_bytes(stored[6:10], "big")
    metadata = api.MessageMetadata.FromString(stored[10 : 10 + size])
    metadata.txnid_least_bits, metadata.txnid_most_bits = ids["txnid_least_bits"], ids["txnid_most_bits"]
    raw = metadata.SerializeToString()
    rest = len(raw).to_bytes(4, "big") + raw + stored[10 + size :]
    return b"\x0e\x01" + crc32c(rest).to_bytes(4, "big") + rest


def test_errors_are_typed_and_what_is_no_request_is_refused(broker: Pulsar, client: Any) -> None:
    with pytest.raises(TopicNotFound):
        client.request(api.CommandSubscribe(topic=f"{PREFIX}none", subscription="s", subType="Shared", consumer_id=77))
    with pytest.raises(PulsarError):
        client.request(api.CommandUnsubscribe(consumer_id=99), topic=new_topic(broker))
    with pytest.raises(OptionError):
        client.request(api.CommandConnect(client_version="x"))
