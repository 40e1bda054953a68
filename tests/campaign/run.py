"""One campaign: brokers and workload up, rounds of faults until the time is over, everything drained, the logs read, the judges asked.

A round: the fault is put in, held, healed; the brokers answer; then everything must flow again within the site's seconds, which ends the
round as soon as it does. What chance decides, a seed decides (plan.py).
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import (
    clocks,
    judge_calls,
    judge_clocks,
    judge_flow,
    judge_groups,
    judge_logins,
    judge_queues,
    judge_reads,
    judge_sends,
    judge_trees,
    streaming,
)
from .crew import Crew
from .faults import FAULTS, Sick
from .journal import Follower, Journal
from .ledger import CLOCK, Finding, Ledger, Role, Truth, Window
from .plan import Round, rounds
from .processor import Share
from .site import Site, Work

AT_ONCE = frozenset(
    {"roll", "cut", "half-close", "grow", "move", "unload", "policy", "reset", "remake"}
)  # over when they are in: nothing to hold
WARM = 60.0  # seconds for the first flow
PATIENCE = 45.0  # seconds that a round waits for flow, so that one finding is not a dozen; both longer beside other work
SHORT_PACE = 0.4  # of the producers' rates in the short form, which runs beside other tests
SHORT_SLACK = 3.0  # times as long there: a machine that is full delays more than the share of its processors tells
DRAIN = 240.0
CROWDED = 0.6  # share of the processors that others had, beyond which the short form says nothing of time
STUCK = 0.3  # seconds late from which on the campaign's own tick is told


@dataclass
class Outcome:
    """What a campaign came to."""

    protocol: str
    version: str
    seed: int
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    ledger: Ledger | None = None
    rounds: list[Round] = field(default_factory=list)
    flows: list[float] = field(default_factory=list)  # seconds from healing until all flowed
    records: int = 0
    began: float = 0.0

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.fault]


class Campaign:
    """Args: a site that is not started; a folder for journals; what is told on the way."""

    def __init__(
        self,
        site: Site,
        folder: Path,
        seed: int,
        minutes: float,
        say: Callable[[str], None],
        *,
        short: bool = False,
        only: Sequence[str] = (),
    ) -> None:
        self._site, self._folder, self._minutes, self._say = site, folder, minutes, say
        self._short, self._faults = short, list(only or site.faults)
        self._streams = [] if short else site.streams()
        self._unhurt = self._clocks()
        self._slack = SHORT_SLACK if short else 1.0
        self._follower = Follower()
        self._journal = Journal(folder / "campaign.journal")
        site.note = self._journal.note
        site.short, site.seed = short, seed
        self._comers = itertools.count(2)
        self._comer = ""
        self._over = threading.Event()
        self._share = Share()
        self._last: list[str] = []  # who flowed last
        self.outcome = Outcome(site.protocol, site.version, seed)

    def run(self) -> Outcome:
        site, outcome = self._site, self.outcome
        if self._unhurt:
            self._say(self._unhurt)
        if not self._faults:
            raise RuntimeError("no fault is left that can be put in here")
        try:
            site.start()
            site.prepare()
            site.await_answers()
            roles: dict[str, Role] = {}
            works = [*site.works(), *self._streams]
            for work in works:
                roles |= {role.name: role for role, _ in work.roles}
            self._ledger = outcome.ledger = Ledger(roles)
            self._crew = Crew(self._folder, site, SHORT_PACE if self._short else 1.0)
            outcome.began = time.monotonic()
            threading.Thread(target=self._tick, daemon=True).start()
            control = threading.Thread(target=site.control, args=(self._compare, self._over), daemon=True)
            control.start()
            try:
                for work in works:
                    self._crew.start(work)
                self._warm()
                self._weather()
                self._over.set()
                control.join(15.0)
                self._drain(works)
            finally:
                self._over.set()
                self._crew.close()
            outcome.seconds = time.monotonic() - outcome.began
            self._look()
            site.await_answers()
            self._hear_streams()
            self._judge(site.truth(self._ledger))
        finally:
            site.close()
            self._share.close()
        return outcome

    def _tick(self) -> None:
        """The proxies run in this process: when it gets no processor, they are late."""
        while True:
            due = time.monotonic() + 0.1
            time.sleep(0.1)
            late = time.monotonic() - due
            if late > STUCK:
                self._journal.note("stall", "campaign", round(late, 3))

    def _clocks(self) -> str:
        """Give the site clocks that jump, if it is to have any; what is to be said where there are none."""
        found = None if self._short else clocks.library()
        if found is not None and CLOCK in self._faults:
            self._site.clocks = clocks.Clocks(found, self._folder)
            return ""
        wanted = CLOCK in self._faults
        self._faults = [name for name in self._faults if name != CLOCK]
        return "no libfaketime here (Debian: apt install faketime): NO CLOCK JUMPS in this run" if wanted and not self._short else ""

    def _slower(self, begin: float, end: float) -> float:
        """By what factor anything may have taken longer, for want of a machine of its own."""
        return self._share.slower(begin, end) * self._slack

    def _compare(self, log: str, seconds: float) -> None:
        self._journal.note("control", log, round(seconds, 3))

    def _look(self) -> None:
        for event in self._follower.events(self._folder):
            self._ledger.take(event)

    def _flowing(self, since: float, timeout: float) -> tuple[float, list[str]]:
        """Wait until all flows that was sent behind `since`; how long it took by the journals, which are read later, and who did not."""
        self._ledger.begin(since)
        while True:
            logs = self._site.known_logs()
            looked = time.monotonic()
            self._look()
            names = judge_flow.missing(self._ledger, since, logs)
            if not names:
                last, self._last = judge_flow.complete(self._ledger, logs)
                return max(0.0, last - since), []
            if looked - since > timeout * self._slower(since, looked):
                return looked - since, names
            time.sleep(0.2)

    def _warm(self) -> None:
        waited, names = self._flowing(time.monotonic(), WARM)
        if names:
            raise RuntimeError(f"nothing was hurt yet, and {', '.join(names[:8])} did not flow within {WARM:.0f} s {self._crew.deaths}")
        self._say(f"all flows after {waited:.1f} s")

    def _weather(self) -> None:
        end = time.monotonic() + self._minutes * 60
        for round_ in rounds(self._site.protocol, self.outcome.seed, self._faults, self._site.nodes, short=self._short):
            if time.monotonic() > end:
                return
            self._round(round_)
            self.outcome.rounds.append(round_)

    def _round(self, round_: Round) -> None:
        site = self._site
        window = Window(round_.fault, time.monotonic(), None)
        self._ledger.windows.append(window)
        killed = self._members(round_.member)
        self._tend(kill=round_.member == "kill")
        with self._fault(round_) as sick:
            window.sick = sick
            end = time.monotonic() + (0.0 if round_.fault in AT_ONCE else round_.seconds)
            while time.monotonic() < end:
                self._look()  # so that what stands in the journals is not much to read when it is waited for
                time.sleep(max(0.0, min(0.2, end - time.monotonic())))
            window.ended = time.monotonic()
        site.await_answers()
        window.healed = time.monotonic()
        if killed:
            window.spread = max(0.0, killed + site.session - window.healed)
        since = window.healed + window.spread
        waited, names = self._flowing_from(since)
        node = "" if window.sick is None or not window.sick else f" on node {round_.node}"
        member = f", a member: {round_.member}" if round_.member else ""
        late = f" NOT: {', '.join(names[:4])}" if names else f", last {self._last[0]}" if waited > 5.0 else ""
        what = f"{round_.number:3}  {round_.fault}{node}, {window.healed - window.began:.1f} s{member}"
        self._say(f"{window.began - self.outcome.began:6.1f} s  {what}: all flows after {waited:.1f} s{late}")
        time.sleep(round_.rest)

    def _flowing_from(self, since: float) -> tuple[float, list[str]]:
        while time.monotonic() < since:
            time.sleep(0.1)
        waited, names = self._flowing(since, PATIENCE)
        self.outcome.flows.append(waited)
        if names or waited > self._site.flowing * self._slack:
            allowed = self._site.flowing * self._slower(since, since + waited)
            self.outcome.findings.append(judge_flow.late(self._ledger.windows[-1], waited, allowed, names, self._last))
        return waited, names

    @contextlib.contextmanager
    def _fault(self, round_: Round) -> Iterator[Sick]:
        own = self._site.own_faults()
        entered = own[round_.fault](round_) if round_.fault in own else FAULTS[round_.fault](self._site, round_)
        with entered as sick:
            yield sick

    def _members(self, what: str) -> float | None:
        """Somebody comes, goes, or is killed; the moment of a killing."""
        if what == "join" and not self._comer:
            work = self._site.comer(next(self._comers))
            if work is not None:
                self._ledger.roles |= {role.name: role for role, _ in work.roles}
                self._crew.start(work)
                self._comer = work.name
        elif what == "leave" and self._comer:
            self._crew.tell(self._comer)
            name, self._comer = self._comer, ""
            threading.Thread(target=self._crew.wait, args=(name, DRAIN), daemon=True).start()
        elif what == "kill" and self._comer:
            self._crew.kill(self._comer)
            self._comer = ""
            return time.monotonic()
        return None

    def _tend(self, *, kill: bool) -> None:
        """Start a stream again whose query failed, as its owner would; or kill its driver, and start it again from its checkpoint."""
        for work in self._streams:
            if kill:
                self._crew.kill(work.name)
            if not self._crew.running(work.name):
                self._ledger.counts[f"{work.name} was {'killed' if kill else 'ended by its own failure'}, and began again"] += 1
                self._crew.start(work)

    def _hear_streams(self) -> None:
        """What streams wrote becomes a history of readers."""
        for work in self._streams:
            rows = streaming.rows_of(self._folder, work.name)
            for role, _ in work.roles:
                for event in streaming.told(role.name, role.topic, rows, self.outcome.began, time.monotonic()):
                    self._ledger.take(event)

    def _drain(self, works: list[Work]) -> None:
        """Senders end first; then all that reads has what they sent, and ends."""
        self._say("draining")
        self._tend(kill=False)
        for sends in (True, False):
            names = [work.name for work in works if work.sends is sends]
            if not sends and self._comer:
                names.insert(0, self._comer)
            for name in names:
                self._crew.tell(name)
            for name in names:
                self._end(name)

    def _end(self, name: str) -> None:
        self._crew.wait(name, DRAIN)

    def _judge(self, truth: Truth) -> None:
        ledger, found = self._ledger, self.outcome.findings
        found += [Finding("processes end in order", text) for text in self._crew.deaths]
        found += judge_sends.judge(ledger, truth)
        found += judge_reads.judge(ledger, truth)
        found += judge_groups.judge(ledger, truth)
        found += judge_queues.judge(ledger)
        found += judge_trees.judge(ledger)
        found += judge_clocks.judge(ledger)
        found += judge_logins.judge(ledger, self._slower)
        found += self._site.last_words()
        found += judge_calls.judge(ledger, self._slack)
        found += judge_calls.memory(ledger)
        found += judge_flow.healthy(ledger, self._site.homes(), self._slower)
        crowd = self._share.others(self.outcome.began, self.outcome.began + self.outcome.seconds)
        if self._short and crowd > CROWDED:
            self._say(f"others had {100 * crowd:.0f} % of the processors: what took too long is counted, and no finding")
            self.outcome.findings = [judge_flow.excused(finding) for finding in found]
        self.outcome.records = sum(len(numbers) for numbers in ledger.sent.values())
