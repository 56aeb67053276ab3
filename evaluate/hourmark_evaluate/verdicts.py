"""Verdicts per property, derived from the results of trials. All functions are pure.

A property is kept only if a trial observed something that could have broken it: a trial without
acknowledgements keeps no property.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hourmark_evaluate.results import Evaluation, PositionClaims, TrialResult


class EvaluationVerdict(StrEnum):
    """The verdict on a property or a trial.

    Attributes:
        KEPT: Observed without a fault.
        BROKEN: At least one fault was found.
        NOT_TRIED: Not observed.
    """

    KEPT = "kept"
    BROKEN = "BROKEN"
    NOT_TRIED = "not tried"


class KafkaProperty(StrEnum):
    """A property that Kafka must keep under faults; the value is its description in the report."""

    NOT_LOST = "nothing that was acknowledged is lost"
    NOT_DOUBLED = "nothing is there twice"
    NOT_ALTERED = "nothing is there that was not sent so"
    IN_ORDER = "each partition keeps the order of sending"
    RECOVERS = "who was disturbed goes on by itself, without a restart"
    CATCHES_UP = "a backlog is caught up while the load goes on"
    NO_FALSE_CLAIM = "the mirror claims no more than the target holds"
    ANOTHER_LEADS = "where the mirror's leading worker is gone, another leads"
    METRICS_AGREE = "the brokers' own metrics agree with what was counted"


@dataclass(frozen=True, slots=True)
class PropertyFinding:
    """The findings of one trial about one property.

    Attributes:
        trial: Name of the trial.
        property: The property that was examined.
        looked: Number of observations that could have shown a fault.
        faults: Description of each fault; empty if none was found.
    """

    trial: str
    property: KafkaProperty
    looked: int
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PropertyVerdict:
    """The verdict on one property over all trials.

    Attributes:
        property: The property that was examined.
        verdict: Whether it was kept, was broken, or was not tried.
        trials: Number of trials with an observation or a fault.
        looked: Number of observations: records, disturbances, samples or comparisons, depending on
            the property.
        faults: Description of each fault, prefixed with the name of its trial.
    """

    property: KafkaProperty
    verdict: EvaluationVerdict
    trials: int
    looked: int
    faults: tuple[str, ...]


# Transaction markers may arrive shortly after a commit. A mirror that commits positions earlier
# than this does not know whether the records were copied.
EARLY_S: Final = 10.0
_COUNTED: Final = (
    (KafkaProperty.NOT_LOST, "lost", "acknowledged and not there"),
    (KafkaProperty.NOT_DOUBLED, "doubled", "there once too often"),
    (KafkaProperty.NOT_ALTERED, "phantom", "never sent so"),
    (KafkaProperty.IN_ORDER, "disordered", "behind one that was sent later"),
)


def property_verdicts(evaluation: Evaluation) -> tuple[PropertyVerdict, ...]:
    """Return one verdict per property over all trials, in the order of `Property`.

    A property is broken if any trial has a fault of it, kept if at least one trial observed it
    without a fault, and not tried otherwise.
    """
    findings = [finding for trial in evaluation.trials for finding in find_property_faults(trial)]
    return tuple(
        _over_all(one, [f for f in findings if f.property is one]) for one in KafkaProperty
    )


def find_property_faults(trial: TrialResult) -> Iterator[PropertyFinding]:
    """Yield the findings of one trial, at most one per property.

    A finding with `looked` 0 and without faults means that the trial did not observe the property.
    A trial that was not tried yields nothing; one that was aborted yields a single fault of
    recovery.
    """
    if not trial.tried:
        return
    if trial.broken_off:
        yield PropertyFinding(trial.name, KafkaProperty.RECOVERS, 1, (trial.broken_off,))
        return
    yield from _counted(trial)
    yield from _recovered(trial)
    if (
        backlog := trial.backlog
    ) is not None and not trial.fatal:  # a consumer can only fall behind a running load
        late = (
            (f"{backlog.records:,} records were not caught up in time",)
            if backlog.caught_up_s is None
            else ()
        )
        yield PropertyFinding(trial.name, KafkaProperty.CATCHES_UP, int(backlog.records > 0), late)
    if (claims := trial.claims) is not None:
        yield PropertyFinding(
            trial.name, KafkaProperty.NO_FALSE_CLAIM, claims.samples, tuple(_false(claims))
        )
    nobody = tuple(
        f"nobody else led after the leading worker was {t.how}"
        for t in trial.takeovers
        if t.another_led_s is None
    )
    yield PropertyFinding(trial.name, KafkaProperty.ANOTHER_LEADS, len(trial.takeovers), nobody)
    wrong = tuple(
        f"{c.what}: {c.ours:,} counted, {c.brokers:,} by the brokers"
        for c in trial.comparisons
        if c.ours != c.brokers
    )
    yield PropertyFinding(trial.name, KafkaProperty.METRICS_AGREE, len(trial.comparisons), wrong)


def trial_verdict(trial: TrialResult) -> EvaluationVerdict:
    """Return the verdict on one trial.

    Returns:
        `NOT_TRIED` if the trial was not tried, `BROKEN` if it has at least one fault, otherwise
        `KEPT`.
    """
    if not trial.tried:
        return EvaluationVerdict.NOT_TRIED
    return (
        EvaluationVerdict.BROKEN
        if any(finding.faults for finding in find_property_faults(trial))
        else EvaluationVerdict.KEPT
    )


def _counted(trial: TrialResult) -> Iterator[PropertyFinding]:
    for one, name, words in _COUNTED:
        faults = tuple(
            f"{number:,} records {words} ({counts.place})"
            for counts in trial.counts
            if (number := getattr(counts, name))
        )
        if one is KafkaProperty.NOT_LOST:
            faults += tuple(
                f"nothing was acknowledged ({c.place})" for c in trial.counts if not c.acknowledged
            )
        yield PropertyFinding(
            trial.name, one, sum(counts.acknowledged for counts in trial.counts), faults
        )


def _false(claims: PositionClaims) -> Iterator[str]:
    if claims.false_records:
        yield f"{claims.false_records:,} records claimed that the target did not hold"
    if claims.early_s > EARLY_S:
        yield f"records claimed {claims.early_s:,.0f} s before the target gave them to readers"


def _recovered(trial: TrialResult) -> Iterator[PropertyFinding]:
    never = [
        f"the {d.victim} did not go on after: {d.what}"
        for d in trial.disturbances
        if d.recovered_s is None
    ]
    never += [f"the producer ended for good: {trial.fatal}"] if trial.fatal else []
    yield PropertyFinding(trial.name, KafkaProperty.RECOVERS, len(trial.disturbances), tuple(never))


def _over_all(one: KafkaProperty, findings: list[PropertyFinding]) -> PropertyVerdict:
    seen = [finding for finding in findings if finding.looked or finding.faults]
    faults = tuple(f"{finding.trial}: {fault}" for finding in seen for fault in finding.faults)
    verdict = (
        EvaluationVerdict.BROKEN
        if faults
        else EvaluationVerdict.KEPT
        if seen
        else EvaluationVerdict.NOT_TRIED
    )
    return PropertyVerdict(one, verdict, len(seen), sum(finding.looked for finding in seen), faults)
