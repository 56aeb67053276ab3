"""The groups of settings, with their defaults and the reasons for them.

`loading` combines them into one tree. The text below each setting is its description in
docs/configuration.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hourmark.config.redaction import add_secrets_of, redact_setting

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,99}$")]
Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]

LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")


class FrozenModel(BaseModel):
    """Base of immutable pydantic models that reject unknown fields.

    The string below a field is its description. When an instance is unpickled in another process,
    such as a worker of the service or a Spark executor, its secrets are registered for redaction
    there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        add_secrets_of(
            self.model_dump()
        )  # in another process: a worker of the service, an executor of Spark

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        return (
            (name, redact_setting(value, name or "")) for name, value in super().__repr_args__()
        )


class KafkaCluster(FrozenModel):
    """Settings of one Kafka cluster."""

    bootstrap: str = "127.0.0.1:9092"
    """host:port, comma separated"""
    replication_factor: Positive = 3
    """of new topics; 1 only where there is one broker"""
    min_insync_replicas: Positive = 2
    """an ack means this many; 2 of 3 survives one broker"""
    properties: dict[str, str] = {}
    """security and the like, by librdkafka's names ("security.protocol"); those of security go to the mirror too"""


class KafkaSettings(FrozenModel):
    """Settings of the Kafka clusters.

    The edge cluster receives events from the delivery services, and the central cluster feeds the
    ETL. One cluster may serve as both.
    """

    edge: KafkaCluster = KafkaCluster()
    """takes events from the delivery services"""
    central: KafkaCluster | None = None
    """feeds the ETL; absent: one cluster is both, and there is no mirror"""
    edge_alias: Name = "edge"
    """MirrorMaker 2's name of the source; prefix of remote topics"""
    further_edges: dict[Name, KafkaCluster] = {}
    """by alias, the edges of further sites whose events the same ledger closes: see docs/mirror.md; for services no matter"""
    max_message_bytes: int = Field(8 * 1024 * 1024, ge=1 << 20)
    """one limit along the whole path; above the largest line (4 MiB) and its dead letter"""
    retention_hours: Positive = 168
    """of event topics: how long HDFS or the ETL may be away"""

    @model_validator(mode="after")
    def _sites_apart(self) -> Self:
        if self.further_edges and self.central is None:
            raise ValueError("further_edges need kafka.central, to which all sites are mirrored")
        if self.edge_alias in self.further_edges:
            raise ValueError(
                f"further_edges.{self.edge_alias} has the alias of kafka.edge; each site "
                "has its own"
            )
        return self

    @property
    def sites(self) -> tuple[KafkaSettings, ...]:
        """Settings for each site as if it were the only one; the site of `edge` comes first."""
        return tuple(
            self.model_copy(update={"edge": edge, "edge_alias": alias, "further_edges": {}})
            for alias, edge in ((self.edge_alias, self.edge), *self.further_edges.items())
        )

    @property
    def mirrored(self) -> bool:
        """Whether edge and central are separate clusters with a mirror between them."""
        return self.central is not None

    @property
    def central_cluster(self) -> KafkaCluster:
        """The cluster that the ETL reads; the edge cluster if there is no mirror."""
        return self.central if self.central is not None else self.edge


class RegistrySettings(FrozenModel):
    """Settings of a schema registry with Confluent's API."""

    url: str = "http://127.0.0.1:8081"
    """its API's address; https://user:password@host where it wants that"""
    ca: Path | None = None
    """PEM: the CAs of its certificate, for https://; absent: those that come with Python's certifi"""
    certificate: Path | None = None
    """PEM: the certificate shown to a registry that asks for one"""
    key: Path | None = None
    """PEM: its private key; absent: in the same file"""


