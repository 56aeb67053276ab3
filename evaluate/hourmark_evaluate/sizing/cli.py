"""The command `hourmark size`."""

from __future__ import annotations

from pathlib import Path

import click

from hourmark.printing import json_option, print_json
from hourmark_evaluate.sizing import report
from hourmark_evaluate.sizing.measurements import read_measurements
from hourmark_evaluate.sizing.model import Load, Machine, estimate_requirements

_POSITIVE = click.FloatRange(0, min_open=True)


@click.command()
@click.option(
    "--events-per-second", "rate", type=_POSITIVE, required=True, help="Peak rate of events."
)
@click.option(
    "--event-bytes",
    type=_POSITIVE,
    default=300.0,
    show_default=True,
    help="Mean size of a log line, including its line end.",
)
@click.option(
    "--types", type=click.IntRange(1), default=10, show_default=True, help="Number of event types."
)
@click.option(
    "--hosts", type=click.IntRange(1), default=100, show_default=True, help="Number of log hosts."
)
@click.option(
    "--bucket-seconds",
    type=click.IntRange(60, 3600),
    default=3600,
    show_default=True,
    help="Length of a bucket (parsing.bucket_seconds).",
)
@click.option(
    "--retention-hours",
    type=_POSITIVE,
    default=72.0,
    show_default=True,
    help="Retention time of Kafka topics.",
)
@click.option(
    "--kept-days",
    type=_POSITIVE,
    default=365.0,
    show_default=True,
    help="Time for which closed buckets are kept.",
)
@click.option(
    "--replication",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Replication factor of Kafka topics and HDFS.",
)
@click.option(
    "--mean-to-peak",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Daily mean rate divided by the peak rate, for disk space.",
)
@click.option(
    "--cores", type=click.IntRange(1), default=16, show_default=True, help="CPU cores per machine."
)
@click.option(
    "--network-gbit",
    type=_POSITIVE,
    default=10.0,
    show_default=True,
    help="Network bandwidth per machine.",
)
@click.option(
    "--disk-tb", type=_POSITIVE, default=20.0, show_default=True, help="Disk space per machine."
)
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.6,
    show_default=True,
    help="Allowed utilisation of a machine at the peak.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="File with your own measurements, which `hourmark bench size --json` prints.",
)
@json_option
def size(
    rate: float,
    event_bytes: float,
    types: int,
    hosts: int,
    bucket_seconds: int,
    retention_hours: float,
    kept_days: float,
    replication: int,
    mean_to_peak: float,
    cores: int,
    network_gbit: float,
    disk_tb: float,
    utilisation: float,
    measured: Path | None,
    as_json: bool,
) -> None:
    """Estimate how many machines a load needs, and what limits each component.

    The number of machines is determined by CPU, network or disk, or by the requirement that one
    machine may fail. The estimate is based on measurements of this software. These measurements,
    and the error of the model for other loads, are described in docs/internals/performance.md. The
    command contacts no server.

    \b
    Examples:
      hourmark size --events-per-second 10000
      hourmark size --events-per-second 2000000 --event-bytes 250 --types 1000 --hosts 10000
      hourmark size --events-per-second 5000 --measured mine.json --json
    """
    load = Load(
        events_per_second=rate,
        event_bytes=event_bytes,
        types=types,
        hosts=hosts,
        bucket_seconds=bucket_seconds,
        retention_hours=retention_hours,
        kept_days=kept_days,
        replication=replication,
        mean_to_peak=mean_to_peak,
    )
    machine = Machine(
        cores=cores, network_gbit=network_gbit, disk_tb=disk_tb, utilisation=utilisation
    )
    measurements = read_measurements(measured)
    needs = estimate_requirements(load, machine, measurements.coefficients)
    if as_json:
        print_json(report.as_object(load, machine, needs, measurements.model_errors()))
    else:
        click.echo("\n".join(report.as_text(load, machine, needs, measurements.model_errors())))
