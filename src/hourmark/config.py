"""Configuration: one typed tree, read from one TOML file, overridden by the environment.

Precedence: environment (`HOURMARK_SERVICE__PORT=8080`), then the file, then the defaults below, each with its reason.
The file is `--config`, else `$HOURMARK_CONFIG`, else `./hourmark.toml`, else what `hourmark up` wrote for the local stack.
A wrong setting stops the start: the message names the setting, its value and what is allowed. Unknown settings are refused,
so that a typing error cannot become a silent default.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hourmark.errors import ConfigError

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,99}$")]
Port = Annotated[int, Field(ge=0, le=65535)]


class Group(BaseModel):
    """A group of settings: fixed once read, nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaCluster(Group):
    """One Kafka cluster; `properties` are librdkafka's (security and the like), passed on unchanged."""

    bootstrap: str = Field("127.0.0.1:9092", description="host:port, comma separated")
    replication_factor: int = Field(3, ge=1, description="of new topics; 1 only where there is one broker")
    min_insync_replicas: int = Field(2, ge=1, description="an ack means this many; 2 of 3 survives one broker")
    properties: dict[str, str] = {}


class Kafka(Group):
    """The edge cluster takes events from the services, the central one feeds the ETL. They may be one and the same."""

    edge: KafkaCluster = KafkaCluster()
    central: KafkaCluster | None = Field(None, description="absent: one cluster is both, and there is no mirror")
    edge_alias: Name = Field("edge", description="MirrorMaker 2's name of the source; prefix of remote topics")
    max_message_bytes: int = Field(
        8 * 1024 * 1024,
        ge=1 << 20,
        description="one limit along the whole path; above the largest line (4 MiB) and its dead letter",
    )
    retention_hours: int = Field(168, ge=1, description="of event topics: how long HDFS or the ETL may be away")

    @property
    def mirrored(self) -> bool:
        """Whether there are two clusters with a mirror between them."""
        return self.central is not None

    @property
    def central_cluster(self) -> KafkaCluster:
        """The cluster that the ETL reads."""
        return self.central if self.central is not None else self.edge


class Registry(Group):
    """A schema registry with Confluent's API."""

    url: str = "http://127.0.0.1:8081"


class Buckets(Group):
    """Hourly buckets. What else parsing depends on stands beside the event types: `Limits`."""

    bucket_seconds: int = Field(3600, description="length of a bucket; fixed for a root once types were applied")

    @field_validator("bucket_seconds")
    @classmethod
    def _divides_an_hour(cls, value: int) -> int:
        if value < 60 or value % 60 or 3600 % value:
            raise ValueError("allowed: 3600, or whole minutes that divide an hour, for tests (60 is a bucket a minute)")
        return value


class Limits(Group):
    """Of event times: `[limits]` in `types/sources.toml`, so that all who apply types mean the same."""

    future_seconds: int = Field(900, ge=0, description="an event time further ahead of observed_at is a dead letter `future`")
    lateness_seconds: int = Field(7 * 86400, ge=0, description="an event time further back is a dead letter `too_late`")


class Parsing(Limits, Buckets):
    """Goes into every rules revision, so that parsing stays a pure function of the range."""


class Service(Group):
    """The Event Delivery Service."""

    host: str = Field("127.0.0.1", description="there is no authentication yet, so loopback only")
    port: Port = Field(8780, description="0 takes a free one and prints it")
    state_dir: Path = Field(Path("/var/lib/hourmark/service"), description="its identity, which survives restarts")
    range_bytes_max: int = Field(1 << 20, ge=1024, description="inflated; a single longer record is allowed up to line_bytes_max")
    line_bytes_max: int = Field(4 << 20, ge=1024, description="a longer line becomes dead-letter chunks")
    inflight_bytes_max: int = Field(64 << 20, ge=1 << 20, description="memory for requests under way; above it 503")
    delivery_timeout_seconds: float = Field(30.0, gt=0, description="no ack from all in-sync replicas by then: 503")
    report_seconds: float = Field(2.0, gt=0, description="between the service's own reports")

    @field_validator("host")
    @classmethod
    def _loopback_only(cls, value: str) -> str:
        if value not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError("allowed: 127.0.0.1, ::1 or localhost, because there is no authentication yet")
        return value


