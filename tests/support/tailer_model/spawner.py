"""Real tailer processes, forked from one that has imported everything: each begins in a hundredth
of the usual time.

    python -m tests.support.tailer_model.spawner

reads requests from its standard input, a line of JSON each, and answers with a line each: the
process id of the process that was begun, or how one ended. `Spawner` is the other end. A tailer
that begins anew, as on SIGHUP, comes here again, with what it was.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.tailer_model import births, machine
from tests.support.tailer_model.planted import FAULTS

_ASKED_TO_DIE: Final = 1  # PR_SET_PDEATHSIG
ENDS_WITHIN_S: Final = 120.0
NEVER: Final = 124  # as timeout(1) says it
_MODULE: Final = "tests.support.tailer_model.spawner"
ROOT: Final = Path(__file__).parents[3]


class Spawner:
    """Begins, kills and awaits tailers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        arguments: list[str],
        log: Path,
        *,
        planted: str = "",
        file_bytes_max: int = 0,
        open_files_max: int = 0,
        environment: Mapping[str, str],
    ) -> int:
        """The process id of `hourmark tail ARGUMENTS`."""
        return int(
            self._ask(
                do="start",
                arguments=arguments,
                log=str(log),
                planted=planted,
                file_bytes_max=file_bytes_max,
                open_files_max=open_files_max,
                environment=environment,
            )
        )

    def wait(self, pid: int) -> int:
        """How it ended: its exit status, or less than 0 where a signal ended it."""
        return int(self._ask(do="wait", pid=pid))

    def ended(self, pid: int) -> int | None:
        """How it ended; None while it runs."""
        answer = self._ask(do="poll", pid=pid)
        return None if answer.strip() == "runs" else int(answer)

    def tell(self, pid: int, number: signal.Signals) -> None:
        """Tell it something."""
        os.kill(pid, number)

    def end(self, pid: int, number: signal.Signals) -> int:
        """Send it this signal, and wait: how it ended; NEVER where that took too long."""
        self.tell(pid, number)
        deadline = time.monotonic() + ENDS_WITHIN_S
        while (status := self.ended(pid)) is None:
            if time.monotonic() > deadline:
                self.tell(pid, signal.SIGKILL)
                self.wait(pid)
                return NEVER
            time.sleep(0.005)
        return status

    def close(self) -> None:
        """No more of them."""
        self._process.communicate(timeout=60)

    def _ask(self, **request: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def _begin(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        descriptor = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, null), (1, null), (2, descriptor)):
            os.dup2(source, target)
        os.closerange(3, 256)
        ctypes.CDLL(None).prctl(
            _ASKED_TO_DIE, signal.SIGKILL
        )  # else it goes on sending to whoever has its service's port next
        for kind, most in (
            (resource.RLIMIT_FSIZE, request["file_bytes_max"]),
            (resource.RLIMIT_NOFILE, request["open_files_max"]),
        ):
            if most:
                resource.setrlimit(kind, (most, most))
        sys.orig_argv = [sys.executable, "-m", _MODULE, request["planted"], *request["arguments"]]
        os.chdir(ROOT)
        os.environ.update(request["environment"])
        _tail(request["planted"], request["arguments"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
        status = 0 if end.code is None else status
    except BaseException:  # noqa: BLE001  # a child must end here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _tail(planted: str, arguments: list[str]) -> None:
    births.install()
    machine.install()
    if planted:
        FAULTS[planted]()
    from hourmark.cli import main

    sys.argv = ["hourmark", "tail", *arguments]
    main()


def _serve() -> None:
    import hourmark.cli  # noqa: F401
    import hourmark_producer.cli  # noqa: F401  # so that children have it

    for line in sys.stdin:
        request = json.loads(line)
        answer: int | str
        if request["do"] == "start":
            answer = _begin(request)
        else:
            pid, status = os.waitpid(request["pid"], os.WNOHANG if request["do"] == "poll" else 0)
            answer = os.waitstatus_to_exitcode(status) if pid else "runs"
        print(answer, flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        _tail(sys.argv[1], sys.argv[2:])
    else:
        _serve()
