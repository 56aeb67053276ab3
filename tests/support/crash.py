"""Ends (or pauses) a process of the ETL at a named step, on a test's order, without a hook in the
program itself.

`install` wraps the functions in which the steps are taken; the test places an order in a file, and
the first process that comes to the step takes the order and dies. Without an order the wrapped
functions do what they always did. Names move while code is worked on: all of them stand in `STEPS`
and `OBJECT_STEPS`, and one that is gone, or has lost a parameter, fails loudly.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from hourmark.process.durable import write_durably

ORDER_VARIABLE: Final = "HOURMARK_TEST_CRASH_ORDER"
DRIVER_VARIABLE: Final = "HOURMARK_TEST_CRASH_DRIVER"

Moment = Literal["before", "after"]
Victim = Literal["itself", "driver", "executor"]
How = Literal["SIGKILL", "SIGSTOP"]
Arguments = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """Calls of these functions (module:qualified name) that count, told by their arguments."""

    functions: tuple[str, ...]
    counts: Callable[[Arguments], bool]


@dataclasses.dataclass(frozen=True)
class CrashOrder:
    """Who dies when. A step that is taken in a Python worker may kill the worker ("itself"), the
    executor that started it, or the driver.

    SIGSTOP only pauses it: a test that has its pid wakes it.
    """

    step: str
    moment: Moment
    victim: Victim = "itself"
    how: How = "SIGKILL"

    def __str__(self) -> str:
        whom = "" if self.victim == "itself" else f"-kills-the-{self.victim}"
        return f"{self.moment}-{self.step}{whom}"

    @property
    def ends_driver(self) -> bool:
        """Whether the driver dies of it: all steps but those of `IN_WORKERS` are its own."""
        return self.victim == "driver" or self.step not in IN_WORKERS

    def place(self, file: Path) -> None:
        """The next process that comes to the step dies."""
        write_durably(file, json.dumps(dataclasses.asdict(self)).encode())


def _storage(method: str) -> tuple[str, ...]:
    return (
        f"hourmark_etl.storage.webhdfs:WebHdfs.{method}",
        f"hourmark_etl.storage.local_disk:LocalDisk.{method}",
    )


_OBJECTS: Final = "hourmark_etl.storage.object_storage:ObjectStorage"


def _is_bucket(path: str) -> bool:
    return not path.startswith(("_", "."))


STEPS: Final[Mapping[str, Step]] = {
    "staged-write": Step(
        (*_storage("create"), f"{_OBJECTS}.write_new"),
        lambda a: a["path"].startswith("_staging/") and "/events" in a["path"],
    ),
    "ledger-commit": Step(
        ("hourmark_etl.ledger.batches:commit_batch",), lambda a: bool(a["batch"].groups)
    ),
    "freeze": Step(("hourmark_etl.ledger.frontiers:freeze",), lambda a: bool(a["open_frontiers"])),
    "seal": Step(("hourmark_etl.ledger.frontiers:seal",), lambda a: bool(a["chains"])),
    "attempt": Step(("hourmark_etl.closing.engine:Engine.write",), lambda a: bool(a["sealed"])),
    "attempt-file": Step(
        (*_storage("create"), f"{_OBJECTS}.create"),
        lambda a: a["path"].startswith("_attempts/") and a["path"].endswith(".avro"),
    ),
    "marker": Step(
        (*_storage("create"), f"{_OBJECTS}.write_new"),
        lambda a: a["path"].startswith("_attempts/") and a["path"].endswith("/_SUCCESS"),
    ),
    "rename": Step(
        _storage("rename_new"),
        lambda a: a["source"].startswith("_attempts/") and _is_bucket(a["target"]),
    ),
    "rename-folder": Step(
        ("hourmark_etl.closing.publication.attempts:publish_folder",), lambda a: bool(a["buckets"])
    ),
    "ledger-close": Step(
        ("hourmark_etl.ledger.frontiers:record_closed_hours",), lambda a: bool(a["closings"])
    ),
}
# Steps that publish a bucket on an object store, instead of the renames.
OBJECT_STEPS: Final[Mapping[str, Step]] = {
    "selection": Step((f"{_OBJECTS}.write_new",), lambda a: a["path"].startswith("_selected/")),
    "copy": Step((f"{_OBJECTS}.copy_file",), lambda a: _is_bucket(a["target"])),
    "bucket-marker": Step(
        (f"{_OBJECTS}.write_new",),
        lambda a: _is_bucket(a["path"]) and a["path"].endswith("/_SUCCESS"),
    ),
    "record-deleted": Step(
        (f"{_OBJECTS}.delete",),
        lambda a: a["path"].startswith("_attempts/") and a["path"].endswith("/_SUCCESS"),
    ),
}
_ALL_STEPS: Final = {**STEPS, **OBJECT_STEPS}
IN_WORKERS: Final = frozenset({"staged-write", "attempt-file"})


def install() -> None:
    """Wrap the functions of all steps, in this process, wherever they were imported to already."""
    by_function: dict[str, list[str]] = {}
    for name, step in _ALL_STEPS.items():
        for function in step.functions:
            by_function.setdefault(function, []).append(name)
    for function, names in by_function.items():
        _wrap(function, names)


def _wrap(function: str, steps: list[str]) -> None:
    module_name, _, qualified = function.partition(":")
    *outer, name = qualified.split(".")
    owner: Any = importlib.import_module(module_name)
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    signature = inspect.signature(original)
    wrapped = (
        _around_context if inspect.isgeneratorfunction(inspect.unwrap(original)) else _around
    )(original, signature, steps)
    setattr(owner, name, wrapped)
    if not outer:  # `from module import function` has made copies of the name
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, wrapped)


def _around(
    original: Callable[..., Any], signature: inspect.Signature, steps: list[str]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        coming = _counting(signature, steps, args, kwargs)
        _die_if_ordered(coming, "before")
        result = original(*args, **kwargs)
        _die_if_ordered(coming, "after")
        return result

    return wrapped


def _around_context(
    original: Callable[..., Any], signature: inspect.Signature, steps: list[str]
) -> Callable[..., Any]:
    """For a context manager, the step is done when its block has ended well."""

    @functools.wraps(original)
    @contextmanager
    def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
        coming = _counting(signature, steps, args, kwargs)
        _die_if_ordered(coming, "before")
        with original(*args, **kwargs) as value:
            yield value
        _die_if_ordered(coming, "after")

    return wrapped


def _counting(signature: inspect.Signature, steps: list[str], args: Any, kwargs: Any) -> list[str]:
    arguments = signature.bind(*args, **kwargs).arguments
    return [name for name in steps if _ALL_STEPS[name].counts(arguments)]


def _die_if_ordered(steps: list[str], moment: Moment) -> None:
    if not steps:
        return
    file = Path(os.environ[ORDER_VARIABLE])
    try:
        order = CrashOrder(**json.loads(file.read_text()))
        if order.step not in steps or order.moment != moment:
            return
        file.unlink()  # whoever unlinks it, dies: one process alone
    except FileNotFoundError:
        return
    os.kill(_pid_of(order.victim), signal.Signals[order.how])
    if order.victim == "driver":
        signal.pause()  # the worker whose driver is dead goes no further


def _pid_of(victim: Victim) -> int:
    if victim == "driver":
        return int(os.environ[DRIVER_VARIABLE])
    if victim == "executor":
        return _first_java(os.getppid())
    return os.getpid()


def _first_java(pid: int) -> int:
    """This process, or the nearest above it that is a Java's: of a Python worker, its executor."""
    name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    return pid if name == "java" else _first_java(int(fields.split()[1]))
