"""The settings of the mirror, with their defaults and their reasons."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from hourmark.config_groups import Group, Port, Positive, Seconds


class Mirror(Group):
    """MirrorMaker 2, run by `hourmark mirror run`."""

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
