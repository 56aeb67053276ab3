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


AvroCodec = Literal["deflate", "zstandard"]  # of the files of buckets


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
    """Addresses of brokers as host:port, separated by commas. Clients find the other brokers of the
    cluster through them.
    """
    replication_factor: Positive = 3
    """Replication factor of new topics. Use 1 only if the cluster has a single broker."""
    min_insync_replicas: Positive = 2
    """Number of in-sync replicas that must acknowledge a write. With the defaults, two of three
    replicas must acknowledge it, so writes continue after the loss of one broker.
    """
    properties: dict[str, str] = {}
    """Additional client settings, named as in librdkafka, such as "security.protocol". The mirror
    uses the security settings too.
    """


class KafkaSettings(FrozenModel):
    """Settings of the Kafka clusters of one or more sites.

    A site has an edge cluster, which receives events from the delivery services. MirrorMaker 2
    copies the events of all sites to the central cluster, from which the ETL reads them. One
    cluster may serve as both. The settings are the addresses of the clusters, the aliases of the
    edge clusters, and the message size and retention of topics.
    """

    edge: KafkaCluster = KafkaCluster()
    """Settings of the edge cluster, which receives events from the delivery services."""
    central: KafkaCluster | None = None
    """Settings of the central cluster, from which the ETL reads events. If this table is absent, the
    edge cluster also serves as the central cluster, and there is no mirror.
    """
    edge_alias: Name = "edge"
    """MirrorMaker 2's alias of the edge cluster. The names of mirrored topics begin with it, for
    example `edge.events.click`.
    """
    further_edges: dict[Name, KafkaCluster] = {}
    """Edge clusters of additional sites, as tables by alias. The ETL closes the events of all sites
    with the same ledger; see docs/how-to/second-site.md. Delivery services ignore this setting.
    """
    max_message_bytes: int = Field(8 * 1024 * 1024, ge=1 << 20)
    """Maximum size of a Kafka message on the whole path. It must be larger than the longest line (4
    MiB) and the dead letter that contains this line.
    """
    retention_hours: Positive = 168
    """Retention time of event topics. HDFS and the ETL may be unavailable for this time before
    events are lost.
    """

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
    """URL of the registry's API. If the registry requires credentials, use
    https://user:password@host.
    """
    ca: Path | None = None
    """PEM file with the CA certificates that verify the registry's certificate, for https:// URLs.
    If absent, those of Python's certifi package are used.
    """
    certificate: Path | None = None
    """PEM file with the client certificate, for a registry that requests one."""
    key: Path | None = None
    """PEM file with the private key of the client certificate. If absent, the key is in the same
    file as the certificate.
    """


