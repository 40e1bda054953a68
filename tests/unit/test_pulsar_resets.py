"""A Pulsar subscription that is moved from outside, by an administrator or another member's seek: what lies behind the mark comes again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import wireproto
from pulsar_server import Link, PulsarServer, acknowledged, fed, standing, stored, subscribed
from wireproto.errors import Revoked
from wireproto.position import MessageId
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import acks
from wireproto.pulsar.acks import KEPT_IN, Log

Answer = Callable[[Link, Any], Any]


def entries(first: int, last: int) -> Answer:
    """These, each with its own number, to each consumer once it asks for any."""

    def flow(link: Link, ask: Any) -> None:
        if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
            for number in range(first, last + 1):
                link.message(ask.consumer_id, number, stored([b"%d" % number]))

    return flow


def numbers(numbers: Iterable[int]) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def serving(flow: Answer, mark: int = -1, **answers: Answer) -> PulsarServer:
    return PulsarServer(**({"subscribe": subscribed, "ack": acknowledged, "getLastMessageId": standing(100, mark), "flow": flow} | answers))


def values(consumer: Any, count: int, empty: int = 6) -> list[bytes]:
    """Return what polls return, up to `count` records, or until `empty` polls returned none; a poll may return one record."""
    found: list[bytes] = []
    while len(found) < count and empty:
        got = consumer.poll(1.0)
        if got is None:
            empty -= 1
        else:
            found += got.values()
    return found


def close_consumer(server: PulsarServer) -> None:
    ident = server.commands("subscribe")[-1].consumer_id
    server.links[-1].send(api.CommandCloseConsumer(consumer_id=ident, request_id=2**64 - 1))


def know_mark(consumer: Any) -> None:
    """What a member asks as it begins to be fed is answered: this was asked behind it."""
    consumer.committed(timeout=20.0)


def acked(server: PulsarServer) -> list[int]:
    return [ack.message_id[0].entryId for ack in server.commands("ack")]


@pytest.mark.parametrize(("mark", "again"), [(-1, [b"0", b"1", b"2"]), (2, [])])
def test_what_was_committed_comes_again_where_the_mark_was_moved_back(mark: int, again: list[bytes]) -> None:
    """The broker closes the consumer over a reset, as over an unload; where the mark stands tells them apart."""
    with serving(entries(0, 2)) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert values(consumer, 3) == numbers(range(3))
        consumer.commit(timeout=20.0)
        server.answers["getLastMessageId"] = standing(2, mark)
        close_consumer(server)
        assert values(consumer, 3, empty=6 if again else 2) == again
        if again:
            consumer.commit(timeout=20.0)
        assert acked(server) == [2] * (2 if again else 1)


@pytest.mark.parametrize("mode", ["failover", "exclusive"])
def test_a_reset_to_before_where_the_group_stood_when_this_member_came_is_seen(mode: str) -> None:
    """Another life of the group has committed that; this member has committed nothing, and its commit undoes no reset."""
    with (
        serving(entries(10, 12), mark=9) as server,
        wireproto.connect(server.url) as client,
        client.consumer("t", "group", mode=mode) as consumer,
    ):
        assert values(consumer, 3) == numbers(range(10, 13))
        know_mark(consumer)
        server.answers |= {"getLastMessageId": standing(12, -1), "flow": entries(0, 12)}
        close_consumer(server)
        assert values(consumer, 13) == numbers(range(13))
        with pytest.raises(Revoked):  # of what was handed out before, once
            consumer.commit(timeout=20.0)
        assert acked(server) == [12]


def test_a_reset_before_anything_was_handed_out_is_no_loss() -> None:
    asked = threading.Event()
    with (
        serving(lambda link, ask: asked.set(), mark=9) as server,
        wireproto.connect(server.url) as client,
        client.consumer("t", "group") as consumer,
    ):
        assert asked.wait(20.0)
        server.answers |= {"getLastMessageId": standing(12, -1), "flow": entries(0, 12)}
        close_consumer(server)
        assert values(consumer, 13) == numbers(range(13))
        consumer.commit(timeout=20.0)
        assert acked(server) == [12]


def test_another_member_s_seek_is_seen_before_and_after_a_commit() -> None:
    """That member may be an inactive one: the subscription's mark is all that tells."""
    with serving(entries(5, 9), mark=4) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert values(consumer, 5) == numbers(range(5, 10))
        know_mark(consumer)
        server.answers |= {"getLastMessageId": standing(9, 2), "flow": entries(3, 9)}
        close_consumer(server)
        assert values(consumer, 7) == numbers(range(3, 10))
        with pytest.raises(Revoked):
            consumer.commit(timeout=20.0)
        server.answers |= {"getLastMessageId": standing(9, 7), "flow": entries(8, 9)}
        close_consumer(server)
        assert values(consumer, 2) == numbers(range(8, 10))


