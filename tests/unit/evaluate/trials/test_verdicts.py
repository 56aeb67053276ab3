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

from hourmark_evaluate.results import Backlog, Claims, Comparison, Takeover, Trial
from hourmark_evaluate.verdicts import Property, Verdict, of_trial, verdicts


def _broken(trial: Trial) -> dict[Property, tuple[str, ...]]:
    return {
        one.property: one.faults
        for one in verdicts(evaluation(GOOD_TRIAL, trial))
        if one.verdict is Verdict.BROKEN
    }


def _counted(**changed: Any) -> Trial:
    return dataclasses.replace(
        GOOD_TRIAL,
        name="planted",
        counts=(GOOD_COUNTS, dataclasses.replace(GOOD_COUNTS, **changed)),
    )


def test_what_is_well_keeps_every_property() -> None:
    found = verdicts(evaluation(GOOD_TRIAL))
    assert [one.property for one in found] == list(Property)
    assert {one.verdict for one in found} == {Verdict.KEPT} and not any(one.faults for one in found)
    assert of_trial(GOOD_TRIAL) is Verdict.KEPT


@pytest.mark.parametrize(
    ("plant", "property_", "says"),
    [
        (lambda: _counted(lost=1), Property.NOT_LOST, "1 records acknowledged and not there"),
        (lambda: _counted(acknowledged=0), Property.NOT_LOST, "nothing was acknowledged"),
        (lambda: _counted(doubled=2), Property.NOT_DOUBLED, "2 records there once too often"),
        (lambda: _counted(phantom=3), Property.NOT_ALTERED, "3 records never sent so"),
        (
            lambda: _counted(disordered=4),
            Property.IN_ORDER,
            "4 records behind one that was sent later",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                disturbances=(dataclasses.replace(GOOD_DISTURBANCE, recovered_s=None),),
            ),
            Property.RECOVERS,
            "the producer did not go on after: broker 2 killed",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL, name="planted", disturbances=(), fatal="_FENCED"
            ),
            Property.RECOVERS,
            "the producer ended for good: _FENCED",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                backlog=Backlog(records=500, piled_s=5.0, caught_up_s=None, read_per_s=1.0),
            ),
            Property.CATCHES_UP,
            "500 records were not caught up",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL, name="planted", claims=Claims(samples=9, false_records=7, waiting_max=9)
            ),
            Property.NO_FALSE_CLAIM,
            "7 records claimed that the target did not hold",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                comparisons=(Comparison(what="records, by log ends", ours=1000, brokers=999),),
            ),
            Property.METRICS_AGREE,
            "records, by log ends: 1,000 counted, 999 by the brokers",
        ),
        (
            lambda: dataclasses.replace(
                GOOD_TRIAL,
                name="planted",
                takeovers=(Takeover(how="paused", workers=2, another_led_s=None),),
            ),
            Property.ANOTHER_LEADS,
            "nobody else led after the leading worker was paused",
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
    plant: Callable[[], Trial], property_: Property, says: str
) -> None:
    trial = plant()
    broken = _broken(trial)
    assert broken.keys() == {property_}
    (fault,) = broken[property_]
    assert fault.startswith("planted: ") and says in fault
    assert of_trial(trial) is Verdict.BROKEN


def test_a_consumer_keeps_up_with_no_load_that_has_ended() -> None:
    ended = dataclasses.replace(GOOD_TRIAL, fatal="_FENCED")
    assert {one.property: one.verdict for one in verdicts(evaluation(ended))}[
        Property.CATCHES_UP
    ] is Verdict.NOT_TRIED


def test_what_was_not_tried_is_not_kept() -> None:
    assert {one.verdict for one in verdicts(evaluation(NOT_TRIED))} == {Verdict.NOT_TRIED}
    assert of_trial(NOT_TRIED) is Verdict.NOT_TRIED


def test_a_property_that_nothing_could_have_broken_is_not_kept() -> None:
    blind = dataclasses.replace(
        GOOD_TRIAL,
        disturbances=(),
        comparisons=(),
        takeovers=(),
        claims=Claims(samples=0, false_records=0, waiting_max=0),
        backlog=None,
    )
    found = {one.property: one.verdict for one in verdicts(evaluation(blind))}
    unseen = (
        Property.RECOVERS,
        Property.METRICS_AGREE,
        Property.NO_FALSE_CLAIM,
        Property.CATCHES_UP,
        Property.ANOTHER_LEADS,
    )
    assert {found[one] for one in unseen} == {Verdict.NOT_TRIED} and found[
        Property.NOT_LOST
    ] is Verdict.KEPT
