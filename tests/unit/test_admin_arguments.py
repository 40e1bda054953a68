"""Wrong arguments of an admin's calls: OptionError with argument, value and what is allowed, in all protocols, before any request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto import EARLIEST
from wireproto.devbroker import DevBroker
from wireproto.devbroker.zookeeper.requests import NAMES
from wireproto.errors import OptionError
from wireproto.kafka.admin_transactions import OpenTransaction, ProducerInfo
from wireproto.zookeeper.acl import ANYONE
from wireproto.zookeeper.messages import ACL
from wireproto.zookeeper.multi import Create

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
GROUPS = ("kafka", "pulsar", "rocketmq")
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    *(
        (method, (bad,), {}, "topic")
        for method in ("describe_topic", "create_topic", "delete_topic", "positions")
        for bad in (None, b"x", 3)
    ),
    *(("create_topic", ("new",), {"partitions": bad}, "partitions") for bad in ("1", True, 1.0, 2.5, None, [1], 1 << 40)),
    *(("create_topic", ("new",), {"config": bad}, "config") for bad in ("x", [("a", "b")], {"a": 1}, {"a": None}, {1: "a"}, 5)),
    *(("positions", ("t",), {"partitions": bad}, "partitions") for bad in (0, "0", ["0"], [True], [0.0], [None])),
    *(("positions", ("t", bad), {}, "at") for bad in (None, "latest", 3, {"x": 1}, {("t", "0"): EARLIEST})),
]
OF_GROUPS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    *(
        (method, (bad, *more), {}, "group")
        for method, more in (("describe_group", ()), ("group_positions", ("t",)))
        for bad in (None, b"g", 3)
    ),
    *(("commit", (bad, {}), {}, "group") for bad in (None, b"g", 3)),
    *(("group_positions", ("g", bad), {}, "topic") for bad in (None, b"t", 3)),
    *(("commit", ("g", bad), {}, "places") for bad in (None, [], "x", {"x": 1}, {("t", "0"): 1}, {(3, 0): 1})),
]
HANDED = OpenTransaction("name", 1, 0, True)
PRODUCER = ProducerInfo(1, 0, 0, 0, 0, 0)
WRONG_ACLS = "open", 3, b"x", {"perms": 31}, ["world:anyone:cdrwa"], [None], ACL(perms=31, id=ANYONE), [(31, ANYONE)]
OWN: dict[str, list[tuple[str, tuple[Any, ...], dict[str, Any], str]]] = {
    "kafka": [
        *(("describe_topics", (bad,), {}, "topics") for bad in ("t", b"t", 3, [3])),
        *(("sizes", (bad,), {}, "topics") for bad in (None, "t", 3, [3])),
        *(("create_topic", ("new",), {"replication": bad}, "replication") for bad in ("1", True, 1.0, 1 << 15)),
        *(("positions", ("t",), {"committed": bad}, "committed") for bad in ("false", 1, None)),
        *(("list_transactions", (), {"states": bad}, "states") for bad in (None, 3, [3])),
        *(("list_transactions", (), {"producer_ids": bad}, "producer_ids") for bad in (None, "12", 3, ["3"], [1 << 70])),
        *(("list_transactions", (), {"longer_than": bad}, "longer_than") for bad in ("5", True, -1.0, float("nan"), float("inf"))),
        *(("list_transactions", (), {"pattern": bad}, "pattern") for bad in (3, b"x")),
        *((method, (bad,), {}, "names") for method in ("describe_transactions", "fence_producers") for bad in (None, 3, [3], b"x")),
        *(("describe_producers", (bad,), {}, "topic") for bad in (None, 3, [3])),
        *(("describe_producers", ("t",), {"partitions": bad}, "partitions") for bad in (0, ["0"])),
        *(("end_transactions", ((),), {"commit": bad}, "commit") for bad in ("false", 0, None)),
        *(("end_transactions", (bad,), {"commit": True}, "transactions") for bad in (None, 3, "x", b"x", ["x"], [None], [(1, 2)], HANDED)),
        *(
            (method, (bad, PRODUCER), {}, "key")
            for method in ("abort_transaction", "commit_transaction")
            for bad in (None, "t", ("t",), ("t", "0"), (b"t", 0), ("t", True), ["t", 0])
        ),
        *(
            (method, (("t", 0), bad), {}, "producer")
            for method in ("abort_transaction", "commit_transaction")
            for bad in (None, 3, "x", HANDED, [PRODUCER])
        ),
    ],
    "pulsar": [
        *(("create_topic", ("new",), {"partitions": bad}, "partitions") for bad in (-1, False)),
        *(
            (method, (), {"namespace": bad}, "namespace")
            for method in ("list_topics", "list_groups")
            for bad in (None, 3, "x", "a/b/c", "/b")
        ),
        *(("describe_group", ("g",), {"namespace": bad}, "namespace") for bad in (None, "x")),
        *(("set_deduplication", ("public/default", bad), {}, "enabled") for bad in ("false", 0, None)),
        *(("set_deduplication", (bad, True), {}, "namespace") for bad in ("public", None)),
        *(("ledgers", ("t", bad), {}, "partition") for bad in ("0", True, -2)),
        *(("create_group", ("g", "t", bad), {}, "position") for bad in (None, 3, EARLIEST)),
        *(("end_transactions", ((),), {"commit": bad}, "commit") for bad in ("false", 0, None)),
        *(("end_transactions", (bad,), {"commit": True}, "transactions") for bad in (None, 3, "x", ["x"], [None], [(1, 2)], [HANDED])),
        *(("open_transactions", (bad,), {}, "transactions") for bad in (None, 3, "x", ["x"], [None], [(1, 2)], [HANDED])),
    ],
    "rocketmq": [
        *(("create_topic", ("new",), {"partitions": bad}, "partitions") for bad in (0, -1)),
        *(("create_topic", ("new",), {"config": {"perm": bad}}, "perm") for bad in ("x", "", "7", "0", "06", " 6", "٦")),
        *(("create_topic", ("new",), {"config": {"order": bad}}, "order") for bad in ("maybe", "", "yes", "True", "1")),
        *(("queues", ("t", bad), {}, "names") for bad in ("a/0", None, 3, [None], [True])),
        ("create_topic", ("new",), {"config": {"colour": "red"}}, "colour"),
    ],
    "zookeeper": [
        *(("create_topic", ("new",), {"partitions": bad}, "partitions") for bad in (0, 2)),
        ("create_topic", ("new",), {"config": {"perm": "6"}}, "perm"),
        *(("create_topic", ("new",), {"acl": bad}, "acl") for bad in WRONG_ACLS),
    ],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(protocols=PROTOCOLS) as broker:
        for protocol in PROTOCOLS:
            with wireproto.connect(broker.url(protocol)) as client:
                client.admin().create_topic("t")
        yield broker


def calls(protocol: str) -> list[tuple[str, tuple[Any, ...], dict[str, Any], str]]:
    return [*CALLS, *(OF_GROUPS if protocol in GROUPS else []), *OWN[protocol]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_argument_of_an_admin_is_named_with_its_value(broker: DevBroker, protocol: str) -> None:
    wrong = []
    with wireproto.connect(broker.url(protocol)) as client:
        admin = client.admin()
        before = admin.list_topics()
        for method, args, more, name in calls(protocol):
            what = f"{method}{args}{more}"
            try:
                found = getattr(admin, method)(*args, **more)
            except OptionError as why:
                if name not in str(why):
                    wrong.append(f"{what}: {why} does not name {name}")
            except Exception as why:  # the test lists them all
                wrong.append(f"{what}: {type(why).__name__}: {why}")
            else:
                wrong.append(f"{what} returned {found!r}")
        assert admin.list_topics() == before
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_argument_of_an_admin_is_named_under_asyncio(broker: DevBroker, protocol: str) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url(protocol)) as client:
            admin = client.admin()
            for bad in ("1", True, None):
                with pytest.raises(OptionError, match="partitions"):
                    await admin.create_topic("new", partitions=bad)  # type: ignore[arg-type]
            with pytest.raises(OptionError, match="topic is text"):
                await admin.describe_topic(b"t")  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.parametrize("bad", WRONG_ACLS, ids=repr)
def test_a_wrong_access_list_is_named_and_nothing_is_sent(broker: DevBroker, bad: Any) -> None:
    """In each call of ZooKeeper's tree that takes one, also as an operation of a multi."""
    with wireproto.connect(broker.url("zookeeper")) as client:
        tree = client.tree()
        tree.ensure("/acl/there")
        before = tree.get_acl("/acl/there")
        asked = broker.faults("zookeeper")
        asked.clear()
        calls: list[Any] = [
            lambda: tree.create("/acl/new", acl=bad),
            lambda: tree.create("/acl/a/b/c", acl=bad, parents=True),
            lambda: tree.create2("/acl/new", acl=bad),
            lambda: tree.create_async("/acl/new", acl=bad).result(20.0),
            lambda: tree.ensure("/acl/a/b", acl=bad),
            lambda: tree.ensure("/acl/there", acl=bad),
            lambda: tree.set_acl("/acl/there", bad),
            lambda: tree.set_acl("/acl/there", None),
            lambda: tree.multi([Create("/acl/new", acl=bad)]),
            lambda: client.admin().create_topic("with-acl", acl=bad),
        ]
        for call in calls:
            with pytest.raises(OptionError, match="acl"):
                call()
        assert not [name for name in set(NAMES.values()) - {"ping"} if asked.seen(name)]
        assert tree.get_acl("/acl/there") == before
        assert asked.seen("getACL") == 1
        assert tree.children("/acl")[0] == ["there"]
