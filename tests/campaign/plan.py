"""A seed becomes rounds: which fault, on which node, for how long, and who of a group comes or goes meanwhile.

Sans-IO. The same seed, protocol and names of faults give the same rounds; how many of them a campaign gets through is a matter of the
machine. Each fault comes once, in an order of the seed's, before any comes again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ABSENT, PRESENT = ("", "join"), ("", "", "leave", "kill")  # what a second member may do


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes:
        fault: its name. node: on which node, from 0, where it is of one.
        seconds: how long it lasts. amount: 0 to 1, for what else the fault leaves open.
        member: join, leave or kill: what a group's second member does meanwhile; empty: nothing.
        rest: seconds of calm behind it, once all flows.
    """

    number: int
    fault: str
    node: int
    seconds: float
    amount: float
    member: str
    rest: float


def rounds(protocol: str, seed: int, faults: Sequence[str], nodes: int, *, short: bool = False) -> Iterator[Round]:
    """For ever.

    Args:
        short: faults of 1 to 4 s instead of 2 to 14 s.
    """
    chance = random.Random(f"{protocol} {seed}")
    number, there = 0, False
    while True:
        order = list(faults)
        chance.shuffle(order)
        for fault in order:
            seconds = chance.uniform(1.0, 4.0) if short else chance.choice((chance.uniform(2.0, 6.0), chance.uniform(6.0, 14.0)))
            node, amount = chance.randrange(nodes), round(chance.random(), 3)
            member = chance.choice(PRESENT if there else ABSENT)
            there = member == "join" or (there and not member)
            yield Round(number, fault, node, round(seconds, 1), amount, member, round(chance.uniform(0.0, 2.0), 1))
            number += 1
