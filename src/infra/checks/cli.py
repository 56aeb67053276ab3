"""`hourmark test`: runs each check as its own process, and says one line for each; exit 1 if any failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hourmark.clock import SystemClock
from hourmark.errors import UsageError
from infra.java.find import export_java_home

# pytest's marker expressions. A full run is to stay under 25 minutes; what would not fit in is a tier of its own.
DEFAULT_MARKS = "not long"
QUICK_MARKS = "not stack and not chaos and not long"
LONG_MARKS = "long"


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `shown` lets its own output through while it runs, else it is shown only where it failed."""

    name: str
    command: tuple[str, ...]
    shown: bool = False


def checks(root: Path, marks: str, pytest_arguments: Sequence[str]) -> tuple[Check, ...]:
    """What is run, in this order: the quick ones first."""
    tools = Path(sys.executable).parent
    marked = ("-m", marks) if marks else ()
    folders = tuple(name for name in ("src", "tests", "bench", "tools") if (root / name).is_dir())
    return (
        Check("ruff check", (str(tools / "ruff"), "check", *folders)),
        Check("ruff format", (str(tools / "ruff"), "format", "--check", *folders)),
        Check("import rules", (sys.executable, str(tools / "lint-imports"))),
        Check("mypy", (sys.executable, "-m", "mypy")),
        Check("pytest", (sys.executable, "-m", "pytest", *marked, *pytest_arguments), shown=True),
    )


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--quick", is_flag=True, help="Without the tests that need the real stack or kill parts of it.")
@click.option("--long", "long_tier", is_flag=True, help="The tests that are too long for every run, instead of the others.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def test(quick: bool, long_tier: bool, pytest_arguments: tuple[str, ...]) -> None:
    """Run every check: style, import rules, types, and the whole test suite on the real local stack.

    Arguments that are none of these options go to pytest.

    \b
    Examples:
      hourmark test
      hourmark test --quick
      hourmark test --long
      hourmark test tests/unit -k ranges -x
    """
    if quick and long_tier:
        raise UsageError("--quick and --long exclude each other; run one after the other")
    root = project("the tests are")
    marks = QUICK_MARKS if quick else LONG_MARKS if long_tier else DEFAULT_MARKS
    export_java_home()
    failed = [check.name for check in checks(root, marks, pytest_arguments) if not _passes(check, root)]
    click.echo(f"FAILED: {', '.join(failed)}" if failed else "all checks passed", err=True)
    sys.exit(1 if failed else 0)


def _passes(check: Check, root: Path) -> bool:
    clock = SystemClock()
    began = clock.monotonic_s()
    done = subprocess.run(
        check.command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=None if check.shown else subprocess.PIPE,
        stderr=None if check.shown else subprocess.STDOUT,
        check=False,
    )
    passed = done.returncode == 0
    if not passed and not check.shown:
        sys.stdout.buffer.write(done.stdout)
        sys.stdout.flush()
    click.echo(f"{check.name:<13} {'passed' if passed else 'FAILED'}  {clock.monotonic_s() - began:6.1f} s", err=True)
    return passed


def project(what: str) -> Path:
    """The checkout; UsageError where Hourmark is installed without one, and so without `what` ("the tests are")."""
    root = Path(__file__).parents[3]
    if not (root / "pyproject.toml").is_file():
        raise UsageError(f"{what} not part of an installed Hourmark; work in a checkout, with ./hourmark")
    return root
