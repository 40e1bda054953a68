"""Every Kafka message at every version, judged by Kafka's own classes: definitions, bytes both ways, values, and what is refused.

A jar set is one JVM: it reads messages that we filled and encoded, and fills every message itself (see java/KafkaVectors.java).
"""

import dataclasses
import json
import random
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from brokers.java import command
from brokers.maven import classpath
from kafka_messages import fields, filled, flat, kafka_json, struct_of, within
from wireproto import wire
from wireproto._codec import message_spec
from wireproto.errors import ProtocolError, ValueUnsupported
from wireproto.kafka import codes, messages

pytestmark = pytest.mark.java

JARS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-messages-4.4.0"]
NEWEST = JARS[-1]
PLACES = {"back": "back", "vector": "vectors", "probe": "probes", "error": "errors", "api": "apis", "codes": "enums"}  # by kind of line
OURS = 6  # random messages of ours, for each message and version
THEIRS = 7  # random messages of Kafka's; defaults, highest and lowest values come on top

RENAMED = {  # an older release's name of a field, and the one that newer releases give it, which is ours
    ("VoteRequest", "topics.partitions.candidateEpoch"): "replicaEpoch",
    ("VoteRequest", "topics.partitions.candidateId"): "replicaId",
    ("VoteRequest", "topics.partitions.candidateDirectoryId"): "replicaDirectoryId",
    ("TxnOffsetCommitRequest", "generationId"): "generationIdOrMemberEpoch",
    ("StreamsGroupHeartbeatResponse", "acceptableRecoveryLag"): "acceptableRecoveryLagLegacy",
}
RETRIABLE_HERE = {"BROKER_NOT_AVAILABLE", "REBOOTSTRAP_REQUIRED"}  # Java's client deals with them before it looks whether they are
REDEFINED = {  # drafts in 3.9, off by default; what was released under the same number has other fields, and ours has those
    ("kafka-3.9.2", "ReadShareGroupStateSummaryResponse"),
    ("kafka-3.9.2", "ShareGroupMetadataValue"),
}


@dataclasses.dataclass
class Judge:
    """What one set of jars says."""

    jars: str
    definitions: dict
    sent: list  # (name, version, our message, its bytes)
    messages: dict
    back: list
    vectors: list
    probes: list
    errors: list
    apis: list
    enums: list

    def versions(self, name):
        span = self.definitions[name].versions
        return range(span.first, span.last + 1)

    def all_versions(self):
        names = [name for name in sorted(self.definitions) if (self.jars, name) not in REDEFINED]
        return [(name, version) for name in names for version in self.versions(name)]


@cache
def definitions_of(jars):
    return kafka_json().read(classpath(jars).split(":"))


@pytest.fixture(scope="module", params=JARS)
def judge(request):
    jars = request.param
    made = Judge(jars, definitions_of(jars), [], {}, *([] for _ in PLACES))
    rng = random.Random(jars)
    for name, version in made.all_versions():
        cls = getattr(messages, name)
        tries = [cls()] if encodes(cls(), version) else []
        tries += [filled(cls, version, rng, unknown_tags=True, nan=True) for _ in range(OURS)]
        made.sent += [(name, version, message, message.encode(version)) for message in tries]
    with tempfile.TemporaryDirectory(prefix="wireproto-java-") as home:
        asked, said = Path(home, "in"), Path(home, "out")
        asked.write_text("".join(f"{name}\t{version}\t{data.hex()}\n" for name, version, _, data in made.sent))
        with asked.open() as source, said.open("w") as target:
            program = command(jars, "KafkaVectors", ["20261121", str(THEIRS)], home)
            done = subprocess.run(program, stdin=source, stdout=target, stderr=subprocess.PIPE, timeout=300)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        for line in said.read_text(encoding="utf-8").splitlines():
            said_of = json.loads(line)
            if said_of["k"] == "message":
                made.messages[said_of["m"]] = said_of
            elif (jars, said_of["m"]) not in REDEFINED:
                getattr(made, PLACES[said_of["k"]]).append(said_of)
    return made


