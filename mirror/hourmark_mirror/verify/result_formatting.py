"""Renders a verification result as text and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from hourmark_mirror.verify.comparison import FAULT_KINDS, FaultSpan
from hourmark_mirror.verify.content_comparison import ComparedPartition
from hourmark_mirror.verify.verification import VerificationResult


def result_to_json(result: VerificationResult) -> dict[str, Any]:
    """Convert a verification result to a JSON-serializable dict.

    Args:
        result: Result to convert.

    Returns:
        A dict with the keys `ok`, `alarms` (texts), `named` (alarms as dicts), `behind` (texts),
        `left_out` (a number) and `partitions`. Each item of `partitions` contains numbers of
        records, and `faults` (spans of faulty records).
    """
    return {
        "ok": result.ok,
        "alarms": [alarm.seen for alarm in result.alarms],
        "named": [alarm.as_object() for alarm in result.alarms],
        "behind": result.behind,
        "left_out": result.left_out,
        "partitions": [_partition(compared) for compared in result.compared],
    }


def _partition(compared: ComparedPartition) -> dict[str, Any]:
    comparison = compared.comparison
    return {
        **dataclasses.asdict(compared.partition),
        "cut": compared.cut,
        "position": compared.position,
        "matched": comparison.matched,
        "expired": comparison.expired,
        "older": comparison.older,
        **{kind: comparison.faults[kind] for kind in FAULT_KINDS},
        "faults": [dataclasses.asdict(span) for span in comparison.spans],
    }


def format_result(result: VerificationResult) -> list[str]:
    """Format a verification result as lines of text.

    Args:
        result: Result to format.

    Returns:
        One line for each alarm, each topic-partition that is behind, and each span of faulty
        records, then a summary line.
    """
    lines = [f"ALARM {alarm}" for alarm in result.alarms] + [
        f"BEHIND {behind}" for behind in result.behind
    ]
    for compared in result.compared:
        spans = compared.comparison.spans
        lines += [f"{span.kind.upper()} {_span(compared, span)}" for span in spans]
        if unnamed := compared.comparison.faults.total() - sum(span.count for span in spans):
            lines.append(f"MORE {compared.partition}: {unnamed} further faulty records")
    lines += (
        []
        if result.compared
        else ["ALARM nothing was compared: no mirrored topic exists on both clusters"]
    )
    return [*lines, _summary(result)]


def _summary(result: VerificationResult) -> str:
    count, left_out = len(result.compared), result.left_out
    matched = sum(compared.comparison.matched for compared in result.compared)
    expired = sum(compared.comparison.expired for compared in result.compared)
    older = sum(compared.comparison.older for compared in result.compared)
    partitions = f"{count} of {count + left_out}" if left_out else f"{count}"
    deleted = f", {expired} deleted by the target's retention" if expired else ""
    deleted += f", {older} older ones only on the target" if older else ""
    equal = (
        f"the compared records are equal on both sides{', except for those' if expired else ''}"
        if left_out
        else f"the target holds {'the rest of ' if expired else ''}what the source holds"
    )
    conclusion = equal if result.ok else "FAILED"
    return f"{partitions} topic-partitions compared, {matched} records equal{deleted}: {conclusion}"


def _span(compared: ComparedPartition, span: FaultSpan) -> str:
    edge = _range("edge offset", span.edge_first, span.edge_last)
    central = _range("central offset", span.central_first, span.central_last)
    where = {
        "missing": f"{edge} is not on the target",
        "doubled": f"{edge} is repeated at {central}",
        "foreign": f"{central} is not at the edge"
        + (f", before {edge}" if span.edge_first is not None else ""),
        "altered": f"{edge} has different content at {central}",
    }[span.kind]
    return f"{compared.partition}: {where} ({span.count} records)"


def _range(what: str, first: int | None, last: int | None) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"
