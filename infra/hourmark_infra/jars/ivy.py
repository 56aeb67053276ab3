"""Downloads of Maven artifacts with the Apache Ivy that pyspark includes.

Files are downloaded from Ivy's default repository, Maven Central. To use another repository, name
a file with Ivy settings in `$HOURMARK_IVY_SETTINGS`. It must be like `_SETTINGS` below, with the
same `caches` element.
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
from hourmark_infra.jars.trust_store import trust_store_options

# Ivy's checksums are off because every file is compared with the SHA-256 digest of the lock file,
# which is stronger than the repository's SHA-1. POMs of locked files are not read, because the lock
# file lists all transitive dependencies.
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
    """Return the path of the Apache Ivy jar that the installed pyspark package contains.

    Hourmark downloads jars with this copy of Ivy, so Ivy need not be installed separately.

    Raises:
        Unavailable: pyspark is not installed or does not contain Ivy.
    """
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise Unavailable(
            "pyspark is not installed, but its Ivy is needed to download the servers' jars; start "
            "Hourmark with ./hourmark, or pip install 'hourmark-infra[spark]'"
        )
    return found[-1]


def render_locked_dependencies(jars: Iterable[Jar]) -> str:
    """Render the Ivy XML for downloading jars without their transitive dependencies.

    Args:
        jars: Jars to download.

    Returns:
        One `<dependency>` element for each combination of organisation, module and revision.
    """
    ordered = sorted(jars, key=lambda jar: (jar.organisation, jar.module, jar.revision))
    groups = groupby(ordered, key=lambda jar: (jar.organisation, jar.module, jar.revision))
    return "\n".join(
        render_dependency(*key, [(jar.ext, jar.classifier) for jar in group])
        for key, group in groups
    )


def render_dependency(
    organisation: str, module: str, revision: str, files: Iterable[tuple[str, str]] = ()
) -> str:
    """Render the Ivy XML `<dependency>` element for a Maven module.

    Args:
        organisation: Maven group ID.
        module: Maven artifact ID.
        revision: Maven version.
        files: Extension and classifier of each file to download; the classifier may be empty. If
            there are no files, the module and all its transitive runtime dependencies are
            downloaded.
    """
    artifacts = "".join(
        f'<artifact name="{module}" type="{ext}" ext="{ext}"'
        + (f' m:classifier="{classifier}"' if classifier else "")
        + "/>"
        for ext, classifier in files
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
    """Start an Ivy process that downloads artifacts, without waiting for it to finish.

    Args:
        java: Path of the `java` executable.
        folder: Working folder. Artifacts are stored in `folder/files`, each at its `Jar.ivy_path`.
            The output of Ivy is written to `folder/ivy.log`.
        dependencies: Ivy XML `<dependency>` elements.
        poms: Whether to read POM files to find transitive dependencies.
        more: Additional Ivy command-line options.

    Raises:
        Unavailable: pyspark is not installed or does not contain Ivy.
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
        *trust_store_options(os.environ, folder / "trusted.jks"),
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


def read_log_tail(folder: Path, lines: int = 8) -> str:
    """Return the last lines of Ivy's log, without progress dots, for use in an error message.

    Args:
        folder: Ivy's working folder, which contains `ivy.log`.
        lines: Maximum number of lines.

    Returns:
        The lines, truncated to 300 characters each; empty if there is no log.
    """
    try:
        text = (folder / "ivy.log").read_text(errors="replace")
    except FileNotFoundError:
        return ""
    wanted = [line[:300] for line in text.splitlines() if line.strip() and not line.startswith(".")]
    return "\n".join(wanted[-lines:])
