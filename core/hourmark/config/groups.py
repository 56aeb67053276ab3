"""The groups of settings, with their defaults and the reasons for them.

`loading` combines them into one tree. The text below each setting is its description in
docs/reference/configuration.md.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hourmark.config.globs import matches_any_glob
from hourmark.config.redaction import add_secrets_of, redact_setting

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,99}$")]
Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]

# The tailer takes files with these suffixes for compressed, rotated logs, whatever they contain.
COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".Z")
LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")


AvroCodec = Literal["deflate", "zstandard"]  # of buckets


class FrozenModel(BaseModel):
    """Base class of immutable pydantic models that reject unknown fields.

    The string literal below each field of a subclass documents the field. Secrets are hidden in
    `repr`. When an instance is unpickled in another process, such as a Spark executor, its secrets
    are registered for redaction there.
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
    """Settings of one Kafka cluster: addresses, replication of new topics, and client properties.

    The default is a cluster on this machine without TLS or authentication.
    """

    bootstrap: str = "127.0.0.1:9092"
    """broker addresses as host:port, comma-separated"""
    replication_factor: Positive = 3
    """replication factor of new topics; 1 only with a single broker"""
    min_insync_replicas: Positive = 2
    """replicas that must acknowledge a write; 2 of 3 survives the loss of one broker"""
    properties: dict[str, str] = {}
    """further client settings by librdkafka's names, such as "security.protocol"; security settings
    are passed to the mirror too
    """


class KafkaSettings(FrozenModel):
    """Settings of the Kafka clusters of one or more sites.

    A site has an edge cluster, which receives events from the delivery services. The central
    cluster feeds the ETL; MirrorMaker 2 copies the events of all sites to it. One cluster may serve
    as both. The settings are the addresses of the clusters, the aliases of the edge clusters, and
    the message size and retention of topics.
    """

    edge: KafkaCluster = KafkaCluster()
    """the cluster that receives events from the delivery services"""
    central: KafkaCluster | None = None
    """the cluster that feeds the ETL; absent: one cluster is used for both, without a mirror"""
    edge_alias: Name = "edge"
    """MirrorMaker 2's alias of the edge cluster; prefix of the mirrored topics"""
    further_edges: dict[Name, KafkaCluster] = {}
    """edge clusters of further sites by alias, whose events the same ledger closes: see
    docs/how-to/second-site.md; not used by services
    """
    max_message_bytes: int = Field(8 * 1024 * 1024, ge=1 << 20)
    """maximum message size along the whole path; larger than the longest line (4 MiB) and its dead
    letter
    """
    retention_hours: Positive = 168
    """retention of event topics: how long HDFS or the ETL may be unavailable"""

    @model_validator(mode="after")
    def _sites_apart(self) -> Self:
        if self.further_edges and self.central is None:
            raise ValueError(
                "further_edges requires kafka.central, the cluster to which all sites are mirrored"
            )
        if self.edge_alias in self.further_edges:
            raise ValueError(
                f"further_edges.{self.edge_alias} has the same alias as kafka.edge; each site "
                "requires its own alias"
            )
        return self

    @property
    def sites(self) -> tuple[KafkaSettings, ...]:
        """Return the settings of each site as a separate object.

        A site is an edge cluster with its own MirrorMaker 2 alias. In each object, `edge` and
        `edge_alias` describe one site, and `further_edges` is empty.

        Returns:
            The site of the setting `edge`, then the sites of `further_edges`.
        """
        return tuple(
            self.model_copy(update={"edge": edge, "edge_alias": alias, "further_edges": {}})
            for alias, edge in ((self.edge_alias, self.edge), *self.further_edges.items())
        )

    @property
    def mirrored(self) -> bool:
        """Return whether MirrorMaker 2 copies topics from the edge cluster to a central cluster.

        The result is True if the setting `central` is present. Otherwise, one cluster serves as
        both.
        """
        return self.central is not None

    @property
    def central_cluster(self) -> KafkaCluster:
        """Return the settings of the cluster that the ETL reads from.

        Returns:
            The setting `central`; the setting `edge` if `central` is absent.
        """
        return self.central if self.central is not None else self.edge


class RegistrySettings(FrozenModel):
    """Settings of the schema registry, which must support Confluent's REST API.

    `hourmark types apply` registers Avro schemas there, and delivery services look them up. The
    settings are the URL, the trusted CA certificates and the client certificate.
    """

    url: str = "http://127.0.0.1:8081"
    """address of the registry's API; https://user:password@host if it requires credentials"""
    ca: Path | None = None
    """PEM file with the CAs of the registry's certificate, for https://; absent: those of Python's
    certifi
    """
    certificate: Path | None = None
    """PEM file with the client certificate, for a registry that requests one"""
    key: Path | None = None
    """PEM file with the certificate's private key; absent: it is in the same file"""


