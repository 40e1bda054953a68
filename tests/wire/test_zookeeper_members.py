"""Several members of an embedded ensemble: one tree, sessions that move between them, and what one of them alone does not do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patience import until
from wireproto.devbroker import DevBroker
from wireproto.errors import AuthError, OptionError, TransportError
from wireproto.zookeeper.codes import EventType, NotReadOnly, SessionExpired
from wireproto.zookeeper.session import State

PROTOCOL, SECONDS = "zookeeper", 20.0
MEMBERS = ("main", "member-2", "member-3")
CLIENT = {"timeout": SECONDS, "shuffle": False}


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["zookeeper"], nodes={"zookeeper.members": len(MEMBERS)}) as made:
        yield made


@pytest.fixture
def at(broker: DevBroker, dial: Any) -> Callable[..., Any]:
    """A client of one member alone."""
    return lambda member, **options: dial(f"zookeeper://{broker.address('zookeeper', member)}", **options)


@pytest.fixture
def node(at: Any) -> str:
    return str(at("member-3").tree().create(f"/m-{time.monotonic_ns()}", b"0"))


class Told:
    """What a tree's listener is told."""

    def __init__(self, tree: Any) -> None:
        self.states: list[State] = []
        tree.on_state(lambda event: self.states.append(event.state))

    def wait(self, *states: State) -> None:
        """Until these are the last."""
        until(lambda: self.states[-len(states) :] == list(states), limit=SECONDS)


def test_an_ensembles_url_names_its_members_and_each_shows_the_one_tree(broker: DevBroker, at: Any, node: str) -> None:
    assert list(broker.listeners("zookeeper")) == list(MEMBERS)
    addresses = [broker.address("zookeeper", member) for member in MEMBERS]
    assert len(set(addresses)) == 3
    assert broker.url("zookeeper", "/x") == f"zookeeper://{','.join(addresses)}/x"
    for number, member in enumerate(MEMBERS):
        assert at(member).tree().set(node, b"%d" % number).version == number + 1
    assert at("main").tree().get(node)[0] == b"2"


def test_one_server_is_what_there_is_unless_more_are_asked_for() -> None:
    with DevBroker(["zookeeper"]) as broker:
        assert list(broker.listeners("zookeeper")) == ["main"]
    with pytest.raises(OptionError, match="1 to 9"):
        DevBroker(["zookeeper"], nodes={"zookeeper.members": 10})


def test_a_session_goes_on_at_the_next_member_with_its_nodes_and_watches(broker: DevBroker, dial: Any, at: Any, node: str) -> None:
    tree, other = dial().tree(), at("member-3").tree()
    told = Told(tree)
    tree.create(f"{node}/mine", ephemeral=True)
    watch, before = tree.watch(), tree.session
    tree.get(node, watch=watch)
    broker.pause("zookeeper", "main")
    told.wait(State.CONNECTED, State.SUSPENDED, State.CONNECTED)
    assert tree.session == before
    assert tree.link.current.peer == broker.address("zookeeper", "member-2")
    assert tree.exists(f"{node}/mine").ephemeral_owner == before[0]
    other.set(node, b"1")
    assert watch.wait(SECONDS).type == EventType.NODE_DATA_CHANGED
    broker.resume("zookeeper", "main")
    assert at("main").tree().get(node)[0] == b"1"


def test_a_kick_of_one_member_leaves_the_others_clients_alone(broker: DevBroker, at: Any, node: str) -> None:
    near, far = at("main").tree(), at("member-2").tree()
    conn = far.link.current
    told = Told(near)
    told.wait(State.CONNECTED)
    assert broker.kick("zookeeper", "main") == 1
    told.wait(State.SUSPENDED, State.CONNECTED)
    assert far.get(node)[0] == b"0"
    assert far.link.current is conn


def test_a_session_that_is_gone_on_with_elsewhere_ends_the_connection_that_had_it(broker: DevBroker, at: Any, dial: Any) -> None:
    first = at("main").tree()
    lost = threading.Event()
    first.on_state(lambda event: lost.set() if event.state is State.SUSPENDED else None)
    second = at("member-2", session=first.session).tree()
    assert lost.wait(SECONDS)
    assert second.session == first.session


