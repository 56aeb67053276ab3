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
from hourmark_evaluate import local
from hourmark_evaluate.brokers import Brokers
from hourmark_evaluate.hands import Hands
from hourmark_evaluate.jmx import Jmx
from hourmark_evaluate.records import RUN_BYTES, Form
from hourmark_evaluate.results import Evaluation, Trial
from hourmark_evaluate.stage import NotBack
from hourmark_evaluate.trials import TRIALS, play
from hourmark_evaluate.verdicts import of_trial
from hourmark_evaluate.world import Wish, World
from hourmark_infra.jars.cache import Reporter
from hourmark_infra.locks import exclusive_lock
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.control import purge_stack
from hourmark_infra.stack.kafka import PASSWORD, ROLE
from hourmark_infra.stack.layout import JMX
from hourmark_infra.stack.servers import is_mirror_installed

GIVE_UP_SECONDS: Final = (
    180.0  # time limit for brokers that are still starting when a run is interrupted
)
SWEEP_SECONDS: Final = (
    15.0  # a mirror may recreate a deleted topic until it refreshes its list of topics
)


def new_run() -> str:
    """Return a random identifier of 8 hexadecimal digits for the topic names of one run."""
    return secrets.token_hex(4)


def evaluate(
    world: World,
    names: Sequence[str],
    where: str,
    command: str,
    keep: Callable[[Evaluation], None] = lambda _: None,
) -> Evaluation:
    """Run the named trials in order and return the result of the evaluation.

    A trial that fails is part of the result, with the reason. After a trial whose servers did not
    recover, the remaining trials are reported as not tried. At the end, all topics of this run are
    deleted; names of topics that cannot be deleted within 180 s are reported through `world.say`.

    Args:
        world: The clusters and the user's options.
        names: Names of the trials to run; each must be a key of `TRIALS`.
        where: Description of the clusters for the report, such as "the local stack".
        command: The command line that repeats the run, for the report.
        keep: Function that receives the result so far after each trial, so that an interrupted run
            loses nothing.

    Raises:
        KeyError: A name is not a known trial.
    """
    began_s, began_ms, load_before = (
        world.clock.monotonic_s(),
        world.clock.now_ms(),
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
        edge_brokers=len(world.edge.ids),
        central_brokers=len(world.central.ids) if world.central else 0,
        replication=world.edge.replication,
        peak_rate=world.wish.rate,
        event_bytes=world.wish.event_bytes,
        trials=(),
    )
    with _swept(world):
        for number, name in enumerate(names, 1):
            world.say(f"{number} of {len(names)}: {TRIALS[name].title}")
            trial = _played(
                world,
                name,
                next((before.name for before in so_far.trials if before.broken_off), ""),
            )
            world.say(f"{name}: {_line(trial)}")
            so_far = dataclasses.replace(
                so_far,
                seconds=round(world.clock.monotonic_s() - began_s, 1),
                load_average=(so_far.load_average[0], round(os.getloadavg()[0], 1)),
                trials=(*so_far.trials, trial),
            )
            keep(so_far)
    return so_far


def _played(world: World, name: str, broken_off: str) -> Trial:
    """Return the result of one trial, with the reason if it failed or was not tried.

    Args:
        world: The clusters and the user's options.
        name: The trial.
        broken_off: Name of an earlier trial whose servers did not recover; "" if there is none. The
            trial is not tried if it is set.
    """
    title = TRIALS[name].title
    if broken_off:
        return Trial(name=name, title=title, not_tried=f"{broken_off} was not brought to its end")
    # Other errors, such as a missing permission of the client, show nothing about Kafka and do not
    # end the run.
    try:
        return play(world, name)
    except NotBack as error:
        return Trial(name=name, title=title, broken_off=str(error))
    except HourmarkError as error:
        return Trial(name=name, title=title, not_tried=str(error))


@contextlib.contextmanager
def local_world(home: Path, wish: Wish, clock: Clock, say: Reporter) -> Iterator[World]:
    """Start a new local stack and yield its clusters; stop the stack on exit.

    The stack has three edge brokers, three central brokers and, if MirrorMaker 2 is installed, two
    of its workers.

    Args:
        home: Directory of the stack. An existing stack there is deleted first.
        wish: The user's options.
        clock: Source of time.
        say: Function that is called with each line of progress.

    Raises:
        UsageError: Another evaluation uses this directory.
    """

    def refuse() -> None:
        raise UsageError(
            f"another evaluation runs in {home}; wait for it, or set HOURMARK_HOME to "
            "another folder"
        )

    with exclusive_lock(home / "evaluate.lock", refuse):
        purge_stack(home, say)
        mirror = is_mirror_installed()
        copier = "two workers of MirrorMaker 2" if mirror else "no mirror, as none is installed"
        say(f"starting three edge brokers, three central ones and {copier}")
        stack = LocalStack.load_or_create(
            home, mirror=mirror, spread=True, workers=2, jmx=True, report=say
        )
        try:
            stack.up(local.servers(stack))
            yield world_of(stack, wish, clock, say)
        finally:
            stack.down()