class BucketSettings(FrozenModel):
    """Settings for the length of the buckets, which is the same for all event types.

    A bucket is the folder with the events of one type and one time span, usually an hour. The
    limits on event times are not set here, but in `types/sources.toml`, in the table `[limits]`.
    """

    bucket_seconds: int = 3600
    """Length of a bucket. Use 3600 (an hour) in production. For tests, whole minutes that divide an
    hour are allowed, such as 60. The length is part of every rules revision, which is a published
    version of all types and sources. It cannot be changed for a storage root and its clusters after
    types have been applied. Use the same value for the commands `hourmark types`, `etl`, `ledger`,
    `bucket` and `audit`. Delivery services read it from the rules revision.
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
    """Settings that limit how far the time of an event may be from the time of its observation.

    An event from a file is observed when its line is read. An event beyond a limit is stored as a
    dead letter instead of an event. The limits are declared in `types/sources.toml`, so that everyone
    who applies types uses the same values.
    """

    future_seconds: int = Field(900, ge=0)
    """Maximum time by which an event may be later than `observed_at`, the time of its observation.
    A later event becomes a dead letter with the reason `future`.
    """
    lateness_seconds: int = Field(7 * 86400, ge=0)
    """Maximum time by which an event may be earlier than `observed_at`, the time of its
    observation. An earlier event becomes a dead letter with the reason `too_late`.
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
    """PEM file with the certificate of the service and its intermediate certificates. If absent,
    TLS is disabled.
    """
    key: Path | None = None
    """PEM file with the private key of the certificate, without a passphrase. If absent, the key is
    in the same file as the certificate.
    """
    client_ca: Path | None = None
    """PEM file with the CA certificates that verify client certificates. If absent, the service
    does not request a client certificate.
    """
    client_required: bool = True
    """Whether clients without a certificate are rejected. The setting has no effect unless
    `client_ca` is set.
    """

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
    """Address to listen on. An address that other machines can reach (any except 127.0.0.1, ::1 and
    localhost) requires a TLS certificate. It also requires `tokens_required`, or client
    certificates (`client_ca` and `client_required`).
    """
    port: Port = 8780
    """Port to listen on. With 0, the service selects a free port and prints it."""
    state_dir: Path = Path("/var/lib/hourmark/service")
    """Folder in which the service stores its identity, which it keeps across restarts."""
    range_bytes_max: int = Field(1 << 20, ge=1024)
    """Maximum uncompressed size of a range, which is a part of a log file that a tailer sends in
    one request. A range that contains a single record may have up to `line_bytes_max` bytes.
    """
    line_bytes_max: int = Field(4 << 20, ge=1024)
    """Maximum length of a line. A longer line becomes several dead letters."""
    workers: int = Field(1, ge=1, le=64)
    """Number of worker processes that share the port. Use about one for each CPU core. If there are
    several workers, a supervisor process manages them, and they share the limits on memory and
    connections below.
    """
    inflight_bytes_max: int = Field(64 << 20, ge=1 << 20)
    """Memory for requests in progress, for all workers together. When it is used up, the service
    responds with 503. Each connection uses up to 320 KiB in addition; see docs/operate/deploy.md.
    """
    connections_max: int = Field(2048, ge=1)
    """Maximum number of open connections, including those in the TLS handshake. If a client
    connects when the maximum is reached, the service closes the connection whose time limit expires
    next. The process must be able to open 256 files in addition.
    """
    header_bytes_max: int = Field(32 << 10, ge=1024)
    """Maximum size of a request's headers. A request with larger headers is rejected with 431. For
    example, a file path of 4096 bytes needs 12 KiB in a header if it is percent-encoded.
    """
    headers_max: int = Field(100, ge=20)
    """Maximum number of headers of a request. A request with more headers is rejected with 431. A
    request with a range has 12 headers, and proxies add their own.
    """
    header_seconds: Seconds = 10.0
    """Time within which the headers of a request must be complete. Otherwise, the request is
    rejected with 408. The TLS handshake has the same time limit.
    """
    body_seconds: Seconds = 30.0
    """Time within which the body of a request must be complete. Otherwise, the request is rejected
    with 408. If memory is short, a request that is slower than 64 KiB per second is rejected
    earlier.
    """
    idle_seconds: Seconds = 75.0
    """Time after which the service closes an idle connection, or a connection whose client does not
    read the response. Set a longer time than clients keep idle connections, so that the client
    closes a connection first.
    """
    delivery_timeout_seconds: Seconds = 30.0
    """Time within which all in-sync replicas must acknowledge the events of a request. Otherwise,
    the service responds with 503.
    """
    report_seconds: Seconds = 2.0
    """Interval between host reports of the service itself. They state up to which time it has
    answered all requests.
    """
    range_ahead_seconds: Seconds = 86_400.0
    """Maximum time by which the timestamp of a range may be ahead of this service's clock, for
    example after a clock was corrected. If it is further ahead, the service responds with 503. An
    event without a time of its own gets this timestamp, so it is stored in the bucket of that time.
    """
    create_missing_topics: bool | None = None
    """Whether the service creates the topic of a declared event type if the topic was deleted. It
    creates the topic with the settings of `hourmark types apply`, and needs Kafka's permission to
    do so. One deleted topic then does not block the other types of a log file. If absent, the
    service creates topics only if `kafka.central` is set, because without a mirror, a recreated
    topic stops the driver of the ETL.
    """
    tokens_required: bool = False
    """Whether requests need a token from `hourmark token create`. Requests to /healthz and /readyz
    never need one.
    """
    tls: ServiceTls = ServiceTls()

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
    """Settings of one source of the File Tailer, which is a set of files or a receiver.

    `name` must be a source that `hourmark types apply` has published. The published declaration of
    this source determines how lines are parsed.
    """

    name: Name
    """Name of the source, as declared in types/sources.toml."""
    paths: list[str] = []
    """Absolute glob patterns of the files to read. `**` matches folders of any depth."""
    exclude: list[str] = []
    """Glob patterns of files to ignore. A pattern is absolute, or applies to file names, such as
    `*.debug`. A file that is already followed is still read to its end.
    """
    read_from: str = "start"
    """Where to start in files that exist at the first scan of this source: `start`, `end`, or a
    time such as `2026-11-01T00:00:00Z`. With a time, files that were not written since then are
    skipped. Files that appear later are read from their start. With the input `journald`, the
    tailer reads all entries, only new ones, or those since the given time.
    """
    ignore_older_seconds: Seconds | None = None
    """Age at which files are ignored. A file that was not written for this time is followed only
    after it is written again. Set a longer time than any downtime of this tailer; otherwise, files
    that were last written during the downtime may be ignored.
    """
    input: str | None = None
    """Receiver to read from, instead of `paths`. Allowed are `stdin`, `journald`, and syslog URLs
    such as `syslog+tcp://127.0.0.1:5514`, `syslog+tls://…` and `syslog+udp://…`.
    """
    zone: str = "UTC"
    """IANA time zone of timestamps that contain no zone, such as Europe/Vienna."""
    format: Literal["plain", "cri"] = "plain"
    """Format of the files. With `plain`, lines are read as they are. With `cri`, the files are
    container logs of Kubernetes: partial lines are joined, and the names of the pod, the namespace
    and the container are taken from the path and become fields.
    """
    record_start: str | None = Field(None, min_length=1, max_length=1000)
    """RE2 pattern that is found in the first line of each record, such as `^\\d{4}-`. Set it if a
    record can have several lines. A line without a match belongs to the record before it.
    """
    flush_seconds: Seconds = 5
    """Time after which the last record of a file is sent if the file does not grow. Lines that are
    written later become a separate record. The setting is used with `record_start` and with the
    format `cri`.
    """
    fields: dict[str, str] = {}
    """Constant values that are added to every event, such as `{ team = "pay" }`. A value fills the
    field of this name in the event type if the record has no value for it.
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
    key. The client certificate is sent only if `certificate` is set. Changed files are reloaded
    automatically.
    """

    ca: Path | None = None
    """PEM file with the CA certificates that verify the certificates of the services. If absent,
    those of the machine are used.
    """
    certificate: Path | None = None
    """PEM file with the client certificate, for services that request one."""
    key: Path | None = None
    """PEM file with the private key of the certificate, without a passphrase. If absent, the key is
    in the same file as the certificate.
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
    """Maximum disk space of the spool of each source. When it is used up, senders over connections
    have to wait. Datagrams are dropped and counted as lost.
    """


class SyslogTls(FrozenModel):
    """TLS settings of the syslog receiver, which requires TLS 1.2 or newer.

    The settings are the certificate with its private key, and the CAs of senders' certificates.
    They apply to sources whose `input` begins with `syslog+tls://`. Changed files are reloaded
    automatically.
    """

    certificate: Path | None = None
    """PEM file with the certificate of the receiver and its intermediate certificates. It is
    required for `syslog+tls://`.
    """
    key: Path | None = None
    """PEM file with the private key of the certificate, without a passphrase. If absent, the key is
    in the same file as the certificate.
    """
    client_ca: Path | None = None
    """PEM file with the CA certificates that verify the certificates of senders. Senders without a
    valid certificate are rejected. If absent, no certificate is requested.
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
    """Whether `input` may listen on addresses that other machines can reach. Senders are
    authenticated only if you use TLS with `client_ca`.
    """
    connections_max: int = Field(256, ge=1, le=4096)
    """Maximum number of open connections of each source. Further connections are closed
    immediately.
    """
    message_bytes_max: int = Field(64 << 10, ge=480, le=4 << 20)
    """Maximum size of a message. A longer message is skipped and counted as lost."""
    idle_seconds: Seconds = 3600.0
    """Time after which a connection is closed if no data arrives on it."""
    tls: SyslogTls = SyslogTls()


