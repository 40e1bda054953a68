"""RocketMQ's wire against the classes of its 4.9.7 and 5.5.0 jars: codes, header classes, frames, stored messages, ids, signatures.

One JVM a line does it: it scans its jars for header classes, fills each with random values, encodes it in both header types, and decodes
what we wrote. Exact means: the same bytes. Fields of a frame that Java wrote keep Java's order (that of a HashMap), so the whole frame
comes back byte for byte; our typed messages write them in the schema's order, where the same names with the same values is all there is
to compare.
"""

from __future__ import annotations

import base64
import ipaddress
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from brokers import java
from wireproto import wire
from wireproto._codec import RemotingCommand, RocketBatchBuilder, decode_rocketmq
from wireproto.errors import UnknownMessage
from wireproto.message import Field, fields_of, message_class
from wireproto.rocketmq import acl, codes, fastjson
from wireproto.rocketmq.bodies import HeartbeatData, SubscriptionData
from wireproto.rocketmq.fastjson import ObjectKey
from wireproto.rocketmq.forms import LANGUAGES
from wireproto.rocketmq.ids import OffsetId

pytestmark = pytest.mark.java
SEED, ROUNDS = 20261121, 6

REQUESTS = {
    "CreateTopic": "UpdateAndCreateTopic", "CreateTopicList": "UpdateAndCreateTopicList",
    "SearchOffset": "SearchOffsetByTimestamp", "ViewMessage": "ViewMessageById", "Heartbeat": "HeartBeat",
    "GetAllSubscriptionGroup": "GetAllSubscriptionGroupConfig", "ResetOffset": "InvokeBrokerToResetOffset",
    "GetConsumerStatus": "InvokeBrokerToGetConsumerStatus", "GetRouteInfo": "GetRouteInfoByTopic",
    "ChangeInvisibleTime": "ChangeMessageInvisibleTime", "ConsumeMessageDirectlyResult": "ConsumeMessageDirectly",
    "CreateAccessConfig": "UpdateAndCreateAclConfig", "DeleteAccessConfig": "DeleteAclConfig",
    "DeleteTopic": "DeleteTopicInBroker", "DeleteTopicFromNamesrv": "DeleteTopicInNamesrv",
    "GetConsumeStatsInBroker": "GetBrokerConsumeStats", "ReplyMessage": "PushReplyMessageToClient",
    "UpdateGroupForbidden": "UpdateAndGetGroupForbidden", "RegisterTopic": "RegisterTopicInNamesrv",
    "ExchangeHAInfo": "ExchangeBrokerHaInfo", "AlterSyncStateSet": "ControllerAlterSyncStateSet",
    "ElectMaster": "ControllerElectMaster", "GetMetaData": "ControllerGetMetadataInfo",
    "RegisterBrokerToController": "ControllerRegisterBroker", "GetReplicaInfo": "ControllerGetReplicaInfo",
    "CleanControllerBrokerData": "CleanBrokerData", "GetNextBrokerId": "ControllerGetNextBrokerId",
    "ApplyBrokerId": "ControllerApplyBrokerId", "CreateUser": "AuthCreateUser", "UpdateUser": "AuthUpdateUser",
    "DeleteUser": "AuthDeleteUser", "GetUser": "AuthGetUser", "ListUsers": "AuthListUser", "CreateAcl": "AuthCreateAcl",
    "UpdateAcl": "AuthUpdateAcl", "DeleteAcl": "AuthDeleteAcl", "GetAcl": "AuthGetAcl", "ListAcls": "AuthListAcl",
    "GetBrokerAclConfig": "GetBrokerClusterAclInfo", "SendMessageRequestHeaderV2": "SendMessageV2",
}  # fmt: skip
"""Header classes whose name is not that of the request code that they belong to, without RequestHeader, ResponseHeader or Header."""
SPELLINGS = (
    ("KV", "Kv"), ("UnRegister", "Unregister"), ("RocksDB", "Rocksdb"), ("GetSubscriptionGroupConfig", "GetSubscriptiongroupConfig"),
)  # fmt: skip
SHARED = {
    "SendMessageRequestHeader": ("SendReplyMessage",), "SendMessageRequestHeaderV2": ("SendBatchMessage", "SendReplyMessageV2"),
    "SendMessageResponseHeader": ("SendMessageV2", "SendBatchMessage", "SendReplyMessage", "SendReplyMessageV2"),
    "PullMessageRequestHeader": ("LitePullMessage",), "PullMessageResponseHeader": ("LitePullMessage",),
    "ResetOffsetRequestHeader": ("ResetConsumerClientOffset",), "GetConsumerStatusRequestHeader": ("GetConsumerStatusFromClient",),
}  # fmt: skip
"""Further messages of a class."""
NO_CODE = {"RegisterOrderTopicRequestHeader", "StatisticsMessagesRequestHeader", "InitConsumerOffsetRequestHeader"}
NO_FIELDS = {"GetConsumerListByGroupResponseHeader", "EndTransactionResponseHeader"}
BESIDE = {
    "_UNIQUE_KEY_QUERY", "MSG_REGION", "TRACE_ON", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE", "READ_AHEAD_MODE", "E_T",
}  # fmt: skip
"""Fields that servers and clients put beside what a header class has."""
ANSWERED_WITHOUT = {"GetAllTopicConfigRequest", "GetAllSubscriptionGroupConfigRequest", "GetAllSubscriptionGroupConfigResponse"}
"""4.9 has these without header; its absence is understood by 5.x too, though the class has required fields."""
TYPES = {"String": "string", "Long": "int64", "long": "int64", "Integer": "int32", "int": "int32", "Boolean": "bool", "boolean": "bool"}
TYPES |= {"BoundaryType": "string", "List": "string"}
SHORT_OF_FIELDS = "SendMessageRequestHeaderV2"
"""Java's own fast codec of this class passes over the fields that it inherits."""


