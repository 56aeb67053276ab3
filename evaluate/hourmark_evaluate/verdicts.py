"""Verdicts per property, derived from the results of trials. All functions are pure.

A property is kept only if a trial observed something that could have broken it. A trial without
acknowledgements therefore confirms no property.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hourmark_evaluate.results import Evaluation, MirrorPositionResult, TrialResult


class EvaluationVerdict(StrEnum):
    """The verdict on a property of Kafka or on a trial.

    Attributes:
        KEPT: It was observed, and no fault was found.
        BROKEN: At least one fault was found.
        NOT_TRIED: It was not observed.
    """

    KEPT = "kept"
    BROKEN = "BROKEN"
    NOT_TRIED = "not tried"


class KafkaProperty(StrEnum):
    """A property that Kafka must keep under faults, such as not losing acknowledged records.

    An evaluation reports for each property whether it was kept. The value of each member is the
    description of the property in the report.
    """

    NOT_LOST = "no acknowledged record is lost"
    NOT_DOUBLED = "no record is duplicated"
    NOT_ALTERED = "no record is altered or invented"
    IN_ORDER = "each partition keeps the order of sending"
    RECOVERS = "producer and mirror recover from faults without a restart"
    CATCHES_UP = "a consumer catches up with a backlog while the load continues"
    NO_FALSE_CLAIM = "the mirror commits only positions of records that the target holds"
    ANOTHER_LEADS = "another worker leads when the mirror's leading worker is removed"
    METRICS_AGREE = "the brokers' metrics agree with the counts of this evaluation"


@dataclass(frozen=True, slots=True)
class PropertyFinding:
    """The observations and faults of one trial that concern one property of Kafka.

    Attributes:
        trial: Name of the trial.
        property: The property that was examined.
        observations: Number of observations that could have shown a fault.
        faults: Description of each fault; empty if none was found.
    """

    trial: str
    property: KafkaProperty
    observations: int
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PropertyVerdict:
    """The verdict on one property of Kafka over all trials.

    Attributes:
        property: The property that was examined.
        verdict: Whether it was kept, was broken, or was not tried.
        trials: Number of trials with an observation or a fault.
        observations: Number of observations: records, faults injected, samples or comparisons,
            depending on the property.
        faults: Description of each fault, prefixed with the name of its trial; empty if none was
            found.
    """

    property: KafkaProperty
    verdict: EvaluationVerdict
    trials: int
    observations: int
    faults: tuple[str, ...]


# Transaction markers may arrive shortly after a commit. A mirror that commits positions earlier
# than this does not know whether the records were copied.
EARLY_S: Final = 10.0
# Properties by the field of `RecordCounts` that counts violations, with the words for a fault.
_COUNTED: Final = (
    (KafkaProperty.NOT_LOST, "lost", "acknowledged but not read"),
    (KafkaProperty.NOT_DOUBLED, "doubled", "read more than once"),
    (KafkaProperty.NOT_ALTERED, "phantom", "read but not sent"),
    (KafkaProperty.IN_ORDER, "disordered", "read after a record that was sent later"),
)


def property_verdicts(evaluation: Evaluation) -> tuple[PropertyVerdict, ...]:
    """Return one verdict per property of Kafka over all trials, in the order of `KafkaProperty`.

    A property is broken if any trial found a fault that concerns it. Otherwise, it is kept if at
    least one trial observed it, and not tried if none did.

    Args:
        evaluation: The result of a completed or interrupted run.
    """
    findings = [finding for trial in evaluation.trials for finding in find_property_faults(trial)]
    return tuple(
        _combine(one, [finding for finding in findings if finding.property is one])
        for one in KafkaProperty
    )


def find_property_faults(trial: TrialResult) -> Iterator[PropertyFinding]:
    """Yield the observations and faults of one trial, at most one finding per property of Kafka.

    Args:
        trial: The result of the trial.

    Yields:
        The findings. A finding with 0 observations and no faults means that the trial did not
        observe the property. A trial that was not tried yields no findings. An aborted trial yields
        one finding, a fault of `KafkaProperty.RECOVERS`.
    """
    if not trial.tried:
        return
    if trial.broken_off:
        yield PropertyFinding(trial.name, KafkaProperty.RECOVERS, 1, (trial.broken_off,))
        return
    yield from _count_findings(trial)
    yield _recovery_finding(trial)
    # A consumer can only fall behind a running load.
    if (backlog := trial.backlog) is not None and not trial.fatal:
        late = (
            (f"the consumer did not catch up with {backlog.records:,} records in time",)
            if backlog.caught_up_s is None
            else ()
        )
        yield PropertyFinding(trial.name, KafkaProperty.CATCHES_UP, int(backlog.records > 0), late)
    if (claims := trial.claims) is not None:
        yield PropertyFinding(
            trial.name, KafkaProperty.NO_FALSE_CLAIM, claims.samples, tuple(_claim_faults(claims))
        )
    without_leader = tuple(
        f"no other worker led after the leading worker was {takeover.how}"
        for takeover in trial.takeovers
        if takeover.another_led_s is None
    )
    yield PropertyFinding(
        trial.name, KafkaProperty.ANOTHER_LEADS, len(trial.takeovers), without_leader
    )
    different = tuple(
        f"{c.what}: {c.ours:,} counted, {c.brokers:,} by the brokers"
        for c in trial.comparisons
        if c.ours != c.brokers
    )
    yield PropertyFinding(
        trial.name, KafkaProperty.METRICS_AGREE, len(trial.comparisons), different
    )


def trial_verdict(trial: TrialResult) -> EvaluationVerdict:
    """Return the verdict on one trial.

    Args:
        trial: The result of the trial.

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


def _count_findings(trial: TrialResult) -> Iterator[PropertyFinding]:
    for one, field, description in _COUNTED:
        faults = tuple(
            f"{number:,} records {description} ({counts.place})"
            for counts in trial.counts
            if (number := getattr(counts, field))
        )
        if one is KafkaProperty.NOT_LOST:
            faults += tuple(
                f"no record was acknowledged ({c.place})"
                for c in trial.counts
                if not c.acknowledged
            )
        yield PropertyFinding(
            trial.name, one, sum(counts.acknowledged for counts in trial.counts), faults
        )


def _claim_faults(claims: MirrorPositionResult) -> Iterator[str]:
    if claims.false_records:
        yield f"{claims.false_records:,} records committed as copied but missing on the target"
    if claims.early_s > EARLY_S:
        yield f"records committed {claims.early_s:,.0f} s before readers of the target received them"


def _recovery_finding(trial: TrialResult) -> PropertyFinding:
    faults = [
        f"the {d.victim} did not recover after: {d.what}"
        for d in trial.disturbances
        if d.recovered_s is None
    ]
    faults += [f"the producer stopped permanently: {trial.fatal}"] if trial.fatal else []
    return PropertyFinding(
        trial.name, KafkaProperty.RECOVERS, len(trial.disturbances), tuple(faults)
    )


def _combine(one: KafkaProperty, findings: list[PropertyFinding]) -> PropertyVerdict:
    observed = [finding for finding in findings if finding.observations or finding.faults]
    faults = tuple(f"{finding.trial}: {fault}" for finding in observed for fault in finding.faults)
    verdict = (
        EvaluationVerdict.BROKEN
        if faults
        else EvaluationVerdict.KEPT
        if observed
        else EvaluationVerdict.NOT_TRIED
    )
    observations = sum(finding.observations for finding in observed)
    return PropertyVerdict(one, verdict, len(observed), observations, faults)
