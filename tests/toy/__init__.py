"""A toy: a protocol of lines, as another distribution would bring it: tests copy this folder beside an entry point, and use it by that.

    LIST               topics, separated by blanks
    CREATE topic       OK
    DELETE topic       OK
    PUT topic value    offset; the value is base64
    GET topic offset   value, or nothing at the end
    END topic          the offset after the last record

Answers come in order; ``ERR text`` is a refusal. Must not: import anything of wireproto that its documents do not name, or be named by it.
"""

from __future__ import annotations

from typing import Any

from wireproto.protocols import Protocol
from wireproto.url import Url

PROTOCOL = Protocol(
    name="toy",
    ports=(7777, 7778),
    framing="lines",
    position="offset",
    roles=("producer", "reader", "admin"),
    client="toy:connect",
    options="toy.options:ToyOptions",
    forms="toy.forms:forms",
    side="toy.side:ToySide",
    frames="toy.forms:Frames",
    features="toy.features:FEATURES",
)


def connect(url: Url, options: dict[str, Any]) -> Any:
    from .client import ToyClient
    from .options import ToyOptions

    return ToyClient(ToyOptions.from_url(url, **options), url.addresses)
