"""What an asyncio client imports, and in which thread: nothing in the event loop's once it is entered."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import wireproto.aio
from wireproto.devbroker import DevBroker

PROGRAM = '''
import asyncio, sys, threading
import wireproto.aio

class Watcher:
    """Sees every module that is looked for."""

    def __init__(self):
        self.found = []

    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread() and not name.startswith("encodings"):
            self.found.append(name)

watcher = Watcher()

async def use(url):
    protocol = url.partition(":")[0]
    client = wireproto.aio.connect(url)
    sys.meta_path.insert(0, watcher)
    async with client:
        await client.admin().create_topic("jobs")
        async with client.producer("jobs") as producer:
            await producer.send(b"1")
            await producer.flush()
        async with client.reader("jobs") as reader:
            assert await reader.poll(20.0) is not None
        if protocol != "zookeeper":
            async with client.consumer("jobs", "readers") as consumer:
                assert await consumer.poll(20.0) is not None
        if protocol != "kafka":
            async with client.queue("jobs", "workers") as queue:
                await queue.receive(0.1)
        if protocol == "zookeeper":
            await client.tree().get("/")
        if protocol in ("kafka", "pulsar"):
            async with client.transactions("one") as transactions:
                async with await transactions.begin() as transaction:
                    await transaction.send(b"2", topic="jobs")
        if protocol == "rocketmq":
            async with client.transactional("halves", lambda message: None) as halves:
                pass
    sys.meta_path.remove(watcher)
    print(protocol, *sorted(set(watcher.found)))
    watcher.found.clear()

for url in sys.argv[1:]:
    asyncio.run(use(url))
'''


def test_an_event_loop_imports_nothing_once_its_client_is_entered() -> None:
    names = ["kafka", "pulsar", "rocketmq", "zookeeper"]
    with DevBroker(names) as broker:
        command = [sys.executable, "-c", PROGRAM, *(broker.url(name) for name in names)]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), timeout=120.0, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == names


def test_a_client_may_be_made_in_another_thread_than_its_event_loops() -> None:
    async def main(url: str) -> bytes:
        async with await asyncio.to_thread(wireproto.aio.connect, url) as client:
            tree = client.tree()
            await tree.create("/n", b"1")
            return bytes((await tree.get("/n"))[0])

    with DevBroker(["zookeeper"]) as broker:
        assert asyncio.run(main(broker.url("zookeeper"))) == b"1"
