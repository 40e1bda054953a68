"""What holds for each protocol: the conformance suite's table. A cell is what the suite proves, not a wish.

For a value a broker either *carries* (it comes back byte for byte) or the client *refuses* it (ValueUnsupported before anything is
sent). There is no third outcome: no value is ever changed in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wireproto import protocols

Fate = Literal["carried", "refused"]
CARRIED: Fate = "carried"
REFUSED: Fate = "refused"


@dataclass(frozen=True)
class Features:
    """One protocol's row.

    Attributes:
        null_value … repeated_header: fate of that edge of the common record.
        timestamp: whether the caller's timestamp is carried (else the broker stamps).
        time_of: what AtTime looks in: "record" or "arrival" (the broker's clock).
        partitions: whether a topic can have several.
        consumer, queue, tree: the roles there are.
        nearest: role without support to the one that the error must name.
        repeats_after_crash: whether a record acknowledged or in flight when the broker crashed may come twice (never: be lost).
        shares_one_partition: whether two queue consumers of one group can both work on a single partition.
        shares_exactly: whether a message goes to one queue consumer alone also while members come and go (else it may come to two then).
        releases_at_once: whether a released delivery is handed out again within seconds.
        counts_attempts: whether a second delivery says attempt ≥ 1.
        repeats_acked: whether a group has one mark for all that is done: acked messages behind an open one come again after a crash.
    """

    null_value: Fate
    empty_value: Fate
    null_key: Fate
    text_key: Fate
    empty_key: Fate
    binary_key: Fate
    spaced_key: Fate
    text_header: Fate
    binary_header: Fate
    empty_header: Fate
    null_header: Fate
    repeated_header: Fate
    timestamp: bool
    time_of: Literal["record", "arrival"]
    partitions: bool
    consumer: bool
    queue: bool
    tree: bool
    nearest: dict[str, str]
    repeats_after_crash: bool
    shares_one_partition: bool = True
    shares_exactly: bool = True
    releases_at_once: bool = True
    counts_attempts: bool = True
    repeats_acked: bool = False

    def fate(self, name: str) -> Fate:
        found: Fate = getattr(self, name)
        return found


FEATURES: dict[str, Features] = {
    "kafka": Features(
        null_value=CARRIED,
        empty_value=CARRIED,
        null_key=CARRIED,
        text_key=CARRIED,
        empty_key=CARRIED,
        binary_key=CARRIED,
        spaced_key=CARRIED,
        text_header=CARRIED,
        binary_header=CARRIED,
        empty_header=CARRIED,
        null_header=CARRIED,
        repeated_header=CARRIED,
        timestamp=True,
        time_of="record",
        partitions=True,
        consumer=True,
        queue=False,
        tree=False,
        nearest={"queue": "consumer", "tree": ""},
        repeats_after_crash=False,
    ),
    "pulsar": Features(
        null_value=CARRIED,
        empty_value=CARRIED,
        null_key=CARRIED,
        text_key=CARRIED,
        empty_key=CARRIED,
        binary_key=CARRIED,
        spaced_key=CARRIED,
        text_header=CARRIED,
        binary_header=REFUSED,
        empty_header=CARRIED,
        null_header=REFUSED,
        repeated_header=REFUSED,
        timestamp=True,
        time_of="arrival",
        partitions=True,
        consumer=True,
        queue=True,
        tree=False,
        nearest={"tree": ""},
        repeats_after_crash=True,
    ),
    "rocketmq": Features(
        null_value=REFUSED,
        empty_value=CARRIED,
        null_key=CARRIED,
        text_key=CARRIED,
        empty_key=REFUSED,
        binary_key=REFUSED,
        spaced_key=REFUSED,
        text_header=CARRIED,
        binary_header=REFUSED,
        empty_header=REFUSED,
        null_header=REFUSED,
        repeated_header=REFUSED,
        timestamp=True,
        time_of="arrival",
        partitions=True,
        consumer=True,
        queue=True,
        tree=False,
        nearest={"tree": ""},
        repeats_after_crash=True,
        shares_one_partition=False,  # a queue of the topic belongs to one member of the group
        shares_exactly=False,  # members compute their shares each for itself: for a moment two may read the same queue
        releases_at_once=False,  # send-back waits for the broker's delay level
        repeats_acked=True,
    ),
    "zookeeper": Features(
        null_value=CARRIED,
        empty_value=CARRIED,
        null_key=CARRIED,
        text_key=REFUSED,
        empty_key=REFUSED,
        binary_key=REFUSED,
        spaced_key=REFUSED,
        text_header=REFUSED,
        binary_header=REFUSED,
        empty_header=REFUSED,
        null_header=REFUSED,
        repeated_header=REFUSED,
        timestamp=False,
        time_of="arrival",
        partitions=False,
        consumer=False,
        queue=True,
        tree=True,
        nearest={"consumer": "queue"},
        repeats_after_crash=True,
    ),
}


def features_of(protocol: str) -> Features:
    """A protocol's row: of this table, or what its descriptor names."""
    if protocol in FEATURES:
        return FEATURES[protocol]
    place = protocols.find(protocol).features
    assert place is not None, f"nothing says what {protocol} is held to"
    found: Features = protocols.part(place)
    return found
