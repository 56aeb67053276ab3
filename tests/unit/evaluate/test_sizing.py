"""A load, expressed as machines: by coefficients fitted to measurements, and by arithmetic that can
be checked by hand.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hourmark.errors import UsageError
from hourmark_evaluate.sizing.cli import size
from hourmark_evaluate.sizing.measurements import (
    LoadMeasurement,
    SizingMeasurements,
    fit_coefficients,
    read_measurements,
    relative_errors,
)
from hourmark_evaluate.sizing.model import (
    COMPONENTS,
    Coefficients,
    ComponentRequirement,
    CpuCost,
    Load,
    Machine,
    estimate_requirements,
)

FREE = CpuCost(0, 0, 0)
NOTHING = dict.fromkeys(COMPONENTS, FREE)
MACHINE = Machine(cores=10, network_gbit=1, disk_tb=10, utilisation=0.5)
LOADS = [
    Load(events_per_second=rate, event_bytes=size, types=types, bucket_seconds=60)
    for rate, size, types in [
        (500, 150, 4),
        (6000, 150, 4),
        (2000, 1500, 4),
        (6000, 600, 4),
        (500, 1500, 40),
        (2000, 150, 40),
    ]
]
parts = st.one_of(st.just(0.0), st.floats(1e-6, 1e-2))
of_types = st.tuples(parts, parts, parts, parts).map(lambda found: CpuCost(*found))
of_buckets = st.tuples(parts, parts, parts, parts).map(
    lambda found: CpuCost(*found[:3], bucket=found[3])
)


def of(component: str, load: Load, **known: CpuCost) -> ComponentRequirement:
    coefficients = Coefficients(costs=NOTHING | known, sent=0.25, topic=0.5, bucket=0.2)
    return next(
        need
        for need in estimate_requirements(load, MACHINE, coefficients)
        if need.component == component
    )


def measured(load: Load, cost: CpuCost, *, off: float = 0.0) -> LoadMeasurement:
    cores = dict.fromkeys(COMPONENTS, cost.predict_cores(load) * (1 + off))
    return LoadMeasurement(load=load, cores=cores, sent=0.25, topic=0.5, bucket=0.2)


def test_cpu_is_what_each_part_takes() -> None:
    load = Load(events_per_second=10_000, event_bytes=500, types=360, bucket_seconds=3600)
    cost = CpuCost(constant=0.5, event=100e-6, kb=200e-6, type=1e-3, bucket=5)
    need = of("service", load, service=cost)
    assert need.cores == pytest.approx(0.5 + 1 + 1 + 0.36 + 0.5)
    assert (need.machines, need.bound_by) == (2, "one may be away")
    assert (
        of("service", dataclasses.replace(load, events_per_second=100_000), service=cost).machines
        == 5
    ), "21 cores of 5 each"


def test_each_host_has_a_tailer_of_its_own() -> None:
    load = Load(events_per_second=1000, event_bytes=100, hosts=200)
    need = of("tailer", load, tailer=CpuCost(constant=0.01, event=1e-6, kb=0))
    assert need.cores == pytest.approx(2.001)
    assert need.machines == 0


def test_disks_hold_what_is_kept_at_the_mean_rate() -> None:
    load = Load(
        events_per_second=1000,
        event_bytes=1000,
        retention_hours=100,
        kept_days=100,
        replication=3,
        mean_to_peak=0.5,
    )  # half a MB a second
    assert of("edge", load).disk_tb == pytest.approx(0.5e-6 * 0.5 * 3 * 360_000)
    need = of("hdfs", load)
    assert need.disk_tb == pytest.approx(0.5e-6 * 0.2 * 3 * 8_640_000)
    assert need.bound_by == "one may be away"
    bigger = of("hdfs", dataclasses.replace(load, kept_days=1000))
    assert (bigger.machines, bigger.bound_by) == (6, "disk"), "26 TB in halves of 10 TB"


def test_the_network_carries_each_replica() -> None:
    need = of("edge", Load(events_per_second=1_000_000, event_bytes=1000, retention_hours=1))
    assert need.network_mbit == pytest.approx(8000 * 3 * 0.5)
    assert (need.machines, need.bound_by) == (24, "network")


@settings(max_examples=25, deadline=None)
@given(cost=of_types, other=of_buckets)
def test_what_was_measured_is_found_again(cost: CpuCost, other: CpuCost) -> None:
    """Also where components differ, and where one takes nothing at all."""
    found = [
        dataclasses.replace(
            one := measured(load, cost), cores={**one.cores, "etl": other.predict_cores(load)}
        )
        for load in LOADS
    ]
    fitted = fit_coefficients(found)
    elsewhere = Load(events_per_second=3500, event_bytes=400, types=20, bucket_seconds=60)
    assert fitted.costs["edge"].predict_cores(elsewhere) == pytest.approx(
        cost.predict_cores(elsewhere), rel=1e-4, abs=1e-6
    )
    assert fitted.costs["etl"].predict_cores(elsewhere) == pytest.approx(
        other.predict_cores(elsewhere), rel=1e-4, abs=1e-6
    )
    assert all(part >= 0 for cost in fitted.costs.values() for part in cost)


def test_how_far_it_is_off_is_told() -> None:
    cost, load = (
        CpuCost(0.1, 1e-5, 1e-5),
        Load(events_per_second=3000, event_bytes=300, types=10, bucket_seconds=60),
    )
    fitted = fit_coefficients([measured(one, cost) for one in LOADS])
    off = relative_errors(measured(load, cost, off=0.25), fitted)
    assert off["all"] == pytest.approx(-0.2, abs=1e-6)
    assert off["etl"] == pytest.approx(-0.2, abs=1e-6)


def test_the_model_is_within_a_quarter_of_loads_that_it_was_not_fitted_to() -> None:
    """By the measurements that Hourmark brings."""
    known = read_measurements()
    assert known.checked
    fitted = [one.load for one in known.fitted]
    assert not any(one.load in fitted for one in known.checked)
    for off in known.model_errors():
        assert abs(off["all"]) <= 0.25


def test_measurements_are_kept_as_they_were(tmp_path: Path) -> None:
    cost = CpuCost(0.1, 1e-5, 1e-5)
    made = SizingMeasurements(
        about={"date": "2026-11-25"}, fitted=[measured(one, cost) for one in LOADS], checked=[]
    )
    (tmp_path / "mine.json").write_text(json.dumps(made.as_object()))
    assert read_measurements(tmp_path / "mine.json") == made


def test_a_file_without_measurements_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(
        UsageError,
        match=r"mine\.json contains no valid measurements .* `hourmark bench size --json`",
    ):
        read_measurements(tmp_path / "mine.json")


def test_the_command_says_what_bounds_each_component() -> None:
    asked = [
        "--events-per-second",
        "2000000",
        "--event-bytes",
        "250",
        "--types",
        "1000",
        "--hosts",
        "10000",
    ]
    text = CliRunner().invoke(size, asked)
    assert text.exit_code == 0, text.output
    assert "2,000,000 events per second of 250 bytes, 1,000 types, 10,000 hosts" in text.output
    told = json.loads(CliRunner().invoke(size, [*asked, "--json"]).output)
    assert [need["component"] for need in told["needs"]] == list(COMPONENTS)
    assert told["machines"] == sum(need["machines"] for need in told["needs"]) > 100
    smaller = json.loads(CliRunner().invoke(size, ["--events-per-second", "1000", "--json"]).output)
    assert smaller["machines"] == 2 + 3 + 2 + 3 + 1 + 3, "what one may be away of"


@pytest.mark.parametrize(
    "asked",
    [[], ["--events-per-second", "0"], ["--events-per-second", "9", "--utilisation", "1.5"]],
)
def test_what_is_no_load_is_refused(asked: list[str]) -> None:
    assert CliRunner().invoke(size, asked).exit_code == 2
