"""Selects the best format: each candidate is tried with the delivery service's parsing."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Final

from hourmark.records.dead_letters import DeadLetterReason
from hourmark_declare.line_trial import LineResult, LineTrial, ReadContext, to_unix_ms
from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.confidence import (
    GOOD,
    Assessment,
    Confidence,
    assess,
    match_nearly_all,
)
from hourmark_declare.proposing.container_logs import CandidateSource, container_log_candidates
from hourmark_declare.proposing.file_sample import FileSample
from hourmark_declare.proposing.free_text import (
    access_log_candidates,
    plain_text_candidates,
    syslog_candidates,
    timestamped_candidates,
    untimed_candidates,
)
from hourmark_declare.proposing.line_protocol import line_protocol_candidates
from hourmark_declare.proposing.structured import (
    json_line_candidates,
    logfmt_candidates,
    syslog_body_candidates,
)
from hourmark_declare.proposing.tables.columns import delimited_candidates, spaced_candidates
from hourmark_declare.proposing.times.time_formats import AFTER_ALL_TIMES_MS, FUTURE_S

_STRUCTURED: Final[Sequence[CandidateSource]] = (
    json_line_candidates,
    access_log_candidates,
    logfmt_candidates,
    line_protocol_candidates,
    syslog_body_candidates,
    syslog_candidates,
    delimited_candidates,
    spaced_candidates,
    timestamped_candidates,
    untimed_candidates,
)
CANDIDATE_SOURCES: Final[Sequence[CandidateSource]] = (
    lambda sample: container_log_candidates(sample, (*_STRUCTURED, plain_text_candidates)),
    *_STRUCTURED,
    plain_text_candidates,
)
_TOLD: Final = 3
_HOUR_MS: Final = 3_600_000
_ZONES_APART_MS: Final = 26 * _HOUR_MS  # the largest difference of two time zones


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """The result of trying one candidate format on the sample of a log file.

    A record is a line, or several lines if the format has multi-line records.

    Attributes:
        sample: First and last lines of the file.
        name: Name of the source and its event type.
        candidate: Format that was tried.
        records: Number of records in the sample, without blank lines.
        fitting: Number of records that match the format.
        caught: Number of other records that become events with the whole text as message.
        dead_letters: Number of dead letters (records that cannot be parsed) for each reason.
        oldest: Earliest event time in ISO 8601 (UTC); None if records contain no time.
        newest: Latest event time in ISO 8601 (UTC); None if records contain no time.
        examples: Results of up to three records.
        unfilled: Names of fields without a value in most of the records that contain one.
        safest: Alternative if this proposal is a guess that the user does not confirm; None if it
            is not a guess.
    """

    sample: FileSample
    name: str
    candidate: Candidate
    records: int
    fitting: int
    caught: int
    dead_letters: collections.Counter[str]
    oldest: str | None
    newest: str | None
    examples: Sequence[LineResult]
    unfilled: Sequence[str] = ()
    safest: Proposal | None = None

    @property
    def assessment(self) -> Assessment:
        """Return the confidence in this format, and the reasons if the confidence is not high."""
        return assess(
            self.candidate,
            records=self._rows,
            fitting=self.fitting,
            caught=self.caught,
            has_time=self.oldest is not None,
            unfilled=self.unfilled,
        )

    @property
    def share(self) -> float:
        """Return the fraction of the sample's records that match the format.

        A header row is not counted.

        Returns:
            A number between 0 and 1; 0 if the sample contains no records.
        """
        return self.fitting / max(self._rows, 1)

    @property
    def matches_nearly_all(self) -> bool:
        """Return whether at least 90% of the sample's records, or all but one, match the format.

        A header row is not counted. A single mismatch requires at least four records.
        """
        return match_nearly_all(self._rows, self.fitting)

    @property
    def _rows(self) -> int:
        has_header = self.candidate.has_header and self.fitting < self.records
        return self.records - has_header


def propose(sample: FileSample, name: str, *, zone: str, host: str) -> Proposal:
    """Try all known log formats on the sample of a log file, and return the best one.

    The formats are tried in a fixed order. The result is the first of these that exists:

    1. the first format that contains a time and matches at least 90% of the records
    2. the first format that contains a time and matches all records but one, of at least four
    3. the first format that matches at least 90% of the records
    4. the format that matches the most records, if it matches more than half of them
    5. plain text

    Args:
        sample: First and last lines of the file.
        name: Name for the log source and its event type.
        zone: IANA time zone of timestamps without a time zone.
        host: Host name to set in the events.

    Returns:
        The selected format, with the results of parsing the sample.
    """
    tried: list[Proposal] = []
    bare = sample.without_mark
    sources = (form(bare) for form in CANDIDATE_SOURCES)
    for candidate in itertools.chain.from_iterable(sources):
        candidate = candidate if bare is sample else candidate.with_mark
        if (proposal := _evaluate(sample, name, candidate, zone, host)) is None:
            continue
        tried.append(proposal)
        if proposal.share >= GOOD and (proposal.oldest is not None or candidate.container_log):
            break
    best = _best(tried)
    if best.assessment.confidence is not Confidence.LOW:
        return best
    if best.matches_nearly_all:
        safest = _evaluate(sample, name, best.candidate.without_time, zone, host)
    else:
        safest = _evaluate(sample, name, next(plain_text_candidates(sample)), zone, host)
    return dataclasses.replace(best, safest=safest)


def _best(tried: Sequence[Proposal]) -> Proposal:
    # The last was found to be good, or is plain text.
    if tried[-1].share >= GOOD and tried[-1].oldest is not None:
        return tried[-1]
    *others, last = tried
    if timed := [of for of in others if of.matches_nearly_all and of.oldest is not None]:
        return timed[0]
    if good := [proposal for proposal in others if proposal.share >= GOOD]:
        return good[0]
    best = max(others, key=lambda proposal: proposal.share, default=last)
    return best if best.share > 0.5 else last


def _evaluate(
    sample: FileSample, name: str, candidate: Candidate, zone: str, host: str
) -> Proposal | None:
    """Try a format, also if its times are later than the file's last modification.

    Lines are parsed as if they were read when the file was last modified, because times without a
    year are relative to that. If times are later, which is usual for a file from another time zone,
    the lines are parsed as if they were read later, but not later than necessary. The proposal
    states how far the times are ahead. Single lines with a wrong time in the future are dead
    letters, as in production.
    """
    proposal = _try(sample, name, candidate, zone, host, sample.written_ms)
    if proposal is None or not _has_future_times(proposal):
        return proposal
    for observed_at_ms in (
        sample.written_ms + _ZONES_APART_MS,
        sample.read_ms,
        AFTER_ALL_TIMES_MS,
    ):
        later = _try(sample, name, candidate, zone, host, observed_at_ms)
        if later is not None and not _has_future_times(later):
            break
    if later is None or later.newest is None:
        return proposal
    newest_ms = to_unix_ms(later.newest)
    ahead_ms = newest_ms - max(sample.read_ms, sample.written_ms)
    is_ahead = ahead_ms > 1000 * FUTURE_S
    if _has_future_times(later) or (is_ahead and proposal.matches_nearly_all):
        return proposal
    used = candidate.zone or zone
    advice = f"If the times are not in the zone {used}, use --zone"
    doubts, notes = later.candidate.doubts, later.candidate.notes
    if is_ahead:
        ahead = f"the latest time is {ahead_ms / _HOUR_MS:.1f} h ahead of this machine's clock"
        doubts = (*doubts, f"{ahead}, and such lines would be dead letters. {advice}")
    else:
        after_h = (newest_ms - sample.written_ms) / _HOUR_MS
        what = f"the latest time is {after_h:.1f} h after the last change of the file"
        notes = (*notes, f"{what}. {advice}")
    known = dataclasses.replace(later.candidate, doubts=doubts, notes=notes)
    return dataclasses.replace(later, candidate=known)


def _has_future_times(proposal: Proposal) -> bool:
    return proposal.dead_letters[DeadLetterReason.FUTURE.value] > 0


def _try(
    sample: FileSample,
    name: str,
    candidate: Candidate,
    zone: str,
    host: str,
    observed_at_ms: int,
) -> Proposal | None:
    context = ReadContext(
        observed_at_ms=observed_at_ms,
        zone=candidate.zone or zone,
        host=host,
        record_start=candidate.record_start,
        format="cri" if candidate.container_log else "",
    )
    try:
        records, of_all = (
            _parse(sample, name, form, context) for form in (candidate.without_catch_all, candidate)
        )
    except ValueError:
        return None
    fitting = [one for one in records if one.is_event]
    times = (
        sorted(one.time for one in fitting if one.time is not None)
        if candidate.container_log or _reads_time(candidate)
        else []
    )
    return Proposal(
        sample=sample,
        name=name,
        candidate=candidate,
        records=len(records),
        fitting=len(fitting),
        caught=sum(one.is_event for one in of_all) - len(fitting),
        dead_letters=collections.Counter(one.reason for one in of_all if one.reason is not None),
        oldest=times[0] if times else None,
        newest=times[-1] if times else None,
        examples=fitting[:_TOLD] or of_all[:_TOLD],
        unfilled=_unfilled(candidate, fitting),
    )


def _unfilled(candidate: Candidate, fitting: Sequence[LineResult]) -> Sequence[str]:
    # Fields that the pattern fills in less than half of the records in which they were found.
    return [
        name
        for name, share in candidate.shares.items()
        if 2 * sum(one.fields.get(name) is not None for one in fitting) < share * len(fitting)
    ]


def _reads_time(candidate: Candidate) -> bool:
    return candidate.format == "syslog" or bool({"time_field", "time_format"} & {*candidate.line})


def _parse(
    sample: FileSample, name: str, candidate: Candidate, context: ReadContext
) -> list[LineResult]:
    trial, head, tail = (
        LineTrial.from_declarations(candidate.to_declarations(name)),
        sample.head,
        sample.tail,
    )
    if sample.is_whole:
        head, tail = sample.lines, []
    elif candidate.record_start:  # records that the sample cuts: the last of the head, and lines
        begins = re.compile(candidate.record_start.encode())  # before the first start of the tail
        starts = [n for n, line in enumerate(head) if begins.match(line) is not None]
        head = head[: starts[-1]] if len(starts) > 1 else head
        tail = list(itertools.dropwhile(lambda line: begins.match(line) is None, tail))
    both = itertools.chain(
        trial.parse_records(name, head, context), trial.parse_records(name, tail, context)
    )
    return [one for one in both if one.type is not None]
