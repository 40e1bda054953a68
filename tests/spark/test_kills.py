"""Nothing is lost when the driver, a worker or the broker is killed, again and again; see `kills`. The exactly-once job from Kafka to Kafka
each time; the others are a part of `make soak`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import chance
from brokers import Kafka, plugin
from brokers.errors import Unavailable
from spark.kills import jobs
from spark.peers import QUIET

pytestmark = [QUIET, pytest.mark.timeout(900)]
SIZE = jobs.Size(total=50_000, each=2, batch=5_000, seed=chance.seed())  # other points each day


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """The broker with the input of all jobs."""
    try:
        with jobs.filled(SIZE) as found:
            yield found
    except Unavailable as why:
        plugin.missing("kafka-4.3.1", str(why))


def killed(name: str, folder: Path, kafka: Kafka) -> None:
    wrong = jobs.JOBS[name](replace(SIZE, each=1) if name == "pulsar-once" else SIZE, folder, print, kafka)  # of more kinds
    assert not wrong, f"seed {SIZE.seed}\n" + "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.broker("kafka-4.3.1")
def test_kafka_to_kafka_loses_nothing_and_keeps_each_key_s_order(kafka: Kafka, tmp_path: Path) -> None:
    killed("kafka", tmp_path, kafka)


@pytest.mark.soak
@pytest.mark.broker("kafka-4.3.1")
def test_kafka_to_kafka_loses_nothing_though_each_start_cuts_other_tasks(kafka: Kafka, tmp_path: Path) -> None:
    killed("recut", tmp_path, kafka)


@pytest.mark.broker("kafka-4.3.1")
def test_kafka_to_kafka_writes_each_record_once_though_each_start_cuts_other_tasks(kafka: Kafka, tmp_path: Path) -> None:
    wrong = jobs.kafka_to_kafka_once(replace(SIZE, each=1), tmp_path, print, kafka)
    assert not wrong, f"seed {SIZE.seed}\n" + "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.broker("kafka-4.3.1")
def test_a_sink_with_fixed_names_and_markers_does_not(kafka: Kafka, tmp_path: Path) -> None:
    """Else the judge of the kills were none."""
    wrong = jobs.kafka_to_kafka_once(SIZE, tmp_path, print, kafka, form="markers", patience=120.0)
    assert any("lost" in line or "repeated" in line for line in wrong), wrong


@pytest.mark.soak
@pytest.mark.broker("kafka-4.3.1", "pulsar-4.2.4-transactions")
def test_kafka_to_pulsar_writes_each_record_once_though_each_start_cuts_other_tasks(kafka: Kafka, tmp_path: Path) -> None:
    try:
        killed("pulsar-once", tmp_path, kafka)
    except Unavailable as why:
        plugin.missing("pulsar-4.2.4-transactions", str(why))


@pytest.mark.soak
@pytest.mark.broker("kafka-4.3.1", "pulsar-4.2.4")
def test_kafka_to_pulsar_stores_each_record_once_and_keeps_each_key_s_order(kafka: Kafka, tmp_path: Path) -> None:
    try:
        killed("pulsar", tmp_path, kafka)
    except Unavailable as why:
        plugin.missing("pulsar-4.2.4", str(why))
