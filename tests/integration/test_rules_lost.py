"""Rules and schemas on a real broker and registry: compacted at once, lost, recreated, restored
older. On a stack of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.service.live import APP, Serving
from tests.support.waiting import wait_for

from hourmark.avro.framing import fingerprint
from hourmark.avro.registry import SchemaRegistry
from hourmark.cli import root
from hourmark.config.groups import RegistrySettings
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import Finding, UsageError
from hourmark.kafka.clients import TIMEOUT_S, Cluster, Partition
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.topic_names import AUDIT, HOSTS, TYPES
from hourmark.records.ranges import ByteRange
from hourmark.rules.rules_topic import publish_rules, read_rules
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.schemas import known_schemas
from hourmark_infra.stack import LocalStack

pytestmark = pytest.mark.stack

SOURCES = f'[[source]]\nname = "{APP.name}"\ntypes = [{{types}}]\n'
CLICK = 'name = "click"\nfields = [{{ name = "n", type = "{n}" }}]\n'
VIEW = 'name = "view"\nfields = [{ name = "n", type = "long" }]\n'


class Site:
    """Brokers, a registry, a ledger, declarations, and a service."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        (folder / "types").mkdir()
        stack_config = load_config(stack.layout.config_file)
        settings = {
            "kafka": stack_config.kafka.model_dump(exclude_none=True),
            "registry": stack_config.registry.model_dump(exclude_none=True),
            "parsing": {"bucket_seconds": 60},
            "etl": {"ledger": f"sqlite:///{folder}/ledger.sqlite"},
            "types": {"dir": str(folder / "types")},
        }
        self.file = folder / "hourmark.toml"
        self.file.write_text(render_toml(settings))
        self.config: Config = load_config(self.file)
        self.serving = Serving(config_file=self.file, folder=folder, revision="")
        self.declare(click=CLICK.format(n="int"))
        self.first = self.applied()
        self.declare(view=VIEW)
        self.second = self.applied()

    def serve(self) -> None:
        """Start the service, unless it runs."""
        if self.serving.process is None:
            self.serving.start()

    def declare(self, **types: str) -> None:
        """These types, in files."""
        for name, text in types.items():
            (self.folder / "types" / f"{name}.toml").write_text(text)
        names = ", ".join(
            f'"{file.stem}"'
            for file in sorted((self.folder / "types").glob("*.toml"))
            if file.stem != "sources"
        )
        (self.folder / "types" / "sources.toml").write_text(SOURCES.format(types=names))

    def types(self, *words: str) -> Result:
        """`hourmark types …` with this site's configuration."""
        return CliRunner().invoke(root, ["types", *words, "--config", str(self.file)])

    def done(self, word: str) -> dict[str, Any]:
        """What the command did; it must end well."""
        result = self.types(word, "--json")
        assert result.exit_code == 0, result.output
        done: dict[str, Any] = json.loads(result.stdout)
        return done

    def applied(self) -> str:
        """Apply, and the revision."""
        self.serving.revision = self.done("apply")["revision"]
        return self.serving.revision

    def repaired(self) -> dict[str, Any]:
        """Repair, and what it did."""
        return self.done("repair")

    def post(self, sent: ByteRange, line: bytes) -> int:
        """A range of one line; the status of the answer."""
        return self.serving.post(sent, line).status_code

    def lose_registry(self, copy: Path | None = None) -> None:
        """It is recreated; or restored from a copy."""
        self.stack.stop("registry")
        shutil.rmtree(self.registry_data)
        if copy is not None:
            shutil.copytree(copy, self.registry_data)
        self.stack.start("registry")
        self.stack.wait_ready("registry")

    @property
    def registry_data(self) -> Path:
        """Where the registry keeps its schemas."""
        return self.stack.server("registry").data

    def schemas(self) -> SchemaRegistry:
        """The registry, as Hourmark asks it."""
        return SchemaRegistry(RegistrySettings(url=self.config.registry.url))

    def ids_agree(self) -> bool:
        """Whether the registry gives every id of the ledger for what the ledger knows it as."""
        with Database(self.config.etl.ledger) as database:
            known = known_schemas(database)
        with contextlib.closing(self.schemas()) as registry:
            given = {schema_id: registry.schema(schema_id) for schema_id in known}
        return (
            all(s is not None and fingerprint(s) == known[n].fingerprint for n, s in given.items())
            and len(known) > 1
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("rules-lost")
    stack = LocalStack.load_or_create(folder / "home", mirror=False)
    try:
        stack.up()
        made = Site(stack, folder)
        try:
            yield made
        finally:
            if made.serving.process is not None:
                made.serving.end()
    finally:
        stack.down()
        shutil.rmtree(stack.layout.data, ignore_errors=True)


def body(number: int) -> bytes:
    """A line of now."""
    return (
        f"<13>1 {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} - a - click - "
        f'{{"n":{number}}}\n'
    ).encode()


def compact(config: Config) -> None:
    """Let the broker compact the topic: small segments, and nothing waits.

    Returns when no key stands twice.
    """
    cluster = Cluster(config.kafka.edge, "edge")
    entries = {
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.0",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "0",
    }
    wanted = ConfigResource(
        ResourceType.TOPIC,
        TYPES,
        incremental_configs=[
            ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET)
            for k, v in entries.items()
        ],
    )
    for future in cluster.admin.incremental_alter_configs([wanted]).values():
        future.result(TIMEOUT_S)

    def compacted() -> bool:
        publish_rules(
            config.kafka.edge, [("type/none/0", "{}")], 1 << 20
        )  # the segment that is written to is never compacted
        keys = [
            key
            for key, _ in read_topic(config.kafka.edge, TYPES, cluster_name="edge")
            if key != b"type/none/0"
        ]
        return len(keys) == len(set(keys))

    wait_for(compacted, "the broker compacted the topic of rules", 120)


