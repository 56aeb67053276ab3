"""Print a bill of materials in CycloneDX format: `python -m tools.sbom [FOLDER]`.

It lists the packages and jars in FOLDER, or in `.venv` without FOLDER. Equal folders give equal
documents. Debian packages contain their own (`tools.debian_package`).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sysconfig
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from tools.bundled import NOT_SAID, Bundled, bundled

_NAMESPACE: Final = uuid.UUID("b7c3e3a4-2f5e-5d0a-9a53-9c1d5cf0a6b1")  # of serial numbers here


def document(name: str, version: str, parts: Iterable[Bundled]) -> str:
    """Return a CycloneDX 1.6 bill of materials as JSON text.

    Its timestamp is SOURCE_DATE_EPOCH, or the beginning of 1980 if that variable is not set.

    Args:
        name: Name of the described software.
        version: Version of the described software.
        parts: Third-party software that it contains.
    """
    components = [_component(part) for part in parts]
    held = ",".join(f"{c.purl} {[h.content for h in c.hashes]}" for c in components)
    made = Bom(
        components=components, serial_number=uuid.uuid5(_NAMESPACE, f"{name} {version} {held}")
    )
    made.metadata.component = Component(
        name=name, version=version, type=ComponentType.APPLICATION, bom_ref=name
    )
    made.metadata.timestamp = dt.datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), dt.UTC
    )
    made.register_dependency(made.metadata.component, components)
    return json.dumps(json.loads(JsonV1Dot6(made).output_as_string()), indent=1) + "\n"


def _component(part: Bundled) -> Component:
    kind = "pypi" if part.kind == "pypi" else "maven" if part.group else "generic"
    purl = PackageURL(
        kind, namespace=part.group or None, name=part.name, version=part.version or None
    )
    return Component(
        name=part.name,
        group=part.group or None,
        version=part.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=f"{purl}#{part.sha256[:12]}" if part.sha256 else str(purl),
        licenses=[]
        if part.licence == NOT_SAID
        else [LicenseFactory().make_from_string(part.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else (),
    )


@click.command()
@click.argument(
    "folder", required=False, type=click.Path(path_type=Path, file_okay=False, exists=True)
)
def main(folder: Path | None) -> None:
    """Print the bill of materials of FOLDER."""
    asked = folder or Path(sysconfig.get_path("purelib"))
    click.echo(document(asked.name, "", bundled(asked)), nl=False)


if __name__ == "__main__":
    main()
