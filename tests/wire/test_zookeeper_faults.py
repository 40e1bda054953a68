"""Our ZooKeeper client against the embedded server misbehaving: lost replies, cut and corrupt frames, refusals."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import KEPT, LATE, until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import Disconnected, ProtocolError, Revoked, TimedOut, TransportError, UsageError
from wireproto.position import LATEST
from wireproto.zookeeper import acl as access
from wireproto.zookeeper.codes import AuthFailed, EventType, KeeperState, NoAuth, NodeExists, SessionExpired, Unimplemented
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.multi import Create, Delete
from wireproto.zookeeper.session import State

PROTOCOL = "zookeeper"


@pytest.fixture
def client(broker: DevBroker, faults: Faults) -> Iterator[Any]:
    with wireproto.connect(broker.url("zookeeper", f"chroot-{time.monotonic_ns()}"), timeout=10.0) as made:
        made.tree().ensure("/")
        yield made
        faults.clear()
        broker.kick("zookeeper")  # a close would wait for a server that a test has silenced


@pytest.fixture
def tree(client: Any) -> Any:
    return client.tree()


def everything(client: Any, topic: str) -> list[bytes | None]:
    return [value for batch in client.reader(topic, stop=LATEST) for value in batch.values()]


def test_a_write_whose_reply_is_lost_is_not_repeated(tree: Any, faults: Faults) -> None:
    tree.create("/n", b"0")
    faults.lose_reply("setData")
    with pytest.raises(ConnectionLoss):
        tree.set("/n", b"1")
    assert tree.get("/n")[1].version == 1
    assert faults.seen("setData") == 1


def test_a_read_whose_reply_is_lost_is_repeated(tree: Any, faults: Faults) -> None:
    tree.create("/n", b"0")
    faults.lose_reply("getData", times=3)
    assert tree.get("/n", timeout=10.0)[0] == b"0"
    assert faults.seen("getData") == 4


@pytest.mark.parametrize("fault", [{"at": 15}, {"at": 19, "mask": 0x40}, {"at": 16}], ids=["error code", "length", "negative length"])
def test_a_corrupt_reply_is_an_error_and_the_next_call_works(tree: Any, faults: Faults, fault: dict[str, int]) -> None:
    tree.create("/n", b"data")
    faults.corrupt("getData", **fault)
    with pytest.raises((ProtocolError, wireproto.WireprotoError)) as refused:
        tree.get("/n")
    assert refused.value.peer is not None
    assert tree.get("/n")[0] == b"data"


def test_a_reply_that_ends_early_is_read_again(tree: Any, faults: Faults) -> None:
    tree.create("/n", b"data")
    faults.truncate("getData", keep=20)
    assert tree.get("/n")[0] == b"data"


def test_a_reply_that_never_comes_keeps_the_timeout(tree: Any, faults: Faults) -> None:
    tree.create("/n", b"data")
    faults.drop("getData")
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        tree.get("/n", timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT
    assert tree.get("/n")[0] == b"data"


def test_an_error_code_of_the_server_is_typed(tree: Any, faults: Faults) -> None:
    faults.error("sync", -6)
    with pytest.raises(Unimplemented):
        tree.sync("/")
    faults.error("sync", -9999)
    with pytest.raises(wireproto.WireprotoError, match="-9999"):
        tree.sync("/")


def test_a_server_that_hangs_up_is_asked_again(broker: DevBroker, faults: Faults) -> None:
    faults.disconnect("createSession", times=3)
    with wireproto.connect(broker.url("zookeeper"), timeout=10.0) as client:
        assert client.tree().exists("/zookeeper") is not None
    faults.disconnect("createSession", times=-1)
    begin = time.monotonic()
    with pytest.raises(TransportError, match="zookeeper port"):
        wireproto.connect(broker.url("zookeeper"), timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT


def test_a_server_that_served_and_hangs_up_is_no_wrong_port(broker: DevBroker, client: Any, faults: Faults) -> None:
    tree = client.tree()
    tree.create("/n")
    before = faults.seen("createSession")
    faults.disconnect("createSession", times=-1)
    broker.kick("zookeeper")
    seen = tree.zxid
    until(lambda: faults.seen("createSession") > before + 1)
    with pytest.raises(TimedOut, match=f"it starts, or has no quorum, or its data is older .*zxid 0x{seen:x}") as told:
        tree.exists("/n", timeout=0.2)
    assert "port" not in told.value.text
    faults.clear()
    assert tree.exists("/n", timeout=10.0) is not None


def test_an_expired_session_is_told_once_and_a_new_one_serves(broker: DevBroker, tree: Any, faults: Faults) -> None:
    tree.create("/mine", ephemeral=True)
    before = tree.session[0]
    assert broker.call("zookeeper", "expire", before)
    with pytest.raises(SessionExpired):
        tree.exists("/mine")
    assert tree.exists("/mine") is None
    assert tree.session[0] != before


def test_a_producer_sends_again_what_was_left_unanswered(client: Any, faults: Faults) -> None:
    with client.producer("jobs") as out:
        receipts = [out.send(b"%d" % number) for number in range(5)]
        out.flush()
        faults.lose_reply("create")
        receipts += [out.send(b"%d" % number) for number in range(5, 10)]
        out.flush()
        assert [receipt.position().offset for receipt in receipts[:5]] == [0, 1, 2, 3, 4]
    got = everything(client, "jobs")
    assert list(dict.fromkeys(got)) == [b"%d" % number for number in range(10)]
    assert got.count(b"5") == 2  # it took effect and its answer was lost: told in the producer's documentation


def test_a_producer_that_must_not_repeat_reports_the_loss(client: Any, faults: Faults) -> None:
    with client.producer("jobs", repeat=False) as out:
        faults.lose_reply("create")
        receipt = out.send(b"perhaps")
        with pytest.raises(ConnectionLoss):
            receipt.position()
        out.flush()
        out.send(b"sure").position()
    assert everything(client, "jobs") == [b"perhaps", b"sure"]


def test_what_was_not_answered_when_the_session_ended_for_good_is_told_by_flush(broker: DevBroker, client: Any, faults: Faults) -> None:
    client.tree().add_auth("digest", "ann:a")
    out = client.producer("jobs")
    faults.lose_reply("create")
    faults.error("auth", -115)  # the identity, given again on the next connection, is refused: no server takes this client any more
    out.send(b"perhaps")
    with pytest.raises(AuthFailed):
        out.flush(30.0)
    out.flush(30.0)
    with pytest.raises(AuthFailed):
        out.send(b"late")
    out.close(30.0)


def test_a_claim_and_an_ack_whose_replies_are_lost_hold(client: Any, faults: Faults) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    with client.queue("jobs", "g") as queue:
        faults.lose_reply("create")
        delivery = queue.receive(5.0)
        assert delivery.value == b"one"
        faults.lose_reply("multi")
        delivery.ack()
        with pytest.raises(UsageError, match="acknowledged before"):
            delivery.ack()
    assert everything(client, "jobs") == []
    assert client.tree().children("/jobs/taken")[0] == []


@pytest.mark.parametrize("first", ["nobody", "another worker"])
def test_a_claim_that_was_cut_before_it_took_effect_is_not_taken_for_ours(
    broker: DevBroker, client: Any, faults: Faults, first: str
) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    root = client.cluster.link.root.prefix
    with wireproto.connect(broker.url("zookeeper", root.strip("/")), timeout=10.0) as other:
        with client.queue("jobs", "g") as queue, other.queue("jobs", "g") as rival:
            assert rival._tree.ensure("/jobs/taken") is False
            cut = threading.Event()
            faults.disconnect("create", when=lambda facts: cut.set() or True)
            if first == "another worker":
                faults.delay("createSession", 1.0)
                taken: list[Any] = []
                thread = threading.Thread(target=lambda: taken.append(queue.receive(2.0)))
                thread.start()
                assert cut.wait(20.0)  # … and its session is away for a second
                theirs = rival.receive(10.0)
                thread.join(20.0)
                assert theirs.value == b"one"
                assert taken == [None], "another worker has it"
                theirs.ack()
            else:
                ours = queue.receive(10.0)
                assert ours.value == b"one"
                assert rival.receive(0.5) is None, "one worker at a time"
                ours.ack()
        assert client.tree().children("/jobs/entries")[0] == []


def test_a_lost_session_revokes_what_was_in_hand(broker: DevBroker, client: Any) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    with client.queue("jobs", "g") as queue:
        delivery = queue.receive(5.0)
        broker.call("zookeeper", "expire", client.tree().session[0])
        again = queue.receive(5.0)
        assert again.value == b"one"
        with pytest.raises(Revoked):
            delivery.ack()
        again.ack()


def test_a_multi_is_all_or_nothing_on_the_embedded_server(tree: Any) -> None:
    tree.create("/a", b"")
    before = tree.get("/a")[1]
    with pytest.raises(wireproto.WireprotoError):
        tree.multi([Create("/a/b"), Create("/a/s-", sequence=True, ephemeral=True), Delete("/a/b"), Delete("/nope")])
    after = tree.get("/a")[1]
    assert (after.cversion, after.num_children, after.pzxid) == (before.cversion, before.num_children, before.pzxid)
    assert tree.ephemerals() == []
    assert tree.create("/a/s-", sequence=True) == "/a/s-0000000000"


def test_containers_and_nodes_with_a_time_to_live_are_reaped(tree: Any) -> None:
    gone: list[str] = []
    both = threading.Event()

    def note(event: Any) -> None:
        if event.type is EventType.NODE_DELETED:
            gone.append(event.path)
        if {"/c", "/t"} <= set(gone):
            both.set()

    tree.add_watch("/", note, recursive=True)
    tree.create("/c", container=True)
    tree.create("/t", ttl=0.2)
    tree.create("/c/child")
    tree.delete("/c/child")
    assert both.wait(20.0), gone


def test_the_tree_is_kept_in_a_folder(tmp_path: Any) -> None:
    with DevBroker(["zookeeper"], data_dir=tmp_path) as broker, wireproto.connect(broker.url("zookeeper")) as client:
        client.tree().create("/kept/node", b"\x00\xff", parents=True)
        client.tree().create("/kept/null", None)
        client.tree().create("/gone", ephemeral=True)
        before = client.tree().get("/kept/node")
    with DevBroker(["zookeeper"], data_dir=tmp_path) as broker, wireproto.connect(broker.url("zookeeper")) as client:
        assert client.tree().get("/kept/node") == before
        assert client.tree().get("/kept/null")[0] is None
        assert client.tree().exists("/gone") is None
        assert client.tree().create("/kept/s-", sequence=True) == "/kept/s-0000000002"


def test_disconnected_is_what_a_lost_write_is() -> None:
    assert issubclass(ConnectionLoss, Disconnected)
    assert not ConnectionLoss.retriable


def test_a_chroot_that_is_not_there_is_made(broker: DevBroker, faults: Faults) -> None:
    with wireproto.connect(broker.url("zookeeper", f"deep-{time.monotonic_ns()}/er/est")) as client:
        assert client.tree().create("/a/b", b"1", parents=True) == "/a/b"
        assert client.tree().get("/a/b")[0] == b"1"
        assert not client.tree().ensure("/a/b")
        assert client.tree().ensure("/c")


def test_a_claim_that_is_answered_late_is_gone_on_with(client: Any, faults: Faults) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    with client.queue("jobs", "g") as queue:
        faults.delay("create", 2.0)
        begin = time.monotonic()
        assert queue.receive(0.2) is None
        assert time.monotonic() - begin < 0.2 + LATE
        delivery = queue.receive(10.0)
        assert delivery.value == b"one"
        delivery.ack()
        assert client.tree().children("/jobs/taken")[0] == []


def test_a_message_that_a_worker_may_not_read_is_left_to_others_and_those_behind_it_come(broker: DevBroker, client: Any) -> None:
    """Else its claim hid it from those who may, and the worker stood still."""
    tree = client.tree()
    with client.producer("jobs") as out, client.queue("jobs") as queue, client.queue("jobs") as other:
        assert queue.receive(0.0) is None
        secret = tree.create("/jobs/entries/entry-050-", b"secret", sequence=True, acl=[access.digest_acl("ann", "secret")])
        out.send(b"one").position(20.0)
        out.send(b"two").position(20.0)
        with pytest.raises(NoAuth, match=secret):
            queue.receive(10.0)
        assert tree.children("/jobs/taken")[0] == []
        assert queue.receive(10.0).value == b"one"
        assert queue.receive(10.0).value == b"two"
        with pytest.raises(NoAuth):  # there is nothing else
            queue.receive(10.0)
        tree.add_auth("digest", "ann:secret")
        assert other.receive(10.0).value == b"secret"


def test_a_consumer_closed_with_a_claim_under_way_leaves_none(client: Any, faults: Faults) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    queue, late = client.queue("jobs", "g"), threading.Event()
    faults.delay("create", 2.5, when=lambda facts: late.set() or True)
    until(lambda: queue.receive(0.1) is None and late.is_set())
    queue.close()
    assert client.tree().children("/jobs/taken")[0] == []


@pytest.mark.parametrize("fault", ["disconnect", "lose_reply"])
def test_a_message_in_hand_is_given_back_at_close_over_a_lost_connection(client: Any, faults: Faults, fault: str) -> None:
    """Left there, the claim would hide the message as long as the session lives."""
    with client.producer("jobs") as out:
        out.send(b"one")
    queue = client.queue("jobs", "g")
    assert queue.receive(10.0).value == b"one"
    faults.clear()
    getattr(faults, fault)("delete")
    queue.close(20.0)
    assert client.tree().children("/jobs/taken")[0] == []
    done = fault == "lose_reply"
    assert (faults.seen("delete"), faults.seen("getData")) == ((1, 1) if done else (2, 1)), "who repeats asks first"


@pytest.mark.parametrize("gone", ["the claim", "the session"])
def test_giving_back_what_went_by_itself_is_quiet(broker: DevBroker, client: Any, gone: str) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    queue, tree = client.queue("jobs", "g"), client.tree()
    assert queue.receive(10.0).value == b"one"
    if gone == "the claim":
        (name,) = tree.children("/jobs/taken")[0]
        tree.delete(f"/jobs/taken/{name}")
    else:
        lost = threading.Event()
        tree.on_state(lambda event: lost.set() if event.state is State.EXPIRED else None)
        assert broker.call("zookeeper", "expire", tree.session[0])
        assert lost.wait(20.0)
    queue.close(20.0)
    assert tree.children("/jobs/taken")[0] == []


def test_a_claim_under_way_at_close_that_is_anothers_stays(broker: DevBroker, client: Any, faults: Faults) -> None:
    with client.producer("jobs") as out:
        out.send(b"one")
    queue, late = client.queue("jobs", "g"), threading.Event()
    same = broker.url("zookeeper", client.cluster.link.root.prefix.strip("/"))
    with wireproto.connect(same, timeout=10.0) as other, other.queue("jobs", "g") as rival:
        faults.delay("create", 2.5, when=lambda facts: late.set() or True)
        until(lambda: queue.receive(0.1) is None and late.is_set())
        theirs = rival.receive(10.0)
        queue.close(20.0)
        assert len(client.tree().children("/jobs/taken")[0]) == 1
        theirs.ack()
    assert everything(client, "jobs") == []


def test_deleting_a_subtree_gets_over_lost_replies(tree: Any, faults: Faults) -> None:
    tree.create("/a/b/c", b"", parents=True)
    faults.lose_reply("delete", times=2)
    tree.delete("/a", recursive=True)
    assert tree.exists("/a") is None


@pytest.mark.parametrize("lost", [1, 2, 3, 5, 8])
def test_deleting_a_queue_gets_over_lost_replies(client: Any, faults: Faults, lost: int) -> None:
    with client.producer("jobs") as out:
        for number in range(5):
            out.send(b"%d" % number)
    faults.lose_reply("delete", times=lost)
    client.admin().delete_topic("jobs")
    assert client.tree().exists("/jobs") is None
    assert faults.seen("delete") >= 8


def test_a_poll_keeps_its_timeout_when_the_server_falls_silent_within_a_run(client: Any, faults: Faults) -> None:
    """What had come is handed out, the rest is not lost, and nothing comes twice."""
    with client.producer("jobs") as out:
        for number in range(50):
            out.send(b"%d" % number)
    reader = client.reader("jobs", stop=LATEST)
    came: list[int] = []

    def tenth(_: Any) -> bool:
        came.append(1)
        return len(came) == 10

    faults.delay("getData", 3.5, when=tenth)
    first = None
    while first is None:
        first = reader.poll(0.5)
    assert 0 < len(first.values()) < 50, "the poll has not waited for the tenth"
    values = list(first.values())
    empty = 0
    for _ in range(200):
        batch = reader.poll(0.1)
        if batch is not None:
            values += batch.values()
        elif len(values) < 50:
            empty += 1
        if reader.done:
            break
    assert values == [b"%d" % number for number in range(50)]
    assert empty > 3, "as many polls came back in time while the tenth was waited for"
    assert faults.seen("getData") == 50


def test_a_poll_keeps_its_timeout_when_no_answer_comes_at_all(client: Any, faults: Faults) -> None:
    with client.producer("jobs") as out:
        for number in range(50):
            out.send(b"%d" % number)
    reader = client.reader("jobs", stop=LATEST)
    faults.stall("getData")
    begin = time.monotonic()
    assert reader.poll(0.3) is None
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT
    begin = time.monotonic()
    assert reader.poll(0) is None
    assert time.monotonic() - begin < KEPT


@pytest.mark.parametrize("fault", ["lose_reply", "disconnect"])
def test_creating_a_queue_gets_over_a_lost_connection(client: Any, faults: Faults, fault: str) -> None:
    getattr(faults, fault)("multi", times=2)
    client.admin().create_topic("made")
    assert client.admin().list_topics() == ["/made"]
    with pytest.raises(NodeExists):
        client.admin().create_topic("made")


def test_listing_queues_keeps_its_timeout(client: Any, faults: Faults) -> None:
    client.admin().create_topic("made")
    faults.stall("exists")
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        client.admin().list_topics(timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT


def test_a_watch_whose_answer_was_just_read_is_armed_again_on_the_next_connection(broker: DevBroker, tree: Any, faults: Faults) -> None:
    """The I/O thread, which notes it, comes to it only when the next connection is being made."""
    tree.create("/n", b"0")
    gone, back = threading.Event(), threading.Event()
    tree.on_state(
        lambda event: (
            gone.set() if event.state is State.SUSPENDED else back.set() if gone.is_set() and event.state is State.CONNECTED else None
        )
    )
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(20.0)

    watch = tree.watch()
    tree._link._loop.call_soon(hold)
    assert held.wait(20.0)
    try:
        tree.get("/n", watch=watch)
        faults.disconnect("exists")
        reader = threading.Thread(target=lambda: tree.exists("/n"))
        reader.start()
        back.wait(0.5)  # a client that does not wait for its keeper is back by then, without the watch
    finally:
        go_on.set()
    reader.join(20.0)
    assert tree.has_watch("/n")
    tree.set("/n", b"1")
    assert watch.wait(10.0) is not None


def test_a_watch_whose_answer_was_just_read_is_told_of_the_end(broker: DevBroker, faults: Faults) -> None:
    client = wireproto.connect(broker.url("zookeeper", f"chroot-{time.monotonic_ns()}"), timeout=10.0)
    client.tree().ensure("/")
    watch = client.tree().watch()
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(20.0)

    client.loop.call_soon(hold)
    assert held.wait(20.0)
    client.tree().get("/", watch=watch)
    threading.Timer(0.2, go_on.set).start()
    client.close(10.0)
    event = watch.wait(0.0)
    assert event is not None
    assert event.state is KeeperState.CLOSED


def test_a_message_at_which_servers_hang_up_fails_alone_and_its_neighbours_are_stored(client: Any, faults: Faults, seen: Any) -> None:
    """As they do at one that is larger than their jute.maxbuffer. The answers of those before it go under once, too."""

    def large(facts: Any) -> bool:
        return next(len(one.frame) > 100_000 for one in reversed(seen.requests("create")) if one.header.xid == facts["xid"])

    values = [b"before-%d" % index for index in range(20)] + [bytes(300_000)] + [b"behind-%d" % index for index in range(20)]
    with client.producer("jobs") as out:
        faults.lose_reply("create", when=lambda facts: not large(facts))
        at_big = faults.disconnect("create", times=-1, when=large)
        receipts = [out.send(value) for value in values]
        with pytest.raises(ConnectionLoss, match=r"of 300\d\d\d bytes: is it more than the servers' jute.maxbuffer"):
            receipts[20].position(timeout=20.0)
        for index, receipt in enumerate(receipts):
            if index != 20:
                receipt.position(timeout=20.0)
        out.send(b"last").position(timeout=10.0)
    assert at_big.times == -1
    bigs = [one for one in seen.requests("create") if len(one.frame) > 100_000]
    assert 3 <= len(bigs) <= 5
    stored = Counter(everything(client, "jobs"))
    assert set(stored) == {*values, b"last"} - {values[20]}
    assert max(stored.values()) <= 2


def test_what_was_left_unanswered_twice_is_sent_one_by_one(seen: Any, client: Any, faults: Faults) -> None:
    """However small: what ends the connections may be any of them. Nothing fails."""
    values = [b"%d" % index for index in range(30)]
    with client.producer("jobs") as out:
        seen.clear()
        for _ in range(2):  # each time all of them have come when the connection is cut, in whatever groups they come
            faults.drop("create", times=len(values) - 1)
            faults.lose_reply("create")
        lost = faults.lose_reply("create", times=2)  # of one message, on two connections more
        receipts = [out.send(value) for value in values]
        for receipt in receipts:
            receipt.position(timeout=20.0)
    stored = Counter(everything(client, "jobs"))
    assert set(stored) == set(values)
    assert lost.times == 0
    assert sum(stored.values()) == 3 * len(values) + 2
    passed = [one for one in seen.all() if one.name == "create"]
    assert list(Counter(one.connection for one in passed if one.up).values()) == [len(values), len(values), 1, 1, len(values)]
    assert [one.up for one in passed if one.connection == passed[-1].connection] == [True, False] * len(values), "each waits for an answer"


def test_a_close_that_reaches_no_server_says_that_the_session_was_not_closed(
    broker: DevBroker, client: Any, tree: Any, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    faults.refuse(times=-1)
    broker.kick("zookeeper")
    until(lambda: tree.state is not State.CONNECTED)
    with caplog.at_level("INFO", logger="wireproto.zookeeper"):
        client.close(timeout=1.0)
    assert "the session was not closed at the server: none was reached" in caplog.text
