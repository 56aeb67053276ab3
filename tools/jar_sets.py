"""The sets of jars that Hourmark's local stack needs: their roots, and what of the roots' dependencies is left out.

Only `tools.lock_jars` reads this; everything else reads the lock file made from it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Root:
    """A Maven coordinate that a set begins with."""

    organisation: str
    module: str
    revision: str
    classifier: str = ""
    ext: str = "jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """One class path. `left_out` are prefixes of module names that the servers run without."""

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
            Root(_KAFKA, "kafka_2.13", "4.3.0"),
            Root(_KAFKA, "kafka-tools", "4.3.0"),
            Root(_KAFKA, "connect-mirror", "4.3.0"),
            # Kafka names slf4j 1.7 and leaves the choice of a backend to whoever runs it.
            Root("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ),
        left_out=("swagger-annotations",),
    ),
    JarSet(
        "hadoop",
        (
            Root(_HADOOP, "hadoop-hdfs", "3.5.0"),
            Root(_HADOOP, "hadoop-hdfs-client", "3.5.0"),
            Root(_HADOOP, "hadoop-common", "3.5.0"),
        ),
        # Protocols that HDFS does not speak, other operating systems, and key stores that a stack on loopback has not.
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
        (Root("io.apicurio", "apicurio-registry-app", "3.0.9", "all", "tar.gz"),),
        transitive=False,
    ),
    JarSet(
        "spark",
        # Whatever else these need (lz4, snappy, zstd, slf4j, Hadoop's client) pyspark carries.
        (
            Root(_SPARK, "spark-sql-kafka-0-10_2.13", "4.1.1"),
            # 4.0.1 and later could not be downloaded; 4.0.0 works with the 4.1.1 connector.
            Root(_SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
            Root(_KAFKA, "kafka-clients", "3.9.1"),
            Root("org.apache.commons", "commons-pool2", "2.12.1"),
        ),
        transitive=False,
    ),
)
