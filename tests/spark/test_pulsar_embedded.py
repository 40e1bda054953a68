"""Pulsar's exactly-once sink on the embedded broker: what holds on a real broker holds here, by the same tests and the official client's
readers."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import pulsar_embedded
from spark import test_pulsar_exactly as exactly
from spark import test_pulsar_sinks as sinks
from spark.peers import QUIET

pytestmark = [QUIET, pytest.mark.broker("dev-pulsar")]
broker = pulsar_embedded.broker
client, topic = exactly.client, exactly.topic


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    "check",
    [
        exactly.test_a_micro_batch_is_seen_whole_when_it_is_committed,
        exactly.test_a_replay_of_a_decided_one_writes_nothing_however_it_is_cut,
        exactly.test_a_driver_killed_before_its_decision_leaves_nothing,
        exactly.test_a_driver_killed_before_its_note_has_nothing_carried_out_again,
        exactly.test_a_decision_without_an_answer_is_settled_by_abort,
        exactly.test_an_abort_behind_a_commit_that_raised_carries_it_out,
        exactly.test_an_older_driver_decides_nothing,
        exactly.test_an_older_driver_is_fenced_though_its_tasks_come_later,
        exactly.test_an_older_driver_rolls_back_nothing_of_a_newer_one,
        exactly.test_what_losers_leave_open_holds_up_no_reader,
        exactly.test_an_attempt_that_writes_on_when_it_was_rolled_back_is_not_seen,
        exactly.test_a_failed_task_leaves_nothing_open,
        exactly.test_rows_choose_their_topics_within_one_transaction,
        sinks.test_dropping_a_query_carries_out_what_it_decided_and_rolls_back_the_rest,
    ],
)
def test_it_holds_as_on_real_brokers(check: Callable[..., None], request: pytest.FixtureRequest) -> None:
    check(**{name: request.getfixturevalue(name) for name in inspect.signature(check).parameters})
