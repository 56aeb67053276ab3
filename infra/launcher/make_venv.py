"""Create or update `.venv` from the lock files: `stamp text | python make_venv.py <checkout>`.

Requires only the standard library of Python 3.11.

The stamp file is written last. Without it, `.venv` is left from an interrupted installation and is
created again (downloads are kept in uv's cache). If its text differs, `.venv` is updated in place.
Concurrent processes wait for each other with a lock on the launcher file, which the operating
system releases when its holder is killed.

With the environment variable `HOURMARK_EXTRAS`, a list of extras separated by spaces, `.venv`
contains only what the distributions in the checkout require with these extras, in the versions of
`requirements.lock`, and neither pip nor uv: for container images.

`uv.lock` locks the installer. `build.lock` locks the build tools of pyspark and of the project's
distributions, which are installed from source, including a C compiler for machines without one.
The lock files are created by
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
import tempfile
import tomllib
from pathlib import Path


def main() -> None:
    """Create or update the virtual environment `.venv` in a checkout.

    The first command-line argument is the path of the checkout. Standard input contains a stamp, a
    text that changes whenever the dependencies change. The command does nothing if `.venv` was
    created with the same stamp.

    Raises:
        SystemExit: The installation failed, with exit code 1. A line on stderr names the next step.
    """
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
    uv, build = [python, "-m", "uv", "pip"], ["--build-constraints", str(locks / "build.lock")]
    projects, extras = sorted(here.glob("*/pyproject.toml")), os.environ.get("HOURMARK_EXTRAS")
    if extras:
        _say("installing the required packages")
        _install_required([*uv, "install", "--python", python, *build], here, projects, extras)
    else:
        _say("installing the locked packages (about 650 MB the first time, most of it Spark)")
        lock = str(here / "requirements.lock")
        _run([*uv, "sync", "--python", python, "--require-hashes", *build, lock], here)
    # uv's cache may contain a build of the delivery service whose compiled module is missing.
    refresh = ["--refresh-package", "hourmark-delivery-service"]
    distributions = [
        argument for project in projects for argument in ("--editable", str(project.parent))
    ]
    # A container image is first built without their code, so that rarely changing packages have
    # their own layer.
    if any(here.glob("*/hourmark*/")):
        own = ["install", "--quiet", "--python", python, "--no-deps"]
        _run([*uv, *own, *refresh, *build, *distributions], here)
        if extras:
            _run([*uv, "uninstall", "--python", python, "pip", "setuptools", "uv"], here)


def _install_required(install: list[str], here: Path, projects: list[Path], extras: str) -> None:
    # With --require-hashes, uv refuses packages that are not in the lock.
    own = [tomllib.loads(project.read_text())["project"]["name"] for project in projects]
    sources = [argument for project in projects for argument in ("-r", str(project))]
    chosen = [argument for extra in extras.split() for argument in ("--extra", extra)]
    locked = ["--require-hashes", "--constraints", str(here / "requirements.lock")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as excluded:
        excluded.write("\n".join(own))
        excluded.flush()
        _run([*install, *locked, "--excludes", excluded.name, *sources, *chosen], here)


def _run(command: list[str], here: Path) -> None:
    environment = {**os.environ, "UV_NO_CONFIG": "1"}
    # Use the machine's trusted CAs, because its proxy may have its own certificate.
    if ssl.get_default_verify_paths().cafile:
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        command, cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    if done.returncode != 0:
        _say(
            f"the installation stopped at `{shlex.join(command)}`, see the output above; fix the "
            "problem and repeat the command"
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
