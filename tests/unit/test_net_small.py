"""Small parts of `net`: worker threads, and who keeps a role alive."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import certificates
from wireproto.errors import WireprotoError
from wireproto.net.closing import INTERRUPTED, Closing
from wireproto.net.offload import Workers
from wireproto.net.runtime import ClientBase, Roles
from wireproto.net.tls import Contexts, TlsOptions


def test_a_job_that_hangs_holds_up_no_exit_of_the_program() -> None:
    class Told:
        def __init__(self) -> None:
            self.there = threading.Event()
            self.value: Any = None

        def set(self, value: Any) -> None:
            self.value = value
            self.there.set()

        def fail(self, why: BaseException) -> None:
            self.set(why)

    told: Any = Told()
    Workers().put((told, threading.current_thread, ()))
    assert told.there.wait(30.0)
    assert told.value.daemon


class Role:
    def __init__(self, closed: list[str], name: str) -> None:
        self.closed, self.name = closed, name

    def close(self, timeout: float = 30.0) -> None:
        self.closed.append(self.name)
        if self.name.startswith("bad"):
            raise WireprotoError(self.name)


@pytest.mark.parametrize("keeper", ["register", "client"])
def test_a_role_is_kept_alive_only_where_that_is_asked_for(keeper: str) -> None:
    closed: list[str] = []
    roles = Roles()
    keep: Any = roles.keep
    if keeper == "client":
        base: Any = ClientBase.__new__(ClientBase)
        base.cluster = type("Cluster", (), {"roles": roles})()
        keep = base.keep
    free, held = Role(closed, "free"), Role(closed, "held")
    assert keep(free) is free
    assert keep(held, held=True) is held
    gone, there = weakref.ref(free), weakref.ref(held)
    del free, held
    gc.collect()
    assert gone() is None
    assert there() is not None
    assert roles.close(time.monotonic() + 5.0) is None
    assert closed == ["held"]


def test_all_roles_are_closed_those_held_first_and_the_first_error_is_told() -> None:
    closed: list[str] = []
    roles = Roles()
    all_of_them = [roles.keep(Role(closed, "seen")), roles.keep(Role(closed, "bad held"), held=True), roles.keep(Role(closed, "bad seen"))]
    forgotten = roles.keep(Role(closed, "forgotten"), held=True)
    roles.forget(forgotten)
    assert str(roles.close(time.monotonic() + 5.0)) == "bad held"
    assert closed[0] == "bad held"
    assert sorted(closed) == ["bad held", "bad seen", "seen"]
    assert len(all_of_them) == 3


class Ends(Closing):
    def __init__(self, problem: Exception | None = None) -> None:
        self.given: list[float] = []
        self.problem = problem

    def close(self, timeout: float = 30.0) -> None:
        self.given.append(timeout)
        if self.problem is not None:
            raise self.problem


@pytest.mark.parametrize(("error", "timeout"), [(None, 30.0), (ValueError("own"), 30.0), (KeyboardInterrupt("own"), INTERRUPTED)])
@pytest.mark.parametrize("problem", [None, WireprotoError("cannot close")], ids=["closes", "cannot close"])
def test_the_end_of_a_with_block_closes_and_hides_no_error(
    error: BaseException | None, timeout: float, problem: WireprotoError | None
) -> None:
    role = Ends(problem)
    told: BaseException | None = None
    try:
        with role:
            if error is not None:
                raise error
    except BaseException as why:
        told = why
    assert role.given == [timeout], "who interrupts does not wait for long"
    assert told is (error or problem)
    if error is not None:
        notes, error.__notes__ = getattr(error, "__notes__", []), []
        assert notes == (["closing failed, too: WireprotoError: cannot close"] if problem is not None else [])


def test_a_certificate_that_is_away_for_a_moment_leaves_the_one_of_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever renews it may take the old file away first."""
    caplog.set_level(logging.WARNING, "wireproto.net")
    authority = Path(certificates.make(tmp_path).ca)
    text = authority.read_bytes()
    contexts = Contexts(TlsOptions(ca_file=str(authority)))
    before = contexts.now()
    authority.unlink()
    assert contexts.now() is before
    assert ["a TLS file is missing" in record.getMessage() for record in caplog.records] == [True]
    authority.write_bytes(text)
    after = contexts.now()
    assert after is not before
    assert contexts.now() is after
