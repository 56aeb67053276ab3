"""`hourmark evaluate` on the test stack: what it sees there, what it does not try, and that it
leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.servers import come_back
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark_evaluate.clients.load_producer import constant_rate
from hourmark_evaluate.evaluation import evaluate, stack_environment
from hourmark_evaluate.execution.environment import EvaluationOptions, TrialEnvironment
from hourmark_evaluate.execution.trial_run import start_trial_run
from hourmark_evaluate.results import TrialResult, from_json
from hourmark_evaluate.trials import TRIALS
from hourmark_evaluate.verdicts import EvaluationVerdict, KafkaProperty, property_verdicts
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.kafka import PASSWORD, ROLE
from hourmark_infra.stack.layout import JMX
from hourmark_infra.stack.process import find_by_mark_prefix

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600), pytest.mark.usefixtures("mirror_runs")]

WISH = EvaluationOptions(seconds=5.0, rate=2000)


@pytest.fixture
def environment(stack: LocalStack) -> TrialEnvironment:
    return stack_environment(stack, WISH, SystemClock(), lambda line: print(line, file=sys.stderr))


def topics_of(stack: LocalStack, part: str) -> list[str]:
    """On both clusters."""
    admins = [
        AdminClient({"bootstrap.servers": stack.layout.bootstrap(cluster)})
        for cluster in ("edge", "central")
    ]
    return [
        name for admin in admins for name in admin.list_topics(timeout=20).topics if part in name
    ]


def tried(environment: TrialEnvironment, *names: str) -> tuple[TrialResult, ...]:
    """All of them, with no property broken and no topic left."""
    result = evaluate(environment, names, "the test stack", "hourmark evaluate")
    assert [one.faults for one in property_verdicts(result) if one.faults] == []
    assert [trial.not_tried for trial in result.trials] == [""] * len(names)
    metrics = next(
        one for one in property_verdicts(result) if one.property is KafkaProperty.METRICS_AGREE
    )
    assert (metrics.verdict is EvaluationVerdict.KEPT) == (environment.jmx is not None)
    return result.trials


def test_a_short_run_keeps_all_that_it_tries(
    stack: LocalStack, environment: TrialEnvironment
) -> None:
    load, backlog = tried(environment, "load", "backlog")
    assert load.cost and load.cost.events > 0 and load.cost.broker_cpu_s
    assert backlog.backlog and backlog.backlog.caught_up_s is not None
    assert {counts.place for counts in backlog.counts} == {"edge", "consumer"}
    assert topics_of(stack, environment.run_id) == []


@pytest.mark.long
def test_a_mirror_whose_target_refuses_claims_nothing_false_and_goes_on(
    stack: LocalStack, environment: TrialEnvironment
) -> None:
    (mirror,) = tried(environment, "mirror-refused")
    assert {counts.place for counts in mirror.counts} == {"edge", "central"}
    assert mirror.claims and mirror.claims.samples > 0
    assert mirror.claims.waiting_max > WISH.steady_rate, "records waited while the target refused"
    assert topics_of(stack, environment.run_id) == []


def test_what_is_planted_in_real_topics_is_found(
    stack: LocalStack, environment: TrialEnvironment
) -> None:
    with start_trial_run(
        environment, "planted", "faults planted in a real topic", constant_rate(500.0)
    ) as trial:
        trial.wait_under_load(2.0)
        trial.load.stop()
        topic = trial.load.placement.topics[0]
        producer = Producer({"bootstrap.servers": stack.layout.bootstrap("edge")})
        producer.produce(topic, environment.record_format.encode(0), partition=0)
        producer.produce(topic, b"of somebody else", partition=0)
        assert producer.flush(20) == 0
        gone = TopicPartition(topic, 1, 2)
        for future in environment.edge.cluster.admin.delete_records([gone]).values():
            future.result(20)
        result = trial.finish()
    (counts,) = result.counts
    assert (counts.lost, counts.doubled, counts.phantom, counts.disordered) == (2, 1, 1, 0)
    if stack.jmx:
        assert not all(c.ours == c.brokers for c in result.comparisons), (
            "the brokers' log ends know of what was deleted"
        )


@pytest.mark.long
def test_on_clusters_of_the_user_what_stops_servers_is_not_tried_without_a_command(
    stack: LocalStack, tmp_path: Path
) -> None:
    jmx = (
        [
            word
            for name in stack.brokers
            for word in ("--jmx", stack.layout.address(f"{name}-{JMX}"))
        ]
        if stack.jmx
        else []
    )
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "hourmark",
                "evaluate",
                "--seconds",
                "5",
                "--rate",
                "2000",
                "--report",
                str(tmp_path),
            ),
            *(
                "--bootstrap",
                stack.layout.bootstrap("edge"),
                "--central",
                stack.layout.bootstrap("central"),
            ),
            *jmx,
            *(("--jmx-user", ROLE) if jmx else ()),
        ],
        env={**os.environ, "HOURMARK_JMX_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = from_json((tmp_path / "evaluation.json").read_bytes())
    reasons = {trial.name: trial.not_tried for trial in result.trials}
    assert reasons == {
        "load": "",
        "brokers-replaced": "needs --stop-broker and --start-broker",
        "backlog": "",
        "mirror-refused": "needs --refuse-target and --accept-target",
        "leaders": "needs --stop-broker and --start-broker",
        "producers": "needs --stop-broker and --start-broker",
    }
    for trial in (trial for trial in result.trials if trial.tried):
        assert len(trial.comparisons) == 3 if jmx else "needs --jmx" in trial.not_compared
    page = (tmp_path / "evaluation.html").read_text()
    assert "not tried" in page and "--refuse-target" in page
    assert topics_of(stack, "hourmark-evaluate.") == []


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_the_whole_command_on_a_stack_of_its_own(tmp_path: Path) -> None:
    """Every trial, short; brokers lose their disks here, so not on the stack of other tests."""
    command = (
        sys.executable,
        "-m",
        "hourmark",
        "evaluate",
        "--quick",
        "--rate",
        "2000",
        "--report",
        str(tmp_path / "report"),
    )
    environment = {**os.environ, "HOURMARK_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=2000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = from_json((tmp_path / "report" / "evaluation.json").read_bytes())
    assert {trial.name: trial.not_tried for trial in result.trials} == dict.fromkeys(TRIALS, "")
    assert {one.verdict for one in property_verdicts(result)} == {EvaluationVerdict.KEPT}
    assert sum(len(trial.disturbances) for trial in result.trials) == 14
    (leaders,) = (trial for trial in result.trials if trial.name == "leaders")
    assert [(takeover.how, takeover.workers) for takeover in leaders.takeovers] == [
        ("killed", 2),
        ("paused", 2),
    ]
    assert result.central_brokers == 3
    assert "records were written is left" in result.trials[1].notes[0]
    assert find_by_mark_prefix(f"{tmp_path / 'home'}/") == {}, "no server runs on"


def hand_of(stack: LocalStack, folder: Path) -> str:
    """A command that kills or starts a broker, as a user would have one over ssh."""
    script = folder / "hand.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom hourmark_infra.stack import LocalStack\n"
        f"stack = LocalStack.load(Path({str(stack.home)!r}))\n"
        "getattr(stack, sys.argv[1])('edge-' + sys.argv[2])\n"
    )
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"


@pytest.mark.long
def test_commands_of_the_user_take_brokers_away_and_bring_them_back(
    stack: LocalStack, tmp_path: Path
) -> None:
    hand = hand_of(stack, tmp_path)
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "hourmark",
                "evaluate",
                "--seconds",
                "5",
                "--rate",
                "2000",
                "--trial",
                "brokers-replaced",
            ),
            *("--bootstrap", stack.layout.bootstrap("edge"), "--report", str(tmp_path)),
            *(
                "--stop-broker",
                f"{hand} kill {{broker}}",
                "--start-broker",
                f"{hand} start {{broker}}",
            ),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = from_json((tmp_path / "evaluation.json").read_bytes()).trials
    assert len(trial.disturbances) == 3 and all(
        d.recovered_s is not None for d in trial.disturbances
    )
    assert "with --wipe-broker, they return with empty ones" in trial.notes[0]
    assert topics_of(stack, "hourmark-evaluate.") == []


@pytest.mark.long
def test_a_run_that_is_cut_short_in_an_outage_brings_the_brokers_back_first(
    stack: LocalStack, tmp_path: Path
) -> None:
    hand, where = (
        hand_of(stack, tmp_path),
        ("--bootstrap", stack.layout.bootstrap("edge"), "--report", str(tmp_path)),
    )
    commands = (
        "--stop-broker",
        f"{hand} kill {{broker}}",
        "--start-broker",
        f"{hand} start {{broker}}",
    )
    running = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hourmark",
            "evaluate",
            "--seconds",
            "600",
            "--trial",
            "producers",
            *where,
            *commands,
        ]
    )
    try:
        wait_for(lambda: stack.process("edge-1") is None, "a broker is taken away", 120, 0.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(240) != 0
        assert stack.process("edge-1") is not None
        stack.wait_ready("edge-1")
        assert topics_of(stack, "hourmark-evaluate.") == []
    finally:
        running.kill()
        running.wait()
        come_back(stack, *stack.brokers)


@contextlib.contextmanager
def begun(stack: LocalStack, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run on the edge alone that has made its topics."""
    where = ("--bootstrap", stack.layout.bootstrap("edge"), "--report", str(folder))
    running = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hourmark",
            "evaluate",
            "--seconds",
            "600",
            "--trial",
            "load",
            *where,
        ]
    )
    try:
        wait_for(
            lambda: topics_of(stack, "hourmark-evaluate.") != [], "its topics are made", 60, 0.5
        )
        yield running
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_run_that_is_cut_short_takes_its_topics_away(
    stack: LocalStack, tmp_path: Path, number: signal.Signals
) -> None:
    with begun(stack, tmp_path) as running:
        running.send_signal(number)
        assert running.wait(60) != 0
    wait_for(lambda: topics_of(stack, "hourmark-evaluate.") == [], "nothing is left", 30, 0.5)


def test_a_mirror_that_copies_no_such_topic_is_not_tried(
    environment: TrialEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_evaluate.execution.mirror_state.FIRST_COPY_SECONDS", 3.0)
    other = dataclasses.replace(
        environment,
        options=dataclasses.replace(environment.options, mirrored_prefix="nobody-copies-this."),
    )
    (trial,) = evaluate(other, ["mirror-refused"], "the test stack", "hourmark evaluate").trials
    assert "copied no record of a new topic nobody-copies-this." in trial.not_tried