def messages_of(java_class: str) -> tuple[str, ...]:
    """Our messages that are a header class of Java's."""
    if java_class in NO_CODE:
        return (java_class.removesuffix("RequestHeader") + "Header",)
    suffix = "Response" if java_class.endswith("ResponseHeader") else "Request"
    stem = java_class.removesuffix("Header").removesuffix(suffix)
    stem = REQUESTS.get(java_class, REQUESTS.get(stem, stem))
    for words, ours in SPELLINGS:
        stem = stem.replace(words, ours)
    return tuple(name + suffix for name in (stem, *SHARED.get(java_class, ())))


class Judge:
    """What one line's JVM said."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.name = f"RocketMQ {version}"
        self.sent = list(ours(random.Random(SEED), classes(version)))
        bodies = [{"json": fastjson.dumps(tree).hex(), "class": name} for name, tree in BODIES.items()]
        extra = [{"stored": data.hex()} for data in (stored_v2(4) if version > "5" else [])] + [{"batch": batch_of_ours().hex()}]
        asked = [{"frame": item["data"].hex(), "class": item["class"]} for item in self.sent] + extra + bodies
        lines = java.run(f"rocketmq-{version}", "RocketWire", str(SEED), str(ROUNDS), input=asked)
        self.lines: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            self.lines.setdefault(line["kind"], []).append(line)
        decoded = self.lines["decoded"]
        self.read = decoded[: len(self.sent)]
        self.stored_read = decoded[len(self.sent) : len(self.sent) + len(extra) - 1]
        self.batch_read = decoded[len(self.sent) + len(extra) - 1]
        self.bodies_read = decoded[len(self.sent) + len(extra) :]
        self.classes = {line["name"]: line for line in self.lines["class"]}
        self.requests = {line["name"]: line["number"] for line in self.lines["code"] if line["of"] == "request"}
        self.responses = {line["name"]: line["number"] for line in self.lines["code"] if line["of"] == "response"}


def queue(number: int) -> ObjectKey:
    return ObjectKey({"brokerName": "broker-a", "queueId": number, "topic": "标签"})


MEMBER = {"commitOffset": 7, "droped": False, "locked": False}
ROUTE = {"brokerName": "b", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
BROKER = {"cluster": "c", "brokerName": "b", "brokerAddrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}
WANTED = SubscriptionData("T", "a || 标签", 5).tree()
BODIES: dict[str, Any] = {
    "ResetOffsetBody": {"offsetTable": {queue(0): 5, queue(1): 1 << 40}},
    "GetConsumerStatusBody": {"consumerTable": {"c@1": {queue(0): 5}}, "messageQueueTable": {queue(2): 0}},
    "ConsumerRunningInfo": {"mqTable": {queue(0): MEMBER}, "properties": {"P": "false"}, "statusTable": {}, "subscriptionSet": [WANTED]},
    "ConsumerOffsetSerializeWrapper": {"offsetTable": {"t@g": {0: 12, 1: 13}}},
    "QueryCorrectionOffsetBody": {"correctionOffsets": {0: 1, 7: -1}},
    "ClusterInfo": {"brokerAddrTable": {"b": BROKER}, "clusterAddrTable": {"c": ["b"]}},
    "TopicRouteData": {"brokerDatas": [BROKER], "queueDatas": [ROUTE], "filterServerTable": {}},
    "HeartbeatData": fastjson.loads(HeartbeatData("c@1", ("p",), {"g": [SubscriptionData("T", "a || b", 3)]}).encode()),
    "LockBatchRequestBody": {"consumerGroup": "g", "clientId": "c@1", "mqSet": [dict(queue(3))]},
    "ConsumerConnection": {"connectionSet": [{"clientId": "c", "clientAddr": "a:1", "version": 409}], "subscriptionTable": {"T": WANTED}},
}
"""Bodies of the protocol by Java's class, with bare numbers and objects as keys."""

