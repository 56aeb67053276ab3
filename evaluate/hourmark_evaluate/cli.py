"""The command `hourmark evaluate`."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import stack_state_dir
from hourmark.errors import UsageError
from hourmark.kafka.clients import librdkafka_logger
from hourmark.process.durable import write_durably
from hourmark_evaluate.clients.broker_metrics import JmxClient
from hourmark_evaluate.evaluation import (
    connect_to_cluster,
    evaluate,
    local_environment,
    select_trials,
    user_environment,
)
from hourmark_evaluate.execution import server_operations
from hourmark_evaluate.execution.environment import EvaluationOptions, TrialEnvironment
from hourmark_evaluate.report.html_page import as_html
from hourmark_evaluate.report.markdown import as_markdown
from hourmark_evaluate.results import Evaluation, as_json, from_json
from hourmark_evaluate.trials import TRIALS
from hourmark_evaluate.verdicts import EvaluationVerdict, property_verdicts
from hourmark_infra import jars
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.java.find import java_executable

QUICK_SECONDS = 10.0
# Environment variable. JmxTool takes the password as an argument, which other users may see.
JMX_PASSWORD = "HOURMARK_JMX_PASSWORD"  # noqa: S105

_ALIAS = "edge"
_PROPERTIES = ("properties", "central_properties")
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_BROKER = "{broker} is its id, {host} and {port} its address."
_WORKER = "{host} and {port} are the address of its REST server, by which other workers call it."
_COMMANDS = {  # operation -> help text
    "stop_broker": f"Shell command that stops a broker. {_BROKER}",
    "start_broker": "Command that starts the broker again, which may already be running.",
    "wipe_broker": "Command that deletes the data of the stopped broker.",
    "pause_broker": "Command that suspends a broker, as SIGSTOP does.",
    "resume_broker": "Command that resumes the broker.",
    "refuse_target": "Command that makes the central cluster refuse writes to {topic}.",
    "accept_target": "Command that makes the central cluster accept these writes again.",
    "stop_worker": f"Command that kills the mirror's leading worker. {_WORKER}",
    "start_worker": "Command that starts the worker again, which may already be running.",
    "pause_worker": "Command that suspends the worker and all its processes, as SIGSTOP does.",
    "resume_worker": "Command that resumes the worker.",
    "stop_mirror": "Command that kills all workers of the mirror.",
    "start_mirror": "Command that starts the workers again.",
}


def _command_options(function: Any) -> Any:
    for name, text in reversed(_COMMANDS.items()):
        function = click.option(
            server_operations.option_name(name), name, metavar="CMD", help=text
        )(function)
    return function


@click.command("evaluate")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="Your edge cluster. Default: a local stack that is started for this run.",
)
@click.option(
    "--central", metavar="HOST:PORT,…", help="Your central cluster, to which a mirror copies."
)
@click.option(
    "--alias",
    default=_ALIAS,
    show_default=True,
    help="The mirror's alias of the edge cluster, which prefixes the names of copied topics.",
)
@click.option(
    "--properties",
    type=_FILE,
    help="File with client settings for both clusters, one NAME=VALUE per line, named as in "
    "librdkafka.",
)
@click.option(
    "--central-properties",
    type=_FILE,
    help="File with client settings that differ for the central cluster.",
)
@click.option(
    "--prefix",
    default=EvaluationOptions.prefix,
    show_default=True,
    help="Prefix of the names of topics and groups.",
)
@click.option(
    "--mirrored-prefix",
    default=EvaluationOptions.mirrored_prefix,
    show_default=True,
    help="Prefix of the names of topics that the mirror copies.",
)
@click.option(
    "--jmx",
    multiple=True,
    metavar="HOST:PORT",
    help="JMX endpoint of an edge broker. Repeat it for each broker.",
)
@click.option(
    "--jmx-user",
    default="",
    metavar="NAME",
    help=f"JMX user, if JMX requires one; the password is in {JMX_PASSWORD}.",
)
@_command_options
@click.option(
    "--trial",
    "trials",
    multiple=True,
    type=click.Choice([*TRIALS]),
    help="Run only this trial. May be repeated.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(5, 3600),
    help="Duration of the load of a trial, which also determines the duration of outages.  [default: "
    "60]",
)
@click.option(
    "--quick",
    is_flag=True,
    help=f"The same as `--seconds {QUICK_SECONDS:.0f}`, which is too short for measurements.",
)
@click.option(
    "--rate",
    type=click.IntRange(10, 1_000_000),
    default=EvaluationOptions.rate,
    show_default=True,
    help="Peak rate in events per second.",
)
@click.option(
    "--burst/--no-burst",
    default=True,
    show_default=True,
    help="End the load trial at the maximum rate of one client.",
)
@click.option(
    "--event-bytes",
    type=click.IntRange(64, 900_000),
    default=EvaluationOptions.event_bytes,
    show_default=True,
    help="Size of an event in bytes.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 100),
    default=EvaluationOptions.partitions,
    show_default=True,
    help="Number of partitions of each topic.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the report.  [default: evaluation]",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the report as Markdown to this file.",
)
@click.option(
    "--from",
    "saved",
    type=_FILE,
    help="Run no trials, and report the result that this evaluation.json contains.",
)
@click.option("--json", "as_json_", is_flag=True, help="Print the result as one JSON object.")
def command(
    saved: Path | None, report: Path | None, markdown: Path | None, as_json_: bool, **given: Any
) -> None:
    """Run trials of Kafka under faults, and report which properties Kafka keeps.

    By default, the trials run on a local stack, which is started and stopped for the run (about ten
    minutes). With --bootstrap, they run on your clusters, in new topics that are deleted at the end.
    In this case, use --rate and --no-burst to limit the load on the clusters.

    On your clusters, faults are injected by shell commands that you provide. A trial is reported
    as not tried if its commands are missing or have no effect. A command must return within two
    minutes, and a stopped server must stay down until it is started. Trials of the mirror's leader
    need several workers. Commands can contain the following placeholders:

    \b
    - {broker}: id of a broker
    - {host} and {port}: address of a broker, or of a worker of the mirror
    - {topic}: name of a topic of the central cluster

    Clients need permission to create, describe, write, read and delete topics of both prefixes and
    their copies, to read with and delete groups of --prefix, and to describe the cluster. To
    observe the mirror, they also need permission to read mm2-offsets.ALIAS.internal and to describe
    the group ALIAS-mm2.

    The folder of the report contains evaluation.html and evaluation.json, which is written after
    each trial. The exit code is 1 if a property is broken.

    \b
    Examples:
      hourmark evaluate
      hourmark evaluate --quick --trial load --trial producers
      hourmark evaluate --bootstrap kafka-1:9092,kafka-2:9092 --seconds 300
      hourmark evaluate --bootstrap kafka-1:9092 --central hq-1:9092 --properties client.properties \\
          --stop-broker 'ssh {host} "sudo systemctl kill -s KILL kafka; sudo systemctl stop kafka"' \\
          --start-broker 'ssh {host} sudo systemctl start kafka'
      hourmark evaluate --from evaluation/evaluation.json --markdown evaluation.md
    """
    if saved is not None:
        result = _read_result(saved)
    else:
        # librdkafka's errors about stopped brokers are expected here.
        librdkafka_logger().addHandler(logging.NullHandler())
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Like Ctrl-C: topics are deleted and servers are started again.
            signal.signal(number, signal.default_int_handler)
        report = _make_writable_folder(report or Path("evaluation"))
        with _environment(given) as environment:
            where = "clusters of the user" if given["bootstrap"] else "the local stack"
            result = evaluate(
                environment,
                select_trials(given["trials"]),
                where,
                _reconstruct_command(given),
                partial(_save_json, report),
            )
    _write_reports(result, report, markdown)
    if as_json_:
        click.echo(as_json(result), nl=False)
    else:
        _print_verdicts(result)
    sys.exit(
        1
        if any(one.verdict is EvaluationVerdict.BROKEN for one in property_verdicts(result))
        else 0
    )


def _print_verdicts(result: Evaluation) -> None:
    for one in property_verdicts(result):
        click.echo(f"{one.verdict:<9}  {one.property}")
        for fault in one.faults:
            click.echo(f"           {fault}")


def _make_writable_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--report {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--report {folder}: the folder is not writable; name another one")
    return folder


def _save_json(report: Path, result: Evaluation) -> None:
    write_durably(report / "evaluation.json", as_json(result), mode=0o644)


def _write_reports(result: Evaluation, report: Path | None, markdown: Path | None) -> None:
    if report is not None:
        _save_json(report, result)
        write_durably(report / "evaluation.html", as_html(result).encode(), mode=0o644)
        print_progress(f"written: {report / 'evaluation.html'} and evaluation.json")
    if markdown is not None:
        write_durably(markdown.absolute(), as_markdown(result).encode(), mode=0o644)
        print_progress(f"written: {markdown}")


def _read_result(path: Path) -> Evaluation:
    try:
        return from_json(path.read_bytes())
    except ValueError as error:
        raise UsageError(
            f"{path} does not contain a result of `hourmark evaluate`: {error}"
        ) from error


@contextmanager
def _environment(given: dict[str, Any]) -> Iterator[TrialEnvironment]:
    defaults = {field.name for field in dataclasses.fields(EvaluationOptions)}
    chosen = {
        name: value for name, value in given.items() if name in defaults and value is not None
    }
    if given["quick"]:
        if given["seconds"] is not None:
            raise UsageError("--quick sets --seconds; give only one of the two")
        chosen["seconds"] = QUICK_SECONDS
    options, clock = EvaluationOptions(**chosen), SystemClock()
    commands = {name: given[name] for name in _COMMANDS}
    if not given["bootstrap"]:
        named = [
            server_operations.option_name(name)
            for name in ("central", *commands, "jmx", "jmx_user", *_PROPERTIES)
            if given[name]
        ]
        named += ["--alias"] if given["alias"] != _ALIAS else []
        if named:
            raise UsageError(
                f"{', '.join(named)}: only for your own clusters; name the edge cluster with "
                "--bootstrap, or omit these options to use a local stack"
            )
        with local_environment(
            stack_state_dir() / "evaluate", options, clock, print_progress
        ) as environment:
            yield environment
        return
    server_operations.validate_commands(commands)
    jmx = _jmx_client(given["jmx"], given["jmx_user"]) if given["jmx"] else None
    properties = _read_properties(given["properties"])
    edge = connect_to_cluster("edge", given["bootstrap"], properties)
    of_central = properties | _read_properties(given["central_properties"])
    central = (
        connect_to_cluster("central", given["central"], of_central) if given["central"] else None
    )
    yield user_environment(
        edge,
        central,
        given["alias"],
        server_operations.operations_from_commands(commands, edge.broker_address),
        jmx,
        options,
        clock,
        print_progress,
    )


def _jmx_client(addresses: tuple[str, ...], user: str) -> JmxClient:
    if user and JMX_PASSWORD not in os.environ:
        raise UsageError(
            f"--jmx-user {user}: set its password in the environment variable {JMX_PASSWORD}"
        )
    return JmxClient(
        addresses=addresses,
        java=java_executable,
        jars=lambda: jars.ensure("kafka", java_executable, print_progress),
        user=user,
        password=os.environ.get(JMX_PASSWORD, ""),
    )


def _read_properties(file: Path | None) -> dict[str, str]:
    """Read client settings from a file of NAME=VALUE lines.

    Args:
        file: The file; None for no settings. Empty lines and lines that start with "#" are ignored.

    Returns:
        Value by name; an empty dict if there are no settings.

    Raises:
        UsageError: A line is not NAME=VALUE; the message contains its number.
    """
    properties = {}
    for number, line in enumerate(file.read_text().splitlines() if file else (), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                f"{file}:{number}: not of the form NAME=VALUE, such as security.protocol=SSL"
            )
        properties[name.strip()] = value.strip()
    return properties


def _reconstruct_command(given: dict[str, Any]) -> str:
    # Shell commands may contain secrets, so each of them is replaced by "…".
    words = ["hourmark", "evaluate"]
    for name in (
        "bootstrap",
        "central",
        "alias",
        *_PROPERTIES,
        "prefix",
        "mirrored_prefix",
        "jmx_user",
    ):
        if given[name] and given[name] != {"alias": _ALIAS}.get(
            name, getattr(EvaluationOptions, name, None)
        ):
            words += [server_operations.option_name(name), str(given[name])]
    words += [word for address in given["jmx"] for word in ("--jmx", address)]
    words += [
        word
        for name in _COMMANDS
        if given[name]
        for word in (server_operations.option_name(name), "…")
    ]
    words += ["--quick"] if given["quick"] else []
    words += [] if given["burst"] else ["--no-burst"]
    for name in ("seconds", "rate", "event_bytes", "partitions"):
        if given[name] is not None and given[name] != getattr(EvaluationOptions, name):
            words += [server_operations.option_name(name), f"{given[name]:.12g}"]
    words += [word for trial in given["trials"] for word in ("--trial", trial)]
    return shlex.join(words)
