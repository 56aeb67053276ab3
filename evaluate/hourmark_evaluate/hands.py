"""What may be done to servers.

Whoever lends a hand says how: the local stack by itself, a user by commands.

A hand that is not lent is None, and what needs it is not tried.
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
# What stands for whom a command is to hit, by the last word of its hand.
PLACEHOLDERS: Final[Mapping[str, Collection[str]]] = {
    "broker": ("broker", "host", "port"),
    "target": ("topic",),
    "worker": ("host", "port"),
    "mirror": (),
}

OnBroker = Callable[[int], None]  # by broker id; comes back at once, or once it is done
OnTopic = Callable[[str], None]  # by name of the topic on the target
OnWorker = Callable[[str], None]  # by address of the REST server of a worker of the mirror
OnMirror = Callable[[], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """Each pair is done and undone; all may be repeated."""

    stop_broker: OnBroker | None = None
    start_broker: OnBroker | None = None
    wipe_broker: OnBroker | None = (
        None  # between a stop and a start: it comes back with an empty disk
    )
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


def flag(hand: str) -> str:
    """The option by which a user lends it."""
    return f"--{hand.replace('_', '-')}"


def missing(hands: Hands, *wanted: str) -> str:
    """Why something cannot be tried, with the options that would let it; "" where all hands are
    there.
    """
    absent = [flag(name) for name in wanted if getattr(hands, name) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


def each(act: OnBroker, brokers: Sequence[int]) -> None:
    """To all of them, though it fails for some; then the first error."""
    with ExitStack() as all_of_them:
        for broker in reversed(brokers):
            all_of_them.callback(act, broker)


PAIRS: Final = (
    ("stop_broker", "start_broker"),
    ("pause_broker", "resume_broker"),
    ("refuse_target", "accept_target"),
    ("stop_worker", "start_worker"),
    ("pause_worker", "resume_worker"),
    ("stop_mirror", "start_mirror"),
)


def check(commands: Mapping[str, str | None]) -> None:
    """UsageError where one of a pair is without the other: what is done must be undone; or where
    one asks what it is not told.
    """
    given = {name for name, text in commands.items() if text}
    for name in sorted(given):
        _check_placeholders(name, commands[name] or "")
    for pair in PAIRS:
        if len(given.intersection(pair)) == 1:
            (lone,), (absent,) = given.intersection(pair), set(pair) - given
            raise UsageError(
                f"{flag(lone)} needs {flag(absent)} beside it: what is done must be undone"
            )
    if "wipe_broker" in given and "stop_broker" not in given:
        raise UsageError(
            "--wipe-broker is run between --stop-broker and --start-broker; give these too"
        )


def _check_placeholders(hand: str, text: str) -> None:
    known = PLACEHOLDERS[hand.rpartition("_")[2]]
    for name in sorted(
        {name for names in PLACEHOLDERS.values() for name in names}.difference(known)
    ):
        if f"{{{name}}}" in text:
            shown = " ".join(f"{{{each}}}" for each in known) or "none"
            raise UsageError(
                f"{flag(hand)}: nothing stands for {{{name}}} there; placeholders it knows: {shown}"
            )


def of_commands(commands: Mapping[str, str | None], address: Callable[[int], str]) -> Hands:
    """By the user's commands: `{broker}`, `{host}` and `{port}` stand for a broker, `{topic}` for a
    topic of the target, `{host}` and `{port}` alone for a worker of the mirror.

    UsageError as `check` has it.
    """
    check(commands)
    given = {name: text for name, text in commands.items() if text}

    def on_broker(text: str) -> OnBroker:
        return lambda broker: _run(text, broker=str(broker), **_parts(address(broker)))

    def on_worker(text: str) -> OnWorker:
        return lambda worker: _run(text, **_parts(worker))

    def on_topic(text: str) -> OnTopic:
        return lambda topic: _run(text, topic=topic)

    def on_mirror(text: str) -> OnMirror:
        return lambda: _run(text)

    makers: dict[str, Callable[[str], Any]] = {
        "broker": on_broker,
        "target": on_topic,
        "worker": on_worker,
        "mirror": on_mirror,
    }
    return Hands(**{name: makers[name.rpartition("_")[2]](text) for name, text in given.items()})


def _parts(address: str) -> dict[str, str]:
    host, _, port = address.rpartition(":")
    return {"host": host, "port": port}


def _run(text: str, **values: str) -> None:
    """A command of the user, by the shell, as it was written for one; what it says goes to stderr.

    Ctrl-C is for who runs it, so it has a group of its own, which ends with it: nothing of it goes
    on when another is run.
    """
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", shlex.quote(value))
    running = subprocess.Popen(
        ("sh", "-c", text), stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
    )
    try:
        code = running.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"the command `{text}` was not done after {COMMAND_SECONDS:.0f} s; it must "
            "return by then"
        ) from error
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    if code:
        raise Unavailable(f"the command `{text}` failed with exit code {code}")
