"""Each option of the ZooKeeper client and its roles, seen on the wire or in what a role does."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import wireproto
from patience import KEPT, until
from wireproto._net import Connection
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import BufferFull, OptionError, RoleUnsupported, TimedOut, ValueUnsupported
from wireproto.position import EARLIEST, LATEST
from wireproto.zookeeper import acl as access
from wireproto.zookeeper.codes import NoAuth
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.messages import CreateRequest
from wireproto.zookeeper.multi import Create
from wireproto.zookeeper.producer import QueueProducer, QueueReceipt

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def topic() -> str:
    return f"q-{time.monotonic_ns()}"


def asked(seen: Any) -> Any:
    """The last ConnectRequest."""
    return seen.requests("createSession")[-1].message


def made(seen: Any, under: str) -> list[Any]:
    """CreateRequests for nodes below a path."""
    return [request.message for request in seen.requests("create") if request.message.path.startswith(under)]


# -- the session ------------------------------------------------------------------------------------------------------------


def test_the_time_out_wanted_is_asked_for(dial: Any, seen: Any) -> None:
    assert dial(session_timeout=7.5).tree().session_timeout == 7.5
    assert asked(seen).time_out == 7500


@pytest.mark.parametrize("wanted", [True, False])
def test_a_server_without_quorum_is_taken_where_that_will_do(dial: Any, seen: Any, wanted: bool) -> None:
    dial(read_only=wanted)
    assert asked(seen).read_only is wanted


def test_a_session_is_gone_on_with(dial: Any, seen: Any) -> None:
    first = dial().tree()
    first.create(path := f"/mine-{time.monotonic_ns()}", ephemeral=True)
    second = dial(session=first.session).tree()
    assert (asked(seen).session_id, bytes(asked(seen).passwd)) == first.session == second.session
    assert second.ephemerals(path) == [path]


def test_servers_are_tried_in_random_order_or_as_they_are_named(broker: DevBroker, dial: Any) -> None:
    with DevBroker(["zookeeper"]) as other:
        recordings = [broker.record("zookeeper"), other.record("zookeeper")]
        url = f"zookeeper://{broker.address('zookeeper')},{other.address('zookeeper')}"

        def met() -> list[int]:
            return [len(recording.requests("createSession")) for recording in recordings]

        for _ in range(8):
            wireproto.connect(url, shuffle=False).close()
        assert met() == [8, 0]
        for _ in range(64):
            wireproto.connect(url).close()
            if met()[1]:
                break
        assert met()[1] == 1, "by chance alone once in 2^64"


def test_a_request_beyond_the_servers_limit_is_not_sent(dial: Any, seen: Any) -> None:
    tree = dial(max_frame=2048).tree()
    tree.create(path := f"/n-{time.monotonic_ns()}")
    tree.set(path, b"x" * 1900)
    with pytest.raises(ValueUnsupported, match=r"servers take at most 2048 \(jute.maxbuffer\)"):
        tree.set(path, b"x" * 2048)
    assert len(seen.requests("setData")) == 1
    assert dial(max_frame=4096).tree().set(path, b"x" * 2048).data_length == 2048


def test_a_user_is_a_digest_identity(dial: Any, seen: Any) -> None:
    tree = dial(user="ann", password="secret").tree()
    assert [bytes(request.message.auth) for request in seen.requests("auth")] == [b"ann:secret"]
    assert ("digest", "ann") in {(who.auth_scheme, who.user) for who in tree.whoami()}


@pytest.mark.parametrize("wrong", [{"session_timeout": 0}, {"max_frame": 1000}, {"session": (1,)}, {"session": 7}, {"user": "ann"}])
def test_options_that_make_no_sense_are_refused(broker: DevBroker, wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        wireproto.connect(broker.url("zookeeper"), **wrong)


@pytest.mark.parametrize("wrong", ["nobody", (), 7, ["world:anyone"]])
def test_an_access_list_that_is_none_is_refused(broker: DevBroker, wrong: Any) -> None:
    with pytest.raises((OptionError, TypeError)):
        wireproto.connect(broker.url("zookeeper"), acl=wrong)


@pytest.mark.parametrize("given", ["creator", access.CREATOR_ALL])
def test_the_clients_access_list_is_that_of_all_it_creates_without_another(dial: Any, seen: Any, topic: str, given: Any) -> None:
    client = dial(user="ann", password="secret", acl=given)
    tree = client.tree()
    tree.create(f"/{topic}/a/b", parents=True)
    tree.create2(f"/{topic}/a/c")
    tree.create_async(f"/{topic}/a/d").result()
    tree.ensure(f"/{topic}/e")
    tree.multi([Create(f"/{topic}/f")])
    tree.session_scope().create(f"/{topic}/g")
    client.admin().create_topic(f"{topic}/admins")
    client.producer(f"{topic}/producers").send(b"").position()
    client.queue(f"{topic}/producers").receive(5.0).ack()
    client.queue(f"{topic}/workers").receive(0.0)
    requests = made(seen, f"/{topic}")
    assert len(requests) == 15
    assert all(request.acl == access.CREATOR_ALL for request in requests)
    assert [tree.get_acl(f"/{topic}/{name}")[0][0].id.scheme for name in ("a/c", "f", "admins/taken")] == ["digest"] * 3
    tree.create(f"/{topic}/open", acl=access.OPEN)
    tree.multi([Create(f"/{topic}/open2", acl=access.OPEN)])
    assert [tree.get_acl(f"/{topic}/{name}")[0] for name in ("open", "open2")] == [access.OPEN] * 2
    with pytest.raises(NoAuth):
        dial().tree().get(f"/{topic}/a")


def test_a_queue_may_have_an_access_list_of_its_own(dial: Any, seen: Any, topic: str) -> None:
    client = dial(user="ann", password="secret")
    client.admin().create_topic(f"{topic}/admins", acl=access.CREATOR_ALL)
    client.producer(f"{topic}/producers", acl=access.CREATOR_ALL).send(b"").position()
    client.queue(f"{topic}/producers", acl=access.CREATOR_ALL).receive(5.0).ack()
    client.queue(f"{topic}/workers", acl=access.CREATOR_ALL).receive(0.0)
    assert all(request.acl == access.CREATOR_ALL for request in made(seen, f"/{topic}/"))
    assert len(made(seen, f"/{topic}/producers/taken/")) == 1
    nodes = [f"/{topic}", *(f"/{topic}/admins{part}" for part in ("", "/entries", "/taken"))]
    assert [client.tree().get_acl(node)[0][0].id.scheme for node in nodes] == ["digest"] * 4


# -- the producer -----------------------------------------------------------------------------------------------------------


def test_a_priority_is_in_the_messages_name(dial: Any, seen: Any, topic: str) -> None:
    client = dial()
    for priority in (7, 999):
        client.producer(topic, priority=priority).send(b"").position()
    client.producer(topic).send(b"").position()
    names = [request.path.rpartition("/")[2] for request in made(seen, f"/{topic}/entries/")]
    assert names == ["entry-007-", "entry-999-", "entry-100-"]


def test_an_access_list_is_that_of_every_node_made(dial: Any, seen: Any, topic: str) -> None:
    client = dial(user="ann", password="secret")
    client.producer(topic, acl=access.CREATOR_ALL).send(b"").position()
    requests = made(seen, f"/{topic}")
    assert len(requests) == 4  # queue, entries, taken, the message
    assert all(request.acl == access.CREATOR_ALL for request in requests)


def test_what_waits_for_an_answer_is_bounded(dial: Any, faults: Faults, topic: str) -> None:
    client = dial(buffer_memory=1 << 16)
    out = client.producer(topic)
    faults.stall("create")
    for _ in range(6):  # of 10 kB and a little, so that a seventh does not fit into 64 kB
        out.send(b"x" * 10_000, timeout=0.0)
    with pytest.raises(BufferFull):
        out.send(b"x" * 10_000, timeout=0.0)


def test_a_receipt_waits_as_long_as_a_delivery_may_take(dial: Any, faults: Faults, topic: str) -> None:
    client = dial()
    out = client.producer(topic, delivery_timeout=0.3)
    faults.stall("create")
    receipt = out.send(b"")
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        receipt.position()
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT
    faults.clear()


def test_a_send_takes_in_the_answers_that_have_come(dial: Any, topic: str) -> None:
    """So that what is done holds no room, though nobody waits for it."""
    out = dial().producer(topic)
    first = out.send(b"")
    until(lambda: out.send(b"") is not None and first.done, "it is known by the sends that follow", 20.0)
    assert first.position(0.0).offset == 0


def test_what_is_on_its_way_is_not_looked_at_again_while_its_connection_stands(
    dial: Any, faults: Faults, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a send would cost the more, the more are unanswered."""
    looked: list[QueueReceipt] = []
    own = QueueProducer._to_send

    def to_send(self: QueueProducer, receipt: QueueReceipt, conn: Connection) -> bool:
        looked.append(receipt)
        return own(self, receipt, conn)

    monkeypatch.setattr(QueueProducer, "_to_send", to_send)
    out = dial().producer(topic)
    faults.stall("create", times=-1)
    sent = [out.send(b"") for _ in range(50)]
    assert looked == sent, "each once, when it is sent"
    assert out.unsettled() == 50
    faults.clear()


