"""Each protocol's own `connect` opens the client that `wireproto.connect` opens, and refuses the URL of another protocol."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import wireproto
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
