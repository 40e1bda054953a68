"""A scripted peer for tests of the engine: a process of its own that echoes frames and misbehaves on request.

    frame  [int32 length][int32 token][uint8 verb][payload]

    verb   e  echo token and payload                  n  never answer
           d  payload: uint32 ms; answer that late    q  remember; answer all remembered ones, last first, at the next `a`
           a  answer this and everything remembered   w  answer one byte at a time
           m  answer half of a frame, then close      k  close at once
           s  payload: uint32 ms; do not read that long, then answer
           b  payload: uint32 n; answer with n bytes  r  payload: raw bytes to send as they are
           p  payload: int32 token, rest; send a frame with that token, then answer
           l  a frame that announces payload's int32 bytes
Run as a program it prints its port and serves until its standard input closes. With certificate and key as arguments it speaks TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    remembered: list[bytes] = []

    def answer(token: bytes, payload: bytes) -> None:
        writer.write(struct.pack(">i", 4 + len(payload)) + token + payload)

    async def later(seconds: float, token: bytes, payload: bytes) -> None:
        await asyncio.sleep(seconds)
        answer(token, payload)

    tasks = set()
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            token, verb, payload = frame[:4], frame[4:5], frame[5:]
            if verb == b"e":
                answer(token, payload)
            elif verb == b"d":
                task = asyncio.ensure_future(later(struct.unpack(">I", payload[:4])[0] / 1000, token, payload))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            elif verb == b"q":
                remembered.append(token)
            elif verb == b"a":
                answer(token, payload)
                while remembered:
                    answer(remembered.pop(), b"q")
            elif verb == b"w":
                for byte in struct.pack(">i", 4 + len(payload)) + token + payload:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0)
            elif verb == b"m":
                writer.write(struct.pack(">i", 4 + len(payload)) + token + payload[: len(payload) // 2])
                break
            elif verb == b"k":
                break
            elif verb == b"s":
                await asyncio.sleep(struct.unpack(">I", payload[:4])[0] / 1000)
                answer(token, payload)
            elif verb == b"b":
                answer(token, os.urandom(1024) * (struct.unpack(">I", payload[:4])[0] // 1024))
            elif verb == b"r":
                writer.write(payload)
            elif verb == b"p":
                answer(payload[:4], payload[4:])
                answer(token, b"")
            elif verb == b"l":
                writer.write(payload[:4] + token + b"some of it")
            await writer.drain()
    with contextlib.suppress(Exception):
        writer.close()


async def main() -> None:
    context = None
    if len(sys.argv) > 2:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(sys.argv[1], sys.argv[2])
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0, ssl=context, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[int]:
    """The server in a process of its own; its port on 127.0.0.1."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


if __name__ == "__main__":
    asyncio.run(main())
