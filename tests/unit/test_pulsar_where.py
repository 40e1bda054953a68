"""What a Pulsar role tells brokers of places, and the user: seeks, commits, where to go on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto import EARLIEST, LATEST, MessageId
from wireproto.errors import OptionError
from wireproto.position import AtTime
from wireproto.pulsar import PulsarApi_pb2 as api

OWNER = ("t", -1)
LAST = 2**63 - 1
GONE = "non-persistent://public/default/t"


def told(link: Link, ask: Any) -> None:
    """SUCCESS, and that this member is fed."""
    link.send(success(link, ask))
    link.send(api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=True))


def batches(link: Link, ask: Any) -> None:
    """Entries 0 to 5, each a batch of three, to each consumer."""
    if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
        for entry in range(6):
            link.message(ask.consumer_id, entry, stored([b"%d-%d" % (entry, index) for index in range(3)], 3 * entry))


def places(last: int, mark: int) -> Any:
    def answer(link: Link, ask: Any) -> Any:
        return api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id,
            last_message_id=api.MessageIdData(ledgerId=7, entryId=last & (2**64 - 1)),
            consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=mark & (2**64 - 1)),
        )

    return answer


def serving(**answers: Any) -> PulsarServer:
    usual = {"subscribe": told, "ack": acknowledged, "seek": success, "flow": batches, "getLastMessageId": places(5, -1)}
    return PulsarServer(**(usual | answers))


def read(role: Any, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        batch = role.poll(30.0)
        assert batch is not None, found
        found += batch.values()
    return found


@pytest.mark.parametrize(
    ("where", "told_ledger", "told_entry", "begins"),
    [
        (MessageId(*OWNER, 7, 4), 7, 4, b"4-0"),
        (MessageId(*OWNER, 7, 3, after=True), 7, 4, b"4-0"),  # after a whole entry: at the one behind it
        (MessageId(*OWNER, 7, 4, 0), 7, 4, b"4-0"),
        (MessageId(*OWNER, 7, 4, 2), 7, 4, b"4-2"),  # within a batch: at the entry, and what stands before is left out here
        (MessageId(*OWNER, 7, 4, 1, after=True), 7, 4, b"4-2"),
        (MessageId(*OWNER, 7, 4, 2, after=True), 7, 4, b"5-0"),
        (MessageId(*OWNER, 7, 0, after=True), 7, 1, b"1-0"),
        (EARLIEST, -1, -1, b"0-0"),
        (MessageId(*OWNER, -1, -1), -1, -1, b"0-0"),
        (MessageId(*OWNER, -1, -1, after=True), -1, -1, b"0-0"),  # the position that stands for EARLIEST
        (LATEST, LAST, LAST, None),
    ],
    ids=repr,
)
def test_a_member_s_seek_names_the_entry_where_reading_goes_on(where: Any, told_ledger: int, told_entry: int, begins: bytes | None) -> None:
    def flow(link: Link, ask: Any) -> None:
        """What a broker has from the place sought on."""
        if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
            first = max(0, told_entry) if link.server.count("seek") else 0
            for entry in range(first, 6):
                link.message(ask.consumer_id, entry, stored([b"%d-%d" % (entry, index) for index in range(3)], 3 * entry))

    with serving(flow=flow) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert read(consumer, 18)[0] == b"0-0"
        consumer.seek(where if not isinstance(where, MessageId) else {OWNER: where})
        [sought] = server.commands("seek")
        signed = [value - 2**64 if value >= 2**63 else value for value in (sought.message_id.ledgerId, sought.message_id.entryId)]
        assert signed == [told_ledger, told_entry]
        assert not sought.HasField("message_publish_time")
        if begins is not None:
            assert read(consumer, 1)[0] == begins
        assert sum(one.subscription == "group" for one in server.commands("subscribe")) == 2


def test_a_member_s_seek_to_a_time_names_the_time() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        consumer.seek(AtTime(123_456))
        [sought] = server.commands("seek")
        assert sought.message_publish_time == 123_456
        assert not sought.HasField("message_id")
        assert read(consumer, 18)[0] == b"0-0"


def test_nothing_is_asked_for_before_a_seek_is_answered() -> None:
    """The broker has the member closed and back again before it moves the place: what it sent then would be from before."""
    flows: list[int] = []

    def answered(link: Link, ask: Any) -> None:
        flows.append(link.server.count("flow"))
        link.send(success(link, ask))

    def seek(link: Link, ask: Any) -> None:
        link.send(api.CommandCloseConsumer(consumer_id=ask.consumer_id, request_id=2**64 - 1))
        threading.Timer(0.3, answered, (link, ask)).start()

    silent = serving(flow=lambda link, ask: None, seek=seek)
    with silent as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        server.wait("flow", 1)
        consumer.seek(EARLIEST)
        server.wait("flow", 2)
        assert flows == [1]
        assert server.count("subscribe") == 2


@pytest.mark.parametrize(("mark", "ledger"), [(3, 7), (-1, 7)])
def test_where_a_group_resumes_is_behind_what_its_broker_has_acknowledged(mark: int, ledger: int) -> None:
    with serving(getLastMessageId=places(5, mark)) as server, wireproto.connect(server.url) as client:
        with client.consumer("t", "group") as consumer:
            assert consumer.committed() == {OWNER: MessageId(*OWNER, ledger, mark, after=True)}
            assert read(consumer, 18)
            consumer.commit({OWNER: MessageId(*OWNER, 7, 4, 1)})  # of that a broker knows entry 3 alone
            assert consumer.committed() == {OWNER: MessageId(*OWNER, 7, 4, 1)}
        server.answers["getLastMessageId"] = places(5, 5)
        with client.consumer("t", "group") as consumer:
            assert read(consumer, 18)
            consumer.commit({OWNER: MessageId(*OWNER, 7, 2, after=True)})
            assert consumer.committed() == {OWNER: MessageId(*OWNER, 7, 5, after=True)}, "somebody was further"


@pytest.mark.parametrize(
    "place", [MessageId(*OWNER, 7, 2, 1), MessageId(*OWNER, 7, 4, 0, after=True), MessageId(*OWNER, 7, 4, 2, after=True)]
)
def test_a_commit_within_a_batch_that_is_committed_already_moves_nothing(place: MessageId) -> None:
    """As one at an entry before: a group goes back by seek alone."""
    with serving() as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert len(read(consumer, 18)) == 18
        consumer.commit({OWNER: MessageId(*OWNER, 7, 4, 2, after=True)}, timeout=20.0)
        assert server.count("ack") == 1
        consumer.commit({OWNER: place}, timeout=20.0)
        assert server.count("ack") == 1
        assert consumer.committed() == {OWNER: MessageId(*OWNER, 7, 4, 2, after=True)}
        with pytest.raises(OptionError, match="this consumer has not received it recently"):
            consumer.commit({OWNER: MessageId(*OWNER, 8, 0, 1)}, timeout=20.0)


def test_places_of_a_topic_that_keeps_nothing_are_behind_what_was_handed_out() -> None:
    with serving() as server, wireproto.connect(server.url) as client:
        with client.reader(GONE) as reader:
            batch = reader.poll(30.0)
            assert batch is not None
            owner, last = (GONE, -1), (len(batch) // 3) - 1
            assert dict(batch.next_positions) == {owner: MessageId(*owner, 7, last, after=True)}
            assert reader.positions[owner].after
        assert server.count("getLastMessageId") == 0, "there is no place to ask for"


@pytest.mark.parametrize("first", [[], [False]], ids=["nothing is said", "another one is fed at first"])
def test_a_member_that_is_handed_what_nobody_keeps_is_assigned_it(first: list[bool]) -> None:
    """Of such topics brokers do not say which member is fed, but for who is not at first."""

    def subscribe(link: Link, ask: Any) -> Any:
        said = [api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=fed) for fed in first]
        return [success(link, ask), *said]

    silent = serving(subscribe=subscribe, flow=lambda link, ask: None)
    with silent as server, wireproto.connect(server.url) as client, client.consumer(GONE, "group") as consumer:
        assert consumer.poll(0.0) is None
        assert consumer.assignment == frozenset()
        ident = server.commands("subscribe")[-1].consumer_id
        for number in range(2):
            server.links[-1].message(ident, 0, stored([b"%d" % number]))
        assert sorted(read(consumer, 2)) == [b"0", b"1"]
        assert consumer.assignment == {(GONE, -1)}


@pytest.mark.parametrize("start", [EARLIEST, LATEST])
def test_the_end_of_a_topic_that_keeps_nothing_is_now(start: Any) -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.reader(GONE, start=start, stop=LATEST) as reader:
        assert reader.done
        assert reader.poll(0.0) is None
        assert server.count("flow") == 0


def test_a_topic_without_partitions_is_partition_0_too() -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as out:
        assert [out.send(b"x", partition=number).position(20.0).partition for number in (0, -1)] == [-1, -1]
        for number in (1, -2):
            with pytest.raises(OptionError, match=f"partition {number}"):
                out.send(b"x", partition=number)
    two = {
        "partitionMetadata": lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
            request_id=ask.request_id, partitions=2, response="Success"
        )
    }
    with PulsarServer(**two) as server, wireproto.connect(server.url) as client, client.producer("t", batching=False) as out:
        assert [out.send(b"x", partition=number).position(20.0).partition for number in (0, 1)] == [0, 1]
        for number in (-1, 2):
            with pytest.raises(OptionError, match=f"partition {number}"):
                out.send(b"x", partition=number)
