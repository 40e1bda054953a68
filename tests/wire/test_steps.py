"""docs/faults.md says what becomes of a fault at each step, as it is."""

from __future__ import annotations

import pytest

from steps import page
from steps.cells import cells
from steps.vendors import VENDORS, Difference, Vendor


@pytest.mark.parametrize("protocol", page.PROTOCOLS)
def test_the_page_of_faults_is_current(protocol: str) -> None:
    assert page.disagreeing(protocol, page.PAGE.read_text()) == []


@pytest.mark.parametrize("protocol", page.PROTOCOLS)
def test_what_the_vendors_client_does_otherwise_names_rows_of_the_page(protocol: str) -> None:
    vendor = VENDORS[protocol]
    assert vendor.stray((cell.step, cell.fault) for cell in cells(protocol)) == []
    assert vendor.beneath() in page.section(protocol, page.PAGE.read_text()) + "\n"


def test_a_difference_that_names_no_row_is_told() -> None:
    rows = [("send", "silence"), ("read", "reset")]
    vendor = Vendor("x", "", (Difference(("send", "reed"), ("silence", "reset"), "", ""), Difference(("read",), (), "", "")))
    assert vendor.stray(rows) == ["1: reed", "1: reset"]
    assert [vendor.marks(row) for row in rows] == ["1", "2"]
