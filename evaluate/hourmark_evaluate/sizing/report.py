"""The result of the sizing model as text and as JSON. All functions are pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hourmark_evaluate.sizing.model import ComponentNeed, Load, Machine, total_cores

NAMES: Final = {
    "tailer": "File Tailers",
    "service": "Event Delivery Services",
    "edge": "Kafka, edge",
    "mirror": "MirrorMaker 2",
    "central": "Kafka, central",
    "etl": "Spark: driver and executors",
    "hdfs": "HDFS: DataNodes",
}


def as_object(
    load: Load, machine: Machine, found: Sequence[ComponentNeed], off: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Return the sizing result as a JSON-serializable dict.

    Args:
        load: The load.
        machine: Capacity of one machine.
        found: What each component needs.
        off: The model's relative errors for loads that it was not fitted to; the result contains
            the value "all" of each.
    """
    return {
        **dataclasses.asdict(load),
        "machine": dataclasses.asdict(machine),
        "needs": [need._asdict() for need in found],
        "cores": total_cores(found),
        "machines": sum(need.machines for need in found),
        "model_off_by": [one["all"] for one in off],
    }


def as_text(
    load: Load, machine: Machine, found: Sequence[ComponentNeed], off: Sequence[Mapping[str, float]]
) -> Iterator[str]:
    """Yield the lines of the sizing report: the load, a table of components, and remarks.

    Args:
        load: The load.
        machine: Capacity of one machine.
        found: What each component needs; the tailer must be among them.
        off: The model's relative errors for loads that it was not fitted to. The report states the
            value "all" with the largest magnitude; nothing if `off` is empty.
    """
    rate, size = f"{load.events_per_second:,.0f} events a second", f"{load.event_bytes:,.0f} bytes"
    yield f"{rate} of {size}, {load.types:,} types, {load.hosts:,} hosts"
    yield (
        f"machines of {machine.cores} cores, {machine.network_gbit:g} Gbit/s, "
        f"{machine.disk_tb:g} TB, "
        f"of which {machine.utilisation:.0%} may be in use"
    )
    yield _row("", "cores", "Mbit/s", "TB", "machines", "  because of")
    for need in found:
        machines = "-" if need.component == "tailer" else f"{need.machines:,}"
        cores, mbit, disk_tb = (
            f"{need.cores:,.1f}",
            f"{need.network_mbit:,.0f}",
            f"{need.disk_tb:,.1f}",
        )
        yield _row(NAMES[need.component], cores, mbit, disk_tb, machines, f"  {need.bound_by}")
    disk_tb, machines = (
        f"{sum(need.disk_tb for need in found):,.1f}",
        f"{sum(need.machines for need in found):,}",
    )
    yield _row("in all", f"{total_cores(found):,.1f}", "", disk_tb, machines)
    share = next(need.cores for need in found if need.component == "tailer") / load.hosts
    yield (
        f"On each host a tailer takes {share:.1%} of a core. NameNode, ledger and registry "
        "come beside these."
    )
    if off:
        worst = max((one["all"] for one in off), key=abs)
        yield (
            f"For loads that it was not fitted to, the model was off by {worst:+.0%} of all "
            "CPU at most; none was far larger."
        )


def _row(name: str, cores: str, mbit: str, disk_tb: str, machines: str, why: str = "") -> str:
    return f"{name:<28} {cores:>9} {mbit:>9} {disk_tb:>9} {machines:>9}{why}"