def encodes(message, version):
    try:
        message.encode(version)
    except ValueUnsupported:
        return False
    return True


def fail(found):
    """All of them in one failure, the first ones in words."""
    assert not found, f"{len(found)} differences:\n" + "\n".join(str(one)[:600] for one in found[:15])


def ours_by_name(jars, name, path):
    """Our path of a field that a jar names."""
    parts, shown = [], []
    for part in path.split("."):
        shown.append(part)
        newer = jars != NEWEST and RENAMED.get((name, ".".join(shown)))
        parts.append(newer or part)
    return ".".join(parts)


# ---- definitions ------------------------------------------------------------------------------------------------------------------


def test_no_message_and_no_version_is_missing(judge):
    found = []
    known = wire.names("kafka")
    for name in judge.definitions:
        versions = judge.versions(name)
        if not versions:
            continue
        if name not in known:
            found.append(f"{name} {judge.definitions[name].versions} is missing here")
            continue
        first, last, flexible = message_spec(getattr(messages, name))[1:4]
        found += [f"{name} has no version {version} here" for version in versions if not first <= version <= last]
        theirs = judge.definitions[name].flexible
        found += [f"{name} {version}: flexible" for version in versions if (version in theirs) != (0 <= flexible <= version)]
        if judge.messages[name].get("problem"):
            found.append(f"{name}: Kafka's side has {judge.messages[name]['problem']}")
    found += [f"{name}: {said['problem']}" for name, said in judge.messages.items() if name not in judge.definitions]
    fail(found)


def test_nothing_is_here_that_no_release_has():
    """Every message and version of ours is in one of the jars; but a log key's version reaches up to its prefix (see the schema)."""
    all_of = [definitions_of(jars) for jars in JARS]
    found = []
    for name in wire.names("kafka"):
        cls = getattr(messages, name)
        for version in range(message_spec(cls)[1], message_spec(cls)[2] + 1):
            theirs = any(name in each and version in each[name].versions for each in all_of)
            if not theirs and not (hasattr(cls, "PREFIXES") and version <= cls.PREFIXES[1]):
                found.append(f"{name} {version}")
    fail(found)


def test_every_field_is_defined_as_in_the_jar(judge):
    found, fields_seen = [], 0
    newest = definitions_of(NEWEST)
    for name, version in judge.all_versions():
        definition = judge.definitions[name]
        ever = [dict(definition.flat(each)) for each in judge.versions(name)]
        theirs = {ours_by_name(judge.jars, name, path): facts for path, facts in definition.flat(version)}
        ours = dict(flat(getattr(messages, name), version))
        fields_seen += len(theirs)
        for path in {**theirs, **ours}:
            their, our = theirs.get(path), ours.get(path)
            if their is None and our.tag >= 0 and judge.jars != NEWEST:
                continue  # a tagged field of a newer release
            if their and our:
                if judge.jars != NEWEST and newest.get(name):  # what newer releases changed without a new version
                    their = their._replace(key=our.key, ignorable=our.ignorable)
                if all(path in each for each in ever):
                    their = their._replace(ignorable=our.ignorable)  # says nothing where no version lacks the field
            if their != our:
                found.append(f"{name} version {version}, field {path}: {judge.jars} has {their}, we have {our}")
        order = [path for path in theirs if path in ours]
        if order != [path for path in ours if path in theirs]:
            found.append(f"{name} version {version}: order of fields")
    fail(found)
    assert fields_seen > 5000


# ---- bytes and values --------------------------------------------------------------------------------------------------------------


