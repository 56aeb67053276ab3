"""`hourmark init`: proposes a configuration for log files from their lines."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from pydantic import TypeAdapter, ValidationError

from hourmark.clock import SystemClock
from hourmark.commands.canary import CANARY
from hourmark.config.groups import EventTimeLimits
from hourmark.config.loading import stack_config_file
from hourmark.errors import UsageError
from hourmark.printing import json_option, launcher_command, print_json
from hourmark.process.durable import write_durably
from hourmark.process.os_errors import file_errors_reported
from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.hours import Hour
from hourmark.records.named_files import (
    NAMED_FILES,
    NamedFile,
    observe_files,
    save_named_files,
)
from hourmark.rules.event_types import SYSLOG, TypeName
from hourmark_declare.log_files import distinct_log_files, read_log_samples
from hourmark_declare.proposing.bucket_lengths import (
    BucketLength,
    choose_bucket_length,
    read_bucket_length,
)
from hourmark_declare.proposing.config_files import (
    SETTINGS,
    SOURCES,
    ConfigChoices,
    render_files,
    required_lateness_s,
)
from hourmark_declare.proposing.existing_config import ExistingConfig
from hourmark_declare.proposing.file_sample import FileSample
from hourmark_declare.proposing.first_hours import choose_first_hour
from hourmark_declare.proposing.selection import Proposal, propose
from hourmark_declare.proposing.times.timestamps import find_common_timestamp
from hourmark_declare.written_config import check_existing, check_written
from hourmark_declare.zones import machine_zone, validate_zone

_FOLDER: Final = Path("pipeline")  # the default of `hourmark run`
_RESERVED_NAMES: Final = frozenset({DEAD_LETTERS, CANARY, SOURCES.stem})


@click.command("init")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=_FOLDER,
    show_default=True,
    help="Folder for the configuration.",
)
@click.option(
    "--name",
    help="Name of the source and its event type, for a single file. Default: the name of the file.",
)
@click.option(
    "--bucket-seconds",
    "length_s",
    type=click.IntRange(60, 3600),
    help="Length of a bucket; use 3600 in production. Default: the length of the local stack. If "
    "there is no stack: 60 if a line is less than two hours old or a file has no times, otherwise "
    "3600.",
)
@click.option(
    "--first-hour",
    "begins",
    metavar="HOUR",
    help="First hour of the event types, such as 2026-11-21T05. Default: the bucket before the "
    "current one, or the current bucket if no line is older.",
)
@click.option(
    "--storage",
    metavar="URL",
    help="URL of the folder for buckets, file:///… or hdfs://…. Default: HDFS of the local stack.",
)
@click.option(
    "--zone",
    help="Time zone of times that contain no zone, such as Europe/Vienna. Default: the zone of this "
    "machine.",
)
@click.option("--yes", is_flag=True, help="Write the configuration without asking.")
@json_option
@file_errors_reported()
def init(
    files: Sequence[Path],
    out: Path,
    name: str | None,
    length_s: int | None,
    begins: str | None,
    storage: str | None,
    zone: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Analyze log files and propose a configuration that converts their lines to events.

    The command needs no server. It tries each known format on the first and last lines of a file:
    container logs, JSON, access logs, logfmt, syslog, tables with or without a header row, and
    lines or records with a timestamp. It parses the lines as the delivery service does. Then it
    shows the best format, the confidence in it, and the results for the lines.

    If a format is only a guess, the command asks you to confirm it. With --yes, or without a
    terminal, it uses the safest variant: it keeps an ambiguous time as text, and keeps lines
    without a common format whole.

    The command writes nothing before you confirm the configuration. An existing configuration is
    extended and never replaced.

    \b
    Examples:
      hourmark init /var/log/dpkg.log
      hourmark init app.jsonl access.log --out pipeline --bucket-seconds 3600 --yes
    """
    _check_options(files, name, length_s)
    zone = machine_zone() if zone is None else validate_zone(zone)
    there = _read_existing(out)
    files = distinct_log_files(files, lambda message: click.echo(message, err=True))
    if there is not None:
        _check_addable(there, files)
    names = _source_names(files, name, there)
    named = observe_files(files, SystemClock().now_ms())  # before a question that waits for an hour
    guessed = _propose_each(read_log_samples(files), names, zone)
    proposals = _confirmed_guesses(guessed, asks=not (yes or as_json) and sys.stdin.isatty())
    now_ms = SystemClock().now_ms()
    length = _bucket_length(length_s, there, proposals, now_ms)
    first = _first_hour(begins, proposals, now_ms, length.seconds)
    choices = ConfigChoices(first, zone, storage, now_ms)
    begun = there.choose_first_hour(first, now_ms) if there else first
    written = (
        there.render_extended(proposals, zone, now_ms, begun)
        if there
        else render_files(proposals, out.absolute(), choices)
    )
    check_written(out, written)
    if as_json:
        _print_as_json(proposals, guessed, out, written)
    else:
        _show(proposals, choices, begun, length)
        _show_files(out, written)
    if yes or (not as_json and _confirmed()):
        _write(out, written, named, joins=there is not None)
        click.echo(
            f"written to {out}; what runs it: {launcher_command()} {shlex.join(['run', *_named(out)])}",
            err=True,
        )
    elif not as_json:
        click.echo("nothing was written; --yes writes", err=True)


