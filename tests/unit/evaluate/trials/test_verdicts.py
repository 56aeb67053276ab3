"""Each verdict by planted faults: what is well is kept, each fault breaks its own property and no
other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.evaluations import (
    GOOD_COUNTS,
    GOOD_DISTURBANCE,
    GOOD_TRIAL,
    NOT_TRIED,
    evaluation,
)

from hourmark_evaluate.results import (
    BacklogResult,
    LeaderTakeover,
    MetricComparison,
    MirrorPositionResult,
    TrialResult,
)
from hourmark_evaluate.verdicts import (
    EvaluationVerdict,
    KafkaProperty,
    property_verdicts,
    trial_verdict,
)


def _broken(trial: TrialResult) -> dict[KafkaProperty, tuple[str, ...]]:
    return {
        one.property: one.faults
        for one in property_verdicts(evaluation(GOOD_TRIAL, trial))
        if one.verdict is EvaluationVerdict.BROKEN
    }


def _counted(**changed: Any) -> TrialResult:
    return dataclasses.replace(
        GOOD_TRIAL,
        name="planted",
        counts=(GOOD_COUNTS, dataclasses.replace(GOOD_COUNTS, **changed)),
    )


def test_what_is_well_keeps_every_property() -> None:
    found = property_verdicts(evaluation(GOOD_TRIAL))
    assert [one.property for one in found] == list(KafkaProperty)
    assert {one.verdict for one in found} == {EvaluationVerdict.KEPT} and not any(
        one.faults for one in found
    )
    assert trial_verdict(GOOD_TRIAL) is EvaluationVerdict.KEPT


@pytest.mark.parametrize(
    ("plant", "property_", "says"),
    [
        (lambda: _counted(lost=1), KafkaProperty.NOT_LOST, "1 records acknowledged but not read"),
        (lambda: _counted(acknowledged=0), KafkaProperty.NOT_LOST, "no record was acknowledged"),
        (lambda: _counted(doubled=2), KafkaProperty.NOT_DOUBLED, "2 records read more than once"),
        (lambda: _counted(phantom=3), KafkaProperty.NOT_ALTERED, "3 records read but not sent"),
        (
            lambda: _counted(disordered=4),
            KafkaProperty.IN_ORDER,
            "4 records read after a record that was sent later",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                disturbances=(dataclasses.replace(GOOD_DISTURBANCE, recovered_s=None),),
            ),
            KafkaProperty.RECOVERS,
            "the producer did not recover after: broker 2 killed",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL, name="planted", disturbances=(), fatal="_FENCED"
            ),
            KafkaProperty.RECOVERS,
            "the producer stopped permanently: _FENCED",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                backlog=BacklogResult(records=500, piled_s=5.0, caught_up_s=None, read_per_s=1.0),
            ),
            KafkaProperty.CATCHES_UP,
            "the consumer did not catch up with 500 records",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                claims=MirrorPositionResult(samples=9, false_records=7, waiting_max=9),
            ),
            KafkaProperty.NO_FALSE_CLAIM,
            "7 records committed as copied but missing on the target",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                comparisons=(
                    MetricComparison(what="records, by log ends", ours=1000, brokers=999),
                ),
            ),
            KafkaProperty.METRICS_AGREE,
            "records, by log ends: 1,000 counted, 999 by the brokers",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                takeovers=(LeaderTakeover(how="paused", workers=2, another_led_s=None),),
            ),
            KafkaProperty.ANOTHER_LEADS,
            "no other worker led after the leading worker was paused",
        ),
    ],
    ids=[
        "lost",
        "nothing",
        "doubled",
        "phantom",
        "disordered",
        "stuck",
        "ended",
        "backlog",
        "claim",
        "metrics",
        "leaderless",
    ],
)
def test_each_fault_breaks_its_own_property_alone(
    plant: Callable[[], TrialResult], property_: KafkaProperty, says: str
) -> None:
    trial = plant()
    broken = _broken(trial)
    assert broken.keys() == {property_}
    (fault,) = broken[property_]
    assert fault.startswith("planted: ") and says in fault
    assert trial_verdict(trial) is EvaluationVerdict.BROKEN


def test_a_consumer_keeps_up_with_no_load_that_has_ended() -> None:
    ended = dataclasses.replace(GOOD_TRIAL, fatal="_FENCED")
    assert {one.property: one.verdict for one in property_verdicts(evaluation(ended))}[
        KafkaProperty.CATCHES_UP
    ] is EvaluationVerdict.NOT_TRIED


def test_what_was_not_tried_is_not_kept() -> None:
    assert {one.verdict for one in property_verdicts(evaluation(NOT_TRIED))} == {
        EvaluationVerdict.NOT_TRIED
    }
    assert trial_verdict(NOT_TRIED) is EvaluationVerdict.NOT_TRIED


def test_a_property_that_nothing_could_have_broken_is_not_kept() -> None:
    blind = dataclasses.replace(
        GOOD_TRIAL,
        disturbances=(),
        comparisons=(),
        takeovers=(),
        claims=MirrorPositionResult(samples=0, false_records=0, waiting_max=0),
        backlog=None,
    )
    found = {one.property: one.verdict for one in property_verdicts(evaluation(blind))}
    unseen = (
        KafkaProperty.RECOVERS,
        KafkaProperty.METRICS_AGREE,
        KafkaProperty.NO_FALSE_CLAIM,
        KafkaProperty.CATCHES_UP,
        KafkaProperty.ANOTHER_LEADS,
    )
    assert {found[one] for one in unseen} == {EvaluationVerdict.NOT_TRIED} and found[
        KafkaProperty.NOT_LOST
    ] is EvaluationVerdict.KEPT
