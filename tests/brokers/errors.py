"""What goes wrong while brokers are started, as two types.

`Unavailable`: this machine cannot run that broker (no Java, no Maven, no network for the jars). A loud skip, or a failure when CI=true.
`BootFailed`: the broker was started and did not become ready; the text holds the tail of its log.
"""

from __future__ import annotations


class Unavailable(Exception):
    """Java, Maven or the jars are missing; the text says which."""


class BootFailed(Exception):
    """The process ended, or was not ready in time; the text ends with the tail of its log."""
