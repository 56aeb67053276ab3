"""The result of the sizing model as text and as JSON. All functions are pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hourmark_evaluate.sizing.model import ComponentRequirement, Load, Machine, total_cores

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
    load: Load,
    machine: Machine,
    needs: Sequence[ComponentRequirement],
    model_errors: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """Return the sizing result as a JSON-serializable dict.

    Args:
        load: The load.
        machine: Capacity of one machine.
        needs: Requirements of each component.
        model_errors: The model's relative errors for loads to which it was not fitted.

    Returns:
        The fields of `load` and these keys: `machine`; `needs`, one dict per component; `cores` and
        `machines`, the totals; `model_off_by`, the total error of each item of `model_errors`.
    """
    return {
        **dataclasses.asdict(load),
        "machine": dataclasses.asdict(machine),
        "needs": [need._asdict() for need in needs],
        "cores": total_cores(needs),
        "machines": sum(need.machines for need in needs),
        "model_off_by": [one["all"] for one in model_errors],
    }


def as_text(
    load: Load,
    machine: Machine,
    needs: Sequence[ComponentRequirement],
    model_errors: Sequence[Mapping[str, float]],
) -> Iterator[str]:
    """Yield the lines of the sizing report: the load, a table of components, and remarks.

    Args:
        load: The load.
        machine: Capacity of one machine.
        needs: Requirements of each component, including the tailer.
        model_errors: The model's relative errors for loads to which it was not fitted. The report
            states the largest error under the key "all". If empty, the report states no error.
    """
    rate, size = (
        f"{load.events_per_second:,.0f} events per second",
        f"{load.event_bytes:,.0f} bytes",
    )
    yield f"{rate} of {size}, {load.types:,} types, {load.hosts:,} hosts"
    yield (
        f"machines of {machine.cores} cores, {machine.network_gbit:g} Gbit/s, "
        f"{machine.disk_tb:g} TB, "
        f"used up to {machine.utilisation:.0%}"
    )
    yield _row("", "cores", "Mbit/s", "TB", "machines", "  limited by")
    for need in needs:
        machines = "-" if need.component == "tailer" else f"{need.machines:,}"
        cores, mbit, disk_tb = (
            f"{need.cores:,.1f}",
            f"{need.network_mbit:,.0f}",
            f"{need.disk_tb:,.1f}",
        )
        yield _row(NAMES[need.component], cores, mbit, disk_tb, machines, f"  {need.bound_by}")
    disk_tb, machines = (
        f"{sum(need.disk_tb for need in needs):,.1f}",
        f"{sum(need.machines for need in needs):,}",
    )
    yield _row("total", f"{total_cores(needs):,.1f}", "", disk_tb, machines)
    share = next(need.cores for need in needs if need.component == "tailer") / load.hosts
    yield (
        f"On each host, the tailer uses {share:.1%} of a core. NameNode, ledger and registry are "
        "not included."
    )
    if model_errors:
        worst = max((one["all"] for one in model_errors), key=abs)
        yield (
            f"For other loads than those it was fitted to, the model's error was at most "
            f"{worst:+.0%} of the total CPU; none of these loads was far larger."
        )


def _row(name: str, cores: str, mbit: str, disk_tb: str, machines: str, why: str = "") -> str:
    return f"{name:<28} {cores:>9} {mbit:>9} {disk_tb:>9} {machines:>9}{why}"