class BucketSettings(FrozenModel):
    """Settings of hourly buckets.

    Other settings that parsing depends on are in `types/sources.toml`, in the table `[limits]`.
    """

    bucket_seconds: int = 3600
    """length of a bucket: 3600, an hour, or for tests whole minutes that divide an hour (60: a bucket a minute). It goes into
    every rules revision, so once types were applied it is fixed for a root and its clusters: set it alike for `hourmark
    types`, `etl`, `ledger`, `bucket` and `audit`; services take it from the revision
    """

    @field_validator("bucket_seconds")
    @classmethod
    def _divides_an_hour(cls, value: int) -> int:
        if value < 60 or value % 60 or 3600 % value:
            raise ValueError(
                "allowed: 3600, or whole minutes that divide an hour, for tests (60 is a "
                "bucket a minute)"
            )
        return value


class EventTimeLimits(FrozenModel):
    """Limits on how far an event's time may lie from the time at which it was observed.

    They are declared in `types/sources.toml`, so that everyone who applies types uses the same
    values.
    """

    future_seconds: int = Field(900, ge=0)
    """an event time further ahead of observed_at is a dead letter `future`"""
    lateness_seconds: int = Field(7 * 86400, ge=0)
    """an event time further back is a dead letter `too_late`"""


class ParsingSettings(EventTimeLimits, BucketSettings):
    """The settings that are part of every rules revision, because parsing depends on them."""


class ServiceTls(FrozenModel):
    """TLS settings of the Event Delivery Service, which requires TLS 1.2 or newer.

    Changed files are reloaded automatically, and immediately on SIGHUP.
    """

    certificate: Path | None = None
    """PEM: its certificate and those between it and the CA; absent: no TLS"""
    key: Path | None = None
    """PEM: the certificate's private key, without a passphrase; absent: in the same file"""
    client_ca: Path | None = None
    """PEM: the CAs of clients' certificates; absent: none are asked for"""
    client_required: bool = True
    """whether a client without a certificate is refused, where client_ca is given"""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.certificate is None and (self.key is not None or self.client_ca is not None):
            raise ValueError("key and client_ca need a certificate beside them")
        return self


class ServiceSettings(FrozenModel):
    """Settings of the Event Delivery Service."""

    host: str = "127.0.0.1"
    """where it listens; beyond this machine (not 127.0.0.1, ::1 or localhost) only with a certificate, and with tokens_required
    or clients' certificates required
    """
    port: Port = 8780
    """0 takes a free one and prints it"""
    state_dir: Path = Path("/var/lib/hourmark/service")
    """its identity, which survives restarts"""
    range_bytes_max: int = Field(1 << 20, ge=1024)
    """inflated; a single longer record is allowed up to line_bytes_max"""
    line_bytes_max: int = Field(4 << 20, ge=1024)
    """a longer line becomes dead-letter chunks"""
    workers: int = Field(1, ge=1, le=64)
    """processes that share the port, about one a core; more than one have a supervisor, and share out the limits below"""
    inflight_bytes_max: int = Field(64 << 20, ge=1 << 20)
    """memory for requests under way, of all workers; above it 503. Beside it connections hold up to 320 KiB each: operations"""
    connections_max: int = Field(2048, ge=1)
    """open at once, from the TLS handshake on, and 256 files beside them; for one more, the one goes whose client is nearest
    to its time limit
    """
    header_bytes_max: int = Field(32 << 10, ge=1024)
    """of one request; a path of 4096 bytes, percent-encoded, takes 12 KiB. Over it 431"""
    headers_max: int = Field(100, ge=20)
    """of one request; a range has 12 of its own, proxies add theirs. Over it 431"""
    header_seconds: Seconds = 10.0
    """until the headers are whole, else 408; clients send them in one piece. A TLS handshake has as long before"""
    body_seconds: Seconds = 30.0
    """until the body is whole, else 408; while memory is short, one that brings no 64 KiB a second goes first"""
    idle_seconds: Seconds = 75.0
    """between two requests, or for an answer to be read; longer than clients keep a connection, so that they close first"""
    delivery_timeout_seconds: Seconds = 30.0
    """no ack from all in-sync replicas by then: 503"""
    report_seconds: Seconds = 2.0
    """between the service's own reports"""
    tokens_required: bool = False
    """whether requests need a token of `hourmark token create`; all but /healthz and /readyz"""
    tls: ServiceTls = ServiceTls()
    """TLS, and clients' certificates"""

    @model_validator(mode="after")
    def _closed_beyond_this_machine(self) -> Self:
        if self.host in LOOPBACK_HOSTS:
            return self
        missing = [] if self.tls.certificate is not None else ["service.tls.certificate"]
        if not (
            self.tokens_required or (self.tls.client_ca is not None and self.tls.client_required)
        ):
            missing.append(
                "service.tokens_required = true, or service.tls.client_ca with "
                "service.tls.client_required"
            )
        if missing:
            raise ValueError(
                f"service.host = {self.host!r} lets other machines in, which needs "
                f"{'; and '.join(missing)}. "
                f"Without: {', '.join(LOOPBACK_HOSTS)}"
            )
        return self