def test_making_a_producer_keeps_its_timeout(dial: Any, faults: Faults, topic: str) -> None:
    client = dial()
    faults.stall("exists")
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        client.producer(topic, timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT


def test_a_producer_that_must_not_repeat_sends_each_message_once(dial: Any, faults: Faults, seen: Any, topic: str) -> None:
    """Also those behind the one whose answer was lost, and also when the next connection is there before anybody asks."""
    client = dial()
    out = client.producer(topic, repeat=False)
    faults.lose_reply("create")
    receipts: list[Any] = []
    sent_both = threading.Event()

    def send() -> None:
        """In the I/O thread: both are on their way before it hears of the loss, and nobody reads meanwhile."""
        receipts.extend([out.send(b"one"), out.send(b"two")])
        sent_both.set()

    client.loop.call_soon(send)
    assert sent_both.wait(SECONDS)
    seen.wait("createSession", 2, timeout=SECONDS)
    for receipt in receipts:
        with pytest.raises(ConnectionLoss):
            receipt.position()
    sent = [bytes(request.data) for request in made(seen, f"/{topic}/entries/")]
    assert sorted(set(sent)) == sorted(sent), "each at most once"
    assert b"one" in sent
    out.send(b"three").position()
    out.flush()


def test_a_producer_that_may_repeat_does(dial: Any, faults: Faults, seen: Any, topic: str) -> None:
    client = dial()
    out = client.producer(topic, repeat=True)
    faults.lose_reply("create")
    out.send(b"one").position()
    assert [bytes(request.data) for request in made(seen, f"/{topic}/entries/")] == [b"one", b"one"]


# -- the reader, the queue, requests ----------------------------------------------------------------------------------------


def test_a_reader_begins_and_ends_where_it_is_told(dial: Any, topic: str) -> None:
    client = dial()
    with client.producer(topic) as out:
        positions = [out.send(b"%d" % number).position() for number in range(6)]

    def read(**options: Any) -> list[bytes | None]:
        return [value for batch in client.reader(topic, **{"stop": LATEST} | options) for value in batch.values()]

    assert read(start=EARLIEST) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert read(start={(topic, 0): positions[2]}) == [b"2", b"3", b"4", b"5"]
    assert read(start={(topic, 0): positions[2]}, stop={(topic, 0): positions[4]}) == [b"2", b"3"]


def test_making_a_reader_keeps_its_timeout(dial: Any, faults: Faults, topic: str) -> None:
    client = dial()
    client.producer(topic)
    faults.stall(None, times=-1, when=lambda facts: facts.get("type") in (3, 4, 8, 12))
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        client.reader(topic, start=LATEST, timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT
    faults.clear()


def test_a_claim_carries_the_workers_group(dial: Any, seen: Any, topic: str) -> None:
    client = dial()
    client.producer(topic).send(b"").position()
    with client.queue(topic, "diggers") as queue:
        assert queue.receive(SECONDS) is not None
    (claim,) = made(seen, f"/{topic}/taken/")
    assert bytes(claim.data).startswith(b"diggers/")


def test_an_option_of_another_role_is_refused(dial: Any, topic: str) -> None:
    client = dial()
    for make in (client.producer, client.queue, client.reader):
        with pytest.raises(OptionError, match="has no option 'linger'"):
            make(topic, linger=1.0)
    with pytest.raises(RoleUnsupported):
        client.consumer(topic, "group")


def test_a_request_may_name_its_operation_and_keeps_its_timeout(dial: Any, faults: Faults, seen: Any) -> None:
    client = dial()
    record = CreateRequest(path=f"/r-{time.monotonic_ns()}", data=b"r", acl=access.OPEN, flags=0)
    assert client.request(record, operation="create2").stat.data_length == 1
    assert len(seen.requests("create2")) == 1
    faults.stall("create")
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        client.request(record, timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT
