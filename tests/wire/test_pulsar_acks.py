"""A Pulsar worker's acks: they leave in groups, none is forgotten, and one that is refused is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import wireproto
from patience import LONG, until
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto import aio
from wireproto.errors import OptionError, TimedOut, UsageError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import PulsarError

LATER = 600.0
"""Seconds that no test takes: a group is not sent for its time."""


class PollInProgress(PulsarServer):
    """Hands out the entries that no ACK has named whole at each consumer's first FLOW, and at each redelivery what that asks for.

    Attributes:
        gone: entries that were acknowledged whole. left: of others, the set of those messages that are still wanted.
        silent: whether ACKs are seen, but neither kept nor answered.
    """

    def __init__(self, entries: list[list[bytes]]) -> None:
        self.kept = entries
        self.gone: set[int] = set()
        self.left: dict[int, list[int]] = {}
        self.silent = False
        self._fed: set[int] = set()
        super().__init__(subscribe=success, flow=self._flow, ack=self._ack, redeliverUnacknowledgedMessages=self._again)

    def _flow(self, link: Link, ask: Any) -> None:
        if ask.consumer_id not in self._fed:
            self._fed.add(ask.consumer_id)
            for number in sorted(set(range(len(self.kept))) - self.gone):
                link.message(ask.consumer_id, number, stored(self.kept[number], number))

    def _ack(self, link: Link, ask: Any) -> Any:
        if self.silent:
            return None
        self.gone |= {place.entryId for place in ask.message_id if not place.ack_set}
        self.left |= {place.entryId: list(place.ack_set) for place in ask.message_id if place.ack_set}
        return acknowledged(link, ask)

    def _again(self, link: Link, ask: Any) -> None:
        for place in ask.message_ids:
            number = place.entryId
            link.message(ask.consumer_id, number, stored(self.kept[number]), redelivery_count=1, ack_set=self.left.get(number, []))

    def said(self) -> list[list[tuple[int, list[int]]]]:
        """What each ACK named: entries, and of a batch the set of those that are still wanted."""
        return [sorted((place.entryId, list(place.ack_set)) for place in ack.message_id) for ack in self.commands("ack")]

    def order(self, *names: str) -> list[str | None]:
        return [name for name, _ in self.seen if name in names]


def singles(count: int) -> list[list[bytes]]:
    return [[b"%d" % number] for number in range(count)]


def take(queue: Any, count: int) -> list[Any]:
    found = []
    while len(found) < count:
        delivery = queue.receive(LONG)
        assert delivery is not None, [one.value for one in found]
        found.append(delivery)
    return found


@pytest.fixture
def seven() -> Iterator[PollInProgress]:
    with PollInProgress(singles(7)) as server:
        yield server


def test_acks_of_many_messages_leave_as_one_command() -> None:
    with PollInProgress([*singles(300), [b"a", b"b", b"c"]]) as server, wireproto.connect(server.url, ack_group_time=LATER) as client:
        with client.queue("t", "group") as queue:
            for delivery in take(queue, 302):
                delivery.ack()
            assert server.count("ack") == 0
            queue.flush()
            [said] = server.said()
            assert said == [*((number, []) for number in range(300)), (300, [0b100])]
            (last,) = take(queue, 1)
            last.ack()
            queue.flush()
            assert server.said()[1:] == [[(300, [])]], "of what was answered nothing is said again"
            assert not queue._hands[-1].unconfirmed
        assert server.count("ack") == 2


def test_a_group_of_a_thousand_entries_does_not_wait_for_its_time() -> None:
    with PollInProgress(singles(1000)) as server, wireproto.connect(server.url) as client:
        queue = client.queue("t", "group", receive_messages=2000, ack_group_time=LATER)
        for delivery in take(queue, 1000):
            assert server.count("ack") == 0
            delivery.ack()
        server.wait("ack")
        assert len(server.said()[0]) == 1000


def test_an_ack_leaves_in_its_time_while_the_worker_is_busy_elsewhere(seven: PollInProgress) -> None:
    with wireproto.connect(seven.url) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 7):
            delivery.ack()
        until(lambda: seven.gone == set(range(7)), "all acks come, and nobody calls")


def test_an_ack_that_is_waited_for_and_one_without_a_group_are_answered_when_they_return(seven: PollInProgress) -> None:
    with wireproto.connect(seven.url, ack_group_time=LATER) as client:
        with client.queue("t", "group") as queue:
            first, second = take(queue, 2)
            first.ack(wait=True)
            assert seven.gone == {0}
            second.ack()
        assert seven.gone == {0, 1}
        with client.queue("t", "group", ack_group_time=0) as queue:
            (third,) = take(queue, 1)
            third.ack()
            assert seven.gone == {0, 1, 2}
        with pytest.raises(OptionError, match="ack_group_time"):
            client.queue("t", "group", ack_group_time=-1)


def test_what_is_acked_is_ended(seven: PollInProgress) -> None:
    with wireproto.connect(seven.url, ack_group_time=LATER) as client, client.queue("t", "group") as queue:
        first, second = take(queue, 2)
        first.ack()
        for call in (first.ack, first.release, lambda: first.ack(wait=True), lambda: first.release(after=1.0)):
            with pytest.raises(UsageError, match="acknowledged before"):
                call()  # type: ignore[operator]
        second.ack()
        queue.flush()
        assert seven.said() == [[(0, []), (1, [])]]
        assert seven.count("redeliverUnacknowledgedMessages") == 0


def lose(server: PollInProgress) -> None:
    """The connection of the worker breaks."""
    server.links[-1].close()


def unload(server: PollInProgress) -> None:
    """The broker closes the worker's consumer."""
    ident = server.commands("subscribe")[-1].consumer_id
    server.links[-1].send(api.CommandCloseConsumer(consumer_id=ident, request_id=2**64 - 1))


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("breaks", [lose, unload])
def test_what_was_acked_and_not_answered_before_its_consumer_was_lost_is_acked_again_alone(
    breaks: Callable[[PollInProgress], None], sent: bool
) -> None:
    """Whether the ACK had not left yet, or was not answered. Of a batch one message was acked, and another one is in hand."""
    with PollInProgress([[b"a", b"b", b"c"], *singles(5)]) as server, wireproto.connect(server.url, ack_group_time=LATER) as client:
        with client.queue("t", "group") as queue:
            held = take(queue, 8)
            server.silent = True
            for delivery in (held[0], held[3], held[4]):
                delivery.ack()
            if sent:
                with pytest.raises(TimedOut, match=r"7:0:0, 7:1:-1, 7:2:-1"):
                    queue.flush(0.2)
            server.silent = False
            server.kept.append([b"new"])
            before = len(server.seen)
            breaks(server)
            (new,) = take(queue, 1)
            assert new.value == b"new"
            assert server.count("subscribe") == 2
            consumer = server.commands("subscribe")[-1].consumer_id
            names = [name for name, one in server.seen[before:] if name in ("ack", "flow") and one.consumer_id == consumer]
            assert names[0] == "ack", "it is said before anything is granted to the new consumer"
            again = next(command for name, command in server.seen[before:] if name == "ack")
            assert sorted((one.entryId, list(one.ack_set)) for one in again.message_id) == [(0, [0b110]), (1, []), (2, [])]
            assert again.consumer_id == consumer
            for delivery in held[1:3]:
                delivery.ack()
            queue.flush()
        assert server.gone == {0, 1, 2}


