"""The programs in examples/posting against the real service behind its real HTTP server, through a
proxy that damages exchanges: no event is lost, and none is stored under two ids.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.posting_examples import FOLDER, LANGUAGES, Program, build, numbers_by_id
from tests.support.service import faulty_proxy as faults
from tests.support.service.faulty_proxy import FaultyProxy, Step, faulty_proxy
from tests.support.service.harness import Harness
from tests.support.service.threaded import Served, served
from tests.support.service.tokens import known

from hourmark.clock import SystemClock
from hourmark.config.groups import ServiceTls
from hourmark_delivery_service.errors import QueueUnavailable

TLS_SETTINGS = {
    "python": "SSL_CERT_FILE={folder}/ca.pem",
    "go": "SSL_CERT_FILE={folder}/ca.pem",
    "javascript": "NODE_EXTRA_CA_CERTS={folder}/ca.pem",
    "java": (
        "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore={folder}/ca.p12"
        " -Djavax.net.ssl.trustStorePassword=changeit"
    ),
}
SLOW = ("java", "go", "javascript")  # to build or to start
PARAMETERS = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in LANGUAGES
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    programs: dict[str, Program] = {}

    def get(language: str) -> Program:
        if language not in programs:
            programs[language] = build(language, tmp_path_factory.mktemp(language))
        return programs[language]

    return get


@pytest.fixture(params=PARAMETERS)
def program(built: Callable[[str], Program], request: pytest.FixtureRequest) -> Program:
    return built(request.param)


@pytest.fixture
def service() -> Iterator[Served]:
    with served(clock=SystemClock()) as found:
        yield found


def events(numbers: range) -> bytes:
    return b"".join(b'{"user": "u\xe2\x80\xa8", "ms": %d}\n' % number for number in numbers)


def while_queue_fails(h: Harness, after: int) -> Step:
    """The queue fails when it has stored so many records, so the service answers 503."""

    def step(exchange: faults.Exchange) -> None:
        h.queue.fail_with, h.queue.fail_after = QueueUnavailable("no in-sync replicas"), after
        reply = exchange.forward()
        h.queue.fail_with = None
        assert (reply.status, json.loads(reply.body)["code"]) == (503, "queue")
        exchange.reply(reply)

    return step


def stored(h: Harness) -> list[int]:
    """The numbers of the events in the queue, once for each id."""
    return sorted(numbers_by_id(h.queue, "ms").values())


def keys_by_batch(proxy: FaultyProxy) -> dict[bytes, set[str]]:
    found: dict[bytes, set[str]] = {}
    for seen in proxy.seen:
        found.setdefault(seen.body, set()).add(seen.key)
    return found


def of_every_kind(h: Harness) -> list[Step]:
    """Faults for three batches; the last step of each batch passes it on."""
    return [
        *(faults.cut_before_request, faults.lose_response, faults.pass_on),
        *(faults.cut_during_request, faults.cut_during_response, faults.pass_on),
        faults.answer(502),
        faults.problem(429, "rate", 1),
        while_queue_fails(h, after=100),
        while_queue_fails(h, after=250),  # every event, and not the audit record
    ]


@pytest.mark.slow  # the program waits between attempts
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_fault_loses_or_doubles_an_event(
    built: Callable[[str], Program], service: Served, language: str
) -> None:
    h = service.harness
    with faulty_proxy(service.port, of_every_kind(h)) as proxy:
        ended = built(language).post(events(range(1250)), proxy.url + "/", "click")
    assert (ended.returncode, ended.stdout) == (0, "1250 events stored, 0 rejected\n"), ended.stderr
    assert stored(h) == list(range(1250))
    assert len(proxy.seen) == 11, "each step of the script was used"
    keys = keys_by_batch(proxy)
    assert [len(found) for found in keys.values()] == [1, 1, 1], "a batch keeps its key"
    assert len(set.union(*keys.values())) == 3, "each batch has a key of its own"


@pytest.mark.slow
def test_a_program_that_renews_the_key_of_a_retry_is_found(service: Served, tmp_path: Path) -> None:
    fault = ('"Idempotency-Key": uuid7()}', '"Idempotency-Key": "k"}')
    renewed = (
        "            status, retry",
        '            headers["Idempotency-Key"] = uuid7()\n            status, retry',
    )
    program = planted(tmp_path, fault, renewed)
    with faulty_proxy(service.port, [faults.lose_response]) as proxy:
        assert program.post(events(range(3)), proxy.url, "click").returncode == 0
    assert stored(service.harness) == [0, 0, 1, 1, 2, 2]


def test_a_program_that_does_not_retry_is_found(service: Served, tmp_path: Path) -> None:
    program = planted(
        tmp_path, ("raise GaveUp(problem)", 'return {"events": 3, "dead_letters": 0}')
    )
    with faulty_proxy(service.port, [faults.cut_before_request]) as proxy:
        ended = program.post(
            events(range(3)), proxy.url, "click", variables={"HOURMARK_RETRY_SECONDS": "0"}
        )
    assert ended.returncode == 0
    assert stored(service.harness) == []


def planted(folder: Path, *replaced: tuple[str, str]) -> Program:
    """The Python example with these texts replaced."""
    text = (FOLDER / "post_events.py").read_text()
    for old, new in replaced:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "planted.py").write_text(text)
    command = LANGUAGES["python"].build(folder)
    return Program("python", [command[0], str(folder / "planted.py")])


def test_a_rejected_event_is_named_by_its_line_and_the_others_are_stored(
    program: Program, service: Served
) -> None:
    lines = events(range(502)).splitlines(keepends=True)
    lines[1], lines[500] = b"\n", b'{"user": "u", "ms": "x"}\n'
    ended = program.post(b"".join(lines)[:-1], f"http://127.0.0.1:{service.port}", "click")
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == "500 events stored, 1 rejected\n"
    assert "501" in ended.stderr
    assert "wrong_field" in ended.stderr
    assert len(numbers_by_id(service.harness.queue, "ms")) == 500


def test_a_refused_request_is_not_sent_again(program: Program, service: Served) -> None:
    with faulty_proxy(service.port) as proxy:
        ended = program.post(events(range(600)), proxy.url, "clack")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "unknown_type" in ended.stderr
    assert [seen.status for seen in proxy.seen] == [404]


@pytest.mark.parametrize("status", [302, 400, 501])
def test_any_other_status_is_final(program: Program, service: Served, status: int) -> None:
    step = faults.answer(status, Location="/elsewhere")
    with faulty_proxy(service.port, [step]) as proxy:
        ended = program.post(events(range(1)), proxy.url, "click")
    assert ended.returncode == 2, ended.stderr
    assert len(proxy.seen) == 1


def test_a_batch_is_given_up_after_the_time_for_retries(program: Program, service: Served) -> None:
    with faulty_proxy(service.port, then=faults.cut_before_request) as proxy:
        ended = program.post(
            events(range(1)), proxy.url, "click", variables={"HOURMARK_RETRY_SECONDS": "1.5"}
        )
    assert ended.returncode == 3, ended.stderr
    assert "given up" in ended.stderr
    assert len(proxy.seen) >= 2
    assert not service.harness.queue.records


def test_the_wait_is_at_least_the_time_that_the_service_asks_for(
    program: Program, service: Served
) -> None:
    with faulty_proxy(service.port, then=faults.problem(503, "queue", 3600)) as proxy:
        ended = program.post(events(range(1)), proxy.url, "click")
    assert ended.returncode == 3, "an hour is longer than the time for retries"
    assert len(proxy.seen) == 1


def test_validation_stores_nothing(program: Program, service: Served) -> None:
    url = f"http://127.0.0.1:{service.port}"
    ended = program.post(events(range(3)), "--validate-only", url, "click")
    assert (ended.returncode, ended.stdout) == (0, "3 events valid, 0 rejected\n"), ended.stderr
    ended = program.post(events(range(3)) + b"{}\n", "--validate-only", url, "click")
    assert (ended.returncode, ended.stdout) == (1, "3 events valid, 1 rejected\n"), ended.stderr
    assert "missing_field" in ended.stderr
    assert not service.harness.queue.records


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_rate_limit_of_a_token_only_delays(
    built: Callable[[str], Program], language: str
) -> None:
    with served(clock=SystemClock(), tokens_required=True) as service:
        token = known(service.harness, events_per_second=150, types=("click",))
        with faulty_proxy(service.port) as proxy:
            ended = built(language).post(
                events(range(501)), proxy.url, "click", variables={"HOURMARK_TOKEN": token.text}
            )
    assert ended.returncode == 0, ended.stderr
    assert [seen.status for seen in proxy.seen] == [200, 429, 200]
    assert stored(service.harness) == list(range(501))


def test_a_token_that_is_not_known_is_reported_though_the_batch_is_large(program: Program) -> None:
    """The service answers before it reads the body, and ends the connection."""
    line = json.dumps({"user": "u" * 900_000, "ms": 1}).encode()
    with served(clock=SystemClock(), tokens_required=True) as service:
        known(service.harness)
        ended = program.post(
            line,
            f"http://127.0.0.1:{service.port}",
            "click",
            variables={"HOURMARK_TOKEN": "hmk_x", "HOURMARK_RETRY_SECONDS": "1"},
        )
    assert ended.returncode == 2, ended.stderr
    assert "unknown_token" in ended.stderr


def test_a_private_ca_is_trusted_by_the_documented_setting(
    program: Program, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("service")
    page = (FOLDER.parents[1] / "docs" / "start" / "post-events.md").read_text()
    variable = TLS_SETTINGS[program.language].format(folder=tmp_path / "ca")
    assert f"`{TLS_SETTINGS[program.language].replace('{folder}/', '')}`" in page
    if program.language == "java":
        (command,) = re.findall(r"keytool .*", page)
        subprocess.run(command.split(), cwd=tmp_path / "ca", check=True, capture_output=True)
    name, _, value = variable.partition("=")
    with served(
        ServiceTls(certificate=pair.certificate, key=pair.key), clock=SystemClock()
    ) as service:
        url = f"https://localhost:{service.port}"
        trusting = program.post(
            events(range(3)),
            url,
            "click",
            variables={name: value, "HOURMARK_RETRY_SECONDS": "5"},
        )
        assert (trusting.returncode, stored(service.harness)) == (0, [0, 1, 2]), trusting.stderr
        other = program.post(
            events(range(3)), url, "click", variables={"HOURMARK_RETRY_SECONDS": "0"}
        )
        assert other.returncode == 3


@pytest.mark.parametrize("arguments", [(), ("http://x",), ("localhost:8780", "click")])
def test_wrong_arguments_are_refused(program: Program, arguments: tuple[str, ...]) -> None:
    ended = program.post(b"", *arguments)
    assert ended.returncode == 2
    assert "usage:" in ended.stderr


def test_no_events_are_no_request(program: Program, service: Served) -> None:
    with faulty_proxy(service.port) as proxy:
        ended = program.post(b"", proxy.url, "click")
    assert (ended.returncode, ended.stdout) == (0, "0 events stored, 0 rejected\n")
    assert proxy.seen == []


def test_a_batch_stays_within_the_limit_of_the_service(program: Program, service: Served) -> None:
    line = json.dumps({"user": "u" * 30_000, "ms": 1}).encode() + b"\n"
    long = json.dumps({"user": "u" * 2_000_000, "ms": 1}).encode() + b"\n"
    with faulty_proxy(service.port) as proxy:
        ended = program.post(line * 40 + long + line, proxy.url, "click")
    assert (ended.returncode, ended.stdout) == (0, "42 events stored, 0 rejected\n"), ended.stderr
    sizes = [len(seen.body) for seen in proxy.seen]
    assert sizes == [33 * len(line), 7 * len(line), len(long), len(line)]