class TailerSettings(FrozenModel):
    """Settings of the File Tailer, which sends the lines of log files to delivery services.

    Each entry of `sources` names files to follow, or a receiver. The tailer sends parts of files
    (ranges) in HTTP requests. The other settings are its state folders, the URLs of the services,
    the size and number of ranges, intervals and metrics.
    """

    state_dir: Path = Path("/var/lib/hourmark/tailer")
    """Folder in which the tailer stores its host id, its checkpoint and unacknowledged ranges."""
    second_state_dir: Path | None = None
    """Folder on another disk with copies of the host id and of the record of truncated files. If
    `state_dir` is lost, `hourmark tail --reread` needs these copies to give all lines the same ids
    again.
    """
    service_urls: list[str] = Field(["http://127.0.0.1:8780"], min_length=1)
    """URLs of delivery services. The tailer distributes ranges evenly over the services that
    respond. If a host name has several addresses, it uses all of them.
    """
    token_file: Path | None = None
    """File with the token from `hourmark token create`, for services that require one. The tailer
    reloads the file when it changes.
    """
    tls: TailerTls = TailerTls()
    host_name: str = ""
    """Name of this host in the field `host` of each event. If empty, the machine's host name is
    used.
    """
    range_bytes: int = Field(1 << 20, ge=1024, le=1 << 20)
    """Maximum size of a range, which is a part of a file that the tailer sends in one request. A
    range ends at the last line end within this size. Larger ranges need less CPU time and more
    memory.
    """
    range_bytes_min: int = Field(64 * 1024, ge=1024, le=1 << 20)
    """Minimum size of a range. While services take more than 5 s for a response, or reject a range
    as too large, the tailer halves the size of ranges down to this value.
    """
    ranges_in_flight: int = Field(4, ge=1, le=64)
    """Maximum number of ranges of one file that are in flight at the same time. All files together
    have at most 12 ranges in flight. Each of them needs memory, and disk space in `state_dir`.
    """
    line_bytes_max: int = Field(4 << 20, ge=1024)
    """Maximum length of a line. It must have the same value as `service.line_bytes_max` of the
    delivery services. A longer line is sent in several parts, which become dead letters.
    """
    scan_seconds: Seconds = 0.5
    """Shortest interval between scans for new, changed and rotated files. With many files, full
    scans are less frequent.
    """
    report_seconds: Seconds = 2.0
    """Interval between host reports, which state up to which time this host has delivered its
    lines. An hour is closed only after each host has sent a report after the end of the hour.
    """
    backoff_max_seconds: Seconds = 10.0
    """Maximum pause before the tailer retries a failed request. It never stops retrying."""
    metrics_port: Port = 0
    """Port for Prometheus metrics at /metrics and the health check at /healthz. With 0, neither is
    served. If the port cannot be opened, the tailer logs a warning.
    """
    metrics_host: str = "127.0.0.1"
    """Address on which metrics are served. The default is the loopback address, because there is no
    authentication.
    """
    unwell_seconds: Seconds = 60.0
    """Time after which the health check /healthz responds with 503 if a scan, a host report or an
    acknowledgment is overdue.
    """
    spool: SpoolSettings = SpoolSettings()
    syslog: SyslogSettings = SyslogSettings()
    sources: list[TailedSource] = []
    """Sources that the tailer reads. Each of them is a table `[[tailer.sources]]`, see below."""


