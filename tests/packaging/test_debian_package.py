"""The Debian package of the tailer: made by its tool, and put into a clean Debian, upgraded,
removed and purged there.
"""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.debian_packages import control
from tests.support.debian_programs import program
from tests.support.debian_root import DebianRoot, clean_root
from tests.support.tailer.host import lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

# the first run on a machine fetches and unpacks a Debian
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

NAME = "hourmark-tailer"
SERVICES = f"{NAME}.service hourmark-canary.service"
CONFIGURATION, STATE, LIBRARY = (
    "/etc/hourmark/tailer.toml",
    "/var/lib/hourmark/tailer",
    f"/usr/lib/{NAME}",
)
UNIT = f"/usr/lib/systemd/system/{NAME}.service"
LOG = "/var/log/app/app.log"

# A small package stays small: what it is today, and a little more.
PACKAGE_KIB_MAX, INSTALLED_KIB_MAX, DISTRIBUTIONS_MAX = 3_500, 13_500, 18
# of 10, as systemd-analyze reckons it; under 2 is "OK", as nothing that uses the network can be
# less
EXPOSURE_MAX = 1.7


@pytest.fixture(scope="module")
def root(
    tailer_packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DebianRoot]:
    """A clean system with what the package says that it depends on, the packages beside it, and
    logs that only root may read.
    """
    depends = {part.split()[0] for part in control(tailer_packages[0])["Depends"].split(", ")}
    found = clean_root(tmp_path_factory.mktemp("debian") / "root", sorted(depends))
    for package in tailer_packages:
        (found.folder / package.name).write_bytes(package.read_bytes())
    found.at(LOG).parent.mkdir(mode=0o700)
    found.pretend_systemd()
    yield found
    subprocess.run(["rm", "-rf", str(found.folder)], check=True)


def unit_settings(root: DebianRoot, path: str = UNIT) -> dict[str, str]:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    # names of settings have capitals
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(root.at(path).read_text())
    return dict(unit["Service"])


def as_the_unit_says(root: DebianRoot, capability: bool = True) -> list[str]:
    """Its command, by its user, with its one capability or without."""
    settings = unit_settings(root)
    assert (
        settings["AmbientCapabilities"]
        == settings["CapabilityBoundingSet"]
        == "CAP_DAC_READ_SEARCH"
    )
    kept = "-all,+dac_read_search" if capability else "-all"
    return [
        "setpriv",
        f"--reuid={settings['User']}",
        f"--regid={settings['Group']}",
        "--clear-groups",
        "--no-new-privs",
        f"--bounding-set={kept}",
        f"--inh-caps={kept}",
        f"--ambient-caps={kept}",
        *settings["ExecStart"].split(),
    ]


def delivers(root: DebianRoot, recorder: Recorder, content: bytes, log: Path) -> None:
    """A tailer that runs as the unit says delivers this, and ends well when it is told to."""
    process = root.start(as_the_unit_says(root), log)
    try:
        wait_for(lambda: recorder.text() == content or process.poll() is not None, "all lines")
        process.terminate()
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def append(root: DebianRoot, content: bytes) -> None:
    with root.at(LOG).open("ab") as file:
        file.write(content)
    root.at(LOG).chmod(0o600)


def test_it_is_small(tailer_packages: tuple[Path, Path], tmp_path: Path) -> None:
    package = tailer_packages[0]
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path)], check=True)
    assert package.stat().st_size <= PACKAGE_KIB_MAX * 1024
    assert int(control(package)["Installed-Size"]) <= INSTALLED_KIB_MAX
    distributions = {
        path.name.partition("-")[0] for path in (tmp_path / LIBRARY.lstrip("/")).glob("*.dist-info")
    }
    assert {"hourmark", "hourmark_producer"} <= distributions
    assert len(distributions) <= DISTRIBUTIONS_MAX, distributions


