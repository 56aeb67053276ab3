"""Inventory of third-party software in a folder: Python packages and jars with their licenses.

A license comes from a package's metadata (license expression, field or classifier), or for a jar,
in this order, from its manifest's Bundle-License, its pom.xml or the first words of its license
file. If a jar contains none, `packaging/debian/licences.toml` states what its project declares;
otherwise the license is "not stated".
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourmark_infra.jars.lockfile import read_lock, set_names, sha256_of

ROOT: Final = Path(__file__).resolve().parents[1]
NOT_SAID: Final = "not stated"
_KNOWN: Final[dict[str, str]] = tomllib.loads(
    (ROOT / "packaging" / "debian" / "licences.toml").read_text()
)
_JAR: Final = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+]*(?:-[\w.+]+)*)\.jar")
_LICENCE_FILE: Final = re.compile(r"(META-INF/)?(LICENSE|LICENCE|COPYING)[^/]*", re.IGNORECASE)
_TEXTS: Final = (  # what licences begin with, whatever they are called there
    ("Apache License Version 2.0", "Apache-2.0"),
    ("Eclipse Public License - v 2.0", "EPL-2.0"),
    ("Permission is hereby granted, free of charge", "MIT"),
    ("MIT License", "MIT"),
    ("Common Development and Distribution License (CDDL) Version 1.0", "CDDL-1.0"),
    ("Redistribution and use in source and binary forms", "BSD"),
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Bundled:
    """One bundled Python package or jar.

    Attributes:
        kind: `pypi` or `jar`.
        sha256: Digest of a jar; empty for a package, whose RECORD file has digests of its files.
        licence: License from the metadata, or `not stated`.
        group: Maven group ID from the jar or from the lock file of the servers' jars, or empty.
    """

    kind: str
    name: str
    version: str
    licence: str
    sha256: str = ""
    group: str = ""


def bundled(folder: Path) -> list[Bundled]:
    """Return all third-party software in a folder.

    Args:
        folder: Folder that contains installed Python packages directly, and jars at any depth.
    """
    found = [_package(of) for of in importlib.metadata.distributions(path=[str(folder)])]
    return sorted([*found, *(_jar(path) for path in folder.rglob("*.jar"))])


def listed(parts: list[Bundled]) -> str:
    """Return a list of bundled software as text for people."""
    width = max(len(f"{part.name} {part.version}") for part in parts)
    return "".join(
        f"{part.name + ' ' + part.version:<{width}}  {part.kind:<4}  {part.licence}\n"
        for part in parts
    )


def _package(of: importlib.metadata.Distribution) -> Bundled:
    def read_field(name: str) -> str:
        return str((of.metadata.get_all(name) or [""])[0]).strip()

    classifiers = (
        line for line in of.metadata.get_all("Classifier") or () if line.startswith("License :: ")
    )
    field = read_field("License")
    licence = read_field("License-Expression") or (
        "" if "\n" in field or len(field) > 60 else field
    )  # some put the whole text there
    licence = licence or " AND ".join(line.rpartition(" :: ")[2] for line in classifiers)
    name = read_field("Name")
    return Bundled(
        kind="pypi", name=name, version=of.version, licence=licence or _KNOWN.get(name, NOT_SAID)
    )


def _jar(path: Path) -> Bundled:
    matched = _JAR.fullmatch(path.name)
    name, version = (matched["name"], matched["version"]) if matched else (path.stem, "")
    digest = sha256_of(path)
    with zipfile.ZipFile(path) as archive:
        licence = next(_license_statements(archive), None) or _KNOWN.get(path.name) or NOT_SAID
        group = _groups_locked().get(digest) or _group(archive, name)
    return Bundled(
        kind="jar", name=name, version=version, licence=licence, sha256=digest, group=group
    )


@functools.cache
def _groups_locked() -> dict[str, str]:
    return {jar.sha256: jar.organisation for name in set_names() for jar in read_lock(name)}


def _group(archive: zipfile.ZipFile, name: str) -> str:
    """Return the Maven group ID of the artifact `name` that a jar contains, or an empty string."""
    found = (
        re.fullmatch(r"META-INF/maven/([^/]+)/([^/]+)/pom.properties", entry)
        for entry in archive.namelist()
    )
    return next((match[1] for match in found if match and match[2] == name), "")


def _license_statements(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield what a jar states about its license, the most specific statement first."""
    names = archive.namelist()
    if "META-INF/MANIFEST.MF" in names:
        manifest = re.sub(
            r"\r?\n ", "", archive.read("META-INF/MANIFEST.MF").decode(errors="replace")
        )  # long lines go on
        if line := re.search(r"^Bundle-License: *(.+?)\s*$", manifest, re.MULTILINE):
            yield line[1]
    for pom in sorted(name for name in names if name.endswith("/pom.xml")):
        text = archive.read(pom).decode(errors="replace")
        if declared := re.findall(r"<license>.*?<name>\s*(.*?)\s*</name>", text, re.DOTALL):
            yield " AND ".join(" ".join(name.split()) for name in declared)
    for name in sorted(name for name in names if _LICENCE_FILE.fullmatch(name)):
        text = " ".join(archive.read(name).decode(errors="replace").split())
        yield from (licence for begins, licence in _TEXTS if begins.lower() in text[:3000].lower())
