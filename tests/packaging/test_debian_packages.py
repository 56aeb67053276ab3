"""All four Debian packages in one clean Debian: installed, run as their units say, upgraded,
removed, purged side by side.
"""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.packaging.test_debian_package import hardened, unit_settings
from tests.support.debian_packages import control, made
from tests.support.debian_programs import program
from tests.support.debian_root import DebianRoot, clean_root
from tests.support.waiting import wait_for
from tools.bundled import NOT_SAID
from tools.debian_package import PACKAGES

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]  # Spark is packed, unpacked and compiled

SHELLS = ("bash-completion", "fish", "zsh")
UNITS = {
    unit: name for name, package in PACKAGES.items() for unit in package.units
}  # by unit, the package
EXPOSURE_MAX = dict.fromkeys(UNITS, 1.2) | {"hourmark-tailer": 1.7}
# By unit beside a package's own, what it says where nothing that it needs is there.
SAYS = {
    "hourmark-mirror-watch": "the mirror could not be observed",
    "hourmark-canary": "no canary is acknowledged",
    "hourmark-canary-check": "hourmark types apply",
}
Debs = Mapping[str, tuple[Path, Path]]


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Debs:
    """Each package, and its next revision."""
    program("dpkg-deb", "dpkg")
    files = made(tmp_path_factory.mktemp("deb"))
    return {name: (files[2 * place], files[2 * place + 1]) for place, name in enumerate(PACKAGES)}


