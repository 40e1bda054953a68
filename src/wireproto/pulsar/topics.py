"""Parses topic names: what a user writes, and the full name that the broker wants.

    given                                full
    ``t``                                ``persistent://public/default/t``
    ``tenant/ns/t``                      ``persistent://tenant/ns/t``
    ``[non-]persistent://tenant/ns/t``   itself
    partition 3 of it                    ``…/t-partition-3``

Pure text: whether a topic exists is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from wireproto.errors import OptionError

_MARK = "-partition-"
_DOMAINS = ("persistent", "non-persistent")


@dataclass(frozen=True, slots=True)
class TopicName:
    """A full topic name in its parts; `local` still holds a partition's suffix."""

    domain: str
    tenant: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def namespace_name(self) -> str:
        """``tenant/namespace``."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition(self) -> int:
        """The partition that the name ends with, or -1."""
        _, mark, number = self.local.rpartition(_MARK)
        return int(number) if mark and number.isascii() and number.isdigit() else -1

    @property
    def rest(self) -> str:
        """The path of this topic in the admin HTTP interface."""
        return f"{self.domain}/{self.tenant}/{self.namespace}/{quote(self.local, safe='')}"

    def of_partition(self, partition: int) -> str:
        """Return the full name of one partition; -1 gives the topic itself."""
        return str(self) if partition < 0 else f"{self}{_MARK}{partition}"


def parse_topic(name: str) -> TopicName:
    """Read a topic name as users write it; raise OptionError with what is wrong."""
    domain, scheme, rest = name.partition("://")
    if not scheme:
        domain, rest = "persistent", name
        if "/" not in rest:
            rest = f"public/default/{rest}"
    if domain not in _DOMAINS:
        raise OptionError(f"topic {name!r}: the domain is persistent:// or non-persistent://")
    parts = rest.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise OptionError(f"topic {name!r}: write topic, tenant/namespace/topic or persistent://tenant/namespace/topic")
    return TopicName(domain, *parts)


def without_partition(name: str) -> str:
    """Return a full name without its partition's suffix."""
    topic = parse_topic(name)
    return name if topic.partition < 0 else name.rpartition(_MARK)[0]


def short(name: str) -> str:
    """Return the shortest form that `parse_topic` reads as the same topic."""
    prefix = "persistent://public/default/"
    tail = name.removeprefix(prefix)
    return tail if tail != name and "/" not in tail else name
