"""Positions in Pulsar's transactions where another member of the group is made active in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, fed, standing, stored
from wireproto.errors import Aborted, Revoked
from wireproto.pulsar import PulsarApi_pb2 as api

OWNER = ("t", -1)
FIRST = [b"value 0", b"value 1", b"value 2"]


def metadata(link: Link, ask: Any) -> Any:
    """One transaction coordinator; the topic has no partitions."""
    count = int("transaction_coordinator" in ask.topic)
    return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=count, response="Success")


def send_first(link: Link, flow: Any) -> None:
    """Three entries to the first FLOW."""
    if link.server.count("flow") == 1:
        for number, value in enumerate(FIRST):
            link.message(flow.consumer_id, number, stored([value], number))


def end_transaction(link: Link, ask: Any) -> Any:
    """Success; a commit moves the mark-delete position to where the last ACK says."""
    if ask.txn_action == api.COMMIT:
        link.server.answers["getLastMessageId"] = standing(9, link.server.commands("ack")[-1].message_id[0].entryId)
    return api.CommandEndTxnResponse(request_id=ask.request_id, txnid_least_bits=ask.txnid_least_bits)


@pytest.fixture
def server() -> Iterator[PulsarServer]:
    with PulsarServer(
        partitionMetadata=metadata,
        subscribe=fed,
        flow=send_first,
        ack=acknowledged,
        getLastMessageId=standing(9),
        consumerStats=lambda link, ask: api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=0),
        tcClientConnectRequest=lambda link, ask: api.CommandTcClientConnectResponse(request_id=ask.request_id),
        newTxn=lambda link, ask: api.CommandNewTxnResponse(request_id=ask.request_id, txnid_least_bits=link.server.count("newTxn")),
        addSubscriptionToTxn=lambda link, ask: api.CommandAddSubscriptionToTxnResponse(request_id=ask.request_id),
        endTxn=end_transaction,
    ) as made:
        yield made


@pytest.fixture
def client(server: PulsarServer) -> Iterator[Any]:
    with wireproto.connect(server.url) as opened:
        yield opened


def active(server: PulsarServer, *changes: bool) -> None:
    """Say to the member whether it is active."""
    link, consumer = server.links[-1], server.commands("subscribe")[-1].consumer_id
    for change in changes:
        link.send(api.CommandActiveConsumerChange(consumer_id=consumer, is_active=change))


def send(server: PulsarServer, *entries: int) -> None:
    link, consumer = server.links[-1], server.commands("subscribe")[-1].consumer_id
    for number in entries:
        link.message(consumer, number, stored([b"value %d" % number], number))


def poll_all(log: Any, *entries: int) -> dict[Any, Any]:
    """Poll until these have come, and return the next positions."""
    found: list[bytes] = []
    places: dict[Any, Any] = {}
    while len(found) < len(entries):
        batch = log.poll(5.0)
        assert batch is not None, found
        found += batch.values()
        places.update(batch.next_positions)
    assert found == [b"value %d" % number for number in entries]
    return places


def take_in(log: Any) -> None:
    """Have a poll take in what the server has sent by now."""
    log.lag(timeout=20.0)
    assert log.poll(0.0) is None


@pytest.mark.parametrize("given", [True, False], ids=["given", "not given"])
@pytest.mark.parametrize("more", [False, True], ids=["nothing behind them", "records behind them"])
def test_a_partition_taken_behind_committed_positions_keeps_the_next_transaction_from_nothing(
    server: PulsarServer, client: Any, given: bool, more: bool
) -> None:
    """Another member is active between `commit_positions` and `commit`: what was committed is no loss, what poll returned behind it is."""
    with client.transactions("work") as work, client.consumer("t", "group") as log:
        turn = work.begin()
        places = poll_all(log, 0, 1, 2)
        turn.commit_positions(log, *([places] if given else []))
        if more:
            send(server, 3)
            poll_all(log, 3)
        active(server, False)
        take_in(log)
        turn.commit()
        active(server, True)
        first = 3 if more else 4
        send(server, first)
        turn = work.begin()
        places = poll_all(log, first)
        if more:
            with pytest.raises(Aborted) as caught:
                turn.commit_positions(log, *([places] if given else []))
            assert isinstance(caught.value.__cause__, Revoked)
            assert caught.value.__cause__.partitions == (OWNER,)
            turn.abort()
        else:
            turn.commit_positions(log, *([places] if given else []))
            turn.commit()
    acks = [ack.message_id[0].entryId for ack in server.commands("ack")]
    assert acks == ([2] if more else [2, 4])


@pytest.mark.parametrize("given", [True, False], ids=["given", "not given"])
def test_positions_of_a_partition_that_was_taken_and_given_back_are_refused_and_the_transaction_with_them(
    server: PulsarServer, client: Any, given: bool
) -> None:
    """What was read of it comes again, so what the transaction has made of it would be there twice; after `rewind` it is not."""
    with client.transactions("work") as work, client.consumer("t", "group") as log:
        turn = work.begin()
        poll_all(log, 0, 1, 2)
        active(server, False, True)
        take_in(log)
        send(server, 0, 1, 2)
        places = poll_all(log, 0, 1, 2)
        with pytest.raises(Aborted) as caught:
            turn.commit_positions(log, *([places] if given else []))
        assert isinstance(caught.value.__cause__, Revoked)
        assert caught.value.__cause__.partitions == (OWNER,)
        turn.abort()
        assert server.count("ack") == 0
        log.rewind()
        send(server, 0, 1, 2)
        with work.begin() as turn:
            places = poll_all(log, 0, 1, 2)
            turn.commit_positions(log, *([places] if given else []))
    assert [ack.message_id[0].entryId for ack in server.commands("ack")] == [2]


def test_positions_that_were_committed_since_keep_no_transaction_from_anything(server: PulsarServer, client: Any) -> None:
    """A commit of given positions, after the partition is this member's again, settles what was returned before."""
    with client.transactions("work") as work, client.consumer("t", "group") as log:
        poll_all(log, 0, 1, 2)
        active(server, False, True)
        take_in(log)
        send(server, 0, 1, 2)
        log.commit(poll_all(log, 0, 1, 2))
        server.answers["getLastMessageId"] = standing(9, 2)
        send(server, 3)
        with work.begin() as turn:
            turn.commit_positions(log, poll_all(log, 3))
    assert [ack.message_id[0].entryId for ack in server.commands("ack")] == [2, 3]
