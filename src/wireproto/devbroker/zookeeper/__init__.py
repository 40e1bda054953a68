"""Serves ZooKeeper's protocol in the dev broker: sessions, ephemeral and sequential nodes, all kinds of watches, multi and access lists.

It is one server, or an ensemble whose members share one tree.
"""

from __future__ import annotations

from .side import ZooKeeperSide

__all__ = ["ZooKeeperSide"]
