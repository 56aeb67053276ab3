"""Check locked dependencies for known vulnerabilities.

Usage: `python -m tools.audit_dependencies [LOCK…]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(__file__).resolve().parents[1]
LOCKS: Final = (
    ROOT / "requirements.lock",
    ROOT / "kerberos.lock",
    ROOT / "infra" / "launcher" / "uv.lock",
    ROOT / "infra" / "launcher" / "build.lock",
    ROOT / "infra" / "hourmark_infra" / "java" / "jdk.lock",
)


@click.command()
@click.argument("locks", nargs=-1, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--osv-url", help="Ask this OSV service, instead of the Python package index's own advisories."
)
def main(locks: tuple[Path, ...], osv_url: str | None) -> None:
    """Audit all versions in the lock files LOCKS; without LOCKS, in all lock files."""
    service = ("--vulnerability-service", "osv", "--osv-url", osv_url) if osv_url else ()
    outcomes = [_audit(lock.absolute(), service) for lock in locks or LOCKS]
    sys.exit(0 if all(outcomes) else 1)


def _audit(lock: Path, service: Sequence[str]) -> bool:
    """Audit one lock file and print the result.

    Args:
        lock: Lock file to audit.
        service: Options of pip-audit that select the vulnerability service.

    Returns:
        True if all its versions could be checked and none has a known vulnerability.
    """
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--progress-spinner",
        "off",
        "--format",
        "json",
        "--desc",
        "off",
    ]
    command += [
        "--disable-pip",
        "--no-deps",
        "--aliases",
        "on",
        *service,
        "--requirement",
        str(lock),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no response"])[-1][:300]
        click.echo(f"{lock.name}: NOT CHECKED, so nothing is known: {reason}")
        return False
    checked = [package for package in packages if "skip_reason" not in package]
    found = [package for package in checked if package["vulns"]]
    for package in found:
        for known in package["vulns"]:
            names = ", ".join([known["id"], *known.get("aliases", ())])
            fixed = ", ".join(known["fix_versions"]) or "no version yet"
            click.echo(
                f"{lock.name}: {package['name']} {package['version']}: {names}; fixed in {fixed}"
            )
    if missed := len(packages) - len(checked):
        click.echo(
            f"{lock.name}: NOT CHECKED for {missed} of {len(packages)} versions, so nothing "
            "is known about them"
        )
    click.echo(f"{lock.name}: checked {len(checked)} versions, {len(found)} vulnerable")
    return bool(checked) and not found and not missed


if __name__ == "__main__":
    main()
