"""Where the ETL's benchmarks run: the local stack's central cluster as the only one, with topics
and folders of their own.
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

from bench.etl_traffic import declared
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


class Site:
    """Makes types, and removes at the end what was made: topics, scratch, whatever stands below its
    storage root.
    """

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
        """Register types and make their topics; their names, and schema ids.

        No ledger of a contender hears of them yet.
        """
        names = tuple(f"{self.name}-{label}-{n}" for n in range(count))
        types = [declared(name, partitions, payload) for name in names]
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
        """URL of a storage root of its own."""
        return f"{self.config.storage.root}/{self.name}/{label}"

    def ends(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """By topic of these types, by partition: how far it is filled, as Spark's
        options take it.
        """
        cluster = Cluster(self.config.kafka.edge, "edge")
        infos = cluster.topics([events_topic(name) for name in names])
        ends = cluster.ends([Partition(i.name, p) for i in infos.values() for p in i.partitions])
        return {
            i.name: {str(p): ends[Partition(i.name, p)] for p in i.partitions}
            for i in infos.values()
        }

    def remove_types(self, names: Sequence[str]) -> None:
        """Delete their topics."""
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

    def __enter__(self) -> Site:
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
        """The stack's, with its central cluster as the only one."""
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
    """Progress is the benchmark's own."""
