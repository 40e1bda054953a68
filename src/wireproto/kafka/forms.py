"""Lists Kafka's messages for `wireproto.wire`: those of the schema, by Apache Kafka's names; their headers are messages too."""

from __future__ import annotations

from wireproto.forms import Form, LazyForm

from .messages._index import VERSIONS


def forms() -> dict[str, Form]:
    """Return every request, response, header and record of an internal log, by name."""
    return {name: LazyForm("kafka", name, versions) for name, versions in VERSIONS.items()}
