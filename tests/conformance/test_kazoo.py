"""kazoo beside ours, on the embedded server and on real ones: its recipes work unchanged, and each reads what the other writes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError
from kazoo.protocol.states import WatchedEvent as KazooEvent
from kazoo.security import make_digest_acl

from conformance.helpers import receive_until
from conformance.seats import Seat
from wireproto.position import LATEST
from wireproto.zookeeper import acl as access
from wireproto.zookeeper.codes import EventType, NoAuth, NoNode
from wireproto.zookeeper.messages import ACL, Id
from wireproto.zookeeper.multi import Check, Create, Delete, Set

pytestmark = pytest.mark.only("zookeeper")
SECONDS = 20.0


@pytest.fixture
def kazoo(seat: Seat) -> Iterator[Callable[..., KazooClient]]:
    """Starts kazoo clients; stops them at the end."""
    opened: list[KazooClient] = []

    def start(**options: Any) -> KazooClient:
        made = KazooClient(hosts=seat.url.partition("://")[2].partition("/")[0], timeout=10.0, **options)
        made.start(SECONDS)
        opened.append(made)
        return made

    yield start
    for made in opened:
        made.stop()
        made.close()


@pytest.fixture
def path(client: Any) -> Iterator[str]:
    """A node of this test alone."""
    made = client.tree().create(f"/k-{uuid.uuid4().hex[:8]}")
    yield made
    client.tree().delete(made, recursive=True)


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run each in a thread; their results, or the first failure."""
    results: list[Any] = [None] * len(works)
    failures: list[BaseException] = []

    def run(number: int, work: Callable[[], Any]) -> None:
        try:
            results[number] = work()
        except BaseException as why:
            failures.append(why)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "stuck"
    if failures:
        raise failures[0]
    return results


def catch_up(client: KazooClient, path: str) -> None:
    """Let its server apply what others were told is done. A sync is not enough: the server that leads answers it at once."""
    transaction = client.transaction()
    transaction.check(path, -1)
    assert transaction.commit() == [True]


# -- its recipes ----------------------------------------------------------------------------------------------------------


def test_its_lock_is_held_by_one_at_a_time(kazoo: Any, path: str) -> None:
    holders: list[int] = []
    most: list[int] = []

    def work(client: KazooClient) -> None:
        for _ in range(5):
            with client.Lock(path, client.client_id[0]):
                holders.append(1)
                most.append(len(holders))
                holders.pop()

    together(*(partial(work, kazoo()) for _ in range(3)))
    assert max(most) == 1
    assert len(most) == 15


def test_its_lock_of_a_lost_session_goes_to_the_next(kazoo: Any, path: str) -> None:
    first, second = kazoo(), kazoo()
    assert first.Lock(path, "first").acquire(timeout=SECONDS)
    waiting = second.Lock(path, "second")
    (got, _) = together(lambda: waiting.acquire(timeout=SECONDS), first.stop)
    assert got


def test_its_read_and_write_locks(kazoo: Any, path: str) -> None:
    one, two = kazoo(), kazoo()
    with one.ReadLock(path), two.ReadLock(path):
        assert not two.WriteLock(path).acquire(blocking=False)
    assert two.WriteLock(path).acquire(timeout=SECONDS)


def test_its_counter_counts(kazoo: Any, path: str) -> None:
    def work(client: KazooClient) -> None:
        counter = client.Counter(f"{path}/counter")
        for _ in range(10):
            counter += 1

    together(*(partial(work, kazoo()) for _ in range(3)))
    assert kazoo().Counter(f"{path}/counter").value == 30


def test_its_queue_and_locking_queue(kazoo: Any, path: str) -> None:
    one, two = kazoo(), kazoo()
    queue = one.Queue(f"{path}/q")
    for number in range(5):
        queue.put(b"%d" % number, priority=100 - number)
    catch_up(two, path)  # its server may be behind the other's
    assert [two.Queue(f"{path}/q").get() for _ in range(5)] == [b"4", b"3", b"2", b"1", b"0"]
    locking = one.LockingQueue(f"{path}/lq")
    locking.put_all([b"a", b"b"])
    other = two.LockingQueue(f"{path}/lq")
    assert locking.get(SECONDS) == b"a"
    assert other.get(SECONDS) == b"b"
    assert locking.release()
    assert other.consume()
    assert other.get(SECONDS) == b"a"
    assert other.consume()
    assert len(other) == 0


