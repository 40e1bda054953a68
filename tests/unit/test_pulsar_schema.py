"""Pulsar's schema and error codes: what is generated is current, and the exceptions name every code."""

from __future__ import annotations

import pytest

from wireproto.errors import AuthError, BrokerError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import BY_CODE, ConsumerNotFound, MetadataError, PulsarError, error_of


def test_every_server_error_has_its_exception_by_number_and_name() -> None:
    assert {(kind.name, code) for code, kind in BY_CODE.items()} == set(api.ServerError.items())


def test_an_unknown_code_keeps_its_number() -> None:
    error = error_of(999, "new in 9.0", peer="h:1")
    assert type(error) is PulsarError
    assert error.code == 999
    assert "new in 9.0" in str(error)
    assert "h:1" in str(error)


def test_refused_credentials_are_auth_errors_and_never_retried() -> None:
    for code in (3, 4):
        error = error_of(code, "no")
        assert isinstance(error, AuthError)
        assert isinstance(error, BrokerError)
        assert not error.retriable


@pytest.mark.parametrize(
    ("text", "retriable"), [("Topic is temporarily unavailable", True), ("Failed to fence subscription", True), ("bad thing", False)]
)
def test_an_unknown_error_is_retried_only_while_the_topic_moves(text: str, retriable: bool) -> None:
    assert error_of(0, text).retriable is retriable


def test_a_consumer_that_the_broker_has_closed_is_told_from_a_failed_store() -> None:
    assert type(error_of(1, "Consumer not found")) is ConsumerNotFound
    assert type(error_of(1, "Other")) is MetadataError


def test_base_command_has_a_field_for_every_type_under_the_same_number() -> None:
    fields = {field.number for field in api.BaseCommand.DESCRIPTOR.fields} - {1}
    assert fields == {number for _, number in api.BaseCommand.Type.items()}
