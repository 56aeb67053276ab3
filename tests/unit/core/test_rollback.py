"""`hourmark rollback check`: each thing that an older version would refuse is named before anything
goes back.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.contract.test_kept_formats import FILE, KEPT, RULES
from tests.support.known import known, setting_names
from tests.support.tailer.spooled import spooled

from hourmark.config.groups import KafkaCluster, KafkaSettings, MirrorSettings, TailerSettings
from hourmark.config.loading import Config, load_config
from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.process.alarms import Alarm, AlarmName
from hourmark.rollback import rooms
from hourmark.rollback.cli import check
from hourmark.rollback.obstacle import NothingToCheck, Obstacle
from hourmark.rollback.rooms import find_obstacles
from hourmark.rollback.settings import is_unknown, unknown_settings, unusable_rules
from hourmark.rollback.version import VERSIONS, OlderVersion
from hourmark.rules.revision import PARSER, ParserVersion
from hourmark_delivery_service.parsing.parsers import PARSERS
from hourmark_mirror import rollback as of_mirror
from hourmark_mirror.verify.verification_state import VerificationState
from hourmark_producer import rollback as of_tailer
from hourmark_producer.checkpoint.installation import lock_state_folder
from hourmark_producer.files.tracked_file import FileLocation, TrackedFile

OLDER = VERSIONS["0.2.0"]
KNOWS_ALL = OlderVersion(
    name="now",
    ledger=99,
    checkpoints=(1, 2, 3),
    parsers=PARSERS,
    no_marker_fields=(),
    no_range_fields=(),
    no_settings=frozenset(),
    references=True,
    reads_unfinished_files=True,
    keeps_alarms=True,
    several_namenodes=True,
)


def seen(obstacles: typing.Iterable[Obstacle]) -> list[str]:
    found = list(obstacles)
    assert all(obstacle.to_do for obstacle in found)
    return [obstacle.seen for obstacle in found]


# What each version knows


@pytest.mark.parametrize(
    "version", [version for version in VERSIONS if (KEPT / f"{version}.json").exists()]
)
def test_what_came_after_a_version_is_told_of_it(version: str) -> None:
    """In the commit that brings it: `hourmark.rollback.version`."""
    older, then, now = (
        VERSIONS[version],
        json.loads((KEPT / f"{version}.json").read_text()),
        known(),
    )
    later = {what: {*names} - {*then[what]} for what, names in now.items()}
    assert {name for name in now["settings"] if is_unknown(name, older)} == later["settings"]
    assert {*older.no_marker_fields} == later["marker fields"]
    assert {*older.no_range_fields} == later["range fields"]


# Settings


def test_what_a_version_does_not_know_are_settings_that_there_are() -> None:
    names = set(setting_names())
    for told in OLDER.no_settings:
        assert told.removesuffix(".*") in names or any(
            name.startswith(told.removesuffix("*")) for name in names
        ), told


def test_settings_that_came_later_are_named_and_others_are_not() -> None:
    values = {
        "tailer": {
            "state_dir": "/var/lib/hourmark",
            "ranges_in_flight": 2,
            "tls": {"ca": "/ca.pem"},
            "sources": [
                {"name": "app", "paths": ["/var/log/app"]},
                {"name": "in", "input": "stdin", "fields": {"team": "a"}},
            ],
        },
        "etl": {"ledger": "postgresql://etl:${file:/run/secret}@db/hourmark"},
    }
    unknown, referring = unknown_settings("hourmark.toml", values, OLDER)
    assert (
        "tailer.ranges_in_flight, tailer.sources.fields.team, tailer.sources.input, tailer.tls.ca and"
        in unknown.seen
    )
    assert "state_dir" not in unknown.seen and "etl.ledger" in referring.seen
    assert seen(unknown_settings("hourmark.toml", values, KNOWS_ALL)) == []


@pytest.mark.parametrize("older", VERSIONS.values(), ids=VERSIONS)
def test_addresses_of_several_namenodes_are_named(older: OlderVersion) -> None:
    values = {"storage": {"webhdfs": "http://one:9870"}}
    assert seen(unknown_settings("hourmark.toml", values, older)) == []
    values = {"storage": {"webhdfs": "http://one:9870,http://two:9870"}}
    (found,) = unknown_settings("hourmark.toml", values, older)
    assert "storage.webhdfs" in found.seen and "active NameNode" in found.to_do
    assert seen(unknown_settings("hourmark.toml", values, KNOWS_ALL)) == []


def test_a_configuration_of_what_it_knows_is_well() -> None:
    known = {
        "tailer": {"state_dir": "/x", "sources": [{"name": "app", "paths": ["/y"], "zone": "UTC"}]}
    }
    assert seen(unknown_settings("hourmark.toml", known, OLDER)) == []
    assert not is_unknown("tailer.sources.name", OLDER)


# The tailer


def checkpoint(
    state_dir: Path, *files: TrackedFile, several: bool = False, **extras: str
) -> Config:
    spooled(state_dir, *files, several=several, **extras)
    return Config(tailer=TailerSettings(state_dir=state_dir))


def test_a_tailer_that_ended_with_one_range_a_file_on_its_way_may_go_back(tmp_path: Path) -> None:
    assert seen(of_tailer.obstacles(checkpoint(tmp_path), OLDER)) == []


def test_a_machine_without_a_tailer_has_nothing_to_say(tmp_path: Path) -> None:
    with pytest.raises(NothingToCheck, match=f"no checkpoint at {tmp_path}"):
        seen(of_tailer.obstacles(Config(tailer=TailerSettings(state_dir=tmp_path)), OLDER))


def test_several_ranges_of_a_file_on_their_way_are_in_the_way(tmp_path: Path) -> None:
    (found,) = seen(of_tailer.obstacles(checkpoint(tmp_path, several=True), OLDER))
    assert found.startswith("it has format 2, because several ranges of a file are in flight")
    assert (
        seen(of_tailer.obstacles(Config(tailer=TailerSettings(state_dir=tmp_path)), KNOWS_ALL))
        == []
    )


@pytest.mark.parametrize(
    ("field", "value"), [("record_start", "^x"), ("fields", '{"a":"b"}'), ("format", "cri")]
)
def test_ranges_that_say_more_are_in_the_way(tmp_path: Path, field: str, value: str) -> None:
    (found,) = seen(
        of_tailer.obstacles(checkpoint(tmp_path, several=False, **{field: value}), OLDER)
    )
    assert found == f"1 ranges in flight contain {field}, which 0.2.0 cannot send"
    assert (
        seen(of_tailer.obstacles(Config(tailer=TailerSettings(state_dir=tmp_path)), KNOWS_ALL))
        == []
    )


def test_while_a_tailer_runs_nothing_is_promised(tmp_path: Path) -> None:
    config = checkpoint(tmp_path)
    with lock_state_folder(tmp_path):
        (found,) = seen(of_tailer.obstacles(config, OLDER))
    assert found.startswith("a tailer is running")


def of_place(path: str, *, missing: bool = False) -> TrackedFile:
    progress = dataclasses.replace(FILE.progress, in_flight=())
    place = FileLocation(FILE.place.source, path, path, missing)
    return dataclasses.replace(FILE, place=place, progress=progress)


def test_files_that_are_read_in_a_way_that_came_later_are_in_the_way(tmp_path: Path) -> None:
    for folder, file, said in (
        (
            "packed",
            of_place("/var/log/app.log.2.gz"),
            "1 files are compressed and are read directly",
        ),
        (
            "vanished",
            of_place("/var/log/app.log", missing=True),
            "1 files vanished before they were read completely",
        ),
        (
            "received",
            of_place(f"{tmp_path}/received/spool/app/0000000001.log"),
            "1 files contain received lines",
        ),
    ):
        (tmp_path / folder).mkdir()
        (found,) = seen(of_tailer.obstacles(checkpoint(tmp_path / folder, file), OLDER))
        assert found.startswith(said)
        assert (
            seen(
                of_tailer.obstacles(
                    Config(tailer=TailerSettings(state_dir=tmp_path / folder)), KNOWS_ALL
                )
            )
            == []
        )


# Rules


def test_rules_of_a_later_parser_are_in_the_way_whatever_came_after() -> None:
    known = dataclasses.replace(RULES, parser=ParserVersion(1, PARSER.zones))
    assert seen(unusable_rules([known], OLDER)) == []
    (found,) = seen(
        unusable_rules([known, dataclasses.replace(RULES, sequence=4, parser=PARSER), known], OLDER)
    )
    assert found.startswith("revision 4-") and "requires parser 3" in found
    of_0_3_0 = dataclasses.replace(RULES, parser=ParserVersion(2, PARSER.zones))
    assert seen(unusable_rules([of_0_3_0], VERSIONS["0.3.0"])) == []
    (found,) = seen(
        unusable_rules(
            [of_0_3_0, dataclasses.replace(RULES, sequence=4, parser=PARSER)], VERSIONS["0.3.0"]
        )
    )
    assert "requires parser 3, which 0.3.0 does not have" in found
    assert seen(unusable_rules([known, RULES], KNOWS_ALL)) == []


# The mirror


def test_alarms_that_stand_are_in_the_way(tmp_path: Path) -> None:
    one = KafkaCluster()
    config = Config(
        mirror=MirrorSettings(work_dir=tmp_path), kafka=KafkaSettings(edge=one, central=one)
    )
    with pytest.raises(NothingToCheck, match=f"no mirror state exists at {tmp_path}"):
        seen(of_mirror.obstacles(config, OLDER))
    checks = VerificationState(tmp_path, "edge")
    checks.save()
    assert seen(of_mirror.obstacles(config, OLDER)) == []
    checks.raise_alarms(
        [
            Alarm(
                AlarmName.OVERTAKEN,
                "events.click-0",
                "offsets 3 to 7 may be missing",
                "events.click",
            )
        ]
    )
    checks.save()
    (found,) = seen(of_mirror.obstacles(config, OLDER))
    assert found.startswith(
        "1 alarms are active, such as: offsets 3 to 7 may be missing; 0.2.0 would drop them"
    )
    assert seen(of_mirror.obstacles(config, KNOWS_ALL)) == []


# The command


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "hourmark.toml"
    file.write_text(
        f'[tailer]\nstate_dir = "{tmp_path}"\n[etl]\nledger = '
        f'"sqlite:///{tmp_path}/ledger.sqlite"\n'
    )
    return file


def run(config_file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(check, ["--to", "0.2.0", "--config", str(config_file), *arguments])


def test_where_nothing_is_in_the_way_it_ends_well(config_file: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    done = run(config_file, "--only", "tailer")
    assert (done.exit_code, done.stdout.splitlines()) == (0, ["ok          tailer"])


def test_where_there_is_nothing_to_look_at_it_is_not_called_well(
    config_file: Path, tmp_path: Path
) -> None:
    done = run(config_file, "--only", "tailer,etl")
    tailer, etl = done.stdout.splitlines()
    assert done.exit_code == 0
    assert tailer.startswith(f"absent      tailer: there is no checkpoint at {tmp_path}/")
    assert etl == f"absent      etl: no ledger exists at {tmp_path}/ledger.sqlite (etl.ledger)"


def test_each_thing_in_the_way_is_told_with_what_to_do(config_file: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path, several=True)
    config_file.write_text(config_file.read_text() + '[types]\nfirst_hour = "2026-11-24T00"\n')
    done = run(config_file, "--only", "tailer")
    assert isinstance(done.exception, Finding) and "2 obstacles" in str(done.exception)
    assert (
        f"obstacle    {config_file}: 0.2.0 does not support types.first_hour and refuses to start"
    ) in done.stdout
    assert (
        "do: start the tailer, wait until `hourmark tail status` shows nothing in flight"
        in done.stdout
    )


def test_a_setting_of_the_environment_is_in_the_way_too(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURMARK_HOME", "/tmp")  # none of the settings
    monkeypatch.setenv("HOURMARK_TAILER__RANGES_IN_FLIGHT", "2")
    done = run(config_file, "--only", "tailer")
    assert isinstance(done.exception, Finding)
    assert "the environment: 0.2.0 does not support tailer.ranges_in_flight and" in done.stdout


def test_what_cannot_be_asked_is_no_yes(config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + '[kafka.edge]\nbootstrap = "127.0.0.1:1"\n')
    done = run(config_file, "--only", "service", "--json")
    assert isinstance(done.exception, Finding)
    told = json.loads(done.stdout)
    assert (told["possible"], told["service"]["not_asked"]) == (
        False,
        "no broker of the edge cluster listens at 127.0.0.1:1: Connection refused",
    )


def test_a_component_that_there_is_not_is_refused(config_file: Path) -> None:
    done = run(config_file, "--only", "taler")
    assert isinstance(done.exception, UsageError) and "taler" in str(done.exception)


def breaks(_: Config, __: OlderVersion) -> list[Obstacle]:
    raise RuntimeError("not foreseen")


def is_away(_: Config, __: OlderVersion) -> list[Obstacle]:
    raise Unavailable("gone")


def test_one_that_breaks_keeps_none_from_answering(config_file: Path) -> None:
    here = f"{__name__}:"
    table = {
        "first": f"{here}breaks",
        "second": f"{here}is_away",
        "third": rooms.ROOMS["tailer"],
        "fourth": "no_room:at_all",
    }
    told = find_obstacles(load_config(config_file), OLDER, table=table)
    assert [told[name].not_asked for name in table] == [
        "RuntimeError: not foreseen",
        "gone",
        None,
        None,
    ]
    assert (told["fourth"].absent, told["third"].absent is None) == (
        "it is not installed here",
        False,
    )
