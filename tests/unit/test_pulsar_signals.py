"""A signal handler that raises in a poll or receive: whatever it breaks into, nothing is lost, nothing comes twice, and permits go on."""

from __future__ import annotations

import itertools
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any

import pytest

import interrupting
import wireproto
from patience import LONG, soon, until
from pulsar_server import Link, PulsarServer, acknowledged, stored, subscribed
from wireproto.errors import TimedOut, UsageError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import consumer, queue, reader
from wireproto.pulsar.acks import Log

ROLES: dict[str, ModuleType] = {"reader": reader, "consumer": consumer, "queue": queue}
ENTRIES = [[b"0", b"1", b"2"], [b"3"], [b"4", b"5"]]
VALUES = [value for entry in ENTRIES for value in entry]


class Granting(PulsarServer):
    """Sends the entries when a consumer grants for the first time. `granted`: messages, by consumer."""

    def __init__(self, entries: list[list[bytes]] = ENTRIES) -> None:
        self.granted: dict[int, int] = {}
        self.entries_sent = entries
        super().__init__(
            connect=self._connect,
            subscribe=subscribed,
            flow=self._flow,
            getLastMessageId=self._last,
            ack=acknowledged,
            redeliverUnacknowledgedMessages=self._again,
        )

    def _connect(self, link: Link, ask: Any) -> Any:
        link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # many roles are opened one after the other
        return self._connected(link, ask)

    def _flow(self, link: Link, ask: Any) -> None:
        first = ask.consumer_id not in self.granted
        self.granted[ask.consumer_id] = self.granted.get(ask.consumer_id, 0) + ask.messagePermits
        for number, entry in enumerate(self.entries_sent if first else ()):
            link.message(ask.consumer_id, number, stored(entry, number))

    def _again(self, link: Link, ask: Any) -> None:
        number = ask.message_ids[0].entryId
        link.message(ask.consumer_id, number, stored(ENTRIES[number], number), redelivery_count=1)

    def _last(self, link: Link, ask: Any) -> Any:
        return api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id,
            last_message_id=api.MessageIdData(ledgerId=7, entryId=len(ENTRIES) - 1),
            consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
        )


def opened(client: Any, role: str) -> Any:
    return client.reader("t") if role == "reader" else getattr(client, role)("t", "group")


def one_more(made: Any, role: str) -> list[Any]:
    if role == "queue":
        delivery = made.receive(5.0)
        return [] if delivery is None else [delivery.value]
    batch = made.poll(5.0)
    return [] if batch is None else batch.values()