_JUDGES: dict[str, Judge] = {}


def judge_of(version: str) -> Judge:
    if version not in _JUDGES:
        _JUDGES[version] = Judge(version)
    return _JUDGES[version]


@pytest.fixture(params=["4.9.7", "5.5.0"])
def judge(request: pytest.FixtureRequest) -> Judge:
    return judge_of(request.param)


# codes -----------------------------------------------------------------------------------------------------------------------------


def test_every_request_code_has_its_message(judge: Judge, oracle: Callable[..., None]) -> None:
    assert len(judge.requests) > 90
    for name, number in judge.requests.items():
        assert codes.COMMANDS[number].lower() == name.replace("_", "").lower(), f"{number} is {name}, ours is {codes.COMMANDS.get(number)}"
        assert number == message_class("rocketmq", codes.COMMANDS[number] + "Request").CODE  # type: ignore[attr-defined]
    oracle(judge.name, request_codes=len(judge.requests))


def test_no_code_of_ours_is_unknown_to_both_lines() -> None:
    both = set(judge_of("4.9.7").requests.values()) | set(judge_of("5.5.0").requests.values())
    assert set(codes.COMMANDS) == both
    both = set(judge_of("4.9.7").responses.values()) | set(judge_of("5.5.0").responses.values())
    assert set(codes.NAMES) == both


def test_every_response_code_has_its_error(judge: Judge, oracle: Callable[..., None]) -> None:
    assert len(judge.responses) > 30
    for name, number in judge.responses.items():
        if judge.version < "5" and number in codes.EARLIER:
            kind = codes.EARLIER[number]
        elif number:
            kind = codes.ERRORS[number]
            assert codes.NAMES[number] == name
            assert type(codes.error(number, "text")) is kind
        else:
            continue
        assert (kind.code, kind.name) == (number, name)
        assert (kind.__doc__ or "").rstrip(".").upper() != name, f"{name} has no meaning written down"
    oracle(judge.name, response_codes=len(judge.responses))


