"""What the doctor says of clocks, delivery services, and retention against what is open: each fault
planted is found.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.http_server import Answering, serving
from tests.support.rules import ledger_of_click

from hourmark.config.groups import RegistrySettings, StorageSettings, TailedSource, TailerSettings
from hourmark.config.loading import Config
from hourmark.records.host_reports import CLOCKS_APART_MS_REPORTED
from hourmark.records.hours import Hour
from hourmark_declare.doctor import clocks_check, retention_check, services_check
from hourmark_declare.doctor.check_result import CheckStatus, DoctorCheckResult
from hourmark_declare.doctor.clocks_check import evaluate_clock
from hourmark_declare.doctor.retention_check import evaluate_retention, read_open_hours
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.frontiers import frontiers, move_open_frontiers

H_MS = 3_600_000
NOW_MS = 1_800_000_000_000 // H_MS * H_MS
SOURCES = [TailedSource(name="app", paths=["/var/log/app"])]


def findings(answers: Iterable[DoctorCheckResult]) -> list[str]:
    found = [answer for answer in answers if answer.verdict is CheckStatus.FINDING]
    assert all(answer.to_do for answer in found)
    return [answer.seen for answer in found]


# Clocks


@pytest.mark.parametrize(
    ("clock_ms", "said"),
    [
        (NOW_MS + 200 + CLOCKS_APART_MS_REPORTED, ""),
        (NOW_MS + 200 + CLOCKS_APART_MS_REPORTED + 1, "its clock is 60 s ahead of this machine's"),
        (NOW_MS - 1000 - CLOCKS_APART_MS_REPORTED, ""),
        (NOW_MS - 1000 - CLOCKS_APART_MS_REPORTED - 1, "its clock is 60 s behind this machine's"),
        (NOW_MS + 100, ""),
    ],
)
def test_a_clock_that_is_wrong_is_found(clock_ms: int, said: str) -> None:
    found = findings([evaluate_clock("one", clock_ms, NOW_MS, NOW_MS + 200, tick_ms=1000)])
    assert (found == []) if not said else found[0].startswith(said)


class Clock(Answering):
    """Of another time, that much ahead; it is ready, or says why it is not."""

    ahead_s = 0
    status = 200
    reasons: tuple[str, ...] = ()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return email.utils.formatdate(time.time() + self.ahead_s, usegmt=True)

    def do_GET(self) -> None:
        self.answer(self.status, json.dumps({"reasons": self.reasons}).encode())


class Ahead(Clock):
    """By two minutes."""

    ahead_s = 120


class NotReady(Clock):
    """With a reason."""

    status = 503
    reasons = ("no rules yet",)


def of_servers(address: str) -> Config:
    url = f"http://{address}"
    return Config(
        registry=RegistrySettings(url=url),
        storage=StorageSettings(root="hdfs://namenode/x", webhdfs=url),
        tailer=TailerSettings(service_urls=[url], sources=SOURCES),
    )


def test_if_all_servers_have_another_time_this_machines_clock_is_the_one_finding() -> None:
    with serving(Ahead) as address:
        answers = list(clocks_check.check_clocks(of_servers(address)))
    (found,) = findings(answers)
    assert [answer.subject for answer in answers] == ["this machine"]
    assert f"registry.url, storage.webhdfs, http://{address}" in found
    assert "ahead of this machine's" in found


def test_one_server_of_another_time_is_found_if_others_agree_with_this_machine() -> None:
    with serving(Ahead) as wrong, serving(Clock) as right:
        config = of_servers(right).model_copy(
            update={"registry": RegistrySettings(url=f"http://{wrong}")}
        )
        answers = list(clocks_check.check_clocks(config))
    assert [a.subject for a in answers if a.verdict is CheckStatus.FINDING] == ["registry.url"]
    assert len(answers) == 3


def test_servers_of_this_time_are_well_and_those_away_are_not_asked() -> None:
    with serving(Clock) as address:
        config = of_servers(address)
        assert {answer.verdict for answer in clocks_check.check_clocks(config)} == {
            CheckStatus.PASSED
        }
    assert {answer.verdict for answer in clocks_check.check_clocks(config)} == {CheckStatus.SKIPPED}


# Delivery services


def of_service(url: str) -> list[DoctorCheckResult]:
    return list(
        services_check.check_services(
            Config(tailer=TailerSettings(service_urls=[url], sources=SOURCES))
        )
    )


def test_a_service_that_is_ready_is_well() -> None:
    with serving(Clock) as address:
        (answer,) = of_service(f"http://{address}")
    assert answer.verdict is CheckStatus.PASSED


def test_a_service_that_takes_nothing_is_found_with_its_reasons() -> None:
    with serving(NotReady) as address:
        (found,) = findings(of_service(f"http://{address}"))
    assert found == "it answers with 503, and takes nothing now: no rules yet"


def test_a_service_that_does_not_answer_is_found_but_for_one_of_this_machine_that_does_not_run() -> (
    None
):
    with serving(Clock) as address:
        pass
    (here,), (elsewhere,) = (
        of_service(f"http://{address}"),
        of_service("http://nowhere.invalid:8780"),
    )
    assert (here.verdict, elsewhere.verdict) == (CheckStatus.SKIPPED, CheckStatus.FINDING)
    assert elsewhere.seen.startswith("it does not answer: ")


def test_a_service_whose_certificate_is_not_trusted_is_found() -> None:
    with serving(Clock) as address:  # it speaks no TLS at all
        (found,) = findings(of_service(f"https://{address}"))
    assert found.startswith("it does not answer: ")


def test_without_sources_no_service_is_asked() -> None:
    (answer,) = services_check.check_services(Config())
    assert answer.verdict is CheckStatus.SKIPPED


# Retention


@pytest.mark.parametrize(
    ("age_h", "kept_h", "said"),
    [
        (84, 168, ""),
        (85, 168, "unstaged records will be deleted soon"),
        (169, 168, "what was not staged may be deleted already"),
        (9999, None, ""),
    ],
)
def test_an_open_hour_that_outlives_its_topic_is_found(
    age_h: int, kept_h: int | None, said: str
) -> None:
    hours = {"click": Hour(NOW_MS // 1000 - age_h * 3600)}
    kept = {"click": -1 if kept_h is None else kept_h * H_MS}
    found = findings(evaluate_retention("edge", hours, kept, NOW_MS))
    assert (found == []) if not said else found[0].endswith(said) or said in found[0]


def test_without_a_ledger_or_brokers_it_is_not_asked(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "etl": {"ledger": f"sqlite:///{tmp_path}/none.sqlite"},
            "storage": {"root": f"file://{tmp_path}"},
        }
    )
    assert [answer.verdict for answer in retention_check.check_retention(config)] == [
        CheckStatus.SKIPPED
    ]


def test_an_old_hour_that_is_back_filled_is_not_as_old_as_its_records(tmp_path: Path) -> None:
    first = Hour(NOW_MS // 1000 - 3600)
    with ledger_of_click(f"sqlite:///{tmp_path}/ledger.sqlite", first) as ledger:
        (f,) = frontiers(ledger, first.length_s, ["click"])
        move_open_frontiers(ledger, ledger.acquire(CLOSER), [(f, Hour(1_080_000_000))])
        hours = {"click": read_open_hours(ledger, first.length_s)["click"]}
    assert hours == {"click": first}
    assert findings(evaluate_retention("edge", hours, {"click": 24 * H_MS}, NOW_MS)) == []
