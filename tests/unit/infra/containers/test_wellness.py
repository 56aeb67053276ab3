"""Each role that stays can be asked how it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tests.support.certificates import Authority
from tests.support.clock import FakeClock

from hourmark_infra.containers import wellness
from hourmark_infra.containers.roles import Container
from hourmark_infra.containers.site import site_of
from hourmark_infra.stack.health import Health, of_port, of_url

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
    return Container(name, site_of({}), shared, shared, FakeClock())


@pytest.mark.parametrize("name", ASKED)
def test_a_role_with_a_health_check_is_asked_in_its_own_way(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters.json").write_text('{"edge": "e", "central": "c"}')
    authority = Authority(tmp_path / "tls")
    pair = authority.issue("client")
    (tmp_path / "tls" / "client.pem").write_bytes(
        pair.key.read_bytes() + pair.certificate.read_bytes()
    )
    asked: list[str] = []

    def answering(url: str, *_: object) -> Health:
        asked.append(url)
        return WELL

    for way in ("of_url", "of_port", "of_mirror"):
        monkeypatch.setattr(wellness, way, answering)
    monkeypatch.setattr(wellness, "LOGS", tmp_path)
    (tmp_path / "app.log").touch()
    os.utime(tmp_path / "app.log", (FakeClock().now_ms() / 1000, FakeClock().now_ms() / 1000 - 1))
    own = container(name, tmp_path)
    if (server := own.server()) is not None:
        assert server.name == name
        return
    assert wellness.ask(own).ok
    assert asked or name == "application"


def test_a_program_that_stopped_logging_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wellness, "LOGS", tmp_path)
    assert wellness.ask(container("application", tmp_path)) == Health(False, "has not logged yet")
    (tmp_path / "app.log").touch()
    long_ago_s = FakeClock().now_ms() / 1000 - 61
    os.utime(tmp_path / "app.log", (long_ago_s, long_ago_s))
    assert wellness.ask(container("application", tmp_path)) == Health(False, "logged 61 s ago")


def test_where_nobody_listens_it_is_not_well() -> None:
    assert not of_url("http://127.0.0.1:1/healthz").ok
    assert not of_port("127.0.0.1:1").ok
