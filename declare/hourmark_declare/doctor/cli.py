"""`hourmark doctor`: reports problems of servers and this machine, with remedies."""

from __future__ import annotations

import click

from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding, UsageError
from hourmark.printing import json_option, print_json
from hourmark_declare.doctor.check_result import CheckStatus, merge_findings
from hourmark_declare.doctor.check_runner import CHECKS, run_checks


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
    help=f"Run only checks of these kinds: {', '.join(CHECKS)}. Default: all.",
)
@json_option
@config_option
def doctor(only: list[str], as_json: bool, config: Config) -> None:
    """Check whether the configured servers and this machine meet Hourmark's requirements.

    The command prints one line for each check: `well`, `FINDING` with the remedy, or `not asked`
    with the reason. If a server is down, the command reports this as a finding and continues with
    the other checks. It exits with code 1 if there is a finding.

    Like `hourmark status`, the command also reports problems of running components, such as a dead
    driver or an overdue hour. Each fault is reported once, with causes before consequences. Similar
    findings are combined into one line with their number. After `hourmark down`, the only finding
    about servers is that the local stack is stopped.

    The command changes nothing, except that it temporarily creates a folder below storage.root. It
    needs this folder to test that the storage refuses to overwrite files.

    \b
    Examples:
      hourmark doctor
      hourmark doctor --only kafka --config hourmark.toml
      hourmark doctor --json
    """
    answers = run_checks(config, only)
    findings = sum(answer.verdict is CheckStatus.FINDING for answer in answers)
    if as_json:
        print_json({"findings": findings, "answers": [answer.to_json() for answer in answers]})
    else:
        for answer in merge_findings(answers):
            click.echo(answer)
    if findings:
        raise Finding(
            f"{findings} finding{'' if findings == 1 else 's'}; each says what to do. "
            "Nothing was changed"
        )