@pytest.fixture(scope="module")
def root(debs: Debs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    """With all of the first revision installed, at once."""
    depends = {
        part.split()[0]
        for first, _ in debs.values()
        for part in control(first)["Depends"].split(", ")
    }
    found = clean_root(tmp_path_factory.mktemp("debian") / "root", sorted(depends | {*SHELLS}))
    found.pretend_systemd()
    found.at("/etc/hosts").write_text(
        f"127.0.0.1 localhost {socket.gethostname()}\n"
    )  # Spark asks for the machine's own name
    subprocess.run(
        ["mount", "-t", "proc", "proc", str(found.at("/proc"))], check=True
    )  # Java finds its libraries by it
    try:
        _install(found, *(first for first, _ in debs.values()))
        yield found
    finally:
        subprocess.run(["umount", str(found.at("/proc"))], check=True)
        subprocess.run(["rm", "-rf", "--one-file-system", str(found.folder)], check=True)


def _install(root: DebianRoot, *files: Path) -> None:
    for file in files:
        subprocess.run(["cp", str(file), str(root.at("/"))], check=True)
    root.must("dpkg", "-i", *(f"/{file.name}" for file in files))
    for file in files:
        root.at(f"/{file.name}").unlink()


def as_user(root: DebianRoot, name: str, *command: str) -> list[str]:
    """A command as the package's user, without any capability."""
    user = PACKAGES[name].user
    return [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
        *command,
    ]


def as_its_unit_says(root: DebianRoot, name: str, unit: str | None = None) -> list[str]:
    settings = unit_settings(root, f"/usr/lib/systemd/system/{unit or f'hourmark-{name}'}.service")
    assert settings["User"] == PACKAGES[name].user
    return as_user(root, name, *settings["ExecStart"].split())


def test_nothing_runs_once_installed_and_state_and_settings_are_their_users_own(
    root: DebianRoot,
) -> None:
    assert not any("start" in told for told in root.told_systemd())
    for name, package in PACKAGES.items():
        assert (
            root.must("stat", "-c", "%U:%G %a", f"/var/lib/hourmark/{name}")
            == f"{package.user}:{package.user} 700\n"
        )
        mode = f"root:{package.user} 640\n" if package.private else "root:root 644\n"
        assert root.must("stat", "-c", "%U:%G %a", f"/etc/hourmark/{name}.toml") == mode
        assert root.must("dpkg", "--verify", f"hourmark-{name}") == ""
    assert len({package.user for package in PACKAGES.values()}) == len(PACKAGES)


@pytest.mark.parametrize(
    "command", ["tail", "serve", "mirror run", "etl run", "types apply", "bucket verify", "doctor"]
)
def test_one_program_has_the_commands_of_all(root: DebianRoot, command: str) -> None:
    assert root.must("hourmark", *command.split(), "--help").startswith(
        f"Usage: hourmark {command} "
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_its_settings_are_in_order(root: DebianRoot, name: str) -> None:
    root.must("hourmark", "config", "show", "--config", f"/etc/hourmark/{name}.toml")


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_in_order_and_hardened(root: DebianRoot, unit: str, tmp_path: Path) -> None:
    hardened(root, unit, tmp_path, EXPOSURE_MAX[unit])


@pytest.mark.parametrize("name", PACKAGES)
def test_it_names_what_it_bundles(root: DebianRoot, name: str) -> None:
    documents = root.at(f"/usr/share/doc/hourmark-{name}")
    bill = json.loads((documents / "sbom.cdx.json").read_text())
    jars = list(root.at(f"/usr/lib/hourmark-{name}").rglob("*.jar"))
    assert (
        bill["bomFormat"] == "CycloneDX"
        and bill["metadata"]["component"]["name"] == f"hourmark-{name}"
    )
    assert sum("hashes" in component for component in bill["components"]) == len(jars)
    lines = (documents / "licences.txt").read_text().splitlines()
    assert len(lines) == len(bill["components"])
    unsaid = [line for line in lines if line.endswith(NOT_SAID)]
    assert not unsaid or name == "etl", (
        "only Spark's jars may say nothing themselves; its own licence files speak for them"
    )
    assert all(" jar " in line for line in unsaid)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz") as answer:
            return bool(answer.status == 200)
    except OSError:  # it names its address, and listens a little later
        return False


def test_the_service_serves(root: DebianRoot, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = root.start([*as_its_unit_says(root, "service"), "--port", "0"], log)
    try:
        wait_for(
            lambda: "http://127.0.0.1:" in log.read_text() or process.poll() is not None,
            "it listens",
        )
        assert process.poll() is None, log.read_text()
        url = next(
            word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")
        ).rstrip(".,;/")
        wait_for(lambda: _is_healthy(url), "it answers")
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_mirror_waits_for_its_clusters_and_its_jars_are_mirror_maker(
    root: DebianRoot, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    root.must("sed", "-i", "s/:9092/:9/; s/:9192/:9/", "/etc/hourmark/mirror.toml")
    process = root.start(as_its_unit_says(root, "mirror"), log)
    try:
        wait_for(
            lambda: "waiting for Kafka, retry in" in log.read_text() or process.poll() is not None,
            "it waits",
        )
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    java = as_user(root, "mirror", "java", "-cp", "/usr/lib/hourmark-mirror/jars/*")
    done = root.run(*java, "org.apache.kafka.connect.mirror.MirrorMaker", "--help")
    assert "MirrorMaker 2.0 driver" in done.stdout + done.stderr


@pytest.mark.parametrize("unit", SAYS)
def test_a_unit_beside_waits_for_what_it_needs_and_says_what_that_is(
    root: DebianRoot, unit: str, tmp_path: Path
) -> None:
    assert {*SAYS} == {*UNITS} - {f"hourmark-{name}" for name in PACKAGES}
    log = tmp_path / "log"
    process = root.start(as_its_unit_says(root, UNITS[unit], unit), log)
    try:
        wait_for(lambda: SAYS[unit] in log.read_text(), "it says so")
        ends_by_itself = unit == "hourmark-canary-check"
        if not ends_by_itself:
            process.terminate()
        assert process.wait(60) == int(ends_by_itself), log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_mirrors_watch_comes_with_it_and_stays_where_it_ends(root: DebianRoot) -> None:
    text = root.at("/usr/lib/systemd/system/hourmark-mirror.service").read_text()
    assert "\nWants=hourmark-mirror-watch.service\n" in text
    watch = root.at("/usr/lib/systemd/system/hourmark-mirror-watch.service").read_text()
    assert not any(word in watch for word in ("PartOf=", "BindsTo=", "Requires="))


SPARK = """
import os, sys
sys.path.insert(0, "/usr/lib/hourmark-etl")
os.environ["PYTHONPATH"] = "/usr/lib/hourmark-etl"
from hourmark.config.loading import Config
from hourmark_etl.execution.session import spark_session
def doubled(batches):
    import fastavro, hourmark_etl.arrow, pyarrow.compute as pc
    for batch in batches:
        yield batch.set_column(0, "id", pc.multiply(batch.column(0), 2))
spark = spark_session(Config(), submitted=False)
print(sum(row.id for row in spark.range(1000).mapInArrow(doubled, "id long").collect()))
spark.stop()
"""


def test_a_wrong_setting_of_the_etl_is_not_tried_again(root: DebianRoot) -> None:
    assert (
        unit_settings(root, "/usr/lib/systemd/system/hourmark-etl.service")[
            "RestartPreventExitStatus"
        ]
        == "2"
    )
    settings = root.at("/etc/hourmark/etl.toml")
    before = settings.read_text()
    settings.write_text(f"{before}\n[nonsense]\n")
    done = root.run(*as_its_unit_says(root, "etl"))
    settings.write_text(before)
    assert done.returncode == 2, done.stderr
    assert "nonsense" in done.stderr


def test_the_etl_waits_for_hdfs_and_types_and_its_spark_works(root: DebianRoot) -> None:
    done = root.run(*as_its_unit_says(root, "etl"))
    assert done.returncode == 1, "HDFS may come: it is tried again"
    root.must(
        "sed",
        "-i",
        's|^root = .*|root = "file:///var/lib/hourmark/etl/buckets"|; /^webhdfs/d',
        "/etc/hourmark/etl.toml",
    )
    done = root.run(*as_its_unit_says(root, "etl"))
    assert done.returncode == 1, "types may be applied: it is tried again"
    assert (
        "no ledger exists at" in done.stderr
        and "`hourmark types apply --dir types` creates it" in done.stderr
    )
    done = root.run(*as_user(root, "etl", "python3", "-I", "-c", SPARK))
    assert done.stdout == "999000\n", done.stderr[-3000:]


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_shells_complete(root: DebianRoot, shell: str) -> None:
    asked = {
        "bash": ". /usr/share/bash-completion/completions/hourmark; COMP_WORDS=(hourmark mir); "
        "COMP_CWORD=1; "
        '_hourmark_completion hourmark mir; echo "${COMPREPLY[@]}"',
        "fish": 'complete -C "hourmark mir"',
        "zsh": "autoload -U compinit; compinit -u; echo $_comps[hourmark]",
    }
    done = root.must(shell, "-c", asked[shell])
    assert ("_hourmark" if shell == "zsh" else "mirror") in done


def _services(name: str) -> str:
    return " ".join(f"{unit}.service" for unit in PACKAGES[name].units)


def test_upgrades_keep_settings_and_state_and_each_is_purged_alone(
    root: DebianRoot, debs: Debs
) -> None:
    root.told_systemd()
    for name in PACKAGES:
        with root.at(f"/etc/hourmark/{name}.toml").open("a") as file:
            file.write("# changed here\n")
        root.at(f"/var/lib/hourmark/{name}/kept").touch()
    _install(root, *(second for _, second in debs.values()))
    told = root.told_systemd()
    for name, package in PACKAGES.items():
        assert f"try-restart {_services(name)}" in told
        assert root.at(f"/etc/hourmark/{name}.toml").read_text().endswith("# changed here\n")
        assert root.must("stat", "-c", "%G", f"/etc/hourmark/{name}.toml") == (
            f"{package.user if package.private else 'root'}\n"
        )
        assert root.must("dpkg-query", "-W", "-f", "${Version}", f"hourmark-{name}").endswith("-2")

    left = list(PACKAGES)
    for name in reversed(PACKAGES):
        root.must("dpkg", "--remove", f"hourmark-{name}")
        assert f"stop {_services(name)}" in root.told_systemd()
        assert (
            root.at(f"/etc/hourmark/{name}.toml").exists()
            and root.at(f"/var/lib/hourmark/{name}/kept").exists()
        )
        assert not root.at(f"/usr/lib/hourmark-{name}").exists()
        root.must("dpkg", "--purge", f"hourmark-{name}")
        left.remove(name)
        assert (
            not root.at(f"/etc/hourmark/{name}.toml").exists()
            and not root.at(f"/var/lib/hourmark/{name}").exists()
        )
        assert all(root.at(f"/var/lib/hourmark/{other}/kept").exists() for other in left), (
            "what others own stays"
        )
        if left:
            assert root.must("hourmark", "--version") == "hourmark, version 0.3.0\n"
    gone = ("/usr/bin/hourmark", "/usr/share/bash-completion/completions/hourmark")
    assert not [path for path in gone if root.at(path).is_symlink() or root.at(path).exists()]
    assert not [path for path in ("/etc/hourmark", "/var/lib/hourmark") if root.at(path).exists()]
