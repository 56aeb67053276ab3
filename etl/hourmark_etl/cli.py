"""`hourmark etl`: run the job; stage a type again that was quarantined; skip what cannot be read."""

from __future__ import annotations

import click

from hourmark.config import Config, config_option
from hourmark.log import set_up_logging
from hourmark_etl.options import shard_option, type_argument


@click.group()
def etl() -> None:
    """The PySpark job: from the central cluster's topics to closed hourly buckets."""


@etl.command()
@shard_option
@config_option
def run(config: Config, shards: tuple[str, ...]) -> None:
    """Stage what arrives and close hours, until SIGTERM. Killed at any moment, it goes on from the ledger.

    Example:  hourmark etl run --config hourmark.toml
    """
    from hourmark_etl.driver import run as run_job  # loads Spark

    set_up_logging(config.log_level)
    run_job(config, submitted=False, shards=shards)


@etl.command()
@type_argument
@click.option("--skip-record", is_flag=True, help="Leave out the one record for which the type was quarantined.")
@config_option
def resume(event_type: str, skip_record: bool, config: Config) -> None:
    """Stage a type again that was quarantined because a record on its topic cannot be staged.

    Example:  hourmark etl resume click --skip-record
    """
    from hourmark_etl.staging.resume import resume_type

    set_up_logging(config.log_level)
    aside = resume_type(config, event_type, skip_record=skip_record)
    begin = f"offset {aside.offset + skip_record} of {aside.topic} partition {aside.partition}"
    click.echo(f"{event_type} is staged again, from {begin} on")


@etl.command("skip-unreadable")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@config_option
def skip_unreadable(topic: str, partition: int, config: Config) -> None:
    """Skip offsets of a central topic that cannot be read, up to the first that can.

    `hourmark bucket why` names topic and partition. The skipped offsets are a gap: hours of what was in them close by
    `hourmark bucket force` alone, and their buckets name the offsets.

    Example:  hourmark etl skip-unreadable edge.events.click 0
    """
    from hourmark_etl.staging.resume import skip_unreadable as skip

    set_up_logging(config.log_level)
    click.echo(skip(config, topic, partition).what)
