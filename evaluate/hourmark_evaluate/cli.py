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
from hourmark_evaluate import hands
from hourmark_evaluate.jmx import Jmx
from hourmark_evaluate.markdown import as_markdown
from hourmark_evaluate.page import as_html
from hourmark_evaluate.results import Evaluation, as_json, from_json
from hourmark_evaluate.run import checked_names, evaluate, local_world, reachable, users_world
from hourmark_evaluate.trials import TRIALS
from hourmark_evaluate.verdicts import Verdict, verdicts
from hourmark_evaluate.world import Wish, World
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
_COMMANDS = {  # operation → help text
    "stop_broker": f"Stop a broker. {_BROKER}",
    "start_broker": "Start it again; may be called for one that runs.",
    "wipe_broker": "Empty its disk, between the two.",
    "pause_broker": "Have it stand still, as SIGSTOP does.",
    "resume_broker": "Have it go on.",
    "refuse_target": "Have the central cluster refuse writes to {topic}.",
    "accept_target": "Have it take them again.",
    "stop_worker": f"Kill the mirror's worker that leads. {_WORKER}",
    "start_worker": "Start it again; may be called for one that runs.",
    "pause_worker": "Have it stand still, as SIGSTOP does, with all its processes.",
    "resume_worker": "Have it go on.",
    "stop_mirror": "Kill all of the mirror's workers.",
    "start_mirror": "Start them again.",
}


def _command_options(function: Any) -> Any:
    for name, text in reversed(_COMMANDS.items()):
        function = click.option(hands.flag(name), name, metavar="CMD", help=text)(function)
    return function


