"""`hourmark canary`: one quiet event a minute, from a host through every step to a closed bucket.

The canary of a site: one quiet event a minute, of a type of its own, through every step to a closed
bucket.

So "no traffic" and "broken" are told apart: where the canary comes and a type does not, its sources
are silent; where the canary stops, so do all types, and the step that is named is the first that it
did not pass.

A site whose types declare it has a canary, and no other: nobody finds a type among their buckets
that they did not declare.

`hourmark canary`: its two commands live where they run, on a host and beside the ledger.
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
PATIENCE_S: Final = (
    120.0  # of one step: an interval, and as long again. Of a bucket besides its length
)


class CanaryStep(StrEnum):
    """What a canary passes, in this order."""

    ACKNOWLEDGED = "acknowledged"  # its delivery service has it in Kafka, at the edge
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
    """The first step that no canary passed for too long, as an alarm; none where all is well.

    `passed`: when the last canary was written that has passed the step; of `CLOSED` the end of the
    last closed bucket; None: none yet, which is late only so long after `since_ms`, when the first
    could begin. A step that there is not, as where nothing is mirrored, is left out.
    """
    for step, at_ms in passed.items():
        allowed_s = PATIENCE_S + (bucket_seconds if step is CanaryStep.CLOSED else 0)
        if now_ms - (since_ms if at_ms is None else at_ms) > allowed_s * 1000:
            return [
                Alarm(
                    AlarmName.CANARY_LATE,
                    site,
                    _said(site, step, at_ms, now_ms, allowed_s),
                    events_topic(CANARY),
                )
            ]
    return []


def _said(site: str, step: CanaryStep, at_ms: int | None, now_ms: int, allowed_s: float) -> str:
    if at_ms is None:
        return f"no canary of site {site} is {step} yet; at most {allowed_s:.0f} s are allowed"
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
        "Print the declaration of its type, for the folder of your types.",
    ),
    "run": (
        "hourmark_producer.canary:run",
        "Post one quiet event a minute through the delivery service.",
    ),
    "check": (
        "hourmark_etl.operators.canary:check",
        "How far the last one came: acknowledged, mirrored, staged, closed.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def canary() -> None:
    """One quiet event a minute, from a host of its own to its closed bucket: is it silence, or is
    something broken?

    A site has one where its type is declared.
    """


@click.command(epilog="Example:  hourmark canary declaration > types/hourmark-canary.toml")
def declaration() -> None:
    """Print the declaration of the type hourmark-canary: a file for the folder of your types, to be
    applied as any other.

    Where it stands there, `hourmark run` runs the canary and watches it. Without it there is no
    canary.
    """
    click.echo(DECLARATION, nl=False)
