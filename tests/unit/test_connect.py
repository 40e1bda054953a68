"""Each protocol's own `connect` opens the client that `wireproto.connect` opens, and refuses the URL of another protocol."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocols_own_connect_opens_its_client(protocol: str) -> None:
    module: Any = import_module(f"wireproto.{protocol}")
    with DevBroker([protocol]) as broker:
        url = broker.url(protocol)
        with module.connect(url, client_id="me", timeout=7) as own, wireproto.connect(url) as common:
            assert type(own) is type(common)
            assert (own.protocol, own.timeout) == (protocol, 7)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_url_of_another_protocol_is_refused_by_name(protocol: str) -> None:
    module: Any = import_module(f"wireproto.{protocol}")
    for other in set(PROTOCOLS) - {protocol}:
        with pytest.raises(OptionError, match=rf"wireproto\.{protocol}\.connect opens {protocol}:// URLs.*{other}://"):
            module.connect(f"{other}://127.0.0.1:1")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_option_is_refused_before_anything_is_dialled(protocol: str) -> None:
    module: Any = import_module(f"wireproto.{protocol}")
    with pytest.raises(OptionError, match="no_such_option"):
        module.connect(f"{protocol}://127.0.0.1:1", no_such_option=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocols_own_connect_under_asyncio_opens_the_same_client(protocol: str) -> None:
    module: Any = import_module(f"wireproto.aio.{protocol}")

    async def body(url: str) -> None:
        async with module.connect(url, client_id="me", timeout=7) as own:
            assert isinstance(own, wireproto.aio.Client)
            assert type(own).__module__ == module.__name__
            assert own.protocol == protocol
            admin = own.admin()
            await admin.create_topic("t")
            with pytest.raises(AttributeError, match="no_such_call"):
                admin.no_such_call("t")
            if protocol == "kafka":
                assert [topic.name for topic in (await admin.describe_topics(["t"])).values()] == ["t"]
            elif protocol == "rocketmq":
                assert await admin.brokers()
            elif protocol == "zookeeper":
                tree = own.tree().session_scope()
                assert type(tree) is module.ZooKeeperTree
                assert (await tree.get("/t"))[0] == b""

    with DevBroker([protocol]) as broker:
        asyncio.run(body(broker.url(protocol)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_url_of_another_protocol_is_refused_by_name_under_asyncio(protocol: str) -> None:
    module: Any = import_module(f"wireproto.aio.{protocol}")
    for other in set(PROTOCOLS) - {protocol}:
        opens = rf"wireproto\.aio\.{protocol}\.connect opens {protocol}:// URLs; for a {other}:// URL use wireproto\.aio\.connect"
        with pytest.raises(OptionError, match=opens):
            module.connect(f"{other}://127.0.0.1:1")
    with pytest.raises(OptionError, match="no_such_option"):
        module.connect(f"{protocol}://127.0.0.1:1", no_such_option=1)