class TailedSource(FrozenModel):
    """Settings of one source of the File Tailer: a set of files or a receiver.

    `name` must be a source that `hourmark types apply` has published; it determines how lines are
    parsed.
    """

    name: Name
    """the source, as types/sources.toml declares it"""
    paths: list[str] = []
    """absolute globs; ** is understood"""
    exclude: list[str] = []
    """globs of files that do not begin to be followed: absolute, or of names, as `*.debug`; a file known before is finished"""
    read_from: str = "start"
    """of files that are there at the first look at this source: `start`, `end`, or a time, as `2026-11-01T00:00:00Z`: those
    not written since are passed over; later files begin at their start. Of `journald`: entries from then on"""
    ignore_older_seconds: Seconds | None = None
    """files not written for so long do not begin to be followed until they are; longer than this tailer is ever down"""
    input: str | None = None
    """in place of paths, what is received: `stdin`, `journald`, `syslog+tcp://127.0.0.1:5514`, `syslog+tls://…`, `syslog+udp://…`"""
    zone: str = "UTC"
    """IANA time zone of timestamps without one"""
    format: Literal["plain", "cri"] = "plain"
    """cri: container logs of Kubernetes; partial lines are joined, and pod, namespace and container are fields, by the path"""
    record_start: str | None = Field(None, min_length=1, max_length=1000)
    """RE2, for records of more than one line: what is found in the first line of each, as `^\\d{4}-`; other lines belong to it"""
    flush_seconds: Seconds = 5
    """of record_start and cri: after so long without growth the last record is sent; what comes then is one of its own"""
    fields: dict[str, str] = {}
    """said of every event, as `{ team = "pay" }`: fields of its type of that name have it where the record says nothing"""


class TailerTls(FrozenModel):
    """TLS settings of the File Tailer for services with https:// URLs.

    Changed files are reloaded automatically.
    """

    ca: Path | None = None
    """PEM: the CAs of services' certificates; absent: those of the machine"""
    certificate: Path | None = None
    """PEM: the certificate shown to services that ask for one"""
    key: Path | None = None
    """PEM: its private key, without a passphrase; absent: in the same file"""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.certificate is None and self.key is not None:
            raise ValueError("key needs a certificate beside it")
        return self


class SpoolSettings(FrozenModel):
    """Settings of the spool, which stores received input on disk until it is acknowledged."""

    bytes_max: int = Field(1 << 30, ge=1 << 16)
    """on disk, for each source; past it senders over connections wait, and datagrams are lost and counted"""


class SyslogTls(FrozenModel):
    """TLS settings of the syslog receiver, which requires TLS 1.2 or newer.

    Changed files are reloaded automatically.
    """

    certificate: Path | None = None
    """PEM: its certificate and those between it and the CA; `syslog+tls://` needs it"""
    key: Path | None = None
    """PEM: the certificate's private key, without a passphrase; absent: in the same file"""
    client_ca: Path | None = None
    """PEM: the CAs of senders' certificates, without which a sender is refused; absent: none are asked for"""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.certificate is None and (self.key is not None or self.client_ca is not None):
            raise ValueError("key and client_ca need a certificate beside them")
        return self


