"""Transactions on the embedded broker, in both protocols: what holds on real brokers holds here, by the same tests, and with writers and
judges that we did not write."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import wireproto
from chance import seed as chance_seed
from integration import test_kafka_handed_over as handed
from integration import test_kafka_transactional as real
from integration import test_kafka_transactions_in_doubt as doubts
from kafka import KafkaProducer
from kafka_committed import seen
from spark import test_kafka_exactly as once
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.kafka.codes import InvalidProducerEpoch

SECONDS = 20.0
_numbers = itertools.count()
pytestmark = pytest.mark.broker("dev-kafka")


@dataclass
class Embedded:
    """What those tests ask of a broker."""

    dev: DevBroker
    level: int
    name: str = "the embedded broker"
    version: str = "4.3.1"
    features: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.dev.url("kafka")

    @property
    def addresses(self) -> list[str]:
        return [self.dev.address("kafka")]


@pytest.fixture(scope="module", params=[2, 1], ids=["level 2", "level 1"])
def broker(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    with DevBroker(["kafka"]) as dev:
        dev.call("kafka", "speak_transactions", request.param)
        yield Embedded(dev, request.param, features={} if request.param == 2 else {"transaction.version": 1})


@pytest.fixture
def client(broker: Embedded) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"work-{next(_numbers)}"


@pytest.fixture
def topic(client: Any, name: str) -> str:
    client.admin().create_topic(f"t-{name}", partitions=2)
    return f"t-{name}"


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    "check",
    [
        real.test_every_transaction_is_seen_as_a_whole,
        real.test_an_exception_rolls_all_of_it_back,
        real.test_one_that_is_rolled_back_at_once_leaves_nothing_to_the_next_one,
        real.test_nothing_is_sent_outside_of_a_transaction,
        real.test_an_empty_transaction_asks_nobody,
        real.test_positions_move_with_what_was_made_of_them,
        real.test_a_member_whose_place_another_took_commits_nothing,
        real.test_who_takes_the_name_fences_the_one_before,
        real.test_a_zombie_s_late_records_are_refused,
        real.test_what_a_killed_program_left_open_is_rolled_back_by_the_next_life,
        real.test_a_transaction_that_took_too_long_is_told_and_the_next_one_works,
        real.test_a_topic_that_is_deleted_in_between_has_it_rolled_back,
        real.test_threads_may_send_in_one_transaction,
        real.test_a_time_above_the_cluster_s_is_refused,
        handed.test_another_client_commits_it_as_often_as_it_likes,
        handed.test_another_client_rolls_it_back,
        handed.test_many_are_ended_together,
        handed.test_one_that_took_too_long_is_told,
        handed.test_a_fenced_producer_commits_nothing,
        handed.test_who_goes_on_with_a_name_fences_nobody_who_has_taken_it_since,
        once.test_a_replay_of_a_decided_one_writes_nothing_however_it_is_cut,
        once.test_a_driver_killed_before_its_decision_leaves_nothing,
        once.test_what_losers_leave_open_holds_up_no_reader,
    ],
)
def test_it_holds_as_on_real_brokers(check: Callable[..., None], request: pytest.FixtureRequest) -> None:
    check(**{name: request.getfixturevalue(name) for name in inspect.signature(check).parameters})


def test_each_record_has_its_outputs_once(broker: Embedded) -> None:
    """Histories by chance, with requests and answers lost, as on real brokers."""
    begin = chance_seed() * 10_000 + 5000
    found = doubts.histories(broker, range(begin, begin + 10))  # type: ignore[arg-type]
    assert found["lost"]
    assert found["rolled back"]


def committed(broker: Embedded, topic: str) -> list[bytes]:
    return seen(broker, topic)  # type: ignore[arg-type]


def test_librdkafka_s_transactional_producer(broker: Embedded, client: Any, name: str, topic: str) -> None:
    """Commit, roll back, positions of a group, and being fenced by who takes the name."""
    client.admin().create_topic(f"in-{name}")
    with client.producer(f"in-{name}") as out:
        for number in range(10):
            out.send(b"%d" % number)
    settings = {"bootstrap.servers": broker.addresses[0], "log_level": 0}
    consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([f"in-{name}"])
    producer = Producer({**settings, "transactional.id": name})
    producer.init_transactions(SECONDS)
    for kept in (False, True):
        found = []
        while len(found) < 10:
            found += consumer.consume(10 - len(found), SECONDS)
        producer.begin_transaction()
        for message in found:
            producer.produce(topic, message.value(), partition=0)
        places = [TopicPartition(f"in-{name}", 0, 10)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), SECONDS)
        if kept:
            producer.commit_transaction(SECONDS)
        else:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
            (place,) = consumer.committed(places, SECONDS)
            assert place.offset < 0
            consumer.seek(TopicPartition(f"in-{name}", 0, 0))
    assert consumer.committed(places, SECONDS)[0].offset == 10
    consumer.close()
    producer.begin_transaction()
    producer.produce(topic, b"of the fenced", partition=0)
    producer.flush(SECONDS)
    taker = Producer({**settings, "transactional.id": name})
    taker.init_transactions(SECONDS)
    with pytest.raises(KafkaException) as told:
        producer.commit_transaction(SECONDS)
    assert told.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert committed(broker, topic) == [b"%d" % number for number in range(10)]
    with client.reader(topic, stop=LATEST) as reader:
        assert [value for batch in reader for value in batch.values()] == [b"%d" % number for number in range(10)]


def test_kafka_python_s_transactional_producer(broker: Embedded, name: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.addresses, transactional_id=name)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert committed(broker, topic) == [b"0", b"2"]


def test_what_is_open_outlives_the_broker(tmp_path: Any) -> None:
    """Its records, its end, and the offsets that it commits."""
    with DevBroker(["kafka"], data_dir=tmp_path) as dev, wireproto.connect(dev.url("kafka")) as client:
        for made in ("in", "out"):
            client.admin().create_topic(made)
        with client.producer("in") as out:
            out.send(b"once")
        place = dev.address("kafka")
        work = client.transactions("w")
        with client.consumer("in", "g") as log:
            batch = real.first(log)
            turn = work.begin()
            turn.send(b"made of it", topic="out", partition=0)
            turn.commit_positions(log, batch.next_positions)
            work.topics.flush()
            port = int(place.rpartition(":")[2])
            dev.stop()
            with DevBroker(["kafka"], data_dir=tmp_path, ports={"kafka": port}) as again:
                with wireproto.connect(again.url("kafka")) as other, other.reader("out", stop=LATEST) as reader:
                    assert [value for found in reader for value in found.values()] == []
                turn.commit()
                with wireproto.connect(again.url("kafka")) as other, other.reader("out", stop=LATEST) as reader:
                    assert [value for found in reader for value in found.values()] == [b"made of it"]
                    assert [place.offset for place in other.admin().group_positions("g", "in").values()] == [1]
                work.close()
                client.close()


def test_an_administrator_ends_what_is_open_in_one_partition(broker: Embedded, client: Any, name: str, topic: str) -> None:
    """By a marker of the partition's leader; a second one, of an epoch that is over, is refused."""
    admin = client.admin()
    with client.transactions(name) as work, work.begin() as turn:
        for partition in range(2):
            turn.send(b"open", topic=topic, partition=partition)
        work.topics.flush()
        (found,) = admin.describe_producers(topic)[topic, 0]
        assert found.transaction_start == 0
        with client.producer(topic) as out:
            out.send(b"behind it", partition=0).position(SECONDS)
        assert committed(broker, topic) == []
        admin.abort_transaction((topic, 0), found)
        assert committed(broker, topic) == [b"behind it"]
        assert [one.transaction_start for some in admin.describe_producers(topic).values() for one in some] == [None, None, 0]
        turn.abort()
    with client.transactions(name) as work, work.begin() as turn:
        turn.send(b"of a later epoch", topic=topic, partition=0)
    with pytest.raises(InvalidProducerEpoch):
        admin.abort_transaction((topic, 0), found)
