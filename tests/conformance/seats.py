"""Where the suite runs: a protocol on one broker, embedded or real, behind one small surface.

A `Seat` gives URLs, takes the broker away and brings it back with its data kept, and names it for reports and for ``--broker``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import wireproto
from brokers import Broker
from patience import until
from wireproto import protocols
from wireproto.errors import WireprotoError

from .features import Features, features_of


@dataclass(frozen=True)
class Place:
    """A parameter of the suite: which protocol on which broker, with which client options.

    `brief` places have a sibling that differs in where it keeps metadata, in the form of headers or in how a group is reset alone: BRIEF
    runs there, of several nodes GROUPS, and all on the sibling. TIMEOUTS are measured against the fault proxy, with one real broker a
    protocol behind it. `several` nodes differ from one where some stay when one goes, and where a group's queues or what an administrator
    asks for lie on more than one: OUTAGES, GROUPS and ADMINISTRATION run there. In `tight` places a few records fill a ledger: what
    counts and notes positions, ACROSS, runs there. `elsewhere` names what is left to another place. What a place leaves out is marked
    ``soak``.
    """

    protocol: str
    broker_name: str
    options: Mapping[str, str] = field(default_factory=dict)
    brief: bool = False
    several: bool = False
    tight: bool = False
    timeouts: bool = True
    elsewhere: frozenset[str] = frozenset()
    face: str = "sync"

    def __str__(self) -> str:
        return self.broker_name if self.face == "sync" else f"{self.broker_name}-{self.face}"

    def takes(self, module: str, test: str) -> bool:
        """Whether `make test` runs this test here."""
        if test in self.elsewhere:
            return False
        if self.face != "sync":
            chosen = module != TIMEOUTS or test in AWAITED if self.dev else module in OVER_ASYNCIO
            return chosen and test not in OF_THREADS
        if self.several:
            return module in (GROUPS if self.brief else OUTAGES | GROUPS) or (not self.brief and test in ADMINISTRATION)
        if self.tight:
            return bool(ACROSS & {module, test})
        return (self.timeouts or module != TIMEOUTS) and (not self.brief or bool(BRIEF & {module, test}))

    @property
    def dev(self) -> bool:
        return self.broker_name.startswith("dev-")


TIMEOUTS = "test_timeouts"
OUTAGES = frozenset({"test_outage", "test_killed"})
GROUPS = frozenset({"test_consumer", "test_queue"})
ADMINISTRATION = frozenset({
    *("test_topics_come_and_go", "test_creating_what_exists_fails", "test_an_unknown_topic_is_the_brokers_own_error"),
    *("test_admin_positions_bound_what_is_read", "test_a_mapping_picks_partitions", "test_empty_partitions_reach_their_end_too"),
})  # fmt: skip
ACROSS = GROUPS | ADMINISTRATION | {"test_producer", "test_positions", "test_order_and_count_hold"}
OVER_ASYNCIO = frozenset({"test_records", "test_producer", "test_positions", "test_consumer", "test_queue", "test_tree"})
"""What `make test` runs over the asyncio face on real brokers; on the dev broker it is all, and of the timeouts AWAITED."""
OF_THREADS = frozenset(
    {
        "test_threads_share_a_producer",
        "test_a_close_ends_the_call_that_another_thread_waits_in",
        "test_a_close_ends_the_call_of_a_consumer_that_has_nothing_assigned_yet",
    }
)
"""What is about many threads says little of one event loop, to which all of them hop."""
AWAITED = frozenset({
    "test_admin", "test_receipt_and_flush", "test_poll_returns_none_in_time", "test_queue_receive",
    "test_close_keeps_its_timeout_before_a_silent_peer",
})  # fmt: skip
BRIEF = {
    *("test_records", "test_refusals"),
    *("test_commit_and_resume_after_a_new_client", "test_a_released_message_is_handed_out_again", "test_start_and_stop_by_time"),
}
ASYNCIO = frozenset({
    *("dev-kafka", "kafka-4.3.1", "dev-pulsar", "pulsar-4.2.4"),
    *("dev-rocketmq", "rocketmq-5.5.0", "dev-zookeeper", "zookeeper-3.9.5"),
})  # fmt: skip
"""Where the same tests run over `wireproto.aio`, too (`face.py`): the places whose protocol has all of its roles there."""
BEATING = {"heartbeat_interval": "0.5"}
"""Of Kafka: members hear of a rebalance by their next heartbeat; out of the box each 3 s."""
AT_ONCE = BEATING | {"unknown_topic_timeout": "0.5"}
"""The embedded broker knows a topic when it has answered that it made it."""
CRASH, PRODUCER = "test_what_was_written_is_there_after_a_crash", "test_a_producer_goes_on_over_an_outage"
ALL_AWAY = frozenset({CRASH, "test_a_reader_goes_on_over_an_outage"})
ONE_AWAY = frozenset({PRODUCER, "test_a_queue_goes_on"})
"""Outages of all there is, and of one broker or member of several: each role that is in the one in `make test` is not in the other."""
ONE_QUEUE = frozenset({
    *("test_each_message_once_and_gone_after_ack", "test_values_arrive_unchanged", "test_order_of_acks_does_not_matter"),
    *("test_what_is_not_committed_comes_again", "test_commit_of_a_place_in_the_middle", "test_committed_and_lag"),
    *("test_start_holds_only_without_a_commit", "test_seek", "test_pause_and_resume"),
})  # fmt: skip
"""What groups do with one queue, which lies on one broker of several."""
CURATOR = frozenset({"test_all_of_its_recipes_work"})
"""Judges the embedded server; on a real one it can only fail by itself."""
PLACES = [
    Place("kafka", "dev-kafka", AT_ONCE),
    Place("kafka", "kafka-3.9.2", BEATING, timeouts=False),
    Place("kafka", "kafka-3.9.2-zookeeper", BEATING, brief=True, timeouts=False),
    # test_kafka_faults.py kills each of these two under a producer, too
    Place("kafka", "kafka-4.3.1", BEATING, elsewhere=frozenset({CRASH})),
    Place("kafka", "kafka-4.3.1-cluster", BEATING, several=True, elsewhere=frozenset({PRODUCER})),
    Place("kafka", "kafka-4.4.0", BEATING, timeouts=False),
    Place("pulsar", "dev-pulsar"),
    # a boot each: CRASH, and test_a_broker_that_is_killed_between_two_steps_has_all_of_it_or_nothing have a producer go on over one, too
    Place("pulsar", "pulsar-4.2.4", elsewhere=frozenset({PRODUCER})),
    Place("pulsar", "pulsar-4.2.4-tight", {"batch_records": "4"}, tight=True),
    Place("rocketmq", "dev-rocketmq"),
    Place("rocketmq", "rocketmq-4.9.7", timeouts=False),
    Place("rocketmq", "rocketmq-4.9.7-binary", {"header": "binary"}, brief=True, timeouts=False),
    Place("rocketmq", "rocketmq-5.5.0", elsewhere=ONE_AWAY),
    Place("rocketmq", "rocketmq-5.5.0-binary", {"header": "binary"}, brief=True, timeouts=False),
    Place("rocketmq", "rocketmq-5.5.0-cluster", several=True, elsewhere=ALL_AWAY | ONE_QUEUE),
    Place("rocketmq", "rocketmq-5.5.0-cluster-old-reset", brief=True, several=True),
    Place("zookeeper", "dev-zookeeper"),
    Place("zookeeper", "zookeeper-3.8.6", brief=True, timeouts=False),
    Place("zookeeper", "zookeeper-3.9.5", elsewhere=ONE_AWAY | CURATOR),
    Place("zookeeper", "zookeeper-3.9.5-ensemble", timeouts=False, elsewhere=ALL_AWAY | CURATOR),
]


PLACES += [Place(found.name, f"dev-{found.name}") for found in protocols.every() if found.features and found.name not in protocols.ours()]


PLACES += [replace(place, face="aio") for place in PLACES if place.broker_name in ASYNCIO]


class Seat:
    """A place with its broker running."""

    def __init__(self, place: Place, real: Broker | None = None, dev: Any = None) -> None:
        self.place, self.real, self.dev = place, real, dev
        self.newest = ""  # topic that was made last
        self.protocol = place.protocol

    @property
    def features(self) -> Features:
        return features_of(self.protocol)

    @property
    def url(self) -> str:
        base: str = self.real.url if self.real is not None else self.dev.url(self.protocol)
        if not self.place.options:
            return base
        return base + ("&" if "?" in base else "?") + "&".join(f"{name}={value}" for name, value in self.place.options.items())

    @property
    def addresses(self) -> list[str]:
        """Everything that the broker may advertise, for a proxy's address map."""
        if self.real is not None:
            return self.real.addresses
        found = self.dev.listeners(self.protocol)
        return [address for name, address in found.items() if name not in ("admin", "http")]

    def through(self, proxy: Any) -> tuple[str, dict[str, Any]]:
        """URL and connect options that lead every connection through the fault proxy."""
        return proxy.url(self.url), {"address_map": proxy.address_map(self.addresses)}

    def take_away(self) -> None:
        """As a crash: connections are cut, ports are closed. One node of several: an ensemble's leader, that of the topic made last."""
        if self.real is None:
            self.dev.pause(self.protocol)
        elif self.place.broker_name.endswith("-ensemble"):
            self._lost: int | None = self.real.leader()  # type: ignore[attr-defined]
            self.real.kill(self._lost)
        elif self.place.several:
            self._lost = self._holder()
            self.real.kill(self._lost)
        else:
            self._lost = None
            self.real.kill()

    def _holder(self) -> int:
        """Which of `servers` has the first partition of the topic made last. A node that came back a moment ago may not know it yet."""
        found: list[Any] = []

        def known() -> bool:
            with suppress(WireprotoError):
                found[:] = [client.admin().describe_topic(self.newest).partitions[0].details]
            return bool(found)

        with wireproto.connect(self.url) as client:
            until(known)
        (details,) = found
        if self.protocol == "rocketmq":
            return 1 + "ab".index(str(details["broker"])[-1])  # the name server is 0
        return int(details["leader"]) - 1

    def bring_back(self) -> None:
        if self.real is None:
            self.dev.resume(self.protocol)
        else:
            self.real.start(self._lost)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The broker is gone inside the block, and is back, with its data, after it."""
        self.take_away()
        try:
            yield
        finally:
            self.bring_back()