class TailedSource(Group):
    """Files of one kind on this host. `name` is a source that `hourmark types apply` knows; it decides how lines are parsed."""

    name: Name
    paths: list[str] = Field(min_length=1, description="absolute globs; ** is understood")
    zone: str = Field("UTC", description="IANA time zone of timestamps without one")


class Tailer(Group):
    """The File Tailer."""

    state_dir: Path = Field(Path("/var/lib/hourmark/tailer"), description="host id, checkpoint, unacknowledged ranges")
    service_urls: list[str] = Field(["http://127.0.0.1:8780"], min_length=1, description="tried in turn")
    host_name: str = Field("", description="the envelope's `host`; empty: the machine's name")
    range_bytes: int = Field(512 * 1024, ge=1024, le=1 << 20, description="a range is cut at the last line end before this")
    line_bytes_max: int = Field(4 << 20, ge=1024, description="as the service's")
    scan_seconds: float = Field(0.5, gt=0, description="between looks at the files; half a second is far below a bucket")
    report_seconds: float = Field(2.0, gt=0, description="between host reports; closing waits for one after the hour")
    backoff_max_seconds: float = Field(10.0, gt=0, description="retries never end; this bounds the pause between them")
    sources: list[TailedSource] = []


class Mirror(Group):
    """MirrorMaker 2, run by `hourmark mirror run`."""

    java: str = Field("java", description="Java 17 or 21")
    classpath: str = Field("", description="jars of Kafka's connect-mirror, as java's -cp takes them")
    heap_mb: int = Field(512, ge=128)
    work_dir: Path = Field(Path("/var/lib/hourmark/mirror"), description="generated properties and logs")
    rest_port: Port = Field(8783, description="loopback; exactly-once source support needs it")
    tasks_max: int = Field(2, ge=1)


class Storage(Group):
    """Where staged files and buckets live."""

    root: str = Field("hdfs://127.0.0.1:8020/hourmark", description="hdfs://host:port/path, or file:///path")
    webhdfs: str = Field("http://127.0.0.1:9870", description="the NameNode's HTTP address; used where root is hdfs://")
    user: str = Field("", description="HDFS user; empty: the process's user")
    replication: int = Field(3, ge=1, description="of files written by Hourmark; 1 only where there is one DataNode")

    @field_validator("root")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if not value.startswith(("hdfs://", "file:///")):
            raise ValueError("allowed: hdfs://host:port/path or file:///path")
        return value.rstrip("/")


class Etl(Group):
    """The PySpark job."""

    ledger: str = Field(
        "sqlite:////var/lib/hourmark/ledger.sqlite", description="the only commit point; SQLite: driver on one machine"
    )
    master: str = Field("local[2]", description="Spark master; under spark-submit the submitted one wins")
    spark_jars: list[str] = Field([], description="paths of the Kafka connector's jars; empty under spark-submit --jars")
    spark_conf: dict[str, str] = {}
    scratch_dir: Path = Field(Path("/var/tmp/hourmark-etl"), description="Spark's checkpoint and temporary files; may be lost")  # noqa: S108  # scratch by intent
    trigger_seconds: float = Field(
        10.0, ge=0, description="between micro-batches: ten seconds of delay buy five times fewer, larger files than two"
    )
    tasks: int = Field(2, ge=1, description="of a micro-batch, and so staged files, whatever the number of types")
    batch_records_max: int = Field(
        2_000_000, ge=1, description="of a micro-batch: bounds how long one takes when a backlog is worked off"
    )
    type_batch_bytes_max: int = Field(
        1 << 30, ge=1 << 20, description="of one type's values in a micro-batch: large records must not hold up the other types"
    )
    close_poll_seconds: float = Field(1.0, gt=0, description="between looks at what closing waits for")
    deadline_seconds: float = Field(
        7200.0,
        gt=0,
        description="after an hour's end: what is missing of it then is excused by name, and it closes as timed_out. Two hours: "
        "longer than a restart, a failover or an evening's repair, short enough that one dead host does not stop a day's work",
    )
    target_file_bytes: int = Field(256 << 20, ge=1 << 20, description="of a bucket's files")
    unit_bytes_max: int = Field(
        128 << 20,
        ge=1 << 20,
        le=1 << 30,
        description="of events in a closing task at once: a task's memory is some five times that, whatever a bucket's size",
    )
    staged_keep_seconds: float = Field(
        3600.0, ge=0, description="staged files of closed buckets: an hour in which `audit --ranges` can name ranges"
    )
    index_hours: int = Field(
        192, ge=1, description="how long ids of closed buckets are indexed; a day more than the default allowed lateness"
    )
    index_bytes_max: int = Field(
        64 << 30, ge=0, description="of all id indexes, 16 bytes an event; beyond it late events are looked up in the buckets"
    )
    metrics_port: Port = Field(8784, description="Prometheus' text at /metrics; 0: none. A port taken is said, not fatal")
    metrics_host: str = Field("127.0.0.1", description="loopback, because there is no authentication")


