"""The form that fits: each candidate is tried on the lines by the delivery service's own parsing,
and the best is proposed.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.free_text import access_log, any_text, stamped_lines, system_log
from hourmark_declare.proposing.sample import Sample
from hourmark_declare.proposing.structured import json_lines, logfmt, tab_separated
from hourmark_declare.trying import Place, Trial, Tried

FORMS: Final[Sequence[Callable[[Sequence[bytes]], Iterator[Candidate]]]] = (
    json_lines,
    access_log,
    logfmt,
    system_log,
    tab_separated,
    stamped_lines,
    any_text,
)
GOOD: Final = 0.9  # of all records: the first form that so many have is taken
_TOLD: Final = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """A candidate, and what became of the sample's records.

    `fitting` became events by their form; `caught` events that hold the whole line; the rest dead
    letters, by reason. `oldest` and `newest`: times of events, ISO 8601 in UTC.
    """

    sample: Sample
    name: str
    candidate: Candidate
    records: int
    fitting: int
    caught: int
    dead_letters: collections.Counter[str]
    oldest: str | None
    newest: str | None
    examples: Sequence[Tried]

    @property
    def share(self) -> float:
        """Of the records, those whose form it is."""
        return self.fitting / max(self.records, 1)


def propose(sample: Sample, name: str, *, zone: str, host: str) -> Proposal:
    """The first form that nearly all lines have; else the one that most have; any text, where most
    have none.
    """
    tried = []
    for candidate in itertools.chain.from_iterable(form(sample.lines) for form in FORMS):
        if (proposal := _judged(sample, name, candidate, zone, host)) is None:
            continue
        if proposal.share >= GOOD and candidate.form != "lines of text without a time":
            return proposal
        tried.append(proposal)
    *others, text = tried
    best = max(others, key=lambda proposal: proposal.share, default=text)
    return best if best.share > 0.5 else text


def _judged(
    sample: Sample, name: str, candidate: Candidate, zone: str, host: str
) -> Proposal | None:
    """None where the candidate is no declaration that could be applied, or its pattern none that
    RE2 takes.
    """
    place = Place(
        observed_at_ms=sample.written_ms, zone=zone, host=host, record_start=candidate.record_start
    )
    try:
        records, of_all = (
            _tried(sample, name, form, place) for form in (candidate.alone, candidate)
        )
    except ValueError:
        return None
    fitting = [one for one in records if one.is_event]
    times = (
        sorted(one.time for one in fitting if one.time is not None)
        if candidate.line.get("payload") != "text"
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
    )


def _tried(sample: Sample, name: str, candidate: Candidate, place: Place) -> list[Tried]:
    trial, tail = Trial.of(candidate.declared(name)), sample.tail
    if candidate.record_start:  # what stands before the first beginning is the rest of a record
        begins = re.compile(candidate.record_start.encode())
        tail = list(itertools.dropwhile(lambda line: begins.match(line) is None, tail))
    both = itertools.chain(
        trial.of_records(name, sample.head, place), trial.of_records(name, tail, place)
    )
    return [one for one in both if one.type is not None]
