"""A member of a Pulsar group: what it hands out, what it commits, and what becomes of both when another member is fed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto import LATEST, MessageId
from wireproto.errors import ChecksumMismatch, Revoked
from wireproto.pulsar import PulsarApi_pb2 as api

OWNER = ("t", -1)
VALUES = [b"value 0", b"value 1", b"value 2"]


def active(link: Link, consumer: int, fed: bool) -> None:
    link.send(api.CommandActiveConsumerChange(consumer_id=consumer, is_active=fed))


def told(link: Link, ask: Any) -> None:
    """SUCCESS, and that this member is fed."""
    link.send(success(link, ask))
    active(link, ask.consumer_id, True)


def feed(link: Link, consumer: int, first: int = 0, broken: int = -1) -> None:
    for number, value in enumerate(VALUES[first:], first):
        entry = bytearray(stored([value], number))
        entry[-1] ^= number == broken
        link.message(consumer, number, bytes(entry))


def fed_once(link: Link, flow: Any) -> None:
    """Entries 0, 1 and 2 to each consumer."""
    if sum(one.consumer_id == flow.consumer_id for one in link.server.commands("flow")) == 1:
        feed(link, flow.consumer_id)


def last(link: Link, ask: Any) -> Any:
    return api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=7, entryId=2),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
    )


def stats(link: Link, ask: Any) -> Any:
    return api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=0)


@pytest.fixture
def server() -> Iterator[PulsarServer]:
    with PulsarServer(subscribe=told, ack=acknowledged, getLastMessageId=last, consumerStats=stats) as made:
        yield made


def read(consumer: Any, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        batch = consumer.poll(20.0)
        assert batch is not None, found
        found += batch.values()
    return found


def test_what_was_fetched_of_a_partition_that_another_member_took_is_not_handed_out(server: PulsarServer) -> None:
    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:  # what is dropped is granted anew
            feed(link, ask.consumer_id)
            active(link, ask.consumer_id, False)

    server.answers["flow"] = flow
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        consumer.lag(timeout=20.0)  # answered behind all that: it is here by now
        assert consumer.poll(0.0) is None
        assert consumer.assignment == frozenset()
        ident = server.commands("subscribe")[-1].consumer_id
        active(server.links[-1], ident, True)
        feed(server.links[-1], ident)
        assert read(consumer, 3) == VALUES


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_member_hands_out_what_stands_before_an_entry_that_cannot_be_read(server: PulsarServer, broken: int) -> None:
    """All three have come before the first poll."""

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            feed(link, ask.consumer_id, broken=broken)

    server.answers["flow"] = flow
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        consumer.lag(timeout=20.0)
        if broken:
            batch = consumer.poll(20.0)
            assert batch is not None
            assert batch.values() == VALUES[:broken]
        for _ in range(2):
            with pytest.raises(ChecksumMismatch, match=f"7:{broken}"):
                consumer.poll(20.0)
        consumer.commit(timeout=20.0)
    assert [ack.message_id[0].entryId for ack in server.commands("ack")] == ([broken - 1] if broken else [])


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_worker_gets_what_stands_beside_an_entry_that_cannot_be_read(server: PulsarServer, broken: int) -> None:
    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            feed(link, ask.consumer_id, broken=broken)

    server.answers["flow"] = flow
    with wireproto.connect(server.url) as client, client.queue("t", "group") as queue:
        found: list[bytes | None] = []
        errors = []
        while len(found) + len(errors) < 3:
            try:
                delivery = queue.receive(20.0)
            except ChecksumMismatch as why:
                errors.append(str(why.position))
            else:
                assert delivery is not None
                found.append(delivery.value)
        assert found == VALUES[:broken] + VALUES[broken + 1 :]
        assert errors == [f"7:{broken}:-1"]


def lose_to_another(server: PulsarServer, consumer: Any) -> int:
    """The connection goes; the member comes back, and another one is fed by then. Its consumer's id."""

    def subscribe(link: Link, ask: Any) -> None:
        link.send(success(link, ask))
        active(link, ask.consumer_id, False)

    server.answers["subscribe"] = subscribe
    server.answers["flow"] = lambda link, flow: None
    before = server.count("subscribe")
    server.links[-1].close()
    while server.count("subscribe") == before:
        assert consumer.poll(0.05) is None
    consumer.lag(timeout=20.0)  # answered behind what the broker said of who is fed
    assert consumer.poll(0.0) is None
    ident: int = server.commands("subscribe")[-1].consumer_id
    return ident


