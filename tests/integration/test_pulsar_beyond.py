"""A Reader that is to begin at a place behind all that its topic has, on a real broker, as one of another topic."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.pulsar import Pulsar
from integration.pulsar_tools import new_topic, ours
from wireproto.position import MessageId

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)
SECONDS = 20.0


def test_a_place_behind_the_topics_end_is_its_end(broker: Pulsar, caplog: pytest.LogCaptureFixture) -> None:
    """4.2.4 begins at the first entry that there is, where an entry is named, and gives no error."""
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic) as out:
        last = [out.send(b"%d" % number).position(SECONDS) for number in range(3)][-1]
        for number, (ledger, entry) in enumerate(((last.ledger + 1000, 0), (last.ledger + 1000, 7), (last.ledger, 1000))):
            for after in (False, True):
                start = MessageId(topic, -1, ledger, entry, after=after)
                with client.reader(topic, start=start) as reader:
                    value = b"new %d %s" % (number, str(after).encode())
                    out.send(value).position(SECONDS)
                    assert following(reader) == value, str(start)
                    assert f"{topic}[-1]: {start} is beyond the topic's end" in caplog.text


def test_the_next_place_of_a_topic_is_no_place_behind_its_end(broker: Pulsar, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic) as out:
        last = out.send(b"0").position(SECONDS)
        for start in (MessageId(topic, -1, last.ledger, last.entry + 1), MessageId(topic, -1, last.ledger, last.entry, after=True)):
            with client.reader(topic, start=start) as reader:
                out.send(b"new").position(SECONDS)
                assert following(reader) == b"new"
            last = reader.positions[topic, -1]
    assert "beyond the topic's end" not in caplog.text


def following(reader: Any) -> bytes:
    """The first value that comes."""
    batch = reader.poll(SECONDS)
    assert batch is not None
    return bytes(batch.values()[0])
