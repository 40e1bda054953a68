#!/usr/bin/env bash
# Software:  Apache RocketMQ 5.5.0 (rocketmq-namesrv, rocketmq-broker from Maven Central), OpenJDK 17, one broker on localhost.
# Behaviour: a broker that was started with timerWheelEnable=false in its broker.conf answers DeleteTopicInBroker
#            (request code 215) with SYSTEM_ERROR (1) and the words of a NullPointerException, as it asks the timer store that it
#            has not made for the topic's timers. Switched off at run time (UpdateBrokerConfig, 25) the same request succeeds.
# Seen:      2026-11-29:
#                started with timerWheelEnable=false:   code 1, Cannot invoke "…TimerMessageStore.getTimerMetrics()" because the return
#                                                       value of "…MessageStore.getTimerMessageStore()" is null
#                switched off while the broker runs:    code 0
# Fails when a topic can be deleted on both, or on neither.
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


def deleted(timers: str, number: int, later: str = "") -> dict:
    """What the broker answers to the request to delete a topic; `later`: a line of its settings that is changed before."""
    port = 21951 + 10 * number
    lines = {
        "brokerName": "a", "brokerClusterName": "c", "listenPort": port, "haListenPort": port + 1, "namesrvAddr": f"127.0.0.1:{port + 5}",
        "brokerIP1": "127.0.0.1", "storePathRootDir": folder / f"store-{number}", "storePathCommitLog": folder / f"store-{number}" / "commitlog",
        "mappedFileSizeCommitLog": 67108864, "diskMaxUsedSpaceRatio": 98, "timerWheelEnable": timers,
    }  # fmt: skip
    names = server("org.apache.rocketmq.namesrv.NamesrvStartup", f"names-{number}", {"listenPort": port + 5})
    answered(port + 5, 106)
    broker = server("org.apache.rocketmq.broker.BrokerStartup", f"broker-{number}", lines)
    answered(port, 28)
    if later:
        assert ask(port, 25, body=f"{later}\n".encode())["code"] == 0
    topic = {"topic": "t", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    made = ask(port, 17, topic | {"topicSysFlag": "0", "order": "false"})
    assert made["code"] == 0, made
    answer = ask(port, 215, {"topic": "t"})
    for process in (broker, names):
        process.kill()
        process.wait()
    return answer


off, switched = deleted("false", 0), deleted("true", 1, "timerWheelEnable=false")
print(f"started with timerWheelEnable=false:   code {off['code']}, {off.get('remark', '')[:200]}")
print(f"switched off while the broker runs:    code {switched['code']}, {switched.get('remark') or ''}")
sys.exit(0 if off["code"] == 1 and "getTimerMetrics()" in off.get("remark", "") and switched["code"] == 0 else 1)
PYTHON