class BucketSettings(FrozenModel):
    """The length of the buckets, which is the same for all event types.

    A bucket is the folder with the events of one type and one time span, usually an hour. The
    limits on event times are not set here, but in `types/sources.toml`, in the table `[limits]`.
    """

    bucket_seconds: int = 3600
    """length of a bucket: 3600 (an hour), or for tests whole minutes that divide an hour, such as
    60. It is part of every rules revision and cannot be changed for a storage root and its clusters
    after types were applied. Use the same value for `hourmark types`, `etl`, `ledger`, `bucket` and
    `audit`; services take it from the revision
    """

    @field_validator("bucket_seconds")
    @classmethod
    def _divides_an_hour(cls, value: int) -> int:
        if value < 60 or value % 60 or 3600 % value:
            raise ValueError(
                "allowed: 3600, or, for tests, whole minutes that divide an hour (60 means one "
                "bucket per minute)"
            )
        return value


class EventTimeLimits(FrozenModel):
    """Limits on the difference between the time of an event and the time of its observation.

    An event from a file is observed when its line is read. An event beyond a limit is rejected: it
    is stored as a dead letter. The limits are declared in `types/sources.toml`, so that everyone
    who applies types uses the same values.
    """

    future_seconds: int = Field(900, ge=0)
    """an event whose time is further than this after observed_at becomes a dead letter `future`"""
    lateness_seconds: int = Field(7 * 86400, ge=0)
    """an event whose time is further than this before observed_at becomes a dead letter `too_late`
    """


class ParsingSettings(EventTimeLimits, BucketSettings):
    """The bucket length and the limits on event times, which affect how lines are parsed.

    `hourmark types apply` publishes them together with the declared event types and log sources.
    Each published version is called a rules revision.
    """


class ServiceTls(FrozenModel):
    """TLS settings of the Event Delivery Service, which requires TLS 1.2 or newer.

    TLS is enabled if `certificate` is set. Other settings specify the private key, the CAs that
    client certificates are verified with, and whether clients must have a certificate. Changed
    files are reloaded automatically, and immediately on SIGHUP.
    """

    certificate: Path | None = None
    """PEM file with the service's certificate and intermediate certificates; absent: no TLS"""
    key: Path | None = None
    """PEM file with the certificate's private key, without a passphrase; absent: it is in the same
    file
    """
    client_ca: Path | None = None
    """PEM file with the CAs of client certificates; absent: no client certificate is requested"""
    client_required: bool = True
    """whether a client without a certificate is rejected if client_ca is set"""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.certificate is None and (self.key is not None or self.client_ca is not None):
            raise ValueError("key and client_ca require certificate")
        return self


