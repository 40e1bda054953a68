"""Lines of the log that only a real broker gives a reason for."""

from __future__ import annotations

import logging

import pytest

import wireproto
from brokers import Broker
from patience import until
from wireproto.kafka.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest
from wireproto.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from wireproto.kafka.messages.describe_client_quotas import ComponentData

BROKERS = ["kafka-4.3.1"]


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_quota_that_holds_a_client_back_is_told_and_waited_for(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The broker reads nothing meanwhile, for longer than a request may take: nothing is sent, so nothing is sent again. It counts by the
    last ten seconds: behind the third record it is to read nothing for 5 s, behind the fourth for 10 s, which is longer than a request may
    take, and that longer than a loaded machine does."""
    entity = (EntityData(entity_type="client-id", entity_name="throttled"),)
    ops = (OpData(key="producer_byte_rate", value=12_000.0, remove=False),)
    with (
        caplog.at_level(logging.INFO, "wireproto.kafka"),
        wireproto.connect(broker.url, client_id="throttled") as client,
    ):
        client.admin().create_topic("told-throttled", partitions=1)
        entry = AlterClientQuotasRequestEntryData(entity=entity, ops=ops)
        reply = client.request(AlterClientQuotasRequest(entries=(entry,), validate_only=False))
        assert [found.error_code for found in reply.entries] == [0]
        ours = ComponentData(entity_type="client-id", match_type=0, match="throttled")
        until(lambda: client.request(DescribeClientQuotasRequest(components=(ours,), strict=True)).entries)
        with client.producer("told-throttled", linger=0, compression="none", request_timeout=6.0, max_in_flight=1) as out:
            for first in (0, 5):  # the broker knows of the quota a moment before it keeps it
                receipts = [out.send(b"x" * 60_000) for _ in range(5)]
                assert [receipt.position(60.0).offset for receipt in receipts] == [*range(first, first + 5)]
                if any("throttled by a quota for " in line for line in caplog.messages):
                    break
            else:
                pytest.fail("not throttled")
    assert not [line for line in caplog.messages if "not answered in time" in line or "sent again" in line]