class SyslogSettings(FrozenModel):
    """Settings of the syslog receiver of the File Tailer."""

    beyond_loopback: bool = False
    """whether `input` may listen where other machines reach it; there is no authentication but TLS with client_ca"""
    connections_max: int = Field(256, ge=1, le=4096)
    """open at once, of each source; one more is closed at once"""
    message_bytes_max: int = Field(64 << 10, ge=480, le=4 << 20)
    """a longer message is passed over, and counted as lost"""
    idle_seconds: Seconds = 3600.0
    """a connection that says nothing for so long is closed"""
    tls: SyslogTls = SyslogTls()
    """certificates, for `syslog+tls://`"""


class TailerSettings(FrozenModel):
    """Settings of the File Tailer."""

    state_dir: Path = Path("/var/lib/hourmark/tailer")
    """host id, checkpoint, unacknowledged ranges"""
    second_state_dir: Path | None = None
    """a folder on another disk: host id and truncations, so that `--reread` makes the same ids though `state_dir` is gone"""
    service_urls: list[str] = Field(["http://127.0.0.1:8780"], min_length=1)
    """ranges are spread evenly over those that answer; of a name each of its addresses is one"""
    token_file: Path | None = None
    """holds the token of `hourmark token create`, for services that require one; read again when it changes"""
    tls: TailerTls = TailerTls()
    """certificates, for services of https://"""
    host_name: str = ""
    """the envelope's `host`; empty: the machine's name"""
    range_bytes: int = Field(1 << 20, ge=1024, le=1 << 20)
    """a range is cut at the last line end before this; larger ones cost less CPU and more memory"""
    range_bytes_min: int = Field(64 * 1024, ge=1024, le=1 << 20)
    """while services are slow (5 s for an answer) or refuse larger ones, ranges are halved as far as this"""
    ranges_in_flight: int = Field(4, ge=1, le=64)
    """of one file that has more to send, at most; over all files 12 at a time. Each takes memory, and room in `state_dir`"""
    line_bytes_max: int = Field(4 << 20, ge=1024)
    """as the service's"""
    scan_seconds: Seconds = 0.5
    """between looks at the files; half a second is far below a bucket"""
    report_seconds: Seconds = 2.0
    """between host reports; closing waits for one after the hour"""
    backoff_max_seconds: Seconds = 10.0
    """retries never end; this bounds the pause between them"""
    metrics_port: Port = 0
    """Prometheus' text at /metrics, and /healthz; 0: none. A port taken is said, not fatal"""
    metrics_host: str = "127.0.0.1"
    """loopback, because there is no authentication"""
    unwell_seconds: Seconds = 60.0
    """so long without a look at the files, a report or an acknowledged range that is due, and /healthz says 503"""
    spool: SpoolSettings = SpoolSettings()
    """of sources that receive"""
    syslog: SyslogSettings = SyslogSettings()
    """of sources whose input is syslog"""
    sources: list[TailedSource] = []
    """what is tailed: tables `[[tailer.sources]]`, see below"""


class StorageSettings(FrozenModel):
    """Settings of the storage that contains staged files and buckets."""

    root: str = "hdfs://127.0.0.1:8020/hourmark"
    """hdfs://host:port/path, or file:///path"""
    webhdfs: str = "http://127.0.0.1:9870"
    """the NameNode's HTTP address; used where root is hdfs://"""
    user: str = ""
    """HDFS user; empty: the process's user"""
    replication: Positive = 3
    """of files written by Hourmark; 1 only where there is one DataNode"""

    @field_validator("root")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if not value.startswith(("hdfs://", "file:///")):
            raise ValueError("allowed: hdfs://host:port/path or file:///path")
        return value.rstrip("/")


