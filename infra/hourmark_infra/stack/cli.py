"""Commands `hourmark up`, `down` and `purge`."""

from __future__ import annotations

import sys

import click
from pydantic import ValidationError

from hourmark.clock import SystemClock
from hourmark.config.groups import BucketSettings, ServiceSettings
from hourmark.config.loading import stack_state_dir
from hourmark.errors import UsageError
from hourmark.printing import json_option, print_json
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.stack.control import LocalStack, purge_stack
from hourmark_infra.stack.layout import SERVICE
from hourmark_infra.stack.options import Clusters, clusters_option
from hourmark_infra.stack.servers import is_mirror_installed


@click.command()
@click.option(
    "--mirror/--no-mirror",
    default=True,
    show_default=True,
    help="Start MirrorMaker 2 between the two clusters, or do not start it.",
)
@click.option(
    "--bucket-seconds",
    type=int,
    help="Length of a bucket; 60 means one bucket per minute. Default: the previous value, or for a "
    "new stack 3600.",
)
@clusters_option(2)
@json_option
def up(clusters: Clusters | None, mirror: bool, bucket_seconds: int | None, as_json: bool) -> None:
    """Start the local stack and wait until each server is healthy.

    The stack consists of three edge brokers, one central broker, MirrorMaker 2 and its monitor, a
    NameNode, a DataNode and a schema registry on the loopback interface. With `--clusters 1`, there
    is no central broker and no mirror. All files are stored in $HOURMARK_HOME/stack. Servers that
    are running already keep running, and stopped servers are started again with the same data and
    ports.

    Other commands find the stack through the file hourmark.toml that this command writes. The
    bucket length cannot be changed after types have been applied.

    \b
    Examples:
      hourmark up
      hourmark up --bucket-seconds 60
      hourmark up --clusters 1
      hourmark up --no-mirror --json
    """
    bucket_seconds = _checked(bucket_seconds)
    clock = SystemClock()
    began = clock.monotonic_s()
    if mirror and not is_mirror_installed():
        print_progress("mirror: `hourmark mirror` is not installed; starting without a mirror")
        mirror = False
    preferred = {SERVICE: ServiceSettings().port}
    stack = LocalStack.load_or_create(
        stack_state_dir(),
        clusters=clusters,
        mirror=mirror,
        bucket_seconds=bucket_seconds,
        preferred_ports=preferred,
    )
    outcome = stack.up()
    seconds = round(clock.monotonic_s() - began, 1)
    pids = {name: process.pid for name in outcome if (process := stack.process(name))}
    servers = [
        {
            "name": name,
            "state": state,
            "pid": pids.get(name, 0),
            "address": stack.server(name).address,
        }
        for name, state in outcome.items()
    ]
    service = f"http://{stack.layout.address(SERVICE)}"
    config = str(stack.layout.config_file)
    if as_json:
        print_json(
            {
                "home": str(stack.home),
                "config": config,
                "service": service,
                "seconds": seconds,
                "servers": servers,
            }
        )
        return
    for server in servers:
        click.echo(
            f"{server['name']:<12} {server['state']:<8} pid {server['pid']:<8} {server['address']}"
        )
    click.echo(f"Up after {seconds} s. Settings: {config}\nLogs:     {stack.layout.logs}")
    click.echo(f"Service:  {service}, when `hourmark serve` is running")


@click.command()
@json_option
def down(as_json: bool) -> None:
    """Stop the servers of the local stack. Data and ports are kept for the next `hourmark up`.

    \b
    Examples:
      hourmark down
      hourmark down --json
    """
    outcome = LocalStack.load(stack_state_dir()).down()
    if as_json:
        print_json({"home": str(stack_state_dir()), "servers": outcome})
    else:
        click.echo(
            f"{sum(state != 'not running' for state in outcome.values())} of "
            f"{len(outcome)} servers stopped; data is kept"
        )


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def purge(yes: bool, as_json: bool) -> None:
    """Stop the local stack and delete its data: topics, schemas, buckets, ledger, logs, ports.

    \b
    Examples:
      hourmark purge
      hourmark purge --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "purge deletes topics, schemas, buckets and ledger of the local stack; "
                "confirm with --yes"
            )
        click.confirm(f"Delete all data of the stack in {stack_state_dir()}?", abort=True, err=True)
    purged = purge_stack(stack_state_dir(), print_progress)
    if as_json:
        print_json({"home": str(stack_state_dir()), "purged": purged})
    else:
        click.echo(
            "purged; folders of `hourmark init`, such as pipeline, keep their settings, including "
            "the bucket length"
            if purged
            else f"there is no stack in {stack_state_dir()}; nothing to delete"
        )


def _checked(bucket_seconds: int | None) -> int | None:
    try:
        return (
            None
            if bucket_seconds is None
            else BucketSettings(bucket_seconds=bucket_seconds).bucket_seconds
        )
    except ValidationError as error:
        allowed = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"--bucket-seconds {bucket_seconds}: {allowed}") from error
