"""Every operation of ZooKeeper 3.9.5, live: as a method of the tree, and by `client.request` with its record."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers import ZooKeeper
from brokers.zookeeper import SASL_USER, SUPER
from wireproto.errors import UsageError
from wireproto.zookeeper import acl as access
from wireproto.zookeeper import messages as m
from wireproto.zookeeper.codes import (
    OPERATIONS,
    AddWatchMode,
    BadVersion,
    CreateMode,
    EventType,
    NoNode,
    NoWatcher,
    Unimplemented,
    WatcherType,
)
from wireproto.zookeeper.lists import MultiRequest, MultiResponse
from wireproto.zookeeper.multi import Check, Children, Create, Delete, Get, Set

SECONDS = 20.0
ONE = pytest.mark.parametrize("broker", ["zookeeper-3.9.5"], indirect=True)
SASL = pytest.mark.parametrize("broker", ["zookeeper-3.9.5-sasl"], indirect=True)
THREE = pytest.mark.parametrize("broker", ["zookeeper-3.9.5-ensemble"], indirect=True)


@pytest.fixture
def client(broker: ZooKeeper) -> Iterator[Any]:
    with wireproto.connect(broker.url) as made:
        yield made


@pytest.fixture
def node(client: Any) -> str:
    path: str = client.tree().create(f"/o-{time.monotonic_ns()}", b"0")
    return path


@ONE
def test_every_operation_by_its_record(client: Any, node: str, oracle: Callable[..., None]) -> None:
    done: dict[str, Any] = {}

    def ask(message: Any = None, operation: str | None = None) -> Any:
        answer = client.request(message, operation=operation, timeout=SECONDS)
        name = operation or next(name for name, facts in OPERATIONS.items() if facts.request == type(message).__name__)
        done[name] = answer
        wanted = OPERATIONS[name].reply
        assert type(answer).__name__ == (wanted or ("MultiResponse" if name.startswith("multi") else "NoneType")), name
        return answer

    tree = client.tree()
    open_acl = access.OPEN
    persistent, ttl = int(CreateMode.PERSISTENT), int(CreateMode.PERSISTENT_WITH_TTL)
    assert ask(m.CreateRequest(path=f"{node}/a", data=None, acl=open_acl, flags=persistent)).path == f"{node}/a"
    assert ask(m.GetDataRequest(path=f"{node}/a", watch=False)).data is None
    made = ask(m.CreateRequest(path=f"{node}/e", data=b"", acl=open_acl, flags=int(CreateMode.EPHEMERAL)), "create2")
    assert made.stat.ephemeral_owner == tree.session[0]
    contained = ask(m.CreateRequest(path=f"{node}/c", data=b"", acl=open_acl, flags=int(CreateMode.CONTAINER)), "createContainer")
    assert contained.path == f"{node}/c"
    assert ask(m.CreateTTLRequest(path=f"{node}/t", data=b"t", acl=open_acl, flags=ttl, ttl=60_000)).stat.data_length == 1
    assert ask(m.ExistsRequest(path=node, watch=False)).stat.num_children == 4
    assert ask(m.SetDataRequest(path=node, data=b"1", version=0)).stat.version == 1
    assert ask(m.GetDataRequest(path=node, watch=False)).data == b"1"
    assert ask(m.GetACLRequest(path=node)).acl == tuple(open_acl)
    assert ask(m.SetACLRequest(path=node, acl=open_acl, version=0)).stat.aversion == 1
    assert sorted(ask(m.GetChildrenRequest(path=node, watch=False)).children) == ["a", "c", "e", "t"]
    assert sorted(ask(m.GetChildren2Request(path=node, watch=False)).children) == ["a", "c", "e", "t"]
    assert ask(m.SyncRequest(path=node)).path == node
    assert ask(m.GetEphemeralsRequest(prefix_path=node)).ephemerals == (f"{node}/e",)
    assert ask(m.GetAllChildrenNumberRequest(path=node)).total_number == 4
    assert ask(operation="whoAmI").client_info[0].auth_scheme == "ip"
    ask(operation="ping")
    ask(m.AuthPacket(type=0, scheme="digest", auth=b"user:word"))
    assert {info.auth_scheme for info in ask(operation="whoAmI").client_info} == {"ip", "digest"}
    # watches: set, asked for, armed again, taken back
    assert ask(m.AddWatchRequest(path=node, mode=int(AddWatchMode.PERSISTENT_RECURSIVE))).err == 0
    ask(m.CheckWatchesRequest(path=node, type=int(WatcherType.PERSISTENT_RECURSIVE)))
    ask(m.RemoveWatchesRequest(path=node, type=int(WatcherType.PERSISTENT_RECURSIVE)))
    with pytest.raises(NoWatcher):
        client.request(m.CheckWatchesRequest(path=node, type=int(WatcherType.ANY)))
    nothing: dict[str, Any] = {"relative_zxid": tree.zxid, "exist_watches": (), "child_watches": ()}
    ask(m.SetWatches(data_watches=(node,), **nothing))
    ask(m.CheckWatchesRequest(path=node, type=int(WatcherType.DATA)))
    ask(m.SetWatches2(data_watches=(), persistent_watches=(f"{node}/a",), persistent_recursive_watches=(), **nothing))
    ask(m.CheckWatchesRequest(path=f"{node}/a", type=int(WatcherType.PERSISTENT)))
    # several at once
    writes = MultiRequest((
        m.CheckVersionRequest(path=node, version=1),
        m.CreateRequest(path=f"{node}/m", data=b"", acl=open_acl, flags=0),
        (15, m.CreateRequest(path=f"{node}/n", data=b"", acl=open_acl, flags=0)),
        m.SetDataRequest(path=f"{node}/m", data=b"2", version=-1),
        m.DeleteRequest(path=f"{node}/n", version=-1),
    ))  # fmt: skip
    results = ask(writes, "multi").results
    assert [code for code, _ in results] == [13, 1, 15, 5, 2]
    assert (results[1][1].path, results[3][1].stat.version) == (f"{node}/m", 1)
    failed = client.request(
        MultiRequest((m.DeleteRequest(path=f"{node}/m"), m.DeleteRequest(path=f"{node}/no"), m.DeleteRequest(path="/x")))
    )
    assert failed.errors == (0, -101, -2)
    assert MultiResponse.decode(failed.encode()) == failed
    assert MultiRequest.decode(writes.encode()).encode() == writes.encode()
    reads = ask(
        MultiRequest((m.GetDataRequest(path=node), m.GetChildrenRequest(path=f"{node}/m"), m.GetDataRequest(path="/none"))), "multiRead"
    )
    assert (reads.results[0][1].data, reads.results[1][1].children, reads.errors) == (b"1", (), (0, 0, -101))
    ask(m.DeleteRequest(path=f"{node}/c", version=-1), "deleteContainer")
    ask(m.DeleteRequest(path=f"{node}/a", version=0))
    with pytest.raises(NoNode):
        client.request(m.ExistsRequest(path=f"{node}/a", watch=False))
    # what a standalone server refuses, with its own code
    with pytest.raises(Unimplemented):
        client.request(m.ReconfigRequest(joining_servers="server.9=127.0.0.1:1:2;3"))
    with pytest.raises(Unimplemented):
        client.request(m.CheckVersionRequest(path=node, version=1))  # alone: the server closes the connection then
    assert client.request(m.GetDataRequest(path=node, watch=False), timeout=SECONDS).data == b"1"
    for own in ("createSession", "closeSession", "notification", "error"):
        with pytest.raises(UsageError):
            client.request(operation=own)
    elsewhere = {"sasl", "reconfig", "check", "createSession", "closeSession", "notification", "error"}
    assert set(OPERATIONS) - set(done) == elsewhere
    oracle("ZooKeeper 3.9.5, live", operations_by_request=len(done) + 2)


@ONE
def test_every_operation_as_a_method_of_the_tree(client: Any, broker: ZooKeeper, node: str) -> None:
    tree = client.tree()
    assert tree.create(f"{node}/q-", b"", sequence=True) == f"{node}/q-0000000000"
    path, stat = tree.create2(f"{node}/e", b"1", ephemeral=True)
    assert (path, stat.ephemeral_owner) == (f"{node}/e", tree.session[0])
    tree.create(f"{node}/c/in", container=False, parents=True)
    assert tree.create(f"{node}/box", container=True) == f"{node}/box"
    assert re.fullmatch(r".*/t-\d{10}", tree.create(f"{node}/t-", b"", ttl=60.0, sequence=True))
    assert tree.get(f"{node}/e")[0] == b"1"
    assert tree.exists(f"{node}/none") is None
    assert tree.set(f"{node}/e", b"22", version=0).data_length == 2
    with pytest.raises(BadVersion):
        tree.set(f"{node}/e", b"3", version=0)
    assert len(tree.children(node)[0]) == 5
    assert tree.count(node) == 6
    assert tree.ephemerals(node) == [f"{node}/e"]
    assert tree.sync(node) == node
    acl, stat = tree.get_acl(node)
    assert tree.set_acl(node, acl, version=stat.aversion).aversion == stat.aversion + 1
    made = tree.multi([Create(f"{node}/m", b"m"), Set(f"{node}/m", b"n"), Check(f"{node}/m", 1), Delete(f"{node}/m")])
    assert (made[0], made[1].version, made[2:]) == (f"{node}/m", 1, [None, None])
    data, names = tree.multi([Get(f"{node}/e"), Children(f"{node}/c")])
    assert (data[0], names) == (b"22", ["in"])
    assert tree.whoami()[0].auth_scheme == "ip"
    assert tree.config()[1] is not None
    # each kind of watch fires, is known to the server, and can be taken back
    once, kids, gone = tree.watch(), tree.watch(), tree.watch()
    tree.get(f"{node}/e", watch=once)
    tree.children(node, watch=kids)
    tree.exists(f"{node}/later", watch=gone)
    assert tree.has_watch(f"{node}/e", WatcherType.DATA)
    assert tree.has_watch(node, WatcherType.CHILDREN)
    tree.create(f"{node}/later")
    tree.delete(f"{node}/e")
    assert [watch.wait(SECONDS).type for watch in (once, kids, gone)] == [
        EventType.NODE_DELETED, EventType.NODE_CHILDREN_CHANGED, EventType.NODE_CREATED,
    ]  # fmt: skip
    assert not tree.has_watch(node)
    tree.add_watch(f"{node}/c", lambda event: None, recursive=True)
    tree.add_watch(node, lambda event: None)
    assert tree.has_watch(f"{node}/c", WatcherType.PERSISTENT_RECURSIVE)
    assert tree.has_watch(node, WatcherType.PERSISTENT)
    tree.get(f"{node}/c", watch=tree.watch())
    tree.remove_watch(f"{node}/c")
    tree.remove_watch(node)
    assert not tree.has_watch(f"{node}/c")
    for recursive in (False, True):
        tree.add_watch(node, stays := [].append, recursive=recursive)
        tree.get(node, watch=(once := tree.watch()))
        tree.remove_watch(node, stays)
        assert not tree.has_watch(node, WatcherType.PERSISTENT_RECURSIVE if recursive else WatcherType.PERSISTENT)
        tree.set(node, b"the one that fires once is still there")
        assert once.wait(SECONDS) is not None
    tree.add_auth("digest", "a:b")
    assert {info.auth_scheme for info in tree.whoami()} == {"ip", "digest"}
    tree.delete(node, recursive=True)
    assert tree.exists(node) is None


@SASL
def test_sasl_tokens_pass_by_request(client: Any, oracle: Callable[..., None]) -> None:
    """DIGEST-MD5 (RFC 2831) by hand: the empty token, the challenge, our answer, the server's proof."""
    user, word = SASL_USER
    challenge = client.request(m.GetSASLRequest(token=b"")).token.decode()
    nonce = re.search(r'nonce="([^"]+)"', challenge)[1]  # type: ignore[index]
    realm, uri, cnonce = "zk-sasl-md5", "zookeeper/zk-sasl-md5", "0123456789abcdef"

    def hexed(text: bytes) -> bytes:
        return hashlib.md5(text).hexdigest().encode()

    secret = hashlib.md5(f"{user}:{realm}:{word}".encode()).digest() + f":{nonce}:{cnonce}".encode()

    def proof(method: str) -> str:
        return hexed(hexed(secret) + f":{nonce}:00000001:{cnonce}:auth:".encode() + hexed(f"{method}:{uri}".encode())).decode()

    answer = (
        f'charset=utf-8,username="{user}",realm="{realm}",nonce="{nonce}",nc=00000001,cnonce="{cnonce}",'
        f'digest-uri="{uri}",maxbuf=65536,response={proof("AUTHENTICATE")},qop=auth'
    )
    assert client.request(m.GetSASLRequest(token=answer.encode())).token == f"rspauth={proof('')}".encode()
    assert ("sasl", user) in [(info.auth_scheme, info.user) for info in client.tree().whoami()]
    oracle("ZooKeeper 3.9.5, live", operations_by_request=1)