def test_languages_have_their_numbers(judge: Judge) -> None:
    found = {line["number"]: line["name"] for line in judge.lines["code"] if line["of"] == "language"}
    assert all(LANGUAGES[number] == name for number, name in found.items())
    if judge.version > "5":
        assert len(found) == len(LANGUAGES)


# header classes ----------------------------------------------------------------------------------------------------------------------


def test_every_header_class_is_in_the_schema_field_by_field(judge: Judge, oracle: Callable[..., None]) -> None:
    problems: list[str] = []
    fields = 0
    for name, line in judge.classes.items():
        for message in messages_of(name):
            cls = message_class("rocketmq", message)
            action, code = line["action"], getattr(cls, "CODE", None)
            if action not in (None, code) and message == messages_of(name)[0] and message.endswith("Request"):
                problems.append(f"{name} is of code {action}, {message} of {code}")
            have = {field.vendor: field for field in fields_of(cls)}
            for field, kind, required in line["fields"]:
                fields += 1
                problems += compare_field(judge, message, field, kind, required, have.get(field))
    assert not problems, "\n".join(problems)
    oracle(judge.name, header_classes=len(judge.classes), fields=fields)


def compare_field(judge: Judge, message: str, field: str, kind: str, required: bool, ours: Field | None) -> Iterator[str]:
    if ours is None:
        yield f"{message}.{field} is missing"
        return
    if ours.type != TYPES[kind]:
        yield f"{message}.{field} is {kind}, ours is {ours.type}"
    ours_required = ours.nullable[0] > ours.nullable[1]
    if ours_required and not required:
        yield f"{message}.{field} may be absent, ours is required"
    if required and not ours_required and message not in ANSWERED_WITHOUT and not optional_elsewhere(message, field):
        yield f"{message}.{field} is required, ours is not"


def optional_elsewhere(message: str, field: str) -> bool:
    """Whether the other line has the message and does not ask for the field."""
    for version in ("4.9.7", "5.5.0"):
        for name, line in judge_of(version).classes.items():
            if message in messages_of(name) and all(not required for other, _, required in line["fields"] if other == field):
                return True
    return message == "GetBrokerClusterAclConfigResponse"  # declared, and never sent: the body has it


def test_no_field_of_ours_is_unknown_to_both_lines() -> None:
    have: dict[str, set[str]] = {}
    for version in ("4.9.7", "5.5.0"):
        for name, line in judge_of(version).classes.items():
            for message in messages_of(name):
                have.setdefault(message, set()).update(field for field, _, _ in line["fields"])
    for number, command in codes.COMMANDS.items():
        for message in (command + "Request", command + "Response"):
            try:
                cls = message_class("rocketmq", message)
            except UnknownMessage:
                continue
            strange = {field.vendor for field in fields_of(cls)} - have.get(message, set()) - BESIDE
            assert not strange, f"{message} ({number}): {strange} is in no header class"


# frames ------------------------------------------------------------------------------------------------------------------------------


def facts(command: RemotingCommand) -> tuple[Any, ...]:
    body = bytes(command.body).hex()
    return command.code, command.opaque, command.flag, command.version, command.language, command.remark, body


def theirs(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("code", "opaque", "flag", "version", "language", "remark", "body"))


