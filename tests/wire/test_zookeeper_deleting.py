"""Deleting a ZooKeeper subtree, or a queue, of which a part may not be listed."""

from __future__ import annotations

from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.zookeeper.acl import ANYONE
from wireproto.zookeeper.codes import NoAuth, Perms
from wireproto.zookeeper.messages import ACL

PROTOCOL = "zookeeper"
CLIENT = {"timeout": 20.0}
UNLISTED = [ACL(perms=int(Perms.ALL & ~Perms.READ), id=ANYONE)]


@pytest.mark.parametrize("closed", ["", "/a"])
def test_children_that_may_not_be_listed_end_a_recursive_deletion_at_once(dial: Any, seen: Any, closed: str) -> None:
    tree = dial().tree()
    node = tree.create("/d-", sequence=True)
    tree.create(f"{node}/a/x", parents=True)
    tree.set_acl(node + closed, UNLISTED)
    before = len(seen.requests("getChildren2"))
    with pytest.raises(NoAuth) as refused:
        tree.delete(node, recursive=True, timeout=5.0)
    assert refused.value.node == node + closed
    assert len(seen.requests("getChildren2")) - before <= 2, "it is not asked again"
    assert tree.exists(f"{node}/a/x") is not None


def test_a_queue_whose_parts_may_not_be_listed_is_not_deleted_and_says_so_at_once(broker: DevBroker, seen: Any) -> None:
    with wireproto.connect(broker.url("zookeeper"), **CLIENT) as client:
        client.admin().create_topic("closed")
        client.tree().set_acl("/closed", UNLISTED)
        before = len(seen.requests("getChildren2"))
        with pytest.raises(NoAuth, match="/closed"):
            client.admin().delete_topic("closed", timeout=5.0)
    assert len(seen.requests("getChildren2")) - before == 1
