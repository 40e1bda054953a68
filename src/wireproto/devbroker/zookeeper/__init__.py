"""The dev broker's ZooKeeper: one server with sessions, ephemeral and sequential nodes, watches of every kind, multi and access lists."""

from __future__ import annotations

from .side import ZooKeeperSide

__all__ = ["ZooKeeperSide"]
