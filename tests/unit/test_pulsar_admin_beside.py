"""What Pulsar's admin asks of many topics or partitions is asked beside each other, and an answer that fails hides no others."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import wireproto
from patience import LONG
from pulsar_server import Link, PulsarServer
from wireproto.errors import TimedOut
from wireproto.position import MessageId
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar import admin as administering
from wireproto.pulsar.codes import AdminRefused, ServiceNotReady, SubscriptionNotFound, TopicNotFound

PARTITIONS = 6
MOST = 3
STATS = {
    "subscriptions": {"g": {"type": "Shared", "msgBacklog": 2, "consumers": [{"consumerName": "c", "address": "a"}]}},
    "cursors": {"g": {"markDeletePosition": "7:1"}},
}


class Web:
    """An admin interface over topics of six partitions. `codes`: statuses by a part of the path; `silent`: parts whose paths are not
    answered. It holds what it is asked until there is as much as `together`."""

    def __init__(self) -> None:
        self.topics = ["t"]
        self.codes: dict[str, int] = {}
        self.silent: set[str] = set()
        self.together = 1
        self.inside = self.most = 0
        self.came = threading.Condition()
        self.over = threading.Event()
        self.url = ""

    def answer(self, path: str) -> tuple[int, Any]:
        if path.endswith("partitioned"):
            return 200, [f"persistent://public/default/{topic}" for topic in self.topics]
        with self.came:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.came.notify_all()
            self.came.wait_for(lambda: self.most >= self.together, LONG)
        if any(part in path for part in self.silent):
            self.over.wait(LONG)
        with self.came:
            self.inside -= 1
        code = next((code for part, code in self.codes.items() if part in path), 200)
        return code, ["g"] if code == 200 and path.endswith("subscriptions") else STATS if code == 200 else {"reason": "no"}


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, told = made.answer(self.path)
            data = json.dumps(told).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        served.daemon_threads = True
        threading.Thread(target=served.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{served.server_port}"
        yield made
        made.over.set()
        served.shutdown()


def parted(link: Link, ask: Any) -> Any:
    return api.CommandPartitionedTopicMetadataResponse(request_id=ask.request_id, partitions=PARTITIONS, response="Success")


def unlisted(link: Link, ask: Any) -> Any:
    return api.CommandGetTopicsOfNamespaceResponse(request_id=ask.request_id, topics=[])


@pytest.fixture
def server() -> Iterator[PulsarServer]:
    with PulsarServer(partitionMetadata=parted, getTopicsOfNamespace=unlisted) as made:
        yield made


@pytest.fixture
def admin(server: PulsarServer, web: Web, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(administering, "BESIDE", MOST, raising=False)
    with wireproto.connect(server.url, admin=web.url) as client:
        yield client.admin()


ASKED: dict[str, Callable[[Any], Any]] = {
    "positions": lambda admin: admin.group_positions("g", "t"),
    "group": lambda admin: admin.describe_group("g", topic="t"),
    "group of all": lambda admin: admin.describe_group("g"),
}


@pytest.mark.parametrize("question", ASKED)
def test_partitions_are_asked_beside_each_other_and_so_many_at_a_time(admin: Any, web: Web, question: str) -> None:
    web.together = MOST
    found = ASKED[question](admin)
    assert web.most == MOST
    if question == "positions":
        assert list(found) == [("t", number) for number in range(PARTITIONS)]
        assert set(found.values()) == {MessageId("t", number, 7, 1, after=True) for number in range(PARTITIONS)}
    else:
        assert (len(found.members), found.details["backlog"]) == (PARTITIONS, 2 * PARTITIONS)
        assert [one.partitions for one in found.members] == [(("t", number),) for number in range(PARTITIONS)]


def test_topics_are_asked_for_groups_beside_each_other(admin: Any, web: Web) -> None:
    web.topics = ["a", "b", "c", "d"]
    web.together = MOST
    assert admin.list_groups() == ["g"]
    assert web.most == MOST


@pytest.mark.parametrize("question", ["positions", "group"])
def test_a_partition_that_is_refused_is_named_and_the_others_are_known(admin: Any, web: Web, question: str) -> None:
    web.codes = {"partition-1": 500, "partition-4": 500}
    with pytest.raises(AdminRefused, match="no answer of 1 more") as failed:
        ASKED[question](admin)
    assert (failed.value.topic, failed.value.partition) == ("t", 1)
    assert list(failed.value.known or ()) == [("t", number) for number in (0, 2, 3, 5)]


def test_a_partition_that_is_silent_is_named_and_the_others_are_known(admin: Any, web: Web) -> None:
    web.silent = {"partition-1"}
    with pytest.raises(TimedOut) as failed:
        admin.group_positions("g", "t", timeout=1.5)
    assert (failed.value.topic, failed.value.partition) == ("t", 1)
    assert list(failed.value.known or ()) == [("t", number) for number in (0, 2, 3, 4, 5)]


def test_a_partition_without_the_subscription_is_named(admin: Any, web: Web) -> None:
    with pytest.raises(SubscriptionNotFound) as failed:
        admin.group_positions("nobody", "t")
    assert (failed.value.topic, failed.value.partition) == ("t", 0)


def test_groups_of_a_namespace_name_the_topic_that_is_refused_and_pass_over_one_that_is_gone(admin: Any, web: Web) -> None:
    web.topics = ["a", "b", "c"]
    web.codes = {"/b/": 404}
    assert admin.list_groups() == ["g"]
    web.codes = {"/b/": 500}
    with pytest.raises(AdminRefused) as failed:
        admin.list_groups()
    assert (failed.value.topic, failed.value.known) == ("b", {"a": ["g"], "c": ["g"]})
    web.codes = {"/t-partition-1/": 404}
    with pytest.raises(TopicNotFound):
        admin.describe_group("g", topic="t")


def test_partitions_are_looked_up_beside_each_other(admin: Any, server: PulsarServer) -> None:
    """The look-ups of `describe_topic`: one that fails is named, and the others are known."""
    here, waiting = server.answers["lookupTopic"], []

    def together(link: Link, ask: Any) -> Any:
        waiting.append(ask)
        return [here(link, one) for one in waiting] if len(waiting) == MOST else None if len(waiting) < MOST else here(link, ask)

    server.answers["lookupTopic"] = together
    assert [one.partition for one in admin.describe_topic("t", timeout=20.0).partitions] == list(range(PARTITIONS))

    def failing(link: Link, ask: Any) -> Any:
        if not ask.topic.endswith("-1"):
            return here(link, ask)
        return api.CommandLookupTopicResponse(request_id=ask.request_id, response="Failed", error="ServiceNotReady", message="not now")

    server.answers["lookupTopic"] = failing
    with pytest.raises(ServiceNotReady) as failed:
        admin.describe_topic("t", timeout=1.0)
    assert (failed.value.topic, failed.value.partition) == ("t", 1)
    assert list(failed.value.known or ()) == [("t", number) for number in (0, 2, 3, 4, 5)]
