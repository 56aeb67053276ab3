"""`hourmark etl`: run the job; show the jars that spark-submit needs."""

from __future__ import annotations

import click

from etl.options import shard_option
from hourmark.config import Config, config_option
from hourmark.log import set_up_logging


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
    from etl.job import run as run_job  # loads Spark

    set_up_logging(config.log_level)
    run_job(config, submitted=False, shards=shards)


@etl.command()
@click.argument("event_type", metavar="TYPE")
@click.option("--skip-record", is_flag=True, help="Leave out the one record for which the type was set aside.")
@config_option
def resume(event_type: str, skip_record: bool, config: Config) -> None:
    """Stage a type again that was set aside because a record on its topic cannot be staged.

    Example:  hourmark etl resume click --skip-record
    """
    from etl.staging.resuming import resume_type

    set_up_logging(config.log_level)
    aside = resume_type(config, event_type, skip_record=skip_record)
    begin = f"offset {aside.offset + skip_record} of {aside.topic} partition {aside.partition}"
    click.echo(f"{event_type} is staged again, from {begin} on")


@etl.command()
@config_option
def jars(config: Config) -> None:
    """Print the jars of Spark's Kafka connector, as spark-submit --jars takes them.

    Example:  spark-submit --jars "$(hourmark etl jars)" src/etl/job.py
    """
    click.echo(",".join(config.etl.spark_jars))
