"""Kafka's messages for `wireproto.wire`: those of the schema, by Apache Kafka's names, without their headers (which are messages too)."""

from __future__ import annotations

from wireproto.forms import Form, schema_forms


def forms() -> dict[str, Form]:
    """Every request, response, header and record of an internal log."""
    return schema_forms("kafka", structs=False)
