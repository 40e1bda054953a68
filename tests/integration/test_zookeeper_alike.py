"""The embedded ZooKeeper beside a real one: the same random calls on both, by two clients each, one of them with an identity.

Compared are values, errors, stats and events. Transactions have other numbers there, times and sessions, too: each number of one side must
stand for one number of the other, throughout, and in the same order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers import ZooKeeper
from chance import seed
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError, ValueUnsupported
from wireproto.zookeeper.acl import digest_acl, digest_id
from wireproto.zookeeper.codes import WatcherType
from wireproto.zookeeper.messages import ACL, Id, Stat
from wireproto.zookeeper.multi import Check, Children, Create, Delete, Get, Set

SECONDS = 30.0
ANYONE = Id(scheme="world", id="anyone")
IDENTITIES: list[tuple[str, str]] = [
    ("ip", "127.0.0.1"),
    ("ip", "10.0.0.0/8"),
    ("ip", "127.0.0.0/8"),
    ("ip", "300.1"),
    ("ip", "127.0.0.1/33"),
    ("sasl", "ann"),
    ("x509", "CN=ann"),
    ("super", ""),
    ("nobody", "x"),
    ("world", "ann"),
    ("digest", "ann"),
    ("digest", "a:b:c"),
    ("auth", ""),
    ("digest", str(digest_id("ann", "secret").id)),
    ("digest", str(digest_id("bob", "secret").id)),
]
ACLS: list[tuple[ACL, ...] | None] = [
    *[None] * 12,
    *[(ACL(perms=perms, id=ANYONE),) for perms in (0, 1, 2, 4, 4, 8, 16, 27, 30, 31, 64)],
    *[(ACL(perms=31, id=Id(scheme=scheme, id=name)),) for scheme, name in IDENTITIES],
    (digest_acl("ann", "secret"), ACL(perms=1, id=ANYONE)),
    (digest_acl("ann", "secret"), ACL(perms=15, id=ANYONE)),
    (ACL(perms=5, id=ANYONE), ACL(perms=5, id=ANYONE)),
]
KINDS: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"ephemeral": True},
    {"sequence": True},
    {"ephemeral": True, "sequence": True},
    {"ttl": 1000.0},
    {"ttl": 1000.0, "sequence": True},
]
OWN = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/none"]


class Half:
    """One server and its two clients, the second of which ann is."""

    def __init__(self, url: str, base: str) -> None:
        self.url = url
        self.base = base
        self.clients = [self._dial(number) for number in range(2)]
        self.fired: list[list[tuple[int, Any]]] = [[], []]
        self.watches: list[dict[int, Any]] = [{}, {}]
        self.clients[0].tree().ensure(base)

    def _dial(self, number: int) -> Any:
        who = {"user": "ann", "password": "secret"} if number else {}
        return wireproto.connect(self.url, timeout=SECONDS, session_timeout=20.0, **who)

    def tree(self, number: int) -> Any:
        return self.clients[number].tree()

    def again(self, number: int, *, end: bool) -> None:
        """The next session, or the next connection of this one."""
        if end:
            self.clients[number].close()
            self.clients[number] = self._dial(number)
            return
        back, gone = threading.Event(), threading.Event()
        stop = self.tree(number).on_state(
            lambda event: (back if gone.is_set() else gone).set() if event.state.value == "connected" else None
        )
        assert gone.wait(SECONDS)
        self.tree(number)._link.current.close("for a change")
        assert back.wait(SECONDS)
        stop()

    def note(self, number: int, label: int) -> Callable[[Any], None]:
        return lambda event: self.fired[number].append((label, event))

    def events(self) -> list[list[tuple[int, Any]]]:
        """What has come since the last call. A read behind it brings what is under way; callbacks are called by one thread in order."""
        found = []
        for number in range(2):
            self.tree(number).exists("/")
            done = threading.Event()
            self.tree(number)._link.events.dispatcher.prepare()
            self.tree(number)._link.events.dispatcher.call([lambda _, done=done: done.set()], None)
            assert done.wait(SECONDS)
            found.append(self.fired[number])
            self.fired[number] = []
        return found

    def close(self) -> None:
        for client in self.clients:
            client.close()


class Beside:
    """Two halves that must be alike."""

    def __init__(self, dev: Half, real: Half, number: int) -> None:
        self.dev, self.real = dev, real
        self.chance = random.Random(number)
        self.base = dev.base
        self.zxids: dict[int, int] = {}
        self.labels = 0
        self.callbacks: list[tuple[int, str, Any, Any]] = []
        self.history: list[str] = []

    # -- what is done ------------------------------------------------------------------------------------------------------

    def path(self) -> str:
        names = [self.chance.choice("ab") for _ in range(self.chance.choice((1, 1, 2, 2, 3)))]
        return "/".join((self.base, *names))

    def data(self) -> bytes | None:
        return self.chance.choice((None, b"", b"x", b"data"))

    def write(self) -> Any:
        """An operation of a multi."""
        path, version = self.path(), self.chance.choice((-1, -1, -1, 0, 1, 2))
        return self.chance.choice(
            (
                lambda: Create(path, self.data(), acl=self.chance.choice(ACLS), **self.chance.choice(KINDS)),
                lambda: Delete(path, version),
                lambda: Set(path, self.data(), version),
                lambda: Check(path, version),
            )
        )()

    def operation(self) -> tuple[str, Callable[[Any], Any], bool]:
        """A name, what to do with a tree, and whether it takes a watch."""
        chance = self.chance
        path, data, version = self.path(), self.data(), chance.choice((-1, -1, -1, 0, 1, 2))
        acl, kind = chance.choice(ACLS), chance.choice(KINDS)
        writes = [self.write() for _ in range(chance.randrange(1, 5))]
        reads = [chance.choice((Get, Children))(self.path()) for _ in range(chance.randrange(1, 4))]
        type_, own = chance.choice(list(WatcherType)), chance.choice(OWN)
        table: list[tuple[int, str, Callable[[Any], Any], bool]] = [
            (10, f"create2 {path} {data!r} {kind} {acl}", lambda tree: tree.create2(path, data, acl=acl, **kind), False),
            (8, f"create {path} {data!r} {kind} {acl}", lambda tree: tree.create(path, data, acl=acl, **kind), False),
            (2, f"container {path}/k {acl}", lambda tree: tree.create2(f"{path}/k", data, container=True, acl=acl), False),
            (9, f"delete {path} {version}", lambda tree: tree.delete(path, version=version), False),
            (1, f"delete {own} {version}", lambda tree: tree.delete(own, version=version), False),
            (8, f"set {path} {data!r} {version}", lambda tree: tree.set(path, data, version=version), False),
            (5, f"set_acl {path} {acl} {version}", lambda tree: tree.set_acl(path, acl or ACLS[-3], version=version), False),
            (7, f"get_acl {path}", lambda tree: tree.get_acl(path), False),
            (8, f"get {path}", lambda tree, **watch: tree.get(path, **watch), True),
            (8, f"exists {path}", lambda tree, **watch: tree.exists(path, **watch), True),
            (8, f"children {path}", lambda tree, **watch: sorted_children(tree.children(path, **watch)), True),
            (6, f"multi {writes}", lambda tree: tree.multi(writes), False),
            (3, f"multi {reads}", lambda tree: [sorted_children(found) for found in tree.multi(reads)], False),
            (2, f"has_watch {path} {type_.name}", lambda tree: tree.has_watch(path, type_), False),
            (1, "ephemerals", lambda tree: sorted(tree.ephemerals(self.base)), False),
            (1, f"count {path}", lambda tree: tree.count(path) if path not in ("/",) else 0, False),
            (1, "sync", lambda tree: tree.sync(path), False),
            (1, "whoami", lambda tree: sorted((who.auth_scheme, who.user) for who in tree.whoami()), False),
        ]
        _, name, call, takes = chance.choices(table, [row[0] for row in table])[0]
        return name, call, takes

    def step(self) -> None:
        chance, number = self.chance, self.chance.randrange(2)
        what = chance.random()
        if what < 0.01:
            self.both(number, "again", lambda half, _: half.again(number, end=False))
        elif what < 0.013:
            self.callbacks = [entry for entry in self.callbacks if entry[0] != number]
            self.both(number, "next session", lambda half, _: half.again(number, end=True))
        elif what < 0.04:
            path, recursive = self.path(), chance.random() < 0.5
            mine = self.label(number, path)
            call = lambda half, _: half.tree(number).add_watch(path, mine[half is self.real], recursive=recursive)  # noqa: E731
            self.both(number, f"add_watch {path} {recursive}", call)
        elif what < 0.06 and self.callbacks:
            owner, path, *mine = chance.choice(self.callbacks)
            self.both(owner, f"remove_watch {path}", lambda half, _: half.tree(owner).remove_watch(path, mine[half is self.real]))
        else:
            name, call, takes = self.operation()
            watch = takes and chance.random() < 0.5
            path = name.split(" ")[1] if watch else ""
            mine = self.label(number, path) if watch else (None, None)
            more = (lambda half: {"watch": mine[half is self.real]}) if watch else (lambda half: {})
            self.both(number, f"{name}{' with a watch' if watch else ''}", lambda half, tree: call(tree, **more(half)))

    def label(self, number: int, path: str) -> tuple[Any, Any]:
        self.labels += 1
        made = self.dev.note(number, self.labels), self.real.note(number, self.labels)
        self.callbacks.append((number, path, *made))
        return made

    # -- how it is compared ------------------------------------------------------------------------------------------------

    def both(self, number: int, name: str, call: Callable[[Half, Any], Any]) -> None:
        self.history.append(f"{'ann' if number else 'nobody'}: {name}")
        outcomes = []
        for half in (self.dev, self.real):
            try:
                outcomes.append(("value", call(half, half.tree(number))))
            except BrokerError as why:
                outcomes.append(("error", (why.code, getattr(why, "index", None))))
            except ValueUnsupported as why:
                outcomes.append(("refused", str(why)))
        dev, real = outcomes
        assert dev[0] == real[0], self.tell(dev, real)
        assert self.alike(dev[1], real[1]), self.tell(dev, real)
        for ours, theirs in zip(self.dev.events(), self.real.events(), strict=True):
            key = lambda item: (item[0], int(item[1].type), item[1].path)  # noqa: E731
            ours.sort(key=key)  # a session's end deletes its nodes in any order
            theirs.sort(key=key)
            assert [key(item) for item in ours] == [key(item) for item in theirs], self.tell(ours, theirs)
            for (_, mine), (_, other) in zip(ours, theirs, strict=True):
                assert self.same_zxid(mine.zxid, other.zxid), self.tell(mine, other)

    def tell(self, dev: Any, real: Any) -> str:
        lines = "\n".join(self.history[-30:])
        return f"embedded: {dev}\nreal: {real}\nbehind {len(self.history)} calls, the last of which are\n{lines}"

    def alike(self, dev: Any, real: Any) -> bool:
        if isinstance(dev, Stat) and isinstance(real, Stat):
            if bool(dev.ephemeral_owner) != bool(real.ephemeral_owner):
                return False
            owners = [
                [client.tree().session[0] for client in half.clients].index(stat.ephemeral_owner)
                for half, stat in ((self.dev, dev), (self.real, real))
                if stat.ephemeral_owner
            ]
            plain = ("version", "cversion", "aversion", "data_length", "num_children")
            return (
                len(set(owners)) < 2
                and all(getattr(dev, name) == getattr(real, name) for name in plain)
                and all(self.same_zxid(getattr(dev, name), getattr(real, name)) for name in ("czxid", "mzxid", "pzxid"))
            )
        if isinstance(dev, BrokerError) and isinstance(real, BrokerError):
            return dev.code == real.code
        if isinstance(dev, list | tuple) and isinstance(real, list | tuple):
            return len(dev) == len(real) and all(self.alike(one, other) for one, other in zip(dev, real, strict=True))
        return bool(dev == real)

    def same_zxid(self, dev: int, real: int) -> bool:
        if (dev <= 0) or (real <= 0):
            return (dev <= 0) == (real <= 0)
        return self.zxids.setdefault(real, dev) == dev

    def in_order(self) -> bool:
        ours = [self.zxids[zxid] for zxid in sorted(self.zxids)]
        return ours == sorted(set(ours))


def sorted_children(found: Any) -> Any:
    """Servers name them in any order."""
    if isinstance(found, tuple) and isinstance(found[0], list):
        return sorted(found[0]), found[1]
    return sorted(found) if isinstance(found, list) else found


@pytest.fixture
def halves(broker: ZooKeeper) -> Iterator[tuple[Half, Half]]:
    with DevBroker(["zookeeper"]) as dev:
        base = f"/alike-{random.getrandbits(48):x}"
        made = Half(dev.url("zookeeper"), base), Half(broker.url, base)
        yield made
        for half in made:
            half.close()


@pytest.mark.parametrize("broker", ["zookeeper-3.9.5"], indirect=True)
@pytest.mark.parametrize("calls", [600, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_the_embedded_server_answers_as_the_real_one(halves: tuple[Half, Half], calls: int, oracle: Callable[..., None]) -> None:
    beside = Beside(*halves, seed())
    for _ in range(calls):
        beside.step()
    assert beside.in_order()
    oracle("ZooKeeper 3.9.5 beside the embedded one", calls=calls, transactions=len(beside.zxids), watches=beside.labels)
