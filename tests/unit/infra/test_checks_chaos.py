"""`hourmark chaos` where Hourmark is installed without a checkout: it says what it would be, and
that it is not there.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from hourmark.errors import UsageError
from hourmark_infra.checks import chaos as module
from hourmark_infra.checks.chaos import chaos


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(subject: str) -> None:
        raise UsageError(f"{subject} are not part of an installed Hourmark; use a checkout")

    monkeypatch.setattr(module, "checkout_root", refuse)


def test_help_is_said_wherever_it_is_asked_for() -> None:
    done = CliRunner().invoke(chaos, ["--help"])
    assert done.exit_code == 0, done.output
    assert "hourmark chaos run --tier pr" in done.output
    assert "not part of an installed Hourmark; use a checkout" in done.output


def test_everything_else_is_refused() -> None:
    assert isinstance(CliRunner().invoke(chaos, ["list"]).exception, UsageError)