def test_an_ensemble_that_is_away_comes_back_with_all_its_members(broker: DevBroker, at: Any, node: str) -> None:
    tree = at("member-2").tree()
    told = Told(tree)
    before = tree.session, broker.listeners("zookeeper")
    broker.pause("zookeeper")
    told.wait(State.SUSPENDED)
    broker.resume("zookeeper")
    told.wait(State.SUSPENDED, State.CONNECTED)
    assert (tree.session, broker.listeners("zookeeper")) == before


def test_a_member_without_a_quorum_stands_beside_others_that_have_one(broker: DevBroker, dial: Any, at: Any, node: str) -> None:
    broker.call("zookeeper", "restrict", "main", read_only=True)
    with pytest.raises(TransportError):
        at("main", timeout=1.0)
    alone = at("main", read_only=True).tree()
    with pytest.raises(NotReadOnly):
        alone.set(node, b"1")
    assert at("member-2").tree().set(node, b"1").version == 1
    tree = dial(read_only=True).tree()
    told = Told(tree)
    told.wait(State.CONNECTED)
    assert State.EXPIRED not in told.states
    assert tree.set(node, b"2").version == 2
    broker.call("zookeeper", "restrict", "main", read_only=False)
    assert at("main").tree().set(node, b"3").version == 3


def test_a_session_of_a_member_without_a_quorum_is_not_known_to_the_others(broker: DevBroker, at: Any, node: str) -> None:
    broker.call("zookeeper", "restrict", "main", read_only=True)
    number, password = at("main", read_only=True).tree().session
    with pytest.raises(SessionExpired):
        at("member-2", session=(number, password))


def test_one_member_may_want_an_identity(broker: DevBroker, at: Any, node: str) -> None:
    near, far = at("main").tree(), at("member-2").tree()
    conn, told = near.link.current, Told(far)
    told.wait(State.CONNECTED)
    broker.call("zookeeper", "restrict", "member-2", wants_identity=True)
    told.wait(State.SUSPENDED, State.CONNECTED)
    with pytest.raises(AuthError):
        far.get(node)
    assert near.get(node)[0] == b"0"
    assert near.link.current is conn, "nobody is sent away from the others"


def test_a_session_is_ended_at_another_member_that_wants_an_identity(broker: DevBroker, dial: Any, at: Any, faults: Any, node: str) -> None:
    client = dial(user="ann", password="secret", session_timeout=30.0)
    client.tree().create(f"{node}/mine", ephemeral=True)
    for member in MEMBERS[1:]:
        broker.call("zookeeper", "restrict", member, wants_identity=True)
    faults.disconnect("closeSession", times=-1, when=lambda facts: facts["member"] == "main")
    client.close()
    faults.clear()
    assert at("main").tree().exists(f"{node}/mine") is None


def test_a_member_that_is_behind_takes_nobody_who_has_seen_more(broker: DevBroker, dial: Any, at: Any, node: str) -> None:
    tree = dial().tree()
    told = Told(tree)
    told.wait(State.CONNECTED)
    assert tree.get(node)[0] == b"0"
    broker.call("zookeeper", "restrict", "member-2", behind=1)
    broker.pause("zookeeper", "main")
    told.wait(State.SUSPENDED, State.CONNECTED)
    assert tree.link.current.peer == broker.address("zookeeper", "member-3")
    assert at("member-2").tree().exists("/") is not None, "who has seen nothing is welcome"
    broker.call("zookeeper", "restrict", "member-2", behind=0)
    broker.pause("zookeeper", "member-3")
    assert tree.get(node)[0] == b"0"
    assert tree.link.current.peer == broker.address("zookeeper", "member-2")


def test_an_order_may_be_for_one_member(broker: DevBroker, faults: Any, at: Any, node: str) -> None:
    faults.error("exists", -101, times=-1, when=lambda facts: facts["member"] == "member-2")
    assert at("main").tree().exists(node) is not None
    assert at("member-2").tree().exists(node) is None
