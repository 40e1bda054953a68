"""What a `timeout` may be, in every call that takes one, of every role: what is no number of seconds is refused before anything is done."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pyarrow
import pytest

import wireproto
import wireproto.aio
from wireproto import EARLIEST, LATEST
from wireproto.deadlines import NEVER, deadline_after
from wireproto.devbroker import DevBroker
from wireproto.errors import BufferFull, OptionError, RoleUnsupported, TimedOut, WireprotoError
from wireproto.kafka import messages as k
from wireproto.kafka.admin import ProducerInfo
from wireproto.kafka.transactions import OpenTransaction
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.coordinators import TransactionId
from wireproto.rocketmq import messages as r
from wireproto.rocketmq.codes import NoPermission
from wireproto.rocketmq.half import HalfMessage, Place
from wireproto.zookeeper import messages as z
from wireproto.zookeeper.multi import Delete
from wireproto.zookeeper.watch import Watch

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
NO_SECONDS: tuple[Any, ...] = (float("nan"), None, True, "5", b"5", [5])
LONG: tuple[Any, ...] = (NEVER, 10**400, 10**30)
PAST: tuple[Any, ...] = (0, -1, -NEVER, -(10**400))
BY_THEMSELVES = {
    *("partitionMetadata", "Fetch", "Heartbeat", "OffsetCommit", "flow", "ping", "HeartBeat"),
    *("PullMessage", "QueryConsumerOffset", "GetConsumerListByGroup", "GetRouteInfoByTopic", "UpdateConsumerOffset"),
}
"""Requests that roles send whatever is called."""
NOT_CALLED = {"connect", "made", "deadline", "position_in"}  # by users, with a timeout as it is
NOTHING_HELD = {"KafkaAdmin.close", "PulsarAdmin.close", "RocketAdmin.close", "QueueAdmin.close", "Tree.close"}
_numbers = itertools.count()
ANYONE = (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),)
MESSAGES = {
    "kafka": k.ListGroupsRequest(),
    "pulsar": api.CommandPartitionedTopicMetadata(topic="t", request_id=0),
    "rocketmq": r.GetMaxOffsetRequest(topic="t", queue_id=0),
    "zookeeper": z.GetDataRequest(path="/", watch=False),
}
Blocking = Callable[..., Any]  # called with a timeout


def arguments(protocol: str, topic: str, place: Any = None) -> dict[str, Any]:
    """Of every call, by their names."""
    return {
        "topic": topic,
        "name": topic,
        "group": "g",
        "path": f"/{topic}",
        "prefix": "/",
        "paths": ["/"],
        "value": b"v",
        "data": b"d",
        "message": MESSAGES[protocol],
        "where": EARLIEST,
        "at": LATEST,
        "start": EARLIEST,
        "position": place,
        "positions": None,
        "columns": pyarrow.record_batch({"value": [b"1"]}),
        "operations": [Delete("/none")],
        "acl": ANYONE,
        "callback": print,
        "scheme": "digest",
        "credential": "a:b",
        "namespace": "public/default",
        "enabled": True,
        "places": {(topic, 0): place},
        "topics": [topic],
        "names": [topic] if protocol == "kafka" else [0],
        "key": (topic, 0),
        "producer": ProducerInfo(7, 0, 0, 0, 0, 0),
        "transactions": [OpenTransaction(topic, 7, 0, True)] if protocol == "kafka" else [TransactionId(0, 7)],
        "commit": True,
        "most": 8,
    }


def calls(role: Any, given: dict[str, Any]) -> dict[str, Blocking]:
    """The role's public calls that take a timeout."""
    found: dict[str, Blocking] = {}
    for name in sorted(dir(role)):
        if name.startswith("_") or isinstance(inspect.getattr_static(type(role), name, None), property):
            continue
        call = getattr(role, name)
        if not callable(call) or name in NOT_CALLED or inspect.isgeneratorfunction(call):
            continue
        wanted = inspect.signature(getattr(type(role), name)).parameters
        if "timeout" not in wanted:
            continue
        needed = [
            one
            for one in list(wanted.values())[1:]
            if one.default is one.empty and one.name != "timeout" and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        ]
        by_name = {one.name: given[one.name] for one in needed if one.kind is one.KEYWORD_ONLY}
        if (title := f"{type(role).__name__}.{name}") not in NOTHING_HELD:
            found[title] = partial(call, *(given[one.name] for one in needed if one.name not in by_name), **by_name)
    return found


