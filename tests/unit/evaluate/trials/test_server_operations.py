"""Commands of the user: filled in, run, and never half of a pair."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from tests.support.documents import ROOT, console_lines
from tests.support.waiting import wait_for

from hourmark.errors import Unavailable, UsageError
from hourmark.kafka.mirror import MirrorLeader, MirrorWorkers
from hourmark_evaluate.cli import _reconstruct_command, command
from hourmark_evaluate.execution.server_operations import (
    ServerOperations,
    describe_missing_operations,
    operations_from_commands,
)
from hourmark_evaluate.trials import leaders

ADDRESS = "kafka-2.example:9092"


def _hands(**commands: str) -> ServerOperations:
    return operations_from_commands(commands, lambda _: ADDRESS)


def test_what_stands_for_a_broker_is_filled_in_for_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "it's here"
    text = f'echo {{broker}} {{host}} {{port}} "$((1 + 1))" >> "{out}"'
    operations = _hands(stop_broker=text, start_broker=text)
    assert operations.stop_broker and operations.start_broker
    operations.stop_broker(2)
    operations.start_broker(2)
    assert out.read_text() == "2 kafka-2.example 9092 2\n" * 2


def test_a_topic_is_filled_in_and_quoted(tmp_path: Path) -> None:
    operations = _hands(refuse_target=f"echo {{topic}} > {tmp_path}/out", accept_target="true")
    assert operations.refuse_target
    operations.refuse_target("a; rm -rf b")
    assert (tmp_path / "out").read_text() == "a; rm -rf b\n"


def test_the_worker_that_leads_is_named_by_the_address_of_its_rest(tmp_path: Path) -> None:
    operations = _hands(
        **dict.fromkeys(
            ("pause_worker", "resume_worker"), f"echo {{host}} {{port}} >> {tmp_path}/out"
        )
    )
    assert operations.pause_worker and operations.resume_worker
    operations.pause_worker("mirror-1.example:8783")
    operations.resume_worker("mirror-1.example:8783")
    assert (tmp_path / "out").read_text() == "mirror-1.example 8783\n" * 2


def test_who_leads_a_mirror_is_tried_where_there_are_two_and_a_hand() -> None:
    leader = MirrorLeader("a", "mirror-1:8783")
    operations, two = (
        _hands(stop_worker="true", start_worker="true"),
        MirrorWorkers(("10.0.0.1", "10.0.0.2"), leader),
    )
    assert leaders.why_leader_unavailable(two, operations, "killed") == ""
    assert (
        leaders.why_leader_unavailable(two, operations, "paused")
        == "needs --pause-worker and --resume-worker"
    )
    assert "the mirror has one worker" in leaders.why_leader_unavailable(
        MirrorWorkers(("10.0.0.1",), leader), operations, "killed"
    )
    assert "the leading worker is unknown" in leaders.why_leader_unavailable(
        MirrorWorkers(two.hosts), operations, "killed"
    )
    there = two._replace(leader=MirrorLeader("a", "127.0.0.1:8783"))
    assert (
        "127.0.0.1:8783, which workers on other hosts cannot reach"
        in leaders.why_leader_unavailable(there, operations, "killed")
    )


def test_a_command_that_fails_is_named() -> None:
    operations = _hands(stop_mirror="exit 3", start_mirror="true")
    assert operations.stop_mirror
    with pytest.raises(Unavailable, match="`exit 3` failed with exit code 3"):
        operations.stop_mirror()


def test_a_command_that_does_not_return_is_ended_with_all_that_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_evaluate.execution.server_operations.COMMAND_SECONDS", 0.5)
    operations = _hands(
        stop_mirror=f"sh -c 'echo $$ > {tmp_path}/pid; sleep 60; true'; true", start_mirror="true"
    )
    assert operations.stop_mirror
    with pytest.raises(Unavailable, match="did not return within 0 s and was killed"):
        operations.stop_mirror()
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
            "--stop-mirror: placeholder {host} is not supported",
        ),
        (
            "stop_worker",
            "start_worker",
            "x {broker}",
            "--stop-worker: placeholder {broker} is not supported",
        ),
        ("refuse_target", "accept_target", "x {host} {topic}", "supported placeholders: {topic}"),
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
    with pytest.raises(UsageError, match="also needs --"):
        _hands(**{lone: "true"})


def test_what_is_missing_is_named_by_its_options() -> None:
    assert (
        describe_missing_operations(ServerOperations(), "stop_broker", "start_broker")
        == "needs --stop-broker and --start-broker"
    )
    assert (
        describe_missing_operations(
            _hands(stop_broker="true", start_broker="true"), "stop_broker", "start_broker"
        )
        == ""
    )
    with pytest.raises(
        UsageError, match="--wipe-broker also needs --stop-broker and --start-broker"
    ):
        _hands(wipe_broker="true")


def test_the_documented_commands_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").touch()
    text = (ROOT / "docs" / "how-to" / "size-a-site.md").read_text()
    shown = [
        shlex.split(line)[2:]
        for line in console_lines(text)
        if line.startswith("hourmark evaluate")
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
            "--stop-broker, --jmx: only for your own clusters; name the edge cluster with --bootstrap",
        ),
        (["--quick", "--seconds", "9"], "--quick sets --seconds"),
        (
            ["--bootstrap", "127.0.0.1:1", "--stop-broker", "true"],
            "--stop-broker also needs --start-broker",
        ),
        (["--from", "FILE"], "does not contain a result of `hourmark evaluate`"),
        (
            ["--bootstrap", "127.0.0.1:1", "--properties", "FILE"],
            "FILE:1: not of the form NAME=VALUE",
        ),
        (
            ["--alias", "berlin", "--central-properties", "FILE"],
            "--central-properties, --alias: only for your own clusters",
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
    assert "librdkafka's names of settings" in str(result.exception)


def test_the_command_that_repeats_a_run_has_all_but_what_may_be_secret() -> None:
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
    with command.make_context("evaluate", given) as context:
        shown = _reconstruct_command(context.params)
    assert shown == (
        "hourmark evaluate --bootstrap kafka-1:9092 --central hq:9092 --alias berlin --prefix "
        "mine. --jmx kafka-1:9999 "
        "--stop-broker '…' --start-broker '…' --no-burst --seconds 3600 --rate 1000000 --trial "
        "load"
    )
    with command.make_context("evaluate", []) as context:
        assert _reconstruct_command(context.params) == "hourmark evaluate"
