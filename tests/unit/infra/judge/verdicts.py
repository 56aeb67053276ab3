"""The judge's verdict by its command line, and what it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.support.judged.world import World

from hourmark_infra.judge.cli import judge


def run(world: World, webhdfs: str, *options: str, **changes: Any) -> dict[str, Any]:
    """The verdict as JSON; the exit code must agree with it."""
    told = world.sources.parent / "expectations.json"
    told.write_text(json.dumps(world.expectations(webhdfs, **changes)))
    result = CliRunner().invoke(judge, ["check", str(told), "--json", *options], catch_exceptions=False)
    verdict: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if verdict["content"] else 1)
    return verdict


def findings(verdict: dict[str, Any], *kinds: str) -> list[tuple[str, str, int | None]]:
    """Kind, file name, position; no kinds other than these may be there."""
    found = [(f["kind"], Path(f["path"]).name, f["position"]) for f in verdict["findings"]]
    assert {kind for kind, _, _ in found} == set(kinds), verdict["findings"]
    return found


def position(world: World, number: int) -> int:
    """Where the app's line of that number starts."""
    lines = (world.sources / "app.log").read_bytes().split(b"\n")
    return sum(len(line) + 1 for line in lines[:number])