class ServiceSettings(FrozenModel):
    """Settings of the Event Delivery Service, the HTTP server that writes events to Kafka.

    The settings are the address to listen on, the number of worker processes, limits on sizes,
    connections, memory and time, and the required authentication. An address that other machines
    can reach is accepted only together with TLS, and with tokens or client certificates.
    """

    host: str = "127.0.0.1"
    """address to listen on. One that other machines can reach (not 127.0.0.1, ::1 or localhost)
    requires a certificate, and either tokens_required or required client certificates
    """
    port: Port = 8780
    """port to listen on; 0 selects a free port and prints it"""
    state_dir: Path = Path("/var/lib/hourmark/service")
    """folder with the service's identity, which survives restarts"""
    range_bytes_max: int = Field(1 << 20, ge=1024)
    """maximum uncompressed size of a range; a single longer record may have up to line_bytes_max"""
    line_bytes_max: int = Field(4 << 20, ge=1024)
    """a longer line becomes several dead letters"""
    workers: int = Field(1, ge=1, le=64)
    """processes that share the port, about one for each core; several have a supervisor and share
    the limits below
    """
    inflight_bytes_max: int = Field(64 << 20, ge=1 << 20)
    """memory for requests in progress, for all workers together; beyond it the service responds
    with 503. Connections take up to 320 KiB each in addition: docs/operate/deploy.md
    """
    connections_max: int = Field(2048, ge=1)
    """open connections, from the TLS handshake on, in addition to 256 files; for a new one beyond
    it, the connection closest to its time limit is closed
    """
    header_bytes_max: int = Field(32 << 10, ge=1024)
    """size of a request's headers; a path of 4096 bytes, percent-encoded, takes 12 KiB. Beyond it:
    431
    """
    headers_max: int = Field(100, ge=20)
    """number of a request's headers; a range has 12, and proxies add theirs. Beyond it: 431"""
    header_seconds: Seconds = 10.0
    """time until the headers are complete, otherwise 408; clients send them at once. A TLS
    handshake has the same limit
    """
    body_seconds: Seconds = 30.0
    """time until the body is complete, otherwise 408; if memory is short, a connection slower than
    64 KiB a second is closed first
    """
    idle_seconds: Seconds = 75.0
    """time between two requests, or for a response to be read; longer than clients keep a
    connection, so that they close it first
    """
    delivery_timeout_seconds: Seconds = 30.0
    """time for all in-sync replicas to acknowledge, otherwise 503"""
    report_seconds: Seconds = 2.0
    """interval of the service's own host reports"""
    range_ahead_seconds: Seconds = 86_400.0
    """how far the time that a range was stamped with may be ahead of this service's clock, as after
    a clock was corrected; beyond it 503. Events without a time of their own keep the stamp as their
    time, so they are in a bucket of that time
    """
    create_missing_topics: bool | None = None
    """whether to create the topic of a declared event type that was deleted, with the settings of
    `hourmark types apply`, so that one deleted topic does not block the other types of a log file;
    needs Kafka's right to create it. Absent: only if kafka.central is set, because without a mirror
    a recreated topic stops the ETL's driver
    """
    tokens_required: bool = False
    """whether requests need a token from `hourmark token create`; all except /healthz and /readyz
    """
    tls: ServiceTls = ServiceTls()
    """TLS and client certificates"""

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
                f"service.host = {self.host!r} accepts connections from other machines, which "
                f"requires {'; and '.join(missing)}. Allowed without it: "
                f"{', '.join(LOOPBACK_HOSTS)}"
            )
        return self


class TailedSource(FrozenModel):
    """Settings of one source of the File Tailer: a set of files or a receiver.

    `name` must be a source that `hourmark types apply` has published. The published declaration of
    this source determines how lines are parsed.
    """

    name: Name
    """the source, as declared in types/sources.toml"""
    paths: list[str] = []
    """absolute globs of files; ** is supported"""
    exclude: list[str] = []
    """globs of files to ignore: absolute, or of file names such as `*.debug`; a file that is
    already followed is read to its end
    """
    read_from: str = "start"
    """where to start in files that exist at the first scan of this source: `start`, `end`, or a
    time such as `2026-11-01T00:00:00Z`, which skips files not written since then. Later files are
    read from their start. For `journald`: entries from then on
    """
    ignore_older_seconds: Seconds | None = None
    """a file not written for this time is followed only after it is written again; longer than any
    downtime of this tailer
    """
    input: str | None = None
    """a receiver instead of paths: `stdin`, `journald`, `syslog+tcp://127.0.0.1:5514`,
    `syslog+tls://…`, `syslog+udp://…`
    """
    zone: str = "UTC"
    """IANA time zone of timestamps that have none"""
    format: Literal["plain", "cri"] = "plain"
    """cri: container logs of Kubernetes; partial lines are joined, and pod, namespace and container
    become fields, taken from the path
    """
    record_start: str | None = Field(None, min_length=1, max_length=1000)
    """RE2 pattern for records of several lines, found in the first line of each, such as
    `^\\d{4}-`; other lines belong to the record before
    """
    flush_seconds: Seconds = 5
    """with record_start or cri: the last record of a file is sent after this time without growth;
    later lines form a record of their own
    """
    fields: dict[str, str] = {}
    """constant values for every event, such as `{ team = "pay" }`: they fill the type's fields of
    these names where the record has no value
    """


def find_tailed_source(sources: Iterable[Mapping[str, Any]], file: Path) -> str | None:
    """Find the configured source of the File Tailer that reads a file.

    Args:
        sources: Tables of `[[tailer.sources]]`, as read from TOML.
        file: Path of the file, or of a symbolic link to it.

    Returns:
        Name of the first source whose `paths` match the file and whose `exclude` does not. None if
        no source reads the file.
    """
    path = normalize_log_path(file)
    return next(
        (
            str(source["name"])
            for source in sources
            if any(
                _matches(os.path.normpath(name), path, source.get("exclude", []))
                for name in source.get("paths", [])
            )
        ),
        None,
    )


