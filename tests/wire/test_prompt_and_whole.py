"""Who waits for a record does not wait for company; a row that cannot go is refused; a reply that cannot be read costs its connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import KEPT
from wireproto import LATEST
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.errors import ProtocolError, ValueUnsupported
from wireproto.zookeeper import multi
from wireproto.zookeeper.paths import Chroot

LIMITED = {"kafka": {"max_request_size": 4096}, "rocketmq": {"max_message_size": 4096}}


@pytest.fixture(params=["kafka", "pulsar", "rocketmq"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with DevBroker([request.param]) as broker, wireproto.connect(broker.url(request.param), timeout=10.0) as made:
        made.admin().create_topic("t")
        yield made


def test_who_asks_for_a_position_waits_for_no_company(client: Any) -> None:
    with client.producer("t", linger=60.0) as out:
        receipt = out.send(b"x")
        assert not receipt.done
        began = time.monotonic()
        receipt.position(20.0)
        assert time.monotonic() - began < KEPT
        later = out.send(b"y")
        began = time.monotonic()
        out.flush(20.0)
        assert later.done
        assert time.monotonic() - began < KEPT


@pytest.mark.parametrize("client", LIMITED, indirect=True)
def test_a_row_that_cannot_go_is_refused_and_no_other_is_taken(client: Any) -> None:
    with client.producer("t", **LIMITED[client.protocol]) as out:
        with pytest.raises(ValueUnsupported):
            out.send_batch(Columns.from_rows([b"a", b"b" * 8192, b"c"]))
        out.flush(10.0)
        assert len(out.send_batch(Columns.from_rows([b"d"]))) == 1
        out.flush(10.0)
    with client.reader("t", stop=LATEST) as reader:
        found = [record.value for batch in reader for record in batch]
    assert found == [b"d"]


@pytest.mark.parametrize("form", ["waits", "async"])
def test_a_reply_that_is_none_costs_its_connection_and_no_more(form: str) -> None:
    with DevBroker(["zookeeper"]) as broker, wireproto.connect(broker.url("zookeeper"), timeout=10.0) as client:
        tree = client.tree()
        tree.create("/n", b"data")
        [before] = client.loop.connections
        broker.faults("zookeeper").corrupt("getData", at=19)  # the length of the data
        with pytest.raises(ProtocolError) as refused:
            tree.get("/n") if form == "waits" else tree.get_async("/n").result(10.0)
        assert refused.value.peer == before.peer
        assert before.closed
        assert tree.get("/n")[0] == b"data"


def test_a_multi_ends_as_servers_read_it() -> None:
    end = (-1).to_bytes(4, "big", signed=True) + b"\1" + (-1).to_bytes(4, "big", signed=True)
    asked = multi.request([multi.Delete("/n", 3)], Chroot(""))
    head = (2).to_bytes(4, "big") + b"\0" + (-1).to_bytes(4, "big", signed=True)
    record = (2).to_bytes(4, "big") + b"/n" + (3).to_bytes(4, "big")
    assert asked.body == head + record + end
