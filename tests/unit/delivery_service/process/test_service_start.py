"""Before the first request: settings that cannot work, rules as they come, schemas while the
registry is away.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.support.clock import FakeClock
from tests.support.revisions import encoded
from tests.support.rules_servers import MemoryRegistry
from tests.support.service.examples import rules_of
from tests.support.service.harness import fed

from hourmark.avro.framing import Schema
from hourmark.config.groups import ParsingSettings
from hourmark.config.loading import Config
from hourmark.errors import ConfigError, Unavailable
from hourmark.records import audit, host_reports
from hourmark_delivery_service.cli import serve
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.process.server import check_limits, check_system_clock
from hourmark_delivery_service.work import framing
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_delivery_service.work.service import OBSERVED_AT_MS_MIN


def test_the_http_limit_is_never_above_what_kafka_takes() -> None:
    """Or requests would be accepted that can never be delivered."""
    check_limits(Config())
    with pytest.raises(ConfigError, match=r"kafka\.max_message_bytes"):
        check_limits(Config(kafka={"max_message_bytes": 4 << 20}))
    with pytest.raises(ConfigError, match=r"service\.line_bytes_max"):
        check_limits(Config(service={"line_bytes_max": 5 << 20}))


def test_a_clock_before_2000_stops_the_start() -> None:
    """Or tailers would spool ranges of that time, and no service would take them."""
    check_system_clock(FakeClock(OBSERVED_AT_MS_MIN))
    with pytest.raises(ConfigError, match="clock"):
        check_system_clock(FakeClock(OBSERVED_AT_MS_MIN - 1))


def test_rules_are_usable_only_once_the_topic_was_read_to_its_end() -> None:
    store = RulesStore(ServiceMetrics())
    assert store.latest is None
    assert not store.caught_up
    store.feed(encoded(rules_of(1).records()), from_start=True)
    assert store.latest is not None and store.latest.id == rules_of(1).id


def test_ranges_may_name_any_revision_and_new_ones_get_the_latest() -> None:
    first, second = rules_of(1), rules_of(2, ParsingSettings(future_seconds=60))
    store = fed(*first.records(), *second.records())
    assert store.latest is not None and store.latest.id == second.id
    old = store.get(first.id)
    assert old is not None
    assert old.parsing.future_seconds == 900
    assert store.get("9-unknown") is None


def test_a_topic_that_lost_the_newest_revision_is_said_and_ranges_stay_readable() -> None:
    old, new = rules_of(5), rules_of(1, ParsingSettings(future_seconds=60))
    store = fed(*old.records())
    store.feed([], from_start=True)  # deleted
    store.feed(encoded(new.records()), from_start=True)
    assert store.latest is None
    assert f"no longer contains the newest revision {old.id}" in store.not_ready_reason()
    assert store.get(old.id) is not None and store.get(new.id) is not None
    store.feed(encoded(old.records()), from_start=False)
    assert store.latest is not None and store.latest.id == old.id


def test_a_record_that_is_no_rule_disturbs_nothing() -> None:
    store = RulesStore(ServiceMetrics())
    store.feed(
        [
            (b"\xff", b"x"),
            (b"rules/1-x", b"{}"),
            (None, b"x"),
            *encoded(rules_of(1).records()),
            (b"type/a/b", None),
        ],
        from_start=True,
    )
    assert store.latest is not None


def test_schema_ids_are_asked_for_however_long_the_registry_is_away_or_gives_ids_of_types(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Registry:
        calls = 0

        def find(self, topic: str, schema: Schema) -> int | None:
            Registry.calls += 1
            if Registry.calls < 3:
                raise Unavailable("planted")
            if Registry.calls < 7:
                return None
            return {"hourmark.audit": 7, "hourmark.hosts": 8}[topic]

    said: list[str] = []

    async def main() -> framing.Framing:
        async with asyncio.timeout(10):
            return await framing.find_framing(
                Registry(),
                {True},
                lambda: dict.fromkeys((7, 8), "click") if Registry.calls < 13 else {},
                said.append,
                pause_max_s=0.01,
            )

    with caplog.at_level("WARNING"):
        assert asyncio.run(main()) == framing.Framing(
            audit={True: b"\0\0\0\0\x07"}, hosts=b"\0\0\0\0\x08"
        )
    assert "has no schema of hourmark.audit" in caplog.text
    assert any("has no schema of hourmark.audit" in why for why in said)
    assert (
        "returned id 7 for hourmark.audit, but in the rules this id belongs to click" in caplog.text
    )


def test_only_the_schemas_of_audit_records_that_known_rules_need_are_asked_for() -> None:
    registry = MemoryRegistry()
    registry.register("hourmark.hosts", host_reports.SCHEMA)
    registry.register("hourmark.audit", audit.SCHEMA_BEFORE_BLANKS)

    async def found(needed: set[bool]) -> framing.Framing:
        async with asyncio.timeout(0.4):
            return await framing.find_framing(registry, needed, dict, lambda _: None)

    assert asyncio.run(found({False})).audit == {False: b"\0\0\0\0\x02"}, (
        "before `types apply` of this version"
    )
    with pytest.raises(TimeoutError):
        asyncio.run(found({False, True}))
    registry.register("hourmark.audit", audit.SCHEMA)
    assert asyncio.run(found({False, True})).audit == {
        False: b"\0\0\0\0\x02",
        True: b"\0\0\0\0\x03",
    }


def test_before_types_are_applied_by_this_version_audit_records_have_no_checksums() -> None:
    """A service of this version goes on beside a registry that knows the schemas of 0.3.0 only."""
    registry = MemoryRegistry()
    registry.register("hourmark.hosts", host_reports.SCHEMA)
    registry.register("hourmark.audit", audit.SCHEMA_BEFORE_CHECKSUMS)

    def found() -> framing.Framing:
        return asyncio.run(framing.find_framing(registry, {True}, dict, lambda _: None))

    assert (found().audit, found().has_checksums, found().is_newest) == (
        {True: b"\0\0\0\0\x02"},
        False,
        False,
    )
    registry.register("hourmark.audit", audit.SCHEMA)
    assert (found().audit, found().has_checksums, found().is_newest) == (
        {True: b"\0\0\0\0\x03"},
        True,
        True,
    )


def test_help_has_examples() -> None:
    result = CliRunner().invoke(serve, ["--help"])
    assert result.exit_code == 0
    assert "hourmark serve --config" in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("soft", "hard", "then"), [(300, 400, 356), (300, 355, None), (390, 400, 390)]
)
def test_there_are_files_for_as_many_connections_as_are_allowed(
    soft: int, hard: int, then: int | None
) -> None:
    """In a process of its own: a limit that was lowered stays low."""
    program = (
        f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from hourmark_delivery_service.process.server import raise_open_file_limit\n"
        "raise_open_file_limit(100); print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if then is not None:
        assert (ended.stdout, ended.returncode) == (f"{then}\n", 0)
    else:
        assert "service.connections_max = 100" in ended.stderr and "set at most 99" in ended.stderr


def test_before_types_are_applied_by_this_version_reports_are_framed_as_before() -> None:
    registry = MemoryRegistry()
    registry.register("hourmark.hosts", host_reports.SCHEMA_BEFORE_UNKNOWN)
    registry.register("hourmark.audit", audit.SCHEMA)

    def found() -> framing.Framing:
        return asyncio.run(framing.find_framing(registry, {True}, dict, lambda _: None))

    assert (found().hosts, found().with_unknown_losses) == (b"\0\0\0\0\x01", False)
    registry.register("hourmark.hosts", host_reports.SCHEMA)
    assert (found().hosts, found().with_unknown_losses) == (b"\0\0\0\0\x03", True)
