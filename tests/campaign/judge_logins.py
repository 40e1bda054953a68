"""Whether a login that brokers refuse is refused, and whether who is to be told so is told while it lasts. Sans-IO.

A role with `login` raises that error at once; that it was let pass elsewhere is judged where that is judged (`Ledger.barred`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .ledger import LOGIN, Finding, Ledger, Role, Window

AT_ONCE = 3.0  # seconds from the refusal until it is felt, and told: connections are tried again behind a pause of up to one


def judge(ledger: Ledger, slower: Callable[[float, float], float]) -> Iterator[Finding]:
    """Args:
    slower: by what factor all took longer between two moments, for other work on this machine.
    """
    for window in ledger.windows:
        if window.name != LOGIN or window.healed is None:
            continue
        soon = AT_ONCE * slower(window.began, window.healed)
        for role in (role for role in ledger.roles.values() if role.login is not None and role.steady):
            since = window.began + soon
            inside = [n for n, ack in ledger.acked[role.name].items() if since < ack.at - ack.seconds and ack.at < window.ended]
            if inside:
                text = f"{role.name}: {len(inside)} were sent and acknowledged while its login was refused, {inside[0]} the first"
                yield Finding("who is refused stays out", text, window.began)
            if role.login and window.ended - window.began > soon + role.asked_late and not _told(ledger, role, window):
                yield Finding("a refused login is told", f"{role.name} saw no {role.login} while brokers refused its login", window.began)


def _told(ledger: Ledger, role: Role, window: Window) -> bool:
    failed = [(at, why) for at, why, _ in ledger.failed[role.name].values()]
    calls = [(call.at, call.outcome) for call in ledger.calls if call.role == role.name]
    told = [*failed, *calls, *ledger.refused[role.name].values()]
    return any(window.began <= at <= (window.healed or at) and why.startswith(role.login or "") for at, why in told)
