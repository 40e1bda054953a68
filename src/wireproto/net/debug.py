"""Writes the wire log behind ``--debug``, and guesses which protocol answers on a port.

`watch` writes every frame of a loop with its direction and peer, `show_wire` those of all clients opened later. Of frames marked secret
only the length is written. No message is decoded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from wireproto._net import Loop, Mailbox

SHOWN = 256
"""Bytes of a frame that are written."""

_stream: TextIO | None = None


def show_wire(stream: TextIO | None) -> None:
    """Write the frames of every client that is opened from now on to `stream`; None: no longer."""
    global _stream
    _stream = stream


def attach(loop: Loop) -> None:
    """Watch a new client's loop if `show_wire` asked for it."""
    if _stream is not None:
        watch(loop, _stream.write)


def describe_first_bytes(data: bytes) -> str:
    """Describe what a peer's first bytes look like, for an error that they are not the expected protocol; empty when unknown."""
    if len(data) >= 3 and data[0] in (0x14, 0x15, 0x16, 0x17) and data[1] == 3 and data[2] <= 4:
        return "the peer speaks TLS on this port; use the TLS form of the URL"
    if data.startswith(b"HTTP/"):
        return "an HTTP server answers on this port"
    if data.startswith(b"SSH-"):
        return "an SSH server answers on this port"
    if data.startswith((b"220 ", b"220-", b"+OK", b"* OK", b"-ERR", b"-NOAUTH")):
        return "a text protocol answers on this port"
    if data and all(32 <= byte < 127 or byte in b"\r\n\t" for byte in data):
        return f"the peer answers with text: {data.decode('ascii').strip()!r}"
    return ""


def hexdump(data: bytes, shown: int = SHOWN) -> str:
    """Format bytes as lines of offset, hex and text, 16 bytes each; at most `shown` bytes."""
    lines = []
    for start in range(0, min(len(data), shown), 16):
        part = data[start : min(start + 16, shown)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"  {start:06x}  {part[:8].hex(' '):23s}  {part[8:].hex(' '):23s}  {text}")
    if len(data) > shown:
        lines.append(f"  … {len(data) - shown} bytes more")
    return "\n".join(lines)


def watch(loop: Loop, write: Callable[[str], Any] | None = None, *, shown: int = SHOWN) -> None:
    """Write the frames of all connections of `loop` from now on.

    Args:
        loop: the client's engine loop.
        write: called with one text for each frame; None: standard error.
        shown: bytes of each frame that are written.
    """
    begin = time.monotonic()
    out = write if write is not None else sys.stderr.write

    def show(item: tuple[str, str, bytes | int]) -> None:
        direction, peer, frame = item
        head = f"{time.monotonic() - begin:9.4f} {direction} {peer} "
        if isinstance(frame, int):
            out(f"{head}{frame} bytes, secret\n")
        else:
            out(f"{head}{len(frame)} bytes\n{hexdump(frame, shown)}\n")

    loop.tap = Mailbox(loop, show)
