"""Build Debian packages of Hourmark: `python -m tools.debian_package FOLDER [NAME…]`.

The command prints the paths of the packages. `packaging/debian/packages.toml` declares what each
contains. Each package has the locked versions of its dependencies in its own folder, for the
machine's python3, a systemd unit, a bill of materials and the licenses of bundled software.
Compiled code is for one Python version (that of Debian 12 unless `--python` names another) and for
the processor architecture of the build machine. Requires dpkg-deb, and strip from binutils. The
mirror's jars are downloaded if the user's cache lacks them.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from pydantic import TypeAdapter
from tools.bundled import bundled, listed
from tools.sbom import document
from tools.uv import uv

from hourmark.commands.completion import SHELLS, completion_script
from hourmark_infra import jars
from hourmark_infra.java.find import java_executable

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final = ROOT / "packaging" / "debian"
BUILD: Final = ("--build-constraints", str(ROOT / "infra" / "launcher" / "build.lock"))
PYTHON: Final = "3.11"
_PLATFORMS: Final = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
_COMPLETIONS: Final = (  # as postinst names them
    "usr/share/bash-completion/completions",
    "usr/share/zsh/vendor-completions",
    "usr/share/fish/vendor_completions.d",
)
_SCRIPTS: Final = ("postinst", "prerm", "postrm")
# Debian's tzdata is the machine's; the rest is for who builds or tests these packages
_NOT_NEEDED: Final = (
    "bin",
    "tzdata",
    "tzdata-*",
    "**/tests",
    "**/__pycache__",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.c",
    ".lock",
    "zstandard/_cffi*",  # its other half does the same for this Python
    "pyspark/examples",
    "pyspark/data",
    "pyarrow/include",
    "pyarrow/src",
    "numpy/**/include",
    "share",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdUnit:
    """A systemd unit of a Debian package, as declared in `packages.toml`."""

    command: str
    unit: str
    wanted: bool = False
    state: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One Debian package, as declared by a table of `packages.toml`.

    Attributes:
        rooms: Hourmark distributions of the package, with their extras.
        sources: Dependencies that are built from source because they have no wheel.
        jars: Names of jar sets in the lock file of the servers.
        private: Whether only the package's user may read its configuration.
    """

    name: str
    rooms: tuple[str, ...]
    user: str
    command: str
    synopsis: str
    description: str
    first_step: str
    documents: tuple[str, ...]
    unit: str
    private: bool
    jars: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    beside: Mapping[str, SystemdUnit] = field(default_factory=dict)

    @property
    def units(self) -> dict[str, SystemdUnit]:
        """Return the systemd units of the package by name, its main unit first."""
        others = {f"hourmark-{name}": unit for name, unit in self.beside.items()}
        return {self.full_name: SystemdUnit(command=self.command, unit=self.unit), **others}

    def unit_text(self, name: str) -> str:
        """Return the text of the unit file `name`."""
        unit = self.units[name]
        wanted = [
            f"{other}.service"
            for other, it in self.units.items()
            if it.wanted and name == self.full_name
        ]
        state = (
            f"StateDirectory=hourmark/{self.name}\nStateDirectoryMode=0700\n" if unit.state else ""
        )
        wants = f"Wants={' '.join(wanted)}\n" if wanted else ""
        return self.filled(
            "unit", command=unit.command, unit=unit.unit.strip(), wants=wants, state=state
        )

    @property
    def full_name(self) -> str:
        return f"hourmark-{self.name}"

    @property
    def library(self) -> str:
        return f"usr/lib/{self.full_name}"

    def filled(self, part: str, **more: str) -> str:
        """Return the text of a template in packaging/debian with all `@…@` placeholders replaced.

        Args:
            part: Name of the template.
            more: Additional placeholder values by name.
        """
        known = {
            "name": self.name,
            "user": self.user,
            "synopsis": self.synopsis,
            "services": " ".join(f"{name}.service" for name in self.units),
            "description": self.description,
            "first_step": self.first_step,
            "private": str(self.private).lower(),
            "priority": str(10 * (1 + list(PACKAGES).index(self.name))),
            **more,
        }
        return re.sub(r"@([a-z_]+)@", lambda found: known[found[1]], (PARTS / part).read_text())


def _read() -> dict[str, Package]:
    tables = tomllib.loads((PARTS / "packages.toml").read_text())
    return TypeAdapter(dict[str, Package]).validate_python(
        {name: {"name": name, **table} for name, table in tables.items()}
    )


PACKAGES: Final = _read()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1, type=click.Choice(list(PACKAGES)))
@click.option(
    "--python", default=PYTHON, show_default=True, help="Version of the release's python3."
)
@click.option(
    "--revision",
    "revisions",
    type=int,
    default=[1],
    multiple=True,
    help="Of the package, where Hourmark is the same.",
)
def main(folder: Path, names: tuple[str, ...], python: str, revisions: tuple[int, ...]) -> None:
    """Build the packages NAMES in FOLDER; without NAMES, all packages."""
    folder.mkdir(parents=True, exist_ok=True)
    release = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]["version"]
    architecture = _said("dpkg", "--print-architecture")
    with tempfile.TemporaryDirectory(prefix="debian-package-") as scratch:
        wheels = Path(scratch) / "wheels"
        _uv(
            "build",
            "--quiet",
            "--wheel",
            "--all-packages",
            *BUILD,
            "--out-dir",
            str(wheels),
            str(ROOT),
        )
        for name in names or PACKAGES:
            package, tree = PACKAGES[name], Path(scratch) / name
            _install(package, tree / package.library, wheels, python, _PLATFORMS[architecture])
            for version in (f"{release}-{revision}" for revision in revisions):
                _place_parts(package, tree, version)
                _describe(package, tree, version, architecture, python)
                click.echo(
                    _packed(
                        tree,
                        folder.absolute() / f"{package.full_name}_{version}_{architecture}.deb",
                    )
                )
            shutil.rmtree(tree)