@THREE
def test_the_ensemble_is_changed_and_its_configuration_watched(client: Any, broker: ZooKeeper, oracle: Callable[..., None]) -> None:
    tree = client.tree()
    tree.add_auth("digest", SUPER)
    before, stat = tree.config()
    version = int(re.search(rb"version=([0-9a-f]+)", before)[1], 16)  # type: ignore[index]
    third = next(line for line in before.decode().splitlines() if line.startswith("server.3="))
    third = f"{third.partition(';')[0]};127.0.0.1:{broker.client_ports[2]}"
    changed = tree.watch()
    tree.config(watch=changed)
    after = client.request(m.ReconfigRequest(joining_servers=third, cur_config_id=version), timeout=SECONDS)
    assert third.encode() in after.data  # with its clients' address now
    assert after.stat.mzxid > stat.mzxid
    assert changed.wait(SECONDS).type == EventType.NODE_DATA_CHANGED
    with pytest.raises(BadVersion):
        tree.reconfigure(joining=third, config=version)
    again, _ = tree.reconfigure(joining=third, timeout=SECONDS)
    assert third.encode() in again
    oracle("ZooKeeper 3.9.5, live", operations_by_request=1)


@ONE
def test_ephemeral_nodes_beside_the_chroot_are_not_named_as_if_below(broker: ZooKeeper) -> None:
    app = f"/app-{time.monotonic_ns()}"
    with wireproto.connect(broker.url) as outside:
        for path in (app, f"{app}2"):
            outside.tree().create(path)
        with wireproto.connect(f"{broker.url}{app}", session=outside.tree().session) as inside:
            tree = inside.tree()
            for name in ("/lock", "/locks", "/lock-2"):
                tree.create(name)
                tree.create(f"{name}/mine", ephemeral=True)
            tree.create("/top", ephemeral=True)
            inside.request(m.CreateRequest(path=f"{app}2/other", data=b"", acl=access.OPEN, flags=int(CreateMode.EPHEMERAL)))
            inside.request(m.CreateRequest(path=f"{app}-beside", data=b"", acl=access.OPEN, flags=int(CreateMode.EPHEMERAL)))
            assert sorted(tree.ephemerals()) == ["/lock-2/mine", "/lock/mine", "/locks/mine", "/top"]
            assert sorted(tree.ephemerals("/lock")) == ["/lock-2/mine", "/lock/mine", "/locks/mine"], "by their text"
            assert tree.ephemerals("/lock/") == ["/lock/mine"]
            assert tree.ephemerals("/none") == []