class EtlSettings(FrozenModel):
    """Settings of the PySpark job that stages events and closes buckets."""

    ledger: str = "sqlite:////var/lib/hourmark/ledger.sqlite"
    """the only commit point: sqlite:////absolute/path (driver on one machine) or postgresql://user:password@host/database"""
    master: str = "local[2]"
    """Spark master; under spark-submit the submitted one wins"""
    spark_conf: dict[str, str] = {}
    """further settings of Spark, by its names ("spark.driver.memory")"""
    scratch_dir: Path = Path("/var/tmp/hourmark-etl")  # noqa: S108  # scratch by intent
    """Spark's checkpoint and temporary files; may be lost"""
    trigger_seconds: float = Field(10.0, ge=0)
    """between micro-batches: ten seconds of delay buy five times fewer, larger files than two"""
    tasks: Positive = 2
    """of a micro-batch, and so staged files, whatever the number of types"""
    batch_records_max: Positive = 2_000_000
    """of a micro-batch: bounds how long one takes when a backlog is worked off"""
    type_batch_bytes_max: int = Field(1 << 30, ge=1 << 20)
    """of one type's values in a micro-batch: large records must not hold up the other types"""
    close_poll_seconds: Seconds = 1.0
    """between looks at what closing waits for"""
    deadline_seconds: Seconds = 7200.0
    """after an hour's end: what is missing of it then is waived by name, and it closes as timed_out. Two hours: longer than a
    restart, a failover or an evening's repair, short enough that one dead host does not stop a day's work
    """
    target_file_bytes: int = Field(256 << 20, ge=1 << 20)
    """of a bucket's files"""
    unit_bytes_max: int = Field(128 << 20, ge=1 << 20, le=1 << 30)
    """of events in a closing task at once: a task's memory is some five times that, whatever a bucket's size"""
    staged_keep_seconds: float = Field(3600.0, ge=0)
    """staged files of closed buckets: an hour in which `audit --ranges` can name ranges"""
    index_hours: Positive = 192
    """how long ids of closed buckets are indexed; a day more than the default allowed lateness"""
    index_bytes_max: int = Field(64 << 30, ge=0)
    """of all id indexes, 16 bytes an event; beyond it late events are looked up in the buckets"""
    metrics_port: Port = 8784
    """Prometheus' text at /metrics; 0: none. A port taken is said, not fatal"""
    metrics_host: str = "127.0.0.1"
    """loopback, because there is no authentication"""


class TypesSettings(FrozenModel):
    """Settings of the folder that contains the declarations of event types and sources."""

    dir: Path = Path("types")
    """*.toml: event types, and sources.toml"""
    first_hour: str | None = None
    """where the chains of buckets begin of types that are applied first of all, as `2026-11-21T05`, and of those that `hourmark
    run` applies while that is at most 300 buckets ago; others begin when they are applied, as all do where this is absent"""


class MirrorSettings(FrozenModel):
    """Settings of MirrorMaker 2 as run by `hourmark mirror run`."""

    java: str = "java"
    """Java 17 or 21"""
    classpath: str = ""
    """jars of Kafka's connect-mirror, as java's -cp takes them"""
    heap_mb: int = Field(512, ge=128)
    """of its Java process; 512 does for a local stack"""
    work_dir: Path = Path("/var/lib/hourmark/mirror")
    """generated properties and logs"""
    rest_port: Port = 8783
    """exactly-once source support needs it"""
    rest_host: str = "127.0.0.1"
    """where its REST listens, without TLS; of several workers of one mirror each a name by which the others reach this one"""
    tasks_max: Positive = 2
    """copying tasks at once, for each connector"""
    workers: int = Field(0, ge=0)
    """workers that share this mirror, on all hosts; fewer of them are an alarm of `hourmark mirror watch`. 0: nobody counts"""
    retention_alarm_hours: float = Field(24.0, gt=0)
    """so long before the edge's retention reaches what is not copied, it is an alarm; of a shorter retention, half of it"""
    traffic_seconds: dict[str, Seconds] = Field({})
    """by event type: an alarm where no event of it came for so long; those that are not named may be silent"""
    metrics_port: Port = 0
    """of `hourmark mirror watch`: Prometheus' text at /metrics; 0: none. A port taken is said, not fatal"""
    metrics_host: str = "127.0.0.1"
    """loopback, because there is no authentication"""