def _check_options(files: Sequence[Path], name: str | None, length_s: int | None) -> None:
    if name is not None and len(files) > 1:
        raise UsageError(
            f"--name {name} with {len(files)} files: leave it out, so that each has its "
            "own file's name"
        )
    if length_s is not None and (3600 % length_s or length_s % 60):
        raise UsageError(
            f"--bucket-seconds {length_s}: allowed are whole minutes that divide an "
            "hour, such as 60 or 3600"
        )


def _read_existing(out: Path) -> ExistingConfig | None:
    if (out / SETTINGS).exists():
        check_existing(out)
    return ExistingConfig.read(out)


def _source_names(
    files: Sequence[Path], name: str | None, there: ExistingConfig | None
) -> list[str]:
    taken = {*(there.names if there else ()), *_RESERVED_NAMES}
    return _names(files, {*taken, SYSLOG.name}) if name is None else [_checked_name(name, taken)]


def _first_hour(
    begins: str | None, proposals: Sequence[Proposal], now_ms: int, bucket_seconds: int
) -> Hour:
    if begins:
        return _parsed(begins, bucket_seconds)
    return choose_first_hour((p.oldest for p in proposals), now_ms, bucket_seconds)


def _propose_each(samples: Sequence[FileSample], names: Sequence[str], zone: str) -> list[Proposal]:
    proposals = []
    for number, (sample, name) in enumerate(zip(samples, names, strict=True), 1):
        # a file may take a second, and `hourmark run FILE…` shows these messages
        click.echo(f"analyzing {sample.path} ({number} of {len(samples)})", err=True)
        proposals.append(propose(sample, name, zone=zone, host=socket.gethostname()))
    return proposals


def _confirmed_guesses(guessed: Sequence[Proposal], *, asks: bool) -> list[Proposal]:
    # The user decides whether a guess is used; without a question, the safest proposal is used.
    proposals = []
    for guess in guessed:
        if guess.safest is None:
            proposals.append(guess)
            continue
        reasons = "; ".join(guess.assessment.reasons)
        click.echo(f"{guess.sample.path}: {guess.candidate.form} is a guess: {reasons}", err=True)
        if asks and click.confirm(
            f"Use it? Otherwise: {guess.safest.candidate.form}", default=False, err=True
        ):
            proposals.append(dataclasses.replace(guess, safest=None))
            continue
        if not asks:
            click.echo(
                f"  the safest is kept: {guess.safest.candidate.form}. To decide it yourself, run "
                "this in a terminal without --yes",
                err=True,
            )
        proposals.append(guess.safest)
    return proposals


def _check_addable(there: ExistingConfig, files: Sequence[Path]) -> None:
    context = click.get_current_context()
    for option, setting in (
        ("length_s", "parsing.bucket_seconds"),
        ("begins", "types.first_hour"),
        ("storage", "storage.root"),
    ):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{there.folder} is there already; {setting} stands in its {SETTINGS}, so "
                "leave the option out"
            )
    there.refuse_tailed_files(files)


def _named(out: Path) -> list[str]:
    return [] if out == _FOLDER else ["--config", str(out / SETTINGS)]


def _bucket_length(
    length_s: int | None,
    there: ExistingConfig | None,
    proposals: Sequence[Proposal],
    now_ms: int,
) -> BucketLength:
    if length_s is not None:
        return BucketLength(length_s, "as --bucket-seconds sets it")
    if there is not None:
        return BucketLength(there.bucket_seconds, f"as in {there.folder / SETTINGS}")
    return read_bucket_length(stack_config_file()) or choose_bucket_length(
        {p.sample.path: p.newest for p in proposals}, now_ms
    )


def _show(
    proposals: Sequence[Proposal], choices: ConfigChoices, begun: Hour | None, length: BucketLength
) -> None:
    for p in proposals:
        click.echo(_summary(p))
        assessed = p.assessment
        reasons = f": {'; '.join(assessed.reasons)}" if assessed.reasons else ""
        click.echo(f"  confidence: {assessed.confidence}{reasons}")
        if p.candidate.zone:
            click.echo(
                f"  times are read in the zone {p.candidate.zone}, which their abbreviations name"
            )
        for one in p.examples[:1]:
            event = (
                f"{one.type} {one.time} {one.host} {one.fields}"
                if one.is_event
                else f"dead letter {one.reason}: {one.detail}"
            )
            click.echo(f"  its first: {event[:300]}")
    days = required_lateness_s(proposals, choices.now_ms) // 86_400
    default = days * 86_400 <= EventTimeLimits().lateness_seconds
    click.echo(
        f"lines may be {days} days old, "
        f"{'which is the default' if default else 'for the oldest that is there'}"
    )
    click.echo(_bucket_text(length, begun))


