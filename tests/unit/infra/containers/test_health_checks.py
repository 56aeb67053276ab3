"""Each role that stays can be asked how it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tests.support.clock import FakeClock

from hourmark_infra.containers import health_checks
from hourmark_infra.containers.roles import Container
from hourmark_infra.containers.site import read_site
from hourmark_infra.stack.health import Health

SERVICES = yaml.safe_load((Path(__file__).parents[4] / "docker-compose.yml").read_text())[
    "services"
]
ASKED = sorted(
    name
    for name, service in SERVICES.items()
    if "--ask" in service.get("healthcheck", {}).get("test", ())
)
WELL = Health(True, "well")


def container(name: str, shared: Path) -> Container:
    return Container(name, read_site({}), shared, shared, FakeClock())


@pytest.mark.parametrize("name", ASKED)
def test_a_role_with_a_health_check_is_asked_in_its_own_way(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters.json").write_text('{"edge": "e", "central": "c"}')
    monkeypatch.setattr(health_checks, "_client_ssl_context", lambda _: True)
    asked: list[str] = []

    def answering(url: str, *_: object) -> Health:
        asked.append(url)
        return WELL

    for way in ("_check_http", "_check_listening", "check_mirror"):
        monkeypatch.setattr(health_checks, way, answering)
    monkeypatch.setattr(health_checks, "LOGS", tmp_path)
    (tmp_path / "app.log").touch()
    os.utime(tmp_path / "app.log", (FakeClock().now_ms() / 1000, FakeClock().now_ms() / 1000 - 1))
    own = container(name, tmp_path)
    if (server := own.server()) is not None:
        assert server.name == name
        return
    assert health_checks.check_role(own).ok
    assert asked or name == "application"


def test_a_program_that_stopped_logging_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "LOGS", tmp_path)
    assert health_checks.check_role(container("application", tmp_path)) == Health(
        False, "has not logged yet"
    )
    (tmp_path / "app.log").touch()
    long_ago_s = FakeClock().now_ms() / 1000 - 61
    os.utime(tmp_path / "app.log", (long_ago_s, long_ago_s))
    assert health_checks.check_role(container("application", tmp_path)) == Health(
        False, "logged 61 s ago"
    )


def test_where_nobody_listens_it_is_not_well() -> None:
    assert not health_checks._check_http("http://127.0.0.1:1/healthz").ok
    assert not health_checks._check_listening("127.0.0.1:1").ok
