"""Test Hourmark's distributions with another Python: `python -m tools.try_python INTERPRETER`.

`hourmark test --pythons` runs it for each interpreter on this machine. All wheels are installed to
an empty environment with the locked versions of their dependencies, including Spark. The tool
checks that the dependencies are complete and that every command prints its help, then runs tests
that need no server.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Final

import click
from tools.uv import Done, run_uv, uv

from hourmark.cli import COMMANDS

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = (
    "tests/contract",
    "tests/unit/core",
    "tests/unit/delivery_service/parsing/test_parsing_forms.py",
)
MARKS: Final = "not stack and not chaos and not long"


@click.command()
@click.argument("interpreter", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(interpreter: Path) -> None:
    """Test Hourmark's distributions with the Python interpreter INTERPRETER."""
    with tempfile.TemporaryDirectory(prefix="try-python-") as scratch:
        environment, wheels = Path(scratch) / "env", Path(scratch) / "wheels"
        build = ["--build-constraints", str(ROOT / "infra" / "launcher" / "build.lock")]
        _well(
            uv(
                [
                    "build",
                    "--quiet",
                    "--wheel",
                    "--all-packages",
                    *build,
                    "--out-dir",
                    str(wheels),
                    str(ROOT),
                ]
            )
        )
        _well(uv(["venv", "--quiet", "--python", str(interpreter), str(environment)]))
        python = environment / "bin" / "python"
        install = [
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
            "--constraint",
            str(ROOT / "requirements.lock"),
            *build,
        ]
        _well(uv([*install, *(_asked(wheel) for wheel in sorted(wheels.glob("*.whl")))]))
        _well(run_uv(["pip", "check", "--python", str(python)]))
        for name in COMMANDS:
            _well(_run([str(environment / "bin" / "hourmark"), name, "--help"], Path(scratch)))
        developers = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][
            "dev"
        ]
        (core,) = wheels.glob("hourmark-[0-9]*.whl")
        _well(uv([*install, "uv", *developers, f"hourmark[testing] @ {core.as_uri()}"]))
        done = _run(
            [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", MARKS, *TESTS], ROOT
        )
        _well(done)
        click.echo(done.stdout.strip().splitlines()[-1])


def _asked(wheel: Path) -> str:
    # The ETL is installed with everything that its driver needs.
    name = wheel.name.partition("-")[0].replace("_", "-")
    return f"{name}{'[spark]' if name == 'hourmark-etl' else ''} @ {wheel.as_uri()}"


def _run(command: list[str], folder: Path) -> Done:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    )


def _well(done: Done) -> None:
    if done.returncode != 0:
        raise click.ClickException(
            f"{done.args} failed:\n{done.stdout[-6000:]}{done.stderr[-4000:]}"
        )


if __name__ == "__main__":
    main()
