"""What a broker stores of a new topic's settings `perm` and `order`, and that a wrong value of one creates no topic."""

from __future__ import annotations

import json
import secrets

import pytest

import wireproto
from brokers import RocketMQ
from wireproto.errors import OptionError
from wireproto.rocketmq.messages import GetAllTopicConfigRequest


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0"], indirect=True)
def test_a_broker_stores_the_settings_and_a_wrong_one_creates_nothing(broker: RocketMQ) -> None:
    topic = f"settings-{secrets.token_hex(4)}"
    with wireproto.connect(broker.url) as client:
        admin = client.admin()
        for wrong in ({"perm": "read"}, {"order": "maybe"}):
            with pytest.raises(OptionError, match="is one of"):
                admin.create_topic(topic, config=wrong)
        assert topic not in admin.list_topics()
        admin.create_topic(topic, config={"perm": "4", "order": "true"})
        (address,) = (one for one in admin.brokers().values() if one)  # type: ignore[attr-defined]
        reply = client.request(GetAllTopicConfigRequest(), to=address)  # type: ignore[attr-defined]
        stored = json.loads(reply.body)["topicConfigTable"][topic]
    assert (stored["perm"], stored["order"]) == (4, True)
