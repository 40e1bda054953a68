"""docs/faults.md says what becomes of a fault at each step, as it is."""

from __future__ import annotations

import pytest

from steps import page


@pytest.mark.parametrize("protocol", page.PROTOCOLS)
def test_the_page_of_faults_is_current(protocol: str) -> None:
    assert page.disagreeing(protocol, page.PAGE.read_text()) == []