BucketFormat = Literal["avro", "avro+parquet"]


class StorageSettings(FrozenModel):
    """Settings of the storage (HDFS, S3 or a local folder) for the buckets of events.

    The ETL writes buckets and temporary files there, and `hourmark bucket` reads from there. The
    settings are the URL of the root folder, and for HDFS the NameNode's address, the user and the
    replication. Credentials for S3 are not settings: they come from the environment, such as
    AWS_ACCESS_KEY_ID, or from the role of the instance.
    """

    root: str = "hdfs://127.0.0.1:8020/hourmark"
    """URL of the root folder, as hdfs://host:port/path, hdfs://nameservice/path, s3://bucket/path or
    file:///path.
    """
    webhdfs: str = "http://127.0.0.1:9870"
    """HTTP address of the NameNode. It is used if `root` is an hdfs:// URL. For a name service with
    several NameNodes, list the addresses of all NameNodes that can become active, separated by
    commas (http://nn1:9870,http://nn2:9870). Do not list observer NameNodes.
    """
    ca: Path | None = None
    """PEM file with the CA certificates that verify the certificates of NameNodes and DataNodes, for
    https:// addresses. If absent, those of the system are used. The file must have the same path on
    the machines of all Spark executors.
    """
    user: str = ""
    """HDFS user. If empty, the user of the process is used. With Kerberos it must be empty, because
    the user results from `principal`.
    """
    principal: str = ""
    """Kerberos principal of the ETL, such as hourmark/etl-1.example.com@EXAMPLE.COM. If empty, HDFS
    is accessed without Kerberos.
    """
    keytab: Path | None = None
    """Keytab of `principal`. Only the driver and the commands read it. Spark executors receive a
    delegation token of HDFS instead. If absent, a ticket of the process's credential cache is used
    (kinit), which Hourmark does not renew.
    """
    replication: Positive = 3
    """Replication factor of files. Use 1 only if HDFS has a single DataNode."""
    s3_endpoint: str = ""
    """HTTP address of a store with the API of S3. If empty, AWS is used. The setting is used if
    `root` is an s3:// URL.
    """
    s3_region: str = ""
    """Region of the S3 bucket. If empty, the environment variable AWS_REGION is used."""

    @field_validator("root")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if not value.startswith(("hdfs://", "s3://", "file:///")):
            raise ValueError("allowed: hdfs://host:port/path, s3://bucket/path or file:///path")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        if self.keytab is not None and not self.principal:
            raise ValueError("storage.keytab requires storage.principal")
        if self.user and self.principal:
            raise ValueError("storage.user must be empty if storage.principal is set")
        return self

    @property
    def namenodes(self) -> tuple[str, ...]:
        """Return the HTTP addresses in `webhdfs`, without trailing slashes.

        Returns:
            At least one address; an empty one if `webhdfs` contains none.
        """
        addresses = (address.strip().rstrip("/") for address in self.webhdfs.split(","))
        return tuple(address for address in addresses if address) or ("",)


