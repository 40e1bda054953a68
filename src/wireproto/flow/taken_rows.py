"""Adds to an error that ends a `send_batch` how many rows were taken before."""

from __future__ import annotations

from collections.abc import Mapping

from wireproto.errors import WireprotoError


def add_taken(why: WireprotoError, taken: Mapping[int, int], rows: int) -> None:
    """Set `taken` of an error that ends a `send_batch`, and say it in its text, so that a caller does not send these rows twice.

    Args:
        why: the error. taken: number of rows that were taken, by partition; -1: rows without one. rows: number of all rows.
    """
    if taken:
        why.taken = taken
        shares = ", ".join(f"{count} of partition {number}" if number >= 0 else f"{count} of none" for number, count in taken.items())
        why.text += f"; of the {rows} rows {sum(taken.values())} were taken before, the first {shares}, and are sent"