def _packed(tree: Path, made: Path) -> Path:
    # Jars are compressed already: xz takes minutes and saves only a tenth compared with zstd.
    packing = ("-Zzstd", "-z6") if any(tree.rglob("*.jar")) else ("-Zxz",)
    _said("dpkg-deb", "--root-owner-group", *packing, "--build", str(tree), str(made))
    return made


def _install(package: Package, library: Path, wheels: Path, python: str, platform: str) -> None:
    # Only Hourmark's own wheels are built; all other packages are installed as locked.
    _uv(
        "pip",
        "install",
        "--quiet",
        "--target",
        str(library),
        "--python-version",
        python,
        "--python-platform",
        platform,
        "--only-binary",
        ":all:",
        *(part for name in package.sources for part in ("--no-binary", name)),
        *BUILD,
        "--link-mode",
        "copy",
        "--constraint",
        str(ROOT / "requirements.lock"),
        *(_wheel(room, wheels) for room in package.rooms),
    )
    for pattern in _NOT_NEEDED:
        for path in sorted(library.glob(pattern), reverse=True):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    modules = [
        str(path)
        for path in sorted(library.rglob("*.so"))
        if not path.parent.name.endswith(".libs")
    ]
    _said("strip", "--strip-unneeded", *modules)
    for name in package.jars:
        shutil.copytree(
            jars.ensure(name, java_executable),
            library / "jars",
            ignore=shutil.ignore_patterns(".*"),
        )


def _wheel(room: str, wheels: Path) -> str:
    name, bracket, extras = room.partition("[")
    (wheel,) = wheels.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
    return f"{name}{bracket}{extras} @ {wheel.as_uri()}"


def _place_parts(package: Package, tree: Path, version: str) -> None:
    library, documents = package.library, f"usr/share/doc/{package.full_name}"
    parts = bundled(tree / library)
    texts = {
        f"{library}/bin/hourmark": package.filled("hourmark"),
        **{
            f"usr/lib/systemd/system/{name}.service": package.unit_text(name)
            for name in package.units
        },
        f"etc/hourmark/{package.name}.toml": package.filled(f"{package.name}.toml"),
        f"{documents}/copyright": package.filled("copyright"),
        f"{documents}/licences.txt": listed(parts),
        f"{documents}/sbom.cdx.json": document(package.full_name, version, parts),
        **{
            f"{library}/completion/hourmark.{shell}": completion_script(shell) + "\n"
            for shell in SHELLS
        },
    }
    for place, text in texts.items():
        target = tree / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if target.parent.name == "bin" else 0o644)
    for place in _COMPLETIONS:  # links to them are made where no such shell is, too
        (tree / place).mkdir(parents=True, exist_ok=True)
    for name in package.documents:
        (tree / documents / f"{Path(name).name}.gz").write_bytes(
            gzip.compress((ROOT / "docs" / name).read_bytes(), mtime=0)
        )


def _describe(package: Package, tree: Path, version: str, architecture: str, python: str) -> None:
    about = tree / "DEBIAN"
    shutil.rmtree(about, ignore_errors=True)
    files = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    about.mkdir()
    for path in tree.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    (about / "conffiles").write_text(f"/etc/hourmark/{package.name}.toml\n")
    sums = [
        f"{hashlib.md5(p.read_bytes(), usedforsecurity=False).hexdigest()}  {p.relative_to(tree)}\n"
        for p in files
    ]
    (about / "md5sums").write_text("".join(sums))
    for name in _SCRIPTS:
        (about / name).write_text(package.filled(name))
        (about / name).chmod(0o755)
    (about / "control").write_text(
        package.filled(
            "control",
            version=version,
            architecture=architecture,
            depends=", ".join(_depends(package, python)),
            size_kib=str(sum(-(-path.stat().st_size // 1024) for path in files)),
        )
    )


def _depends(package: Package, python: str) -> Sequence[str]:
    major, minor = python.split(".")
    versions = (f"python3 (>= {python})", f"python3 (<< {major}.{int(minor) + 1})")
    return (*versions, "adduser", "tzdata", "libstdc++6", *package.depends)


def _uv(*arguments: str) -> None:
    done = uv(arguments, ROOT)
    if done.returncode != 0:
        raise click.ClickException(f"`uv {' '.join(arguments)}` failed:\n{done.stderr}")


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise click.ClickException(
            f"{command[0]} is not installed; make the package on a Debian that has "
            "dpkg-deb and binutils"
        ) from error
    if done.returncode != 0:
        raise click.ClickException(f"`{' '.join(command)}` failed:\n{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
