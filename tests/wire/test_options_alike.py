"""One word for one idea, over four protocols and all of their roles: what a role takes, and what it refuses.

On the dev broker. What an option *does* is told by each protocol's own tests; here: that the same word is there, with the same meaning, and
that what is no option of a role is refused, be it another role's, another protocol's or the client's.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import pytest

import wireproto
from patience import until
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError, RoleUnsupported, TimedOut, TransportError, UsageError
from wireproto.kafka.options import KafkaOptions
from wireproto.net.options import CommonOptions, hints
from wireproto.pulsar.options import PulsarOptions
from wireproto.rocketmq.options import RocketOptions
from wireproto.zookeeper.options import ZooKeeperOptions

OPTIONS: dict[str, type[CommonOptions]] = {
    "kafka": KafkaOptions,
    "pulsar": PulsarOptions,
    "rocketmq": RocketOptions,
    "zookeeper": ZooKeeperOptions,
}
PROTOCOLS = tuple(OPTIONS)
LOGS = ("kafka", "pulsar", "rocketmq")  # with groups that have positions
ROLES = ("producer", "reader", "consumer", "queue")
SEATS = [(protocol, role) for protocol in PROTOCOLS for role in ROLES if role in OPTIONS[protocol].ROLES]
NAMES = sorted({name for kind in OPTIONS.values() for name in hints(kind)})
CAME = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(protocols=PROTOCOLS) as broker:
        yield broker


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def topic_of(client: wireproto.Client, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = "alike-" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    client.admin().create_topic(name)
    return name


def maker(client: Any, role: str, topic: str) -> Callable[..., Any]:
    """Makes the role with the options given."""
    made = getattr(client, role)
    return (lambda **more: made(topic, "group", **more)) if role in ("consumer", "queue") else (lambda **more: made(topic, **more))


def some(kind: Any) -> Any:
    """A value that an option of this type takes."""
    if get_origin(kind) is Callable:
        return print
    choices = [choice for choice in get_args(kind) if choice is not type(None)]
    if choices:
        return choices[0] if isinstance(choices[0], str) else some(choices[0])
    return {bool: True, int: 1 << 20, float: 7.0, str: "x"}.get(kind, "x")


@pytest.mark.parametrize(("protocol", "role"), SEATS)
def test_a_role_refuses_every_option_that_is_not_its_own(
    broker: DevBroker, request: pytest.FixtureRequest, protocol: str, role: str
) -> None:
    kinds = {name: kind for options in OPTIONS.values() for name, kind in hints(options).items()}
    with wireproto.connect(broker.url(protocol)) as client:
        topic = topic_of(client, request)
        make = maker(client, role, topic)
        arguments = {"group"} if role in ("consumer", "queue") else set()
        for name in {*NAMES, "no_such_option"} - set(OPTIONS[protocol].ROLES[role]) - arguments:
            with pytest.raises(UsageError, match=f"a {role} has no option '{name}'"):
                make(**{name: some(kinds.get(name))})


@pytest.mark.parametrize(("protocol", "role"), SEATS)
def test_a_role_takes_every_option_that_is_its_own(protocol: str, role: str) -> None:
    options = OPTIONS[protocol]()
    for name in OPTIONS[protocol].ROLES[role]:
        kind = hints(OPTIONS[protocol])[name]
        value = getattr(options, name)
        assert getattr(options.for_role(role, {name: value}), name) == value
        assert kind is not None
        assert getattr(options.for_role(role, {name.replace("_", "-"): value}), name) == value


def test_a_role_that_the_protocol_lacks_says_so_whatever_options_it_is_given(broker: DevBroker, protocol: str) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        for role in set(ROLES) - set(OPTIONS[protocol].ROLES):
            with pytest.raises(RoleUnsupported):
                maker(client, role, "t")(linger=9)


@pytest.mark.parametrize(("protocol", "role"), SEATS)
def test_an_error_of_ours_is_not_taken_for_a_wrong_option(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, protocol: str, role: str
) -> None:
    """A TypeError within a role is a fault of ours, whatever its text says."""
    with wireproto.connect(broker.url(protocol)) as client:
        made = maker(client, role, "t")

        def breaks(*_: object, **__: object) -> None:
            raise TypeError("f() got an unexpected keyword argument 'linger'")

        monkeypatch.setattr(type(client.cluster), "deadline", breaks)  # type: ignore[attr-defined]
        monkeypatch.setattr(OPTIONS[protocol], "for_role", breaks)
        with pytest.raises(TypeError, match="unexpected keyword"):
            made(timeout=5.0)


def test_words_that_several_protocols_have_mean_the_same_kind_of_value() -> None:
    """A name that stands in two protocols has one type, or differs in the words that may be chosen; and no two names for one idea."""
    kinds: dict[str, set[str]] = {}
    for options in OPTIONS.values():
        for field in dataclasses.fields(options):
            kinds.setdefault(field.name, set()).add(str(field.type).removesuffix(" | None"))
    differ = {name for name, found in kinds.items() if len(found) > 1}
    assert differ == {"compression"}, "one name, one meaning"
    assert not set(NAMES) & {"on_bad", "in_flight", "max_unanswered", "commit_interval", "start", "offset_reset", "auto_offset_reset"}


@pytest.mark.parametrize("protocol", LOGS)
def test_the_words_of_logs_are_there_with_the_same_defaults(protocol: str) -> None:
    roles, options = OPTIONS[protocol].ROLES, OPTIONS[protocol]()
    assert {"auto_commit", "auto_commit_interval", "on_corrupt", "columns", "check_crc"} <= set(roles["consumer"])
    assert {"on_corrupt", "columns", "check_crc"} <= set(roles["reader"])
    assert {"linger", "batch_size", "compression", "delivery_timeout"} <= set(roles["producer"])
    assert getattr(options, "auto_commit") is False  # noqa: B009  # the type is the common one
    found = (getattr(options, name) for name in ("auto_commit_interval", "on_corrupt", "check_crc", "columns"))
    assert tuple(found) == (5.0, "raise", True, None)
    assert ("max_in_flight" in roles["producer"]) == (protocol != "pulsar"), "Pulsar's brokers take batches as they come"


def test_the_first_position_is_an_argument_called_start(broker: DevBroker, protocol: str) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        for role in ("reader", "consumer"):
            start = inspect.signature(getattr(client, role)).parameters["start"]
            assert start.kind is inspect.Parameter.KEYWORD_ONLY
            assert start.default is EARLIEST


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_start_is_a_place_and_no_word(broker: DevBroker, request: pytest.FixtureRequest, protocol: str) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        topic = topic_of(client, request)
        if protocol == "zookeeper":
            client.producer(topic).close()
        for role in ("reader", "consumer") if protocol in LOGS else ("reader",):
            for wrong in ("earliest", "latest", 5, "0=3"):
                with pytest.raises(OptionError):
                    maker(client, role, topic)(start=wrong)


@pytest.mark.parametrize(("start", "begins"), [(EARLIEST, b"before"), (LATEST, b"after")])
@pytest.mark.parametrize("role", ["reader", "consumer"])
@pytest.mark.parametrize("protocol", LOGS)
def test_start_says_where_readers_and_new_groups_begin(
    broker: DevBroker, request: pytest.FixtureRequest, protocol: str, role: str, start: Any, begins: bytes
) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        topic = topic_of(client, request)
        with client.producer(topic) as out:
            out.send(b"before").position(CAME)
            with maker(client, role, topic)(start=start) as one:
                if start is EARLIEST:
                    assert first(one) == begins
                    return
                assert one.poll(0.5) is None
                if role == "consumer":
                    settled(one)
                out.send(b"after").position(CAME)
                assert first(one) == begins


@pytest.mark.parametrize("protocol", LOGS)
def test_auto_commit_takes_true_or_false_and_the_interval_seconds(broker: DevBroker, protocol: str) -> None:
    for wrong in (0.5, 2, "often"):
        with pytest.raises(OptionError, match="auto_commit is true or false"):
            wireproto.connect(broker.url(protocol), auto_commit=wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="auto_commit_interval is a number of seconds"):
        wireproto.connect(broker.url(protocol), auto_commit_interval="often")  # type: ignore[arg-type]


@pytest.mark.parametrize("interval", [0.0, 3600.0])
@pytest.mark.parametrize("protocol", LOGS)
def test_auto_commit_is_of_what_earlier_polls_handed_out(
    broker: DevBroker, request: pytest.FixtureRequest, protocol: str, interval: float
) -> None:
    """Not of what was just handed out: begun by the next poll when the interval is over, and on close."""
    with wireproto.connect(broker.url(protocol)) as client:
        topic = topic_of(client, request)

        def kept() -> dict[Any, str]:
            return {key: str(at) for key, at in client.admin().group_positions("g", topic).items()}

        with client.producer(topic) as out:
            out.send(b"one").position(CAME)
            with client.consumer(topic, "g", auto_commit=True, auto_commit_interval=interval) as one:
                settled(one, first_of=b"one")
                before = kept()
                one.poll(0.0)
                if interval:
                    assert kept() == before
                else:
                    until(lambda: kept() != before, "it is committed")
                out.send(b"two").position(CAME)
                assert first(one) == b"two"
            with client.consumer(topic, "g") as one:
                out.send(b"three").position(CAME)
                assert first(one) == b"three", "closing committed the rest"


@pytest.mark.parametrize("protocol", LOGS)
def test_what_an_error_left_half_done_is_not_committed_by_closing(broker: DevBroker, request: pytest.FixtureRequest, protocol: str) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        topic = topic_of(client, request)
        with client.producer(topic) as out:
            out.send(b"one").position(CAME)
            with pytest.raises(ZeroDivisionError):
                fails_at_the_second(client, topic, out)
            with client.consumer(topic, "g") as one:
                assert first(one) == b"two"


def fails_at_the_second(client: wireproto.Client, topic: str, out: wireproto.Producer) -> None:
    with client.consumer(topic, "g", auto_commit=True, auto_commit_interval=3600.0) as one:
        assert first(one) == b"one"
        out.send(b"two").position(CAME)
        assert first(one) == b"two"
        raise ZeroDivisionError


FIRST_ASKED = {"kafka": "Metadata", "pulsar": "partitionMetadata", "rocketmq": "GetRouteInfoByTopic", "zookeeper": None}
"""What a role asks first of a topic that its client does not know."""


@pytest.mark.parametrize(("protocol", "role"), [seat for seat in SEATS if "timeout" in OPTIONS[seat[0]].ROLES[seat[1]]])
def test_a_role_is_made_within_its_own_timeout(broker: DevBroker, request: pytest.FixtureRequest, protocol: str, role: str) -> None:
    with wireproto.connect(broker.url(protocol)) as other:
        topic = topic_of(other, request)
    with wireproto.connect(broker.url(protocol)) as client:
        broker.faults(protocol).lose_reply(FIRST_ASKED[protocol], times=-1)
        begun = time.monotonic()
        try:
            with pytest.raises((TimedOut, TransportError)):
                maker(client, role, topic)(timeout=0.5)
            assert time.monotonic() - begun < 20.0, "of the client's 30 s"
        finally:
            broker.faults(protocol).clear()


def settled(one: Any, first_of: bytes | None = None) -> None:
    """Wait until a consumer has its partitions; nothing but `first_of` is handed out meanwhile."""
    until = time.monotonic() + CAME
    while not one.assignment and time.monotonic() < until:
        batch = one.poll(0.05)
        if batch is not None:
            assert batch.values() == [first_of]
            return
    assert one.assignment
    if first_of is not None:
        assert first(one) == first_of
    else:
        assert one.poll(0.2) is None


def first(one: Any) -> bytes | None:
    """The next record; exactly one is expected to come."""
    until = time.monotonic() + CAME
    while time.monotonic() < until:
        batch = one.poll(0.5)
        if batch is not None and len(batch):
            values = batch.values()
            assert len(values) == 1
            return values[0]  # type: ignore[no-any-return]
    raise AssertionError("nothing came")
