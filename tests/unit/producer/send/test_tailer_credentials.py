"""The tailer and a service that wants tokens and certificates: it waits, says what to do, and drops
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.service.examples import NOW_MS, syslog
from tests.support.service.threaded import Served, served
from tests.support.service.tokens import of_tailer, record
from tests.support.tailer.host import Host
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import ServiceTls, TailerTls
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError
from hourmark_producer.send import credentials
from hourmark_producer.send.client import DeliveryServiceClient


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def service(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """It wants a token and a certificate."""
    monkeypatch.setattr(credentials, "CHECK_INTERVAL_S", 0.05)
    pair = authority.issue("service")
    tls = ServiceTls(certificate=pair.certificate, key=pair.key, client_ca=authority.ca)
    with served(tls, tokens_required=True) as service:
        yield service


@pytest.fixture
def host(tmp_path: Path, authority: Authority, service: Served) -> Host:
    """A log host with a certificate and an empty token file."""
    host = Host(tmp_path, f"https://localhost:{service.port}")
    pair = authority.issue("tailer")
    host.settings["tls"] = TailerTls(ca=authority.ca, certificate=pair.certificate, key=pair.key)
    host.settings["token_file"] = tmp_path / "token"
    return host


def give(host: Host, text: str) -> None:
    """What an operator does: the file is replaced."""
    file: Path = host.settings["token_file"]
    new = file.with_suffix(".new")
    new.write_text(text + "\n")
    new.replace(file)


def clicks(service: Served) -> int:
    return len(service.harness.queue.of("events.click"))


def test_it_delivers_over_tls_with_a_certificate_and_a_token(host: Host, service: Served) -> None:
    give(host, of_tailer(service.harness, hosts=("host-*",)).text)
    assert host.drain(syslog() * 10).events == 10
    assert clicks(service) == 10


def test_refused_it_waits_says_what_to_do_and_goes_on_with_a_new_token(
    host: Host, service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    good, other = of_tailer(service.harness), of_tailer(service.harness, hosts=("db-*",))
    give(host, good.text)
    with host.running(syslog()):
        wait_for(lambda: clicks(service) == 1, "the first line")
        service.harness.service.access.token_store.feed(
            [record(good.token.revoke(NOW_MS))], from_start=False
        )
        host.append(syslog())
        wait_for(lambda: "was revoked" in caplog.text, "it is told")
        give(host, other.text)
        wait_for(lambda: "does not cover the host" in caplog.text, "it is told")
        assert clicks(service) == 1
        give(host, of_tailer(service.harness).text)
        wait_for(lambda: clicks(service) == 2, "the second line")
    assert "tailer.token_file" in caplog.text
    for token in (good, other):
        assert token.text not in caplog.text


def test_a_revoked_token_is_one_condition_whatever_it_is_refused_for(
    host: Host, service: Served
) -> None:
    good = of_tailer(service.harness)
    give(host, good.text)
    with host.running(syslog()) as tailer:
        wait_for(lambda: clicks(service) == 1, "the first line")
        service.harness.service.access.token_store.feed(
            [record(good.token.revoke(NOW_MS))], from_start=False
        )
        host.append(syslog())

        def refused() -> list[int]:
            ongoing = tailer.conditions.ongoing()
            return [found.times for found in ongoing if "was revoked" in found.message]

        wait_for(lambda: sum(refused()) >= 4, "ranges and reports are refused")
        assert len(refused()) == 1


def test_past_its_rate_it_waits_and_everything_arrives(host: Host, service: Served) -> None:
    lines = syslog() * 10
    give(
        host, of_tailer(service.harness, bytes_per_second=(len(lines) - 1) // 2).text
    )  # a byte more than may come at once
    with host.running(lines):
        wait_for(lambda: clicks(service) == 10, "the first range, whole")
        host.append(syslog())
        registry = service.harness.metrics.registry
        of_rate = ("hourmark_service_denied_total", {"reason": "rate"})
        wait_for(lambda: bool(registry.get_sample_value(*of_rate)), "it is told to wait")
        assert clicks(service) == 10
        service.harness.clock.advance(3600)
        wait_for(lambda: clicks(service) == 11, "the line after the wait")


def test_certificates_are_renewed_while_it_runs(
    host: Host, service: Served, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    give(host, of_tailer(service.harness).text)
    with caplog.at_level("INFO"), host.running(syslog()):
        wait_for(lambda: clicks(service) == 1, "the first line")
        host.settings["tls"].key.write_text("nonsense")
        wait_for(lambda: "certificates were not reloaded" in caplog.text, "it is told")
        host.append(syslog())
        wait_for(lambda: clicks(service) == 2, "with the old one")
        authority.issue("tailer")
        wait_for(lambda: "certificates were reloaded" in caplog.text, "the new one is taken")
        host.append(syslog())
        wait_for(lambda: clicks(service) == 3, "with the new one")


def test_a_service_of_another_ca_is_not_believed(
    tmp_path: Path, host: Host, service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    give(host, of_tailer(service.harness).text)
    host.settings["tls"] = TailerTls(ca=Authority(tmp_path / "other").ca)
    with host.running(syslog()):
        wait_for(lambda: "certificate verify failed" in caplog.text, "it is told")
    assert "tailer.tls.ca" in caplog.text
    assert clicks(service) == 0


def test_wrong_files_and_a_token_in_clear_stop_the_start(
    tmp_path: Path, authority: Authority
) -> None:
    token, pair = tmp_path / "token", authority.issue("tailer")
    token.write_text("hmk_0123456789abcdef_" + "A" * 43)

    def link(**settings: object) -> None:
        DeliveryServiceClient(
            TailerConfig.model_validate({"token_file": token, **settings}), SystemClock()
        ).close()

    link(service_urls=["https://elsewhere:1", "http://127.0.0.1:1", "http://localhost:1"])
    with pytest.raises(
        ConfigError,
        match=r"tailer\.service_urls = 'http://elsewhere:1'.*sent unencrypted; use https",
    ):
        link(service_urls=["http://elsewhere:1"])
    with pytest.raises(
        ConfigError, match=r"tailer\.token_file .*No such file.*hourmark token create"
    ):
        link(token_file=tmp_path / "none")
    for content in (b"", b"two words", b"\xff\xfe", "hmk_é".encode(), b"x\r\nHost: y"):
        token.write_bytes(content)
        with pytest.raises(ConfigError, match=r"tailer\.token_file .*contains no valid token"):
            link()
    with pytest.raises(ConfigError, match=r"tailer\.tls\.certificate"):
        link(token_file=None, tls={"certificate": pair.certificate, "key": authority.ca})
    with pytest.raises(ConfigError, match=r"tailer\.tls\.ca"):
        link(token_file=None, tls={"ca": pair.key})
