"""docs/clusters.md: its commands are those that the tests run, but for sizes and places."""

from __future__ import annotations

import itertools
import re
import shlex

from click.testing import CliRunner
from tests.faults.test_etl_dynamic_allocation import ALLOCATION
from tests.support.documents import ROOT
from tests.support.yarn_etl import DOCUMENTED
from tools.pack_environment import main as pack_environment

PAGE = (ROOT / "docs" / "clusters.md").read_text()
BLOCKS = [block.replace("\\\n", " ") for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
PLACES = {"spark.yarn.jars"}
SIZES = re.compile(
    r"\.memory|\.memoryOverhead|Executors$|IdleTimeout$|Tracking\.timeout$|cores\.max$"
)


def submissions() -> list[list[str]]:
    lines = [
        line for block in BLOCKS for line in block.splitlines() if line.startswith("spark-submit")
    ]
    return [shlex.split(line) for line in lines]


def conf(words: list[str]) -> dict[str, str]:
    given = [word for before, word in itertools.pairwise(words) if before == "--conf"]
    return dict(word.split("=", 1) for word in given if not SIZES.search(word.split("=", 1)[0]))


def test_on_yarn_it_is_submitted_as_the_test_submits_it() -> None:
    (words,) = [w for w in submissions() if "yarn" in w]
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
    (block,) = [b for b in BLOCKS if "dynamicAllocation" in b]
    words = shlex.split(block)
    assert conf(words).items() <= ALLOCATION.items() and conf(words)
    named = {word.split("=")[0] for word in words if word != "--conf"}
    assert named == {name for name in ALLOCATION if "dynamicAllocation" in name}


def test_the_environment_is_packed_by_a_command_that_exists() -> None:
    (line,) = [
        line for block in BLOCKS for line in block.splitlines() if "pack_environment" in line
    ]
    words = shlex.split(line)
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
