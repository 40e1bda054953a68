"""docs/faults.md says what becomes of a fault at each step, as it is."""

from __future__ import annotations

import pytest

import steps


@pytest.mark.parametrize("protocol", steps.PROTOCOLS)
def test_the_page_of_faults_is_current(protocol: str) -> None:
    assert steps.disagreeing(protocol, steps.PAGE.read_text()) == []
