"""Spark Connect: a client with neither a SparkContext nor a JVM reads, writes and streams all four formats on a server that has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wireproto.spark
from spark import tour
from spark.peers import QUIET
from wireproto.devbroker import DevBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = QUIET


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    """Each test's own: one that Spark failed is run once more (`late.py`), and makes its topics then."""
    with DevBroker() as started:
        yield started


@pytest.fixture
def remote(spark: SparkSession) -> Iterator[Any]:
    """A client of the Connect server that the folder's session is, too."""
    from pyspark.sql.connect.session import SparkSession as Remote

    session = Remote.builder.remote(f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}").create()
    yield session
    session.stop()


def test_formats_are_found_and_work(remote: Any, broker: DevBroker, tmp_path: Path) -> None:
    assert tour.whole(remote, broker, tmp_path) == tour.EXPECTED


def test_formats_can_be_registered(remote: Any, broker: DevBroker) -> None:
    wireproto.spark.register(remote)
    assert remote.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    tour.fill(broker, "kafka", "registered", range(8))
    assert tour.values(tour.log(remote, broker, "kafka", "registered").where("partition = 3")) == [3, 7]


def test_a_mistake_is_named_to_the_client(remote: Any, broker: DevBroker) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        tour.log(remote, broker, "kafka", "read", startingOfsets="earliest").count()
