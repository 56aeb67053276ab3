"""What a run came to, as checkers read it: data and a reader of buckets, no world any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.faults.chaos.flows import Flow

from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.webhdfs import HdfsEntry, WebHdfsReader


@dataclass(frozen=True, kw_only=True)
class Injected:
    """One fault as it was, in monotonic seconds.

    `all_healed_s`: the last one of its round was; `recovered_s`: when all that was written before
    that was closed; None: never. `failed`: what the fault waited for in vain, if it did.
    """

    fault: str
    goes_on: frozenset[Flow]
    began_s: float
    healed_s: float
    all_healed_s: float
    recovered_s: float | None
    failed: str | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """`first_seen`: Unix ms by type and end of bucket; `kept`: what stood in each bucket when it
    was first looked into.

    `watched`: flows that the workloads of this run could move at all. `undrained`: what was waited
    for in vain at the end.
    """

    told: Expectations
    hdfs: WebHdfsReader
    injected: Sequence[Injected]
    moved: Mapping[Flow, Sequence[float]]
    watched: frozenset[Flow]
    first_seen: Mapping[tuple[str, int], int]
    kept: Mapping[str, Mapping[str, HdfsEntry]]
    may_be_late: int
    api_types: frozenset[str]
    ended: Sequence[str]
    undrained: str | None = None
