"""Make the Debian package of the File Tailer: `python -m tools.tailer_deb FOLDER`; prints its path.

It holds `hourmark tail` with the locked versions of what it imports, in a folder of its own, for the machine's python3, and a
systemd unit; `packaging/debian` has all that is no Python. What is compiled is for one version of Python: that of Debian 12
unless `--python` names another, on the kind of processor on which it is made. Needs dpkg-deb, and strip of the package binutils.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Final

import click
from tools.uv import uv

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final = ROOT / "packaging" / "debian"
NAME: Final = "hourmark-tailer"
LIBRARY: Final = f"usr/lib/{NAME}"  # as packaging/debian/hourmark and postinst name it
ROOMS: Final = ("hourmark", "hourmark-producer")
PYTHON: Final = "3.11"
_PLATFORMS: Final = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
_SCRIPTS: Final = ("postinst", "prerm", "postrm")
_PLACES: Final = {  # of packaging/debian; and their modes
    "hourmark": ("usr/bin/hourmark", 0o755),
    f"{NAME}.service": (f"usr/lib/systemd/system/{NAME}.service", 0o644),
    "tailer.toml": ("etc/hourmark/tailer.toml", 0o644),
    "copyright": (f"usr/share/doc/{NAME}/copyright", 0o644),
}
_NOT_NEEDED: Final = (  # Debian's tzdata is the machine's; the rest is for who builds or tests these packages
    "bin", "tzdata", "tzdata-*", "**/tests", "**/__pycache__", "**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.c", ".lock",
    "zstandard/_cffi*",  # its other half does the same for this Python
)  # fmt: skip


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--python", default=PYTHON, show_default=True, help="Version of the release's python3.")
@click.option("--revision", default=1, show_default=True, help="Of the package, where the tailer is the same.")
def main(folder: Path, python: str, revision: int) -> None:
    """Make the package in FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    version = f"{tomllib.loads((ROOT / 'core' / 'pyproject.toml').read_text())['project']['version']}-{revision}"
    architecture = _said("dpkg", "--print-architecture")
    package = folder.absolute() / f"{NAME}_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="tailer-deb-") as scratch:
        tree = Path(scratch) / "tree"
        _install(tree / LIBRARY, Path(scratch) / "wheels", python, _PLATFORMS[architecture])
        _place_parts(tree)
        _describe(tree, version, architecture, python)
        _said("dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(package))
    click.echo(package)


def _install(library: Path, wheels: Path, python: str, platform: str) -> None:
    """The rooms and what they need, as locked; nothing is compiled but the rooms' own wheels are built."""
    build = ["--build-constraints", str(ROOT / "infra" / "launcher" / "build.lock")]
    for room in ROOMS:
        _uv("build", "--quiet", "--wheel", "--package", room, *build, "--out-dir", str(wheels), str(ROOT))
    _uv(
        "pip", "install", "--quiet", "--target", str(library), "--python-version", python, "--python-platform", platform,
        "--only-binary", ":all:", "--link-mode", "copy", "--constraint", str(ROOT / "requirements.lock"),
        *map(str, sorted(wheels.glob("*.whl"))),
    )  # fmt: skip
    for pattern in _NOT_NEEDED:
        for path in sorted(library.glob(pattern), reverse=True):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    _said("strip", "--strip-unneeded", *map(str, sorted(library.rglob("*.so"))))


def _place_parts(tree: Path) -> None:
    for part, (place, mode) in _PLACES.items():
        target = tree / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PARTS / part, target)
        target.chmod(mode)
    documents = tree / "usr/share/doc" / NAME
    for name in ("configuration.md", "migration.md"):
        (documents / f"{name}.gz").write_bytes(gzip.compress((ROOT / "docs" / name).read_bytes(), mtime=0))


def _describe(tree: Path, version: str, architecture: str, python: str) -> None:
    files = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    for path in tree.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    about = tree / "DEBIAN"
    about.mkdir(mode=0o755)
    (about / "conffiles").write_text("/etc/hourmark/tailer.toml\n")
    sums = [f"{hashlib.md5(p.read_bytes(), usedforsecurity=False).hexdigest()}  {p.relative_to(tree)}\n" for p in files]
    (about / "md5sums").write_text("".join(sums))
    for script in _SCRIPTS:
        shutil.copyfile(PARTS / script, about / script)
        (about / script).chmod(0o755)
    major, minor = python.split(".")
    (about / "control").write_text(
        (PARTS / "control").read_text().format(
            version=version, architecture=architecture, python=python, next_python=f"{major}.{int(minor) + 1}",
            size_kib=sum(-(-path.stat().st_size // 1024) for path in files),
        )
    )  # fmt: skip


def _uv(*arguments: str) -> None:
    done = uv(arguments, ROOT)
    if done.returncode != 0:
        raise click.ClickException(f"`uv {' '.join(arguments)}` failed:\n{done.stderr}")


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise click.ClickException(
            f"{command[0]} is not installed; make the package on a Debian that has dpkg-deb and binutils"
        ) from error
    if done.returncode != 0:
        raise click.ClickException(f"`{' '.join(command)}` failed:\n{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
