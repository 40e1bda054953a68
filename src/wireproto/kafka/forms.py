"""Kafka's messages for `wireproto.wire`: those of the schema, by Apache Kafka's names, without their headers (which are messages too)."""

from __future__ import annotations

from wireproto.forms import Form, LazyForm

from .messages._index import VERSIONS


def forms() -> dict[str, Form]:
    """Every request, response, header and record of an internal log."""
    return {name: LazyForm("kafka", name, versions) for name, versions in VERSIONS.items()}
