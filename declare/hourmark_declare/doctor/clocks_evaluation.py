"""Evaluates whether a server's clock agrees with this machine's. No I/O."""

from __future__ import annotations

from typing import Final

from hourmark.records.host_reports import CLOCKS_APART_MS_MAX
from hourmark_declare.doctor.check_result import CheckResult, finding_result, passed_result

CHECK: Final = "clocks"
APART_MS_MAX: Final = CLOCKS_APART_MS_MAX // 5  # reported long before it stops closing


def evaluate_clock(
    subject: str, clock_ms: int, begun_ms: int, ended_ms: int, *, tick_ms: int
) -> CheckResult:
    """Evaluate a server's clock reading against this machine's clock.

    Args:
        subject: Name of the server in the result.
        clock_ms: Server time, Unix milliseconds, rounded down to `tick_ms`.
        begun_ms: This machine's time before the request, Unix milliseconds.
        ended_ms: This machine's time after the response, Unix milliseconds.
        tick_ms: Resolution of the server time in milliseconds.

    Returns:
        A finding if the clocks differ by more than a fifth of the tolerance for closing buckets,
        otherwise a passed result.
    """
    ahead_ms, behind_ms = clock_ms - ended_ms, begun_ms - (clock_ms + tick_ms)
    apart_ms, where = max((ahead_ms, "ahead of"), (behind_ms, "behind"))
    if apart_ms > APART_MS_MAX:
        return finding_result(
            CHECK,
            subject,
            f"its clock is {apart_ms / 1000:.0f} s {where} this machine's: from "
            f"{CLOCKS_APART_MS_MAX // 1000} s "
            "on no bucket closes, and it decides which lines are late or in the future",
            "set both by NTP (chronyc tracking, timedatectl)",
        )
    return passed_result(
        CHECK,
        subject,
        "its clock agrees with this "
        f"machine's{'' if apart_ms <= 0 else f' within {apart_ms / 1000:.1f} s'}",
    )