def different(jars, name, ours, theirs, path=""):
    """Where our JSON form and theirs differ: paths with both values. Theirs shows records by size, and no unknown tags."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        theirs = {ours_by_name(jars, name, f"{path}{key}")[len(path) :]: value for key, value in theirs.items()}
        for key in {**theirs, **ours}:
            size = theirs.get(key + "SizeInBytes")
            if key == "unknownTags" or (key.endswith("SizeInBytes") and key not in ours):
                continue
            if size is not None:
                if len(ours[key]) // 4 * 3 - ours[key].count("=") != size:
                    found.append(f"{path}{key}: {size} bytes, {ours[key]!r}")
            elif key not in ours:
                found.append(f"{path}{key}: missing here, there {theirs[key]!r}")
            elif key not in theirs:
                if jars == NEWEST or not newer_tag(name, path + key):
                    found.append(f"{path}{key}: here {ours[key]!r}, missing there")
            else:
                found += different(jars, name, ours[key], theirs[key], f"{path}{key}.")
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        return [one for pair in zip(ours, theirs, strict=True) for one in different(jars, name, *pair, path)]
    return [] if type(ours) is type(theirs) and ours == theirs else [f"{path[:-1]}: here {ours!r}, there {theirs!r}"]


@cache
def newer_tag(name, path):
    """Whether a tagged field came without a new version after the oldest jar."""
    definition = definitions_of(NEWEST).get(name)
    facts = dict(definition.flat(definition.versions.last)).get(path) if definition else None
    return facts is not None and facts.tag >= 0


def test_we_read_and_write_what_kafka_writes(judge, oracle):
    found, exact, forms = [], 0, 0
    for said in judge.vectors:
        name, version = said["m"], said["v"]
        if "refused" in said:
            assert said["i"] == -3, said
            if encodes(getattr(messages, name)(), version):
                found.append(f"{name} {version}: the defaults are refused there ({said['refused']}), not here")
            continue
        data = bytes.fromhex(said["hex"])
        try:
            ours = wire.decode("kafka", name, version, data)
            again = wire.encode("kafka", name, version, ours)
        except ProtocolError as why:
            found.append(f"{name} {version}: {why!r} of {said['hex']}")
            continue
        if said["i"] == -3 and getattr(messages, name)().encode(version) != data:
            found.append(f"{name} {version}: other defaults, {said['hex']} there")
        if again != data:
            found.append(f"{name} {version}: {again.hex()} from {said['hex']}")
        if values := different(judge.jars, name, ours, said["j"]):
            found.append(f"{name} {version}: {'; '.join(values)}")
        if "SizeInBytes" not in str(said["j"]) and "unknownTags" not in str(ours):  # it says everything, by the names of its release
            if wire.encode("kafka", name, version, said["j"]) != data:
                found.append(f"{name} {version}: other bytes from the JSON of {said['hex']}")
            forms += 1
        exact += not values and again == data
    fail(found)
    kinds = {(said["m"], said["v"]) for said in judge.vectors}
    assert kinds == set(judge.all_versions())
    drafts = sum(jars == judge.jars for jars, _ in REDEFINED)
    counts = {"messages": len({name for name, _ in kinds}), "versions": len(kinds)}
    oracle(shown(judge), **counts, vectors_of_theirs=len(judge.vectors), exact_here=exact, from_their_json_too=forms)
    if drafts:
        oracle(shown(judge), drafts_left_out=drafts)


def test_kafka_reads_and_writes_what_we_write(judge, oracle):
    found = []
    assert len(judge.back) == len(judge.sent)
    for (name, version, message, data), said in zip(judge.sent, judge.back, strict=True):
        assert (name, version) == (said["m"], said["v"])
        if said.get("error") or said["left"] or said["hex"] != "=":
            found.append(f"{name} {version}: {data.hex()} is there {said}")
        elif values := different(judge.jars, name, wire.decode("kafka", name, version, data), said["j"]):
            found.append(f"{name} {version}: {'; '.join(values)} in {message!r}")
    fail(found)
    oracle(shown(judge), vectors_of_ours=len(judge.sent), exact_there=len(judge.sent))


def shown(judge):
    return "kafka-clients " + judge.jars.rpartition("-")[2]


# ---- what a version cannot carry ---------------------------------------------------------------------------------------------------


def test_the_same_fields_are_refused_and_left_out(judge, oracle):
    """One field set that the version lacks, or nulled: refused, silently left out, or written, as Kafka does."""
    found, count = [], 0
    for said in judge.probes:
        name, version = said["m"], said["v"]
        base = getattr(messages, name).decode(bytes.fromhex(said["hex"]), version)
        for what, theirs in said["r"].items():
            path, variant = what.split(" ")
            changed = with_field(base, ours_by_name(judge.jars, name, path).split("."), variant, version)
            try:
                data = changed.encode(version).hex()
                ours = "=" if data == said["hex"] else data
            except ValueUnsupported:
                ours = "!"
            count += 1
            if ours != ("!" if theirs.startswith("!") else theirs):
                found.append(f"{name} {version}: {what} is {theirs} there, {ours} here")
    fail(found)
    assert count > 2000
    oracle(shown(judge), fields_set_or_nulled=count)


def with_field(message, path, variant, version):
    """A copy of the message with one field changed, beneath the first item of each array on the way."""
    named = [field for field in fields(type(message)) if field.vendor == path[0]]
    field = next((field for field in named if within(version, field.versions)), named[0])
    if len(path) == 1:
        return message.replace(**{field.name: None if variant == "null" else other_value(field)})
    inner = getattr(message, field.name)
    if isinstance(inner, tuple):
        return message.replace(**{field.name: (with_field(inner[0], path[1:], variant, version), *inner[1:])})
    return message.replace(**{field.name: with_field(inner, path[1:], variant, version)})


def other_value(field):
    """A value that is not the field's default."""
    kind = field.type.strip("[]")
    child = struct_of(field)
    if child:
        first = fields(child)[0]
        value = child(**{first.name: other_value(first)})
    elif kind == "bool":
        value = field.default is not True
    else:
        others = {"string": "other", "float64": 5.0, "uuid": b"5" * 16, "bytes": b"other", "blob": b"other", "records": b"other"}
        value = others.get(kind, 5)
    return (value,) if field.type.startswith("[") else value