class EtlSettings(FrozenModel):
    """Settings of the ETL, the PySpark job that reads events from Kafka and closes hourly buckets.

    The job stages events: it writes each micro-batch to files on the storage. Once an hour is
    complete, the job writes the events of the hour to a bucket and closes the bucket.
    """

    ledger: str = "sqlite:////var/lib/hourmark/ledger.sqlite"
    """URL of the ledger, which is the database with the state of the ETL. Use
    sqlite:////absolute/path if the driver always runs on the same machine. Otherwise, use
    postgresql://user:password@host/database.
    """
    master: str = "local[2]"
    """URL of the Spark master. If the job is started with spark-submit, the master of spark-submit
    takes precedence.
    """
    spark_conf: dict[str, str] = {}
    """Additional Spark settings by name, such as "spark.driver.memory"."""
    scratch_dir: Path = Path("/var/tmp/hourmark-etl")  # noqa: S108  # scratch by intent
    """Folder for Spark's checkpoint and temporary files. No events are lost if this folder is lost.
    """
    trigger_seconds: float = Field(10.0, ge=0)
    """Interval between micro-batches. A longer interval results in fewer and larger files. For
    example, 10 s result in five times fewer files than 2 s.
    """
    tasks: Positive = 2
    """Number of Spark tasks of a micro-batch. It also determines the number of staged files, which
    does not depend on the number of event types.
    """
    batch_records_max: Positive = 2_000_000
    """Maximum number of records in a micro-batch. It limits the duration of a micro-batch while the
    ETL processes a backlog.
    """
    type_batch_bytes_max: int = Field(1 << 30, ge=1 << 20)
    """Maximum size of the records of one event type in a micro-batch. It prevents a type with large
    records from delaying other types.
    """
    close_poll_seconds: Seconds = 1.0
    """Interval at which the ETL checks whether it can close an hour."""
    deadline_seconds: Seconds = 7200.0
    """Time after the end of an hour at which the hour is closed even if data is missing. Its bucket
    then has the grade `timed_out`, and its manifest lists the missing data as waived. The default
    of two hours is longer than a restart, a failover or a short repair. It is short enough that one
    failed host does not block the buckets of a whole day.
    """
    avro_codec: AvroCodec | None = None
    """Compression of the files of new buckets. All Avro readers support `deflate`. Files with
    `zstandard` are smaller, but polars, DuckDB and BigQuery cannot read them, and version 0.3.0
    reads no other codec. If absent, the driver continues with the codec of the newest bucket that
    has files. If there is no such bucket, it uses `deflate`.
    """
    bucket_format: BucketFormat = "avro"
    """Format of the buckets of event types that do not declare a `format`. With "avro+parquet", a
    bucket also contains its events as Parquet files, in the subfolder `_parquet`. A type that
    Parquet cannot express is written as Avro only.
    """
    target_file_bytes: int = Field(256 << 20, ge=1 << 20)
    """Target size of the files of a bucket. At most 4 GiB if `storage.root` is an s3:// URL."""
    unit_bytes_max: int = Field(128 << 20, ge=1 << 20, le=1 << 30)
    """Maximum size of the events that a closing task processes at once. A task needs about five
    times this amount of memory, regardless of the size of the bucket.
    """
    staged_keep_seconds: float = Field(3600.0, ge=0)
    """Time for which staged files are kept after their buckets are closed. `hourmark audit
    --ranges` needs these files to name the ranges of differences.
    """
    index_hours: Positive = 192
    """Number of hours for which the event ids of closed buckets are indexed. The index is used to
    recognize late copies of events. The default is one day more than the default of
    `lateness_seconds`.
    """
    index_bytes_max: int = Field(64 << 30, ge=0)
    """Maximum size of all indexes of event ids, which need 16 bytes for each event. If this size is
    reached, the ids of late events are looked up in the buckets instead.
    """
    retention_days: dict[Name, Positive] = Field({})
    """Number of days (UTC) for which closed buckets are kept, by event type. `hourmark bucket expire`
    removes older days, and leaves a tombstone with their markers. Buckets of event types that are
    not listed are never removed.
    """
    metrics_port: Port = 8784
    """Port for Prometheus metrics at /metrics. With 0, metrics are not served. If the port cannot
    be opened, the ETL logs a warning.
    """
    metrics_host: str = "127.0.0.1"
    """Address on which metrics are served. The default is the loopback address, because there is no
    authentication.
    """


