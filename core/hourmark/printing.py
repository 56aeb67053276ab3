"""What commands print for programs."""

from __future__ import annotations

import json

import click

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, for programs.")


def say_json(value: object) -> None:
    """One object, on one line of stdout."""
    click.echo(json.dumps(value))