class Types(Group):
    """Where the declarations of event types and sources are."""

    dir: Path = Field(Path("types"), description="*.toml: event types, and sources.toml")


class Config(BaseSettings):
    """The whole tree. Each group is owned by the room that reads it; `kafka`, `parsing`, `storage` are shared."""

    model_config = SettingsConfigDict(
        env_prefix="HOURMARK_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    kafka: Kafka = Kafka()
    registry: Registry = Registry()
    parsing: Buckets = Buckets()
    service: Service = Service()
    tailer: Tailer = Tailer()
    mirror: Mirror = Mirror()
    storage: Storage = Storage()
    etl: Etl = Etl()
    types: Types = Types()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file (which arrives as init arguments)."""
        return env_settings, init_settings


def load_config(path: Path | None = None) -> Config:
    """Read and check the configuration; ConfigError names the wrong setting.

    `path` None looks where the module's docstring says; no file at all means the defaults and the environment.
    """
    file = path or default_path()
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except OSError as error:
            raise ConfigError(f"cannot read the configuration {file}: {error.strerror}; name another with --config") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file} is no valid TOML: {error}") from error
    try:
        return Config(**values)
    except ValidationError as error:
        raise ConfigError(_describe(error, file)) from error


def default_path() -> Path | None:
    """The configuration file used when none is named, or None."""
    if named := os.environ.get("HOURMARK_CONFIG"):
        return Path(named)
    candidates = (Path("hourmark.toml"), home() / "stack" / "hourmark.toml")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def home() -> Path:
    """Where the local stack keeps its state: `$HOURMARK_HOME`, else `.hourmark` in the working directory."""
    return Path(os.environ.get("HOURMARK_HOME", ".hourmark")).absolute()


def _describe(error: ValidationError, file: Path | None) -> str:
    origin = f"{file} (or a HOURMARK_… variable)" if file else "the environment (HOURMARK_…)"
    lines = []
    for problem in error.errors(include_url=False):
        setting = ".".join(str(part) for part in problem["loc"])
        value = "" if problem["type"] == "missing" else f" = {_hidden(setting, problem['input'])}"
        lines.append(f"  {setting}{value}: {problem['msg']}")
    return f"wrong settings in {origin}:\n" + "\n".join(lines)


def _hidden(setting: str, value: object) -> str:
    secret = any(word in setting.lower() for word in ("password", "secret", "token", "jaas", "properties"))
    return "(hidden)" if secret else repr(value)[:200]


def _callback(context: click.Context, _: click.Parameter, path: Path | None) -> Config:
    if context.resilient_parsing:
        return Config.model_construct()
    return load_config(path)


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")

# Every command that reads settings takes this option; the function receives a checked `Config` as `config`.
config_option = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_callback,
    help="Configuration file (TOML). Default: $HOURMARK_CONFIG, ./hourmark.toml, or the local stack's.",
)
