"""Operations on servers that a trial may use, such as stopping a broker.

The local stack provides all of them. For their own clusters, users provide shell commands. An
operation that is not available is None, and trials that need it are reported as not tried.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from hourmark.errors import Unavailable, UsageError

COMMAND_SECONDS: Final = 120.0
# Placeholders for the object of a command, by the last word of the operation's name.
PLACEHOLDERS: Final[Mapping[str, Collection[str]]] = {
    "broker": ("broker", "host", "port"),
    "target": ("topic",),
    "worker": ("host", "port"),
    "mirror": (),
}

OnBroker = Callable[[int], None]  # takes a broker id; may return before the operation completes
OnTopic = Callable[[str], None]  # takes the topic's name on the target cluster
OnWorker = Callable[[str], None]  # takes HOST:PORT of the REST server of a mirror's worker
OnMirror = Callable[[], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerOperations:
    """The operations that trials can perform on brokers, MirrorMaker 2 and its target cluster.

    The first operation of each pair, such as stop and start, disturbs a server. The second restores
    it, and can be repeated safely. An operation that is not available is None. MirrorMaker 2 is
    called the mirror.

    Attributes:
        stop_broker: Stop a broker, given its id.
        start_broker: Start a stopped broker again, given its id.
        wipe_broker: Delete the data of a stopped broker, so that it starts with an empty disk.
        pause_broker: Suspend a broker, as SIGSTOP does, given its id.
        resume_broker: Resume a suspended broker, given its id.
        refuse_target: Make the target cluster refuse writes to a topic, given the topic's name on
            that cluster.
        accept_target: Make the target cluster accept writes to the topic again.
        stop_worker: Kill a worker of the mirror, given HOST:PORT of the worker's REST server.
        start_worker: Start a killed worker again, given the same address.
        pause_worker: Suspend a worker of the mirror, given the same address.
        resume_worker: Resume a suspended worker, given the same address.
        stop_mirror: Kill all workers of the mirror.
        start_mirror: Start all workers of the mirror again.
    """

    stop_broker: OnBroker | None = None
    start_broker: OnBroker | None = None
    wipe_broker: OnBroker | None = None  # called between stop and start
    pause_broker: OnBroker | None = None
    resume_broker: OnBroker | None = None
    refuse_target: OnTopic | None = None
    accept_target: OnTopic | None = None
    stop_worker: OnWorker | None = None
    start_worker: OnWorker | None = None
    pause_worker: OnWorker | None = None
    resume_worker: OnWorker | None = None
    stop_mirror: OnMirror | None = None  # all workers
    start_mirror: OnMirror | None = None


def option_name(operation: str) -> str:
    """Return the command-line option that defines an operation on servers.

    Args:
        operation: Name of the operation, a field of `ServerOperations`, such as "stop_broker".

    Returns:
        Name of the option, such as "--stop-broker".
    """
    return f"--{operation.replace('_', '-')}"


def describe_missing_operations(operations: ServerOperations, *wanted: str) -> str:
    """Describe which command-line options are missing for the required operations.

    Args:
        operations: The available operations.
        *wanted: Names of the required operations, fields of `ServerOperations`, such as
            "stop_broker".

    Returns:
        Text for the report, for example "needs --stop-broker and --start-broker"; "" if all
        required operations are available.
    """
    absent = [option_name(name) for name in wanted if getattr(operations, name) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


def call_for_each_broker(operation: OnBroker, brokers: Sequence[int]) -> None:
    """Call an operation for each broker in order, even if some calls fail.

    Args:
        operation: Function that takes a broker id.
        brokers: Broker ids.

    Raises:
        Exception: At least one call failed. The error of the last failed call is raised; earlier
            errors are in its `__context__`.
    """
    with ExitStack() as calls:
        for broker in reversed(brokers):
            calls.callback(operation, broker)


# An operation and the one that undoes it. A user must give commands for both or for neither.
OPPOSITES: Final = (
    ("stop_broker", "start_broker"),
    ("pause_broker", "resume_broker"),
    ("refuse_target", "accept_target"),
    ("stop_worker", "start_worker"),
    ("pause_worker", "resume_worker"),
    ("stop_mirror", "start_mirror"),
)


def validate_commands(commands: Mapping[str, str | None]) -> None:
    """Check that the user's commands are complete and use only known placeholders.

    Args:
        commands: Shell command by operation name, such as "stop_broker"; None or "" if not given.

    Raises:
        UsageError: A command is given without its counterpart (stop and start, pause and resume,
            refuse and accept), `wipe_broker` is given without `stop_broker`, or a command contains
            a placeholder that its operation does not support.
    """
    given = {name for name, text in commands.items() if text}
    for name in sorted(given):
        _check_placeholders(name, commands[name] or "")
    for pair in OPPOSITES:
        if len(given.intersection(pair)) == 1:
            (lone,), (absent,) = given.intersection(pair), set(pair) - given
            raise UsageError(
                f"{option_name(lone)} also needs {option_name(absent)}, which undoes its effect"
                if lone == pair[0]
                else f"{option_name(lone)} also needs {option_name(absent)}, whose effect it undoes"
            )
    if "wipe_broker" in given and "stop_broker" not in given:
        raise UsageError(
            "--wipe-broker also needs --stop-broker and --start-broker, between which it runs"
        )


def _check_placeholders(operation: str, text: str) -> None:
    known = PLACEHOLDERS[operation.rpartition("_")[2]]
    for name in sorted(
        {name for names in PLACEHOLDERS.values() for name in names}.difference(known)
    ):
        if f"{{{name}}}" in text:
            supported = " ".join(f"{{{each}}}" for each in known) or "none"
            raise UsageError(
                f"{option_name(operation)}: placeholder {{{name}}} is not supported; "
                f"supported placeholders: {supported}"
            )


def operations_from_commands(
    commands: Mapping[str, str | None], broker_address: Callable[[int], str]
) -> ServerOperations:
    """Return operations that run the user's shell commands.

    Commands may contain placeholders, whose values are quoted for the shell: `{broker}`, `{host}`
    and `{port}` in a command for a broker; `{host}` and `{port}` in a command for a worker of the
    mirror; `{topic}` in a command for the target cluster. An operation raises `Unavailable` if its
    command fails or does not return within 120 s.

    Args:
        commands: Shell command by operation name, such as "stop_broker"; None or "" if not given.
        broker_address: Function that returns HOST:PORT of a broker, given its id.

    Raises:
        UsageError: A command lacks its counterpart or contains an unsupported placeholder.
    """
    validate_commands(commands)
    given = {name: text for name, text in commands.items() if text}

    def on_broker(text: str) -> OnBroker:
        return lambda broker: _run_command(
            text, broker=str(broker), **_split_address(broker_address(broker))
        )

    def on_worker(text: str) -> OnWorker:
        return lambda worker: _run_command(text, **_split_address(worker))

    def on_topic(text: str) -> OnTopic:
        return lambda topic: _run_command(text, topic=topic)

    def on_mirror(text: str) -> OnMirror:
        return lambda: _run_command(text)

    makers: dict[str, Callable[[str], Any]] = {
        "broker": on_broker,
        "target": on_topic,
        "worker": on_worker,
        "mirror": on_mirror,
    }
    return ServerOperations(
        **{name: makers[name.rpartition("_")[2]](text) for name, text in given.items()}
    )


def _split_address(address: str) -> dict[str, str]:
    host, _, port = address.rpartition(":")
    return {"host": host, "port": port}


def _run_command(text: str, **values: str) -> None:
    """Run a shell command of the user, and write its output to stderr.

    Args:
        text: The command, which may contain placeholders such as `{host}`.
        **values: Value of each placeholder. It is quoted for the shell.

    Raises:
        Unavailable: The command failed, or did not return within 120 s and was killed.
    """
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", shlex.quote(value))
    # Ctrl-C must not reach the command, so it has its own process group. The group is killed if the
    # command is still running at the end: no part of it continues while the next one runs.
    running = subprocess.Popen(
        ("sh", "-c", text), stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
    )
    try:
        code = running.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"the command `{text}` did not return within {COMMAND_SECONDS:.0f} s and was killed"
        ) from error
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    if code:
        raise Unavailable(f"the command `{text}` failed with exit code {code}")
