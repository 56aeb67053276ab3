"""Ivy, which pyspark ships, as a downloader: exact files of exact coordinates, found at its own
default repository.

No host is named here or anywhere in the project; whoever has another repository gives Ivy's
settings in `$HOURMARK_IVY_SETTINGS` (a file like `_SETTINGS` below, whose caches element must stay
as it is).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import quoteattr

from hourmark.errors import Unavailable
from hourmark_infra.jars.lockfile import Jar

# Checksums are off because every file is held against the lock's SHA-256, which says more than the
# repository's SHA-1. POMs are not read for locked files: the lock already holds what they would
# add.
_SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache} artifactPattern="[organisation]/[module]/[revision]/[artifact](-[classifier]).[ext]"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}"/></resolvers>
</ivysettings>
"""

_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="hourmark" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def find_ivy_jar() -> Path:
    """The Ivy that the installed pyspark ships."""
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise Unavailable(
            "pyspark, whose Ivy fetches the servers' jars, is not installed; start "
            "Hourmark with ./hourmark"
        )
    return found[-1]


def render_locked_dependencies(jars: Iterable[Jar]) -> str:
    """Ivy's `<dependency>` elements for exactly these files."""
    ordered = sorted(jars, key=lambda jar: (jar.organisation, jar.module, jar.revision))
    groups = groupby(ordered, key=lambda jar: (jar.organisation, jar.module, jar.revision))
    return "\n".join(
        render_dependency(*key, [(jar.ext, jar.classifier) for jar in group])
        for key, group in groups
    )


def render_dependency(
    organisation: str, module: str, revision: str, files: Iterable[tuple[str, str]] = ()
) -> str:
    """One element: exactly these files (extension, classifier), or, without any, the module with
    all that it needs to run.
    """
    artifacts = "".join(
        f'<artifact name="{module}" type="{ext}" ext="{ext}"'
        + (f' m:classifier="{of}"' if of else "")
        + "/>"
        for ext, of in files
    )
    transitive, conf = ("false", "default->*") if artifacts else ("true", "default->runtime,master")
    return (
        f'    <dependency org="{organisation}" name="{module}" rev="{revision}" '
        f'transitive="{transitive}" conf="{conf}">'
        f"{artifacts}</dependency>"
    )


def start_ivy(
    java: Path, folder: Path, dependencies: str, *, poms: bool = False, more: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start Ivy; files appear below `folder/files` as `Jar.ivy_path` says, its words in
    `folder/ivy.log`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    named = os.environ.get("HOURMARK_IVY_SETTINGS")
    settings = Path(named) if named else folder / "settings.xml"
    if not named:
        cache = quoteattr(str(folder / "files"))
        settings.write_text(_SETTINGS.format(cache=cache, poms=str(poms).lower()))
    module = folder / "ivy.xml"
    module.write_text(_MODULE.format(dependencies=dependencies))
    command = [
        str(java),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        *_trust_store_options(),
        "-cp",
        str(find_ivy_jar()),
        "org.apache.ivy.Main",
    ]
    command += [
        "-settings",
        str(settings),
        "-cache",
        str(folder / "files"),
        "-ivy",
        str(module),
        *more,
    ]
    with (folder / "ivy.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder
        )


def _trust_store_options() -> tuple[str, ...]:
    """Debian keeps the machine's trusted certificates for any Java here; a Java from elsewhere
    would not look.
    """
    store = Path("/etc/ssl/certs/java/cacerts")
    return (f"-Djavax.net.ssl.trustStore={store}",) if store.is_file() else ()


def read_log_tail(folder: Path, lines: int = 8) -> str:
    """The end of Ivy's log without its download dots, for an error message."""
    try:
        text = (folder / "ivy.log").read_text(errors="replace")
    except FileNotFoundError:
        return ""
    wanted = [line[:300] for line in text.splitlines() if line.strip() and not line.startswith(".")]
    return "\n".join(wanted[-lines:])