@pytest.mark.parametrize("told_before", [False, True])
def test_what_a_member_did_not_commit_comes_again_when_it_is_fed_again(server: PulsarServer, told_before: bool) -> None:
    """It comes back as one that is not fed, so another member had the partition: what it was handed before is not its own any more."""
    server.answers["flow"] = fed_once
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert read(consumer, 3) == VALUES
        if told_before:
            active(server.links[-1], server.commands("subscribe")[-1].consumer_id, False)
            consumer.lag(timeout=20.0)
        ident = lose_to_another(server, consumer)
        with pytest.raises(Revoked) as caught:
            consumer.commit(timeout=20.0)
        assert caught.value.partitions == (OWNER,)
        consumer.commit(timeout=20.0)  # told once
        assert server.count("ack") == 0
        active(server.links[-1], ident, True)
        feed(server.links[-1], ident)
        assert read(consumer, 3) == VALUES
        consumer.commit(timeout=20.0)
        assert [ack.message_id[0].entryId for ack in server.commands("ack")] == [2]


@pytest.mark.parametrize("said", [None, False])
def test_what_comes_before_a_member_is_fed_is_not_handed_out(server: PulsarServer, said: bool | None) -> None:
    """A broker that feeds another member reads on for it where the last one stopped, before it goes back to the mark and says so."""

    def subscribe(link: Link, ask: Any) -> None:
        link.send(success(link, ask))
        if said is not None:
            active(link, ask.consumer_id, said)
            read_on(link, ask.consumer_id)

    def flow(link: Link, ask: Any) -> None:
        if said is None and server.count("flow") == 1:
            read_on(link, ask.consumer_id)

    def read_on(link: Link, consumer: int) -> None:
        feed(link, consumer, first=1)
        active(link, consumer, True)
        feed(link, consumer)

    server.answers["subscribe"], server.answers["flow"] = subscribe, flow
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert read(consumer, 3) == VALUES
        consumer.commit(timeout=20.0)
        assert [ack.message_id[0].entryId for ack in server.commands("ack")] == [2]


def test_a_member_that_is_told_again_that_it_is_fed_begins_anew(server: PulsarServer) -> None:
    """Another one was to be fed meanwhile, and perhaps was: the broker has gone back to the mark."""
    server.answers["flow"] = fed_once
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert read(consumer, 3) == VALUES
        ident = server.commands("subscribe")[-1].consumer_id
        active(server.links[-1], ident, True)
        consumer.lag(timeout=20.0)
        with pytest.raises(Revoked) as caught:
            consumer.commit(timeout=20.0)
        assert caught.value.partitions == (OWNER,)
        assert server.count("ack") == 0
        feed(server.links[-1], ident)
        assert read(consumer, 3) == VALUES


@pytest.mark.parametrize("late", [False, True])
def test_what_is_dropped_is_granted_again(server: PulsarServer, late: bool) -> None:
    """Else the window runs dry: the broker counts what it has sent, whatever becomes of it."""

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            if late:
                active(link, ask.consumer_id, False)
            for number in range(ask.messagePermits):
                link.message(ask.consumer_id, number, stored([b"%d" % number], number))
            if not late:
                active(link, ask.consumer_id, False)

    server.answers["flow"] = flow
    with wireproto.connect(server.url) as client, client.consumer("t", "group", receive_memory=1 << 20) as consumer:
        consumer.lag(timeout=20.0)
        assert consumer.poll(0.0) is None
        granted = server.commands("flow")[0].messagePermits
        assert server.count("flow") == 1, "nothing is wanted while another member is fed"
        active(server.links[-1], server.commands("subscribe")[-1].consumer_id, True)
        consumer.lag(timeout=20.0)
        consumer.poll(0.0)
        consumer.lag(timeout=20.0)
        assert sum(one.messagePermits for one in server.commands("flow")[1:]) >= granted


def test_sizes_of_batches_are_forgotten_with_the_partition(server: PulsarServer) -> None:
    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            link.message(ask.consumer_id, 0, stored(VALUES))

    server.answers["flow"] = flow
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert read(consumer, 3) == VALUES
        assert consumer._logs[OWNER].sizes
        lose_to_another(server, consumer)
        assert not consumer._logs[OWNER].sizes


