"""What trials leave behind, as plain data: all that verdicts, pages and JSON are made of.

Times are seconds since the trial began. A trial that was not tried has a reason in `not_tried`, one
that was not brought to its end in `broken_off`, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was sent, and what an ordinary consumer reads of it at one `place`: "edge", "central" or
    "consumer".
    """

    place: str
    sent: int
    acknowledged: int
    read: int
    lost: int  # acknowledged, and never read
    doubled: int  # readings beyond the first of a record
    phantom: int  # never sent, altered, or in the wrong place
    disordered: int  # first read after one that was sent later to the same partition
    unacknowledged: int  # there without an acknowledgement; no fault, a sender sends them again

    @property
    def distinct(self) -> int:
        """Records of this run that were read, each counted once."""
        return self.read - self.doubled - self.phantom


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What was done to servers, and how long its `victim` took to go on once they were back."""

    what: str
    victim: Literal["producer", "mirror"]
    began_s: float
    healed_s: float
    longest_wait_s: float  # of a record for its acknowledgement (producer) or its copy (mirror)
    recovered_s: (
        float | None
    )  # from `healed_s` until all that was sent before it was through; None: not in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The worker that led a mirror of several was taken away."""

    how: str  # "killed", or "paused"
    workers: int
    another_led_s: float | None  # until another led; None: nobody did in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the mirror had committed as copied, against what the target's logs had committed right
    after it was asked.

    What was claimed, and given to readers only later, is early: the end of its transaction was on
    its way.
    """

    samples: int
    false_records: int  # claimed and not there, at the worst sample
    waiting_max: int  # sent and not yet copied, at the worst sample
    early_max: int | None = (
        None  # records, at the worst sample; None: not counted, as by an earlier version
    )
    early_s: float = 0.0  # the longest time until the last of a claim was given


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What a consumer found that was away, and how it came through while the load went on."""

    records: int
    piled_s: float
    caught_up_s: float | None  # until less than a second of the load was left; None: not in time
    read_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Our own count beside the brokers' own."""

    what: str
    ours: int
    brokers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU while `events` went through; that of brokers only where they run on this machine and none
    was started anew.
    """

    events: int
    seconds: float
    client_cpu_s: float
    broker_cpu_s: float | None = None

    @property
    def events_per_client_core(self) -> float:
        """Acknowledged events for a second of the client process's CPU."""
        return self.events / max(self.client_cpu_s, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One second of a trial."""

    at_s: int
    sent: int
    acknowledged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial's result."""

    name: str
    title: str
    not_tried: str = ""
    broken_off: str = ""
    seconds: float = 0.0
    counts: tuple[Counts, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    claims: Claims | None = None
    backlog: Backlog | None = None
    fatal: str = ""  # what ended the producer for good
    comparisons: tuple[Comparison, ...] = ()
    not_compared: str = ""
    cost: Cost | None = None
    timeline: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tried(self) -> bool:
        """Whether it was."""
        return not self.not_tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One run of all trials."""

    version: str
    began: str  # ISO 8601, UTC
    seconds: float
    where: str  # "the local stack", or "clusters of the user"
    command: str
    cores: int
    load_average: tuple[
        float, float
    ]  # of the client's machine, in the minute before the first trial and in the last
    edge_brokers: int
    central_brokers: int
    replication: int
    peak_rate: int
    event_bytes: int
    trials: tuple[Trial, ...]


_JSON = TypeAdapter(Evaluation)


def as_json(evaluation: Evaluation) -> bytes:
    """To keep, and to be read again by `from_json`."""
    return _JSON.dump_json(evaluation, indent=1) + b"\n"


def from_json(text: bytes) -> Evaluation:
    """What `as_json` wrote; ValueError where it is anything else."""
    return _JSON.validate_json(text)
