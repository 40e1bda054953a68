"""Every jute record against ZooKeeper 3.9.5's classes in a JVM: names, fields, bytes in both directions; and every number of the API."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

from brokers import java
from wire.test_zookeeper_records import CLASSES, VECTORS, build
from wireproto import wire
from wireproto.errors import AuthError, BrokerError
from wireproto.message import fields_of
from wireproto.zookeeper import codes
from wireproto.zookeeper.messages import MultiHeader

pytestmark = pytest.mark.java
POM, JAVA = "zookeeper-3.9.5", "JuteJudge"
NAME = "jute of ZooKeeper 3.9.5"
OURS = {"MultiHeader": "proto", "MultiRequest": "", "MultiResponse": ""}
TYPES = {"int": "int32", "long": "int64", "boolean": "bool", "String": "string", "byte[]": "bytes"}


def as_json(value: Any) -> Any:
    """A judge's value as `wire.decode` shows it."""
    if isinstance(value, dict) and set(value) == {"hex"}:
        return base64.b64encode(bytes.fromhex(value["hex"])).decode()
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value


def test_every_record_and_field_is_in_the_schema_with_its_type(oracle: Callable[..., None]) -> None:
    found = java.run(POM, JAVA, "fields")
    assert {line["record"].rpartition(".")[2] for line in found} == set(CLASSES)
    assert len(found) == len(CLASSES) == 68
    count = 0
    for line in found:
        name = line["record"].rpartition(".")[2]
        fields = fields_of(CLASSES[name])
        theirs = [(field, re.sub(r"List<(.*)>", r"[\1]", kind)) for field, kind in line["fields"]]
        theirs = [(field, TYPES.get(kind, kind.replace("String", "string"))) for field, kind in theirs]
        assert [(field.vendor, field.type) for field in fields] == theirs, name
        count += len(fields)
    oracle(NAME, records=len(found), fields=count)


def test_the_checked_in_vectors_are_what_the_classes_write_today() -> None:
    assert java.run(POM, JAVA, "vectors") == VECTORS


def test_random_records_go_both_ways_to_the_byte(oracle: Callable[..., None]) -> None:
    """Java's bytes decode to Java's values, are encoded to Java's bytes, and what our messages send is read by Java as the same values."""
    vectors = [*VECTORS, *java.run(POM, JAVA, "random", "20261121", "40")]
    multi = 0
    sent: list[tuple[str, dict[str, Any], bytes]] = []
    for vector in vectors:
        name, data = vector["record"].rpartition(".")[2], bytes.fromhex(vector["hex"])
        decoded = wire.decode("zookeeper", name, 0, data)
        assert wire.encode("zookeeper", name, 0, decoded) == data, vector
        if name.startswith("Multi") and isinstance(vector["value"], list):
            multi += 1
            check_multi(name, decoded, vector["value"])
            continue
        assert decoded == as_json(vector["value"]), vector
        sent.append((vector["record"], decoded, data))
    back = java.run(POM, JAVA, "reread", input=[f"{record} {data.hex()}" for record, _, data in sent])
    exact = 0
    for (record, decoded, data), line in zip(sent, back, strict=True):
        assert line["left"] == 0
        if not surrogates(decoded):  # Java writes them and does not read them
            assert as_json(line["value"]) == decoded, record
            assert line["hex"] == data.hex()
            exact += 1
    oracle(NAME, vectors=len(vectors), of_them_multi=multi, exact_in_both_directions=len(vectors), read_back_by_Java=exact)


def surrogates(value: Any) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= char <= "\udfff" or char > "\uffff" for char in value)
    return any(map(surrogates, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))


def check_multi(name: str, decoded: dict[str, Any], value: list[dict[str, Any]]) -> None:
    items = decoded["operations" if name == "MultiRequest" else "results"]
    assert [item["header"]["type"] for item in items] == [item["type"] for item in value]
    for ours, theirs in zip(items, value, strict=True):
        shown = as_json(theirs["record"])
        if name == "MultiRequest":
            assert ours["record"] == shown
        else:
            assert {key: item for key, item in ours.get("record", {}).items() if item is not None} == shown


