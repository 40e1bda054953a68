"""What ZooKeeper's roles do with what they are given: the ensemble's members, watches beside a timeout, batches, places to go on from."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pyarrow
import pytest

from patience import KEPT, soon
from wireproto.devbroker import Faults
from wireproto.errors import BrokerError, TimedOut, ValueUnsupported
from wireproto.net.task import steps
from wireproto.position import EARLIEST, LogOffset
from wireproto.zookeeper.codes import NoAuth
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.session import State
from wireproto.zookeeper.tree import REMEMBERED, REMEMBERED_LENGTH

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}
_numbers = itertools.count()


@pytest.fixture
def node(dial: Any) -> str:
    return str(dial().tree().create("/given-", b"0", sequence=True))


# -- the tree ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"joining": "server.4=a:1:2;3"}, ("server.4=a:1:2;3", None, None, -1)),
        ({"leaving": "2,3", "config": 7}, (None, "2,3", None, 7)),
        ({"members": "server.1=b:1:2;3"}, (None, None, "server.1=b:1:2;3", -1)),
    ],
)
def test_who_joins_and_who_leaves_is_told_to_the_ensemble_once(
    dial: Any, seen: Any, faults: Faults, given: dict[str, Any], sent: tuple[Any, ...]
) -> None:
    faults.lose_reply("reconfig")
    with pytest.raises(ConnectionLoss):
        dial().tree().reconfigure(**given)
    [asked] = [one.message for one in seen.requests("reconfig")]
    assert (asked.joining_servers, asked.leaving_servers, asked.new_members, asked.cur_config_id) == sent


def test_a_call_with_a_watch_keeps_its_timeout_as_well(dial: Any, node: str, faults: Faults) -> None:
    tree = dial().tree()
    tree.add_watch(node, print)
    faults.drop(None, times=-1)
    calls: dict[str, Any] = {
        "get": lambda: tree.get(node, watch=tree.watch(), timeout=0.2),
        "exists": lambda: tree.exists(node, watch=tree.watch(), timeout=0.2),
        "children": lambda: tree.children(node, watch=tree.watch(), timeout=0.2),
        "config": lambda: tree.config(watch=tree.watch(), timeout=0.2),
        "remove_watch": lambda: tree.remove_watch(node, print, timeout=0.2),
    }
    for name, call in calls.items():
        began = time.monotonic()
        with pytest.raises(TimedOut):
            call()
        assert 0.2 <= time.monotonic() - began < 0.2 + KEPT, name


def test_calls_with_a_watch_that_do_not_wait_for_their_answer_wait_for_a_connection_in_time(dial: Any, broker: Any, node: str) -> None:
    tree = dial().tree()
    cut = threading.Event()
    tree.on_state(lambda event: cut.set() if event.state is State.SUSPENDED else None)
    broker.pause("zookeeper")
    try:
        assert cut.wait(SECONDS)
        for name in ("get_async", "exists_async", "children_async"):
            began = time.monotonic()
            with pytest.raises(TimedOut):
                getattr(tree, name)(node, watch=tree.watch(), timeout=0.2)
            assert 0.2 <= time.monotonic() - began < 0.2 + KEPT, name
    finally:
        broker.resume("zookeeper")


def test_below_a_chroot_the_steps_of_a_call_give_the_callers_path_too(dial: Any, broker: Any, node: str) -> None:
    tree = dial(broker.url("zookeeper", node.strip("/"))).tree()
    assert tree.tasks.drive(steps(tree.create_async)("/n"), soon()).result(SECONDS) == "/n"
    watch = tree.watch()
    assert tree.tasks.drive(steps(tree.get_async)("/n", watch=watch), soon()).result(SECONDS)[0] == b""
    tree.set("/n", b"1")
    assert watch.wait(SECONDS).path == "/n"


def test_what_is_kept_of_paths_is_bounded(dial: Any) -> None:
    tree = dial().tree()
    long = "/" + "x" * REMEMBERED_LENGTH
    for name in (long, *(f"/none-{number}" for number in range(REMEMBERED + 1))):
        assert tree.exists(name) is None
        assert len(tree._looks) <= REMEMBERED
    assert list(tree._looks) == [f"/none-{REMEMBERED}"]
    assert tree.exists(f"/none-{REMEMBERED}") is None


# -- the queue's roles ------------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(dial: Any) -> str:
    """A queue of twenty messages; a reader's first run asks for sixteen."""
    name = f"given-{next(_numbers)}"
    out = dial().producer(name)
    [receipt] = out.send_batch(pyarrow.record_batch({"value": [b"%d" % number for number in range(20)]}), partition=0)
    assert receipt.position(SECONDS).offset == 19
    return name


