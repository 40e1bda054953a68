"""A place to begin at whose ledger the broker has deleted: what was asked for is gone, and the broker begins behind it without a word."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, stored, subscribed, success
from wireproto import LATEST, MessageId
from wireproto.errors import DataLoss
from wireproto.pulsar import PulsarApi_pb2 as api

LEDGER, END = 9, 4
AT = MessageId("t", -1, 7, 3)
PLACES = {"at": AT, "behind": MessageId("t", -1, 7, 3, after=True), "within": MessageId("t", -1, 7, 3, 1, after=True)}


def standing(link: Link, ask: Any) -> Any:
    """The topic's first ledger is the 9th: who asks for a place before that stands before its first entry."""
    begin = next(one for one in link.server.commands("subscribe") if one.consumer_id == ask.consumer_id).start_message_id
    mark = begin.entryId - 1 if begin.ledgerId == LEDGER else -1
    return api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=LEDGER, entryId=END),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=LEDGER, entryId=mark & (2**64 - 1)),
    )


def flow(link: Link, ask: Any) -> None:
    if sum(one.consumer_id == ask.consumer_id for one in link.server.commands("flow")) == 1:
        begin = next(one for one in link.server.commands("subscribe") if one.consumer_id == ask.consumer_id).start_message_id
        first = begin.entryId + (begin.batch_index < 0) if begin.ledgerId == LEDGER else 0
        for number in range(first, END + 1):
            link.message(ask.consumer_id, number, stored([b"%d" % number]), ledger=LEDGER)


def serving() -> PulsarServer:
    return PulsarServer(subscribe=subscribed, ack=acknowledged, getLastMessageId=standing, seek=success, flow=flow)


def values(role: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        batch = role.poll(20.0)
        assert batch is not None, found
        found += batch.values()
    return found


@pytest.mark.parametrize("after", [False, True])
def test_a_reader_begins_at_the_end_where_its_place_lies_behind_that(after: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Where the broker begins with its first entry, and says nothing."""
    place = MessageId("t", -1, 1003, 0, after=after)
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", start=place) as reader:
        assert reader.positions["t", -1] == MessageId("t", -1, LEDGER, END, after=True)
        until(lambda: server.commands("flow"))
        begun = server.commands("subscribe")[-1]
        assert (begun.start_message_id.ledgerId, begun.start_message_id.entryId) == (LEDGER, END)
        server.links[-1].message(begun.consumer_id, END + 1, stored([b"new"]), ledger=LEDGER)
        assert values(reader, 1) == [b"new"]
    assert f"t[-1]: {place} is beyond the topic's end, {LEDGER}:{END}" in caplog.text


def gone(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING and "is deleted" in line.getMessage()]


@pytest.mark.parametrize("place", PLACES)
def test_a_reader_does_not_begin_behind_what_is_gone(place: str) -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", start=PLACES[place], stop=LATEST) as reader:
        for _ in range(2):
            with pytest.raises(DataLoss, match="ledger 7 is deleted") as caught:
                reader.poll(20.0)
            assert (caught.value.topic, caught.value.partition, caught.value.position) == ("t", -1, PLACES[place])
        assert server.count("flow") == 0
        reader.seek(MessageId("t", -1, LEDGER, 3))
        assert values(reader, 2) == [b"3", b"4"]
        assert reader.done


def test_of_a_range_without_anything_in_it_nothing_is_gone() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", start=AT, stop=AT) as reader:
        assert reader.poll(20.0) is None
        assert reader.done


@pytest.mark.parametrize(("reset", "read"), [("earliest", 5), ("nearest", 5), ("latest", 0)])
def test_a_reader_goes_on_where_it_is_set_to(reset: str, read: int, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server, wireproto.connect(server.url) as client:
        with client.reader("t", start=AT, reset=reset) as reader:
            values(reader, read)
            [place] = reader.positions.values()
            assert (place.ledger, place.entry, place.after) == (LEDGER, END, True)
            begin = server.commands("subscribe")[-1].start_message_id
            assert (begin.ledgerId, begin.entryId) == ((LEDGER, END) if reset == "latest" else (7, 3))
        assert len(gone(caplog)) == 1
        assert "t[-1]" in gone(caplog)[0]


def test_a_place_that_is_there_is_begun_at_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    place = MessageId("t", -1, LEDGER, 1)
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", start=place) as reader:
        assert values(reader, 4) == [b"1", b"2", b"3", b"4"]
    assert gone(caplog) == []


def test_a_compacted_topic_keeps_records_of_ledgers_that_are_deleted() -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", start=AT, read_compacted=True) as reader:
        assert len(values(reader, 5)) == 5


def test_a_reader_that_comes_back_tells_of_a_ledger_that_was_deleted_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """It may have read all of it, and reads on."""
    at = [7]

    def elsewhere(link: Link, ask: Any) -> Any:
        place = api.MessageIdData(ledgerId=at[0], entryId=2**64 - 1)
        return api.CommandGetLastMessageIdResponse(request_id=ask.request_id, last_message_id=place, consumer_mark_delete_position=place)

    def one(link: Link, ask: Any) -> None:
        if sum(each.consumer_id == ask.consumer_id for each in link.server.commands("flow")) == 1:
            link.message(ask.consumer_id, 0, stored([b"%d" % at[0]]), ledger=at[0])

    broker = PulsarServer(subscribe=subscribed, getLastMessageId=elsewhere, flow=one)
    with broker as server, wireproto.connect(server.url) as client, client.reader("t") as reader:
        assert values(reader, 1) == [b"7"]
        assert gone(caplog) == []
        at[0] = LEDGER
        server.links[-1].close()
        assert values(reader, 1) == [b"9"]
        until(lambda: gone(caplog))


def test_a_group_is_not_moved_behind_what_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server, wireproto.connect(server.url) as client, client.consumer("t", "g") as consumer:
        with pytest.raises(DataLoss, match="7:3:-1 is gone"):
            consumer.seek(AT, timeout=20.0)
        assert server.count("seek") == 0
        assert gone(caplog) == []
    with serving() as server, wireproto.connect(server.url) as client, client.consumer("t", "g", reset="earliest") as consumer:
        consumer.seek(AT, timeout=20.0)
        [seek] = server.commands("seek")
        assert seek.message_id.entryId == 2**64 - 1, "the topic's beginning"
        assert len(gone(caplog)) == 1


@contextmanager
def admin(groups: list[str], made: list[Any]) -> Iterator[str]:
    """URL of an admin interface that knows these groups; `made` gets the places at which others are made."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(200, json.dumps({"cursors": {group: {"markDeletePosition": "9:1"} for group in groups}}).encode())

        def do_PUT(self) -> None:
            if self.path.rpartition("/")[2] in groups:
                self.say(409, b'{"reason": "Subscription already exists"}')
                return
            made.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.say(204)

        def say(self, status: int, text: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def test_a_group_is_not_made_behind_what_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    made: list[Any] = []
    start = {("t", -1): AT}
    with serving() as server, admin(["old"], made) as http, wireproto.connect(server.url, admin=http) as client:
        with pytest.raises(DataLoss, match="7:3:-1 is gone"):
            client.consumer("t", "new", start=start)
        assert made == []
        with client.consumer("t", "old", start=start):
            assert made == [], "it has a place of its own"
        assert gone(caplog) == []
        with client.consumer("t", "new", start=start, reset="earliest"):
            [place] = made
            assert (place["ledgerId"], place["entryId"], place["isExcluded"]) == (LEDGER, 0, False)
        assert len(gone(caplog)) == 1
