"""Commands of the user: filled in, run, and never half of a pair."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner
from tests.support.documents import ROOT
from tests.support.waiting import wait_for

from hourmark.errors import Unavailable, UsageError
from hourmark.kafka.mirror import MirrorLeader, MirrorWorkers
from hourmark_evaluate import cli
from hourmark_evaluate.cli import command
from hourmark_evaluate.hands import Hands, missing, of_commands
from hourmark_evaluate.trials import mirror_leader

ADDRESS = "kafka-2.example:9092"


def _hands(**commands: str) -> Hands:
    return of_commands(commands, lambda _: ADDRESS)


def test_what_stands_for_a_broker_is_filled_in_for_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "it's here"
    text = f'echo {{broker}} {{host}} {{port}} "$((1 + 1))" >> "{out}"'
    hands = _hands(stop_broker=text, start_broker=text)
    assert hands.stop_broker and hands.start_broker
    hands.stop_broker(2)
    hands.start_broker(2)
    assert out.read_text() == "2 kafka-2.example 9092 2\n" * 2


def test_a_topic_is_filled_in_and_quoted(tmp_path: Path) -> None:
    hands = _hands(refuse_target=f"echo {{topic}} > {tmp_path}/out", accept_target="true")
    assert hands.refuse_target
    hands.refuse_target("a; rm -rf b")
    assert (tmp_path / "out").read_text() == "a; rm -rf b\n"


def test_the_worker_that_leads_is_named_by_the_address_of_its_rest(tmp_path: Path) -> None:
    hands = _hands(
        **dict.fromkeys(
            ("pause_worker", "resume_worker"), f"echo {{host}} {{port}} >> {tmp_path}/out"
        )
    )
    assert hands.pause_worker and hands.resume_worker
    hands.pause_worker("mirror-1.example:8783")
    hands.resume_worker("mirror-1.example:8783")
    assert (tmp_path / "out").read_text() == "mirror-1.example 8783\n" * 2


def test_who_leads_a_mirror_is_tried_where_there_are_two_and_a_hand() -> None:
    leader = MirrorLeader("a", "mirror-1:8783")
    hands, two = (
        _hands(stop_worker="true", start_worker="true"),
        MirrorWorkers(("10.0.0.1", "10.0.0.2"), leader),
    )
    assert mirror_leader.why_not(two, hands, "killed") == ""
    assert mirror_leader.why_not(two, hands, "paused") == "needs --pause-worker and --resume-worker"
    assert "it takes two" in mirror_leader.why_not(
        MirrorWorkers(("10.0.0.1",), leader), hands, "killed"
    )
    assert "could not be told" in mirror_leader.why_not(MirrorWorkers(two.hosts), hands, "killed")
    there = two._replace(leader=MirrorLeader("a", "127.0.0.1:8783"))
    assert (
        "127.0.0.1:8783, where workers on other hosts look for it in vain"
        in mirror_leader.why_not(there, hands, "killed")
    )


def test_a_command_that_fails_is_named() -> None:
    hands = _hands(stop_mirror="exit 3", start_mirror="true")
    assert hands.stop_mirror
    with pytest.raises(Unavailable, match="`exit 3` failed with exit code 3"):
        hands.stop_mirror()


def test_a_command_that_does_not_return_is_ended_with_all_that_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_evaluate.hands.COMMAND_SECONDS", 0.5)
    hands = _hands(
        stop_mirror=f"sh -c 'echo $$ > {tmp_path}/pid; sleep 60; true'; true", start_mirror="true"
    )
    assert hands.stop_mirror
    with pytest.raises(Unavailable, match="was not done after 0 s; it must return by then"):
        hands.stop_mirror()
    pid = int((tmp_path / "pid").read_text())
    wait_for(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
        "it is gone",
        10,
        0.05,
    )


@pytest.mark.parametrize(
    ("hand", "other", "text", "says"),
    [
        (
            "stop_mirror",
            "start_mirror",
            "ssh {host} x",
            "--stop-mirror: nothing stands for {host} there",
        ),
        (
            "stop_worker",
            "start_worker",
            "x {broker}",
            "--stop-worker: nothing stands for {broker} there",
        ),
        ("refuse_target", "accept_target", "x {host} {topic}", "placeholders it knows: {topic}"),
    ],
)
def test_a_placeholder_that_nothing_stands_for_is_refused(
    hand: str, other: str, text: str, says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        _hands(**{hand: text, other: "true"})
    _hands(**{hand: "awk '{print $1}' ${HOME}/x", other: "true"})


@pytest.mark.parametrize(
    "lone",
    [
        "stop_broker",
        "resume_broker",
        "refuse_target",
        "start_worker",
        "pause_worker",
        "start_mirror",
    ],
)
def test_half_of_a_pair_is_refused(lone: str) -> None:
    with pytest.raises(UsageError, match="what is done must be undone"):
        _hands(**{lone: "true"})


def test_what_is_missing_is_named_by_its_options() -> None:
    assert (
        missing(Hands(), "stop_broker", "start_broker") == "needs --stop-broker and --start-broker"
    )
    assert (
        missing(_hands(stop_broker="true", start_broker="true"), "stop_broker", "start_broker")
        == ""
    )
    with pytest.raises(UsageError, match="--wipe-broker is run between"):
        _hands(wipe_broker="true")


def test_the_commands_of_the_readme_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").touch()
    text = (ROOT / "README.md").read_text().replace("\\\n", "")
    shown = [
        shlex.split(line)[3:]
        for line in text.splitlines()
        if line.startswith("$ ./hourmark evaluate")
    ]
    assert len(shown) == 2
    for arguments in shown:
        with command.make_context("evaluate", arguments) as context:
            assert (
                arguments == []
                or context.params["start_broker"] == "ssh {host} sudo systemctl start kafka"
            )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--stop-broker", "x", "--jmx", "a:1"],
            "--stop-broker, --jmx: of clusters of yours, so --bootstrap must name the edge",
        ),
        (["--quick", "--seconds", "9"], "--quick is a number of --seconds"),
        (
            ["--bootstrap", "127.0.0.1:1", "--stop-broker", "true"],
            "--stop-broker needs --start-broker beside it",
        ),
        (["--from", "FILE"], "is no result of `hourmark evaluate`"),
        (["--bootstrap", "127.0.0.1:1", "--properties", "FILE"], "FILE:1: not NAME=VALUE"),
        (
            ["--alias", "berlin", "--central-properties", "FILE"],
            "--central-properties, --alias: of clusters of yours",
        ),
        (["--report", "FILE/result"], "--report FILE/result: Not a directory"),
    ],
)
def test_wrong_use_is_told_before_anything_is_tried(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("nothing of the kind\n")
    result = CliRunner().invoke(command, [word.replace("FILE", str(file)) for word in arguments])
    assert isinstance(result.exception, UsageError), result.output
    assert says.replace("FILE", str(file)) in str(result.exception)


def test_settings_by_the_names_of_java_are_told(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required;\n"
    )
    arguments = ["--bootstrap", "127.0.0.1:1", "--properties", str(file), "--report", str(tmp_path)]
    result = CliRunner().invoke(command, arguments)
    assert isinstance(result.exception, UsageError), result.output
    assert "Java JAAS configuration is not supported" in str(result.exception)
    assert "librdkafka's names, which are not Java's" in str(result.exception)


def command_that_repeats(given: list[str], report: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the report of a run with these arguments names, which needs no cluster here."""

    @contextmanager
    def no_stack(*_: object) -> Iterator[None]:
        yield None

    def stop(*arguments: object) -> None:
        raise UsageError(str(arguments[3]))

    edge = SimpleNamespace(address=lambda _: ADDRESS)
    monkeypatch.setattr(cli, "reachable", lambda *_: edge)
    monkeypatch.setattr(cli, "users_world", lambda *_: None)
    monkeypatch.setattr(cli, "local_world", no_stack)
    monkeypatch.setattr(cli, "evaluate", stop)
    result = CliRunner().invoke(command, [*given, "--report", str(report)])
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


def test_the_command_that_repeats_a_run_has_all_but_what_may_be_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [
        *(
            "--bootstrap",
            "kafka-1:9092",
            "--central",
            "hq:9092",
            "--alias",
            "berlin",
            "--rate",
            "1000000",
            "--seconds",
            "3600",
        ),
        *("--jmx", "kafka-1:9999", "--no-burst", "--trial", "load", "--prefix", "mine."),
        *("--stop-broker", "curl -u me:secret {host}", "--start-broker", "true"),
    ]
    shown = command_that_repeats(given, tmp_path, monkeypatch)
    assert shown == (
        "hourmark evaluate --bootstrap kafka-1:9092 --central hq:9092 --alias berlin --prefix "
        "mine. --jmx kafka-1:9999 "
        "--stop-broker '…' --start-broker '…' --no-burst --seconds 3600 --rate 1000000 --trial "
        "load"
    )
    assert command_that_repeats([], tmp_path, monkeypatch) == "hourmark evaluate"