def test_an_automatic_commit_does_not_stumble_over_a_partition_that_is_gone(server: PulsarServer) -> None:
    """Two partitions; the first goes to another member, the second is fed on."""
    server.answers["partitionMetadata"] = lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
        request_id=ask.request_id, partitions=2, response="Success"
    )
    with wireproto.connect(server.url) as client, client.consumer("t", "group", auto_commit=True, auto_commit_interval=0.0) as consumer:
        first, second = (one.consumer_id for one in server.commands("subscribe"))
        consumer.lag(timeout=20.0)  # answered behind the word that they are fed: what came before that would be dropped
        for ident in (second, first):  # what the first handed out is not committed when it goes
            feed(server.links[-1], ident)
            assert read(consumer, 3) == VALUES

        def subscribe(link: Link, ask: Any) -> None:
            link.send(success(link, ask))
            active(link, ask.consumer_id, ask.topic.endswith("-1"))

        def flow(link: Link, ask: Any) -> None:
            again = [one.consumer_id for one in server.commands("subscribe")[2:] if one.topic.endswith("-1")]
            if ask.consumer_id in again and sum(one.consumer_id == ask.consumer_id for one in server.commands("flow")) == 1:
                for number in range(3, 6):
                    link.message(ask.consumer_id, number, stored([b"more %d" % number], number))

        server.answers["subscribe"], server.answers["flow"] = subscribe, flow
        server.links[-1].close()
        found: list[bytes | None] = []
        while len(found) < 3:
            batch = consumer.poll(20.0)
            assert batch is not None, found
            found += batch.values()
        assert found == [b"more 3", b"more 4", b"more 5"]
        until = time.monotonic() + 20.0
        while server.commands("ack")[-1].message_id[0].entryId != 5 and time.monotonic() < until:
            assert consumer.poll(0.1) is None
        assert server.commands("ack")[-1].message_id[0].entryId == 5
        assert consumer.assignment == {("t", 1)}


def test_a_commit_at_the_first_entry_of_a_ledger_acknowledges_nothing(server: PulsarServer) -> None:
    with wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        for position in (MessageId(*OWNER, 7, 0), MessageId(*OWNER, -1, -1), MessageId(*OWNER, 7, -1, after=True)):
            consumer.commit({OWNER: position}, timeout=20.0)
        assert server.count("ack") == 0
        consumer.commit({OWNER: MessageId(*OWNER, 7, 1)}, timeout=20.0)
        assert [(ack.message_id[0].ledgerId, ack.message_id[0].entryId) for ack in server.commands("ack")] == [(7, 0)]


@pytest.mark.parametrize("stop", [LATEST, MessageId("t", -1, 7, 3)])
def test_a_reader_whose_last_entries_are_gone_ends_when_the_broker_has_no_more(server: PulsarServer, stop: Any) -> None:
    """Entry 2 was there when the reader opened: it is never handed out, and the broker's backlog says so."""

    def flow(link: Link, ask: Any) -> None:
        if server.count("flow") == 1:
            for number in range(2):
                link.message(ask.consumer_id, number, stored([VALUES[number]], number))

    server.answers["flow"] = flow
    server.answers["consumerStats"] = lambda link, ask: api.CommandConsumerStatsResponse(
        request_id=ask.request_id, msgBacklog=2 - min(2, server.count("consumerStats"))
    )
    with wireproto.connect(server.url) as client, client.reader("t", stop=stop) as reader:
        found: list[bytes | None] = []
        while not reader.done and server.count("consumerStats") < 5:
            batch = reader.poll(20.0)
            found += batch.values() if batch is not None else []
        assert reader.done
        assert found == VALUES[:2]
        assert server.count("consumerStats") == 2
        assert [ack.message_id[0].entryId for ack in server.commands("ack")][-1] == 1  # else the broker counts what was handed out


def test_a_reader_whose_stop_is_not_written_yet_waits_for_it(server: PulsarServer) -> None:
    """The log ends at entry 2: that the broker has no more for now says nothing about entry 3."""
    fed: list[Link] = []

    def flow(link: Link, ask: Any) -> None:
        fed.append(link)
        fed_once(link, ask)

    server.answers["flow"] = flow
    with wireproto.connect(server.url) as client, client.reader("t", stop=MessageId("t", -1, 7, 4)) as reader:
        found: list[bytes | None] = []
        while len(found) < 3:
            batch = reader.poll(20.0)
            found += batch.values() if batch is not None else []
        assert reader.poll(1.5) is None, "longer than a look at whether the end has gone takes"
        assert not reader.done
        assert server.count("consumerStats") == 0
        fed[0].message(server.commands("subscribe")[-1].consumer_id, 3, stored([b"value 3"], 3))
        while not reader.done:
            batch = reader.poll(20.0)
            found += batch.values() if batch is not None else []
        assert found == [*VALUES, b"value 3"]
