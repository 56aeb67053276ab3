"""Definitions of jar sets: root artifacts, and the dependencies of the roots that are left out.

The local stack, a benchmark's reference implementation, and YARN, s3proxy and HttpFS in tests use
them.

Only `tools.lock_jars` reads this; everything else reads the lock files made from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A Maven coordinate whose dependencies belong to a jar set."""

    organisation: str
    module: str
    revision: str
    classifier: str = ""
    ext: str = "jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """The definition of one class path.

    Attributes:
        left_out: Prefixes of module names that the servers do not need.
    """

    name: str
    roots: tuple[Root, ...]
    transitive: bool = True
    left_out: tuple[str, ...] = ()


_KAFKA = "org.apache.kafka"
_HADOOP = "org.apache.hadoop"
_SPARK = "org.apache.spark"

SETS: tuple[JarSet, ...] = (
    JarSet(
        "kafka",
        (
            Root(organisation=_KAFKA, module="kafka_2.13", revision="4.3.0"),
            Root(organisation=_KAFKA, module="kafka-tools", revision="4.3.0"),
            Root(organisation=_KAFKA, module="connect-mirror", revision="4.3.0"),
            # Kafka depends on slf4j 1.7 and leaves the choice of a backend to its operator.
            Root(
                organisation="org.apache.logging.log4j",
                module="log4j-slf4j-impl",
                revision="2.25.4",
            ),
        ),
        left_out=("swagger-annotations",),
    ),
    JarSet(
        "hadoop",
        (
            Root(organisation=_HADOOP, module="hadoop-hdfs", revision="3.5.0"),
            Root(organisation=_HADOOP, module="hadoop-hdfs-client", revision="3.5.0"),
            Root(organisation=_HADOOP, module="hadoop-common", revision="3.5.0"),
        ),
        # Protocols that HDFS does not speak, other operating systems, and key stores that a stack
        # on loopback has not.
        left_out=(
            "bcprov",
            "jsch",
            "listenablefuture",
            "netty-codec-haproxy",
            "netty-codec-memcache",
            "netty-codec-mqtt",
            "netty-codec-redis",
            "netty-codec-smtp",
            "netty-codec-socks",
            "netty-codec-stomp",
            "netty-codec-xml",
            "netty-resolver-dns-classes-macos",
            "netty-resolver-dns-native-macos",
            "netty-transport-classes-kqueue",
            "netty-transport-native-kqueue",
            "netty-transport-rxtx",
            "netty-transport-sctp",
            "netty-transport-udt",
        ),
    ),
    JarSet(
        "registry",
        (
            Root(
                organisation="io.apicurio",
                module="apicurio-registry-app",
                revision="3.0.9",
                classifier="all",
                ext="tar.gz",
            ),
        ),
        transitive=False,
    ),
)

# What Spark's own way of reading Kafka needs, a peer of the ETL's in `bench.etl_spark`.
PEER = JarSet(
    "spark",
    # Whatever else these need (lz4, snappy, zstd, slf4j, Hadoop's client) pyspark carries.
    (
        Root(organisation=_SPARK, module="spark-sql-kafka-0-10_2.13", revision="4.1.1"),
        # 4.0.1 and later could not be downloaded; 4.0.0 works with the 4.1.1 connector.
        Root(organisation=_SPARK, module="spark-token-provider-kafka-0-10_2.13", revision="4.0.0"),
        Root(organisation=_KAFKA, module="kafka-clients", revision="3.9.1"),
        Root(organisation="org.apache.commons", module="commons-pool2", revision="2.12.1"),
    ),
    transitive=False,
)

# ResourceManager and NodeManager, for the tests of the ETL on YARN; HDFS is that of the stack.
YARN = JarSet(
    "yarn",
    (
        Root(organisation=_HADOOP, module="hadoop-yarn-server-resourcemanager", revision="3.5.0"),
        Root(organisation=_HADOOP, module="hadoop-yarn-server-nodemanager", revision="3.5.0"),
        # The ResourceManager loads a class of it, and its POM does not say so.
        Root(organisation=_HADOOP, module="hadoop-yarn-server-timelineservice", revision="3.5.0"),
        Root(organisation=_HADOOP, module="hadoop-hdfs-client", revision="3.5.0"),
        Root(organisation=_HADOOP, module="hadoop-common", revision="3.5.0"),
    ),
)

# A server with the API of S3, for the contract suites of storage.
S3PROXY = JarSet(
    "s3proxy",
    (
        Root(
            organisation="org.gaul",
            module="s3proxy",
            revision="4.0.0",
            classifier="jar-with-dependencies",
        ),
    ),
    transitive=False,
)

# The gateway of Hadoop, for tests of reading. Maven has no 3.5.0 of it.
HTTPFS = JarSet(
    "httpfs",
    (
        Root(organisation=_HADOOP, module="hadoop-hdfs-httpfs", revision="3.4.2"),
        Root(organisation=_HADOOP, module="hadoop-hdfs-client", revision="3.4.2"),
        Root(organisation=_HADOOP, module="hadoop-common", revision="3.4.2"),
    ),
)
