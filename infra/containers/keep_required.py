"""Uninstall what the distributions of Hourmark do not need at run time: `python keep_required.py`.

The build of an image executes it in the virtual environment, which contains everything in
`requirements.lock`. Development tools, pip and uv are removed. `--without NAME` also removes a
requirement, and what only this requirement needs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN = "hourmark"
LEFT_OUT_EXTRAS = frozenset({"testing"})  # of the project's distributions


def required_names(
    requirements: Mapping[str, Iterable[str]],
    extras: Mapping[str, Iterable[str]],
    without: set[str],
) -> set[str]:
    """Return the distributions that the project's own distributions need, including these.

    Args:
        requirements: For each installed distribution, its requirements (PEP 508). Names are
            normalized.
        extras: For each installed distribution, the names of its extras.
        without: Names of distributions that are not needed.

    Returns:
        Normalized names, of installed distributions only. All extras of the project's distributions
        count, except `testing`.
    """
    waiting = [
        (name, extra)
        for name in requirements
        if name == OWN or name.startswith(f"{OWN}-")
        for extra in ("", *(each for each in extras[name] if each not in LEFT_OUT_EXTRAS))
    ]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen or name in without or name not in requirements:
            continue
        seen.add((name, extra))
        for text in requirements[name]:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                if not requirement.extras & LEFT_OUT_EXTRAS:
                    waiting += [(needed, each) for each in ("", *requirement.extras)]
    return {name for name, _ in seen}


def main(arguments: Sequence[str]) -> int:
    """Uninstall from the environment of this Python what is not needed.

    Args:
        arguments: Command-line arguments, without the name of the program.

    Returns:
        The exit code of `uv pip uninstall`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="append", default=[], metavar="NAME")
    without: set[str] = {canonicalize_name(name) for name in parser.parse_args(arguments).without}
    installed = {canonicalize_name(each.metadata["Name"]): each for each in distributions()}
    needed = required_names(
        {name: each.requires or () for name, each in installed.items()},
        {name: each.metadata.get_all("Provides-Extra") or () for name, each in installed.items()},
        without,
    )
    unneeded = sorted(installed.keys() - needed)
    print(f"keep {len(needed)} distributions, remove {' '.join(unneeded)}", flush=True)
    command = [sys.executable, "-m", "uv", "pip", "uninstall", "--python", sys.executable]
    return subprocess.run([*command, *unneeded], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