@click.command("evaluate")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="Your edge cluster. Default: a local stack, for the time of the run.",
)
@click.option(
    "--central", metavar="HOST:PORT,…", help="Your central cluster, to which a mirror copies."
)
@click.option(
    "--alias",
    default=_ALIAS,
    show_default=True,
    help="The mirror's name of the edge: prefix of the copies' topics.",
)
@click.option(
    "--properties",
    type=_FILE,
    help="Client settings of both clusters, NAME=VALUE a line, by librdkafka's names.",
)
@click.option("--central-properties", type=_FILE, help="Those of the central cluster that differ.")
@click.option("--prefix", default=Wish.prefix, show_default=True, help="Of this run's topics.")
@click.option(
    "--mirrored-prefix",
    default=Wish.mirrored_prefix,
    show_default=True,
    help="Of those that the mirror must copy.",
)
@click.option(
    "--jmx", multiple=True, metavar="HOST:PORT", help="A broker's JMX; once for each of the edge."
)
@click.option(
    "--jmx-user",
    default="",
    metavar="NAME",
    help=f"Where JMX asks for one; its password is in {JMX_PASSWORD}.",
)
@_command_options
@click.option(
    "--trial",
    "trials",
    multiple=True,
    type=click.Choice([*TRIALS]),
    help="Only this one; may be repeated.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(5, 3600),
    help="Length of the load; outages follow it.  [default: 60]",
)
@click.option(
    "--quick",
    is_flag=True,
    help=f"The same as --seconds {QUICK_SECONDS:.0f}: to see that it works, not to measure.",
)
@click.option(
    "--rate",
    type=click.IntRange(10, 1_000_000),
    default=Wish.rate,
    show_default=True,
    help="Events a second at the peak.",
)
@click.option(
    "--burst/--no-burst",
    default=True,
    show_default=True,
    help="Then as much as one client can send, for a while.",
)
@click.option(
    "--event-bytes", type=click.IntRange(64, 900_000), default=Wish.event_bytes, show_default=True
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 100),
    default=Wish.partitions,
    show_default=True,
    help="Of each topic.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the result.  [default: evaluation]",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The result as a page of Markdown, too.",
)
@click.option(
    "--from",
    "kept",
    type=_FILE,
    help="Try nothing: show the result that is in this evaluation.json.",
)
@click.option("--json", "as_json_", is_flag=True, help="The result as one JSON object on stdout.")
def command(
    kept: Path | None, report: Path | None, markdown: Path | None, as_json_: bool, **given: Any
) -> None:
    """Try Kafka as it was tried by those who gave it up, and say for each property whether it is kept.

    On a local stack that it starts and stops (about ten minutes), or on clusters of yours, in topics of its own, which are
    deleted at the end. There, mind --rate and --no-burst; what stops a server is a command that you give: without it the trial is
    reported as not tried, and so is what it did not take away. In commands, {broker} stands for a broker's id, {host} and {port}
    for its address or that of a worker of the mirror, {topic} for a topic of the central cluster; each must return within two
    minutes, and a server that was stopped stay away until it is started. Who leads the mirror is tried where it has several
    workers.

    Clients need the rights to create, describe, write, read and delete topics of the two prefixes (and their copies), to read by
    and delete groups of --prefix, and to describe the cluster; to watch the mirror, to read mm2-offsets.ALIAS.internal and
    describe the group ALIAS-mm2.

    The result is in the folder evaluation: evaluation.html to look at, evaluation.json to keep, written after each trial. Exit 1
    where a property is broken.

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
    if kept is not None:
        result = _read(kept)
    else:
        librdkafka_logger().addHandler(
            logging.NullHandler()
        )  # librdkafka's errors about stopped brokers are expected here
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(
                number, signal.default_int_handler
            )  # like Ctrl-C: topics are deleted and servers are started again
        report = _writable(report or Path("evaluation"))
        with _world(given) as world:
            where = "clusters of the user" if given["bootstrap"] else "the local stack"
            result = evaluate(
                world, checked_names(given["trials"]), where, _called(given), partial(_keep, report)
            )
    _write(result, report, markdown)
    if as_json_:
        click.echo(as_json(result), nl=False)
    else:
        _show(result)
    sys.exit(1 if any(one.verdict is Verdict.BROKEN for one in verdicts(result)) else 0)


def _show(result: Evaluation) -> None:
    for one in verdicts(result):
        click.echo(f"{one.verdict:<9}  {one.property}")
        for fault in one.faults:
            click.echo(f"           {fault}")


def _writable(folder: Path) -> Path:
    """Create the folder of the report if necessary, and return it.

    Raises:
        UsageError: The folder cannot be created or is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--report {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--report {folder}: it cannot be written to; name another folder")
    return folder


def _keep(report: Path, result: Evaluation) -> None:
    write_durably(report / "evaluation.json", as_json(result), mode=0o644)


def _write(result: Evaluation, report: Path | None, markdown: Path | None) -> None:
    if report is not None:
        _keep(report, result)
        write_durably(report / "evaluation.html", as_html(result).encode(), mode=0o644)
        print_progress(f"written: {report / 'evaluation.html'} and evaluation.json")
    if markdown is not None:
        write_durably(markdown.absolute(), as_markdown(result).encode(), mode=0o644)
        print_progress(f"written: {markdown}")


def _read(path: Path) -> Evaluation:
    try:
        return from_json(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path} is no result of `hourmark evaluate`: {error}") from error


@contextmanager
def _world(given: dict[str, Any]) -> Iterator[World]:
    defaults = {field.name for field in dataclasses.fields(Wish)}
    chosen = {
        name: value for name, value in given.items() if name in defaults and value is not None
    }
    if given["quick"]:
        if given["seconds"] is not None:
            raise UsageError("--quick is a number of --seconds; give one of the two")
        chosen["seconds"] = QUICK_SECONDS
    wish, clock = Wish(**chosen), SystemClock()
    commands = {name: given[name] for name in _COMMANDS}
    if not given["bootstrap"]:
        named = [
            hands.flag(name)
            for name in ("central", *commands, "jmx", "jmx_user", *_PROPERTIES)
            if given[name]
        ]
        named += ["--alias"] if given["alias"] != _ALIAS else []
        if named:
            raise UsageError(
                f"{', '.join(named)}: of clusters of yours, so --bootstrap must name the "
                "edge; the local stack needs none"
            )
        with local_world(stack_state_dir() / "evaluate", wish, clock, print_progress) as world:
            yield world
        return
    hands.check(commands)
    jmx = _jmx(given["jmx"], given["jmx_user"]) if given["jmx"] else None
    properties = _properties(given["properties"])
    edge = reachable("edge", given["bootstrap"], properties)
    of_central = properties | _properties(given["central_properties"])
    central = reachable("central", given["central"], of_central) if given["central"] else None
    yield users_world(
        edge,
        central,
        given["alias"],
        hands.of_commands(commands, edge.address),
        jmx,
        wish,
        clock,
        print_progress,
    )


def _jmx(addresses: tuple[str, ...], user: str) -> Jmx:
    if user and JMX_PASSWORD not in os.environ:
        raise UsageError(f"--jmx-user {user}: the environment has no {JMX_PASSWORD}")
    return Jmx(
        addresses=addresses,
        java=java_executable,
        jars=lambda: jars.ensure("kafka", java_executable, print_progress),
        user=user,
        password=os.environ.get(JMX_PASSWORD, ""),
    )


def _properties(file: Path | None) -> dict[str, str]:
    """Return the client settings in a file of NAME=VALUE lines; empty if there is no file.

    Raises:
        UsageError: A line is not NAME=VALUE; the message contains its number.
    """
    found = {}
    for number, line in enumerate(file.read_text().splitlines() if file else (), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                f"{file}:{number}: not NAME=VALUE; a client's setting, such as "
                "security.protocol=SSL"
            )
        found[name.strip()] = value.strip()
    return found


def _called(given: dict[str, Any]) -> str:
    """Return the command line that repeats the run, with "…" in place of the user's commands.

    Those may contain secrets.
    """
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
        if given[name] and given[name] != {"alias": _ALIAS}.get(name, getattr(Wish, name, None)):
            words += [hands.flag(name), str(given[name])]
    words += [word for address in given["jmx"] for word in ("--jmx", address)]
    words += [word for name in _COMMANDS if given[name] for word in (hands.flag(name), "…")]
    words += ["--quick"] if given["quick"] else []
    words += [] if given["burst"] else ["--no-burst"]
    for name in ("seconds", "rate", "event_bytes", "partitions"):
        if given[name] is not None and given[name] != getattr(Wish, name):
            words += [hands.flag(name), f"{given[name]:.12g}"]
    words += [word for trial in given["trials"] for word in ("--trial", trial)]
    return shlex.join(words)