# ---- numbers -----------------------------------------------------------------------------------------------------------------------


def test_error_codes_are_those_of_the_jar(judge, oracle):
    """Each code by its name, worth another try where its Java exception is, and behind a look-up where Java's metadata is stale by it."""
    found = []
    for said in judge.errors:
        code = said["code"]
        here = codes.NAMES.get(code)
        if here != said["m"]:
            found.append(f"code {code} is {said['m']} there, {here} here")
        elif code and codes.ERRORS[code].retriable != (said["retriable"] or here in RETRIABLE_HERE):
            found.append(f"{here} is {'' if said['retriable'] else 'not '}retriable there")
        elif code and said["refresh"] and not codes.ERRORS[code].refresh:
            found.append(f"{here} means stale metadata there")
    if judge.jars == NEWEST:
        found += [f"{name} is not there" for code, name in codes.NAMES.items() if code not in {said["code"] for said in judge.errors}]
    fail(found)
    oracle(shown(judge), error_codes=len(judge.errors))


def test_enumerations_are_those_of_the_jar(judge):
    found = []
    for said in judge.enums:
        theirs = {int(code): name.removesuffix("_CONFIG").removeprefix("read_").upper() for code, name in said["codes"].items()}
        ours = {int(each): each.name for each in getattr(codes, said["m"])}
        newer = set(ours) - set(theirs) if judge.jars != NEWEST else set()
        if theirs != {code: name for code, name in ours.items() if code not in newer}:
            found.append(f"{said['m']} is {theirs} there, {ours} here")
    fail(found)
    assert len(judge.enums) >= 9


def test_api_keys_and_headers_are_those_of_the_jar(judge):
    found = []
    for said in judge.apis:
        name = {"ListClientMetricsResources": "ListConfigResources"}.get(said["m"], said["m"])
        if codes.API_KEYS.get(said["key"]) != name:
            found.append(f"{said['key']} is {name} there")
            continue
        request = getattr(messages, f"{name}Request")
        assert said["key"] == request.API_KEY
        for version, theirs in said["headers"].items():
            ours = [request.header_version(int(version)), request.RESPONSE.header_version(int(version))]
            if ours != theirs:
                found.append(f"{name} {version} has headers {theirs} there, {ours} here")
    fail(found)
    assert len(judge.apis) > 80
