"""`hourmark test` runs every test once, in lanes beside each other, and a named one in one
session.
"""

from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path

import pytest

from hourmark_infra.checks.cli import (
    ACCEPTANCE_MARKS,
    ALONE_FOLDERS,
    CONTAINER_MARKS,
    SERVER_FOLDERS,
    plan,
)
from hourmark_infra.checks.reports import describe_failed_tests
from hourmark_infra.checks.running import Check, Output, run_checks

pytestmark = pytest.mark.slow


def marks_of(check: Check) -> str:
    return check.command[check.command.index("-m", 2) + 1]


def pytests(*arguments: str, quick: bool = False, long_tier: bool = False) -> list[Check]:
    """Sessions of pytest."""
    lanes, last = plan(quick, long_tier, arguments)
    return [check for lane in (*lanes, last) for check in lane if "pytest" in check.command]


def sessions(*arguments: str, quick: bool = False, long_tier: bool = False) -> list[str]:
    """Their marker expressions."""
    return [marks_of(check) for check in pytests(*arguments, quick=quick, long_tier=long_tier)]


@pytest.mark.parametrize(
    ("stack", "chaos", "long", "alone", "slow"), [*product((True, False), repeat=5)]
)
def test_each_test_is_in_one_session(
    stack: bool, chaos: bool, long: bool, alone: bool, slow: bool
) -> None:
    marks = {"stack": stack, "chaos": chaos, "long": long, "alone": alone, "slow": slow}
    chosen = [check for check in pytests("--durations=9") if eval(marks_of(check), {}, marks)]
    assert len(chosen) == (0 if long else 1)


@pytest.mark.parametrize(
    ("marks", "folders"), [("stack|chaos", SERVER_FOLDERS), ("alone", ALONE_FOLDERS)]
)
def test_marked_tests_are_in_the_folders_of_their_session(
    marks: str, folders: tuple[str, ...]
) -> None:
    root = Path(__file__).parents[3]
    marked = [
        path.relative_to(root)
        for path in root.glob("tests/**/test_*.py")
        if re.search(rf"pytest\.mark\.({marks})\b", text := path.read_text())
        and not re.search(r"pytestmark = \[[^]]*pytest\.mark\.long", text)
    ]
    assert marked
    assert not [
        path for path in marked if not any(path.is_relative_to(folder) for folder in folders)
    ]


@pytest.mark.parametrize(
    "arguments", [("tests/unit",), ("-k", "ranges"), ("-x",), ("--lf", "tests/unit/core::name")]
)
def test_named_tests_have_one_session(arguments: tuple[str, ...]) -> None:
    assert sessions(*arguments) == ["not long"]


def test_a_tier_has_one_session() -> None:
    assert sessions(quick=True) == [
        "not stack and not chaos and not long and not alone and not slow"
    ]
    assert sessions(long_tier=True) == ["long"]
    for chosen in (CONTAINER_MARKS, ACCEPTANCE_MARKS):
        ((lane,), last) = plan(False, False, (), chosen=chosen)
        assert not last
        assert [marks_of(check) for check in lane] == [chosen]


def test_lanes_run_beside_each_other_and_each_failure_counts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    def meet(own: Path, other: Path, status: int) -> Check:
        code = (
            "import pathlib, sys, time\n"
            f"pathlib.Path({str(own)!r}).touch(); end = time.monotonic() + 30\n"
            f"while not pathlib.Path({str(other)!r}).exists():\n"
            "    time.sleep(0.01)\n"
            "    assert time.monotonic() < end\n"
            f"print('I am', {own.name!r}); sys.exit({status})"
        )
        return Check(own.name, (sys.executable, "-c", code), Output.AT_ITS_END)

    assert run_checks(((meet(first, second, 0),), (meet(second, first, 3),)), tmp_path) == 1
    said = capfd.readouterr()
    assert "I am first" in said.out
    assert "I am second" in said.out
    assert "FAILED: second\n" in said.err


def test_the_last_have_the_machine_for_themselves_whatever_failed_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = [tmp_path / "one", tmp_path / "other"]

    def touch(end: Path, status: int) -> Check:
        return Check(
            end.name,
            (sys.executable, "-c", f"open({str(end)!r}, 'w').close(); raise SystemExit({status})"),
        )

    both = f"import os; raise SystemExit(not all(map(os.path.exists, {[*map(str, ends)]})))"
    last = [
        Check("after", (sys.executable, "-c", both)),
        Check("fails", (sys.executable, "-c", "raise SystemExit(2)")),
    ]
    assert run_checks(((touch(ends[0], 4),), (touch(ends[1], 0),)), tmp_path, last) == 1
    assert "FAILED: one, fails\n" in capfd.readouterr().err


