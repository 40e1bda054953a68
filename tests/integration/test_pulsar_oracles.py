"""What an audit of long lives found by experiment, beside a real broker: each of these was lost, repeated or stuck once."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

import patience
import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, drain, new_topic, ours, pulsar, theirs, unload_kept
from pulsar_server import metadata_of, stored
from wireproto import EARLIEST
from wireproto._codec import crc32c
from wireproto.errors import Revoked
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.records import Backoff

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)

REST = "/admin/v2/persistent/public/default/"


def values(role: Any, wanted: int, **options: Any) -> list[bytes]:
    return [record.value for record in drain(role, wanted, **options)]


@pytest.mark.parametrize("by", ["an administrator", "another member"])
def test_what_an_earlier_life_of_the_group_committed_comes_again_where_it_is_reset(broker: Pulsar, by: str) -> None:
    """This member has committed nothing, and what it was handed lies behind that; its next commit does not undo the reset."""
    topic = new_topic(broker)
    sent = [b"%d" % number for number in range(20)]
    with ours(broker) as client, client.producer(topic, batching=False) as producer:
        for value in sent[:10]:
            producer.send(value)
        producer.flush()
        with client.consumer(topic, "group") as earlier:
            assert values(earlier, 10) == sent[:10]
            earlier.commit()
        for value in sent[10:]:
            producer.send(value)
        producer.flush()
        with client.consumer(topic, "group", consumer_name="a", priority=0) as consumer:
            assert values(consumer, 10) == sent[10:]
            if by == "an administrator":
                earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
                broker.call("POST", f"{REST}{topic}/subscription/group/resetcursor", earliest)
            else:
                with client.consumer(topic, "group", consumer_name="b", priority=1) as other:
                    other.seek(EARLIEST)
            assert values(consumer, 20) == sent
            with pytest.raises(Revoked):  # of what was handed out before, once
                consumer.commit()
            consumer.commit()
            assert consumer.lag() == {(topic, -1): 0}


def test_an_automatic_commit_goes_on_when_a_partition_is_another_member_s(broker: Pulsar) -> None:
    topic = new_topic(broker, partitions=2)
    with ours(broker) as one, ours(broker) as two, one.producer(topic, batching=False) as producer:
        first = one.consumer(topic, "group", consumer_name="a", auto_commit=True, auto_commit_interval=0.0)
        for number in range(20):
            producer.send(b"%d" % number, partition=number % 2)
        producer.flush()
        assert len(values(first, 20)) == 20
        second = two.consumer(topic, "group", consumer_name="b")
        patience.until(lambda: (first.poll(0.1), len(first.assignment) == 1)[1], "one partition goes to the other member")
        [(_, left)] = first.assignment
        for number in range(20):
            producer.send(b"more %d" % number, partition=left)
        producer.flush()
        found: list[bytes] = []
        while b"more 19" not in found:
            more = values(first, 1)
            assert more, found
            found += more
        second.close()
        patience.until(lambda: (first.poll(0.1), len(first.assignment) == 2)[1], "it comes back")
        first.close()


def encrypted(entry: bytes) -> bytes:
    """The entry, as if it were encrypted with a key that nobody here has."""
    meta, payload = metadata_of(entry)
    meta.encryption_keys.add(key="k", value=b"v")
    meta.encryption_algo = "AES/GCM/NoPadding"
    head = meta.SerializeToString()
    checked = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked


def test_an_entry_that_cannot_be_read_does_not_stay_in_the_backlog_where_it_is_skipped(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client:
        client.request(api.CommandProducer(topic=PREFIX + topic, producer_id=900, producer_name="p"))
        send = api.CommandSend(producer_id=900, sequence_id=0, num_messages=1)
        client.request(send, entry=encrypted(stored([b"x"])), topic=topic)
        client.request(api.CommandCloseProducer(producer_id=900), topic=topic)
        with client.producer(topic, batching=False) as producer, client.queue(topic, "workers", on_corrupt="skip") as queue:
            producer.send(b"good").position(20.0)
            delivery = queue.receive(20.0)
            assert delivery is not None
            assert delivery.value == b"good"
            delivery.ack(20.0)

            def left() -> Any:
                return json.loads(broker.call("GET", f"{REST}{topic}/stats"))["subscriptions"]["workers"]["msgBacklog"]

            patience.until(lambda: left() == 0, "it stays in the backlog")


def test_what_was_acknowledged_over_an_unload_is_not_handed_out_again_and_what_is_released_comes_after_its_delays(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, batch_records=40, linger=3600.0) as producer:
        for number in range(40):
            producer.send(b"%d" % number)
        producer.flush()
        with client.queue(topic, "workers") as queue:
            held = [queue.receive(20.0) for _ in range(30)]
            broker.call("PUT", f"{REST}{topic}/unload")
            for delivery in held:
                delivery.ack(20.0)
            done = {delivery.value for delivery in held}
            poison, others, handed = b"35", set[bytes](), 0
            expected = {b"%d" % number for number in range(30, 40)} - {poison}
            begun = time.monotonic()
            while time.monotonic() < begun + 4.0 or handed < 2 or others != expected:  # a broker may take long to load the topic again
                assert time.monotonic() < begun + patience.LONG, (handed, others)
                delivery = queue.receive(0.2)
                if delivery is None:
                    continue
                assert delivery.value not in done
                if delivery.value == poison:
                    handed += 1
                    delivery.release(after=Backoff(first=0.5, factor=1.0, most=0.5))
                else:
                    others.add(delivery.value)
                    delivery.ack(20.0)
            assert others == expected
            assert handed <= 1 + (time.monotonic() - begun) / 0.5


@pytest.mark.broker("pulsar-4.2.4-curt")
def test_a_namespace_that_migrates_is_written_and_read_in_the_other_cluster(broker: Pulsar, broker_pool: Any) -> None:
    green = broker_pool.get("pulsar-4.2.4-curt")
    namespace = f"public/moving-{os.getpid()}"
    topic = f"persistent://{namespace}/t"
    for each in (broker, green):
        each.call("PUT", f"/admin/v2/namespaces/{namespace}", {"replication_clusters": ["standalone"]})
        each.call("PUT", f"/admin/v2/persistent/{namespace}/t")
    with (
        ours(broker, operation_timeout=5.0) as client,
        client.producer(topic, batching=False) as producer,
        client.consumer(topic, "group") as consumer,
    ):
        producer.send(b"blue").position(30.0)
        assert values(consumer, 1) == [b"blue"]
        consumer.commit()
        there = {"serviceUrl": green.admin, "brokerServiceUrl": green.service}
        broker.call("POST", "/admin/v2/clusters/standalone/migrate?migrated=false", there)
        broker.call("POST", f"/admin/v2/namespaces/{namespace}/migration?migrated=true", True)
        unload_kept(broker, topic, "group")
        assert producer.send(b"green").position(60.0) is not None
        assert values(consumer, 1, seconds=60.0) == [b"green"]
    with ours(green) as client, client.reader(topic, stop=wireproto.LATEST) as reader:
        assert values(reader, 1) == [b"green"]


def test_an_exclusive_producer_is_alone(broker: Pulsar) -> None:
    """What the embedded broker answers, too: tests/conformance/test_dev_broker_pulsar.py."""
    topic = new_topic(broker)
    mode = pulsar.ProducerAccessMode.Exclusive
    with theirs(broker) as client:
        alone = client.create_producer(topic, access_mode=mode)
        with pytest.raises(pulsar.ProducerFenced):
            client.create_producer(topic, access_mode=mode)
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic)
        alone.close()
        shared = client.create_producer(topic)
        with pytest.raises(pulsar.ProducerFenced):
            client.create_producer(topic, access_mode=mode)
        shared.close()
        client.create_producer(topic, access_mode=mode).close()


def test_unloads_are_no_resets_of_what_was_handed_out_and_not_committed(broker: Pulsar) -> None:
    """Each opens another ledger, and the mark may be told anew as the beginning of that one; all was read by an earlier life."""
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, batching=False) as producer:
        producer.send(b"earlier").position(30.0)
        with client.consumer(topic, "group") as earlier:
            assert values(earlier, 1) == [b"earlier"]
            earlier.commit()
        unload_kept(broker, topic, "group")
        with client.consumer(topic, "group") as consumer:
            for number in range(3):
                broker.call("PUT", f"{REST}{topic}/unload")
                producer.send(b"%d" % number).position(30.0)
                assert values(consumer, 1) == [b"%d" % number]
                assert consumer.poll(0.5) is None
            consumer.commit()
            assert consumer.lag() == {(topic, -1): 0}
