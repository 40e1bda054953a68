"""The time that Pulsar's calls are given: each passes on its own, to all that it asks; what it asks beside has a moment of its own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, stored, subscribed, success
from wireproto import EARLIEST, LATEST, MessageId
from wireproto.deadlines import deadline_after
from wireproto.errors import Closed, Forked, TimedOut, WireprotoError
from wireproto.net.retry import Policy
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import message_stream, subscriber
from wireproto.pulsar.codes import AuthorizationError
from wireproto.pulsar.consumer import PulsarConsumer
from wireproto.pulsar.reader import PulsarReader

PLACE = MessageId("t", -1, 7, 3)
Call = Callable[..., Any]


def metadata(partitions: int) -> Call:
    return lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
        request_id=ask.request_id, partitions=partitions, response="Success"
    )


def topics(link: Link, ask: Any) -> Any:
    return api.CommandGetTopicsOfNamespaceResponse(request_id=ask.request_id, topics=["persistent://public/default/t"])


def last(link: Link, ask: Any) -> Any:
    return api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=7, entryId=9),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
    )


def one(link: Link, ask: Any) -> None:
    """Entry 0, to each consumer."""
    if sum(flow.consumer_id == ask.consumer_id for flow in link.server.commands("flow")) == 1:
        link.message(ask.consumer_id, 0, stored([b"0"]))


def serving(**answers: Any) -> PulsarServer:
    usual = {"subscribe": subscribed, "ack": acknowledged, "getLastMessageId": last, "flow": one, "getTopicsOfNamespace": topics}
    return PulsarServer(**(usual | {"partitionMetadata": metadata(0)} | answers))


@contextmanager
def web() -> Iterator[str]:
    """An admin interface that has a topic with a subscription."""

    class Handler(BaseHTTPRequestHandler):
        def serve(self) -> None:
            stats = {"subscriptions": {"g": {}}, "cursors": {"g": {"markDeletePosition": "7:1"}}}
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            data = json.dumps(["g"] if self.path.endswith("subscriptions") else [] if self.path.endswith("partitioned") else stats).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            served.shutdown()


def given(monkeypatch: pytest.MonkeyPatch, module: str, calls: dict[str, Call]) -> dict[str, list[Any]]:
    """What each call, given 7 s, says to the clock; an error that comes of that clock's answer, a short time, is none here."""
    asked: dict[str, list[Any]] = {}

    def brief(timeout: Any) -> float:
        asked[name].append(timeout)
        return deadline_after(5.0)

    monkeypatch.setattr(f"wireproto.pulsar.{module}.deadline_after", brief)
    for name, call in calls.items():
        asked[name] = []
        with suppress(WireprotoError):
            call()
    monkeypatch.undo()
    return asked


def test_the_calls_of_an_admin_have_the_time_that_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with web() as url, serving() as server, wireproto.connect(server.url, admin=url) as client:
        admin = client.admin()
        calls: dict[str, Call] = {
            "list_topics": lambda: admin.list_topics(timeout=7.0),
            "describe_topic": lambda: admin.describe_topic("t", timeout=7.0),
            "create_topic": lambda: admin.create_topic("t", partitions=0, timeout=7.0),
            "delete_topic": lambda: admin.delete_topic("t", timeout=7.0),
            "positions": lambda: admin.positions("t", timeout=7.0),
            "list_groups": lambda: admin.list_groups(timeout=7.0),
            "describe_group": lambda: admin.describe_group("g", timeout=7.0),
            "describe_group of a topic": lambda: admin.describe_group("g", topic="t", timeout=7.0),
            "group_positions": lambda: admin.group_positions("g", "t", timeout=7.0),
            "create_group": lambda: admin.create_group("g", "t", PLACE, timeout=7.0),
            "deduplication": lambda: admin.deduplication("t", timeout=7.0),
            "set_deduplication": lambda: admin.set_deduplication("public/default", True, timeout=7.0),
            "ledgers": lambda: admin.ledgers("t", timeout=7.0),
        }
        twice = {"list_groups", "describe_group"}  # they list the topics first
        assert given(monkeypatch, "admin", calls) == {name: [7.0] * (1 + (name in twice)) for name in calls}


