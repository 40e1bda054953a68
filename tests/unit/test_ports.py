"""Ports of real brokers: two of this process never have the same one, and what one user made does not keep another from taking any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brokers import ports


def test_a_port_is_held_until_it_is_given_back() -> None:
    first, second = ports.take(), ports.take()
    try:
        assert first != second
        assert not ports._take(first)
    finally:
        ports.release(first, second)
    assert ports._take(first)
    ports.release(first)


def test_two_users_share_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so what is looked at is whose folder it would be."""
    monkeypatch.setattr(ports.tempfile, "tempdir", str(tmp_path))
    mine = ports._folder()
    monkeypatch.setattr(ports.os, "getuid", lambda: os.geteuid() + 1)
    other = ports._folder()
    assert mine != other
    assert {mine.stat().st_mode & 0o777, other.stat().st_mode & 0o777} == {0o700}
