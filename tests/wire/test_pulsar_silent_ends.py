"""One of two Pulsar brokers is silent to GET_LAST_MESSAGE_ID alone: what the other one has is read, and each call keeps its `timeout`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import KEPT, until
from pulsar_server import Answer, Link, PulsarServer, acknowledged, standing, stored, success
from wireproto.errors import TimedOut, TransportError
from wireproto.position import EARLIEST, LATEST, MessageId
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import reader

SILENT = 1
REQUEST = "GetLastMessageId"


def send_records(link: Link, flow: Any) -> None:
    """Three entries behind the place where a consumer began, once each consumer."""
    if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) == 1:
        for number in range(3):
            link.message(flow.consumer_id, number, stored([b"%d" % number], number))


class Scene:
    """The topic t, whose partition 0 a broker has that answers, and partition 1 one that is silent to GET_LAST_MESSAGE_ID."""

    def __init__(self, calm: PulsarServer, mute: PulsarServer, client: Any) -> None:
        self.calm, self.mute, self.client = calm, mute, client
        self.peer = f"127.0.0.1:{mute.port}"

    def answer(self) -> None:
        self.mute.answers["getLastMessageId"] = self.calm.answers["getLastMessageId"]


def consumer_is_active(link: Link, ask: Any) -> Any:
    if ask.subType != api.CommandSubscribe.Failover:
        return success(link, ask)
    return [success(link, ask), api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=True)]


def no_answer(link: Link, ask: Any) -> None:
    pass


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(reader, "ENOUGH", 0.3)
    answers: dict[str, Answer] = {
        "subscribe": consumer_is_active,
        "ack": acknowledged,
        "consumerStats": lambda link, ask: api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=0),
        "flow": send_records,
        "getLastMessageId": standing(2),
    }
    with PulsarServer(**answers) as calm, PulsarServer(**{**answers, "getLastMessageId": no_answer}) as mute:

        def where(link: Link, ask: Any) -> Any:
            return calm.here(ask, brokerServiceUrl=(mute if ask.topic.endswith(f"-partition-{SILENT}") else calm).url)

        for server in (calm, mute):
            server.answers["lookupTopic"] = where
            server.answers["partitionMetadata"] = lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
                request_id=ask.request_id, partitions=2, response="Success"
            )
        with wireproto.connect(calm.url, timeout=3.0) as client:
            yield Scene(calm, mute, client)


def took(role: Any, count: int) -> list[tuple[int, bytes]]:
    """Partition and value of so many records, sorted; no poll takes longer than it may."""
    found: list[tuple[int, bytes]] = []

    def enough() -> bool:
        begin = time.monotonic()
        batch = role.poll(0.1)
        assert time.monotonic() - begin < 0.1 + KEPT
        found.extend([(batch.partition, value) for value in batch.values()] if batch is not None else [])
        return len(found) >= count

    until(enough, f"{count} records")
    return sorted(found)


def records(partition: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(partition, b"%d" % number) for number in range(first, 3)]


@pytest.mark.parametrize("start", [EARLIEST, LATEST], ids=["earliest", "latest"])
def test_a_reader_returns_what_the_other_broker_has(scene: Scene, start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """From the beginning, and (entries come all the same) from now on; the rest is read when its broker answers."""
    if start is LATEST:
        scene.calm.answers["getLastMessageId"] = standing(-1)
    with scene.client.reader("t", start=start, timeout=20.0) as read:
        assert took(read, 3) == records(0)
        assert REQUEST in caplog.text
        assert f"t[{SILENT}]" in caplog.text
        assert scene.peer in caplog.text
        scene.answer()
        assert took(read, 3) == records(SILENT)


def test_a_poll_does_not_wait_for_the_silent_broker(scene: Scene) -> None:
    with scene.client.reader("t", start=EARLIEST, timeout=20.0) as read:
        assert took(read, 3) == records(0)
        asked = scene.mute.count("getLastMessageId")
        begin, polls = time.monotonic(), 0
        while time.monotonic() - begin < 2.5:
            assert read.poll(0.0) is None
            polls += 1
        assert polls > 100, "it waited in a poll"
        assert scene.mute.count("getLastMessageId") - asked <= 5


def test_a_reader_to_a_stop_names_the_broker_and_the_request_when_its_time_is_over(scene: Scene) -> None:
    with scene.client.reader("t", start=EARLIEST, stop=LATEST, timeout=3.0) as read:
        assert took(read, 3) == records(0)
        with pytest.raises(TimedOut, match=REQUEST) as failed:
            until(lambda: read.poll(0.2) is not None)
        assert (failed.value.peer, failed.value.topic, failed.value.partition) == (scene.peer, "t", SILENT)


def test_a_question_whether_there_is_more_before_the_stop_holds_up_no_other_partition(scene: Scene) -> None:
    """Each partition lacks the entry at its stop; the broker of partition 0 is silent to CONSUMER_STATS."""

    def send_two(link: Link, flow: Any) -> None:
        if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) == 1:
            for number in range(2):
                link.message(flow.consumer_id, number, stored([b"%d" % number], number))

    scene.answer()
    for server in (scene.calm, scene.mute):
        server.answers["flow"] = send_two
    scene.calm.answers["consumerStats"] = no_answer
    answer = scene.mute.answers["consumerStats"]
    scene.mute.answers["consumerStats"] = lambda link, ask: api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=1)
    with scene.client.reader("t", start=EARLIEST, stop=LATEST) as read:
        took(read, 4)
        sending = threading.Timer(
            3.0, lambda: scene.mute.links[-1].message(scene.mute.commands("subscribe")[-1].consumer_id, 2, stored([b"2"], 2))
        )
        sending.start()
        begin = time.monotonic()
        batch = read.poll(30.0)
        assert batch is not None
        assert batch.values() == [b"2"]
        assert time.monotonic() - begin < 3.0 + KEPT
        scene.mute.answers["consumerStats"] = answer
        scene.mute.wait("close_consumer")
        assert not read.done


def test_a_reader_is_not_made_where_no_broker_answers(scene: Scene) -> None:
    scene.calm.answers["getLastMessageId"] = no_answer
    begin = time.monotonic()
    with pytest.raises(TimedOut, match=REQUEST) as failed:
        scene.client.reader("t", start=EARLIEST, timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT
    assert failed.value.topic == "t"
    assert failed.value.partition in (0, 1)
    assert failed.value.peer is not None


def test_a_seek_holds_up_no_partition_whose_broker_answers(scene: Scene) -> None:
    scene.answer()
    with scene.client.reader("t", start=EARLIEST, timeout=20.0) as read:
        assert took(read, 6) == records(0) + records(SILENT)
        scene.mute.answers["getLastMessageId"] = no_answer
        begin = time.monotonic()
        read.seek(EARLIEST, timeout=10.0)
        assert time.monotonic() - begin < KEPT
        assert took(read, 3) == records(0)
        scene.answer()
        assert took(read, 3) == records(SILENT)


def test_a_consumer_reads_on_and_an_error_of_committed_has_what_the_other_broker_answered(scene: Scene) -> None:
    with scene.client.consumer("t", "group") as log:
        assert took(log, 6) == records(0) + records(SILENT)
        log.commit()
        begin = time.monotonic()
        with pytest.raises(TransportError, match=REQUEST) as failed:
            log.committed(timeout=1.0)
        assert time.monotonic() - begin < 1.0 + KEPT
        assert (failed.value.peer, failed.value.topic, failed.value.partition) == (scene.peer, "t", SILENT)
        assert failed.value.known == {("t", 0): MessageId("t", 0, 7, 2, after=True)}


@pytest.mark.parametrize("silent", [0, 1])
def test_an_error_of_lag_has_what_the_other_broker_answered_whichever_is_silent(scene: Scene, silent: int) -> None:
    server = (scene.calm, scene.mute)[silent]
    with scene.client.consumer("t", "group") as log:
        assert took(log, 6) == records(0) + records(SILENT)
        server.answers["consumerStats"] = no_answer
        with pytest.raises(TransportError, match="ConsumerStats") as failed:
            log.lag(timeout=1.0)
        assert (failed.value.peer, failed.value.partition) == (f"127.0.0.1:{server.port}", silent)
        assert failed.value.known == {("t", 1 - silent): 0}


def test_a_partition_that_comes_back_to_a_silent_broker_holds_up_no_other(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The consumer asks where the subscription is as it opens again."""
    caplog.set_level("INFO", "wireproto")
    with wireproto.connect(scene.calm.url, timeout=3.0, operation_timeout=1.0) as client, client.consumer("t", "group") as log:
        assert took(log, 6) == records(0) + records(SILENT)
        log.commit()
        scene.mute.links[-1].close()
        scene.mute.wait("getLastMessageId", scene.mute.count("getLastMessageId") + 1) if log.poll(0.0) is None else None
        scene.calm.links[-1].message(scene.calm.commands("subscribe")[-1].consumer_id, 3, stored([b"3"], 3))
        assert took(log, 1) == [(0, b"3")]
        with pytest.raises(TimedOut, match=REQUEST) as failed:
            log.commit({("t", SILENT): MessageId("t", SILENT, 7, 1, after=True)}, timeout=0.5)
        assert failed.value.partition == SILENT
        until(lambda: log.poll(0.05) is None and "tried again" in caplog.text)
        assert f"t[{SILENT}]" in caplog.text
        assert scene.peer in caplog.text
        scene.answer()
        log.commit(timeout=20.0)
        assert log.committed(timeout=20.0).keys() == {("t", 0), ("t", 1)}


def test_an_error_of_positions_names_the_silent_broker_and_has_what_the_other_answered(scene: Scene) -> None:
    begin = time.monotonic()
    with pytest.raises(TransportError, match=REQUEST) as failed:
        scene.client.admin().positions("t", LATEST, timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT
    assert (failed.value.peer, failed.value.topic, failed.value.partition) == (scene.peer, "t", SILENT)
    assert failed.value.known == {("t", 0): MessageId("t", 0, 7, 2, after=True)}