def test_the_calls_of_a_client_have_the_time_that_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, wireproto.connect(server.url) as client:
        command = api.CommandGetTopicsOfNamespace(namespace="a/b")
        assert given(monkeypatch, "client", {"request": lambda: client.request(command, timeout=7.0)}) == {"request": [7.0]}
        times: list[Any] = []
        deadline = client.deadline
        monkeypatch.setattr(client, "deadline", lambda timeout=None: times.append(timeout) or deadline(timeout))
        client.broker_info(7.0)
        client.producer("t", timeout=7.0).close()
        client.reader("t", timeout=7.0).close()
        client.consumer("t", "g", timeout=7.0, mode="exclusive").close()
        client.queue("t", "g", timeout=7.0).close()
        assert times == [7.0] * 5


def test_the_calls_of_who_reads_have_the_time_that_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"consumerStats": lambda link, ask: api.CommandConsumerStatsResponse(request_id=ask.request_id, msgBacklog=0)}
    with serving(**stats, seek=success) as server, wireproto.connect(server.url) as client:
        consumer, reader, queue = client.consumer("t", "g", mode="exclusive"), client.reader("t"), client.queue("t", "g")
        link, worker = server.links[-1], server.commands("subscribe")[-1].consumer_id
        calls: dict[str, Call] = {
            "poll": lambda: consumer.poll(7.0),
            "commit": lambda: consumer.commit(timeout=7.0),
            "committed": lambda: consumer.committed(timeout=7.0),
            "lag": lambda: consumer.lag(timeout=7.0),
            "seek": lambda: consumer.seek(EARLIEST, timeout=7.0),
        }
        assert given(monkeypatch, "consumer", calls) == {name: [7.0] for name in calls}
        assert given(monkeypatch, "reader", {"poll": lambda: reader.poll(7.0)}) == {"poll": [7.0]}
        held: list[Any] = []
        asked = given(monkeypatch, "queue", {"receive": lambda: held.append(queue.receive(7.0))})
        assert set(asked["receive"]) == {7.0}
        assert len(asked["receive"]) == 2  # it is looked at what lies there, first
        assert given(monkeypatch, "queue", {"release": lambda: held[0].release(7.0)}) == {"release": [7.0]}
        link.message(worker, 1, stored([b"1"], 1))
        held = [queue.receive(20.0)]
        assert given(monkeypatch, "queue", {"ack": lambda: held[0].ack(7.0)}) == {"ack": [7.0]}


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("ack", lambda consumer: consumer.commit(timeout=0.2)),
        ("getLastMessageId", lambda consumer: consumer.committed(timeout=0.2)),
        ("consumerStats", lambda consumer: consumer.lag(timeout=0.2)),
        ("seek", lambda consumer: consumer.seek(EARLIEST, timeout=0.2)),
    ],
)
def test_what_a_member_asks_and_is_not_answered_ends_in_time(question: str, call: Call) -> None:
    with serving(**{question: lambda link, ask: None}) as server, wireproto.connect(server.url) as client:
        consumer = client.consumer("t", "g", mode="exclusive")
        assert consumer.poll(20.0) is not None
        began = time.monotonic()
        with pytest.raises(TimedOut):
            call(consumer)
        assert 0.2 <= time.monotonic() - began < 15.0
        assert server.count(question) == (2 if question == "getLastMessageId" else 1)  # that one is asked as a member begins, too


# -- what is asked beside -------------------------------------------------------------------------------------------------


