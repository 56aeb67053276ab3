"""Commands of `hourmark etl`: run the job, review set-aside records, skip unreadable offsets."""

from __future__ import annotations

import click

from hourmark.config.loading import Config, config_option
from hourmark.log import set_up_logging
from hourmark_etl.operators.set_aside import set_aside
from hourmark_etl.options import shard_option


@click.group()
def etl() -> None:
    """Run and repair the PySpark job that turns central topics into closed hourly buckets."""


@etl.command()
@shard_option
@config_option
def run(config: Config, shards: tuple[str, ...]) -> None:
    """Copy new records from Kafka to storage and close hourly buckets, until SIGTERM.

    The process can be killed at any time without losing events. The next run continues from the
    state in the ledger, which is the database of the ETL.

    \b
    Example:
      hourmark etl run --config hourmark.toml
    """
    from hourmark_etl.driver import run as run_job  # loads Spark

    set_up_logging(config.log_level)
    run_job(config, submitted=False, shards=shards)


@etl.command("skip-unreadable")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@config_option
def skip_unreadable(topic: str, partition: int, config: Config) -> None:
    """Skip offsets of a central topic that cannot be read, up to the first readable offset.

    To find out which topic and partition cannot be read, use `hourmark bucket why`. The ledger
    records the skipped offsets as a gap. A bucket that may lack records of the gap is closed only
    if you use `hourmark bucket force`, and its manifest lists the offsets.

    \b
    Example:
      hourmark etl skip-unreadable edge.events.click 0
    """
    from hourmark_etl.staging.unreadable import skip_unreadable as skip

    set_up_logging(config.log_level)
    click.echo(skip(config, topic, partition).what)


etl.add_command(set_aside)