def test_a_batch_for_another_partition_is_refused_whole(dial: Any, topic: str, seen: Any) -> None:
    out = dial().producer(topic)
    seen.clear()
    for columns, given in (({"value": [b"1"]}, {"partition": 1}), ({"value": [b"1", b"2"], "key": [None, b"k"]}, {})):
        with pytest.raises(ValueUnsupported):
            out.send_batch(pyarrow.record_batch(columns), **given)
    assert out.send_batch(pyarrow.record_batch({"value": pyarrow.array([], pyarrow.binary())})) == []
    out.flush()
    assert not seen.requests("create")


def read(reader: Any, count: int) -> list[bytes]:
    """So many values, one `poll` after the other."""
    found: list[bytes] = []
    deadline = soon()
    while len(found) < count and time.monotonic() < deadline:
        batch = reader.poll(1.0)
        found += batch.values() if batch is not None else []
    return found


def test_a_seek_forgets_what_was_found_where_it_comes_from(dial: Any, topic: str) -> None:
    with dial().reader(topic) as reader:
        assert read(reader, 1)[:2] == [b"0", b"1"]
        reader.seek(EARLIEST)
        assert read(reader, 20) == [b"%d" % number for number in range(20)]
        reader.seek(LogOffset(topic, 0, 18))
        assert read(reader, 2) == [b"18", b"19"]


def test_a_seek_forgets_what_was_asked_for_and_did_not_come(dial: Any, topic: str, faults: Faults) -> None:
    with dial().reader(topic) as reader:
        faults.delay("getData", 3.0)
        assert reader.poll(0.0) is None
        reader.seek(LogOffset(topic, 0, 18))
        assert read(reader, 2) == [b"18", b"19"]


def test_what_was_asked_for_when_the_session_ended_is_read_once_and_in_order(dial: Any, broker: Any, topic: str, faults: Faults) -> None:
    client = dial()
    with client.reader(topic) as reader:
        faults.drop("getData", times=-1)
        assert reader.poll(0.0) is None
        faults.clear()
        assert broker.call("zookeeper", "expire", client.tree().session[0])
        found: list[bytes] = []
        deadline = soon()
        while len(found) < 20 and time.monotonic() < deadline:
            try:
                found += read(reader, 20 - len(found))
            except BrokerError:
                continue  # the session's end, told once
        assert found == [b"%d" % number for number in range(20)]


def test_a_message_that_cannot_be_read_is_told_and_asked_for_again(dial: Any, topic: str, faults: Faults) -> None:
    with dial().reader(topic) as reader:
        faults.error("getData", NoAuth.code)
        with pytest.raises(NoAuth):
            reader.poll(SECONDS)
        assert read(reader, 20) == [b"%d" % number for number in range(20)]


def test_a_seek_keeps_its_timeout_and_its_place(dial: Any, topic: str, faults: Faults) -> None:
    with dial().reader(topic) as reader:
        assert read(reader, 1)[0] == b"0"
        place = reader.positions
        faults.drop(None, times=-1)
        began = time.monotonic()
        with pytest.raises(TimedOut) as caught:
            reader.seek(EARLIEST, timeout=0.2)
        assert time.monotonic() - began >= 0.2
        assert not caught.value.text.startswith("not done in time"), "ended from outside: it does not keep its time itself"
        faults.clear()
        assert reader.positions == place


def test_a_poll_waits_as_long_as_it_is_told_and_no_longer(dial: Any, topic: str) -> None:
    with dial().reader(topic) as reader:
        assert len(read(reader, 20)) == 20
        began = time.monotonic()
        assert reader.poll(0.2) is None
        assert 0.2 <= time.monotonic() - began < 0.2 + KEPT
