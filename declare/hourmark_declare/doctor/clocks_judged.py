"""Whether a server's clock agrees with this machine's. Pure."""

from __future__ import annotations

from typing import Final

from hourmark.records.host_reports import CLOCKS_APART_MS_MAX
from hourmark_declare.doctor.finding import Answer, finding, well

CHECK: Final = "clocks"
APART_MS_MAX: Final = CLOCKS_APART_MS_MAX // 5  # found long before closing stops for it


def clock_judged(
    subject: str, clock_ms: int, begun_ms: int, ended_ms: int, *, tick_ms: int
) -> Answer:
    """`clock_ms`: what it said, in steps of `tick_ms`, between these two times of this machine's
    clock.
    """
    ahead_ms, behind_ms = clock_ms - ended_ms, begun_ms - (clock_ms + tick_ms)
    apart_ms, where = max((ahead_ms, "ahead of"), (behind_ms, "behind"))
    if apart_ms > APART_MS_MAX:
        return finding(
            CHECK,
            subject,
            f"its clock is {apart_ms / 1000:.0f} s {where} this machine's: from "
            f"{CLOCKS_APART_MS_MAX // 1000} s "
            "on nothing closes, and late or future lines are told by it",
            "set both by NTP (chronyc tracking, timedatectl)",
        )
    return well(
        CHECK,
        subject,
        "its clock agrees with this "
        f"machine's{'' if apart_ms <= 0 else f' within {apart_ms / 1000:.1f} s'}",
    )