@pytest.mark.parametrize("role", ROLES)
def test_what_a_signal_breaks_into_while_it_is_decoded_comes_with_the_next_call(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, signals = ROLES[role].decode_pulsar, [KeyboardInterrupt]  # type: ignore[attr-defined]

    def broken_off(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if signals:
            raise signals.pop()
        return found

    monkeypatch.setattr(ROLES[role], "decode_pulsar", broken_off)
    with Granting() as server, wireproto.connect(server.url) as client:
        made = opened(client, role)
        with pytest.raises(KeyboardInterrupt):
            one_more(made, role)
        got: list[Any] = []
        while len(got) < len(VALUES):
            got += one_more(made, role)
        assert got == VALUES


class Signal:
    """Raises at the n-th place of a call where the interpreter looks for signals: behind a call of C, and where Python code begins.

    Attributes:
        came: whether there were so many.
    """

    def __init__(self, number: int) -> None:
        self.left, self.came = number, False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or code.co_name == "<genexpr>" or "/wireproto/pulsar/" not in code.co_filename:
            return
        self.left -= 1
        if not self.left:
            self.came = True
            sys.setprofile(None)
            raise KeyboardInterrupt(f"in {frame.f_code.co_name}, line {frame.f_lineno}")

    def within(self, call: Callable[[], list[Any]]) -> list[Any]:
        sys.setprofile(self)
        try:
            return call()
        except KeyboardInterrupt:
            return []
        finally:
            sys.setprofile(None)


@pytest.mark.parametrize("role", ROLES)
def test_a_signal_anywhere_in_a_call_loses_and_repeats_nothing(role: str) -> None:
    number, going = 0, True
    with Granting() as server, wireproto.connect(server.url) as client:
        while going:
            number += 1
            signal = Signal(number)
            with opened(client, role) as made:
                got = signal.within(lambda made=made: one_more(made, role))
                while len(got) < len(VALUES):
                    more = one_more(made, role)
                    assert more, f"it stands still after signal {number}"
                    got += more
                assert got == VALUES, f"after signal {number}"
                [part] = made._stream.parts
                if part.open:  # else the reader's partition was read to its end
                    expected = part.permits._granted + len(VALUES)
                    until(
                        lambda part=part, least=expected: server.granted[part.id] >= least, "permits are granted that the broker heard of"
                    )
            going = signal.came
    assert number > 30


# -- ends of a delivery ---------------------------------------------------------------------------------------------------


def ended(call: Callable[[], object]) -> bool:
    """As who was interrupted does it: once more. Whether it was done by then."""
    try:
        call()
    except UsageError:
        return True
    return False


def in_hand(made: Any, count: int) -> list[Any]:
    found = []
    while len(found) < count:
        delivery = made.receive(5.0)
        assert delivery is not None, [one.value for one in found]
        found.append(delivery)
    return found


@pytest.mark.parametrize("after", [None, 0.0])
@pytest.mark.parametrize("then", ["release", "ack"])
def test_a_message_whose_release_a_signal_breaks_into_comes_again_or_stays_in_hand(after: float | None, then: str) -> None:
    """With those behind it in its batch."""
    number, going = 0, True
    with Granting(ENTRIES[:1]) as server, wireproto.connect(server.url) as client:
        while going:
            number += 1
            signal = Signal(number)
            with client.queue("t", "group") as made:
                (first,) = in_hand(made, 1)
                signal.within(lambda first=first: first.release(5.0, after=after) or [])
                done = not ended(first.ack) if then == "ack" else ended(lambda first=first: first.release(5.0, after=after))
                left = ENTRIES[0][1:] if then == "ack" and done else ENTRIES[0]
                assert sorted(delivery.value for delivery in in_hand(made, len(left))) == left, f"after signal {number}"
            going = signal.came
    assert number > 5


@pytest.mark.parametrize("wait", [True, False])
def test_an_entry_is_acknowledged_whole_though_a_signal_breaks_into_an_ack_of_it(wait: bool) -> None:
    number, going = 0, True
    with Granting(ENTRIES[:1]) as server, wireproto.connect(server.url) as client:
        while going:
            number += 1
            signal = Signal(number)
            with client.queue("t", "group") as made:
                first, second, third = in_hand(made, 3)
                signal.within(lambda first=first: first.ack(5.0, wait=wait) or [])
                for delivery in (first, second, third):
                    ended(lambda delivery=delivery: delivery.ack(5.0, wait=wait))
                made.flush(5.0)
                assert list(server.commands("ack")[-1].message_id[0].ack_set) == [], f"after signal {number}"
                with pytest.raises(UsageError, match="before"):
                    first.release(5.0)
            going = signal.came
    assert number > 5


def test_an_ack_that_has_left_is_among_those_that_a_transaction_s_end_waits_for_wherever_a_signal_breaks_in() -> None:
    """It is not told to end before its broker has answered that."""
    with PulsarServer(subscribe=subscribed, ack=lambda link, ask: None) as server, wireproto.connect(server.url) as client:
        made = client.queue("t", "group")
        feed, (part,) = made._stream, made._stream.parts
        for number in itertools.count(1):
            asked: dict[object, Any] = {}
            command, before = api.CommandAck(ack_type=api.CommandAck.Individual), server.count("ack")
            broken = interrupting.Signal(number)
            with suppress(TimedOut):
                broken.within(lambda: client.cluster.tasks.drive(feed.ask_once(part, command, asked, 0.0), soon(LONG)))  # noqa: B023
            client.cluster.tasks.drive(feed.place(part, soon(LONG)), soon(LONG))  # an answer behind it: it has come, if it has left
            left = {ask.request_id for ask in server.commands("ack")[before:]}
            assert {call.token for call in asked.values()} == left, broken.where
            if not broken.came:
                break
        assert number > 10


def test_what_a_transaction_has_committed_is_taken_in_though_a_signal_breaks_into_that() -> None:
    """Else the next one would say it again, which its broker takes for a conflict."""
    with Granting(ENTRIES[:1]) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as made:
        batch = made.poll(5.0)
        assert batch is not None
        ((owner, position),) = batch.next_positions.items()
        for number in itertools.count(1):
            log = made._logs[owner] = Log(handed=position)
            made._stored.append((owner, log, position))
            broken = interrupting.Signal(number)
            broken.within(lambda: made.poll(0.0))
            made.poll(0.0)
            assert (log.committed, log.handed) == (position, None), broken.where
            if not broken.came:
                break
        assert number > 20
