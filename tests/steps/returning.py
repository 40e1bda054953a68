"""Two lives, of Pulsar alone, in which a broker says something by itself: that it serves a topic no more, and that a topic has ended.

What they are: `RETURNS`, a producer and a consumer whose topic is unloaded between two records, and that open anew; and `ENDS`, who reads a
terminated topic to its end. See `lives` for what a life is. May assume: a broker whose admin interface is where the client's URL says.
"""

from __future__ import annotations

import time
import urllib.request
from typing import Any

from .lives import GROUP, POLL, PRODUCER, SUBSCRIBE, TIMEOUT, TOPIC, Life, Request, Unheard, is_committed, to_the_end, write

FIRST, SECOND = b"before", b"after"


def order(client: Any, method: str, what: str) -> None:
    """Have the broker do something to the topic."""
    url = f"{client.admin().url}/admin/v2/persistent/public/default/{TOPIC}-partition-0/{what}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=TIMEOUT) as answer:
        answer.read()


def returns(protocol: str, client: Any) -> None:
    out = client.producer(TOPIC, delivery_timeout=TIMEOUT)
    consumer = client.consumer(TOPIC, GROUP)
    out.send(FIRST, timeout=TIMEOUT).position(TIMEOUT * 2)
    assert hear(consumer) == [FIRST]
    consumer.commit(timeout=TIMEOUT)
    order(client, "PUT", "unload")
    out.send(SECOND, timeout=TIMEOUT).position(TIMEOUT * 2)
    assert hear(consumer) == [SECOND]
    consumer.commit(timeout=TIMEOUT)
    consumer.close(TIMEOUT)


def hear(consumer: Any) -> list[bytes]:
    """The next records."""
    heard = time.monotonic()
    while time.monotonic() - heard < TIMEOUT:
        batch = consumer.poll(timeout=POLL)
        if batch is not None:
            return [record.value for record in batch]
    raise Unheard("of the record")


def ended(protocol: str, client: Any) -> None:
    write(protocol, client)
    order(client, "POST", "terminate")


def ends(protocol: str, client: Any) -> None:
    """Reads without a place to stop at: only the broker can tell that there will never be more."""
    to_the_end(client.reader(TOPIC))


RETURNS = Life(
    "returns",
    returns,
    {
        "pulsar": (
            Request("come back: producer", "producer", PRODUCER, after=1),
            Request("come back: subscribe", "subscribe", SUBSCRIBE, after=1),
        )
    },
    pushes={"pulsar": ("close_producer", "close_consumer")},
    last={"pulsar": "close_producer"},
    check=is_committed,
)
ENDS = Life(
    "reads an ended topic",
    ends,
    {"pulsar": ()},
    pushes={"pulsar": ("reachedEndOfTopic",)},
    last={"pulsar": "reachedEndOfTopic"},
    prepare=ended,
)