def taken(role: Any, name: str) -> Any:
    """What a reader, a consumer or a worker hands out first."""
    deadline = time.monotonic() + 30.0
    found = None
    while found is None and time.monotonic() < deadline:
        found = getattr(role, name)(1.0)
    assert found is not None
    return found


@pytest.fixture
def roles(broker: DevBroker, protocol: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """A topic with three records, and all that has calls with a timeout: each at work, with a record in hand."""
    topic = f"given-{next(_numbers)}"
    with ExitStack() as stack:
        client = stack.enter_context(wireproto.connect(broker.url(protocol)))
        client.admin().create_topic(topic)
        made = [client, client.admin()]
        if protocol != "kafka":
            made.append(stack.enter_context(client.queue(topic, "q")))
        if protocol != "zookeeper":
            made.append(stack.enter_context(client.consumer(topic, "g", start=EARLIEST)))
        made.append(stack.enter_context(client.reader(topic, start=EARLIEST)))
        producer = stack.enter_context(client.producer(topic))
        receipts = [producer.send(b"x") for _ in range(3)]
        receipts[-1].position(30.0)
        made += [taken(role, "receive" if hasattr(role, "receive") else "poll") for role in made[2:]]
        made += [producer, receipts[-1]]
        if protocol != "zookeeper":
            made.append(stack.enter_context(client.producer()))
        if protocol == "rocketmq":
            work = stack.enter_context(client.transactional("g", check=print))
            made += [work, half_of(client, work, topic)]
        if protocol == "zookeeper":
            tree = client.tree()
            made += [tree, tree.get_async("/"), Watch(client.loop)]
        yield arguments(protocol, topic, receipts[-1].position(30.0)), made


def half_of(client: Any, work: Any, topic: str) -> HalfMessage:
    """A half in hand, as this broker, which refuses them, would have stored it."""
    queue = client.cluster.route(topic, time.monotonic() + 30.0).queues[0]
    return HalfMessage(work, topic, (0, queue.broker, queue.queue_id), "A0", Place(0, 0))


def told(call: Blocking, timeout: Any) -> str:
    try:
        call(timeout=timeout)
    except OptionError as why:
        return "refused" if "a timeout is a number of seconds, not " in str(why) else str(why)
    except RoleUnsupported:
        return "refused"
    except Exception as why:
        return repr(why)
    return "done"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_no_number_of_seconds_is_refused_before_anything_is_done(
    broker: DevBroker, roles: tuple[dict[str, Any], list[Any]], protocol: str
) -> None:
    given, made = roles
    every = {name: call for role in made for name, call in calls(role, given).items()}
    seen = broker.record(protocol)
    wrong = {}
    for name, call in every.items():
        for timeout in NO_SECONDS:
            if timeout is None and name.endswith((".position", ".broker_info")):
                continue  # their own default
            if (what := told(call, timeout)) != "refused":
                wrong[f"{name}({timeout!r})"] = what
    assert not wrong
    assert {request.name for request in seen.requests()} <= BY_THEMSELVES


FOR_NEWS = (".poll", ".receive", ".wait")
"""Calls that wait for what may never come."""
LAST = (".delete_topic", ".close")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_infinite_timeout_is_one_without_an_end(roles: tuple[dict[str, Any], list[Any]], protocol: str) -> None:
    given, made = roles
    every = {name: call for role in made for name, call in calls(role, given).items()}
    wrong = {}
    for name in sorted(every, key=lambda name: (name.endswith(LAST), "Client" in name, name)):
        if name.endswith(FOR_NEWS) or name.endswith("Admin.delete_topic"):
            continue
        for timeout in LONG:
            try:
                every[name](timeout=timeout)
            except (OptionError, TimedOut, BufferFull) as why:
                wrong[f"{name}({timeout!r:.9})"] = repr(why)
            except WireprotoError:  # what the broker says to these arguments, or a role that is closed now
                pass
            except OverflowError as why:
                wrong[f"{name}({timeout!r:.9})"] = repr(why)
    assert not wrong


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wait_without_an_end_ends_when_something_comes(roles: tuple[dict[str, Any], list[Any]], protocol: str) -> None:
    _, made = roles
    producer = next(role for role in made if type(role).__name__.endswith("Producer") and hasattr(role, "topic"))
    for role in made:
        for timeout in LONG:
            if hasattr(role, "poll") or hasattr(role, "receive"):
                producer.send(b"more", timeout=timeout).position(timeout)
                assert (role.poll if hasattr(role, "poll") else role.receive)(timeout) is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_time_that_is_past_waits_for_nothing(broker: DevBroker, roles: tuple[dict[str, Any], list[Any]], protocol: str) -> None:
    given, made = roles
    every = {
        name: call
        for role in made
        for name, call in calls(role, given).items()
        if name.endswith(("Admin.describe_topic", "Admin.list_topics", "Admin.positions", "Admin.delete_topic", "Tree.get", "Tree.set"))
    }
    faults = broker.faults(protocol)
    faults.drop(None, times=-1)
    outcomes: dict[str, str] = {}
    began = time.monotonic()
    try:
        for name, call in every.items():
            for timeout in PAST:
                try:
                    call(timeout=timeout)
                except Exception as why:
                    outcomes[f"{name}({timeout!r:.9})"] = type(why).__name__
                else:
                    outcomes[f"{name}({timeout!r:.9})"] = "done"
        assert set(outcomes.values()) == {"TimedOut"}, outcomes
        assert time.monotonic() - began < 20.0, "a call waits 30 s otherwise"
    finally:
        faults.clear()
        broker.kick(protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_asyncio_refuses_the_same(broker: DevBroker, protocol: str) -> None:
    topic = f"given-{next(_numbers)}"
    wrong = {}

    async def body() -> None:
        async with wireproto.aio.connect(broker.url(protocol)) as client:
            admin, out, reader = client.admin(), client.producer(topic), client.reader(topic, start=EARLIEST)
            await admin.create_topic(topic)
            await out.send(b"1")
            assert await reader.poll(30.0) is not None
            every = {
                "client.request": partial(client.request, MESSAGES[protocol]),
                "client.close": client.close,
                "admin.describe_topic": partial(admin.describe_topic, topic),
                "admin.delete_topic": partial(admin.delete_topic, topic),
                "producer.flush": out.flush,
                "producer.send_batch": partial(out.send_batch, arguments(protocol, topic)["columns"]),
                "producer.close": out.close,
                "reader.poll": reader.poll,
                "reader.close": reader.close,
            }
            if protocol != "zookeeper":
                member = client.consumer(topic, "a", start=EARLIEST)
                assert await member.poll(30.0) is not None
                every |= {"consumer.poll": member.poll, "consumer.commit": member.commit, "consumer.close": member.close}
            if protocol != "kafka":
                worker = client.queue(topic, "b")
                await worker
                await out.send(b"2")
                held = await worker.receive(30.0)
                assert held is not None
                every |= {
                    "queue.receive": worker.receive,
                    "delivery.ack": held.ack,
                    "delivery.release": held.release,
                    "queue.close": worker.close,
                }
            if protocol == "rocketmq":
                work = await client.transactional("a", check=print)
                with pytest.raises(NoPermission):
                    await work.send(b"1", topic=topic)
                half = wireproto.aio.HalfMessage(work, HalfMessage(work._role, topic, (0, "broker", 0), "A0", Place(0, 0)))
                every |= {
                    "transactional.send": partial(work.send, b"1", topic=topic),
                    "transactional.close": work.close,
                    "half.commit": half.commit,
                    "half.abort": half.abort,
                }
            if protocol == "zookeeper":
                tree = client.tree()
                every |= {"tree.get": partial(tree.get, "/"), "tree.set": partial(tree.set, "/", b""), "watch.wait": tree.watch().wait}
            seen = broker.record(protocol)
            for name, call in every.items():
                for timeout in NO_SECONDS:
                    try:
                        await asyncio.wait_for(call(timeout=timeout), 30.0)
                    except OptionError as why:
                        what = "" if "a timeout is a number of seconds" in str(why) else str(why)
                    except Exception as why:
                        what = repr(why)
                    else:
                        what = "done"
                    if what:
                        wrong[f"{name}({timeout!r})"] = what
            assert {request.name for request in seen.requests()} <= BY_THEMSELVES
            assert not wrong
            await out.send(b"3")  # nothing was closed

    asyncio.run(body())


def test_numbers_of_every_kind() -> None:
    now = time.monotonic()
    assert all(now + 5 <= deadline_after(given) <= now + 5 + 60 for given in (5, 5.0, Fraction(5), Decimal(5)))
    assert deadline_after(NEVER) == deadline_after(10**400) == NEVER
    assert deadline_after(-NEVER) == deadline_after(-(10**400)) == -NEVER
    assert deadline_after(-1) <= time.monotonic() - 1
