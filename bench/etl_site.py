"""Environment of the ETL's benchmarks: the local stack's central cluster with new topics and
folders.
"""

from __future__ import annotations

import shutil
import tempfile
import tomllib
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.etl_traffic import benchmark_type
from hourmark.config.loading import Config, load_config, stack_state_dir
from hourmark.config.toml_text import render_toml
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.topic_names import events_topic
from hourmark.records.hours import Hour
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, Source
from hourmark_declare.apply import apply_declarations
from hourmark_declare.servers import open_targets
from hourmark_etl.storage import open_storage
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.state import load_state

BUCKET_SECONDS = 60


class BenchSite:
    """Event types, topics and folders of one benchmark run, which are removed at its end."""

    def __init__(self, home_folder: Path | None = None, *, local: bool = False) -> None:
        folder = home_folder or stack_state_dir()
        stack = (
            LocalStack.load(folder)
            if load_state(folder)
            else LocalStack.load_or_create(folder, mirror=False)
        )
        stack.up()
        self.stack_config = stack.layout.config_file
        self.name = f"bench-{uuid.uuid4().hex[:6]}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"hourmark-{self.name}-"))
        self.file = self.folder / "site.toml"
        self.file.write_text(
            render_toml(
                self._settings(tomllib.loads(stack.layout.config_file.read_text()), local=local)
            )
        )
        self.config: Config = load_config(self.file)
        self._types: list[str] = []
        self.schema_ids: dict[str, int] = {}  # of all types, as the registry gave them

    def new_types(
        self, label: str, count: int, *, partitions: int, first_hour: Hour, payload: int = 0
    ) -> tuple[tuple[str, ...], dict[str, int]]:
        """Register types, create their topics, and return their names and schema IDs.

        The ledgers of the contenders do not contain the types yet.
        """
        names = tuple(f"{self.name}-{label}-{n}" for n in range(count))
        types = [benchmark_type(name, partitions, payload) for name in names]
        self._types += names
        declared_now = Declarations([*types, DEAD_LETTERS], [Source(name="app", types=list(names))])
        with open_targets(self.config, _silently) as outside:
            # Contenders' ledgers, each of its own, have published revisions meanwhile.
            applied = apply_declarations(
                outside, declared_now, first_hour, may_remove=True, may_refuse=True, may_adopt=True
            )
        self.schema_ids |= applied.schema_ids
        return names, applied.schema_ids

    def root(self, label: str) -> str:
        """Return the URL of a new storage root."""
        return f"{self.config.storage.root}/{self.name}/{label}"

    def ends(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the end offsets of the types' topics, by topic and partition, in the form of
        Spark's options.
        """
        cluster = Cluster(self.config.kafka.edge, "edge")
        infos = cluster.topics([events_topic(name) for name in names])
        ends = cluster.ends([Partition(i.name, p) for i in infos.values() for p in i.partitions])
        return {
            i.name: {str(p): ends[Partition(i.name, p)] for p in i.partitions}
            for i in infos.values()
        }

    def remove_types(self, names: Sequence[str]) -> None:
        """Delete the topics of the types `names`."""
        admin = Cluster(self.config.kafka.edge, "edge").admin
        for future in (
            admin.delete_topics(
                [events_topic(name) for name in names], operation_timeout=30
            ).values()
            if names
            else ()
        ):
            future.result(60)
        self._types = [t for t in self._types if t not in names]

    def __enter__(self) -> BenchSite:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove_types(list(self._types))
        open_storage(self.config.storage).delete(self.name)
        if error is None:
            shutil.rmtree(
                self.folder, ignore_errors=True
            )  # the logs stay where something went wrong

    def _settings(self, stack: dict[str, Any], *, local: bool) -> dict[str, Any]:
        # The settings of the stack, with its central cluster as the only one.
        kafka = {**stack["kafka"], "edge": stack["kafka"]["central"]}
        del kafka["central"]
        root = f"file://{self.folder}/root" if local else f"{stack['storage']['root']}-bench"
        return {
            **stack,
            "kafka": kafka,
            "storage": {**stack["storage"], "root": root},
            "etl": {**stack["etl"], "ledger": f"sqlite:///{self.folder}/unused.sqlite"},
            "parsing": {"bucket_seconds": BUCKET_SECONDS},
        }


def _silently(_: str) -> None:
    pass  # the benchmark reports its own progress