def world_of(stack: LocalStack, wish: Wish, clock: Clock, say: Callable[[str], None]) -> World:
    """Return the brokers and the mirror of a running local stack as the environment for trials.

    Brokers' metrics are available only if the stack was created with JMX.

    Args:
        stack: The running stack.
        wish: The user's options.
        clock: Source of time.
        say: Function that is called with each line of progress.

    Raises:
        Unavailable: A cluster does not answer.
    """
    edge = Brokers("edge", stack.layout.bootstrap("edge"), {})
    central = (
        Brokers("central", stack.layout.bootstrap("central"), {}) if stack.clusters > 1 else None
    )
    addresses = tuple(stack.layout.address(f"{name}-{JMX}") for name in stack.brokers)
    programs = stack.programs
    jmx = Jmx(
        addresses=addresses,
        java=lambda: programs.java,
        jars=lambda: programs.kafka,
        user=ROLE,
        password=PASSWORD,
    )
    return World(
        edge=edge,
        central=central,
        alias="edge",
        hands=local.hands(stack, central),
        wish=wish,
        form=new_form(wish),
        run=new_run(),
        clock=clock,
        say=say,
        jmx=jmx if stack.jmx else None,
        broker_cpu=lambda: local.cpu_seconds(stack),
    )


def users_world(
    edge: Brokers,
    central: Brokers | None,
    alias: str,
    hands: Hands,
    jmx: Jmx | None,
    wish: Wish,
    clock: Clock,
    say: Reporter,
) -> World:
    """Return the user's clusters as the environment for trials, with a new run identifier.

    Args:
        edge: The edge cluster.
        central: The central cluster; None if there is none.
        alias: The mirror's alias of the edge cluster.
        hands: The available operations on servers.
        jmx: Access to the brokers' metrics; None if there is none.
        wish: The user's options.
        clock: Source of time.
        say: Function that is called with each line of progress.
    """
    return World(
        edge=edge,
        central=central,
        alias=alias,
        hands=hands,
        wish=wish,
        form=new_form(wish),
        run=new_run(),
        clock=clock,
        say=say,
        jmx=jmx,
    )


def new_form(wish: Wish) -> Form:
    """Return a record format with a random run identifier, which no other run uses."""
    return Form(secrets.token_bytes(RUN_BYTES), wish.event_bytes)


@contextlib.contextmanager
def _swept(world: World) -> Iterator[None]:
    """Delete all topics of this run on exit, including those that the mirror creates again."""
    try:
        yield
    finally:
        began_s = world.clock.monotonic_s()
        while left := _left(world, world.clock.monotonic_s() - began_s):
            world.clock.sleep(1.0)
            if world.clock.monotonic_s() - began_s > GIVE_UP_SECONDS:
                world.say(f"topics are left and must be deleted by hand: {', '.join(left)}")
                break


def _left(world: World, waited_s: float) -> list[str]:
    """Return descriptions of topics that remain or may appear again; empty when done."""
    failed = [
        name
        for brokers in (world.edge, world.central)
        if brokers
        for name in _sweep(brokers, world.run)
    ]
    again = ["those that the mirror makes"] if world.central and waited_s < SWEEP_SECONDS else []
    return failed or again


def _sweep(brokers: Brokers, run: str) -> list[str]:
    """Delete the topics of this run, and return a description of what could not be deleted."""
    try:
        names = [name for name in brokers.cluster.names() if f"{run}-" in name]
        brokers.delete(names)
    except HourmarkError as error:
        return [f"those with {run} in their names ({error})"]
    return []


def _line(trial: Trial) -> str:
    if trial.not_tried:
        return f"not tried: {trial.not_tried}"
    if trial.broken_off:
        return f"not brought to its end: {trial.broken_off}"
    lost, doubled = sum(c.lost for c in trial.counts), sum(c.doubled for c in trial.counts)
    slowest = max(
        (d.recovered_s for d in trial.disturbances if d.recovered_s is not None), default=None
    )
    after = (
        ""
        if slowest is None
        else (
            f", {len(trial.disturbances)} disturbances, all well {slowest:.1f} s after them "
            "at the latest"
        )
    )
    if any(d.recovered_s is None for d in trial.disturbances):
        after = ", and not all went on by themselves"
    acknowledged = trial.counts[0].acknowledged
    return (
        f"{of_trial(trial)}; {acknowledged:,} acknowledged, {lost:,} lost, {doubled:,} "
        f"doubled{after}"
    )


def checked_names(names: Sequence[str]) -> Sequence[str]:
    """Return the selected trial names in the order of execution; all of them if `names` is empty.

    Unknown names are ignored.
    """
    return [name for name in TRIALS if not names or name in names]


def reachable(name: str, bootstrap: str, properties: dict[str, str]) -> Brokers:
    """Connect to a cluster and return it.

    Args:
        name: "edge" or "central", for error messages.
        bootstrap: Bootstrap servers, as HOST:PORT separated by commas.
        properties: Additional client settings, by librdkafka's names.

    Raises:
        UsageError: A client setting is invalid.
        Unavailable: The cluster does not answer.
    """
    try:
        return Brokers(name, bootstrap, properties)
    except KafkaException as error:
        told = error.args[0].str()
        raise UsageError(
            f"the {name} cluster: {told}; --properties takes librdkafka's names, which "
            "are not Java's"
        ) from error
    except Unavailable as error:
        raise Unavailable(
            f"{error}; check the address, and the client's security settings (--properties FILE)"
        ) from error
