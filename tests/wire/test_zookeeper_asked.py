"""What a ZooKeeper client sends again, gives up, and does within one session."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from patience import LATE, quickest, until
from wireproto.errors import Closed, TimedOut
from wireproto.zookeeper import messages as m
from wireproto.zookeeper.acl import OPEN
from wireproto.zookeeper.codes import BadVersion, NoWatcher, SessionExpired
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.lists import MultiRequest
from wireproto.zookeeper.multi import Check, Delete, Set
from wireproto.zookeeper.session import State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}
READS: dict[str, Any] = {
    "exists": m.ExistsRequest(path="/", watch=False),
    "getData": m.GetDataRequest(path="/", watch=False),
    "getACL": m.GetACLRequest(path="/"),
    "getChildren": m.GetChildrenRequest(path="/", watch=False),
    "getChildren2": m.GetChildren2Request(path="/", watch=False),
    "sync": m.SyncRequest(path="/"),
    "getEphemerals": m.GetEphemeralsRequest(prefix_path="/"),
    "getAllChildrenNumber": m.GetAllChildrenNumberRequest(path="/"),
    "addWatch": m.AddWatchRequest(path="/", mode=0),
    "checkWatches": m.CheckWatchesRequest(path="/", type=3),
    "whoAmI": None,
    "multiRead": MultiRequest([(4, m.GetDataRequest(path="/", watch=False))]),
}


@pytest.fixture
def node(dial: Any) -> str:
    return str(dial().tree().create("/asked-", b"0", sequence=True))


@pytest.mark.parametrize("name", READS)
def test_what_does_no_harm_twice_is_sent_again_when_its_connection_is_cut(dial: Any, seen: Any, faults: Any, name: str) -> None:
    client = dial()
    faults.lose_reply(name)
    with contextlib.suppress(NoWatcher):  # an answer, too
        client.request(READS[name], operation=name, timeout=SECONDS)
    assert len(seen.requests(name)) == 2


def test_what_may_have_been_done_is_not_sent_again(dial: Any, seen: Any, faults: Any, node: str) -> None:
    client = dial()
    faults.lose_reply("setData")
    with pytest.raises(ConnectionLoss) as lost:
        client.request(m.SetDataRequest(path=node, data=b"1", version=-1), timeout=SECONDS)
    assert (lost.value.retriable, lost.value.doubtful) == (False, True)
    assert len(seen.requests("setData")) == 1


WRITES: dict[str, Callable[[Any, str], Any]] = {
    "create": lambda tree, node: tree.create(f"{node}/a"),
    "create2": lambda tree, node: tree.create2(f"{node}/a"),
    "createContainer": lambda tree, node: tree.create(f"{node}/a", container=True),
    "createTTL": lambda tree, node: tree.create(f"{node}/a", ttl=100.0),
    "setData": lambda tree, node: tree.set(node, b""),
    "delete": lambda tree, node: tree.delete(node),
    "setACL": lambda tree, node: tree.set_acl(node, OPEN),
    "multi": lambda tree, node: tree.multi([Set(node, b"")]),
}


@pytest.mark.parametrize("name", WRITES)
def test_no_write_of_the_tree_is_sent_twice(dial: Any, seen: Any, faults: Any, node: str, name: str) -> None:
    tree = dial().tree()
    seen.clear()
    faults.lose_reply(name)
    with pytest.raises(ConnectionLoss):
        WRITES[name](tree, node)
    tree.exists(node)
    assert len(seen.requests(name)) == 1


@pytest.mark.parametrize("operation", [Set, Check, Delete])
def test_each_operation_of_a_multi_demands_its_version(dial: Any, node: str, operation: Any) -> None:
    tree = dial().tree()
    given = (node, b"1") if operation is Set else (node,)
    with pytest.raises(BadVersion):
        tree.multi([operation(*given, version=7)])
    tree.multi([operation(*given, version=0)])


def test_who_waits_for_room_is_told_as_soon_as_the_producer_closes(dial: Any, faults: Any) -> None:
    """Though what it holds is not answered yet, and is waited for."""
    out = dial(buffer_memory=1 << 16).producer("closing")
    faults.stall("create")
    held = [out.send(b"x" * 10_000) for _ in range(6)]
    told: list[BaseException] = []

    def send() -> None:
        try:
            out.send(b"x" * 10_000, timeout=SECONDS)
        except Closed as why:
            told.append(why)

    waiting = threading.Thread(target=send)
    waiting.start()
    until(lambda: out._budget.waiting)
    closing = threading.Thread(target=out.close, args=(60.0,))
    closing.start()
    waiting.join(SECONDS)
    assert [type(why) for why in told] == [Closed]
    assert closing.is_alive()
    assert not any(receipt.done for receipt in held)
    faults.clear()
    out._link.current.close("so that all is sent again")
    closing.join(60.0)
    assert not closing.is_alive()
    assert all(receipt.position(SECONDS) for receipt in held)


def test_a_read_before_a_queues_message_is_not_repeated_behind_it(dial: Any, faults: Any) -> None:
    client = dial()
    tree, out = client.tree(), client.producer("asked")
    faults.drop("getChildren2")
    faults.lose_reply("create")
    before = tree.children_async("/asked/entries")
    receipt = out.send(b"1")
    with pytest.raises(ConnectionLoss, match="a write behind it may have taken effect"):
        before.result(SECONDS)
    receipt.position(SECONDS)


@pytest.mark.parametrize("message", ["getChildren2", "create", "getData"])
def test_a_worker_that_finds_nothing_where_something_is_listed_does_not_storm(dial: Any, seen: Any, faults: Any, message: str) -> None:
    """Somebody makes the queue and deletes it all the time, or finishes each message first: it is looked for again, and not at once."""
    topic = f"vain-{message}"
    with dial().producer(topic) as out, dial().queue(topic, "g") as queue:
        out.send(b"job").position()
        faults.error(message, -101, times=-1)
        assert queue.receive(1.5) is None
        assert 3 <= len(seen.requests(message)) < 40
        faults.clear()
        delivery = queue.receive(SECONDS)
        assert delivery is not None
        delivery.ack(SECONDS)

        def once() -> None:
            out.send(b"job").position()
            faults.error(message, -101)
            queue.receive(SECONDS).ack()

        assert quickest(once, 3) < LATE / 3, "once in a while is nothing to wait for"


def test_a_call_that_was_given_up_is_not_kept(dial: Any, faults: Any, node: str) -> None:
    """By steps, as asyncio and raw requests go; its number and its frame would stay as long as the connection."""
    client = dial()
    faults.drop("getACL")
    conn = client.tree()._link.current
    with pytest.raises(TimedOut):
        client.request(m.GetACLRequest(path=node), timeout=0.3)
    assert client.tree()._link.current is conn
    assert conn.pending == 0


def test_a_node_and_those_above_it_are_made_within_one_session(
    dial: Any, broker: Any, faults: Any, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends between the answer that there is nothing above and the making of that: the next session does not go on."""
    tree = dial().tree()
    kind = type(tree)
    ensure = kind._ensure

    def expiring(self: Any, *how: Any) -> Any:
        before = tree.session[0]
        assert broker.call("zookeeper", "expire", before)
        while tree.session[0] == before or tree.state is not State.CONNECTED:
            tree.any_session().exists("/")
        return ensure(self, *how)

    monkeypatch.setattr(kind, "_ensure", expiring)
    with pytest.raises(SessionExpired):
        tree.create(f"{node}/a/b", ephemeral=True, parents=True)
    monkeypatch.undo()
    assert tree.any_session().exists(f"{node}/a") is None


def test_a_node_that_may_neither_be_made_nor_be_read_is_there(dial: Any, faults: Any) -> None:
    """Servers say NoAuth of nodes that there are, and of no others."""
    tree = dial().tree()
    faults.error("create", -102)
    faults.error("exists", -102)
    assert tree.ensure("/closed") is False


def test_the_clients_name_is_that_of_its_loop(dial: Any) -> None:
    """By which its threads are told apart."""
    client = dial(client_id="ann")
    client.tree().exists("/")
    assert repr(client.loop).startswith("<Loop ann:")
