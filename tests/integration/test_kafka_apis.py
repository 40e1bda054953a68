"""Every API that a real broker offers, in every version that both sides speak, through `client.request`.

An answer counts when it decodes to its last byte (what is left over would be Malformed) and each error code in it is one that belongs to
the question. An API that a broker offers and `kafka_questions` does not know fails the test: none can be left out in silence.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import Broker
from integration.kafka_questions import CLOSES, EXPECTED, KRAFT, ZOOKEEPER, Questions, fit
from wireproto._codec import KafkaBatchBuilder
from wireproto.errors import Disconnected
from wireproto.kafka import messages as m
from wireproto.message import from_json, to_json

BROKERS = ["kafka-3.9.2", "kafka-3.9.2-zookeeper", "kafka-4.3.1", "kafka-4.4.0"]
BUSY = {14, 15, 16, 51}  # COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS: come again
LATER = {"ShareFetch": {-1}}  # "server error" until the state of the share group, which its heartbeat asked for, has been made
ORDER = (22, 24, 25, 28, 26)  # a transaction from its first to its last step, version by version


def requests() -> dict[int, type[Any]]:
    found = (getattr(m, name) for name in dir(m) if name.endswith("Request") and not name.startswith("_"))
    return {cls.API_KEY: cls for cls in found if hasattr(cls, "API_KEY")}


def record(version: int) -> str:
    builder = KafkaBatchBuilder(magic=0 if version < 2 else 1 if version == 2 else 2)
    assert builder.append(b"v", b"k", (), None if version < 2 else 1_700_000_000_000)
    return base64.b64encode(builder.finish()).decode()


def codes(reply: Any) -> Iterator[int]:
    """Every error code anywhere in an answer's JSON."""
    if isinstance(reply, dict):
        for name, value in reply.items():
            if name.lower().endswith("errorcode"):
                yield value
            else:
                yield from codes(value)
    elif isinstance(reply, list):
        for item in reply:
            yield from codes(item)


class Asker:
    """Asks one API after the other and keeps what came back."""

    def __init__(self, client: Any, topic: str) -> None:
        self.client = client
        topic_id = base64.urlsafe_b64encode(client.cluster.metadata.topics[topic].id).decode().rstrip("=")
        self.questions = Questions(topic, topic_id, record)
        self.offered = client.cluster.reach(client.cluster.to_any, client.deadline()).context.versions.offered
        self.special = ZOOKEEPER if 4 in self.offered else KRAFT
        self.answered: dict[str, list[int]] = {}
        self.wrong: list[str] = []

    def versions(self, cls: type[Any]) -> range:
        low, high = self.offered.get(cls.API_KEY, (0, -1))
        if cls is m.ProduceRequest and high >= 13:
            low = 3  # 4.x says 0 for the sake of an old client library, and refuses what is below 3
        return range(max(low, cls.MIN_VERSION), min(high, cls.MAX_VERSION) + 1)

    def ask(self, cls: type[Any], version: int) -> Any:
        name = cls.NAME.removesuffix("Request")
        make = getattr(self.questions, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())
        deadline = time.monotonic() + 60
        request = from_json(cls, fit(cls, make(version), version), version)
        self.answered.setdefault(name, []).append(version)
        if name in CLOSES:
            with pytest.raises(Disconnected):
                self.client.request(request, version=version)
            return None
        while True:
            reply = self.client.request(request, version=version)
            said = set(codes(to_json(reply, version)))
            if not said & (BUSY | LATER.get(name, set())) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        special = self.special.get(name, set()) if version == 0 else set()
        if not said <= {0} | EXPECTED.get(name, set()) | special:
            self.wrong.append(f"{name} v{version}: {sorted(said)}: {str(to_json(reply, version))[:300]}")
        return reply

    def transaction(self, step: int) -> None:
        """One transaction, each of its requests in the version that many below its newest."""
        for key in ORDER:
            cls = self.classes[key]
            versions = self.versions(cls)
            reply = self.ask(cls, versions[max(len(versions) - 1 - step, 0)])
            if cls is m.InitProducerIdRequest:
                self.questions.producer = (reply.producer_id, reply.producer_epoch)

    classes = requests()


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_every_api_that_a_broker_offers_answers_in_every_version(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with wireproto.connect(broker.url) as client:
        topic = f"apis-{time.monotonic_ns()}"
        client.admin().create_topic(topic)
        with client.producer(topic) as producer:
            producer.send(b"v").position(60.0)
        asker = Asker(client, topic)
        for key in sorted(asker.offered):
            if key not in ORDER:
                assert key in asker.classes, f"the broker offers api {key}, and there is no such message"
                for version in asker.versions(asker.classes[key]):
                    asker.ask(asker.classes[key], version)
        for step in range(max(len(asker.versions(asker.classes[key])) for key in ORDER)):
            asker.transaction(step)
    assert not asker.wrong, "\n".join(asker.wrong)
    assert len(asker.answered) == len(asker.offered), "each API once at least"
    with capsys.disabled():
        pairs = sum(len(set(versions)) for versions in asker.answered.values())
        print(f"\n{broker.name}: {len(asker.answered)} Kafka APIs answered, {pairs} pairs of API and version")