def _bucket_text(length: BucketLength, first: Hour | None) -> str:
    minutes = length.seconds // 60
    text = "an hour" if length.seconds == 3600 else f"{minutes} minute{'s' if minutes > 1 else ''}"
    begin = (
        f"from {first} on"
        if first
        else "from when the types are applied on, as types.first_hour is not set here"
    )
    return (
        f"buckets of {text}, {length.reason}, {begin}; older lines are back-filled: buckets of their "
        "own hours, while nothing later of their type is closed"
    )


def _parsed(label: str, bucket_seconds: int) -> Hour:
    try:
        return Hour.parse(label, bucket_seconds)
    except ValueError as error:
        raise UsageError(f"--first-hour: {error}") from error


def _summary(p: Proposal) -> str:
    parts = [f"{p.fitting:,} of {p.records:,} sample records fit"]
    if p.caught:
        others, among, are = (
            ("1 other", "", "is")
            if p.caught == 1
            else (f"{p.caught:,} others", " among them", "are")
        )
        header = f", the header row{among}," if p.candidate.has_header else ""
        parts.append(f"{others}{header} {are} kept whole, with the time of reading")
    parts += [
        f"{count:,} would be dead letters {reason}"
        for reason, count in p.dead_letters.most_common()
    ]
    parts += (
        [f"from {p.oldest} to {p.newest}"] if p.oldest else ["their time is when they are read"]
    )
    return (
        f"{p.sample.path}: {p.candidate.form}; "
        f"{', '.join(parts)}{'' if p.oldest else _unread_time_hint(p.sample.lines)}"
    )


def _unread_time_hint(lines: Sequence[bytes]) -> str:
    if (found := find_common_timestamp(lines)) is None or found.share <= 0.5:
        return ""
    index, (start, end) = next(iter(found.spans.items()))
    time = lines[index][start:end].decode(errors="replace")
    do = (
        "name its zone, such as --zone Europe/Berlin"
        if found.form.format.endswith("%Z")
        else "declare its form by hand"
    )
    return f". Most bear a time such as {time}, which could not be read: {do} (docs/reference/line-formats.md)"


def _show_files(out: Path, written: Mapping[Path, str]) -> None:
    for path, text in written.items():
        click.echo(f"\n--- {out / path}\n{text}", nl=False)
    click.echo()


def _print_as_json(
    proposals: Sequence[Proposal],
    guessed: Sequence[Proposal],
    out: Path,
    written: Mapping[Path, str],
) -> None:
    print_json(
        {
            "proposals": [_as_json(p, guess) for p, guess in zip(proposals, guessed, strict=True)],
            "files": {str(out / path): text for path, text in written.items()},
        }
    )


def _as_json(p: Proposal, guess: Proposal) -> dict[str, Any]:
    assessed = guess.assessment
    return {
        "file": str(p.sample.path),
        "name": p.name,
        "form": p.candidate.form,
        "records": p.records,
        "fitting": p.fitting,
        "caught": p.caught,
        "dead_letters": p.dead_letters,
        "oldest": p.oldest,
        "newest": p.newest,
        "confidence": assessed.confidence,
        "reasons": [*assessed.reasons],
        "guess": None if p is guess else guess.candidate.form,
    }


def _confirmed() -> bool:
    return sys.stdin.isatty() and click.confirm("Write these files?", default=True, err=True)


def _write(
    out: Path, written: Mapping[Path, str], named: Sequence[NamedFile], *, joins: bool
) -> None:
    added_to = (SETTINGS, SOURCES) if joins else ()
    if there := [out / path for path in written if path not in added_to and (out / path).exists()]:
        raise UsageError(
            f"{there[0]} already exists; name another folder with --out, or remove {out} first"
        )
    try:
        save_named_files(out / NAMED_FILES, named)
        for path, text in sorted(
            written.items(), key=lambda item: item[0] == SETTINGS
        ):  # the settings last, because they refer to the others
            write_durably(out / path, text.encode(), mode=0o644)
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or out}: {error.strerror}; make room or grant access, "
            "or name another folder with --out"
        ) from error


def _checked_name(name: str, taken: Collection[str]) -> str:
    try:
        TypeAdapter(TypeName).validate_python(name)
    except ValidationError as error:
        raise UsageError(
            f"--name {name}: allowed are up to 100 lower-case letters, digits and hyphens, "
            "beginning with a letter"
        ) from error
    if name in taken:
        raise UsageError(
            f"--name {name}: the name is taken by a source or type, or is reserved; choose another"
        )
    return name


def _names(files: Sequence[Path], others: Collection[str]) -> list[str]:
    names: list[str] = []
    for file in files:
        stem = re.sub(
            r"[^a-z0-9]+", "-", re.sub(r"\.(log|txt|jsonl?|tsv|out)$", "", file.name.lower())
        ).strip("-")
        stem = (stem if stem[:1].isalpha() else f"log-{stem}".rstrip("-"))[:90]
        taken = {*names, *others}
        names.append(
            next(
                name
                for n in itertools.count(1)
                if (name := stem if n == 1 else f"{stem}-{n}") not in taken
            )
        )
    return names
