"""`hourmark dead-letters` on a closed bucket, and its parts.

The topic is read in tests/integration/test_delivery_service.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from click.testing import CliRunner, Result
from tests.support.records import manifest
from tests.support.service.examples import NOW_MS, decoded, parsed, syslog

from hourmark.errors import UsageError
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, BucketFile
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_etl.operators import dead_letter_selection
from hourmark_etl.operators.dead_letter_selection import (
    STEPS_SHOWN,
    count_by,
    format_dead_letter,
    format_next_steps,
    parse_time_ms,
)
from hourmark_etl.operators.dead_letters import dead_letters
from hourmark_etl.storage import LocalDisk

Run = Callable[..., Result]
HOUR = Hour.containing(NOW_MS, 3600)
BODY = syslog() + syslog(msg=b"{") + b"no \x1b[31msyslog\xff\n\n" + syslog(msg=b"{}")


def made(body: bytes = BODY, **more: Any) -> list[dict[str, Any]]:
    """What the service makes dead letters of."""
    return [decoded(r) for r in parsed(body, **more).records if r.event_type == DEAD_LETTERS.name]


@pytest.fixture
def run(file: Path, tmp_path: Path) -> Run:
    rows = [*made(path="/var/log/a b.log"), *made(b"x\n", source="mistyped", host_name="web-2")]
    storage, folder = LocalDisk(tmp_path / "root"), HOUR.bucket_path(DEAD_LETTERS.name)
    with storage.create(f"{folder}/part-00000.avro") as out:
        fastavro.writer(out, DEAD_LETTERS.schema(), rows)
    listed = BucketFile(
        name="part-00000.avro",
        records=len(rows),
        bytes=1,
        blake2b="0" * 32,
        schema_id=1,
        schema_fingerprint="0" * 16,
    )
    told = manifest(HOUR, type=DEAD_LETTERS.name, files=[listed], events=len(rows))
    storage.write_new(f"{folder}/{MARKER}", told.encode())
    return lambda *arguments: CliRunner().invoke(
        dead_letters, [*arguments, "--from", "buckets", "--config", str(file)]
    )


def test_ls_counts_by_reason_type_and_source(run: Run) -> None:
    result = run("ls")
    assert result.exit_code == 0, result.output
    rows = {tuple(line.split()[:4]) for line in result.stdout.splitlines()}
    assert rows == {
        ("reason", "type", "source", "letters"),
        ("bad_json", "click", "app", "1"),
        ("missing_field", "click", "app", "1"),
        ("not_rfc5424", "-", "app", "1"),
        ("unknown_source", "-", "mistyped", "1"),
    }
    assert (
        "4 of 4 dead letters that were read match, back to 2026-11-21T01:40:00.000Z"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--reason", "bad_json", "--reason", "missing_field"], 2),
        (["--type", "click", "--source", "app"], 2),
        (["--source", "mistyped"], 1),
        (["--host", "web-1"], 3),
        (["--since", "2026-11-21T01:40", "--until", "2026-11-21T01:41"], 4),
        (["--since", "2026-11-21T01:41"], 0),
        (["--until", "2026-11-21T01:40:00Z"], 0),
        (["--until", "2026-11-21T01"], 0),
    ],
)
def test_filters_are_held_by_both_commands(run: Run, options: list[str], count: int) -> None:
    listed = json.loads(run("ls", "--json", *options).stdout)
    shown = run("show", "--json", *options).stdout.splitlines()
    assert (sum(group["letters"] for group in listed["groups"]), len(shown)) == (count, count)


def test_ls_counts_by_host_and_hour(run: Run) -> None:
    groups = json.loads(run("ls", "--by", "hour", "--json").stdout)["groups"]
    assert groups == [
        {
            "hour": "2026-11-21T01",
            "letters": 4,
            "first": "2026-11-21T01:40:00.000Z",
            "last": "2026-11-21T01:40:00.000Z",
        }
    ]
    assert {
        g["host"] for g in json.loads(run("ls", "--by", "host", "--json").stdout)["groups"]
    } == {"web-1", "web-2"}


def test_show_says_what_is_wrong_and_keeps_a_lines_bytes_from_the_terminal(run: Run) -> None:
    text = run("show", "--reason", "not_rfc5424").stdout
    assert "not_rfc5424: the line is not of the form of RFC 5424" in text
    assert r"no \x1b[31msyslog\xff" in text
    assert "\x1b" not in text
    letter = json.loads(run("show", "--reason", "not_rfc5424", "--json").stdout)
    assert letter["raw"] == {"base64": "bm8gG1szMW1zeXNsb2f/"}


def test_show_names_the_next_step_once_for_each_source_and_reason(run: Run) -> None:
    steps = [line for line in run("show").stdout.splitlines() if line.startswith("next: ")]
    assert len(steps) == 4
    (bad_json,) = [step for step in steps if "bad_json" in step]
    assert bad_json == (
        "next: source app, bad_json: correct the declaration of click, try it (`hourmark types try "
        "--lines FILE --source app`), then run `hourmark types apply`"
    )
    assert any("correct the name in tailer.sources on web-2" in step for step in steps)
    assert "docs/operate/runbooks/dead-letters-rising.md" in run("show").stdout.splitlines()[-1]
    assert "next: " not in run("show", "--json").stdout
    assert run("show", "--type", "none").stdout == ""


def test_the_next_step_depends_on_the_reason() -> None:
    (letter, *_) = made()
    for reason in DeadLetterReason:
        (step, _) = format_next_steps([{**letter, "reason": reason.value}] * 2)
        assert ("clock" in step) is (reason.value in ("future", "too_late"))
    (step, _) = format_next_steps([{**letter, "file": None}])
    assert "`POST /v1/events/TYPE:validate`" in step
    many = [{**letter, "declared_source": f"s{n}"} for n in range(STEPS_SHOWN + 2)]
    assert "2 more sources and reasons" in [*format_next_steps(many)][-2]


def test_show_prints_a_command_that_prints_the_line_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.log"
    path.write_bytes(BODY)
    for letter in made(path=str(path)):
        (there,) = [line for line in format_dead_letter(letter) if line.startswith("  there")]
        command = there.removeprefix("  there").partition("    (")[0]
        assert (
            subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
            == letter["raw"] + b"\n"
        )


def test_a_letter_that_lies_in_every_field_writes_one_printable_line_each() -> None:
    (letter,) = made(b"\x1b\n")
    odd = {
        **letter,
        "detail": "a\nb\x1b",
        "host": "h\r",
        "declared_source": "\u202e",
        "source": "/x\n",
    }
    assert all(line.isprintable() for line in format_dead_letter(odd))
    assert not any(line.startswith("  there") for line in format_dead_letter(odd))


def test_show_gives_the_newest(run: Run) -> None:
    assert len(run("show", "--limit", "2", "--json").stdout.splitlines()) == 2


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_selection, "GROUPS_MAX", 3)
    (letter,) = made(b"x\n")
    counts = count_by(["host"], ({**letter, "host": f"h{n}"} for n in range(10)))
    assert {key[0]: count.letters for key, count in counts.items()} == {
        "h0": 1,
        "h1": 1,
        "h2": 1,
        "(other)": 7,
    }


def test_times_are_read() -> None:
    assert parse_time_ms("2h", NOW_MS) == NOW_MS - 7_200_000
    assert (
        parse_time_ms("2026-11-21T01:40", 0) == parse_time_ms("2026-11-21T02:40+01:00", 0) == NOW_MS
    )
    for wrong in ("", "yesterday", "2h ago", "-1h", "99999999d", "2026-13-01"):
        with pytest.raises(ValueError, match="is not a valid time; write"):
            parse_time_ms(wrong, NOW_MS)


def test_a_wrong_time_is_wrong_use(run: Run) -> None:
    result = run("ls", "--since", "noon")
    assert isinstance(result.exception, UsageError)
    assert "--since" in str(result.exception)


@pytest.mark.parametrize("command", ["ls", "show"])
def test_every_help_has_an_example(command: str) -> None:
    text = CliRunner().invoke(dead_letters, [command, "--help"]).output
    assert f"hourmark dead-letters {command} " in text.partition("Examples:")[2]