def test_what_clients_send_is_read_by_java_as_the_same_values() -> None:
    """Text beyond U+FFFF too, which clients write as UTF-8."""
    sent = []
    for vector in VECTORS:
        if vector["case"] in ("full", "text", "high", "low", "empty"):
            cls = CLASSES[vector["record"].rpartition(".")[2]]
            sent.append((vector, build(cls, vector["value"]).encode()))
    back = java.run(POM, JAVA, "reread", input=[f"{vector['record']} {data.hex()}" for vector, data in sent])
    for (vector, _), line in zip(sent, back, strict=True):
        assert line["left"] == 0
        assert line["value"] == vector["value"]
        assert line["hex"] == vector["hex"]  # written anew by Java


def test_multis_that_clients_send_are_read_by_java() -> None:
    from wireproto.zookeeper.multi import Check, Children, Create, Delete, Get, Set, request
    from wireproto.zookeeper.paths import Chroot

    root = Chroot("")
    writes = [
        Create("/a", b"x"),
        Create("/b", None, ttl=2.5),
        Create("/c", container=True),
        Create("/d", stat=True),
        Set("/a", None),
        Delete("/a"),
        Check("/c", 3),
    ]
    bodies = [request(writes, root).body, request([Get("/a"), Children("/b")], root).body, request([], root).body]
    back = java.run(POM, JAVA, "reread", input=[f"MultiRequest {body.hex()}" for body in bodies])
    assert [(line["left"], line["hex"]) for line in back] == [(0, body.hex()) for body in bodies]
    assert bodies[2] == MultiHeader(type=-1, done=True, err=-1).encode()


def test_every_number_of_the_api_is_ours(oracle: Callable[..., None]) -> None:
    found = java.run(POM, JAVA, "numbers")
    numbers: dict[str, dict[str, int]] = {}
    for line in found:
        numbers.setdefault(line["kind"], {})[line["name"]] = line["number"]
    errors = numbers.pop("error")
    assert {code: codes.NAMES[code] for code in errors.values()} == {code: name for name, code in errors.items()}
    for code in errors.values():
        if code:
            raised = codes.error(code, "why", node="/n")
            assert isinstance(raised, BrokerError)
            assert type(raised) is codes.ERRORS[code]
            assert (raised.code, raised.__doc__ is not None, raised.node) == (code, True, "/n")
    flagged = {flag: {codes.NAMES[code] for code, kind in codes.ERRORS.items() if getattr(kind, flag)} for flag in ("retriable", "fenced")}
    busy = {"CONNECTIONLOSS", "OPERATIONTIMEOUT", "NEWCONFIGNOQUORUM", "RECONFIGINPROGRESS", "SESSIONMOVED", "THROTTLEDOP"}
    assert flagged == {"retriable": busy, "fenced": {"SESSIONEXPIRED"}}
    refused = {codes.NAMES[code] for code, kind in codes.ERRORS.items() if issubclass(kind, AuthError)}
    assert refused == {"NOAUTH", "AUTHFAILED", "SESSIONCLOSEDREQUIRESASLAUTH"}
    assert all(len(str(kind.__doc__).split()) > 2 for kind in codes.ERRORS.values())  # what it means, not its name
    assert numbers.pop("operation") == {name: operation.code for name, operation in codes.OPERATIONS.items()}
    assert set(codes.NAMES) - set(errors.values()) == {-9, -116, -117}  # of the C client
    for kind, theirs in numbers.items():
        ours = {plain(item.name): int(item) for item in getattr(codes, kind)}
        expected = {plain(name): number for name, number in theirs.items()}
        for only_in_java in ("unknown", "nosyncconnected") if kind == "KeeperState" else ():
            expected.pop(only_in_java, None)
        assert {name: ours.get(name) for name in expected} == expected, kind
    oracle(NAME, error_codes=len(errors), operations=len(codes.OPERATIONS), other_numbers=sum(map(len, numbers.values())))


def plain(name: str) -> str:
    return name.replace("_", "").lower()
