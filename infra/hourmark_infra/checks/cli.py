"""`hourmark test`: runs each check as its own process, and says one line for each; exit 1 if any failed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hourmark.errors import UsageError
from hourmark_infra.checks.running import Check, run_checks
from hourmark_infra.java.find import export_java_home

# pytest's marker expressions. A full run takes 35 to 40 minutes on two cores; what is too long for it is a tier of its own.
DEFAULT_MARKS = "not long"
QUICK_MARKS = "not stack and not chaos and not long"
LONG_MARKS = "long"


def checks(marks: str, pytest_arguments: Sequence[str]) -> tuple[Check, ...]:
    """What is run, in this order: the quick ones first."""
    tools = Path(sys.executable).parent
    marked = ("-m", marks) if marks else ()
    return (
        Check("ruff check", (str(tools / "ruff"), "check", ".")),
        Check("ruff format", (str(tools / "ruff"), "format", "--check", ".")),
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

    Arguments that are none of these options go to pytest. Ended by Ctrl-C, SIGTERM or SIGHUP, it first takes down what the
    tests started.

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
    sys.exit(run_checks(checks(marks, pytest_arguments), root))


def project(what: str) -> Path:
    """The checkout; UsageError where Hourmark is installed without one, and so without `what` ("the tests are")."""
    root = Path(__file__).parents[3]
    if not (root / "pyproject.toml").is_file():
        raise UsageError(f"{what} not part of an installed Hourmark; work in a checkout, with ./hourmark")
    return root
