"""asyncio where programs keep it: workers that a server forks, an event loop that runs from cell to cell as in a notebook's kernel, threads
that gevent has patched."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Iterator

import pytest

import wireproto
import wireproto.aio
from wireproto.devbroker import DevBroker
from wireproto.errors import Forked, UsageError

LONG = 60.0
PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(list(PROTOCOLS)) as made:
        yield made


WORKER = """
import asyncio, os, sys, warnings
import wireproto, wireproto.aio
warnings.simplefilter("ignore", DeprecationWarning)

async def serve(url, topic, number):
    async with wireproto.aio.connect(url) as client:
        await client.producer(topic).send(b"worker %d" % number)

async def first(url, topic):
    async with wireproto.aio.connect(url) as client:  # the server has used one itself before it forks
        await client.producer(topic).send(b"server")

url, topic = sys.argv[1:]
asyncio.run(first(url, topic))
workers = []
for number in range(3):
    pid = os.fork()
    if not pid:
        try:
            asyncio.run(serve(url, topic, number))
            os._exit(0)
        finally:
            os._exit(1)
    workers.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers))
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_worker_of_a_prefork_server_has_a_client_of_its_own(broker: DevBroker, protocol: str) -> None:
    topic = f"prefork-{protocol}"
    with wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic(topic)
        done = subprocess.run([sys.executable, "-c", WORKER, broker.url(protocol), topic], capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stderr
        read = [record.value for batch in client.reader(topic, stop=wireproto.LATEST) for record in batch]
    assert sorted(read) == [b"server", b"worker 0", b"worker 1", b"worker 2"]


def test_a_client_that_was_used_before_the_fork_says_so_in_the_worker_and_goes_on_in_the_server(broker: DevBroker) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url("kafka")) as client:
            await client.admin().create_topic("forked")
            out = client.producer("forked")
            await out.send(b"before")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                verdict = 1
                try:
                    asyncio.events._set_running_loop(None)
                    asyncio.new_event_loop().run_until_complete(client.admin().list_topics())
                except Forked:
                    verdict = 0
                finally:
                    os._exit(verdict)
            deadline = time.monotonic() + LONG
            while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert os.waitstatus_to_exitcode(ended[1]) == 0
            assert (await out.send(b"after")).offset == 1

    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_lives_from_cell_to_cell_of_a_loop_that_runs_between(broker: DevBroker, protocol: str) -> None:
    """As a kernel runs them: one event loop, a task a cell, other callbacks between."""
    kernel = asyncio.new_event_loop()
    cells: dict[str, object] = {"wireproto": wireproto, "url": broker.url(protocol), "topic": f"cells-{protocol}"}

    def cell(source: str) -> None:
        code = compile(source, "<cell>", "exec", flags=__import__("ast").PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = types.FunctionType(code, cells)()
        if made is not None:
            kernel.run_until_complete(asyncio.wait_for(made, LONG))

    try:
        cell("client = wireproto.aio.connect(url)\nawait client.admin().create_topic(topic)")
        cell("out = client.producer(topic)\nsent = out.send(b'one')")  # nobody awaits it in this cell
        cell("place = await sent\nawait out.send(b'two')")
        cell("read = [r.value async for b in client.reader(topic, stop=wireproto.LATEST) for r in b]")
        assert cells["read"] == [b"one", b"two"]
        cell("await client.close()")
    finally:
        kernel.close()


def test_threads_that_gevent_has_patched_are_refused(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkey = types.ModuleType("gevent.monkey")
    monkey.is_module_patched = lambda of: of == "threading"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)
    with pytest.raises(UsageError, match="gevent has patched"):
        wireproto.aio.connect(broker.url("kafka"))
