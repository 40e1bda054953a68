#!/usr/bin/env bash
# Software:  kafka-python 3.0.12 on Python 3.11, Apache Kafka 4.3.1 (kafka_2.13 from Maven Central), one node on localhost.
# Behaviour: KafkaConsumer.close() ends the thread that writes. A request that was queued and not yet written then keeps its connection:
#            the socket stays open after close() has returned, until the consumer is collected as garbage (ResourceWarning) or the
#            process ends. A consumer asks for metadata a second time about 100 ms after it began, so that one which is closed about
#            then is left with a socket now and then; a program that makes many short-lived consumers runs out of descriptors.
# Seen:      2026-11-29: 3 sockets are open behind close() of 151 consumers.
# Fails when no consumer leaves a socket within four minutes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
XML
mvn -q -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath -Dmdep.outputFile="$folder/path"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q kafka-python==3.0.12
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import atexit
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import kafka

folder = Path(sys.argv[1])
PORT = 19392
(folder / "server.properties").write_text(
    f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:{PORT + 1}\ncontroller.listener.names=C\n"
    f"listeners=B://localhost:{PORT},C://localhost:{PORT + 1}\nadvertised.listeners=B://localhost:{PORT}\ninter.broker.listener.name=B\n"
    f"listener.security.protocol.map=B:PLAINTEXT,C:PLAINTEXT\nlog.dirs={folder}/data\noffsets.topic.replication.factor=1\n"
)
java = ["java", "-Xmx512m", "-cp", (folder / "path").read_text().strip()]
file = str(folder / "server.properties")
cluster = "MkU3OEVBNTcwNTJENDM2Qk"
subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", file], check=True, capture_output=True)
with (folder / "out").open("w") as out:
    broker = subprocess.Popen([*java, "kafka.Kafka", file], stdout=out, stderr=out)
atexit.register(broker.kill)
limit = time.monotonic() + 120
while True:
    try:
        kafka.KafkaAdminClient(bootstrap_servers=f"localhost:{PORT}").close()
        break
    except Exception:
        assert time.monotonic() < limit, "the broker does not answer"
        time.sleep(0.5)


def connected() -> int:
    """Count the sockets of this process that are connected to the broker."""
    remote = f":{PORT:04X}"
    lines = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{file}").read_text().splitlines()[1:]]
    broker_side = {f"socket:[{words[9]}]" for words in lines if words[2].endswith(remote)}
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass  # the folder's own
    return len(broker_side.intersection(links))


gc.disable()  # a cycle keeps what is left; collecting it would close the socket
before, left, tried, began = connected(), 0, 0, time.monotonic()
while left < 3 and time.monotonic() - began < 240:
    consumer = kafka.KafkaConsumer(bootstrap_servers=f"localhost:{PORT}")
    time.sleep(0.09 + tried % 20 / 1000)
    consumer.close()
    tried += 1
    left = connected() - before
print(f"{left} sockets are open behind close() of {tried} consumers")
sys.exit(0 if left else 1)
PYTHON