class TypesSettings(FrozenModel):
    """Settings of `hourmark types apply`: the folder with the declarations of event types and
    sources, and the first hour of new types.

    Other components use the published declarations, not the folder.
    """

    dir: Path = Path("types")
    """Folder with one TOML file for each event type, and the file sources.toml."""
    first_hour: str | None = None
    """First hour of new event types, such as `2026-11-21T05`. Every hour from then on gets a
    bucket, and lines of earlier hours are back-filled into buckets of their own hours. `hourmark
    types apply` uses the setting only for the first types that are applied to a ledger. `hourmark
    run` uses it for all new types while it is at most 300 buckets in the past. Otherwise, the first
    hour is the current bucket, or with `hourmark run` the bucket before it.
    """


class MirrorSettings(FrozenModel):
    """Settings of MirrorMaker 2, which `hourmark mirror run` starts as a child process.

    MirrorMaker 2 copies topics from the edge cluster to the central cluster. The settings are those
    of the Java process and its REST server, the number of copying tasks and workers, and the alarms
    and metrics of `hourmark mirror watch`.
    """

    java: str = "java"
    """Command that runs Java 17 or 21."""
    classpath: str = ""
    """Class path with the JAR files of Kafka's connect-mirror, in the form of the option -cp of
    `java`.
    """
    heap_mb: int = Field(512, ge=128)
    """Heap size of the Java process in MB. 512 is enough for a local stack."""
    work_dir: Path = Path("/var/lib/hourmark/mirror")
    """Folder for generated properties files and logs."""
    rest_port: Port = 8783
    """Port of the REST server of MirrorMaker 2. Exactly-once source support requires this server.
    """
    rest_host: str = "127.0.0.1"
    """Address of the REST server, which does not use TLS. If there are several workers, use a name
    by which the other workers can reach this one.
    """
    tasks_max: Positive = 2
    """Maximum number of copying tasks of each connector."""
    workers: int = Field(0, ge=0)
    """Number of workers that share this mirror, on all hosts. If fewer workers are running,
    `hourmark mirror watch` raises an alarm. With 0, the number is not checked.
    """
    retention_alarm_hours: float = Field(24.0, gt=0)
    """Time before the edge cluster deletes uncopied records at which `hourmark mirror watch` raises
    an alarm. If half of the retention time is shorter, it is used instead.
    """
    traffic_seconds: dict[str, Seconds] = Field({})
    """Time without events after which `hourmark mirror watch` raises an alarm, by event type. Event
    types that are not listed may be silent.
    """
    metrics_port: Port = 0
    """Port on which `hourmark mirror watch` serves Prometheus metrics at /metrics. With 0, metrics
    are not served. If the port cannot be opened, a warning is logged.
    """
    metrics_host: str = "127.0.0.1"
    """Address on which metrics are served. The default is the loopback address, because there is no
    authentication.
    """