def _matches(pattern: str, file: Path, exclude: Sequence[str]) -> bool:
    if pattern in (str(file), escape_log_path(file)):  # also a file that is gone
        return not matches_any_glob(str(file), exclude)
    with suppress(OSError):
        status = file.stat()
        return any(
            Path(found).exists() and os.path.samestat(status, Path(found).stat())
            for found in find_log_files([pattern], exclude)
        )
    return False


def find_log_files(paths: Iterable[str], exclude: Sequence[str]) -> Iterator[str]:
    """Find the existing files that a source of the File Tailer reads.

    Args:
        paths: Absolute glob patterns.
        exclude: Glob patterns of files to omit. Patterns without a slash match file names.

    Yields:
        Existing paths, pattern by pattern.
    """
    for pattern in paths:
        for found in glob.iglob(pattern, recursive=True):  # noqa: PTH207  # absolute
            if not matches_any_glob(found, exclude):
                yield found


def escape_log_path(file: Path) -> str:
    """Return a glob pattern that matches only the given path.

    Use it to write a path into the setting `paths` of a source, whose values are patterns.

    Args:
        file: Absolute path of a log file, which may contain special characters such as `[`.
    """
    return glob.escape(str(file)).replace("{", "[{]")  # braces are refused in patterns


def normalize_log_path(file: Path) -> Path:
    """Return the path of a log file in the form that the configuration requires.

    All parts of the configuration must use the same path for a file. Otherwise, two sources could
    read the same file.

    Args:
        file: Path of the file, which may be relative and contain `..`.

    Returns:
        Absolute path without `..`. Symbolic links are kept, except in a path with `..`.
    """
    return file.resolve() if ".." in file.parts else file.absolute()


class TailerTls(FrozenModel):
    """TLS settings of the File Tailer for connections to services with https:// URLs.

    The settings are the CAs that the tailer trusts, and its client certificate with the private
    key. A client certificate is sent only if `certificate` is set. Changed files are reloaded
    automatically.
    """

    ca: Path | None = None
    """PEM file with the CAs of the services' certificates; absent: those of the machine"""
    certificate: Path | None = None
    """PEM file with the client certificate, for services that request one"""
    key: Path | None = None
    """PEM file with the certificate's private key, without a passphrase; absent: it is in the same
    file
    """

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.certificate is None and self.key is not None:
            raise ValueError("key requires certificate")
        return self


class SpoolSettings(FrozenModel):
    """Settings of the spool, which stores received input on disk until it is acknowledged.

    Sources with the setting `input`, such as a syslog receiver, use the spool. The only setting
    limits the disk space of each source.
    """

    bytes_max: int = Field(1 << 30, ge=1 << 16)
    """disk space for each source; beyond it, senders over connections wait, and datagrams are
    dropped and counted as lost
    """


class SyslogTls(FrozenModel):
    """TLS settings of the syslog receiver, which requires TLS 1.2 or newer.

    The settings are the certificate with its private key, and the CAs of senders' certificates.
    They apply to sources whose `input` begins with `syslog+tls://`. Changed files are reloaded
    automatically.
    """

    certificate: Path | None = None
    """PEM file with the receiver's certificate and intermediate certificates; required for
    `syslog+tls://`
    """
    key: Path | None = None
    """PEM file with the certificate's private key, without a passphrase; absent: it is in the same
    file
    """
    client_ca: Path | None = None
    """PEM file with the CAs of senders' certificates, without which a sender is rejected; absent:
    no certificate is requested
    """

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.certificate is None and (self.key is not None or self.client_ca is not None):
            raise ValueError("key and client_ca require certificate")
        return self


class SyslogSettings(FrozenModel):
    """Settings of the syslog receiver of the File Tailer.

    They apply to every source whose `input` is a syslog URL. The settings are limits on addresses,
    connections, message size and idle time, and TLS.
    """

    beyond_loopback: bool = False
    """whether `input` may listen on addresses that other machines can reach; there is no
    authentication except TLS with client_ca
    """
    connections_max: int = Field(256, ge=1, le=4096)
    """open connections of each source; further ones are closed immediately"""
    message_bytes_max: int = Field(64 << 10, ge=480, le=4 << 20)
    """a longer message is skipped and counted as lost"""
    idle_seconds: Seconds = 3600.0
    """a connection without data for this time is closed"""
    tls: SyslogTls = SyslogTls()
    """certificates for `syslog+tls://`"""