def test_where_the_group_stands_is_asked_when_a_member_takes_over() -> None:
    """It joined at 9; another one committed up to 49 and left; a reset to 20 afterwards is to before what was done."""

    def joined(link: Link, ask: Any) -> None:
        link.send(api.CommandSuccess(request_id=ask.request_id))
        link.send(api.CommandActiveConsumerChange(consumer_id=ask.consumer_id, is_active=False))

    def feed_it(server: PulsarServer) -> None:
        ident = server.commands("subscribe")[-1].consumer_id
        server.links[-1].send(api.CommandActiveConsumerChange(consumer_id=ident, is_active=True))
        for number in range(50, 53):
            server.links[-1].message(ident, number, stored([b"%d" % number]))

    with (
        serving(lambda link, ask: None, mark=9, subscribe=joined) as server,
        wireproto.connect(server.url) as client,
        client.consumer("t", "group") as consumer,
    ):
        assert values(consumer, 1, empty=1) == []
        server.answers["getLastMessageId"] = standing(52, 49)
        feed_it(server)
        assert values(consumer, 3) == numbers(range(50, 53))
        know_mark(consumer)
        server.answers |= {"getLastMessageId": standing(52, 20), "flow": entries(21, 52), "subscribe": fed}
        close_consumer(server)
        assert values(consumer, 32) == numbers(range(21, 53))


@pytest.mark.parametrize("long_ago", [True, False])
def test_a_reset_while_the_connection_was_lost_is_seen_where_it_is_no_crash(long_ago: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that crashed gives back what it was told last, and nobody wants that again; what it has written down it keeps."""
    monkeypatch.setattr(acks, "KEPT_IN", 0.0 if long_ago else 1000.0)
    with serving(entries(0, 2)) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert values(consumer, 3) == numbers(range(3))
        consumer.commit(timeout=20.0)
        server.answers |= {"getLastMessageId": standing(3, -1), "flow": entries(0, 3)}
        server.links[-1].close()
        assert values(consumer, 4 if long_ago else 1) == numbers(range(0 if long_ago else 3, 4))


def test_a_commit_that_a_reset_overtakes_does_not_undo_it() -> None:
    with serving(entries(0, 2)) as server, wireproto.connect(server.url) as client, client.consumer("t", "group") as consumer:
        assert values(consumer, 3) == numbers(range(3))
        batch_end = dict(consumer._handed())
        consumer.commit(timeout=20.0)
        server.answers["getLastMessageId"] = standing(2, -1)
        server.answers["ack"] = lambda link, ask: close_consumer(server)  # no answer: the consumer is gone
        with pytest.raises(Revoked):
            consumer.commit(batch_end, timeout=20.0)
        server.answers["ack"] = acknowledged
        assert values(consumer, 3) == numbers(range(3))
        assert server.count("ack") == 2


# -- what a log knows of its mark -----------------------------------------------------------------------------------------


def at(entry: int, ledger: int = 7, index: int = -1) -> MessageId:
    return MessageId("t", 0, ledger, entry, index, after=True)


def test_a_mark_that_is_old_enough_is_known_however_often_it_moves() -> None:
    log = Log()
    log.set_mark_delete((7, -1), 0.0)
    for second in range(1000):
        log.committed_to(at(second), float(second))
    assert len(log.marks) < 12
    sure = 999 - KEPT_IN
    assert log.moved_back((7, int(sure - KEPT_IN / 8)), 999.0)
    assert not log.moved_back((7, int(sure)), 999.0)
    assert log.moved_back((7, 998), 999.0 + KEPT_IN), "the last one, too, in its time"


def test_a_crash_moves_the_mark_that_later_resets_are_measured_by() -> None:
    log = Log()
    log.committed_to(at(5), 0.0)
    log.committed_to(at(9), 1.0)
    log.set_mark_delete((7, 6), 2.0)
    assert not log.moved_back((7, 6), None)
    assert log.moved_back((7, 5), None)


def test_part_of_a_ledger_s_first_batch_leaves_the_mark_in_the_ledger_before() -> None:
    log = Log()
    log.passed(7, 3, 0)
    log.passed(8, 0, 10)
    log.committed_to(at(0, ledger=8, index=4), 0.0)
    assert not log.moved_back((7, 3), None)
    assert log.moved_back((7, 2), None)
