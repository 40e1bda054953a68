"""An outcome that stays unknown names what made it so: which answer was lost, by which failure, of which peer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import wireproto
from patience import LONG
from pulsar_server import Link, PulsarServer
from wireproto import aio
from wireproto.devbroker import DevBroker
from wireproto.errors import Disconnected, OutcomeUnknown, TimedOut, TransportError, WireprotoError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import TransactionCoordinatorNotFound
from wireproto.pulsar.coordinators import TransactionId


def coordinator(*ends: Any) -> PulsarServer:
    """A broker with one transaction coordinator; each END_TXN gets the next of these answers, and after them TransactionNotFound."""
    left = list(ends)

    def ended(link: Link, ask: Any) -> Any:
        if left:
            return left.pop(0)(link, ask)
        return api.CommandEndTxnResponse(request_id=ask.request_id, txnid_least_bits=5, error=api.TransactionNotFound, message="forgotten")

    return PulsarServer(
        partitionMetadata=lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
            request_id=ask.request_id, partitions=1, response="Success"
        ),
        tcClientConnectRequest=lambda link, ask: api.CommandTcClientConnectResponse(request_id=ask.request_id),
        newTxn=lambda link, ask: api.CommandNewTxnResponse(request_id=ask.request_id, txnid_least_bits=5),
        endTxn=ended,
    )


def closes(link: Link, ask: Any) -> None:
    link.close()


def silent(link: Link, ask: Any) -> None:
    pass


def moving(link: Link, ask: Any) -> Any:
    return api.CommandEndTxnResponse(
        request_id=ask.request_id, txnid_least_bits=5, error=api.TransactionCoordinatorNotFound, message="moved"
    )


@pytest.mark.parametrize(
    ("ends", "kind", "text"),
    [
        pytest.param([closes], Disconnected, r"the answer to END_TXN, sent [0-9.]+ s ago, was lost: Disconnected: ", id="closed"),
        pytest.param([silent], Disconnected, r"was lost: Disconnected: the broker has said nothing for .* s \(", id="given up as silent"),
        pytest.param([closes, moving], Disconnected, r"was lost: Disconnected: ", id="refused behind a lost answer"),
        pytest.param([moving], TransactionCoordinatorNotFound, r"END_TXN, sent [0-9.]+ s ago, was refused: TransactionCoord", id="refused"),
    ],
)
@pytest.mark.parametrize("kept", ["sync", "asyncio"])
def test_pulsar_names_the_answer_that_a_commit_lost(ends: list[Any], kind: type[Exception], text: str, kept: str) -> None:
    with coordinator(*ends) as server:
        url = f"{server.url}?keep_alive=0.5"

        def check(told: OutcomeUnknown) -> None:
            assert isinstance(told.__cause__, kind)
            assert f"127.0.0.1:{server.port}" in str(told)
            assert "TransactionNotFound" in str(told), "what it was answered in the end"
            assert told.doubtful

        async def awaited() -> None:
            async with aio.connect(url) as client, await client.transactions("work") as work:
                turn = await work.begin()
                with pytest.raises(OutcomeUnknown, match=text) as told:
                    await turn.commit(timeout=LONG)
                check(told.value)

        if kept == "asyncio":
            asyncio.run(awaited())
            return
        with wireproto.connect(url) as client, client.transactions("work") as work:
            turn = work.begin()
            with pytest.raises(OutcomeUnknown, match=text) as told:
                turn.commit(timeout=LONG)
            check(told.value)


def test_pulsar_names_the_attempt_that_was_not_answered_in_operation_timeout() -> None:
    with (
        coordinator(silent) as server,
        wireproto.connect(server.url, operation_timeout=0.5) as client,
        client.transactions("work") as work,
    ):
        turn = work.begin()
        with pytest.raises(OutcomeUnknown, match=r"was lost: TimedOut: transaction coordinator 0 has not answered in time") as told:
            turn.commit(timeout=LONG)
    assert isinstance(told.value.__cause__, TimedOut)


def test_pulsars_admin_names_the_answer_that_was_lost() -> None:
    """Who ends a transaction for another client is told, too, that the first attempt may have ended it."""
    one, other = TransactionId(0, 5), TransactionId(0, 6)
    with coordinator(closes) as server, wireproto.connect(server.url) as client:
        (why,) = client.admin().end_transactions([one], commit=True).values()
        assert "it may have ended as was asked: the answer to END_TXN, sent " in str(why)
        assert isinstance(why.__cause__, Disconnected)
        (why,) = client.admin().end_transactions([other], commit=True).values()
        assert "may have ended" not in str(why)
        assert why.__cause__ is None


def test_a_pulsar_commit_that_goes_on_names_what_it_has_lost() -> None:
    """The caller's time is over while the coordinator is asked again."""
    with coordinator(closes, silent) as server, wireproto.connect(server.url) as client, client.transactions("work") as work:
        turn = work.begin()
        with pytest.raises(TimedOut, match=r"is being committed, .*in time; the answer to END_TXN, sent .* was lost: Disconnected: "):
            turn.commit(timeout=2.0)
        server.answers["endTxn"] = success_of_end
        for link in server.links:
            link.close()
        turn.commit(timeout=LONG)


def success_of_end(link: Link, ask: Any) -> Any:
    return api.CommandEndTxnResponse(request_id=ask.request_id, txnid_least_bits=5)


@pytest.mark.parametrize(
    ("protocol", "messages"),
    [
        ("kafka", ["Produce"]),
        ("pulsar", ["send"]),
        ("rocketmq", ["SendMessageV2", "SendBatchMessage"]),
    ],
)
@pytest.mark.parametrize("kept", ["sync", "asyncio"])
def test_a_record_whose_time_is_over_has_what_it_met_as_its_cause(protocol: str, messages: list[str], kept: str) -> None:
    """In the error of its receipt or future, and of the flush."""

    def check(raised: pytest.ExceptionInfo[WireprotoError]) -> None:
        if protocol == "rocketmq":  # it raises what it met itself
            assert isinstance(raised.value, Disconnected)
            return
        assert isinstance(raised.value, TimedOut)
        assert isinstance(raised.value.__cause__, Disconnected)
        assert str(raised.value.__cause__) in str(raised.value)

    async def awaited(url: str) -> None:
        async with aio.connect(url) as client:
            future = client.producer("t", delivery_timeout=1.0).send(b"v")
            for _ in range(2):
                with pytest.raises(TransportError) as late:
                    await future
                check(late)
            out = client.producer("t", delivery_timeout=1.0)
            out.send(b"v")
            with pytest.raises(TransportError) as late:
                await out.flush(LONG)
            check(late)

    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic("t", partitions=1)
        for message in messages:
            broker.faults(protocol).lose_reply(message, times=-1)
        if kept == "asyncio":
            asyncio.run(awaited(broker.url(protocol)))
        else:
            receipt = client.producer("t", delivery_timeout=1.0).send(b"v")
            for _ in range(2):
                with pytest.raises(TransportError) as late:
                    receipt.position(LONG)
                check(late)
            out = client.producer("t", delivery_timeout=1.0)
            out.send(b"v")
            with pytest.raises(TransportError) as late:
                out.flush(LONG)
            check(late)
        broker.faults(protocol).clear()
