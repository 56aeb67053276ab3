"""The judge's verdict by its command line, and what it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.support.judged.world import World

from hourmark_verify.judge.cli import judge


def expected(world: World, **changes: Any) -> str:
    """The file of what the judge is told."""
    told = world.sources.parent / "expectations.json"
    told.write_text(json.dumps(world.expectations(**changes)))
    return str(told)


def run(world: World, *options: str, **changes: Any) -> dict[str, Any]:
    """The verdict of what is written, as JSON; the exit code must agree with it."""
    result = CliRunner().invoke(
        judge, ["check", expected(world, **changes), "--json", *options], catch_exceptions=False
    )
    verdict: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if verdict["content"] else 1)
    return verdict


def found(world: World, *kinds: str, **changes: Any) -> list[tuple[str, str, int | None]]:
    """Of the world, written now; see `findings`."""
    world.write()
    return findings(run(world, **changes), *kinds)


def findings(verdict: dict[str, Any], *kinds: str) -> list[tuple[str, str, int | None]]:
    """Kind, file name, position; where kinds are given, these and no others must be there."""
    found = [(f["kind"], Path(f["path"]).name, f["position"]) for f in verdict["findings"]]
    assert not kinds or {kind for kind, _, _ in found} == set(kinds), verdict["findings"]
    return found


def position(world: World, number: int) -> int:
    """Where the app's line of that number starts."""
    lines = (world.sources / "app.log").read_bytes().split(b"\n")
    return sum(len(line) + 1 for line in lines[:number])