def test_it_is_installed_configured_upgraded_removed_and_purged(
    root: DebianRoot, tailer_packages: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = (f"/{package.name}" for package in tailer_packages)
    root.must("dpkg", "-i", first)
    assert not any("start" in told for told in root.told_systemd()), (
        "nothing runs before there are sources"
    )
    assert root.must("stat", "-c", "%U:%G %a", STATE) == "hourmark:hourmark 700\n"
    assert root.must("hourmark", "--version") == "hourmark, version 0.3.0\n"
    assert root.must("dpkg", "--verify", NAME) == ""
    refused = root.run(*as_the_unit_says(root))
    assert (refused.returncode, unit_settings(root)["RestartPreventExitStatus"]) == (2, "2")
    assert "tailer.sources is empty" in refused.stderr

    with recording() as recorder:
        port = recorder.url.rpartition(":")[2]
        settings = root.at(CONFIGURATION).read_text().replace(":8780", f":{port}")
        settings += '[[tailer.sources]]\nname = "app"\npaths = ["/var/log/app/*.log*"]\n'
        root.at(CONFIGURATION).write_text(settings)
        append(root, lines(100))
        delivers(root, recorder, lines(100), tmp_path / "log")

        root.must("dpkg", "-i", second)
        assert f"try-restart {SERVICES}" in root.told_systemd(), "the new one takes over"
        assert root.at(CONFIGURATION).read_text() == settings
        append(root, lines(100, 100))
        delivers(root, recorder, lines(200), tmp_path / "log")

        root.must("dpkg", "--remove", NAME)
        assert f"stop {SERVICES}" in root.told_systemd()
        assert not root.at(LIBRARY).exists() and not root.at("/usr/bin/hourmark").is_symlink()
        assert root.at(CONFIGURATION).read_text() == settings
        root.must("dpkg", "-i", second)
        append(root, lines(100, 200))
        delivers(root, recorder, lines(300), tmp_path / "log")
        assert recorder.contents(), "each byte once"

    root.must("dpkg", "--purge", NAME)
    assert not [
        path
        for path in (LIBRARY, STATE, "/etc/hourmark", "/var/lib/hourmark")
        if root.at(path).exists()
    ]


def test_without_the_capability_logs_of_others_cannot_be_read(
    root: DebianRoot, tailer_packages: tuple[Path, Path], tmp_path: Path
) -> None:
    root.must("dpkg", "-i", f"/{tailer_packages[0].name}")
    append(root, lines(10))
    root.at(CONFIGURATION).write_text(
        '[[tailer.sources]]\nname = "app"\npaths = ["/var/log/app/*.log*"]\n'
    )
    log = tmp_path / "log"
    process = root.start(as_the_unit_says(root, capability=False), log)
    try:
        wait_for(
            lambda: "cannot scan /var/log/app: Permission denied" in log.read_text(),
            "it says so",
        )
    finally:
        process.kill()
        process.wait()


def test_the_unit_is_in_order_and_hardened(
    root: DebianRoot, tailer_packages: tuple[Path, Path], tmp_path: Path
) -> None:
    root.must("dpkg", "-i", f"/{tailer_packages[0].name}")
    hardened(root, NAME, tmp_path, EXPOSURE_MAX)


def hardened(root: DebianRoot, name: str, folder: Path, exposure_max: float) -> None:
    """The unit of an installed package is in order, as exposed as that and no more, and without two
    of its lines it is more.
    """
    analyze = program("systemd-analyze", "systemd", "libsystemd-shared")
    text = root.at(f"/usr/lib/systemd/system/{name}.service").read_text()
    unit, loose = folder / f"{name}.service", folder / "loose.service"
    unit.write_text(
        text.replace("ExecStart=/", f"ExecStart={root.folder}/")
    )  # it is looked whether that can be run
    loose.write_text(
        text.replace("ProtectSystem=strict\n", "").replace("NoNewPrivileges=yes\n", "")
    )

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(analyze.path), *arguments]
        return subprocess.run(
            command, env=analyze.environment(), capture_output=True, text=True, check=False
        )

    def exposed(file: Path) -> bool:
        asked = ask(
            "security", "--offline=true", f"--threshold={round(exposure_max * 10)}", str(file)
        )
        return asked.returncode != 0

    verified = ask("verify", "--man=no", str(unit))
    assert (verified.returncode, verified.stderr) == (0, "")
    assert not exposed(unit)
    assert exposed(loose)
