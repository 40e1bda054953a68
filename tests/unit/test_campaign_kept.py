"""What campaigns came to is kept a row for each protocol and seed, and stands in the page of tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from brokers import table
from campaign import kept

ROW = kept.Row("kafka", "4.3.1", 7, 10.0, "0123456789", "2026-11-23", 21, 500_000, 1_200_000, 2.1, 8.0, 0)
FACTS = {"code": 0, "commit": "x", "when": "y", "closing": "z", "parts": {}}


def test_a_later_run_of_a_seed_takes_the_place_of_the_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "results.txt"
    other = replace(ROW, protocol="pulsar", version="4.2.4")
    for row in (other, ROW, replace(ROW, seed=3), replace(ROW, findings=2)):
        kept.keep(row, file)
    assert kept.read(file) == [replace(ROW, seed=3), replace(ROW, findings=2), other]


def test_the_page_has_a_row_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "read", lambda: [ROW])
    told = "| kafka 4.3.1 | 7 | 10 | 0123456789 | 2026-11-23 | 21 | 500,000 | 1,200,000 | 2.1 s, 8.0 s | 0 |"
    assert told in table.page(table.Results(), FACTS).splitlines()
    monkeypatch.setattr(kept, "read", list)
    assert "Campaigns" not in table.page(table.Results(), FACTS)
