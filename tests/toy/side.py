"""The toy's server, for the dev broker."""

from __future__ import annotations

from collections.abc import Callable

from wireproto.devbroker.server import Connection
from wireproto.devbroker.side import Side


class ToySide(Side):
    protocol = "toy"
    framing = "lines"

    async def start(self) -> None:
        self.topics: dict[str, list[str]] = getattr(self, "topics", {})
        await self.listen("main")

    async def serve(self, connection: Connection) -> None:
        verbs: dict[str, Callable[..., object]] = {
            "LIST": lambda: " ".join(sorted(self.topics)),
            "CREATE": lambda topic: "ERR it is there" if topic in self.topics else self.topics.setdefault(topic, []) or "OK",
            "DELETE": lambda topic: "OK" if self.topics.pop(topic) is not None else "",
            "PUT": lambda topic, value: self.topics[topic].append(value) or len(self.topics[topic]) - 1,  # type: ignore[func-returns-value]
            "GET": lambda topic, at: "".join(self.topics[topic][int(at) : int(at) + 1]),
            "END": lambda topic: len(self.topics[topic]),
        }
        async for frame in connection:
            verb, *words = frame.decode().split(" ")
            fault = await connection.fault(verb)
            try:
                answer = str(verbs[verb](*words))
            except KeyError:
                answer = f"ERR there is no {words[0] if verb in verbs else verb}"
            connection.send(answer.encode(), fault=fault)
