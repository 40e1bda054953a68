"""Nothing is lost when the driver, a worker or the broker is killed, again and again; see `kills`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from brokers import plugin
from brokers.errors import Unavailable
from spark.kills import jobs

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(480)]
EACH = 3


def killed(name: str, folder: Path) -> None:
    """Run the job; its points change from day to day, and the output names the seed."""
    size = jobs.Size(total=100_000, each=EACH, batch=5_000, seed=int(time.time()) // 86_400)
    wrong = jobs.JOBS[name](size, folder, print)
    assert not wrong, "\n".join(wrong)


@pytest.mark.broker("kafka-4.3.1")
def test_kafka_to_kafka_loses_nothing_and_keeps_each_key_s_order(tmp_path: Path) -> None:
    try:
        killed("kafka", tmp_path)
    except Unavailable as why:
        plugin.missing("kafka-4.3.1", str(why))


@pytest.mark.broker("kafka-4.3.1", "pulsar-4.2.4")
def test_kafka_to_pulsar_stores_each_record_once_and_keeps_each_key_s_order(tmp_path: Path) -> None:
    try:
        killed("pulsar", tmp_path)
    except Unavailable as why:
        plugin.missing("pulsar-4.2.4", str(why))
