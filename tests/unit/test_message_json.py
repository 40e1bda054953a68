"""The JSON form of messages: vendor's names, nothing lost, wrong input told by its path."""

import json
import math
import random

import pytest

from wireproto import message
from wireproto._codec import message_spec
from wireproto.errors import Malformed, UnknownMessage
from wireproto.kafka import messages as kafka
from wireproto.rocketmq import messages as rocketmq
from wireproto.zookeeper import messages as zookeeper


def test_vendor_names_and_kinds():
    topic = kafka.MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
    request = kafka.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    shown = message.to_json(request, 12)
    assert shown == {
        "topics": [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "name": None}],
        "allowAutoTopicCreation": False,
        "includeTopicAuthorizedOperations": False,
    }
    assert message.from_json(kafka.MetadataRequest, json.loads(json.dumps(shown)), 12) == request.replace(topics=(topic,))


def test_fields_of_other_versions_are_left_out_and_refused():
    assert "allowAutoTopicCreation" not in message.to_json(kafka.MetadataRequest(), 3)
    with pytest.raises(Malformed, match="allowAutoTopicCreation"):
        message.from_json(kafka.MetadataRequest, {"allowAutoTopicCreation": True}, 3)


def test_large_numbers_bytes_null_and_unknown_tags_survive():
    data = kafka.ApiVersionsRequest(client_software_name="a").encode(3)[:-1] + b"\x01\x09\x02yz"
    request = kafka.ApiVersionsRequest.decode(data, 3)
    shown = json.loads(json.dumps(message.to_json(request, 3)))
    assert shown["unknownTags"] == [{"tag": 9, "data": "eXo="}]
    assert message.from_json(kafka.ApiVersionsRequest, shown, 3).encode(3) == data
    stat = zookeeper.Stat(czxid=(1 << 63) - 1)
    reply = zookeeper.GetDataResponse(data=b"\xff\0", stat=stat)
    shown = json.loads(json.dumps(message.to_json(reply)))
    assert shown["stat"]["czxid"] == (1 << 63) - 1
    assert shown["data"] == "/wA="
    assert message.from_json(zookeeper.GetDataResponse, shown) == reply
    assert message.to_json(zookeeper.GetDataResponse(data=None, stat=stat))["data"] is None


def test_numbers_that_json_cannot_write_are_named():
    floats = [cls for name in kafka.__all__ for cls in [getattr(kafka, name)] if any(f.type == "float64" for f in cls.FIELDS)]
    assert floats
    field = next(f for f in floats[0].FIELDS if f.type == "float64")
    for value, name in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")):
        shown = message.to_json(floats[0](**{field.name: value}), field.versions[0])
        assert shown[field.vendor] == name
        again = getattr(message.from_json(floats[0], shown, field.versions[0]), field.name)
        assert again == value or math.isnan(again)


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"topics": [{"name": 3}]}, "topics[0].name"),
        ({"topics": [{"topicId": "short"}]}, "topics[0].topicId"),
        ({"topics": {}}, "topics"),
        ({"allowAutoTopicCreation": 1}, "allowAutoTopicCreation"),
        ({"allowAutoTopicCreation": None}, "allowAutoTopicCreation"),
        ([], None),
    ],
)
def test_wrong_values_are_told_by_their_path(obj, path):
    with pytest.raises(Malformed) as caught:
        message.from_json(kafka.MetadataRequest, obj, 12)
    assert caught.value.path == path
    assert caught.value.message in ("MetadataRequest", "MetadataRequestTopic")


def test_every_message_of_every_protocol_round_trips_with_defaults():
    for protocol in message.protocols():
        for cls in message.messages(protocol).values():
            for version in {max(message_spec(cls)[1], 0), max(message_spec(cls)[2], 0)}:
                shown = json.loads(json.dumps(message.to_json(cls(), version)))
                assert message.from_json(cls, shown, version) == cls(), cls


def test_rocketmq_fields_travel_as_text():
    request = rocketmq.SendMessageRequest(producer_group="g", topic="t", default_topic="d", batch=True, max_reconsume_times=3)
    ext = request.to_ext()
    assert ext["defaultTopicQueueNums"] == "0"
    assert (ext["batch"], ext["maxReconsumeTimes"]) == ("true", "3")
    assert "unitMode" not in ext
    assert rocketmq.SendMessageRequest.from_ext({**ext, "unknown": "x"}) == request
    with pytest.raises(Malformed, match="topic is missing"):
        rocketmq.SendMessageRequest.from_ext({name: text for name, text in ext.items() if name != "topic"})
    with pytest.raises(Malformed, match="is no int32"):
        rocketmq.SendMessageRequest.from_ext({**ext, "queueId": "one"})
    with pytest.raises(Malformed, match="does not fit"):
        rocketmq.SendMessageRequest.from_ext({**ext, "queueId": str(1 << 31)})


def test_registry():
    assert message.message_class("kafka", "MetadataRequest") is kafka.MetadataRequest
    with pytest.raises(UnknownMessage, match="MetadataRequest"):
        message.message_class("kafka", "MetadataReqest")
    with pytest.raises(UnknownMessage, match="pulsar"):
        message.messages("pulsar")


def test_copies_and_pickles():
    import copy
    import pickle

    rng = random.Random(1)
    made = kafka.MetadataRequest(topics=(kafka.MetadataRequestTopic(name=str(rng.random())),))
    decoded = kafka.MetadataRequest.decode(made.encode(12), 12)
    for one in (made, decoded):
        for again in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert again == one
    assert pickle.loads(pickle.dumps(decoded)).frozen
    assert not copy.copy(decoded).frozen


def test_repr_hides_secrets_and_defaults():
    shown = repr(kafka.MetadataRequest(allow_auto_topic_creation=False))
    assert shown == "MetadataRequest(allow_auto_topic_creation=False)"
