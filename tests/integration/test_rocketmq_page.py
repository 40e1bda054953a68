"""The block of docs/rocketmq.md that the embedded broker cannot serve runs as printed, on real ones."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from patience import until
from wireproto.position import EARLIEST, LATEST

PAGE = Path(__file__).parents[2] / "docs" / "rocketmq.md"
_keys = itertools.count()


class Database:
    """The reader's own, which knows what was paid."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.paid: set[bytes] = set()

    def pay(self, number: int) -> None:
        self.paid.add(b"%d" % number)
        if self.fails:
            raise OSError("its own answer was lost")

    def find(self, key: bytes) -> object | None:
        return key if key in self.paid else None

    def is_over(self, key: bytes) -> bool:
        return True


def values(client: Any, topic: str) -> list[bytes | None]:
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


@pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
@pytest.mark.parametrize("fails", [False, True], ids=["done", "in doubt"])
def test_the_page_s_transaction_does_what_it_says(broker: RocketMQ, fails: bool) -> None:
    (block,) = re.findall(r"^```python real-broker\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    topic = f"payments-{next(_keys)}"
    source = block.replace('"payments"', f'"{topic}"').replace('"orders"', f'"orders-{topic}"')
    assert source.count(topic) == 2
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(topic)
        names: dict[str, Any] = {"client": client, "database": Database(fails=fails)}
        if not fails:
            exec(compile(source, PAGE.name, "exec"), names)
        else:
            with pytest.raises(OSError, match="its own answer was lost"):
                exec(compile(source, PAGE.name, "exec"), names)
            assert values(client, topic) == [], "nobody here knows what is true"
            with client.transactional(f"orders-{topic}", check=names["check"]):  # another process of the group
                until(lambda: values(client, topic), "the check decides nothing", 90.0)
        until(lambda: values(client, topic) == [b"order 7 is paid"], "it is not there")
