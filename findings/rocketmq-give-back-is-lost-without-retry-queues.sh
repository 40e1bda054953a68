#!/usr/bin/env bash
# Software:  Apache RocketMQ 5.5.0 (rocketmq-namesrv, rocketmq-broker from Maven Central), OpenJDK 17, one broker on localhost.
# Behaviour: a message that a consumer gives back (CONSUMER_SEND_MSG_BACK, request code 36) in a group whose retryQueueNums is 0 is gone. The
#            broker answers SUCCESS and stores nothing: the group's retry topic gets no message, and there is none among its dead
#            letters. In a group with retryQueueNums=1, all else alike, the message is in the retry topic after its delay. Java's
#            consumer, which gives back whatever a listener returns RECONSUME_LATER for, takes the answer for done.
# Seen:      2026-11-29:
#                retryQueueNums=0: code 0, then 0 messages in the retry topic, 0 dead letters
#                retryQueueNums=1: code 0, then 1 messages in the retry topic, 0 dead letters
# Fails when the answer is another one, or when the message is kept.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>5.5.0</version></dependency>
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>5.5.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath -Dmdep.outputFile="$folder/path"
python3 - "$folder" <<'PYTHON'
import atexit
import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
path = (folder / "path").read_text().strip()
opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("sun.nio.ch", "java.nio", "java.lang", "java.util")]
opens += [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in ("sun.nio.ch", "jdk.internal.ref")]


def ask(port: int, code: int, fields: dict[str, str] = {}, body: bytes = b"") -> dict:
    words = {"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": 401}
    header = json.dumps(words | {"extFields": fields}).encode()
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        data = b""
        while len(data) < 8 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
            more = sock.recv(65536)
            assert more, "the server hung up"
            data += more
    return json.loads(data[8 : 8 + (struct.unpack(">i", data[4:8])[0] & 0xFFFFFF)])


def server(main: str, name: str, lines: dict[str, str]) -> subprocess.Popen:
    home = folder / name
    (home / "conf").mkdir(parents=True)
    file = home / "server.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    flags = ["-Xmx384m", f"-Duser.home={home}", "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99", *opens]
    with (home / "out").open("w") as out:
        process = subprocess.Popen(["java", *flags, "-cp", path, main, "-c", str(file)], stdout=out, stderr=out, env=os.environ | {"ROCKETMQ_HOME": str(home)})
    atexit.register(process.kill)
    return process


def answered(port: int, code: int) -> None:
    limit = time.monotonic() + 120
    while True:
        try:
            assert ask(port, code)["code"] == 0
            return
        except (OSError, AssertionError):
            assert time.monotonic() < limit, "the server does not answer"
            time.sleep(0.3)


port = 21981
lines = {
    "brokerName": "a", "brokerClusterName": "c", "listenPort": port, "haListenPort": port + 1, "namesrvAddr": f"127.0.0.1:{port + 5}",
    "brokerIP1": "127.0.0.1", "storePathRootDir": folder / "store", "storePathCommitLog": folder / "store" / "commitlog",
    "mappedFileSizeCommitLog": 67108864, "diskMaxUsedSpaceRatio": 98,
}  # fmt: skip
server("org.apache.rocketmq.namesrv.NamesrvStartup", "names", {"listenPort": port + 5})
answered(port + 5, 106)
server("org.apache.rocketmq.broker.BrokerStartup", "broker", lines)
answered(port, 28)
topic = {"topic": "t", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
assert ask(port, 17, topic | {"topicSysFlag": "0", "order": "false"})["code"] == 0
sent = {
    "producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
    "bornTimestamp": str(int(time.time() * 1000)), "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
}  # fmt: skip


def given_back(group: str, queues: int) -> tuple[int, int, int]:
    """The code of the answer, and how many messages the retry topic and the dead letters have after it."""
    config = {"groupName": group, "consumeEnable": True, "retryQueueNums": queues, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1}
    assert ask(port, 200, body=json.dumps(config).encode())["code"] == 0
    message = ask(port, 10, sent, b"hello")
    assert message["code"] == 0, message
    number = message["extFields"]["msgId"]
    back = {"offset": str(int(number[-16:], 16)), "group": group, "delayLevel": "1", "originMsgId": number, "originTopic": "t", "unitMode": "false"}
    answer = ask(port, 36, back | {"maxReconsumeTimes": "16"})
    limit = time.monotonic() + 20  # delay level 1 is a second
    kept = 0
    while not kept and time.monotonic() < limit:
        time.sleep(0.5)
        found = [ask(port, 30, {"topic": f"%{kind}%{group}", "queueId": "0"}).get("extFields") or {} for kind in ("RETRY", "DLQ")]
        retry, dead = (int(one.get("offset", 0)) for one in found)
        kept = retry + dead
    return answer["code"], retry, dead


none, one = given_back("none", 0), given_back("one", 1)
for queues, (code, retry, dead) in ((0, none), (1, one)):
    print(f"retryQueueNums={queues}: code {code}, then {retry} messages in the retry topic, {dead} dead letters")
sys.exit(0 if none == (0, 0, 0) and one == (0, 1, 0) else 1)
PYTHON
