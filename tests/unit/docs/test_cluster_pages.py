"""docs/how-to: spark-standalone, yarn and kubernetes. Their commands are those that the tests run, but
for sizes and places.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faults.test_etl_dynamic_allocation import ALLOCATION
from tests.support.documents import ROOT
from tests.support.guides import commands
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from tests.support.yarn_etl import DOCUMENTED
from tests.unit.infra.test_kubernetes import SECRETS
from tools.pack_environment import main as pack_environment

PAGES = ("spark-standalone", "yarn", "kubernetes")
COMMANDS = {
    page: [one.line for one in commands((ROOT / "docs" / "how-to" / f"{page}.md").read_text())]
    for page in PAGES
}
PLACES = {"spark.yarn.jars"}
MANIFESTS = ROOT / "infra" / "kubernetes"
SIZES = re.compile(
    r"\.memory|\.memoryOverhead|Executors$|IdleTimeout$|Tracking\.timeout$|cores\.max$"
)


def command(page: str, *parts: str) -> str:
    """Return the only command of a page that contains these words."""
    (line,) = [line for line in COMMANDS[page] if all(part in line for part in parts)]
    return line


def conf(words: list[str]) -> dict[str, str]:
    given = [word for before, word in itertools.pairwise(words) if before == "--conf"]
    return dict(word.split("=", 1) for word in given if not SIZES.search(word.split("=", 1)[0]))


def environment(tmp_path: Path) -> dict[str, str]:
    """As the page has it: `.venv/bin` first in `PATH`; the next `python3` has no Spark."""
    assert command("spark-standalone", "export PATH") == "export PATH=/opt/hourmark/.venv/bin:$PATH"
    from hourmark_infra.java.find import java_executable

    (tmp_path / "python3").write_text("#!/bin/sh\necho no Spark here >&2; exit 1\n")
    (tmp_path / "python3").chmod(0o755)
    path = [str(Path(sys.executable).parent), str(tmp_path), "/usr/bin", "/bin"]
    java = str(java_executable().parents[1])
    return {"PATH": os.pathsep.join(path), "HOME": str(tmp_path), "JAVA_HOME": java}


@contextlib.contextmanager
def started(command: str, tmp_path: Path, name: str) -> Iterator[Path]:
    """A documented command in the foreground; its output."""
    output = tmp_path / f"{name}.log"
    with (
        output.open("wb") as log,
        subprocess.Popen(
            shlex.split(command), env=environment(tmp_path), cwd=tmp_path, stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield output
        finally:
            process.terminate()


@pytest.mark.slow
def test_master_and_worker_start_as_the_page_has_it(tmp_path: Path) -> None:
    master = command("spark-standalone", "deploy.master.Master")
    worker = command("spark-standalone", "deploy.worker.Worker")
    port = str(free_port())
    places = {"7077": port, "--host master": "--host 127.0.0.1", "//master": "//127.0.0.1"}
    for told, here in places.items():
        master, worker = master.replace(told, here), worker.replace(told, here)
    with started(f"{master} --webui-port 0", tmp_path, "master") as log:
        wait_for(lambda: "New state: ALIVE" in log.read_text(), "the master is alive")
        worker = worker.replace("/var/lib/hourmark/spark-work", str(tmp_path))
        with started(worker.replace("spark:", "--webui-port 0 spark:"), tmp_path, "worker") as log:
            wait_for(lambda: "Successfully registered" in log.read_text(), "it has registered")


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False], ids=["as the page has it", "python3 elsewhere"])
def test_spark_submit_finds_spark_by_the_first_python(tmp_path: Path, is_first: bool) -> None:
    variables = environment(tmp_path)
    submit = Path(sys.executable).with_name("spark-submit")
    variable, words = command("spark-standalone", "--version").split(" ", 1)
    assert variable == "PYSPARK_PYTHON=/opt/hourmark/.venv/bin/python"
    assert words == "/opt/hourmark/.venv/bin/spark-submit --version"
    if not is_first:
        variables["PATH"] = variables["PATH"].partition(os.pathsep)[2]
    done = subprocess.run(
        [str(submit), "--version"], env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is is_first, done.stderr
    if not is_first:
        variables["PYSPARK_PYTHON"] = sys.executable
        subprocess.run([str(submit), "--version"], env=variables, capture_output=True, check=True)


def test_on_yarn_it_is_submitted_as_the_test_submits_it() -> None:
    words = shlex.split(command("yarn", "spark-submit"))
    told = conf(words)
    assert told.keys() == DOCUMENTED.keys()
    assert {n: v for n, v in told.items() if n not in PLACES} == {
        n: v for n, v in DOCUMENTED.items() if n not in PLACES
    }
    for option in (
        "--deploy-mode cluster",
        "--archives environment.tar.gz#environment",
        "--files hourmark.toml",
    ):
        assert option in " ".join(words)
    assert words[-3:] == ["etl/job.py", "--config", "hourmark.toml"]


def test_executors_are_allocated_as_the_test_has_them() -> None:
    words = shlex.split(command("spark-standalone", "dynamicAllocation"))
    given = {name: value for name, value in conf(words).items() if "dynamicAllocation" in name}
    assert given.items() <= ALLOCATION.items() and given
    named = {word.split("=")[0] for word in words if "dynamicAllocation" in word}
    assert named == {name for name in ALLOCATION if "dynamicAllocation" in name}


def test_the_driver_is_submitted_with_and_without_dynamic_allocation_alike() -> None:
    first, second = [
        shlex.split(line)
        for line in COMMANDS["spark-standalone"]
        if line.startswith("spark-submit")
    ]
    assert [word for word in first if word not in second] == []
    given = ["/opt/hourmark/job.py", "--config", "/etc/hourmark/hourmark.toml"]
    assert first[-3:] == second[-3:] == given


def test_the_environment_is_packed_by_a_command_that_exists() -> None:
    words = shlex.split(command("yarn", "pack_environment"))
    assert words[:3] == [".venv/bin/python", "-m", "tools.pack_environment"]
    with pack_environment.make_context("pack", words[3:]):
        pass
    assert CliRunner().invoke(pack_environment, ["--help"]).exit_code == 0


def test_what_a_manifest_gives_spark_is_what_the_page_says_of_it() -> None:
    driver = (ROOT / "infra" / "kubernetes" / "etl.yaml").read_text()
    given = dict(re.findall(r"--conf (spark\.dynamicAllocation\.\S+)=(\S+)", driver))
    assert given.keys() >= {
        "spark.dynamicAllocation.enabled",
        "spark.dynamicAllocation.shuffleTracking.timeout",
    }


def test_kubectl_names_files_and_secrets_that_the_manifests_have() -> None:
    lines = [shlex.split(line) for line in COMMANDS["kubernetes"] if line.startswith("kubectl")]
    for words in lines:
        for before, word in itertools.pairwise(words):
            assert before != "-f" or (ROOT / word).exists(), word
    created = {words[words.index("generic") + 1]: words for words in lines if "generic" in words}
    assert created.keys() == SECRETS
    manifests = "".join(file.read_text() for file in MANIFESTS.glob("*.yaml"))
    for words in created.values():
        files = [word.partition("=")[2] for word in words if word.startswith("--from-file=")]
        assert files and all(f"/{file}" in manifests for file in files)
