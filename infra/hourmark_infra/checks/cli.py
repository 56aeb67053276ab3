"""`hourmark test`: runs each check in a child process and prints one line for each.

The whole suite consists of three pytest sessions. Tests on servers run in parallel with all other
tests. Tests with time limits run last and alone. Tests spend most of their time waiting, so the
first two sessions have several worker processes (pytest-xdist). Each worker process collects all
tests of its session, which takes half a minute of CPU time for the whole suite. Therefore sessions
are few, and those that need only a few folders collect only these.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from hourmark.errors import UsageError
from hourmark_infra.checks.pythons import (
    describe_missing_versions,
    find_interpreters,
    installation_checks,
)
from hourmark_infra.checks.running import Check, Output, run_checks
from hourmark_infra.java.find import export_java_home

# Marker expressions of pytest. Tests that are too long for every run are a separate tier.
SERVER_MARKS = "(stack or chaos) and not long and not alone"
WITHOUT_SERVERS = "not stack and not chaos and not long and not alone"
QUICK_MARKS = f"{WITHOUT_SERVERS} and not slow"
ALONE_MARKS = "alone and not long"
# The folders of all tests with these marks, except for tests that are also marked `long`.
SERVER_FOLDERS = ("tests/faults", "tests/integration")
ALONE_FOLDERS = ("tests/unit/delivery_service/limits",)
# Most of these tests wait for timers and processes. More workers do not help on two cores, because
# each of them collects all tests.
QUICK_WORKERS = ("--numprocesses", "7", "--dist", "worksteal")
# A profile of tests/conftest.py: a quarter of the examples that Hypothesis draws otherwise.
QUICK_EXAMPLES = ("--hypothesis-profile", "quick")
# One worker runs all tests of a file, which share what the first of them starts or builds. Files
# keep their order, because those with few tests, such as tests/faults, take the longest.
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
# Fewer than in the quick tier, because the tests on servers run at the same time.
OTHER_WORKERS = ("--numprocesses", "3", *BY_FILE)
# Each worker starts a stack, which needs about 4 GiB of memory.
SERVER_WORKERS = ("--numprocesses", "2", *BY_FILE)
# While both lanes use all cores, a test may exceed a time limit, or a race in a test may show that
# never does otherwise. The result lists such tests. More of them than these are not bad luck.
REPEATS_MAX = 3
DEFAULT_MARKS = "not long"
LONG_MARKS = "long"
CONTAINER_MARKS = "containers"  # these tests are also marked `long`
ACCEPTANCE_MARKS = "acceptance"  # likewise
REPORTS = Path(".pytest_cache", "reports")


def static_checks() -> tuple[Check, ...]:
    """Return the static checks of the source code: linting, format, import rules and types.

    Returns:
        Checks that run `ruff check`, `ruff format --check`, `lint-imports` and `mypy`, in this
        order. Each command runs in the root folder of the checkout.
    """
    tools = Path(sys.executable).parent
    return (
        Check("ruff check", (str(tools / "ruff"), "check", ".")),
        Check("ruff format", (str(tools / "ruff"), "format", "--check", ".")),
        Check("import rules", (sys.executable, str(tools / "lint-imports"))),
        Check("mypy", (sys.executable, "-m", "mypy")),
    )


def class_archive() -> Check:
    """Return a check that creates the class-data archive for Spark, unless it exists.

    Tests that start Spark then start faster, because Java loads classes from the archive.
    """
    return Check("class archive", (sys.executable, "-m", "hourmark_infra.checks.class_archive"))


def tests(
    name: str,
    marks: str,
    arguments: Sequence[str],
    output: Output = Output.AS_IT_COMES,
    repeats_max: int = 0,
    folders: tuple[str, ...] = (),
) -> Check:
    """Return a check that runs the tests selected by a pytest marker expression.

    Args:
        name: Name of the check, shown with its result.
        marks: Marker expression, such as `slow and not chaos`, passed to pytest as `-m`.
        arguments: Additional command-line arguments for pytest.
        output: When to print the output of pytest.
        repeats_max: If at most this many tests fail, they are repeated alone.
        folders: Folders that contain the tests; empty for all tests.

    Returns:
        The check, to be passed to `run_checks`. This function does not run pytest.
    """
    report = REPORTS / f"{name.replace(' ', '-')}.xml"
    # This family names the file of each test.
    reporting = (f"--junitxml={report}", "-o", "junit_family=xunit1")
    command = (sys.executable, "-m", "pytest", "-m", marks, *reporting, *arguments)
    return Check(name, command, output, report, repeats_max, folders)


class Plan(NamedTuple):
    """The checks for one run of `hourmark test`, and their order.

    Attributes:
        lanes: Sequences of checks. The sequences run in parallel, and the checks within each
            sequence run one after another.
        last: Checks that run one after another when all sequences have finished.
    """

    lanes: Sequence[Sequence[Check]]
    last: Sequence[Check] = ()


def whole_suite(arguments: Sequence[str]) -> Plan:
    """Return the checks for `hourmark test` without options.

    The plan contains the static checks and all tests except the long-running ones. Tests that need
    servers run in parallel with the static checks and all other tests. Tests that are sensitive to
    machine load run afterwards, one at a time.

    Args:
        arguments: Additional command-line arguments for pytest.

    Returns:
        The plan, to be executed by `run_checks`.
    """
    # With options such as --maxfail, not all tests have run.
    repeats_max = 0 if arguments else REPEATS_MAX
    return Plan(
        (
            (
                class_archive(),
                tests(
                    "tests on servers",
                    SERVER_MARKS,
                    (*SERVER_WORKERS, *arguments),
                    repeats_max=repeats_max,
                    folders=SERVER_FOLDERS,
                ),
            ),
            (
                *static_checks(),
                tests(
                    "tests without servers",
                    WITHOUT_SERVERS,
                    (*OTHER_WORKERS, *arguments),
                    Output.AT_ITS_END,
                    repeats_max=repeats_max,
                ),
            ),
        ),
        (tests("tests alone", ALONE_MARKS, arguments, folders=ALONE_FOLDERS),),
    )


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--quick",
    is_flag=True,
    help="Omit slow tests and tests that need the real stack or kill parts of it.",
)
@click.option(
    "--long",
    "long_tier",
    is_flag=True,
    help="Run only the tests that take too long for every run.",
)
@click.option(
    "--acceptance",
    is_flag=True,
    help="Test each installation method, from a clean machine to closed buckets that the judge "
    "accepts.",
)
@click.option(
    "--containers",
    is_flag=True,
    help="Run only the tests in containers, which need a container engine.",
)
@click.option(
    "--pythons",
    is_flag=True,
    help="Test the wheels with each supported Python on this machine.",
)
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def test(
    quick: bool,
    long_tier: bool,
    containers: bool,
    acceptance: bool,
    pythons: bool,
    pytest_arguments: tuple[str, ...],
) -> None:
    """Run all checks: style, import rules, types, and the whole test suite on a real local stack.

    Tests that need servers run in parallel with all other tests. The output of the other tests is
    printed when they have finished. Some tests run alone at the end. On Ctrl-C, SIGTERM or SIGHUP,
    the command stops everything that the tests have started, and then exits.

    Unknown arguments are passed to pytest. If any of them does not begin with `--`, all tests run
    in one pytest session.

    \b
    Examples:
      hourmark test
      hourmark test --quick
      hourmark test --long
      hourmark test --containers
      hourmark test --acceptance
      hourmark test --pythons
      hourmark test tests/unit -k ranges -x
    """
    if quick + long_tier + containers + acceptance + pythons > 1:
        raise UsageError(
            "--quick, --long, --containers, --acceptance and --pythons exclude each "
            "other; run one after the other"
        )
    root = checkout_root("the tests")
    if pythons:
        interpreters = find_interpreters()
        code = run_checks([installation_checks(interpreters)], root)
        for line in describe_missing_versions(interpreters):
            click.echo(line, err=True)
        sys.exit(code)
    export_java_home()
    chosen = CONTAINER_MARKS if containers else ACCEPTANCE_MARKS if acceptance else None
    lanes, last = plan(quick, long_tier, pytest_arguments, chosen=chosen)
    sys.exit(run_checks(lanes, root, last))


def plan(
    quick: bool, long_tier: bool, arguments: Sequence[str], *, chosen: str | None = None
) -> Plan:
    """Return the checks for `hourmark test` with the given options.

    Args:
        quick: Whether to run only the static checks, and fast tests that need no servers.
        long_tier: Whether to run the static checks and the long-running tests.
        arguments: Additional command-line arguments for pytest. If one of them does not start with
            `--`, such as a test file, all selected tests run in one pytest session.
        chosen: Marker expression that selects tests to run without static checks; `quick` and
            `long_tier` are then ignored. None to select tests with `quick` and `long_tier`.

    Returns:
        The plan, to be executed by `run_checks`.
    """
    if chosen is not None:
        return Plan(((tests("pytest", chosen, arguments),),))
    if not (quick or long_tier) and all(argument.startswith("--") for argument in arguments):
        return whole_suite(arguments)
    if quick:
        chosen_tests = tests("pytest", QUICK_MARKS, (*QUICK_WORKERS, *QUICK_EXAMPLES, *arguments))
        return Plan((static_checks(), (chosen_tests,)))
    if long_tier and all(argument.startswith("--") for argument in arguments):
        return Plan(
            (
                (
                    *static_checks(),
                    class_archive(),
                    tests("pytest", LONG_MARKS, (*SERVER_WORKERS, *arguments)),
                ),
            ),
        )
    marks = LONG_MARKS if long_tier else DEFAULT_MARKS
    return Plan(((*static_checks(), tests("pytest", marks, arguments)),))


def checkout_root(subject: str) -> Path:
    """Return the root folder of the source checkout that contains this module.

    Commands that need files from the checkout, such as the tests, call this function first.

    Args:
        subject: What needs the checkout, in the plural, for the error message. For example, `the
            tests` results in "the tests are not part of an installed Hourmark".

    Returns:
        The folder that contains `pyproject.toml`.

    Raises:
        UsageError: The folder has no `pyproject.toml`, because Hourmark runs from an installed
            package instead of a checkout.
    """
    root = Path(__file__).parents[3]
    if not (root / "pyproject.toml").is_file():
        raise UsageError(
            f"{subject} are not part of an installed Hourmark; use a checkout, with ./hourmark"
        )
    return root
