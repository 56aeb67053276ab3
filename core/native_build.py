"""Compiles `native/` into the module `_native`, with whatever C compiler there is, else with that
of the wheel `ziglang`.

Nothing of Python's own is needed for it: `native/python_abi.h` declares the stable ABI, so one file
serves Python 3.11 and later.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
NAME = "_native.abi3.so"
FLAGS = (
    "-std=c11",
    "-O2",
    "-g0",
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
)


class CannotCompile(Exception):
    """Says why."""


@functools.cache
def installed_compiler() -> tuple[str, ...] | None:
    """The machine's own: $CC, cc, gcc or clang, if it can compile and link; None if there is
    none.
    """
    for command in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if (
            command
            and shutil.which(shlex.split(command)[0])
            and _works(tuple(shlex.split(command)))
        ):
            return tuple(shlex.split(command))
    return None


def zig_compiler() -> tuple[str, ...]:
    """That of the wheel; it compiles for the very processor that it runs on, unless it is told
    otherwise.
    """
    return (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")


def digest() -> str:
    """Of all sources; the module says which it was made of, and `hourmark/native.py` which it
    takes.
    """
    hashed = hashlib.blake2b(digest_size=8)
    for path in sorted(SOURCES.glob("*.[ch]")):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def compile_module(target: Path, compiler: tuple[str, ...], *more: str) -> None:
    """Write the module to `target`, whole or not at all. CannotCompile says why not."""
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    undefined = (
        ("-undefined", "dynamic_lookup") if platform.system() == "Darwin" else ()
    )  # Python's own names
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".native-") as folder:
        made = Path(folder) / NAME
        named = f'-DHOURMARK_SOURCES="{digest()}"'
        _run(
            (*compiler, *FLAGS, named, *undefined, *more, *sources, "-o", str(made), "-lm", "-ldl"),
            folder,
        )
        made.replace(target)


def _works(compiler: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "try.c"
        source.write_text("#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n")
        try:
            _run((*compiler, *FLAGS, str(source), "-o", str(Path(folder) / "try.so")), folder)
        except CannotCompile:
            return False
    return True


def _run(command: tuple[str, ...], folder: str) -> None:
    caches = {
        "ZIG_GLOBAL_CACHE_DIR": f"{folder}/zig",
        "ZIG_LOCAL_CACHE_DIR": f"{folder}/zig",
    }  # a home may be read-only
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotCompile(f"{command[0]} does not run: {error}") from error
    if done.returncode != 0:
        raise CannotCompile(
            f"{shlex.join(command[:3])} … ended with {done.returncode}: {done.stderr[-2000:]}"
        )
