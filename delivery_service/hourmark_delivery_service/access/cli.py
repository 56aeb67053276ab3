"""`hourmark token`: create, list and revoke access tokens."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json
from hourmark_delivery_service.access.token import Token, new_token

_DURATION: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group()
def token() -> None:
    """Create, list and revoke access tokens of delivery services (see service.tokens_required)."""


@token.command()
@click.argument("name")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="PATTERN",
    help="Event type that the token covers, or a pattern with * and ? (repeatable). Default: all.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="PATTERN",
    help="Name of a host whose ranges the token covers, or a pattern (repeatable). Default: all.",
)
@click.option(
    "--host-id",
    "host_ids",
    multiple=True,
    metavar="ID",
    help="Id of a host whose ranges and reports the token covers (repeatable). Default: all.",
)
@click.option(
    "--reports",
    multiple=True,
    metavar="PATTERN",
    help="Name of a host whose tailer may send reports with the token, or a pattern (repeatable). "
    "Tailers need this permission. Default: none.",
)
@click.option(
    "--service-reports",
    multiple=True,
    metavar="PATTERN",
    help="Name of a service that may send reports over HTTP with the token, or a pattern "
    "(repeatable). Default: none.",
)
@click.option(
    "--expires-in",
    metavar="TIME",
    help="Validity of the token, such as 90d or 12h. Default: until revoked.",
)
@click.option(
    "--bytes-per-second",
    type=click.IntRange(min=1),
    help="Maximum rate at each service instance, in decompressed bytes. Default: no limit.",
)
@click.option(
    "--events-per-second",
    type=click.IntRange(min=1),
    help="Maximum rate at each service instance, in events. Default: no limit.",
)
@json_option
@config_option
def create(
    config: Config,
    name: str,
    types: tuple[str, ...],
    hosts: tuple[str, ...],
    host_ids: tuple[str, ...],
    reports: tuple[str, ...],
    service_reports: tuple[str, ...],
    expires_in: str | None,
    bytes_per_second: int | None,
    events_per_second: int | None,
    as_json: bool,
) -> None:
    """Create a token called NAME and print it once. Kafka stores only its digest.

    A tailer can send a range only if its token covers the host and every type that the source may
    contain. Host reports need a separate permission for named hosts (--reports), because they
    determine when buckets are closed. Services accept a new token within seconds.

    \b
    Examples:
      hourmark token create web-tailers --host 'web-*' --reports 'web-*' > token
      hourmark token create shop --type 'order-*' --expires-in 90d --bytes-per-second 1000000
    """
    from hourmark_delivery_service.access.topic import (
        write_token,
    )  # Kafka's client is loaded only now

    set_up_logging(config.log_level)
    now_ms = SystemClock().now_ms()
    try:
        made = new_token(
            name,
            now_ms,
            types=types or ("*",),
            hosts=hosts or ("*",),
            host_ids=host_ids,
            reports=reports,
            service_reports=service_reports,
            expires_at_ms=None if expires_in is None else now_ms + _duration_ms(expires_in),
            bytes_per_second=bytes_per_second,
            events_per_second=events_per_second,
        )
    except ValueError as error:
        raise UsageError(
            f"these options do not form a valid token: {error}; see the examples in `hourmark "
            "token create --help`"
        ) from None
    write_token(config.kafka, made.token)
    if as_json:
        print_json({**_row(made.token), "token": made.text})
        return
    click.echo(
        f"token {made.token.id} ({made.token.name}) is valid; it is shown only once, on stdout:",
        err=True,
    )
    click.echo(made.text)


@token.command(name="list")
@json_option
@config_option
def list_tokens(config: Config, as_json: bool) -> None:
    """List all tokens, including revoked ones. The secret text of a token cannot be recovered.

    \b
    Example:
      hourmark token list --json
    """
    from hourmark_delivery_service.access.topic import read_tokens

    set_up_logging(config.log_level)
    tokens = sorted(read_tokens(config.kafka).values(), key=lambda t: (t.created_at_ms, t.id))
    if as_json:
        print_json({"tokens": [_row(t) for t in tokens]})
        return
    now_ms = SystemClock().now_ms()
    for t in tokens:
        covers = (
            f"types {', '.join(t.types)}; hosts {', '.join((*t.hosts, *t.host_ids))}; "
            f"{_reports_text(t)}"
        )
        click.echo(f"{t.id}  {_state(t, now_ms):40} {t.name}: {covers}")


@token.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--unlisted",
    is_flag=True,
    help="Revoke the token even if hourmark.tokens does not contain it, such as after data loss.",
)
@json_option
@config_option
def revoke(config: Config, token_id: str, unlisted: bool, as_json: bool) -> None:
    """Revoke the token with this ID, which `hourmark token list` shows.

    Services that can read from Kafka reject the token within 5 seconds.

    \b
    Example:
      hourmark token revoke 3f2a90c1b7d4e856
    """
    from hourmark_delivery_service.access.topic import read_tokens, write_token

    set_up_logging(config.log_level)
    known = read_tokens(config.kafka).get(token_id)
    if known is None and not unlisted:
        raise UsageError(
            f"hourmark.tokens does not contain the token {token_id!r:.40}; `hourmark token list` "
            "shows all tokens"
        )
    now_ms = SystemClock().now_ms()
    try:
        revoked = (
            known or new_token("unlisted", now_ms).token.model_copy(update={"id": token_id})
        ).revoke(now_ms)
        revoked = Token.from_json(
            token_id, revoked.to_json().encode()
        )  # checked again: the id is the user's
    except ValueError as error:
        raise UsageError(
            f"{token_id!r:.40} is not a token ID of 16 hex digits; `hourmark token list` shows "
            "all tokens"
        ) from error
    write_token(config.kafka, revoked)
    if as_json:
        print_json(_row(revoked))
    else:
        click.echo(f"token {revoked.id} ({revoked.name}) is revoked")


def _duration_ms(text: str) -> int:
    form = _DURATION.fullmatch(text)
    if form is None or int(form[1]) == 0:
        raise UsageError(
            f"--expires-in {text!r:.40}: allowed: an integer followed by s, m, h or d, such as 90d"
        )
    return int(form[1]) * _SECONDS[form[2]] * 1000


def _state(t: Token, now_ms: int) -> str:
    if t.revoked_at_ms is not None:
        return f"revoked at {_time(t.revoked_at_ms)}"
    if t.expires_at_ms is not None:
        return f"{'expired' if t.expired(now_ms) else 'in force until'} {_time(t.expires_at_ms)}"
    return "in force"


def _reports_text(t: Token) -> str:
    if t.reports is None:
        return "reports of tailers on these hosts (created by 0.3.0 or earlier)"
    of_services = f", of services {', '.join(t.service_reports)}" if t.service_reports else ""
    return f"reports of {', '.join(t.reports) or 'no host'}{of_services}"


def _row(t: Token) -> dict[str, object]:
    return t.model_dump(mode="json", exclude={"digest"})


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
