"""`hourmark.testing` as its users have it: a stack in one line, under whichever engine there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import docker
import pytest
from confluent_kafka.admin import AdminClient
from tests.support.compose import MISSING, ROOT, built, program

from hourmark.errors import Unavailable
from hourmark.testing import NoEngine, Stack, stack
from hourmark.testing.engine import engine

pytestmark = [pytest.mark.containers, pytest.mark.long, pytest.mark.timeout(1800)]

START_S = 900.0  # beside other work
CLOSED_S = 900.0
PAGE = (ROOT / "docs" / "how-to" / "test-with-a-local-stack.md").read_text()
TYPE = """
name = "sale"
doc = "Something was sold."
partitions = 1

[line]
payload = "json"

[[fields]]
name = "item"
type = "string"

[[fields]]
name = "price"
type = "long"
"""
SOURCE = """
[[source]]
name = "till"
format = "rfc5424"
types = ["sale"]
"""


@pytest.fixture(scope="module", autouse=True)
def image(tmp_path_factory: pytest.TempPathFactory) -> None:
    command = program()
    if command is None:
        pytest.skip(MISSING)
    try:
        with engine():
            built(command, ("etl",), tmp_path_factory.mktemp("build") / "build.log")
    except NoEngine as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With types of a user's own, and a mirror between two clusters."""
    types = tmp_path_factory.mktemp("types")
    (types / "sale.toml").write_text(TYPE)
    (types / "sources.toml").write_text(SOURCE)
    before = containers()
    with stack(types, clusters=2, seconds=START_S) as started:
        assert len(containers() - before) == 1
        yield started
    assert containers() == before


def containers() -> set[str]:
    """Of testcontainers, whoever started them."""
    with engine():
        client = docker.from_env()
        try:
            found = client.containers.list(all=True, filters={"label": "org.testcontainers=true"})
            return {container.id for container in found}
        finally:
            client.close()


def test_what_was_posted_is_in_a_closed_bucket_once_and_so_is_a_line(sales: Stack) -> None:
    posted = sales.post("sale", {"item": "pear", "price": 3}, {"item": "plum", "price": 2})
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    sales.write(
        f"<14>1 {now} till-7 till 1 sale - {json.dumps({'item': 'quince', 'price': 5})}",
        source="till",
    )
    placed = sales.wait_for(posted, CLOSED_S)
    assert [(each.event["item"], each.event["price"]) for each in placed] == [
        ("pear", 3),
        ("plum", 2),
    ]
    [of_line] = sales.wait_until("sale", lambda event: event["item"] == "quince", seconds=CLOSED_S)
    assert of_line.event["host"] == "till-7" and of_line.bucket in sales.closed("sale")
    events = [event for bucket in sales.closed("sale") for event in sales.read("sale", bucket)]
    assert sorted(event["item"] for event in events) == ["pear", "plum", "quince"]


def test_kafka_and_registry_are_reached_by_the_addresses_that_it_names(sales: Stack) -> None:
    topics = AdminClient({"bootstrap.servers": sales.kafka}).list_topics(timeout=30)
    assert len(topics.brokers) == 3 and "events.sale" in topics.topics
    assert {f"{broker.host}:{broker.port}" for broker in topics.brokers.values()} == {
        *sales.kafka.split(",")
    }
    with urllib.request.urlopen(f"{sales.registry_url}/subjects", timeout=30) as answer:
        assert any("sale" in subject for subject in json.load(answer))


def test_a_line_that_is_no_event_is_a_dead_letter_that_a_test_can_see(sales: Stack) -> None:
    sales.write("not of any form", source="till")
    with pytest.raises(Unavailable, match="0 of 1 events of sale"):
        sales.wait_until("sale", lambda event: event["item"] == "nothing", seconds=1)
    counted = sales.run(
        "/opt/hourmark/hourmark",
        "dead-letters",
        "ls",
        "--config",
        "/var/lib/hourmark/run/hourmark.toml",
    )
    assert "not_rfc5424" in counted


def test_an_image_that_is_not_there_is_named_and_not_pulled() -> None:
    with (
        pytest.raises(
            Unavailable, match=r"image hourmark-nowhere:1 does not exist on this machine; build it"
        ),
        stack(image="hourmark-nowhere:1"),
    ):
        pytest.fail("there is none")


def test_types_that_are_wrong_end_the_start_with_their_words(tmp_path: Path) -> None:
    before = containers()
    (tmp_path / "sale.toml").write_text(TYPE.replace('"long"', '"lon"'))
    with (
        pytest.raises(Unavailable, match=r"(?s)has ended; its log ends with.*lon"),
        stack(tmp_path, seconds=START_S),
    ):
        pytest.fail("there is no type lon")
    assert containers() == before


def test_the_example_of_the_documentation_passes_as_it_stands_there(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL)
    assert [name for name, _ in blocks] == ["conftest.py", "test_pages.py"]
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