def test_frames_that_java_writes_are_read_and_written_back(judge: Judge, oracle: Callable[..., None]) -> None:
    exact = plain = 0
    for line in judge.lines["frame"]:
        data, values = bytes.fromhex(line["hex"]), line["values"]
        command = RemotingCommand.decode(data[4:])
        assert facts(command) == theirs(line), line
        if line["class"] == SHORT_OF_FIELDS and line["way"] == "fast":
            assert command.ext.items() <= values.items()
            values = {name: value for name, value in values.items() if name in command.ext}
        assert command.ext == values, line
        for message in messages_of(line["class"]):
            check_typed(message, command.ext, values)
            shown = wire.decode("rocketmq", message, 0, data)
            assert wire.encode("rocketmq", message, 0, shown) == data, line
        shown = wire.decode("rocketmq", "Frame", 0, data)
        assert shown["extFields"] == values
        assert wire.encode("rocketmq", "Frame", 0, shown) == data, line
        exact += 1
        again = b"".join(bytes(part) for part in command.encode())
        if again == data[4:]:
            plain += 1
        else:
            assert "header" in shown
            assert not line["binary"]
            assert not command.ext or judge.version < "5", "extFields: {}, or characters that fastjson 1 escapes without need"
    counts = {"frames_of_theirs": len(judge.lines["frame"]), "exact_in_both_directions": exact, "of_them_as_we_write_frames": plain}
    oracle(judge.name, **counts)


def check_typed(message: str, ext: dict[str, str], values: dict[str, str]) -> None:
    """The typed message has Java's values, and gives its fields back."""
    cls: Any = message_class("rocketmq", message)
    made = cls.from_ext(ext)
    for field in fields_of(cls):
        value = getattr(made, field.name)
        if field.vendor not in values:
            assert value is None, f"{message}.{field.vendor}"
        elif field.type == "bool":
            assert value is (values[field.vendor] == "true")
        elif field.type == "string":
            assert value == values[field.vendor]
        else:
            assert value == int(values[field.vendor])
    assert made.to_ext() == {name: value for name, value in ext.items() if name in {field.vendor for field in fields_of(cls)}} == values


TEXTS = (
    "x", "TopicTest", "标签 🙂", 'say "no" \\ /', "KEYS\x01k\x02", "\t\n\r\b\f\x00\x0b\x1f\x7f\x85", "\u2028\u2029\ufeff", "long " * 2000,
)  # fmt: skip