def test_its_party_election_barrier_and_semaphore(kazoo: Any, path: str) -> None:
    one, two = kazoo(), kazoo()
    party = one.Party(f"{path}/party", "one")
    party.join()
    two.Party(f"{path}/party", "two").join()
    catch_up(one, path)  # its server may be behind the other's
    assert sorted(party) == ["one", "two"]
    party.leave()
    assert list(party) == ["two"]
    led: list[str] = []
    together(
        lambda: one.Election(f"{path}/election", "one").run(lambda: led.append("one")),
        lambda: two.Election(f"{path}/election", "two").run(lambda: led.append("two")),
    )
    assert sorted(led) == ["one", "two"]
    barrier = one.Barrier(f"{path}/barrier")
    barrier.create()
    (passed, _) = together(lambda: two.Barrier(f"{path}/barrier").wait(SECONDS), barrier.remove)
    assert passed
    double = [client.DoubleBarrier(f"{path}/double", 2) for client in (one, two)]
    together(*(barrier.enter for barrier in double))
    together(*(barrier.leave for barrier in double))
    first, second = (client.Semaphore(f"{path}/semaphore", max_leases=1) for client in (one, two))
    assert first.acquire(timeout=SECONDS)
    assert not second.acquire(blocking=False)
    first.release()
    assert second.acquire(timeout=SECONDS)
    second.release()


def test_its_watchers_and_cache(kazoo: Any, path: str) -> None:
    from kazoo.recipe.cache import TreeCache

    one, two = kazoo(), kazoo()
    seen: list[Any] = []
    grown = threading.Event()
    one.create(f"{path}/w", b"0")

    @one.DataWatch(f"{path}/w")
    def data(value: bytes | None, stat: Any) -> None:
        seen.append(value)
        if value == b"2":
            grown.set()

    for value in (b"1", b"2"):
        two.set(f"{path}/w", value)
    assert grown.wait(SECONDS)
    assert seen[0] == b"0"
    listed = threading.Event()

    @one.ChildrenWatch(path)
    def children(names: list[str]) -> None:
        if "x" in names:
            listed.set()

    two.create(f"{path}/x")
    assert listed.wait(SECONDS)
    cache = TreeCache(one, path)
    there = threading.Event()
    cache.listen(lambda event: there.set() if event.event_data and event.event_data.path == f"{path}/y" else None)
    cache.start()
    two.create(f"{path}/y", b"cached")
    assert there.wait(SECONDS)
    assert cache.get_data(f"{path}/y").data == b"cached"
    cache.close()


def test_its_transactions_and_errors(kazoo: Any, path: str) -> None:
    client = kazoo()
    transaction = client.transaction()
    transaction.create(f"{path}/t", b"1")
    transaction.check(f"{path}/t", 0)
    transaction.set_data(f"{path}/t", b"2")
    assert transaction.commit()[0] == f"{path}/t"
    failing = client.transaction()
    failing.create(f"{path}/u")
    failing.create(f"{path}/t")
    results = failing.commit()
    assert [type(result).__name__ for result in results] == ["RolledBackError", "NodeExistsError"]
    assert client.exists(f"{path}/u") is None
    with pytest.raises(NodeExistsError):
        client.create(path)
    assert client.command(b"ruok") == "imok"


def test_it_learns_the_version_that_a_server_speaks_as(kazoo: Any) -> None:
    assert kazoo().server_version() == (3, 9, 5)


# -- each reads what the other writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, b"", b"\x00\xff\x80", b"x" * 1_000_000], ids=["null", "empty", "bytes", "1 MB"])
def test_data_crosses(kazoo: Any, client: Any, path: str, data: bytes | None) -> None:
    other, tree = kazoo(), client.tree()
    tree.create(f"{path}/ours", data)
    catch_up(other, path)
    assert other.get(f"{path}/ours")[0] == data
    if data is not None:  # kazoo cannot send null
        other.create(f"{path}/theirs", data)
        tree.catch_up(path)  # our server may be behind theirs
        assert tree.get(f"{path}/theirs")[0] == data
    ours, theirs = tree.exists(f"{path}/ours"), other.exists(f"{path}/ours")
    assert (ours.czxid, ours.mzxid, ours.ctime, ours.mtime) == (theirs.czxid, theirs.mzxid, theirs.ctime, theirs.mtime)
    assert (ours.version, ours.cversion, ours.aversion, ours.data_length) == (0, 0, 0, len(data or b""))


