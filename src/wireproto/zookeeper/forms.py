"""ZooKeeper's records for `wireproto.wire`, and the two lists that are no record: the body of a multi, and of its reply.

    request   ( MultiHeader type=op done=0 err=-1, the op's record )*            MultiHeader type=-1 done=1 err=-1
    reply     ( MultiHeader type=op done=0 err=0,  the op's result )*            MultiHeader type=-1 done=1 err=-1

A failed operation's result has type -1 and is an ErrorResponse; delete and check have none. As JSON::

    {"operations": [{"header": {"type": 2, "done": false, "err": -1}, "record": {"path": "/a", "version": -1}}],
     "end": {"type": -1, "done": true, "err": -1}}

with ``results`` in the place of ``operations`` for a reply. When encoding, ``done``, ``err`` and ``end`` may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from wireproto._codec import Message
from wireproto.errors import Malformed, ProtocolError
from wireproto.explain import walk
from wireproto.forms import Bytes, Form, Line, schema_forms
from wireproto.message import from_json, to_json

from . import messages as m

# fmt: off
_REQUESTS: Final[dict[int, type[Message] | None]] = {
    1: m.CreateRequest, 2: m.DeleteRequest, 4: m.GetDataRequest, 5: m.SetDataRequest, 8: m.GetChildrenRequest, 13: m.CheckVersionRequest,
    15: m.CreateRequest, 19: m.CreateRequest, 21: m.CreateTTLRequest,
}
_RESULTS: Final[dict[int, type[Message] | None]] = {
    -1: m.ErrorResponse, 1: m.CreateResponse, 2: None, 4: m.GetDataResponse, 5: m.SetDataResponse, 8: m.GetChildrenResponse, 13: None,
    15: m.Create2Response, 19: m.Create2Response, 21: m.Create2Response,
}
# fmt: on
_END: Final = {"type": -1, "done": True, "err": -1}


def forms() -> dict[str, Form]:
    """Every jute record, MultiRequest and MultiResponse."""
    return {
        **schema_forms("zookeeper", structs=True),
        "MultiRequest": Multi("MultiRequest", "operations", _REQUESTS, -1),
        "MultiResponse": Multi("MultiResponse", "results", _RESULTS, 0),
    }


class Multi:
    """A list with a header before each item and one at its end.

    Args:
        name: of the message.
        items: the JSON name of the list.
        records: operation code to the class that follows its header, None for nothing.
        err: the header's err where JSON leaves it out.
    """

    versions = (0, 0)

    def __init__(self, name: str, items: str, records: Mapping[int, type[Message] | None], err: int) -> None:
        self.name, self.items, self.records, self.err = name, items, records, err

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        at = 0
        while True:
            header, at = self._part(m.MultiHeader, data, at, f"{self.items}[{len(found)}].header")
            if header.done:
                break
            item: dict[str, Any] = {"header": to_json(header)}
            record = self._record(header.type, at)
            if record is not None:
                value, at = self._part(record, data, at, f"{self.items}[{len(found)}].record")
                item["record"] = to_json(value)
            found.append(item)
        if at != len(data):
            raise Malformed(f"{len(data) - at} bytes left over", message=self.name, version=0, offset=at)
        return {self.items: found, "end": to_json(header)}

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        strange = sorted(set(fields) - {self.items, "end"})
        if strange:
            raise Malformed(f"no field {strange[0]!r}", message=self.name, version=0, path=strange[0])
        listed = fields.get(self.items, [])
        end = fields.get("end", {})
        if isinstance(end, dict):
            end = {**_END, **end}
            if end["done"] is not True:
                raise Malformed("the end is done", message=self.name, version=0, path="end.done")
        if not isinstance(listed, list):
            raise Malformed("a list expected", message=self.name, version=0, path=self.items)
        parts = []
        for index, item in enumerate(listed):
            where = f"{self.items}[{index}]"
            if not isinstance(item, dict) or not isinstance(item.get("header"), dict) or set(item) - {"header", "record"}:
                raise Malformed("an object of header and record expected", message=self.name, version=0, path=where)
            header = from_json(m.MultiHeader, {"done": False, "err": self.err, **item["header"]})
            record = self._record(header.type, None)
            parts.append(header.encode())
            if record is not None:
                parts.append(from_json(record, item.get("record", {})).encode())
            elif item.get("record"):
                raise Malformed("this result has no record", message=self.name, version=0, path=where)
        parts.append(from_json(m.MultiHeader, end).encode())
        return b"".join(parts)

    def explain(self, version: int, data: bytes) -> list[Line]:
        source = Bytes(data, self.name, 0)
        for index in count():
            header = walk(m.MultiHeader, 0, source, f"{self.items}[{index}].header")
            if header["done"]:
                break
            record = self._record(header["type"], source.at)
            if record is not None:
                walk(record, 0, source, f"{self.items}[{index}].record")
        if source.at != source.stop:
            raise source.error(Malformed, f"{source.stop - source.at} bytes left over")
        return source.lines

    def _record(self, code: int, at: int | None) -> type[Message] | None:
        if code not in self.records:
            raise Malformed(f"operation {code} is none of a multi", message=self.name, version=0, offset=at)
        return self.records[code]

    def _part(self, cls: type[Message], data: bytes, at: int, path: str) -> tuple[Any, int]:
        try:
            return cls.decode_from(data, start=at)
        except ProtocolError as error:
            error.message, error.path = self.name, f"{path}.{error.path}" if error.path else path
            raise
