"""Where the answer to EndTxn is lost, and what the coordinator answers to its repetition does not say how the transaction ended, the error
names the answer that was lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from patience import LONG
from wireproto import aio
from wireproto.devbroker import DevBroker
from wireproto.devbroker.faults import Faults
from wireproto.errors import Disconnected, Fenced, OutcomeUnknown
from wireproto.kafka.codes import InvalidProducerIdMapping, ProducerFenced

PROTOCOL, CLIENT = "kafka", {"timeout": 10.0}
LOST = r"the answer to EndTxn, sent [0-9.]+ s ago, was lost: Disconnected: .*127\.0\.0\.1:"


@pytest.mark.parametrize("kept", ["sync", "asyncio"])
def test_a_commit_whose_name_was_forgotten_is_unknown_where_an_answer_was_lost(
    broker: DevBroker, client: Any, faults: Faults, topic: str, kept: str
) -> None:
    faults.lose_reply("EndTxn")
    faults.error("EndTxn", InvalidProducerIdMapping.code)

    async def awaited() -> None:
        async with aio.connect(broker.url("kafka")) as opened, await opened.transactions("lost-aio") as work:
            turn = await work.begin()
            await turn.send(b"v", topic=topic)
            with pytest.raises(OutcomeUnknown, match=LOST) as told:
                await turn.commit(timeout=LONG)
            assert isinstance(told.value.__cause__, Disconnected)

    if kept == "asyncio":
        asyncio.run(awaited())
        return
    with client.transactions("lost") as work:
        turn = work.begin()
        turn.send(b"v", topic=topic)
        with pytest.raises(OutcomeUnknown, match=LOST) as told:
            turn.commit(timeout=LONG)
        assert isinstance(told.value.__cause__, Disconnected)
        assert turn.state.name == "UNKNOWN"
        with work.begin() as turn:
            turn.send(b"next", topic=topic)


def test_a_commit_that_was_fenced_behind_a_lost_answer_names_it(client: Any, faults: Faults, topic: str) -> None:
    with client.transactions("fenced") as work:
        turn = work.begin()
        turn.send(b"v", topic=topic)
        work.topics.flush()
        faults.lose_reply("EndTxn")
        faults.error("EndTxn", ProducerFenced.code)
        with pytest.raises(Fenced, match=r"whether it was committed before is not known: " + LOST) as told:
            turn.commit(timeout=LONG)
        assert told.value.doubtful
        with pytest.raises(Fenced) as later:
            work.begin()
        assert "not known" not in str(later.value), "that is of the transaction before"


def test_a_commit_that_was_fenced_at_once_names_no_lost_answer(client: Any, faults: Faults, topic: str) -> None:
    with client.transactions("fenced at once") as work:
        turn = work.begin()
        turn.send(b"v", topic=topic)
        work.topics.flush()
        faults.error("EndTxn", ProducerFenced.code)
        with pytest.raises(Fenced) as told:
            turn.commit(timeout=LONG)
        assert "not known" not in str(told.value)


def test_the_admin_names_the_answer_that_was_lost(client: Any, faults: Faults, topic: str) -> None:
    with client.transactions("handed") as work:
        turn = work.begin()
        turn.send(b"v", topic=topic)
        handle = turn.hand_over()
    faults.lose_reply("EndTxn")
    faults.error("EndTxn", InvalidProducerIdMapping.code)
    (why,) = client.admin().end_transactions([handle], commit=True).values()
    assert "it may have ended as was asked: the answer to EndTxn, sent " in str(why)
    assert isinstance(why.__cause__, Disconnected)
