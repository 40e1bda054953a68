"""Makes the requests that keep several watches of one node apart, whatever the server's version.

Servers from 3.9 keep every mode of a watch that a session has set on a node. Those before (ZOOKEEPER-4466) keep one mode for its data and
one for its children, the last that was set; once that has fired, what the session had there before is gone:

    | request of the client   | data's mode becomes | children's mode becomes |
    |-------------------------|---------------------|-------------------------|
    | get, exists with watch  | once                |                         |
    | children with watch     |                     | once                    |
    | addWatch PERSISTENT     | persistent          | persistent              |
    | addWatch RECURSIVE      | recursive           | recursive: reports nothing of this node's children |

So a one-shot watch is not requested where a persistent one reports the same events; a persistent one is followed by the watch of the
children that it has replaced; and when a persistent one is removed, those that it stood in for are set. Newer servers have one watch more
by that, of the children of a node with both kinds of persistent watches, and report nothing more. All are functions over a `WatchTable`,
without I/O; callers hold the link's lock.
"""

from __future__ import annotations

from .messages import SetWatches, SetWatches2
from .watch import CHILD, DATA, EXIST, PERSISTENT, RECURSIVE, ZXID_AFTER_ALL, Kind, WatchTable

SET_WATCHES, SET_WATCHES2, ADD_WATCH = 101, 105, 106
STAY = (PERSISTENT, RECURSIVE)
Sent = tuple[int, bytes]
"""Operation code and body."""


def is_redundant(table: WatchTable, path: str, kind: Kind) -> bool:
    """Return whether a persistent watch reports everything that a one-shot watch of this kind is to report."""
    if kind in STAY:
        return False
    return table.has(path, (PERSISTENT,)) and not table.has(path, (RECURSIVE,)) if kind == CHILD else table.has(path, STAY)


def adding(table: WatchTable, path: str, kind: Kind, asked: Sent, zxid: int) -> list[Sent]:
    """Return the requests that add a persistent watch to the watches of its node.

    Args:
        asked: its addWatch.
        zxid: the last transaction that the session has seen.
    """
    if kind == RECURSIVE:
        listed = table.has(path, (CHILD,))
        return [asked, _children(path, zxid if listed else ZXID_AFTER_ALL)] if listed or table.has(path, (PERSISTENT,)) else [asked]
    if not table.has(path, (RECURSIVE,)):
        return [asked]
    both = SetWatches2(relative_zxid=ZXID_AFTER_ALL, persistent_watches=(path,), persistent_recursive_watches=(path,))
    return [(SET_WATCHES2, both.encode()), _children(path, zxid if table.has(path, (CHILD,)) else ZXID_AFTER_ALL)]


def requests_for_remaining(table: WatchTable, path: str, zxid: int) -> list[Sent]:
    """Return the requests that set a node's watches that remain in the table, sent before a persistent one is removed at the server."""
    once = {kind: (path,) for kind in (DATA, EXIST, CHILD) if table.has(path, (kind,))}
    if table.has(path, (RECURSIVE,)):
        once = {CHILD: (path,)} if CHILD in once else {}
    elif table.has(path, (PERSISTENT,)):
        return [(SET_WATCHES2, SetWatches2(relative_zxid=ZXID_AFTER_ALL, persistent_watches=(path,)).encode())]
    if not once:
        return []
    message = SetWatches(
        relative_zxid=zxid, data_watches=once.get(DATA, ()), exist_watches=once.get(EXIST, ()), child_watches=once.get(CHILD, ())
    )
    return [(SET_WATCHES, message.encode())]


def children_again(path: str, zxid: int) -> bytes:
    """Return the body of a SetWatches for a node's children; the server reports a change after this transaction at once."""
    return _children(path, zxid)[1]


def _children(path: str, zxid: int) -> Sent:
    return SET_WATCHES, SetWatches(relative_zxid=zxid, child_watches=(path,)).encode()