def test_names_beyond_ascii_cross(kazoo: Any, client: Any, path: str) -> None:
    other, tree = kazoo(), client.tree()
    made = tree.create(f"{path}/größe-中-\u0416")
    assert made == f"{path}/größe-中-\u0416"
    catch_up(other, path)
    assert other.get_children(path) == ["größe-中-\u0416"] == tree.children(path)[0]


def test_access_lists_cross(kazoo: Any, client: Any, dial: Any, path: str) -> None:
    other, tree = kazoo(), client.tree()
    tree.create(f"{path}/ours", b"s", acl=[access.digest_acl("ann", "secret")])
    catch_up(other, path)  # its server may be behind ours
    assert access.digest_id("ann", "secret").id == make_digest_acl("ann", "secret", all=True).id.id
    for reader in (lambda: other.get(f"{path}/ours"), lambda: tree.get(f"{path}/ours")):
        with pytest.raises((NoAuthError, NoAuth)):
            reader()
    other.add_auth("digest", "ann:secret")
    assert other.get(f"{path}/ours")[0] == b"s"
    other.create(f"{path}/theirs", b"t", acl=[make_digest_acl("bob", "pass", read=True, admin=True)])
    tree.catch_up(path)
    with pytest.raises(NoAuth):
        tree.get(f"{path}/theirs")
    tree.add_auth("digest", "bob:pass")
    assert tree.get(f"{path}/theirs")[0] == b"t"
    found, stat = tree.get_acl(f"{path}/theirs")
    assert [(item.perms, item.id.scheme, item.id.id.partition(":")[0]) for item in found] == [(17, "digest", "bob")]
    assert tree.set_acl(f"{path}/theirs", access.OPEN, version=stat.aversion).aversion == stat.aversion + 1
    assert kazoo().get(f"{path}/theirs")[0] == b"t"
    tree.add_auth("digest", "ann:secret")
    assert {"ann", "bob"} <= {who.user.partition(":")[0] for who in tree.whoami()}
    with dial(user="ann", password="secret") as again:
        assert again.tree().get(f"{path}/ours")[0] == b"s"


def test_an_id_beyond_the_first_plane_comes_back(seat: Seat, client: Any, path: str) -> None:
    if seat.place.broker_name.endswith("-ensemble"):
        pytest.skip("its servers spoil such text among themselves: they write surrogates as jute does and read UTF-8")
    strange = ACL(perms=31, id=Id(scheme="digest", id="smile\U0001f600:x"))
    client.tree().create(f"{path}/acl", acl=[*access.OPEN, strange])
    found, _ = client.tree().get_acl(f"{path}/acl")
    assert found[1] == strange


def test_ephemerals_go_with_their_client(kazoo: Any, client: Any, dial: Any, path: str) -> None:
    other, tree = kazoo(), client.tree()
    short = dial()
    short.tree().create(f"{path}/ours", ephemeral=True)
    assert short.tree().ephemerals(path) == [f"{path}/ours"]
    catch_up(other, path)  # the servers of the three may be apart
    tree.catch_up(path)
    assert other.exists(f"{path}/ours").owner_session_id == short.tree().session[0]
    watch = tree.watch()
    tree.exists(f"{path}/ours", watch=watch)
    short.close()
    event = watch.wait(SECONDS)
    assert event is not None
    assert event.type == EventType.NODE_DELETED
    catch_up(other, path)
    assert other.exists(f"{path}/ours") is None
    other.create(f"{path}/theirs", ephemeral=True)
    tree.catch_up(path)
    watch = tree.watch()
    tree.get(f"{path}/theirs", watch=watch)
    other.stop()
    assert watch.wait(SECONDS) is not None


def test_watches_fire_across(kazoo: Any, client: Any, path: str) -> None:
    other, tree = kazoo(), client.tree()
    kazoo_saw: list[KazooEvent] = []
    told = threading.Event()

    def note(event: KazooEvent) -> None:
        kazoo_saw.append(event)
        told.set()

    other.get(path, watch=note)
    tree.set(path, b"ours")
    assert told.wait(SECONDS)
    assert (kazoo_saw[0].type, kazoo_saw[0].path) == ("CHANGED", path)
    data, child, missing = tree.watch(), tree.watch(), tree.watch()
    tree.get(path, watch=data)
    tree.children(path, watch=child)
    assert tree.exists(f"{path}/new", watch=missing) is None
    other.set(path, b"theirs")
    other.create(f"{path}/new")
    seen = [(watch.wait(SECONDS).type, watch.wait(0).path) for watch in (data, child, missing)]
    assert seen == [
        (EventType.NODE_DATA_CHANGED, path),
        (EventType.NODE_CHILDREN_CHANGED, path),
        (EventType.NODE_CREATED, f"{path}/new"),
    ]


