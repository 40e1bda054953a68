"""What a Pulsar client tells its log, beside what all protocols do alike (tests/wire/test_client_log.py): docs/logging.md."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, fed, standing, success
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import NotAllowedError

NOBODY = 2**64 - 1


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "wireproto.pulsar")
    return caplog


def told(lines: pytest.LogCaptureFixture, pattern: str) -> str:
    """The line that tells it, once it is there."""

    def found() -> list[str]:
        return [line for each in lines.records if re.search(pattern, line := f"{each.levelname} {each.getMessage()}")]

    until(found, f"no line {pattern}")
    return found()[0]


def refusal(code: str) -> Any:
    return lambda link, ask: api.CommandError(request_id=ask.request_id, error=code, message="not yours")  # type: ignore[arg-type]


def test_a_producer_that_is_refused_when_it_comes_back_tells_why_it_is_tried_again(lines: Any) -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client, client.producer("t") as out:
        out.send(b"a").position(20.0)
        takes, server.answers["producer"] = server.answers["producer"], refusal("AuthorizationError")
        server.links[-1].send(api.CommandCloseProducer(producer_id=server.commands("producer")[0].producer_id, request_id=NOBODY))
        told(lines, r"INFO t\[-1\]: tried again: AuthorizationError \[\d+\]: not yours")
        server.answers["producer"] = takes
        out.send(b"b").position(20.0)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("MetadataError", r"INFO t\[-1\]: 1 records are sent again: MetadataError"),
        ("NotAllowedError", r"WARNING 1 records were not stored: NotAllowedError"),
    ],
)
def test_what_is_sent_again_and_what_was_not_stored_is_told(code: Any, line: str, lines: Any) -> None:
    def send(link: Link, sent: Any) -> Any:
        if server.count("send") > 1:
            return takes(link, sent)
        return api.CommandSendError(producer_id=sent.producer_id, sequence_id=sent.sequence_id, error=code, message="not so")

    with PulsarServer() as server, wireproto.connect(server.url) as client, client.producer("t") as out:
        takes, server.answers["send"] = server.answers["send"], send
        sent = out.send(b"a")
        told(lines, line)
        if code == "NotAllowedError":
            with pytest.raises(NotAllowedError):
                sent.position(20.0)
        else:
            sent.position(20.0)


def test_a_topic_that_its_broker_serves_no_more_is_told_and_each_kind_of_trouble_on_the_way_back(lines: Any) -> None:
    with PulsarServer(subscribe=success) as server, wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        server.answers["subscribe"] = refusal("ServiceNotReady")
        server.links[-1].send(api.CommandCloseConsumer(consumer_id=server.commands("subscribe")[0].consumer_id, request_id=NOBODY))
        until(lambda: queue.receive(0.01) is None and server.count("subscribe") > 1, "it is not subscribed again")
        told(lines, rf"INFO persistent://public/default/t: broker 127.0.0.1:{server.port} no longer serves the topic")
        until(lambda: queue.receive(0.01) is None and "tried again" in lines.text, "nothing is told")
        told(lines, r"INFO t\[-1\]: tried again: ServiceNotReady")
        server.answers["subscribe"] = success


def test_a_partition_that_cannot_be_opened_yet_is_told(lines: Any) -> None:
    count = [1]

    def metadata(link: Link, ask: Any) -> Any:
        return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=count[0], response="Success")

    with (
        PulsarServer(partitionMetadata=metadata) as server,
        wireproto.connect(server.url, metadata_max_age=0.1) as client,
        client.producer("t"),
    ):
        server.answers["producer"] = refusal("AuthorizationError")
        count[0] = 2
        told(lines, r"WARNING t\[1\]: not written yet: AuthorizationError")


def test_a_member_tells_what_it_took_and_gave_up_and_nothing_that_it_never_had(lines: Any) -> None:
    def waits(link: Link, ask: Any) -> None:
        link.send(success(link, ask))
        feed(link, ask, False)

    def feed(link: Link, ask: Any, fed: bool) -> None:
        link.send(api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=fed))

    def tells(pattern: str) -> None:
        until(lambda: consumer.poll(0.01) is None and re.search(pattern, lines.text), f"no line {pattern}")

    answers: Any = {"subscribe": waits, "ack": acknowledged, "getLastMessageId": standing(-1)}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        consumer.committed(timeout=20.0)  # behind what it was told
        assert "gave up" not in lines.text
        link, [ask] = server.links[-1], server.commands("subscribe")
        feed(link, ask, True)
        tells(r"group group: took t\[-1\], gave up nothing")
        link.close()  # and another one is fed when it is back
        tells(r"group group: took nothing, gave up t\[-1\]")
        server.answers["subscribe"] = fed
