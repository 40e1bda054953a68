"""RocketMQ 5.5.0, two name servers, two masters: each queue lives on one master, so that all of the other are healthy while it is sick.

Nodes 0 and 3 are the name servers. Whether brokers keep resets until a member pulls, or call the members, the seed says. A record
acknowledged by a killed master is kept: its file is the kernel's by then.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar

import wireproto
from brokers import Broker, RocketMQ, judge
from brokers.rocketmq import USERS
from wireproto.rocketmq.codes import ConsumerNotOnline, ServerError
from wireproto.rocketmq.messages import (
    AddWritePermOfBrokerRequest,
    AuthCreateUserRequest,
    AuthUpdateUserRequest,
    InvokeBrokerToResetOffsetRequest,
    UpdateAndCreateTopicRequest,
    UpdateBrokerConfigRequest,
    WipeWritePermOfBrokerRequest,
)

from .faults import Sick
from .ledger import Ledger, Place, Promise, Role, Truth
from .plan import Round
from .site import OPEN, Site, Work, fleeting, logs_in

PATIENCE = 60.0  # delivery_timeout
EARLY = PATIENCE - 5.0  # a batch's time runs from its first record
MAIN, JOBS, GROWING, AGAIN, GUARDED = "main", "jobs", "growing", "again", "guarded"
_SOON = {"pull_suspend": 1.0}
_LOOKED_AT = 5.0
"""Seconds between two looks of a broker at the pulls that it holds (PullRequestHoldService), and so what any pull may be held longer."""
ADMIN, GUEST, SECRET = "RocketMQ", "guest", "a-guest-s-secret"
REFUSED = "NoPermission"
NAMES = ("broker-a", "broker-b")
SERVERS = (0, 3)  # name servers
READ = 180.0


class RocketSite(Site):
    protocol = "rocketmq"
    version = "5.5.0"
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
        "grow",
        "wipe",
        "reset",
        "anew",
        "login",
        "unnamed",
    )

    broker: RocketMQ

    def make(self) -> Broker:
        settings = {"useServerSideResetOffset": "true"}  # as out of the box
        return RocketMQ(self.version, nodes=2, name_servers=2, heap="256m", settings=settings, acl=True)

    @property
    def keeps(self) -> bool:
        """Whether brokers keep resets until a member pulls, as out of the box; else they call the members."""
        return self.seed % 2 == 0

    @property
    def masters(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.broker.broker_ports]

    def _administrator(self) -> Any:
        return wireproto.connect(self.broker.url, access_key=ADMIN, secret_key=USERS[ADMIN])

    def node_addresses(self) -> list[str]:
        first, second = (f"127.0.0.1:{port}" for port in self.broker.name_server_ports)
        return [first, *self.masters, second]

    def options(self) -> dict[str, Any]:
        return super().options() | {
            "timeout": OPEN,
            "request_timeout": 3.0,
            "connect_timeout": 3.0,
            "route_age": 5.0,
            "delivery_timeout": PATIENCE,
            "fetch_memory": 8 << 20,
            "access_key": ADMIN,
            "secret_key": USERS[ADMIN],
        }

    def prepare(self) -> None:
        with self._administrator() as client:
            for topic in (MAIN, JOBS, GROWING, AGAIN, GUARDED):
                client.admin().create_topic(topic, partitions=4, timeout=60.0)
            told = f"useServerSideResetOffset={str(self.keeps).lower()}\n".encode()
            for address in self.masters:
                client.request(UpdateBrokerConfigRequest(), body=told, to=address)
        self._queues = {MAIN: 2, JOBS: 2, GROWING: 2, AGAIN: 2, GUARDED: 2}  # of each broker
        self._guest(AuthCreateUserRequest(username=GUEST), "enable")

    def works(self) -> list[Work]:
        sure = Promise(once=False, patience=EARLY)
        roaming = Promise(once=False, ordered=False, patience=EARLY)  # what one broker does not take goes to another
        senders = [
            _producer("keyed", MAIN, sure, {"keys": 50, "rate": 100}),
            _producer("keyless", MAIN, roaming, {"rate": 60}),
            _producer("fast", MAIN, Promise(once=False, ordered=False), {"keys": 20, "rate": 40}, max_in_flight=4, linger=0.01),
            _producer("grower", GROWING, sure, {"keys": 50, "rate": 60}),
            _producer("tasks", JOBS, roaming, {"rate": 10}),
            fleeting(_producer("again", AGAIN, Promise(kept=False, once=False, ordered=False), {"rate": 40})),
        ]
        readers = [
            _reader("follower", MAIN),
            _reader("bounded", MAIN, steady=False, stop=True, from_end=True),
            _member("exact-1", "exact", MAIN),
            _member("blind-1", "blind", MAIN),
            _member("growing-1", "growing", GROWING),
            _worker("worker-1"),
            fleeting(_reader("again-reader", AGAIN)),
        ]
        known: dict[str, Any] = {"options": {"access_key": GUEST, "secret_key": SECRET}}
        guests = [
            Work("guest-senders", [logs_in(_producer("guest", GUARDED, sure, {"keys": 20, "rate": 40}), REFUSED)], sends=True, **known),
            Work("guest-readers", [logs_in(made, REFUSED) for made in _guest_readers()], **known),
        ]
        return [Work("senders", senders, sends=True), Work("readers", readers), *guests]

    def comer(self, number: int) -> Work | None:
        members = [_member(f"{group}-comer-{number}", group, MAIN, comes=True) for group in ("exact", "blind")]
        return Work(f"comer-{number}", [*members, _worker(f"worker-comer-{number}", comes=True)])

    def logs(self) -> dict[str, list[str]]:
        return {topic: [f"{topic}/{name}-{n}" for name in NAMES for n in range(count)] for topic, count in self._queues.items()}

    def homes(self) -> dict[str, int]:
        return {log: 1 + NAMES.index(log.rpartition("/")[2][: len(NAMES[0])]) for logs in self.logs().values() for log in logs}

    def answers(self) -> bool:
        return all(server._ready() for server in self.broker.servers)

    def own_faults(self) -> dict[str, Callable[[Round], AbstractContextManager[Sick]]]:
        return {
            "grow": self._grow,
            "wipe": self._wipe,
            "reset": self._reset,
            "anew": self._anew,
            "login": self._login,
            "unnamed": self._unnamed,
        }

    @contextmanager
    def _grow(self, _: Round) -> Iterator[Sick]:
        """One more queue on each broker for the topic that grows, six at most."""
        queues = min(self._queues[GROWING] + 1, 6)
        request = UpdateAndCreateTopicRequest(
            topic=GROWING, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0, order=False,
        )  # fmt: skip
        with self._administrator() as client:
            for address in self.masters:
                client.request(request, to=address)
        self._queues[GROWING] = queues
        yield frozenset()

    @contextmanager
    def _wipe(self, round_: Round) -> Iterator[Sick]:
        """A master is taken out of what producers may write to, as before it is stopped in order; readers go on reading from it."""
        name = NAMES[round_.node % len(NAMES)]
        with self._administrator() as client:
            for port in self.broker.name_server_ports:
                client.request(WipeWritePermOfBrokerRequest(broker_name=name), to=f"127.0.0.1:{port}")
        try:
            yield frozenset({1 + NAMES.index(name)})
        finally:
            with self._administrator() as client:
                for port in self.broker.name_server_ports:
                    client.request(AddWritePermOfBrokerRequest(broker_name=name), to=f"127.0.0.1:{port}")

    @contextmanager
    def _reset(self, round_: Round) -> Iterator[Sick]:
        """An administrator sets a group back to the beginning, at work as it is: each broker tells it with its next answer to a pull, or
        calls the members, if any are known to it. Not while one of those comes or goes: whose queues are on their way nobody sets back, and
        brokers do not ask."""
        if not self.keeps and round_.member:
            yield frozenset()
            return
        with self._administrator() as client:
            for address, name in zip(self.masters, NAMES, strict=True):
                asked = InvokeBrokerToResetOffsetRequest(topic=MAIN, group="exact", timestamp=0, is_force=True)
                if self.keeps:
                    for queue in range(self._queues[MAIN]):
                        began = time.monotonic()
                        client.request(asked.replace(queue_id=queue, offset=0), to=address)
                        self.note("reset", "exact", {f"{MAIN}/{name}-{queue}": [-1]}, began)
                    continue
                began = time.monotonic()
                with suppress(ConsumerNotOnline, ServerError):  # the latter where it never committed
                    client.request(asked, to=address)
                    self.note("reset", "exact", {f"{MAIN}/{name}-{queue}": [-1] for queue in range(self._queues[MAIN])}, began)
        yield frozenset()

    @contextmanager
    def _unnamed(self, round_: Round) -> Iterator[Sick]:
        """Both name servers are silent, or gone and then empty until brokers come again; one alone is `kill` and `freeze` of its node."""
        killed = round_.amount < 0.5
        for server in SERVERS:
            if killed:
                self.broker.kill(server)
            else:
                self.broker.servers[server].pause()
        try:
            yield frozenset(SERVERS)
        finally:
            for server in SERVERS:
                if killed:
                    self.broker.start(server)
                else:
                    self.broker.servers[server].resume()

    @contextmanager
    def _anew(self, _: Round) -> Iterator[Sick]:
        """A topic is deleted, is away for a while, and is made again: its queues begin at 0 once more."""
        with self._administrator() as client:
            client.admin().delete_topic(AGAIN, timeout=30.0)
            try:
                yield frozenset()
            finally:
                client.admin().create_topic(AGAIN, partitions=2 * self._queues[AGAIN], timeout=30.0)

    @contextmanager
    def _login(self, _: Round) -> Iterator[Sick]:
        """The guests' user is put out of work: every request is signed, so that none passes from then on."""
        self._guest(AuthUpdateUserRequest(username=GUEST), "disable")
        try:
            yield None
        finally:
            self._guest(AuthUpdateUserRequest(username=GUEST), "enable")

    def _guest(self, change: Any, status: str) -> None:
        facts = {"username": GUEST, "password": SECRET, "userType": "Super", "userStatus": status}
        with self._administrator() as client:
            for address in self.masters:
                client.request(change, body=facts, to=address)

    def truth(self, ledger: Ledger) -> Truth:
        """By RocketMQ's own client."""
        brokers = dict(zip(self.broker.broker_ports, NAMES, strict=True))
        found: dict[str, list[tuple[Place, str]]] = {log: [] for logs in self.logs().values() for log in logs}
        for topic in self._queues:
            words = (self.broker.name_server, topic, ADMIN, USERS[ADMIN])
            for row in judge.ask(self.version, "pull", *words, timeout=READ):
                log = f"{topic}/{brokers[row['store']]}-{row['queue']}"
                found[log].append(((row["offset"],), base64.b64decode(row["body"]).decode().rstrip()))
        return {log: sorted(rows) for log, rows in found.items()}


