"""The stack of a test session: its own, or the one that `HOURMARK_TEST_HOME` names."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner
from tests.support.waiting import wait_for

from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.layout import WATCH
from hourmark_mirror.cli import mirror


@contextlib.contextmanager
def running_stack(
    create: Callable[[], LocalStack], with_mirror: bool = True
) -> Iterator[LocalStack]:
    """A stack whose servers run: what `HOURMARK_TEST_HOME` names, which is left running, else what
    `create` makes. The logs of the latter stay, for whoever asks what happened.

    Args:
        create: Returns a stack that does not run.
        with_mirror: Whether a stack from `create` starts MirrorMaker 2, if it has it.
    """
    if named := os.environ.get("HOURMARK_TEST_HOME"):
        existing = LocalStack.load(Path(named))
        existing.up()
        yield existing
        return
    made = create()
    try:
        made.up(only=None if with_mirror else without_mirror(made))
        yield made
    finally:
        made.down()
        shutil.rmtree(made.layout.data, ignore_errors=True)


def without_mirror(stack: LocalStack) -> set[str]:
    """The stack's servers but for MirrorMaker 2 and its watch."""
    return {*stack.names} - {*stack.layout.shape.mirrors, WATCH}


@contextlib.contextmanager
def running_mirror(stack: LocalStack) -> Iterator[None]:
    """MirrorMaker 2 of a stack from `running_stack(with_mirror=False)`, and all its other servers.

    Its tasks run when a test begins, so that time limits of tests do not include its start. It is
    stopped at the end, because an idle worker uses a tenth of a core.
    """
    outcomes = stack.up()
    started = [name for name in {*outcomes} - without_mirror(stack) if outcomes[name] == "started"]
    try:
        if started:
            status = ["status", "--config", str(stack.layout.config_file)]
            wait_for(
                lambda: CliRunner().invoke(mirror, status).exit_code == 0, "the mirror runs", 180
            )
        yield
    finally:
        for name in started:
            stack.stop(name)