def test_persistent_watches_stay(kazoo: Any, client: Any, path: str) -> None:
    other, tree = kazoo(), client.tree()
    seen: list[tuple[EventType, str]] = []
    enough = threading.Event()

    def note(event: Any) -> None:
        seen.append((event.type, event.path))
        if event.path.endswith("/last"):
            enough.set()

    tree.add_watch(path, note, recursive=True)
    for number in range(3):
        other.set(path, b"%d" % number)
    other.create(f"{path}/a")
    other.create(f"{path}/a/last")
    assert enough.wait(SECONDS)
    assert seen == [(EventType.NODE_DATA_CHANGED, path)] * 3 + [
        (EventType.NODE_CREATED, f"{path}/a"),
        (EventType.NODE_CREATED, f"{path}/a/last"),
    ]
    tree.remove_watch(path, note)
    other.set(path, b"unseen")
    watch = tree.watch()
    tree.get(path, watch=watch)
    other.set(path, b"seen")
    assert watch.wait(SECONDS) is not None
    assert len(seen) == 5


def test_a_locking_queue_is_shared(kazoo: Any, client: Any, path: str) -> None:
    other = kazoo()
    theirs = other.LockingQueue(f"{path}/jobs")
    with client.producer(f"{path}/jobs") as out, client.queue(f"{path}/jobs", "g") as ours:
        for number in range(4):
            out.send(b"ours %d" % number)
        out.flush()
        theirs.put(b"urgent", priority=1)
        theirs.put(b"theirs")
        assert theirs.get(SECONDS) == b"urgent"
        first = ours.receive(SECONDS)
        assert first.value == b"ours 0"  # "urgent" is taken
        assert theirs.consume()
        assert theirs.get(SECONDS) == b"ours 1"
        assert theirs.release()
        first.release()
        rest = receive_until(ours, 5)
        assert sorted(delivery.value for delivery in rest) == [b"ours 0", b"ours 1", b"ours 2", b"ours 3", b"theirs"]
        for delivery in rest:
            delivery.ack()
        assert ours.receive(0.3) is None
        catch_up(other, path)  # its server may be behind ours
        assert theirs.get(0.3) is None
    assert len(theirs) == 0
    assert [batch.values() for batch in client.reader(f"{path}/jobs", stop=LATEST)] == []


def test_every_kind_of_operation_agrees_with_kazoo(kazoo: Any, client: Any, path: str) -> None:
    other, tree = kazoo(), client.tree()
    assert tree.create(f"{path}/s-", sequence=True) == f"{path}/s-0000000000"
    assert other.create(f"{path}/s-", sequence=True) == f"{path}/s-0000000001"
    made, stat = tree.create2(f"{path}/c2", b"12")
    assert (made, stat.data_length) == (f"{path}/c2", 2)
    assert tree.create(f"{path}/container", container=True) == f"{path}/container"
    assert tree.create(f"{path}/ttl", ttl=3600.0) == f"{path}/ttl"
    assert tree.create(f"{path}/deep/er/est", b"d", parents=True) == f"{path}/deep/er/est"
    catch_up(other, path)  # its server may be behind ours
    assert other.get(f"{path}/deep/er/est")[0] == b"d"
    assert tree.count(path) == 8
    names, stat = tree.children(path)
    assert sorted(names) == sorted(other.get_children(path))
    assert (stat.cversion, stat.num_children) == (6, 6)
    assert tree.sync(path) == path == other.sync(path)
    results = tree.multi([Create(f"{path}/m"), Set(path, b"m"), Check(path, 1), Delete(f"{path}/ttl")])
    assert results[0] == f"{path}/m"
    catch_up(other, path)
    assert other.get(path)[0] == b"m"
    with pytest.raises(NoNode) as failed:
        tree.multi([Delete(f"{path}/m"), Delete(f"{path}/none"), Delete(f"{path}/c2")])
    assert failed.value.index == 1
    assert other.exists(f"{path}/m") is not None
    tree.delete(f"{path}/deep", recursive=True)
    catch_up(other, path)
    assert other.exists(f"{path}/deep") is None
