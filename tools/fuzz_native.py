"""Random types and lines, valid and hostile, through a build of the native pass with sanitizers,
against the Python path.

    python -m tools.fuzz_native [--seconds N] [--seed N]

It needs gcc with libasan and libubsan. A fault of memory or a difference ends it with exit code 1
and names the seed, which shows it again. What is fed: lines of random types (`native_cases`), and
programs and lines with bytes altered; now and then records are sent to librdkafka's mock cluster
(`native_sending`), and read from it (`native_reading`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.native_cases import Case, altered, difference, parsed, random_case
from tools.native_reading import read_at_random
from tools.native_sending import send_at_random

from hourmark_delivery_service.parsing import CompiledRules, native

ROOT = Path(__file__).parent.parent
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
)
_CASES_A_SENDING = 500


def build_tool() -> ModuleType:
    """`native/native_build.py`, which belongs to no package."""
    return load(ROOT / "native" / "native_build.py", "native_build")


def load(path: Path, name: str) -> ModuleType:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class AlteredPrograms:
    """The module, but the programs that it gets have bytes altered; those that it refuses are taken
    as they were.
    """

    def __init__(self, module: ModuleType, rng: random.Random) -> None:
        self._module = module
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def program(self, program: bytes) -> Any:
        try:
            return self._module.program(altered(self._rng, program))
        except ValueError:
            return self._module.program(program)


def one(seed: int) -> Case:
    """A case that must be the same in both, and one that must only not hurt."""
    rng = random.Random(seed)
    case = random_case(rng)
    if found := difference(case):
        raise AssertionError(found)
    hostile = case._replace(body=altered(rng, case.body[:-1]) + b"\n")
    if found := difference(hostile):
        raise AssertionError(found)
    module = native.MODULE
    assert module is not None
    native.MODULE = AlteredPrograms(module, rng)  # type: ignore[assignment]
    try:
        parsed(hostile, CompiledRules(hostile.rules))
    finally:
        native.MODULE = module
    return case


def fuzz(module: Path, seconds: float, seed: int, note: Callable[[int], object]) -> dict[str, Any]:
    """Until the time is over; `note` gets each seed before it is used."""
    native.MODULE = compiled = load(module, "_native")
    began, cases, lines, appends, read = time.monotonic(), 0, 0, 0, 0
    while time.monotonic() - began < seconds:
        note(seed + cases)
        if cases % _CASES_A_SENDING == 0:
            appends += asyncio.run(send_at_random(seed + cases))
            read += read_at_random(compiled, seed + cases)
        lines += one(seed + cases).body.count(b"\n")
        cases += 1
    cpu_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    return {
        "first_seed": seed,
        "cases": cases,
        "lines": lines,
        "appends": appends,
        "read": read,
        "cpu_seconds": round(cpu_s),
    }


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=time.time_ns() % 10**12)
    arguments.add_argument("--module", type=Path, help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.module is None:
            return sanitized(Path(folder), asked.seconds, asked.seed)
        seed_file = Path(os.environ["SEED_FILE"])
        print(
            json.dumps(
                fuzz(
                    asked.module,
                    asked.seconds,
                    asked.seed,
                    lambda seed: seed_file.write_text(str(seed)),
                )
            )
        )
    return 0


def sanitized(folder: Path, seconds: float, seed: int) -> int:
    """Build, and run this program again with the sanitizers loaded before all else."""
    build_tool().compile_module(folder / "_native.abi3.so", ("gcc",), *SANITIZERS)
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        # Python itself leaks at its end
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",  # so that each object is watched
        "SEED_FILE": str(folder / "seed"),
    }
    command = [
        sys.executable,
        "-m",
        "tools.fuzz_native",
        "--module",
        str(folder / "_native.abi3.so"),
    ]
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--seed", str(seed)],
        env=environment,
        cwd=ROOT,
        check=False,
    )
    if done.returncode != 0:
        print(f"the seed {(folder / 'seed').read_text()} shows it again", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
