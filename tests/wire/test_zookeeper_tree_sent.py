"""What the tree sends for each of its keywords, and what it makes of the answers; multis, chroots, deletions; on the embedded broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import BrokerError, Closed, ConcurrentUse, Malformed, UsageError, ValueUnsupported
from wireproto.position import LogOffset
from wireproto.zookeeper import messages as z
from wireproto.zookeeper import multi
from wireproto.zookeeper.codes import BadVersion, EventType, NodeExists, NoNode, NotEmpty, NoWatcher, WatcherType
from wireproto.zookeeper.multi import Check, Children, Create, Delete, Get, Set

PROTOCOL = "zookeeper"
_numbers = itertools.count()
MINE = (z.ACL(perms=5, id=z.Id(scheme="world", id="anyone")),)


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["zookeeper"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker, seen: Recording) -> Iterator[Any]:
    with wireproto.connect(broker.url("zookeeper"), timeout=10.0) as made:
        yield made


@pytest.fixture
def tree(client: Any) -> Any:
    return client.tree()


@pytest.mark.parametrize("how", ["create", "create2", "create_async", "multi"])
@pytest.mark.parametrize(
    ("kind", "operation", "flags"),
    [
        ({}, "create", 0),
        ({"ephemeral": True}, "create", 1),
        ({"sequence": True}, "create", 2),
        ({"ephemeral": True, "sequence": True}, "create", 3),
        ({"container": True}, "createContainer", 4),
        ({"ttl": 2.5}, "createTTL", 5),
        ({"ttl": 2.5, "sequence": True}, "createTTL", 6),
    ],
)
def test_the_kind_of_a_node(tree: Any, seen: Recording, how: str, kind: dict[str, Any], operation: str, flags: int) -> None:
    call: dict[str, Callable[..., Any]] = {
        "create": tree.create,
        "create2": lambda *a, **k: tree.create2(*a, **k)[0],
        "create_async": lambda *a, **k: tree.create_async(*a, **k).result(10.0),
        "multi": lambda path, data, **k: tree.multi([Create(path, data, **k)])[0],
    }
    path = call[how]("/n", b"data", acl=MINE, **kind)
    assert path == ("/n0000000000" if kind.get("sequence") else "/n")
    if how == "multi":
        [(code, sent)] = seen.requests("multi")[0].message.operations
        assert code == {"create": 1, "createContainer": 19, "createTTL": 21}[operation]
    else:
        name = "create2" if how == "create2" and operation == "create" else operation
        [sent] = [one.message for one in seen.requests(name)]
    assert (sent.path, sent.data, sent.flags, sent.acl) == ("/n", b"data", flags, MINE)
    if "ttl" in kind:
        assert sent.ttl == 2500
    got, stat = tree.get(path)
    assert got == b"data"
    assert bool(stat.ephemeral_owner) is bool(kind) or not (kind.get("ephemeral"))


def test_no_data_is_not_empty_data_and_open_to_anyone_unless_said(tree: Any, seen: Recording) -> None:
    for path, given in (("/a", ()), ("/b", (None,)), ("/c", (b"",))):
        tree.create(path, *given)
    assert [tree.get(path)[0] for path in ("/a", "/b", "/c")] == [b"", None, b""]
    assert all(one.message.acl == (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),) for one in seen.requests("create"))
    assert tree.create2("/d")[1].data_length == 0
    assert tree.create_async("/e").result(5.0) == "/e"


def test_parents_are_made_with_the_same_access_list_and_only_if_wanted(tree: Any, seen: Recording) -> None:
    with pytest.raises(NoNode):
        tree.create("/x/y/z", acl=MINE)
    assert len(seen.requests("create")) == 1
    all_rights = (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),)
    assert tree.create("/x/y/z", b"1", parents=True, acl=all_rights) == "/x/y/z"
    made = [(one.message.path, one.message.data) for one in seen.requests("create")]
    assert made[-3:] == [("/x", b""), ("/x/y", b""), ("/x/y/z", b"1")]
    assert [one.message.acl for one in seen.requests("create")[-3:]] == [all_rights] * 3
    seen.clear()
    assert tree.ensure("/x/y/z") is False
    assert not seen.requests("create"), "nobody needs the right to create where nothing is missing"
    assert tree.ensure("/x/w", acl=all_rights) is True
    assert [one.message.path for one in seen.requests("create")] == ["/x/w"]
    assert tree.ensure("/") is False


def test_versions_are_demanded_where_they_are_given(tree: Any, seen: Recording) -> None:
    tree.create("/v", b"0")
    for write in (tree.set, lambda *a, **k: tree.set_async(*a, **k).result(5.0)):
        stat = write("/v", b"1")
        with pytest.raises(BadVersion):
            write("/v", b"2", version=stat.version + 1)
        assert write("/v", b"3", version=stat.version).version == stat.version + 1
    assert [one.message.version for one in seen.requests("setData")][:2] == [-1, 2]
    with pytest.raises(BadVersion):
        tree.set_acl("/v", MINE, version=9)
    assert tree.set_acl("/v", (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),), version=0).aversion == 1
    assert tree.get_acl("/v")[1].aversion == 1
    for remove in (tree.delete, lambda *a, **k: tree.delete_async(*a, **k).result(5.0)):
        tree.ensure("/v")
        version = tree.exists("/v").version
        with pytest.raises(BadVersion):
            remove("/v", version=version + 1)
        remove("/v", version=version)
    assert tree.exists("/v") is None


def test_deleting_what_is_not_empty_must_be_asked_for(tree: Any, seen: Recording) -> None:
    for path in ("/d/a/x", "/d/a/y", "/d/b"):
        tree.create(path, parents=True)
    with pytest.raises(NotEmpty):
        tree.delete("/d")
    seen.clear()
    tree.delete("/d", recursive=True)
    order = [one.message.path for one in seen.requests("delete")]
    assert order[0] == "/d"
    assert order[-1] == "/d"
    assert sorted(order[1:-1]) == ["/d/a", "/d/a/x", "/d/a/y", "/d/b"]
    assert order.index("/d/a/x") < order.index("/d/a")
    with pytest.raises(NoNode):
        tree.delete("/d", recursive=True)


def test_a_recursive_deletion_whose_answer_is_lost_is_done(tree: Any, broker: DevBroker) -> None:
    tree.create("/d")
    broker.faults("zookeeper").lose_reply("delete")
    tree.delete("/d", recursive=True)
    assert tree.exists("/d") is None


def test_below_a_chroot_paths_are_the_callers(broker: DevBroker, seen: Recording) -> None:
    with wireproto.connect(broker.url("zookeeper", "app"), timeout=10.0) as client:
        tree = client.tree()
        assert tree.create("/n", b"1", parents=True) == "/n"
        assert tree.create2("/s", sequence=True)[0] == "/s0000000001"
        assert tree.create_async("/t").result(5.0) == "/t"
        assert tree.create("/e", ephemeral=True) == "/e"
        assert tree.ephemerals() == ["/e"]
        assert tree.ephemerals("/x") == []
        assert tree.count() == 4
        assert tree.sync("/n") == "/n"
        assert tree.sync() == "/"
        assert tree.multi([Create("/m"), Create("/k", stat=True), Set("/m", b"2"), Check("/m", 1), Delete("/m")])[0] == "/m"
        assert {one.message.path for one in seen.requests("create")} >= {"/app/n", "/app/e"}
        tree.config()
        assert seen.requests("getData")[-1].message.path == "/zookeeper/config", "the ensemble's own node, whatever the chroot"
        tree.catch_up("/n")
        with pytest.raises(NoNode):
            tree.catch_up("/none")


def test_a_multi_tells_each_result_or_the_one_that_failed(tree: Any) -> None:
    work = [Create("/m", b"0"), Create("/m/k", stat=True), Set("/m", b"1"), Check("/m", 1), Delete("/m/k"), Create("/m/c", container=True)]
    made = tree.multi(work)
    assert made[0] == "/m"
    assert made[1][0] == "/m/k"
    assert made[1][1].version == 0
    assert made[2].version == 1
    assert made[3:5] == [None, None]
    assert made[5] == "/m/c"
    with pytest.raises(BadVersion) as failed:
        tree.multi([Set("/m", b"2"), Check("/m", 9), Delete("/m/c")])
    assert failed.value.index == 1
    assert [type(one) for one in failed.value.results][1] is BadVersion
    assert failed.value.results[0] is None
    assert failed.value.results[2].code == -2
    assert failed.value.node == "/m"
    assert tree.get("/m")[0] == b"1"
    with pytest.raises(NodeExists) as first:
        tree.multi([Create("/m")])
    assert first.value.index == 0
    assert tree.multi([]) == []


def test_a_multi_of_reads_has_an_error_where_one_failed(tree: Any, seen: Recording) -> None:
    tree.create("/m/k", b"1", parents=True)
    found = tree.multi([Get("/m/k"), Get("/none"), Children("/m"), Children("/m/k")])
    assert found[0][0] == b"1"
    assert found[0][1].version == 0
    assert isinstance(found[1], BrokerError)
    assert found[1].node == "/none"
    assert found[2:] == [["k"], []]
    assert seen.requests("multiRead")
    assert tree.multi_async([Get("/m/k")]).result(5.0)[0][0] == b"1"
    with pytest.raises(ValueUnsupported, match="reads and writes cannot be in one multi"):
        tree.multi([Get("/m"), Delete("/m")])
    with pytest.raises(ValueUnsupported, match="str is no operation"):
        tree.multi(["x"])


END = z.MultiHeader(type=-1, done=True, err=-1).encode()
DELETED = z.MultiHeader(type=2, done=False, err=0).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (DELETED + DELETED + END, "more results than operations"),
        (END, "0 results for 1 operations"),
        (DELETED + END + b"x", "1 results for 1 operations"),
        (z.MultiHeader(type=99, done=False, err=0).encode() + END, "a result of operation 99"),
    ],
)
def test_an_answer_to_a_multi_that_cannot_be_is_malformed(tree: Any, body: bytes, text: str) -> None:
    asked = multi.request([Delete("/m")], tree._root)
    with pytest.raises(Malformed, match=text):
        asked.read(bytes(16) + body)
    assert asked.read(bytes(16) + DELETED + END) == [None]


def test_which_multis_may_be_sent_twice(tree: Any) -> None:
    assert multi.request([Get("/m")], tree._root).repeats
    assert multi.request([], tree._root).repeats
    assert not multi.request([Delete("/m")], tree._root).repeats
    assert multi.request([Delete(f"/{name}") for name in "abcd"], tree._root).path == "/a, /b, /c, …"
    assert multi.request([Delete(f"/{name}") for name in "abc"], tree._root).path == "/a, /b, /c"


# watches


def test_a_watch_that_is_taken_back_is_taken_from_the_server_when_it_was_the_last(tree: Any, seen: Recording) -> None:
    tree.create("/w")

    def first(event: Any) -> None:
        return

    def second(event: Any) -> None:
        return

    tree.add_watch("/w", first)
    tree.add_watch("/w", second, recursive=True)
    assert [one.message.mode for one in seen.requests("addWatch")] == [0, 1]
    assert tree.has_watch("/w")
    assert tree.has_watch("/w", WatcherType.ANY)
    assert not tree.has_watch("/w", WatcherType.DATA)
    assert seen.requests("checkWatches")[-1].message.type == int(WatcherType.DATA)
    tree.remove_watch("/w", first)
    assert [one.message.type for one in seen.requests("removeWatches")] == [WatcherType.PERSISTENT], "the other callback needs its own"
    assert tree.has_watch("/w", WatcherType.PERSISTENT_RECURSIVE)
    with pytest.raises(NoWatcher):
        tree.remove_watch("/w", first)
    tree.remove_watch("/w")
    assert [one.message.path for one in seen.requests("removeWatches")] == ["/w", "/w"]
    assert not tree.has_watch("/w")
    with pytest.raises(NoWatcher):
        tree.remove_watch("/w")


@pytest.mark.parametrize("form", ["waits", "async"])
def test_what_each_reading_call_watches(tree: Any, form: str) -> None:
    tree.create("/w")

    def call(name: str, path: str, watch: Any) -> None:
        if form == "waits":
            getattr(tree, name)(path, watch=watch)
        else:
            getattr(tree, f"{name}_async")(path, watch=watch).result(5.0)

    for name, path, change, kind in (
        ("get", "/w", lambda: tree.set("/w", b"1"), EventType.NODE_DATA_CHANGED),
        ("exists", "/new", lambda: tree.create("/new"), EventType.NODE_CREATED),
        ("children", "/w", lambda: tree.create("/w/k"), EventType.NODE_CHILDREN_CHANGED),
    ):
        watch = tree.watch()
        call(name, path, watch)
        assert watch.wait(0.0) is None
        change()
        event = watch.wait(10.0)
        assert (event.type, event.path) == (kind, path)


def test_an_empty_credential_is_refused_and_others_are_told(tree: Any, seen: Recording) -> None:
    with pytest.raises(ValueUnsupported, match="empty credential"):
        tree.add_auth("digest", "")
    tree.add_auth("digest", "ann:secret")
    tree.add_auth("digest", b"bob:secret")
    assert [(one.message.scheme, one.message.auth) for one in seen.requests("auth")] == [
        ("digest", b"ann:secret"),
        ("digest", b"bob:secret"),
    ]


# the queue's roles


@pytest.fixture
def queue(client: Any) -> str:
    client.admin().create_topic("jobs")
    with client.producer("jobs") as out:
        for number in range(4):
            out.send(b"%d" % number).position(10.0)
    return "jobs"


def test_a_queues_reader_reads_from_here_to_there(client: Any, queue: str) -> None:
    with client.reader(queue, start=LogOffset(queue, 0, 1), stop=LogOffset(queue, 0, 3)) as reader:
        assert reader.positions == {(queue, 0): LogOffset(queue, 0, 1)}
        found = [record for batch in reader for record in batch]
        assert [(one.value, one.position.offset) for one in found] == [(b"1", 1), (b"2", 2)]
        assert reader.done
        assert reader.poll(0.0) is None
        reader.seek(LogOffset(queue, 0, 2))
        assert [record.value for batch in reader for record in batch] == [b"2"]
        with pytest.raises(UsageError, match=r"seek names other\[0\], which is not among the partitions here"):
            reader.seek(LogOffset("other", 0, 1))
    with pytest.raises(Closed):
        reader.poll(0.0)


def test_a_reader_passes_over_what_workers_have_finished(client: Any, queue: str, tree: Any) -> None:
    with client.reader(queue, stop=wireproto.LATEST) as reader:
        tree.delete("/jobs/entries/entry-100-0000000001")
        assert [record.value for batch in reader for record in batch] == [b"0", b"2", b"3"]
        assert reader.positions == {(queue, 0): LogOffset(queue, 0, 4)}
    for name in tree.children("/jobs/entries")[0]:
        tree.delete(f"/jobs/entries/{name}")
    with client.reader(queue, stop=LogOffset(queue, 0, 4)) as reader:
        assert list(reader) == []
        assert reader.done


def test_a_worker_ends_each_message_once(client: Any, queue: str, tree: Any) -> None:
    with client.queue(queue, "night shift") as worker:
        first = worker.receive(10.0)
        claim = tree.get(f"/jobs/taken/{tree.children('/jobs/taken')[0][0]}")
        assert claim[0].startswith(b"night shift/")
        assert claim[1].ephemeral_owner == tree.session[0]
        first.ack()
        assert len(tree.children("/jobs/entries")[0]) == 3
        assert tree.children("/jobs/taken")[0] == []
        with pytest.raises(UsageError, match="acknowledged before"):
            first.ack()
        second = worker.receive(10.0)
        second.release()
        assert worker.receive(10.0).value in (b"1", b"2")
    assert tree.children("/jobs/taken")[0] == [], "what was in hand is given back"
    with pytest.raises(Closed):
        worker.receive(0.0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"key": b"k"}, "no key"),
        ({"headers": {"a": b"b"}}, "no headers"),
        ({"timestamp": 5}, "time of arrival"),
        ({"partition": 1}, "one partition, 0, not 1"),
    ],
)
def test_what_a_queues_message_cannot_have_is_refused(client: Any, queue: str, given: dict[str, Any], text: str) -> None:
    with client.producer(queue) as out:
        with pytest.raises(ValueUnsupported, match=text):
            out.send(b"x", **given)
        assert out.send(b"x", key=None, headers={}, timestamp=None, partition=0).position(10.0).offset == 4
    with pytest.raises(Closed):
        out.send(b"x")


@pytest.mark.parametrize("role", ["reader", "worker"])
def test_a_role_is_one_threads_at_a_time(client: Any, queue: str, role: str) -> None:
    opened = client.reader(queue) if role == "reader" else client.queue(queue, "g")
    with opened._only, pytest.raises(ConcurrentUse):
        opened.poll(0.0) if role == "reader" else opened.receive(0.0)
    assert (opened.poll(5.0) if role == "reader" else opened.receive(5.0)) is not None
    opened.close()