def test_what_passed_is_silent_unless_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    silent = Check("silent", (sys.executable, "-c", "print('nothing of this')"))
    assert run_checks(((silent,),), tmp_path) == 0
    assert "nothing" not in capfd.readouterr().out


def test_failed_tests_are_listed_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken(): raise OSError('no server')\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert [1] == [2], 'long ' * 99\n"
        "def test_needs(broken): pass\n"
    )
    (tmp_path / "pytest.ini").touch()

    def session(name: str) -> Check:
        report = Path("reports", f"{name}.xml")
        options = ("-p", "no:cacheprovider", f"--junitxml={report}", "-k", name)
        return Check(name, (sys.executable, "-m", "pytest", *options), report=report)

    lanes = [[session("passes"), session("fails")], [session("needs")]]
    assert run_checks(lanes, tmp_path) == 1
    end = capfd.readouterr().err.split("FAILED: fails, needs\n")[1].splitlines()
    assert end[0].startswith("  test_some::test_fails: AssertionError: long")
    assert len(end[0]) < 250
    assert end[1] == '  test_some::test_needs: failed on setup with "OSError: no server"'
    assert len(end) == 2


def test_a_report_of_an_earlier_run_is_not_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = Path("report.xml")
    (tmp_path / report).write_text(
        '<testsuite><testcase name="old"><error message="old"/></testcase></testsuite>'
    )
    ends_early = Check("early", (sys.executable, "-c", "raise SystemExit(4)"), report=report)
    assert run_checks([[ends_early]], tmp_path) == 1
    assert capfd.readouterr().err.endswith("FAILED: early\n")


def test_many_failed_tests_are_counted(tmp_path: Path) -> None:
    case = '<testcase classname="a" name="b"><failure message="c"/></testcase>'
    (tmp_path / "report.xml").write_text(f"<testsuite>{case * 11}</testsuite>")
    assert describe_failed_tests(tmp_path / "report.xml") == [*["a::b: c"] * 8, "and 3 more"]


@pytest.mark.parametrize(("failing", "status"), [(1, 0), (2, 0), (3, 1)])
def test_a_few_failed_tests_are_repeated_alone(
    failing: int, status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_late.py").write_text(
        "import pathlib, pytest\n"
        f"@pytest.mark.parametrize('name', [f'a/{{n}}' for n in range({failing})])\n"
        "def test_is_quick(name):\n"
        "    mark = pathlib.Path(f'{name[2:]}.mark')\n"
        "    repeated = mark.exists()\n"
        "    mark.touch()\n"
        "    assert repeated, 'too late'\n"
        "def test_passes():\n"
        "    with open('passes', 'a') as runs: runs.write('x')\n"
    )
    report = Path("report.xml")
    options = ("-o", "junit_family=xunit1", f"--junitxml={report}", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", "--numprocesses", "2", *options)
    session = Check("some", command, report=report, repeats_max=2, folders=(".",))
    assert run_checks([[session]], tmp_path) == status
    said = capfd.readouterr().err
    assert ("passed only when they were repeated alone:" in said) == (status == 0)
    assert said.count("  test_late::test_is_quick[a/") == failing
    assert (tmp_path / "passes").read_text() == "x", "what passed is not repeated"


def test_tests_that_fail_again_have_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_wrong.py").write_text("def test_wrong(): assert False, 'always'\n")
    report = Path("report.xml")
    options = ("-o", "junit_family=xunit1", f"--junitxml={report}", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", *options)
    session = Check("some", command, report=report, repeats_max=2)
    assert run_checks([[session]], tmp_path) == 1
    said = capfd.readouterr().err
    assert "some again" in said
    assert said.endswith(
        "FAILED: some\n  test_wrong::test_wrong: AssertionError: always assert False\n"
    )


def test_a_session_that_was_cut_short_is_not_repeated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_short.py").write_text("def test_passes(): pass\n")
    case = '<testcase file="test_short.py" name="test_passes"><failure message="late"/></testcase>'
    code = f"open('report.xml', 'w').write('<testsuite>{case}</testsuite>'); raise SystemExit(3)"
    command = (sys.executable, "-c", code)
    session = Check("short", command, report=Path("report.xml"), repeats_max=2)
    assert run_checks([[session]], tmp_path) == 1
    said = capfd.readouterr().err
    assert "short again" not in said
    assert "FAILED: short\n" in said


def test_only_the_suite_without_options_is_repeated() -> None:
    # With options such as --maxfail, not all tests have run.
    assert [check.repeats_max for check in pytests()] == [3, 3, 0]
    assert [check.repeats_max for check in pytests("--maxfail=1")] == [0, 0, 0]
