"""Under gevent's or eventlet's own threads nothing of ours could wait: `connect` says so instead of standing still."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import wireproto
from wireproto.errors import TransportError, UsageError

PATCHERS = [("gevent.monkey", "is_module_patched", "gevent"), ("eventlet.patcher", "is_monkey_patched", "eventlet")]


def patcher(monkeypatch: pytest.MonkeyPatch, module: str, asked: str, patched: bool) -> None:
    there = types.ModuleType(module)
    setattr(there, asked, lambda what: patched and what in ("threading", "thread"))
    monkeypatch.setitem(sys.modules, module, there)


@pytest.mark.parametrize(("module", "asked", "name"), PATCHERS)
@pytest.mark.parametrize("scheme", ["kafka", "pulsar", "rocketmq", "zookeeper"])
def test_patched_threads_are_refused(monkeypatch: pytest.MonkeyPatch, module: str, asked: str, name: str, scheme: str) -> None:
    patcher(monkeypatch, module, asked, True)
    with pytest.raises(UsageError, match=f"{name} has patched"):
        wireproto.connect(f"{scheme}://127.0.0.1:1", timeout=0.5)


@pytest.mark.parametrize(("module", "asked", "name"), PATCHERS)
def test_they_may_be_there_without_patching(monkeypatch: pytest.MonkeyPatch, module: str, asked: str, name: str) -> None:
    patcher(monkeypatch, module, asked, False)
    with pytest.raises(TransportError):
        wireproto.connect("zookeeper://127.0.0.1:1", timeout=0.5)


def test_nothing_of_them_is_imported() -> None:
    code = "import sys, wireproto, wireproto._connect; assert not [m for m in sys.modules if m.startswith(('gevent', 'eventlet'))]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