class TailerSettings(FrozenModel):
    """Settings of the File Tailer, which sends the lines of log files to delivery services.

    Each entry of `sources` names files to follow, or a receiver. The tailer sends parts of files
    (ranges) in HTTP requests. The other settings are its state folders, the URLs of the services,
    the size and number of ranges, intervals and metrics.
    """

    state_dir: Path = Path("/var/lib/hourmark/tailer")
    """folder with the host id, the checkpoint and unacknowledged ranges"""
    second_state_dir: Path | None = None
    """folder on another disk with the host id and truncations, so that `--reread` produces the same
    ids if `state_dir` is lost
    """
    service_urls: list[str] = Field(["http://127.0.0.1:8780"], min_length=1)
    """URLs of delivery services; ranges are distributed evenly over those that respond, and over
    all addresses of a host name
    """
    token_file: Path | None = None
    """file with the token from `hourmark token create`, for services that require one; reloaded
    when it changes
    """
    tls: TailerTls = TailerTls()
    """certificates for services with https:// URLs"""
    host_name: str = ""
    """the envelope's `host`; empty: the machine's name"""
    range_bytes: int = Field(1 << 20, ge=1024, le=1 << 20)
    """maximum size of a range, which ends at the last line end before it; larger ranges cost less
    CPU and more memory
    """
    range_bytes_min: int = Field(64 * 1024, ge=1024, le=1 << 20)
    """minimum size to which ranges are halved while services are slow (5 s for a response) or
    reject larger ones
    """
    ranges_in_flight: int = Field(4, ge=1, le=64)
    """maximum number of ranges in flight for one file; at most 12 for all files. Each takes memory,
    and space in `state_dir`
    """
    line_bytes_max: int = Field(4 << 20, ge=1024)
    """must be the service's value"""
    scan_seconds: Seconds = 0.5
    """interval of file scans; half a second is far below the length of a bucket"""
    report_seconds: Seconds = 2.0
    """interval of host reports; an hour closes after a report sent past its end"""
    backoff_max_seconds: Seconds = 10.0
    """maximum time between retries, which never end"""
    metrics_port: Port = 0
    """port for Prometheus metrics at /metrics, and for /healthz; 0: none. If it cannot be opened, a
    warning is logged
    """
    metrics_host: str = "127.0.0.1"
    """address for metrics; loopback by default, because there is no authentication"""
    unwell_seconds: Seconds = 60.0
    """/healthz responds with 503 if a scan, a report or an acknowledgement is overdue by this time
    """
    spool: SpoolSettings = SpoolSettings()
    """disk space of sources that receive input"""
    syslog: SyslogSettings = SyslogSettings()
    """receivers of syslog"""
    sources: list[TailedSource] = []
    """what is tailed: tables `[[tailer.sources]]`, see below"""


class StorageSettings(FrozenModel):
    """Settings of the storage (HDFS or a local folder) that contains buckets of events.

    The ETL writes buckets and temporary files there, and `hourmark bucket` reads from there. The
    settings are the URL of the root folder, the NameNode's address, the user and the replication.
    """

    root: str = "hdfs://127.0.0.1:8020/hourmark"
    """root folder: hdfs://host:port/path, or file:///path"""
    webhdfs: str = "http://127.0.0.1:9870"
    """the NameNode's HTTP address; used if root is an hdfs:// URL"""
    user: str = ""
    """HDFS user; empty: the user of the process"""
    replication: Positive = 3
    """replication factor of files; 1 only with a single DataNode"""

    @field_validator("root")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if not value.startswith(("hdfs://", "file:///")):
            raise ValueError("allowed: hdfs://host:port/path or file:///path")
        return value.rstrip("/")