def test_a_commit_of_a_poll_s_own_has_a_moment_however_short_the_poll_is(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    own = PulsarConsumer._commit_by_itself

    def kept(self: PulsarConsumer, deadline: float) -> Any:
        left.append(deadline - time.monotonic())
        return own(self, deadline)

    monkeypatch.setattr(PulsarConsumer, "_commit_by_itself", kept)
    with serving() as server, wireproto.connect(server.url) as client:
        options: dict[str, Any] = {"mode": "exclusive", "auto_commit": True, "auto_commit_interval": 0.0}
        with client.consumer("t", "g", **options) as consumer:
            consumer.poll(20.0)
            consumer.poll(0.0)
        assert server.count("ack") == 1
    assert 15.0 < left[0] <= 20.0
    assert 0.3 < left[1] <= 1.0


def test_whether_the_end_has_gone_is_asked_for_a_moment_however_short_the_poll_is(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def kept(self: PulsarReader, deadline: float) -> Any:
        left.append(deadline - time.monotonic())
        yield from ()

    monkeypatch.setattr(PulsarReader, "_check_ends", kept)
    with serving() as server, wireproto.connect(server.url) as client, client.reader("t", stop=LATEST) as reader:
        assert reader.poll(20.0) is not None
        reader._checked -= 1.0  # nothing came for so long
        assert reader.poll(0.0) is None
    assert 0.3 < left[0] <= 0.8


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_refusal_is_borne_for_the_client_s_timeout(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a moment less, nor more; the role's own is for its opening."""
    refused = threading.Event()
    ahead = [0.0]

    def subscribe(link: Link, ask: Any) -> Any:
        if refused.is_set():
            return api.CommandError(request_id=ask.request_id, error="AuthorizationError", message="not yours")
        return subscribed(link, ask)

    monkeypatch.setattr(subscriber, "RETRY", Policy(first=0.02, factor=1.0, ceiling=0.02, jitter=0.0))
    with serving(subscribe=subscribe) as server, wireproto.connect(server.url, timeout=1000.0) as client:
        more = {"timeout": 20.0}
        made: Any = client.reader("t", **more) if role == "reader" else getattr(client, role)("t", "g", **more)
        poll = made.receive if role == "queue" else made.poll
        assert poll(20.0) is not None
        refused.set()
        monkeypatch.setattr(message_stream, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
        server.links[-1].close()

        for seconds in (0.0, 950.0):
            ahead[0] = seconds
            before = server.count("subscribe")
            until(lambda: poll(0.01) is None and server.count("subscribe") >= before + 4, "it is tried, and borne")  # noqa: B023
        ahead[0] = 1001.0
        with pytest.raises(AuthorizationError):
            until(lambda: poll(0.01) is not None, "it is told", 30.0)


def test_partitions_that_a_topic_got_are_those_beyond_what_is_known() -> None:
    """Of a topic that cannot be looked up now nothing is said, nor of one that has not grown."""
    counts = {"grown": 3, "same": 2, "less": 1}

    def answer(link: Link, ask: Any) -> Any:
        name = ask.topic.rpartition("/")[2]
        return (
            metadata(counts[name])(link, ask)
            if name in counts
            else api.CommandError(request_id=ask.request_id, error="MetadataError", message="none")
        )

    with serving(partitionMetadata=answer) as server, wireproto.connect(server.url) as client:
        asked = dict.fromkeys(["same", "unknown", "grown", "less"], 2)
        found = client.cluster.drive(client.cluster.lookup.growing(asked, deadline_after(20.0)), deadline_after(30.0))
        assert found == ([("grown", [(2, "persistent://public/default/grown-partition-2")])], True)
        assert server.count("partitionMetadata") == 4


@pytest.mark.parametrize("over", [Closed, Forked])
def test_looking_for_partitions_ends_with_whoever_looks(over: type[WireprotoError]) -> None:
    """In the midst of a look-up: what ends it is no failure of that one topic."""
    with serving(partitionMetadata=lambda link, ask: None) as server, wireproto.connect(server.url) as client:
        looking = client.cluster.lookup.growing({"t": 1, "u": 1}, deadline_after(60.0))
        next(looking)
        server.wait("partitionMetadata")
        with pytest.raises(over):
            looking.throw(over("it is over"))
        assert server.count("partitionMetadata") == 1
