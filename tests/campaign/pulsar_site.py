"""Pulsar 4.2.4 in one process: a namespace that de-duplicates and one that does not, a queue, a topic that grows; bundles are unloaded.

Everything is kept for ever, since the judge reads it when every group is done with it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pulsar  # type: ignore[import-untyped]
import wireproto
from brokers import Broker, Pulsar
from wireproto.pulsar.codes import TopicExists

from .faults import Sick
from .ledger import Finding, Ledger, Place, Promise, Role, Truth, topic_of
from .plan import Round
from .site import OPEN, Site, Work, fleeting, logs_in

PATIENCE = 90.0  # delivery_timeout; the whole broker may be away for a minute
EARLY = PATIENCE - 5.0  # a batch's time runs from its first record
ONCE, MAIN, JOBS, GROWING = "public/once/main", "public/default/main", "public/default/jobs", "public/default/growing"
AGAIN, GUARDED = "public/default/again", "public/default/guarded"
SPACES = ("public/default", "public/once")
LEAVES, REST = 15.0, 2.5  # seconds in which a member is gone that was told to go; in which none goes that has not begun to


class PulsarSite(Site):
    protocol = "pulsar"
    learning = 75.0  # clients look once a minute
    version = "4.2.4"
    faults: ClassVar = (
        "kill",
        "freeze",
        "restart",
        "black-hole",
        "swallow",
        "cut",
        "half-close",
        "refuse",
        "far",
        "narrow",
        "clock",
        "unload",
        "grow",
        "throttle",
        "reset",
        "remake",
        "login",
    )

    broker: Pulsar

    def make(self) -> Broker:
        kept = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
        self._token = Path(tempfile.mkdtemp(prefix="wireproto-campaign-")) / "token"  # the guests'
        return Pulsar(self.version, heap="384m", settings=kept, tokens=True)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._token.parent, ignore_errors=True)

    def node_addresses(self) -> list[str]:
        return self.broker.addresses

    def options(self) -> dict[str, Any]:
        quick = {"connect_timeout": 3.0, "operation_timeout": 5.0, "keep_alive": 5.0}
        return super().options() | quick | {"timeout": OPEN, "fetch_memory": 8 << 20, "token": self.broker.token("admin")}

    def prepare(self) -> None:
        self.broker.call("PUT", "/admin/v2/namespaces/public/once", {})
        self._partitions = {ONCE: 3, MAIN: 3, JOBS: 2, GROWING: 2, AGAIN: 2, GUARDED: 2}
        self._token.write_text(self.broker.token("admin"))
        with wireproto.connect(self.broker.url, token=self.broker.token("admin")) as client:
            admin: Any = client.admin()
            admin.set_deduplication("public/once", True)
            for topic, count in self._partitions.items():
                admin.create_topic(topic, partitions=count, timeout=60.0)

    def works(self) -> list[Work]:
        exact, once = Promise(patience=EARLY), Promise(once=False, patience=EARLY)
        senders = [
            _producer("keyed", ONCE, exact, {"keys": 50, "rate": 100}),
            _producer("keyless", ONCE, exact, {"rate": 60}, batch_records=10),
            _producer("open", MAIN, once, {"keys": 50, "rate": 100}, compression="lz4"),
            _producer("single", MAIN, once, {"keys": 20, "rate": 20}, batching=False),
            _producer("grower", GROWING, once, {"keys": 50, "rate": 60}),
            _producer("tasks", JOBS, once, {"keys": 20, "rate": 15}),
            fleeting(_producer("again", AGAIN, Promise(kept=False, once=False, ordered=False), {"rate": 40})),
        ]
        readers = [
            _reader("follower", ONCE),
            fleeting(_reader("again-reader", AGAIN)),
            _reader("bounded", MAIN, steady=False, stop=True, from_end=True),
            _member("exact-1", "exact", MAIN),
            _member("blind-1", "blind", MAIN),
            _member("growing-1", "growing", GROWING),
            _worker("worker-1", "shared"),
            _worker("by-key-1", "key-shared"),
        ]
        known: dict[str, Any] = {"options": {"token": f"file:{self._token}"}}
        guests = [Work("guest-senders", _guest_senders(), sends=True, **known), Work("guest-readers", _guest_readers(), **known)]
        return [Work("senders", senders, sends=True), Work("readers", readers), *guests]

    def comer(self, number: int) -> Work | None:
        members = [_member(f"{group}-comer-{number}", group, MAIN, comes=True) for group in ("exact", "blind")]
        workers = [_worker(f"{mode}-comer-{number}", mode, comes=True) for mode in ("shared", "key-shared")]
        return Work(f"comer-{number}", [*members, *workers])

    def logs(self) -> dict[str, list[str]]:
        return {topic: [f"{topic}/{n}" for n in range(count)] for topic, count in self._partitions.items()}

    def answers(self) -> bool:
        return self.broker.servers[0]._ready()

    def own_faults(self) -> dict[str, Callable[[Round], AbstractContextManager[Sick]]]:
        return {
            "unload": self._unload,
            "grow": self._grow,
            "throttle": self._throttle,
            "reset": self._reset,
            "remake": self._remake,
            "login": self._login,
        }

    @contextmanager
    def _unload(self, _: Round) -> Iterator[Sick]:
        """Every topic is closed, as when the cluster moves them; whoever looks it up has it opened again."""
        for space in SPACES:
            self.broker.call("PUT", f"/admin/v2/namespaces/{space}/unload")
        yield None

    @contextmanager
    def _grow(self, _: Round) -> Iterator[Sick]:
        """One more partition for the topic that grows, six at most."""
        count = min(self._partitions[GROWING] + 1, 6)
        if count > self._partitions[GROWING]:
            self.broker.call("POST", f"/admin/v2/persistent/{GROWING}/partitions", count)
        self._partitions[GROWING] = count
        yield frozenset()

    @contextmanager
    def _throttle(self, _: Round) -> Iterator[Sick]:
        """Producers and readers are slowed down by policy; the broker reads nothing more from a connection that is over its rate."""
        slow = {"publishRate": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 5_000}}
        slow["dispatchRate"] = {"dispatchThrottlingRateInMsg": 20, "dispatchThrottlingRateInByte": 10_000, "ratePeriodInSecond": 1}
        for kind, rate in slow.items():
            self.broker.call("POST", f"/admin/v2/namespaces/public/default/{kind}", rate)
        try:
            yield None
        finally:
            for kind in slow:
                self.broker.call("DELETE", f"/admin/v2/namespaces/public/default/{kind}")

    def _at_rest(self) -> None:
        """Wait until nobody is on the way out of the group: who waits beside a member that goes in a reset is not fed any more, by the
        broker's own fault (tests/integration/test_pulsar_resets.py)."""
        seen, since = None, time.monotonic()
        until = since + LEAVES + REST
        while time.monotonic() < min(since + REST, until):
            found = [self._members_of("exact", number) for number in range(self._partitions[MAIN])]
            if found != seen:
                seen, since = found, time.monotonic()
            time.sleep(0.1)

    def _members_of(self, group: str, partition: int) -> list[str]:
        """Where a partition's consumers are connected from."""
        stats = json.loads(self.broker.call("GET", f"/admin/v2/persistent/{MAIN}-partition-{partition}/stats"))
        return sorted(one["address"] for one in stats["subscriptions"].get(group, {}).get("consumers", ()))

    @contextmanager
    def _reset(self, _: Round) -> Iterator[Sick]:
        """An administrator sets a group back to the beginning, at work as it is: its members are cut off and begin there."""
        self._at_rest()
        began = time.monotonic()
        for number in range(self._partitions[MAIN]):
            first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
            self.broker.call("POST", f"/admin/v2/persistent/{MAIN}-partition-{number}/subscription/exact/resetcursor", first)
        self.note("reset", "exact", {f"{MAIN}/{number}": [-1, -1, -1] for number in range(self._partitions[MAIN])}, began)
        yield frozenset()

    @contextmanager
    def _remake(self, _: Round) -> Iterator[Sick]:
        """A topic is deleted and made again at once; who is at work on it may be quicker, and make its partitions."""
        with wireproto.connect(self.broker.url, token=self.broker.token("admin")) as client:
            admin: Any = client.admin()
            admin.delete_topic(AGAIN, timeout=30.0)
            with suppress(TopicExists):
                admin.create_topic(AGAIN, partitions=self._partitions[AGAIN], timeout=30.0)
        yield frozenset()

    @contextmanager
    def _login(self, _: Round) -> Iterator[Sick]:
        """The guests' token is no good any more, and all connections are reset, so that they log in again."""
        good = self._token.read_text()
        self._write_token("not.a.token")
        self.proxies[0].cut()
        try:
            yield None
        finally:
            self._write_token(good)

    def _write_token(self, text: str) -> None:
        fresh = self._token.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._token)

    def truth(self, ledger: Ledger) -> Truth:
        """By Pulsar's own client."""
        found: dict[str, list[tuple[Place, str]]] = {}
        known = pulsar.AuthenticationToken(self.broker.token("admin"))
        client = pulsar.Client(self.broker.service, authentication=known, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            for logs in self.logs().values():
                for log in logs:
                    topic = f"persistent://{topic_of(log)}-partition-{log.rpartition('/')[2]}"
                    found[log] = sorted(_rows(client.create_reader(topic, pulsar.MessageId.earliest)))
        finally:
            client.close()
        return found

    def last_words(self) -> Iterator[Finding]:
        """What workers acked is no backlog."""
        for number in range(self._partitions[JOBS]):
            facts = json.loads(self.broker.get(f"/admin/v2/persistent/{JOBS}-partition-{number}/stats?getPreciseBacklog=true"))
            for group, stats in facts["subscriptions"].items():
                if stats["msgBacklog"]:
                    text = f"{group} in {JOBS}/{number}: {stats['msgBacklog']} are still to be acked, and no worker was given them"
                    yield Finding("what is not acked comes again", text)


def _rows(reader: Any) -> Iterator[tuple[Place, str]]:
    deadline = time.monotonic() + 60.0
    while reader.has_message_available():
        assert time.monotonic() < deadline, "the judge's own reading does not end"
        message = reader.read_next(10_000)
        place = message.message_id()
        yield (place.ledger_id(), place.entry_id(), max(place.batch_index(), 0)), message.data().decode().rstrip()
    reader.close()


def _guest_senders() -> list[tuple[Role, dict[str, Any]]]:
    return [logs_in(_producer("guest", GUARDED, Promise(once=False, patience=EARLY), {"keys": 20, "rate": 40}), "")]


def _guest_readers() -> list[tuple[Role, dict[str, Any]]]:
    return [logs_in(_reader("guest-reader", GUARDED), ""), logs_in(_member("guest-1", "guests", GUARDED), "")]


def _producer(name: str, topic: str, promise: Promise, facts: dict[str, Any], **options: Any) -> tuple[Role, dict[str, Any]]:
    role = Role(name, "producer", topic, promise=promise)
    chosen = {"delivery_timeout": PATIENCE} | options
    return role, {"name": name, "kind": "producer", "topic": topic, "options": chosen, "patience": PATIENCE} | facts


def _reader(name: str, topic: str, *, steady: bool = True, **facts: Any) -> tuple[Role, dict[str, Any]]:
    return Role(name, "reader", topic, steady=steady), {"name": name, "kind": "reader", "topic": topic} | facts


def _member(name: str, group: str, topic: str, *, comes: bool = False) -> tuple[Role, dict[str, Any]]:
    """A broker writes positions down once a second: one that is killed goes back by so much, so repeats are counted."""
    role = Role(name, "member", topic, group=group, steady=not comes, exact=False)
    return role, {"name": name, "kind": "member", "topic": topic, "group": group, "blind": group == "blind", "comes_and_goes": comes}


def _worker(name: str, mode: str, *, comes: bool = False) -> tuple[Role, dict[str, Any]]:
    role = Role(name, "worker", JOBS, group=mode, steady=not comes, exact=False)
    facts = {"name": name, "kind": "worker", "topic": JOBS, "group": mode, "options": {"mode": mode}, "comes_and_goes": comes}
    return role, facts
