"""Saves the tree in a folder: written when the dev broker stops, read when it starts. Ephemeral nodes go with their sessions.

One JSON object a line: first ``{"zxid": …}``, then one for each node, parents first.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from ...zookeeper.messages import ACL, Id
from .nodes import Node, Nodes

FILE = "tree.jsonl"


def save(folder: Path, nodes: Nodes, zxid: int) -> None:
    """Write every node that has no owner."""
    lines = [json.dumps({"zxid": zxid})]
    for path, node in nodes.items():
        if not node.owner:
            fields: dict[str, Any] = {name: getattr(node, name) for name in _PLAIN}
            fields["data"] = None if node.data is None else base64.b64encode(node.data).decode()
            fields["acl"] = [[item.perms, item.id.scheme, item.id.id] for item in node.acl]
            lines.append(json.dumps({"path": path, **fields}))
    new = folder / f"{FILE}.new"
    new.write_text("\n".join(lines) + "\n", encoding="utf-8")
    new.replace(folder / FILE)


def load(folder: Path, nodes: Nodes) -> int:
    """Read the nodes; returns the last zxid."""
    path = folder / FILE
    if not path.exists():
        return 0
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        fields = json.loads(line)
        name = fields.pop("path")
        data, acl = fields.pop("data"), fields.pop("acl")
        node = Node(
            data=None if data is None else base64.b64decode(data),
            acl=tuple(ACL(perms=perms, id=Id(scheme=scheme, id=who)) for perms, scheme, who in acl),
            **fields,
        )
        nodes.restore(name, node)
    zxid: int = json.loads(head)["zxid"]
    return zxid


_PLAIN = ("czxid", "ctime", "mzxid", "mtime", "pzxid", "owner", "version", "aversion", "created", "container", "ttl")
