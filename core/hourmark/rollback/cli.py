"""`hourmark rollback`: check whether an older version can run with what this version has written."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import click

from hourmark.config.loading import PREFIX, build_config, config_file_option, read_config_file
from hourmark.errors import Finding, UsageError
from hourmark.printing import json_option, print_json
from hourmark.rollback.rooms import ROOMS, find_obstacles
from hourmark.rollback.settings import unknown_settings
from hourmark.rollback.version import VERSIONS


@click.group()
def rollback() -> None:
    """Check whether Hourmark can be rolled back to an older version."""


def _only(_: click.Context, __: click.Parameter, value: str | None) -> list[str]:
    named = [name.strip() for name in value.split(",")] if value else []
    if unknown := [name for name in named if name not in ROOMS]:
        raise UsageError(
            f"--only {', '.join(unknown)}: unknown component; allowed: {', '.join(ROOMS)}"
        )
    return named


@rollback.command()
@click.option(
    "--to",
    "to",
    required=True,
    type=click.Choice(list(VERSIONS)),
    help="The version to roll back to.",
)
@click.option(
    "--only",
    metavar="NAME,…",
    callback=_only,
    help=f"Check only these components: {', '.join(ROOMS)}. Default: all.",
)
@json_option
@config_file_option("path")
def check(to: str, only: list[str], as_json: bool, path: Path | None) -> None:
    """Check the data of this version, and report what the older version would reject.

    The command changes nothing. It exits with code 1 if there are obstacles, or if a component could
    not be checked.

    The command checks the configuration, the tailer's checkpoint, the published rules, the mirror's
    state, the ledger and its markers, as far as they are on this machine or reachable from it. Run
    it with the newer version on each machine, before you roll back the first component. The whole
    procedure is described in docs/operate/upgrade.md.

    \b
    Examples:
      hourmark rollback check --to 0.2.0
      hourmark rollback check --to 0.2.0 --only tailer --config tailer.toml
    """
    older = VERSIONS[to]
    file, values = read_config_file(path)
    answers = find_obstacles(build_config(file, values), older, only)
    settings = [
        *unknown_settings(str(file), values, older),
        *unknown_settings("the environment", _environment(), older),
    ]
    found = [*settings, *(obstacle for answer in answers.values() for obstacle in answer.obstacles)]
    unasked = {
        name: answer.not_asked for name, answer in answers.items() if answer.not_asked is not None
    }
    if as_json:
        components = {name: dataclasses.asdict(answer) for name, answer in answers.items()}
        print_json(
            {
                "to": to,
                "possible": not found and not unasked,
                "settings": [dataclasses.asdict(s) for s in settings],
                **components,
            }
        )
    else:
        for obstacle in found:
            click.echo(f"obstacle    {obstacle}")
        for name, why in unasked.items():
            click.echo(f"not checked {name}: {why}")
        for name, answer in answers.items():
            if not answer.obstacles and answer.not_asked is None:
                click.echo(
                    f"{'ok':<11} {name}"
                    if answer.absent is None
                    else f"{'absent':<11} {name}: {answer.absent}"
                )
    if found or unasked:
        raise Finding(
            f"a rollback to {to} is not possible now: {len(found)} obstacles, {len(unasked)} "
            "components not checked. Nothing was changed"
        )


def _environment() -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in os.environ.items():
        group, *keys = name.removeprefix(PREFIX).lower().split("__")
        if not name.startswith(PREFIX) or (not keys and not value.lstrip().startswith("{")):
            continue
        inner = tree
        for key in (group, *keys)[:-1]:
            inner = inner.setdefault(key, {})
        inner[(group, *keys)[-1]] = _value(value)
    return tree


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
