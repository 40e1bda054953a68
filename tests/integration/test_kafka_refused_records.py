"""Records that a broker refuses (KIP-467) in batches with good ones: they fail alone, and the others are stored once and in order."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

import wireproto
from brokers import Broker
from wireproto.kafka.codes import InvalidRecord, InvalidTimestamp

from .kafka_peers import confluent_read

BROKERS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-4.4.0"]
RECORDS = 3000
_numbers = itertools.count()


def refused(number: int) -> bool:
    """Several of a batch, neighbours too, the first and the last; then a long time none."""
    return number in (0, RECORDS - 1) or (number % 97 in (5, 6, 50) and not 1000 < number < 2000)


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"idempotence": False}, {"acks": "1"}], ids=str)
@pytest.mark.parametrize("why", [InvalidTimestamp, InvalidRecord])
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_refused_record_fails_alone(broker: Broker, why: Any, options: dict[str, Any]) -> None:
    """Though many batches are in flight behind, each with some of its own."""
    topic = f"refused-{next(_numbers)}"
    late = int(time.time() * 1000) + 10**8
    with wireproto.connect(broker.url) as client:
        limits = {"cleanup.policy": "compact"} if why is InvalidRecord else {"message.timestamp.after.max.ms": "3600000"}
        client.admin().create_topic(topic, partitions=1, config=limits)
        with client.producer(topic, linger=0.005, batch_size=4000, **options) as producer:
            receipts = []
            for number in range(RECORDS):
                bad = {"key": None} if why is InvalidRecord else {"timestamp": late}
                receipts.append(producer.send(b"%06d" % number, **{"key": b"k", **(bad if refused(number) else {})}))
            kept = [number for number in range(RECORDS) if not refused(number)]
            assert [receipts[number].position(60.0).offset for number in kept] == [*range(len(kept))]
            for number in range(RECORDS):
                if refused(number):
                    with pytest.raises(why) as told:
                        receipts[number].position(60.0)
                    assert len(str(told.value)) < 1000
            producer.flush(30.0)  # all was told
        assert client.cluster.budget.used == 0
    rows = confluent_read(broker.bootstrap, topic, 1, len(kept))
    assert [row.value for row in rows] == [b"%06d" % number for number in kept]