@pytest.mark.long
def test_all_revisions_outlive_a_topic_that_is_compacted_at_once(site: Site) -> None:
    first, second = site.first, site.second
    records = read_rules(site.config.kafka.edge).records
    for _ in range(
        2
    ):  # as whoever publishes again does; revisions come to stand before their types
        publish_rules(
            site.config.kafka.edge,
            sorted(records.items(), key=lambda record: record[0].startswith("type/")),
            1 << 20,
        )
    compact(site.config)
    read = [
        key.decode()
        for key, _ in read_topic(site.config.kafka.edge, TYPES, cluster_name="edge")
        if key is not None
    ]
    assert read.index(f"rules/{second}") < min(
        n for n, key in enumerate(read) if key.startswith("type/view/")
    )
    book = read_rules(site.config.kafka.edge)
    assert {r.id for r in book.revisions} == {first, second}
    site.serve()
    for revision in (first, second):
        site.serving.revision = revision
        line = body(1)
        answer = site.serving.post(site.serving.range_of(line), line)
        assert (answer.status_code, answer.json()["events"]) == (200, 1), answer.text
    site.serving.revision = second


def test_a_lost_topic_is_noticed_by_a_running_service_and_written_again_with_the_same_names(
    site: Site,
) -> None:
    second = site.second
    site.serving.revision = second
    site.serve()
    line = body(2)
    sent = site.serving.range_of(line)
    assert site.post(sent, line) == 200
    cluster = Cluster(site.config.kafka.edge, "edge")
    for future in cluster.admin.delete_topics([TYPES]).values():
        future.result(TIMEOUT_S)
    wait_for(
        lambda: "hourmark types repair" in site.serving.get("/readyz").text,
        "the service says what was lost",
        60,
    )
    assert site.serving.get("/readyz").status_code == 503
    before = read_rules(site.config.kafka.edge).records
    assert before == {}
    done = site.repaired()
    assert done["revision"] == second and done["published"] and not done["registered"]
    wait_for(site.serving.is_ready, "the service has its rules again", 60)
    assert site.post(sent, line) == 200
    site.serving.end()
    site.serving.start()
    assert site.post(sent, line) == 200
    assert cluster.ends([Partition(TYPES, 0)])[Partition(TYPES, 0)] > 0


def test_a_registry_recreated_gives_no_id_a_second_meaning_and_gets_its_ids_again(
    site: Site,
) -> None:
    site.declare(click=CLICK.format(n="long"))
    site.lose_registry()
    refused = site.types("apply")
    assert isinstance(refused.exception, UsageError)
    assert "as id" in str(refused.exception) and "types repair" in str(refused.exception)
    done = site.repaired()
    assert set(done["registered"].values()) == {"click", "view", "dead-letters", AUDIT, HOSTS}
    assert site.ids_agree()
    third = site.applied()
    assert third.startswith("3-")
    assert site.ids_agree()


def test_a_registry_restored_from_an_older_copy_is_caught_up(site: Site, tmp_path: Path) -> None:
    site.stack.stop("registry")
    shutil.copytree(site.registry_data, tmp_path / "copy")
    site.stack.start("registry")
    site.stack.wait_ready("registry")
    site.declare(extra='name = "extra"\nfields = []\n')
    site.applied()
    site.lose_registry(tmp_path / "copy")
    site.declare(other='name = "other"\nfields = []\n')
    assert isinstance(site.types("apply").exception, UsageError)
    assert list(site.repaired()["registered"].values()) == ["extra"]
    assert site.ids_agree()
    site.applied()
    assert site.ids_agree()


@pytest.mark.long
def test_a_registry_that_gives_our_ids_to_others_is_left_alone(site: Site) -> None:
    site.lose_registry()
    with contextlib.closing(site.schemas()) as registry:
        registry.register("elsewhere", {"type": "record", "name": "elsewhere", "fields": []})
    refused = site.types("repair")
    assert isinstance(refused.exception, Finding)
    assert re.search("elsewhere.*Nothing was registered", str(refused.exception), re.DOTALL)
    site.lose_registry()
    site.repaired()
    assert site.ids_agree()


def test_the_registry_refuses_what_cannot_read_every_version(site: Site) -> None:
    """v1 has a number, v2 nothing, v3 a text of the same name: v3 reads v2, and not v1."""
    kinds = [[{"name": "x", "type": "long"}], [], [{"name": "x", "type": "string", "default": ""}]]
    one, two, three = ({"type": "record", "name": "v", "fields": fields} for fields in kinds)
    with contextlib.closing(site.schemas()) as registry:
        registry.register("transitive", one)
        registry.register("transitive", two)
        with pytest.raises(UsageError, match="not backward compatible with every schema"):
            registry.register("transitive", three)
        assert registry.find("transitive", two) is not None
        assert registry.find("transitive", three) is None
