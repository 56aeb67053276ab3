"""Make or update `.venv` from the lock files: `stamp text | python make_venv.py <checkout>`.

Runs on a bare Python 3.11.

The stamp is written last. Without one, whatever is in `.venv` is the rest of a try that was cut
short, and is recreated (downloads are kept in uv's cache); with another one, the venv is brought up
to date in place. Two at once wait for each other on a lock on the launcher itself, which the
operating system frees when its holder is killed.

`uv.lock` locks the installer, `build.lock` what builds the rooms and pyspark, which come as
sources, with a C compiler that is fetched only where the machine has none. They are made by
    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
from `uv==…`, and from `hatchling editables setuptools wheel ziglang`.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import ssl
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Exit code 1 and one line of what to do where it cannot be done."""
    here, stamp = Path(sys.argv[1]), sys.stdin.read()
    with (here / "hourmark").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another start of Hourmark that sets up .venv")
            fcntl.flock(lock, fcntl.LOCK_EX)
        mark = here / ".venv" / "hourmark.stamp"
        if not mark.is_file() or mark.read_text() != stamp or not _runs(here / ".venv"):
            _check_modules()
            _make(here, mark)
            os.sync()
            temporary = mark.with_suffix(".tmp")
            temporary.write_text(stamp)
            temporary.replace(mark)
            _say("ready")


def _make(here: Path, mark: Path) -> None:
    venv, locks = here / ".venv", Path(__file__).parent
    if not mark.is_file() or not _runs(venv) or mark.read_text().splitlines()[:1] != [str(here)]:
        _say(f"making .venv with {sys.executable} (Python {sys.version.split()[0]})")
        mark.unlink(missing_ok=True)
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(venv)], here)
    mark.unlink(missing_ok=True)
    python = str(venv / "bin" / "python")
    _say("installing the installer, uv (about 25 MB)")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run(
        [python, "-m", "pip", "install", *quiet, "--require-hashes", "-r", str(locks / "uv.lock")],
        here,
    )
    _say("installing the locked packages (about 650 MB the first time, most of it Spark)")
    uv, build = [python, "-m", "uv", "pip"], ["--build-constraints", str(locks / "build.lock")]
    _run(
        [
            *uv,
            "sync",
            "--python",
            python,
            "--require-hashes",
            *build,
            str(here / "requirements.lock"),
        ],
        here,
    )
    anew = [
        "--refresh-package",
        "hourmark-delivery-service",
    ]  # uv's cache may know it, but not that its module is gone
    rooms = [
        argument
        for room in sorted(here.glob("*/pyproject.toml"))
        for argument in ("--editable", str(room.parent))
    ]
    # an image of containers is made without them first: what changes seldom is a layer of its own
    if rooms:
        _run(
            [*uv, "install", "--quiet", "--python", python, "--no-deps", *anew, *build, *rooms],
            here,
        )


def _run(command: list[str], here: Path) -> None:
    environment = {**os.environ, "UV_NO_CONFIG": "1"}
    if (
        ssl.get_default_verify_paths().cafile
    ):  # trust whom the machine trusts, as its proxy may have a certificate of its own
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        command, cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    if done.returncode != 0:
        _say(
            f"the set-up stopped at `{shlex.join(command)}`, see above; repeat the "
            "command when that is mended"
        )
        sys.exit(1)


def _runs(venv: Path) -> bool:
    return os.access(venv / "bin" / "python", os.X_OK)


def _check_modules() -> None:
    try:
        import ensurepip  # noqa: F401  # Debian packs these two apart from Python
        import venv  # noqa: F401
    except ImportError:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        command = (
            f"sudo apt-get install python{version}-venv"
            if shutil.which("apt-get")
            else "install Python's venv and ensurepip"
        )
        _say(f"{sys.executable} has no venv module; {command}")
        sys.exit(1)


def _say(line: str) -> None:
    print(f"hourmark: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
