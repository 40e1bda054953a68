"""What the conformance suite holds the toy to."""

from __future__ import annotations

from conformance.features import CARRIED, REFUSED, Features

FEATURES = Features(
    null_value=REFUSED,
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
    queue=False,
    tree=False,
    nearest={"consumer": "reader", "queue": "reader", "tree": "admin"},
    repeats_after_crash=False,
)
