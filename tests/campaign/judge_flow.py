"""Whether all flows again within seconds of healing, and whether a healthy partition is delayed by a sick node.

Sans-IO, and asked while the campaign runs: `missing` says who does not flow yet behind a moment; the run waits for it to be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from .ledger import Finding, Ledger, Role, Window, key_of

WITHIN = 10.0  # seconds from healing until all flows
WRITES, READS = ("producer", "setter"), ("reader", "member", "worker", "watcher")
AFTER = 2.0  # seconds behind a fault in which it may still be felt elsewhere
OF_TIME = ("all flows again", "a healthy partition is not delayed", "calls end in time", "a refused login is told")
DELAY = 1.0  # seconds that a sick node may cost a healthy partition


def missing(ledger: Ledger, since: float, logs: Mapping[str, Iterable[str]]) -> list[str]:
    """Who has not got through, log by log, anything that was sent behind `since`: producers, readers, groups.

    Args:
        logs: topic to its logs.
    """
    found = []
    for who, table, of in _flows(ledger):
        found += [f"{who} in {log}" for log in logs.get(of, ()) if table.get((who, log), 0.0) <= since]
    return found


def complete(ledger: Ledger, logs: Mapping[str, Iterable[str]]) -> tuple[float, list[str]]:
    """The moment at which the last one got through, by its journal, who was to since `ledger.begin`; and who was within a second of it."""
    moments = {f"{who} in {log}": ledger.first.get((who, log), 0.0) for who, _, of in _flows(ledger) for log in logs.get(of, ())}
    last = max(moments.values(), default=0.0)
    return last, [name for name, moment in moments.items() if moment > last - 1.0]


def _flows(ledger: Ledger) -> Iterator[tuple[str, Mapping[tuple[str, str], float], str]]:
    """Who is to flow, where it is told how far it is, and in which topic."""
    groups = set()
    for role in ledger.roles.values():
        if not role.steady or role.kind not in (*WRITES, *READS):
            continue
        who, table = (role.name, ledger.last_ack) if role.kind in WRITES else (role.group or role.name, ledger.last_got)
        if who not in groups:
            groups.add(who)
            yield who, table, role.topic


def late(window: Window, waited: float, allowed: float, names: list[str], last: list[str]) -> Finding:
    """What a round was that took longer than it should; a fault where it is beyond what the machine's other work explains.

    Args:
        names: who does not flow yet, though the round waited no longer. last: who flowed last.
    """
    who = f"{len(names)} do not yet: {', '.join(names[:6])}" if names else f"last: {', '.join(last[:6])}"
    text = f"{waited:.0f} s behind {window.name} ({allowed:.0f} s allowed beside this machine's other work): {who}"
    return Finding("all flows again", text, window.healed or window.began, bool(names) or waited > allowed)


def excused(finding: Finding) -> Finding:
    """The same, no fault if it tells of time: for a machine of which others had most."""
    return replace(finding, fault=finding.fault and finding.check not in OF_TIME)


def _own(ledger: Ledger, home: int, begin: float, end: float) -> bool:
    """Whether this node itself had a fault, or was just healed, between two moments."""
    windows = (w for w in ledger.windows if w.sick is None or home in w.sick)
    return any(w.began < end and (w.healed is None or w.healed + WITHIN > begin) for w in windows)


def _moved(ledger: Ledger, role: Role) -> set[int]:
    """Records that are not where the record of their key before them is: they waited for that one's node, or may have; and those behind one
    that was on its way elsewhere."""
    found: set[int] = set()
    before: dict[int, str] = {}
    under_way: dict[int, tuple[str, float]] = {}  # by key: where the last one went, and until when
    for number, ack in sorted(ledger.acked[role.name].items()) if role.keys else ():
        key = key_of(number, role.keys)
        log, until = under_way.get(key, (ack.log, 0.0))
        behind = log != ack.log and until > ack.at - ack.seconds
        if not behind:
            under_way[key] = ack.log, ack.at
        if before.setdefault(key, ack.log) != ack.log or behind:
            found.add(number)
            if ack.seconds <= DELAY:
                before[key] = ack.log  # at home there now
    return found


def healthy(ledger: Ledger, homes: Mapping[str, int], slower: Callable[[float, float], float]) -> Iterator[Finding]:
    """Records for logs that live on one node alone, while another node was sick: beside what the same took another client then.

    Args:
        homes: log to the number of the node that it lives on.
        slower: by what factor all took longer between two moments, for other work on this machine.
    """
    worst: dict[tuple[int, str], tuple[float, float]] = {}
    for role in (role for role in ledger.kind("producer") if role.fixed):
        elsewhere = _moved(ledger, role)
        for number, ack in ledger.acked[role.name].items():
            home = homes.get(ack.log)
            if home is None or number in elsewhere:
                continue
            began = ack.at - ack.seconds
            if ack.seconds <= DELAY or _own(ledger, home, began, ack.at):
                continue
            for index, window in enumerate(ledger.windows):
                if window.sick is None or not (window.began <= began <= (window.healed or ack.at) + AFTER):
                    continue
                excuse = max(ledger.stalled(began, ack.at), ledger.control(ack.log, began, ack.at))
                over = ack.seconds - DELAY * slower(began, ack.at) - excuse
                key = (index, ack.log)
                if over > 0 and over > worst.get(key, (0.0, 0.0))[0]:
                    worst[key] = (over, ack.seconds)
    for (index, log), (_, seconds) in sorted(worst.items()):
        window = ledger.windows[index]
        text = f"{log} waited {seconds:.1f} s for an acknowledgement while node {sorted(window.sick or ())} had {window.name}"
        yield Finding("a healthy partition is not delayed", text, window.began)
