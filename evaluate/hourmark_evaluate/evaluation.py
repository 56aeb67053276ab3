"""One evaluation: run the selected trials in order, on the local stack or on the user's clusters.

All topics and consumer groups of the run are deleted at its end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from hourmark.clock import Clock
from hourmark.errors import HourmarkError, Unavailable, UsageError
from hourmark_evaluate.clients.broker_metrics import JmxClient
from hourmark_evaluate.clients.cluster import EvaluatedCluster
from hourmark_evaluate.execution import local_stack
from hourmark_evaluate.execution.environment import EvaluationOptions, TrialEnvironment
from hourmark_evaluate.execution.server_operations import ServerOperations
from hourmark_evaluate.execution.trial_run import RecoveryFailed
from hourmark_evaluate.record_format import RUN_BYTES, RecordFormat
from hourmark_evaluate.results import Evaluation, TrialResult
from hourmark_evaluate.trials import TRIALS, run_trial_by_name
from hourmark_evaluate.verdicts import trial_verdict
from hourmark_infra.jars.cache import Reporter
from hourmark_infra.locks import exclusive_lock
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.control import purge_stack
from hourmark_infra.stack.kafka import PASSWORD, ROLE
from hourmark_infra.stack.layout import JMX
from hourmark_infra.stack.servers import is_mirror_installed

# Time limit for brokers that are still starting when a run is interrupted.
DELETE_TOPICS_SECONDS: Final = 180.0
# A mirror may recreate a deleted topic until it refreshes its list of topics.
RECREATED_SECONDS: Final = 15.0


def new_run_id() -> str:
    """Generate the random identifier of one evaluation run.

    It is part of the names of all topics of the run, so that no two runs share a topic.

    Returns:
        Eight hexadecimal digits.
    """
    return secrets.token_hex(4)


def evaluate(
    environment: TrialEnvironment,
    names: Sequence[str],
    where: str,
    command: str,
    save: Callable[[Evaluation], None] = lambda _: None,
) -> Evaluation:
    """Run trials, which test Kafka under load and faults, and return their results.

    If a trial fails, the result contains the reason. If the servers do not recover from a trial,
    the remaining trials are reported as not tried. At the end, all topics of this run are deleted.
    Topics that cannot be deleted within 180 s are listed in a progress message.

    Args:
        environment: The clusters and the user's options.
        names: Names of the trials to run, in this order; each must be a key of `TRIALS`.
        where: Where the clusters are, for the report: "the local stack" or "clusters of the user".
        command: The command line that repeats the run, for the report.
        save: Function that is called after each trial with the result so far, to preserve it if the
            run is interrupted.

    Raises:
        KeyError: A name is not a known trial.
    """
    began_s, began_ms, load_before = (
        environment.clock.monotonic_s(),
        environment.clock.now_ms(),
        os.getloadavg()[0],
    )
    so_far = Evaluation(
        version=version("hourmark"),
        began=dt.datetime.fromtimestamp(began_ms // 1000, dt.UTC)
        .isoformat()
        .replace("+00:00", "Z"),
        seconds=0.0,
        where=where,
        command=command,
        cores=os.cpu_count() or 1,
        load_average=(round(load_before, 1), round(load_before, 1)),
        edge_brokers=len(environment.edge.ids),
        central_brokers=len(environment.central.ids) if environment.central else 0,
        replication=environment.edge.replication,
        peak_rate=environment.options.rate,
        event_bytes=environment.options.event_bytes,
        trials=(),
    )
    with _topics_deleted_on_exit(environment):
        for number, name in enumerate(names, 1):
            environment.report_progress(f"{number} of {len(names)}: {TRIALS[name].title}")
            aborted = next((earlier.name for earlier in so_far.trials if earlier.broken_off), "")
            trial = _run_or_skip_trial(environment, name, aborted)
            environment.report_progress(f"{name}: {_summarize(trial)}")
            so_far = dataclasses.replace(
                so_far,
                seconds=round(environment.clock.monotonic_s() - began_s, 1),
                load_average=(so_far.load_average[0], round(os.getloadavg()[0], 1)),
                trials=(*so_far.trials, trial),
            )
            save(so_far)
    return so_far


def _run_or_skip_trial(environment: TrialEnvironment, name: str, aborted: str) -> TrialResult:
    title = TRIALS[name].title
    if aborted:
        return TrialResult(
            name=name, title=title, not_tried=f"the servers did not recover in trial {aborted}"
        )
    # Other errors, such as a missing permission of the client, show nothing about Kafka and do not
    # end the run.
    try:
        return run_trial_by_name(environment, name)
    except RecoveryFailed as error:
        return TrialResult(name=name, title=title, broken_off=str(error))
    except HourmarkError as error:
        return TrialResult(name=name, title=title, not_tried=str(error))


@contextlib.contextmanager
def local_environment(
    home: Path, options: EvaluationOptions, clock: Clock, report_progress: Reporter
) -> Iterator[TrialEnvironment]:
    """Start a new local stack of servers and yield its clusters; stop the stack on exit.

    The stack has three edge brokers, three central brokers and, if MirrorMaker 2 is installed, two
    of its workers.

    Args:
        home: Directory of the stack. An existing stack there is deleted first.
        options: The user's options.
        clock: Source of time.
        report_progress: Function that is called with each line of progress.

    Raises:
        UsageError: Another evaluation uses this directory.
    """

    def refuse() -> None:
        raise UsageError(
            f"another evaluation is running in {home}; wait for it to finish, or set "
            "HOURMARK_HOME to another folder"
        )

    with exclusive_lock(home / "evaluate.lock", refuse):
        purge_stack(home, report_progress)
        mirror = is_mirror_installed()
        copier = (
            "two workers of MirrorMaker 2" if mirror else "no mirror, because none is installed"
        )
        report_progress(f"starting three edge brokers, three central brokers and {copier}")
        stack = LocalStack.load_or_create(
            home, mirror=mirror, spread=True, workers=2, jmx=True, report=report_progress
        )
        try:
            stack.up(local_stack.required_servers(stack))
            yield stack_environment(stack, options, clock, report_progress)
        finally:
            stack.down()


def stack_environment(
    stack: LocalStack,
    options: EvaluationOptions,
    clock: Clock,
    report_progress: Callable[[str], None],
) -> TrialEnvironment:
    """Return the brokers and MirrorMaker 2 of a running local stack as the environment for trials.

    The brokers' metrics are available only if the stack was created with JMX enabled.

    Args:
        stack: The running stack.
        options: The user's options.
        clock: Source of time.
        report_progress: Function that is called with each line of progress.

    Raises:
        Unavailable: A cluster does not answer.
    """
    edge = EvaluatedCluster("edge", stack.layout.bootstrap("edge"), {})
    central = (
        EvaluatedCluster("central", stack.layout.bootstrap("central"), {})
        if stack.clusters > 1
        else None
    )
    addresses = tuple(stack.layout.address(f"{name}-{JMX}") for name in stack.brokers)
    programs = stack.programs
    jmx = JmxClient(
        addresses=addresses,
        java=lambda: programs.java,
        jars=lambda: programs.kafka,
        user=ROLE,
        password=PASSWORD,
    )
    return TrialEnvironment(
        edge=edge,
        central=central,
        alias="edge",
        operations=local_stack.local_operations(stack, central),
        options=options,
        record_format=new_record_format(options),
        run_id=new_run_id(),
        clock=clock,
        report_progress=report_progress,
        jmx=jmx if stack.jmx else None,
        read_broker_cpu=lambda: local_stack.read_broker_cpu_seconds(stack),
    )


def user_environment(
    edge: EvaluatedCluster,
    central: EvaluatedCluster | None,
    alias: str,
    operations: ServerOperations,
    jmx: JmxClient | None,
    options: EvaluationOptions,
    clock: Clock,
    report_progress: Reporter,
) -> TrialEnvironment:
    """Return the user's clusters as the environment for trials, with a new run identifier.

    Args:
        edge: The edge cluster.
        central: The central cluster; None if there is none.
        alias: The mirror's alias of the edge cluster.
        operations: The available operations on servers.
        jmx: Access to the brokers' metrics; None if there is none.
        options: The user's options.
        clock: Source of time.
        report_progress: Function that is called with each line of progress.
    """
    return TrialEnvironment(
        edge=edge,
        central=central,
        alias=alias,
        operations=operations,
        options=options,
        record_format=new_record_format(options),
        run_id=new_run_id(),
        clock=clock,
        report_progress=report_progress,
        jmx=jmx,
    )


def new_record_format(options: EvaluationOptions) -> RecordFormat:
    """Create the record format of one evaluation run, with a random run identifier.

    The identifier distinguishes the records of this run from those of any other run.

    Args:
        options: The user's options; only `event_bytes` is used.
    """
    return RecordFormat(secrets.token_bytes(RUN_BYTES), options.event_bytes)


@contextlib.contextmanager
def _topics_deleted_on_exit(environment: TrialEnvironment) -> Iterator[None]:
    try:
        yield
    finally:
        began_s = environment.clock.monotonic_s()
        while remaining := _delete_topics(environment, environment.clock.monotonic_s() - began_s):
            environment.clock.sleep(1.0)
            if environment.clock.monotonic_s() - began_s > DELETE_TOPICS_SECONDS:
                environment.report_progress(
                    f"delete the remaining topics manually: {', '.join(remaining)}"
                )
                break


def _delete_topics(environment: TrialEnvironment, waited_s: float) -> list[str]:
    # MirrorMaker 2 may create a deleted topic of the central cluster again. The caller therefore
    # repeats the call until the result is empty.
    failed = [
        name
        for cluster in (environment.edge, environment.central)
        if cluster
        for name in _delete_topics_of(cluster, environment.run_id)
    ]
    again = (
        ["those that the mirror creates"]
        if environment.central and waited_s < RECREATED_SECONDS
        else []
    )
    return failed or again


def _delete_topics_of(cluster: EvaluatedCluster, run_id: str) -> list[str]:
    try:
        names = [name for name in cluster.cluster.names() if f"{run_id}-" in name]
        cluster.delete_topics(names)
    except HourmarkError as error:
        return [
            f"those of the {cluster.cluster.name} cluster with {run_id} in their names ({error})"
        ]
    return []


def _summarize(trial: TrialResult) -> str:
    if trial.not_tried:
        return f"not tried: {trial.not_tried}"
    if trial.broken_off:
        return f"aborted: {trial.broken_off}"
    lost, doubled = sum(c.lost for c in trial.counts), sum(c.doubled for c in trial.counts)
    slowest = max(
        (d.recovered_s for d in trial.disturbances if d.recovered_s is not None), default=None
    )
    after = (
        ""
        if slowest is None
        else (
            f", {len(trial.disturbances)} faults, all recovered within {slowest:.1f} s after them"
        )
    )
    if any(d.recovered_s is None for d in trial.disturbances):
        after = ", and a component did not recover from a fault"
    acknowledged = trial.counts[0].acknowledged
    return (
        f"{trial_verdict(trial)}; {acknowledged:,} acknowledged, {lost:,} lost, {doubled:,} "
        f"doubled{after}"
    )


def select_trials(names: Sequence[str]) -> Sequence[str]:
    """Return the names of the selected trials in the order of execution.

    Args:
        names: Names of the trials to run, in any order; empty for all trials. Unknown names are
            ignored.
    """
    return [name for name in TRIALS if not names or name in names]


def connect_to_cluster(name: str, bootstrap: str, properties: dict[str, str]) -> EvaluatedCluster:
    """Connect to a cluster and return it.

    Args:
        name: Name of the cluster for error messages: "edge" or "central".
        bootstrap: Bootstrap servers, as HOST:PORT separated by commas.
        properties: Additional client settings, by librdkafka's names.

    Raises:
        UsageError: A client setting is invalid.
        Unavailable: The cluster does not answer.
    """
    try:
        return EvaluatedCluster(name, bootstrap, properties)
    except KafkaException as error:
        reason = error.args[0].str()
        raise UsageError(
            f"the {name} cluster: {reason}; --properties takes librdkafka's names of settings, "
            "not those of the Java client"
        ) from error
    except Unavailable as error:
        raise Unavailable(
            f"{error}; check the address, and the client's security settings (--properties FILE)"
        ) from error