class EtlSettings(FrozenModel):
    """Settings of the ETL, the PySpark job that reads events from Kafka and closes hourly buckets.

    The job stages events: it writes each micro-batch to files on the storage. Once an hour is
    complete, the job writes the events of the hour to a bucket and closes the bucket.
    """

    ledger: str = "sqlite:////var/lib/hourmark/ledger.sqlite"
    """database of the ledger: sqlite:////absolute/path (driver on one machine) or
    postgresql://user:password@host/database
    """
    master: str = "local[2]"
    """Spark master; the one given to spark-submit takes precedence"""
    spark_conf: dict[str, str] = {}
    """further Spark settings by their names, such as "spark.driver.memory"
    """
    scratch_dir: Path = Path("/var/tmp/hourmark-etl")  # noqa: S108  # scratch by intent
    """Spark's checkpoint and temporary files, which may be lost"""
    trigger_seconds: float = Field(10.0, ge=0)
    """interval of micro-batches: 10 s give five times fewer, larger files than 2 s"""
    tasks: Positive = 2
    """tasks of a micro-batch, and therefore staged files, whatever the number of types"""
    batch_records_max: Positive = 2_000_000
    """records of a micro-batch; bounds its duration while a backlog is processed"""
    type_batch_bytes_max: int = Field(1 << 30, ge=1 << 20)
    """bytes of one type in a micro-batch, so that large records do not delay other types"""
    close_poll_seconds: Seconds = 1.0
    """interval at which closing checks its conditions"""
    deadline_seconds: Seconds = 7200.0
    """time after an hour's end at which missing data is waived by name and the hour closes as
    timed_out. Two hours: longer than a restart, a failover or a short repair, and short enough that
    one dead host does not stop a day's work
    """
    avro_codec: AvroCodec = "deflate"
    """compression of new buckets: "deflate", which all Avro readers support, or "zstandard", with
    which files are about 13 % smaller, and which polars, DuckDB and BigQuery cannot read
    """
    target_file_bytes: int = Field(256 << 20, ge=1 << 20)
    """target size of a bucket's files"""
    unit_bytes_max: int = Field(128 << 20, ge=1 << 20, le=1 << 30)
    """bytes of events that a closing task processes at once; the task takes about five times that
    memory, whatever the bucket's size
    """
    staged_keep_seconds: float = Field(3600.0, ge=0)
    """how long staged files of closed buckets are kept; `audit --ranges` can name ranges during
    that time
    """
    index_hours: Positive = 192
    """how long ids of closed buckets are indexed; one day more than the default allowed lateness"""
    index_bytes_max: int = Field(64 << 30, ge=0)
    """size of all id indexes, 16 bytes for each event; beyond it late events are looked up in the
    buckets
    """
    metrics_port: Port = 8784
    """port for Prometheus metrics at /metrics; 0: none. If it cannot be opened, a warning is logged
    """
    metrics_host: str = "127.0.0.1"
    """address for metrics; loopback by default, because there is no authentication"""


class TypesSettings(FrozenModel):
    """Settings of the folder that contains the declarations of event types and sources.

    `hourmark types apply` reads the folder. Other components use the published declarations.
    """

    dir: Path = Path("types")
    """folder with a TOML file for each event type, and sources.toml"""
    first_hour: str | None = None
    """first hour, such as `2026-11-21T05`, of types that are applied before any others, and of
    those that `hourmark run` applies while it is at most 300 buckets ago. Other types begin when
    they are applied, as all do if this is absent; with `hourmark run`, a bucket earlier. Lines of
    earlier hours are back-filled
    """


class MirrorSettings(FrozenModel):
    """Settings of MirrorMaker 2, which `hourmark mirror run` starts as a child process.

    MirrorMaker 2 copies topics from the edge cluster to the central cluster. The settings are the
    Java process, its REST server and the number of copying tasks.
    """

    java: str = "java"
    """executable of Java 17 or 21"""
    classpath: str = ""
    """class path with the jars of Kafka's connect-mirror, in the form of java's -cp"""
    heap_mb: int = Field(512, ge=128)
    """heap of the Java process in MB; 512 is enough for a local stack"""
    work_dir: Path = Path("/var/lib/hourmark/mirror")
    """folder for generated properties and logs"""
    rest_port: Port = 8783
    """port of the REST server, which exactly-once source support requires"""
    rest_host: str = "127.0.0.1"
    """address of the REST server, without TLS; with several workers, a name by which the others
    reach this one
    """
    tasks_max: Positive = 2
    """maximum number of copying tasks of each connector"""
    workers: int = Field(0, ge=0)
    """number of workers that share this mirror, on all hosts; `hourmark mirror watch` raises an
    alarm if there are fewer. 0: not checked
    """
    retention_alarm_hours: float = Field(24.0, gt=0)
    """an alarm is raised this long before the edge's retention reaches records that are not copied;
    at most half of the retention
    """
    traffic_seconds: dict[str, Seconds] = Field({})
    """by event type: an alarm is raised if no event arrives for this time; other types may be
    silent
    """
    metrics_port: Port = 0
    """port of `hourmark mirror watch` for Prometheus metrics at /metrics; 0: none. If it cannot be
    opened, a warning is logged
    """
    metrics_host: str = "127.0.0.1"
    """address for metrics; loopback by default, because there is no authentication"""
