#!/usr/bin/env bash
# Software:  Apache RocketMQ 5.5.0 (rocketmq-namesrv, rocketmq-broker from Maven Central), OpenJDK 17, one broker on localhost.
# Behaviour: GetBrokerRuntimeInfo (request code 28) reads counters on a broker without timers. On a broker as it comes
#            (timerWheelEnable=true) each such request goes over all slots of the timer wheel, 1.2 million of them, to count the
#            messages in it, although none was ever sent with a time of delivery (TimerWheel.getAllNum in a thread dump). A console,
#            an exporter or a client that asks some fifty times a second keeps a core busy.
# Seen:      2026-11-29, two cores, three runs:
#                timerWheelEnable=true:  8.8, 16.9, 22.9 ms of the broker's processor for a request
#                timerWheelEnable=false: 2.8,  2.0,  1.3 ms
#            With -XX:TieredStopAtLevel=1, as small installations start it: 104 to 123 ms and 5 to 9 ms.
# Fails when the former is less than twice the latter.
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


def ask(port: int, code: int) -> dict:
    header = json.dumps({"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": 401}).encode()
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
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


def processor(process: subprocess.Popen) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(timers: str, number: int) -> float:
    port = 21911 + 10 * number
    lines = {
        "brokerName": "a", "brokerClusterName": "c", "listenPort": port, "haListenPort": port + 1, "namesrvAddr": f"127.0.0.1:{port + 5}",
        "brokerIP1": "127.0.0.1", "storePathRootDir": folder / f"store-{timers}", "storePathCommitLog": folder / f"store-{timers}" / "commitlog",
        "mappedFileSizeCommitLog": 67108864, "diskMaxUsedSpaceRatio": 98, "timerWheelEnable": timers,
    }  # fmt: skip
    names = server("org.apache.rocketmq.namesrv.NamesrvStartup", f"names-{timers}", {"listenPort": port + 5})
    answered(port + 5, 106)
    broker = server("org.apache.rocketmq.broker.BrokerStartup", f"broker-{timers}", lines)
    answered(port, 28)
    for _ in range(300):  # until it is compiled
        ask(port, 28)
    began, start = processor(broker), time.monotonic()
    time.sleep(5)
    idle = (processor(broker) - began) / (time.monotonic() - start)
    began, start = processor(broker), time.monotonic()
    for _ in range(100):
        ask(port, 28)
    spent = processor(broker) - began - idle * (time.monotonic() - start)
    for process in (broker, names):
        process.kill()
        process.wait()
    return spent * 10  # ms a request


on, off = measure("true", 0), measure("false", 1)
print(f"timerWheelEnable=true:  {on:.1f} ms of the broker's processor for a request\ntimerWheelEnable=false: {off:.1f} ms")
sys.exit(0 if on > 2 * max(off, 0.1) else 1)
PYTHON
