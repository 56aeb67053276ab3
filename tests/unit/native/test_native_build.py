"""How the compiled module is made, and that what it believes of Python is so."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
from tools.fuzz_native import build_tool, load

build = build_tool()
HEADERS = Path(sysconfig.get_paths()["include"])


@pytest.fixture
def compiler() -> tuple[str, ...]:
    found = build.installed_compiler()
    if found is None:
        pytest.skip("this machine has no C compiler")
    return tuple(found)


@pytest.mark.slow
def test_it_compiles_without_a_warning_and_needs_nothing_of_pythons(
    compiler: tuple[str, ...], tmp_path: Path
) -> None:
    build.compile_module(tmp_path / build.NAME, compiler, "-Werror", "-Wconversion", "-Wshadow")
    module = load(tmp_path / build.NAME, "_native")
    assert module.blake2b(b"", 1)


@pytest.mark.skipif(
    not (HEADERS / "Python.h").is_file(), reason="Python's headers are not installed"
)
def test_what_is_declared_of_pythons_stable_abi_is_what_its_own_headers_declare(
    compiler: tuple[str, ...], tmp_path: Path
) -> None:
    flags = ("-DHOURMARK_WITH_PYTHON_H", f"-I{HEADERS}", "-fsyntax-only", "-Werror")
    subprocess.run([*compiler, *flags, str(build.SOURCES / "module.c")], check=True)
    altered = tmp_path / "module.c"
    header = (build.SOURCES / "python_abi.h").read_text()
    (tmp_path / "python_abi.h").write_text(
        header.replace("long long PyLong_AsLongLong", "int PyLong_AsLongLong")
    )
    altered.write_text('#include "python_abi.h"\n')
    done = subprocess.run(
        [*compiler, *flags, str(altered)], capture_output=True, text=True, check=False
    )
    assert "PyLong_AsLongLong" in done.stderr, "one that differs is an error"


def test_a_compiler_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(build.CannotCompile, match="false"):
        build.compile_module(tmp_path / build.NAME, ("false",))
    with pytest.raises(build.CannotCompile, match="no-such-compiler"):
        build.compile_module(tmp_path / build.NAME, ("no-such-compiler",))
    assert list(tmp_path.iterdir()) == []
