"""`hourmark canary`: one low-volume event a minute that passes every step from a host to a bucket.

The canary distinguishes missing traffic from a broken pipeline. If canary events arrive and events
of a type do not, the sources of that type are silent. If the canary stops, all types are affected,
and the alarm names the first step that it did not pass.

A site has a canary only if its types declare it. The subcommands are implemented where they run: on
a host, and next to the ledger.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import click

from hourmark.cli import LazyGroup
from hourmark.kafka.topic_names import events_topic
from hourmark.process.alarms import Alarm, AlarmName

CANARY: Final = "hourmark-canary"  # the type
DECLARATION: Final = f"""\
# The canary: `hourmark canary run` posts one such event a minute. Without this file in the folder of your types there is none.
name = "{CANARY}"
doc = "One quiet event a minute, to tell silence from a broken path."
partitions = 1

[[fields]]
name = "site"
type = "string"

[[fields]]
name = "sent_at"
type = "long"
doc = "Unix milliseconds, by the delivery service's clock"
"""
INTERVAL_S: Final = 60.0
PATIENCE_S: Final = 120.0  # for one step: two intervals; for a bucket, in addition to its length


class CanaryStep(StrEnum):
    """A step of the pipeline that is monitored with canary events, in pipeline order.

    A canary event is a test event that is sent through the whole pipeline once a minute.

    Attributes:
        ACKNOWLEDGED: Kafka at the edge site has stored the event.
        MIRRORED: The event was copied to the central Kafka cluster.
        STAGED: The ETL has copied the event from Kafka to a file.
        CLOSED: The event is in a closed bucket.
    """

    ACKNOWLEDGED = "acknowledged"  # it is in Kafka at the edge
    MIRRORED = "mirrored"
    STAGED = "staged"
    CLOSED = "closed"


def late_alarms(
    passed: Mapping[CanaryStep, int | None],
    now_ms: int,
    bucket_seconds: int,
    site: str,
    since_ms: int,
) -> list[Alarm]:
    """Check that canary events arrive at each step of the pipeline, and return an alarm if not.

    A canary event is a test event that is sent through the pipeline once a minute. A step is late
    if it received no canary event for 120 seconds. For the last step, `CLOSED`, the limit is 120
    seconds plus the length of a bucket. The alarm names the first step that is late.

    Args:
        passed: Maps each step, in pipeline order, to the time of the last canary event that reached
            it, in Unix milliseconds. For `CLOSED`, the time is the end of the last closed bucket.
            None if no event has reached the step. Omit steps that do not exist, such as `MIRRORED`
            without a mirror.
        now_ms: Current time in Unix milliseconds.
        bucket_seconds: Length of a bucket.
        site: Name of the site, for the alarm.
        since_ms: Start of monitoring, in Unix milliseconds. The limit for steps that no event has
            reached is counted from this time.

    Returns:
        A list with one alarm. Empty if no step is late.
    """
    for step, at_ms in passed.items():
        allowed_s = PATIENCE_S + (bucket_seconds if step is CanaryStep.CLOSED else 0)
        if now_ms - (since_ms if at_ms is None else at_ms) > allowed_s * 1000:
            return [
                Alarm(
                    AlarmName.CANARY_LATE,
                    site,
                    _describe_delay(site, step, at_ms, now_ms, allowed_s),
                    events_topic(CANARY),
                )
            ]
    return []


def _describe_delay(
    site: str, step: CanaryStep, at_ms: int | None, now_ms: int, allowed_s: float
) -> str:
    if at_ms is None:
        return (
            f"no canary event of site {site} is {step} yet; at most {allowed_s:.0f} s are allowed"
        )
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    what = (
        "canaries are closed up to"
        if step is CanaryStep.CLOSED
        else f"the last canary that is {step} is of"
    )
    return (
        f"site {site}: {what} {at}, {(now_ms - at_ms) / 1000:.0f} s ago; at most "
        f"{allowed_s:.0f} s are allowed"
    )


COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "declaration": (
        "hourmark.commands.canary:declaration",
        "Print the declaration of the canary's event type.",
    ),
    "run": (
        "hourmark_producer.canary:run",
        "Post one event a minute to a delivery service.",
    ),
    "check": (
        "hourmark_etl.operators.canary:check",
        "Show which steps the last event has passed: acknowledged, mirrored, staged, closed.",
    ),
}


@click.group(cls=LazyGroup, groups={"Commands": COMMANDS})
def canary() -> None:
    """Send a test event through the whole pipeline once a minute, to detect failures.

    A site (an edge cluster with its hosts) has a canary if its types include the type
    `hourmark-canary`.
    """


@click.command()
def declaration() -> None:
    """Print the declaration of the event type hourmark-canary.

    Save the output in the folder of your types, and apply it with `hourmark types apply`, like any
    other type. After that, `hourmark run` sends canary events and raises an alarm if they are late.
    Without this declaration, there is no canary.

    \b
    Example:
      hourmark canary declaration > types/hourmark-canary.toml
    """
    click.echo(DECLARATION, nl=False)
