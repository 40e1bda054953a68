"""The blocks of docs/transactions.md run as printed, on a real broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import wireproto
from brokers import Broker
from integration.test_kafka_admin_transactions import committed, hang
from patience import until

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"


@pytest.mark.parametrize("broker", ["kafka-4.3.1-transactions"], indirect=True)
def test_the_page_s_examples_do_what_they_say(broker: Broker) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    first, handed, second = (block.replace("kafka://localhost:9092", broker.url) for block in blocks)
    names: dict[str, Any] = {"__name__": PAGE.stem}
    exec(compile(first, f"{PAGE.name} block 1", "exec"), names)
    bills = sorted(b"a bill for %d" % number for number in range(20))
    with wireproto.connect(broker.url) as client:
        until(lambda: sorted(committed(client, "bills")) == bills)
        exec(compile(second, f"{PAGE.name} block 3", "exec"), names)  # nothing hangs
        producer = hang(client, "bills", b"of nobody", "nobody")
        with client.producer("bills") as out:
            out.send(b"behind it").position(30.0)
        exec(compile(second, f"{PAGE.name} block 3", "exec"), names)  # it may still be under way
        assert sorted(committed(client, "bills")) == bills
        assert [one.producer_id for _, one in names["hanging"](client.admin(), "bills", 0.0)] == [producer]
        assert "older_than: float = 900.0" in second
        exec(compile(second.replace("older_than: float = 900.0", "older_than: float = 0.0"), f"{PAGE.name} block 3", "exec"), names)
        until(lambda: sorted(committed(client, "bills")) == sorted([*bills, b"behind it"]))
        exec(compile(handed, f"{PAGE.name} block 2", "exec"), names)
        until(lambda: sorted(committed(client, "bills")) == sorted([*bills, b"behind it", b"a row"]))