def test_what_comes_again_before_its_ack_has_left_is_not_handed_out_twice(seven: PollInProgress) -> None:
    """Somebody asked the broker for it while the group waited."""
    with wireproto.connect(seven.url, ack_group_time=LATER) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 6):
            delivery.ack()
        consumer = seven.commands("subscribe")[-1].consumer_id
        for number in range(6):
            seven.links[-1].message(consumer, number, stored([b"%d" % number]), redelivery_count=1)
        seven.links[-1].message(consumer, 9, stored([b"end"]))
        assert [delivery.value for delivery in take(queue, 2)] == [b"6", b"end"]
        queue.flush()
        assert seven.gone == set(range(6))


def refused(error: Any, times: int, server: PollInProgress) -> None:
    """The broker refuses so many ACKs."""

    def ack(link: Link, ask: Any) -> Any:
        if server.count("ack") > times:
            return server._ack(link, ask)
        return api.CommandAckResponse(consumer_id=ask.consumer_id, request_id=ask.request_id, error=error, message="not now")

    server.answers["ack"] = ack


@pytest.mark.parametrize("call", ["receive", "flush", "close"])
def test_an_ack_that_the_broker_refuses_is_raised_once_and_told(call: str, seven: PollInProgress, caplog: pytest.LogCaptureFixture) -> None:
    refused(api.NotAllowedError, 1, seven)
    with wireproto.connect(seven.url, ack_group_time=0.05) as client:
        queue = client.queue("t", "group")
        for delivery in take(queue, 7)[:2]:
            delivery.ack()
        if call == "receive":
            found: list[Any] = []

            def until_it_raises() -> None:
                while True:
                    found.append(queue.receive(LONG))

            with pytest.raises(PulsarError, match=r"7:0:-1, 7:1:-1") as told:
                until_it_raises()
            again = found + take(queue, 2 - len(found))
            assert [(delivery.value, delivery.attempt) for delivery in again] == [(b"0", 2), (b"1", 2)], "they come again"
        else:
            with pytest.raises(PulsarError, match=r"7:0:-1, 7:1:-1") as told:
                getattr(queue, call)(LONG)
        assert (told.value.topic, told.value.peer is not None) == ("t", True)
        queue.close()
    assert any("7:0:-1, 7:1:-1" in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


def test_an_ack_that_is_refused_for_a_passing_reason_is_sent_again(seven: PollInProgress) -> None:
    refused(api.ServiceNotReady, 2, seven)
    with wireproto.connect(seven.url, ack_group_time=0.05) as client, client.queue("t", "group") as queue:
        for delivery in take(queue, 7)[:2]:
            delivery.ack()
        queue.flush()
        assert seven.gone == {0, 1}
        assert seven.said() == [[(0, []), (1, [])]] * 3


def test_a_release_comes_behind_the_acks_of_what_else_its_entry_holds() -> None:
    """Else another worker would be handed what is done."""
    with PollInProgress([[b"a", b"b", b"c"]]) as server, wireproto.connect(server.url, ack_group_time=LATER) as client:
        with client.queue("t", "group") as queue:
            first, second = take(queue, 2)
            first.ack()
            second.release()
            again = take(queue, 2)
            assert sorted(delivery.value for delivery in again) == [b"b", b"c"]
            assert server.order("ack", "redeliverUnacknowledgedMessages") == ["ack", "redeliverUnacknowledgedMessages"]
            for delivery in again:
                delivery.ack()
        assert server.gone == {0}


def test_a_close_sends_all_and_waits_for_the_answers(seven: PollInProgress) -> None:
    go = threading.Event()

    def ack(link: Link, ask: Any) -> Any:
        assert go.wait(LONG)
        return seven._ack(link, ask)

    seven.answers["ack"] = ack
    with wireproto.connect(seven.url, ack_group_time=LATER) as client:
        queue = client.queue("t", "group")
        for delivery in take(queue, 7):
            delivery.ack()
        closing = threading.Thread(target=queue.close)
        closing.start()
        seven.wait("ack")
        assert closing.is_alive()
        go.set()
        closing.join(LONG)
        assert not closing.is_alive()
        assert seven.gone == set(range(7))
        assert seven.order("ack", "close_consumer") == ["ack", "close_consumer"]


def test_a_flush_and_a_close_keep_their_time_and_name_what_may_come_again(seven: PollInProgress) -> None:
    seven.silent = True
    with wireproto.connect(seven.url, ack_group_time=LATER) as client:
        queue = client.queue("t", "group")
        for delivery in take(queue, 7):
            delivery.ack()
        for call in (queue.flush, queue.close):
            with pytest.raises(TimedOut, match=r"7:0:-1, .*7:6:-1"):
                call(0.2)
        queue.close()
        seven.wait("close_consumer")
        with suppress(TimedOut), client.queue("t", "group") as queue:
            assert [delivery.value for delivery in take(queue, 7)] == [b"%d" % number for number in range(7)]


def test_a_close_while_another_thread_receives_sends_all(seven: PollInProgress) -> None:
    with wireproto.connect(seven.url, ack_group_time=LATER) as client:
        queue = client.queue("t", "group")
        for delivery in take(queue, 7):
            delivery.ack()
        ended = threading.Event()

        def receive() -> None:
            with suppress(wireproto.errors.Closed):
                queue.receive(LONG)
            ended.set()

        thread = threading.Thread(target=receive)
        thread.start()
        until(lambda: not queue._nobody_inside(), "it is inside")
        queue.close(LONG)
        assert ended.wait(LONG)
        assert seven.gone == set(range(7))


def test_asyncio_has_the_same_groups() -> None:
    async def work(server: PollInProgress) -> None:
        async with aio.connect(server.url, ack_group_time=LATER) as client:
            async with client.queue("t", "group") as queue:
                held = [await queue.receive(LONG) for _ in range(4)]
                for delivery in held[:2]:
                    await delivery.ack()
                assert server.count("ack") == 0
                await queue.flush()
                assert server.said() == [[(0, []), (1, [])]]
                await held[2].ack(wait=True)
                assert server.gone == {0, 1, 2}
                server.silent = True
                await held[3].ack()
                with pytest.raises(TimedOut, match="7:3:-1"):
                    await queue.flush(0.2)
                server.silent = False
                lose(server)
                fifth = await queue.receive(LONG)
                assert fifth.value == b"4"
                await fifth.ack()
            assert server.gone == {0, 1, 2, 3, 4}

    with PollInProgress(singles(7)) as server:
        asyncio.run(asyncio.wait_for(work(server), LONG))


def test_a_close_within_a_receive_that_a_signal_handler_broke_into_sends_all(seven: PollInProgress) -> None:
    """Nobody else takes in the answers then, and the close does not wait for its whole time."""
    with wireproto.connect(seven.url, ack_group_time=LATER) as client:
        queue = client.queue("t", "group")
        for delivery in take(queue, 7):
            delivery.ack()
        with queue._only:
            began = time.monotonic()
            queue.close(LONG)
            assert time.monotonic() - began < LONG / 2
        assert seven.gone == set(range(7))