def ours(rng: random.Random, java_classes: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Frames of ours: every message that is one of these header classes, random values, both header types."""
    for java_class in java_classes:
        for message in messages_of(java_class):
            cls: Any = message_class("rocketmq", message)
            for number in range(2 * ROUNDS):
                values = {field.name: some_value(rng, field) for field in fields_of(cls) if field.vendor not in BESIDE}
                made = cls(**{name: value for name, value in values.items() if value is not None})
                command = RemotingCommand(
                    rng.randrange(-32768, 32768),
                    rng.randrange(-(1 << 31), 1 << 31),
                    flag=rng.randrange(4),
                    remark=rng.choice([None, *TEXTS]),
                    ext=made.to_ext(),
                    body=rng.choice([b"", b"\x00body"]),
                    version=rng.randrange(32768),
                    language=rng.randrange(12),
                    serializer=number % 2,
                )
                rest = b"".join(bytes(part) for part in command.encode())
                yield {"class": java_class, "message": message, "command": command, "data": len(rest).to_bytes(4, "big") + rest}


def classes(version: str) -> list[str]:
    """The header classes of a line's jars."""
    return [line["name"] for line in java.run(f"rocketmq-{version}", "RocketWire", "1", "0") if line["kind"] == "class"]


CHECKED: dict[str, list[Any]] = {
    "boundaryType": ["LOWER", "UPPER"],
    "commitOrRollback": [8, 12],
    "topicFilterType": ["SINGLE_TAG", "MULTI_TAG"],
    "plainAccessConfigs": [None],
    "maxCount": [1, 100],
    "topK": [1, 20],
}
"""Fields of which Java's classes refuse most values."""


def some_value(rng: random.Random, field: Field) -> Any:
    if field.nullable[0] <= field.nullable[1] and rng.random() < 0.3:
        return None
    if field.vendor in CHECKED:
        return rng.choice(CHECKED[field.vendor])
    if field.type == "string":
        return rng.choice(TEXTS)
    if field.type == "bool":
        return rng.random() < 0.5
    bits = 31 if field.type == "int32" else 63
    return rng.choice([0, -1, (1 << bits) - 1, -(1 << bits), rng.getrandbits(bits)])


def test_java_reads_what_we_write(judge: Judge, oracle: Callable[..., None]) -> None:
    answers = judge.read
    assert len(answers) == len(judge.sent) > 1000
    for item, line in zip(judge.sent, answers, strict=True):
        assert "error" not in line, (item["message"], line)
        command, java_class = item["command"], judge.classes[item["class"]]
        assert theirs(line) == facts(command), item["message"]
        known = {field for field, _, _ in java_class["fields"]}  # those of the other line are passed over
        if item["class"] == SHORT_OF_FIELDS:
            known = {field for field in known if len(field) == 1}
        wanted = java_class["untouched"] | {name: value for name, value in command.ext.items() if name in known}
        if "invokeTime" in wanted and "invokeTime" not in command.ext:  # the clock's
            del wanted["invokeTime"], line["values"]["invokeTime"]
        assert line["values"] == wanted, item["message"]
    oracle(judge.name, frames_of_ours=len(answers), read_there_alike=len(answers))


# stored messages, batches, ids, signatures ------------------------------------------------------------------------------------


def host_of(text: str) -> str:
    """``hex:port`` of the judge as the form has it."""
    address, _, port = text.partition(":")
    host = ipaddress.ip_address(bytes.fromhex(address))
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def check_stored(fields: dict[str, Any], values: dict[str, Any]) -> None:
    for name in ("queueId", "flag", "queueOffset", "commitLogOffset", "sysFlag", "bornTimestamp", "storeTimestamp", "reconsumeTimes",
                 "preparedTransactionOffset", "bodyCRC", "topic"):  # fmt: skip
        assert fields[name] == values[name], name
    assert (fields["bornHost"], fields["storeHost"]) == (host_of(values["bornHost"]), host_of(values["storeHost"]))
    assert base64.b64decode(fields["body"]).hex() == values["body"]
    assert (fields["properties"] or None) == (values["properties"] or None)
    broker, _, port = fields["storeHost"].rpartition(":")
    assert values["msgId"] == str(OffsetId(broker.strip("[]"), int(port), fields["commitLogOffset"]))


def test_stored_messages(judge: Judge, oracle: Callable[..., None]) -> None:
    kinds = set()
    for line in judge.lines["stored"]:
        data = bytes.fromhex(line["hex"])
        fields = wire.decode("rocketmq", "StoredMessage", 0, data)
        check_stored(fields, line["values"])
        assert wire.encode("rocketmq", "StoredMessage", 0, fields) == data
        kinds.add(fields["sysFlag"] & 0x30)
        columns, _ = decode_rocketmq([data], topic=fields["topic"], partition=0, start=-(1 << 63))
        assert columns.values() == [bytes.fromhex(line["values"]["body"])]
        assert columns.facts["commit_log_offset"] == [line["values"]["commitLogOffset"]]
    assert kinds == {0, 0x10, 0x20, 0x30}
    newer = judge.stored_read
    assert len(newer) == (4 if judge.version > "5" else 0)
    for data, line in zip(stored_v2(len(newer)), newer, strict=True):
        check_stored(wire.decode("rocketmq", "StoredMessage", 0, data), line["values"])
    oracle(judge.name, stored_messages=len(judge.lines["stored"]) + len(newer))


def stored_v2(count: int) -> list[bytes]:
    """Of ours, in the second format (topic length of 2 bytes), each kind of hosts; only 5.x reads it."""
    made = []
    for number in range(count):
        flags = (number & 1) * 0x10 + (number >> 1 & 1) * 0x20
        fields: dict[str, Any] = {
            "magicCode": 0xDAA320AB - (1 << 32),
            "queueId": 3,
            "queueOffset": 1 << 40,
            "commitLogOffset": 77,
            "sysFlag": flags,
            "bornTimestamp": 5,
            "storeTimestamp": 6,
            "bornHost": "[2001:db8::1]:1" if flags & 0x10 else "10.0.0.1:2",
            "storeHost": "[::1]:3" if flags & 0x20 else "1.2.3.4:65535",
            "topic": "t" * 300,
            "properties": {"KEYS": "标签", "a": "b"},
            "bodyText": "body",
        }
        made.append(wire.encode("rocketmq", "StoredMessage", 0, fields))
    return made


def batch_of_ours() -> bytes:
    builder = RocketBatchBuilder(1 << 20)
    for number in range(5):
        assert builder.append(b"v%d" % number, b"key-%d" % number, (("标", "签".encode()),), "UNIQUE", flag=number)
    return bytes(builder.finish())


def test_batches(judge: Judge, oracle: Callable[..., None]) -> None:
    for line in judge.lines["batch"]:
        data = bytes.fromhex(line["hex"])
        fields = wire.decode("rocketmq", "MessageBatch", 0, data)
        found = [
            {"flag": item["flag"], "body": base64.b64decode(item["body"]).hex(), "properties": item["properties"]}
            for item in fields["messages"]
        ]
        assert found == line["values"]
        assert wire.encode("rocketmq", "MessageBatch", 0, fields) == data
    read = judge.batch_read["values"]
    assert [(item["flag"], bytes.fromhex(item["body"])) for item in read] == [(number, b"v%d" % number) for number in range(5)]
    for number, item in enumerate(read):
        assert item["properties"] == {"KEYS": f"key-{number}", "标": "签", "UNIQ_KEY": "UNIQUE", "WAIT": "true"}
    oracle(judge.name, batches=len(judge.lines["batch"]) + 1)


def same_keys(tree: Any) -> Any:
    """The tree as the reader gives it: bare numbers as keys are text."""
    if isinstance(tree, dict):
        return {key if isinstance(key, ObjectKey) else str(key): same_keys(value) for key, value in tree.items()}
    return sorted(map(same_keys, tree), key=str) if isinstance(tree, list) else tree


def holds(found: Any, wanted: Any, path: str) -> None:
    """Everything wanted is there; Java adds fields that have a default."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), path
        for key, value in wanted.items():
            assert key in found, f"{path}.{key}"
            holds(found[key], value, f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
            holds(one, other, f"{path}[{at}]")
    else:
        assert found == wanted, path


def test_bodies_with_keys_that_are_no_text(judge: Judge, oracle: Callable[..., None]) -> None:
    """Java reads our bodies, and we read what it makes of them."""
    assert len(judge.bodies_read) == len(BODIES)
    for (name, tree), line in zip(BODIES.items(), judge.bodies_read, strict=True):
        assert "error" not in line, (name, line)
        holds(same_keys(fastjson.loads(bytes.fromhex(line["hex"]))), same_keys(tree), name)
    assert b'{{"' in b"".join(bytes.fromhex(line["hex"]) for line in judge.bodies_read), "objects as keys"
    oracle(judge.name, bodies=len(BODIES))


def test_message_ids(judge: Judge, oracle: Callable[..., None]) -> None:
    for line in judge.lines["id"]:
        made = OffsetId(str(ipaddress.ip_address(bytes.fromhex(line["host"]))), line["port"], line["offset"])
        assert str(made) == line["text"]
        assert OffsetId.parse(line["text"]) == made
    oracle(judge.name, ids=len(judge.lines["id"]))


def test_signatures(judge: Judge, oracle: Callable[..., None]) -> None:
    for line in judge.lines["acl"]:
        text = acl.signed_text(line["ext"], bytes.fromhex(line["body"]))
        assert acl.signature(line["secret"], text) == line["signature"]
    oracle(judge.name, signatures=len(judge.lines["acl"]))
