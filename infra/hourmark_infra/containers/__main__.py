"""Command line of a container: `python -m hourmark_infra.containers ROLE [ARGUMENT…]`.

The process is replaced by the program of the role. `--ask ROLE` runs the role's health check
instead (exit code 1 if it fails), and `--install` downloads the programs of the image.
"""

from __future__ import annotations

import os
import signal
import sys

from hourmark.clock import SystemClock
from hourmark.config.loading import stack_state_dir
from hourmark.config.redaction import install_redaction, redact
from hourmark.errors import HourmarkError
from hourmark_infra.containers import roles
from hourmark_infra.containers.health_checks import check_role
from hourmark_infra.containers.site import SHARED, read_site

_USE = "use: python -m hourmark_infra.containers [--ask] ROLE [ARGUMENT…], or --install"


def main(words: list[str]) -> int:
    """Run the command line of a container and return the exit code.

    A role is the name of the program that a container runs, such as `edge-1` (a Kafka broker) or
    `tailer`.

    Args:
        words: `[--ask] ROLE [ARGUMENT…]` or `--install`. `--ask` checks the health of the role
            instead of running it. `--install` downloads the server programs if the image has a jar
            cache.

    Returns:
        0 on success, 1 if the health check failed, 2 if the command line is invalid, or the exit
        code for an error. Does not return if the program of the role replaces this process.
    """
    install_redaction()
    if words == ["--install"]:
        roles.installed_programs()
        return 0
    check_only = words[:1] == ["--ask"]
    name, *arguments = words[check_only:] or [""]
    if not name or name.startswith("-"):
        print(_USE, file=sys.stderr)
        return 2
    # The kernel ignores SIGTERM for PID 1 of a container unless a handler is installed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        container = roles.Container(
            name, read_site(os.environ), stack_state_dir(), SHARED, SystemClock()
        )
        if check_only:
            health = check_role(container)
            print(redact(health.detail))
            return 0 if health.ok else 1
        roles.run_role(container, arguments)
    except HourmarkError as error:
        print(redact(f"{name}: {error}"), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
