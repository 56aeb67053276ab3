"""Compilation of `src/` into the extension module `_native`.

It uses an installed C compiler, or else that of the wheel `ziglang`. Python's headers are not
needed: `src/python_abi.h` declares the stable ABI, so one file works with Python 3.11 and later.
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

SOURCES = Path(__file__).parent / "src"
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
    """The C compiler cannot be started or has failed. The message contains the reason."""


@functools.cache
def installed_compiler() -> tuple[str, ...] | None:
    """Return the command of the installed C compiler.

    Returns:
        The first of $CC, cc, gcc and clang that can compile and link; None if there is none.
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
    """Return the command of the C compiler in the wheel `ziglang`.

    The command compiles for a baseline processor. By default, zig uses all features of the
    processor of the build machine.
    """
    return (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")


def digest() -> str:
    """Return the digest of all C sources of the extension module, as 16 hex digits.

    The digest is compiled into the module. `load_native_module` compares it with the digest in
    `hourmark_native/__init__.py`, and does not use a module that was built from older sources.
    """
    hashed = hashlib.blake2b(digest_size=8)
    for path in sorted(SOURCES.glob("*.[ch]")):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def compile_module(target: Path, compiler: tuple[str, ...], *more: str) -> None:
    """Compile the C extension module and write it to a file.

    An existing file is only replaced if the compilation succeeds.

    Args:
        target: Path of the compiled module. Its folder must exist.
        compiler: Command of the compiler, as returned by `installed_compiler` or `zig_compiler`.
        more: Additional compiler arguments.

    Raises:
        CannotCompile: The compiler does not run or fails.
    """
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    # Python's symbols are resolved when the module is loaded.
    undefined = ("-undefined", "dynamic_lookup") if platform.system() == "Darwin" else ()
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
    # The home directory may be read-only.
    caches = {"ZIG_GLOBAL_CACHE_DIR": f"{folder}/zig", "ZIG_LOCAL_CACHE_DIR": f"{folder}/zig"}
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
