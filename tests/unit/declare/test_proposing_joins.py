"""`hourmark init` with a folder that it wrote before: log files that are named later join what is
there.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hourmark.clock import SystemClock
from hourmark.config.loading import load_config
from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark.rules.event_types import read_declarations
from hourmark_declare.init_cli import init


def invoked(*arguments: str) -> Any:
    return CliRunner().invoke(init, [*arguments, "--yes"], catch_exceptions=False)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where `app.log` is followed already, with an hour of ten minutes, and a line of the author's
    own.
    """
    (tmp_path / "app.log").write_text("2026-11-21 10:00:00 INFO one\n")
    invoked(str(tmp_path / "app.log"), "--out", str(tmp_path / "out"), "--bucket-seconds", "600")
    with (tmp_path / "out/hourmark.toml").open("a") as file:
        file.write("# mine\n")
    return tmp_path / "out"


def join(out: Path, name: str, content: str, *arguments: str) -> Any:
    log = out.parent / name
    log.parent.mkdir(exist_ok=True)
    log.write_text(content)
    return invoked(str(log), "--out", str(out), *arguments)


def test_a_second_file_has_its_source_and_type_beside_the_first(out: Path) -> None:
    before = (out / "hourmark.toml").read_text()
    type_before = (out / "types/app.toml").read_bytes()
    said = join(out, "b/app.log", "2026-11-21 10:00:00 WARN two\n").output
    assert (
        f"from {tomllib.loads(before)['types']['first_hour']} on; older lines are back-filled"
        in said
    )
    assert (out / "hourmark.toml").read_text().startswith(before), "what is there stays as it was"
    assert (out / "types/app.toml").read_bytes() == type_before
    config, declared = load_config(out / "hourmark.toml"), read_declarations(out / "types")
    assert [source.name for source in config.tailer.sources] == ["app", "app-2"]
    assert [source.name for source in declared.sources] == ["app", "app-2"]
    assert {"app", "app-2"} <= {of.name for of in declared.types}
    assert config.parsing.bucket_seconds == 600


@pytest.mark.parametrize(
    ("buckets_ago", "theirs_ago", "expected_ago"),
    [(5, 20, 20), (20, 0, 1), (20, 400, 1), (0, 400, 0)],
    ids=[
        "theirs are earlier",
        "its own are earlier",
        "theirs are too long ago",
        "its own are of now",
    ],
)
def test_buckets_of_what_joins_begin_where_theirs_do_or_just_before_now(
    out: Path, monkeypatch: pytest.MonkeyPatch, buckets_ago: int, theirs_ago: int, expected_ago: int
) -> None:
    now = Hour.parse("2026-11-24T10:00", 600)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now.start_s * 1000 + 1234)

    def ago(buckets: int) -> Hour:
        return Hour(now.start_s - buckets * 600, 600)

    settings = out / "hourmark.toml"
    first = load_config(settings).types.first_hour
    settings.write_text(settings.read_text().replace(f'"{first}"', f'"{ago(theirs_ago)}"'))
    time = dt.datetime.fromtimestamp(ago(buckets_ago).start_s + 7, dt.UTC)
    said = join(out, "b.log", f"{time:%Y-%m-%d %H:%M:%S} INFO one\n", "--zone", "UTC").output
    assert load_config(settings).types.first_hour == str(ago(expected_ago))
    assert f"from {ago(expected_ago)} on" in said
    assert "# mine" in settings.read_text()


def test_where_the_author_took_the_first_hour_away_buckets_begin_when_types_are_applied(
    out: Path,
) -> None:
    settings = out / "hourmark.toml"
    settings.write_text(
        "\n".join(
            line for line in settings.read_text().splitlines() if not line.startswith("first_hour")
        )
    )
    assert (
        "from when the types are applied on"
        in join(out, "b.log", "2026-11-21 10:00:00 INFO one\n").output
    )
    assert load_config(settings).types.first_hour is None


def test_a_first_hour_that_is_none_is_named(out: Path) -> None:
    settings = out / "hourmark.toml"
    settings.write_text(settings.read_text().replace('first_hour = "', 'first_hour = "x'))
    with pytest.raises(
        UsageError, match=r"hourmark.toml: types.first_hour: 'x2026-.* is not a valid hour"
    ):
        join(out, "b.log", "2026-11-21 10:00:00 INFO one\n")


def test_an_older_line_is_allowed_for(out: Path) -> None:
    before = read_declarations(out / "types").limits.lateness_seconds
    join(out, "old.log", "2020-01-01 10:00:00 old\n")
    older = read_declarations(out / "types").limits.lateness_seconds
    assert older > before
    join(out, "older.log", "2010-01-01 10:00:00 older\n")
    text = (out / "types/sources.toml").read_text()
    assert read_declarations(out / "types").limits.lateness_seconds > older
    assert text.count("lateness_seconds") == 1
    (out / "types/sources.toml").write_text(text.replace("is an event.", "is one."))
    with pytest.raises(UsageError, match=r"limits.lateness_seconds is \d+, and must be \d+"):
        join(out, "oldest.log", "2001-01-01 10:00:00 oldest\n")
    assert not (out / "types/oldest.toml").exists()


def test_what_is_followed_is_not_proposed_again(out: Path) -> None:
    text = (out / "hourmark.toml").read_text()
    (out / "hourmark.toml").write_text(text.replace("app.log", "*.log"))
    with pytest.raises(UsageError, match=r"more.log is followed already, as source app"):
        join(out, "more.log", "x\n")


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        (("--bucket-seconds", "60"), "parsing.bucket_seconds"),
        (("--first-hour", "2026-11-21T05"), "types.first_hour"),
        (("--storage", "file:///b"), "storage.root"),
    ],
)
def test_what_all_have_in_common_is_not_chosen_again(
    out: Path, option: tuple[str, str], setting: str
) -> None:
    with pytest.raises(UsageError, match=f"{setting} stands in its hourmark.toml"):
        join(out, "more.log", "x\n", *option)


def test_settings_that_cannot_be_read_are_not_added_to(out: Path) -> None:
    (out / "hourmark.toml").write_text("=")
    with pytest.raises(UsageError, match="configuration cannot be extended"):
        join(out, "more.log", "x\n")
    assert (out / "hourmark.toml").read_text() == "="


def test_a_file_has_one_path_however_it_is_named(out: Path) -> None:
    with pytest.raises(UsageError, match=r"app\.log"):
        invoked(str(out / ".." / "app.log"), "--out", str(out))
    (out.parent / "b.log").write_text("2026-11-21 10:00:00 WARN two\n")
    invoked(str(out / ".." / "b.log"), "--out", str(out))
    sources = tomllib.loads((out / "hourmark.toml").read_text())["tailer"]["sources"]
    assert [source["paths"] for source in sources] == [
        [str(out.parent / name)] for name in ("app.log", "b.log")
    ]