def _guest_readers() -> list[tuple[Role, dict[str, Any]]]:
    """Their pulls come back soon: one that a broker holds was let pass before, and tells of nothing that came meanwhile."""
    role, facts = _member("guest-1", "guests", GUARDED)
    reader, asked = _reader("guest-reader", GUARDED, options=_SOON)
    held = _SOON["pull_suspend"] + _LOOKED_AT
    return [(replace(reader, asked_late=held), asked), (role, facts | {"options": facts["options"] | _SOON})]


def _producer(name: str, topic: str, promise: Promise, facts: dict[str, Any], **options: Any) -> tuple[Role, dict[str, Any]]:
    role = Role(name, "producer", topic, promise=promise, fixed="keys" in facts, keys=facts.get("keys", 0))
    return role, {"name": name, "kind": "producer", "topic": topic, "options": options, "patience": PATIENCE} | facts


def _reader(name: str, topic: str, *, steady: bool = True, **facts: Any) -> tuple[Role, dict[str, Any]]:
    return Role(name, "reader", topic, steady=steady), {"name": name, "kind": "reader", "topic": topic} | facts


def _member(name: str, group: str, topic: str, *, comes: bool = False) -> tuple[Role, dict[str, Any]]:
    """Two members may read a queue for a moment, and brokers write offsets down every few seconds only: repeats are counted."""
    role = Role(name, "member", topic, group=group, steady=not comes, exact=False)
    facts = {"name": name, "kind": "member", "topic": topic, "group": group, "options": {"rebalance_interval": 3.0}}
    return role, facts | {"blind": group == "blind", "comes_and_goes": comes}


def _worker(name: str, *, comes: bool = False) -> tuple[Role, dict[str, Any]]:
    """Acked messages behind an open one may come again."""
    role = Role(name, "worker", JOBS, group="workers", steady=not comes, exact=False)
    options = {"rebalance_interval": 3.0, "retry_level": 1}
    return role, {"name": name, "kind": "worker", "topic": JOBS, "group": "workers", "options": options, "comes_and_goes": comes}
