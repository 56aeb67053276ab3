"""`hourmark doctor`: what is wrong with servers and machine, and what to do. Exit 1 on a
finding.
"""

from __future__ import annotations

import dataclasses

import click

from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding, UsageError
from hourmark.printing import json_option, print_json
from hourmark_declare.doctor.examination import CHECKS, examine
from hourmark_declare.doctor.finding import Verdict


def _kinds(_: click.Context, __: click.Parameter, value: str | None) -> list[str]:
    kinds = [kind.strip() for kind in value.split(",")] if value else []
    if unknown := [kind for kind in kinds if kind not in CHECKS]:
        raise UsageError(
            f"--only {', '.join(unknown)}: there is no such kind; allowed: {', '.join(CHECKS)}"
        )
    return kinds


@click.command()
@click.option(
    "--only",
    metavar="KIND,…",
    callback=_kinds,
    help=f"Of these kinds only: {', '.join(CHECKS)}. Default: all.",
)
@json_option
@config_option
def doctor(only: list[str], as_json: bool, config: Config) -> None:
    """Ask the servers of the configuration, and this machine, for what Hourmark needs. Exit 1 on a finding.

    A line for each thing looked at: `well`, `FINDING` with what to do, or `not asked` and why. A server that is away is a
    finding, and the others are asked all the same. Nothing is changed, but for a folder that is made below storage.root and
    deleted again: what storage must refuse can only be tried.

    \b
    Examples:
      hourmark doctor
      hourmark doctor --only kafka --config hourmark.toml
      hourmark doctor --json
    """
    answers = examine(config, only)
    findings = sum(answer.verdict is Verdict.FINDING for answer in answers)
    if as_json:
        print_json(
            {"findings": findings, "answers": [dataclasses.asdict(answer) for answer in answers]}
        )
    else:
        for answer in answers:
            click.echo(answer)
    if findings:
        raise Finding(
            f"{findings} finding{'' if findings == 1 else 's'}; each says what to do. "
            "Nothing was changed"
        )
