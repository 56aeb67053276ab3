"""CPU time of tailer and delivery service together, compared with rsyslogd (imfile to omkafka).

Both read the same lines from a file. rsyslogd sends each line unchanged; Hourmark gives it an id,
parses it and audits it. If `rsyslogd` is not on the `PATH` or has no omkafka module, the result
says so. `RSYSLOG_MODDIR` names the folder of its modules if they are not installed.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Consumer, TopicPartition

from hourmark.config.loading import Config
from hourmark.kafka.topic_names import events_topic

_WITHIN_S: Final = 120.0
_LOOK_S: Final = 0.05
RSYSLOGD: Final = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin:/sbin")


def ours(
    url: str, name: str, lines: bytes, folder: Path, service_cpu_s: Callable[[], float]
) -> dict[str, float]:
    """Return the CPU seconds of the service, and of the tailer without its startup and shutdown."""
    folder.mkdir()
    log = folder / "app.log"
    settings = folder / "hourmark.toml"
    settings.write_text(
        f'[tailer]\nstate_dir = "{folder}/state"\nservice_urls = ["{url}"]\nscan_seconds = 0.02\n'
        f'[[tailer.sources]]\nname = "{name}"\npaths = ["{log}"]\n'
    )
    log.touch()
    nothing_s = _drain(settings)
    log.write_bytes(lines)
    began_s = service_cpu_s()
    return {"tailer": _drain(settings) - nothing_s, "service": service_cpu_s() - began_s}


def rsyslogd(config: Config, name: str, lines: bytes, folder: Path) -> dict[str, float] | str:
    """Return the CPU seconds of rsyslogd until the brokers have all lines, or why there is no
    result.
    """
    if RSYSLOGD is None:
        return "rsyslogd is not installed"
    folder.mkdir()
    log, settings = folder / "app.log", folder / "rsyslog.conf"
    log.write_bytes(lines)
    settings.write_text(_settings(config, events_topic(name), log, folder))
    checked = subprocess.run(
        [RSYSLOGD, "-N1", "-f", str(settings)], capture_output=True, text=True, check=False
    )
    if checked.returncode != 0:
        return f"rsyslogd has no imfile or omkafka: {checked.stderr.strip().splitlines()[-1][:200]}"
    with _records(config, events_topic(name)) as records:
        due = records() + lines.count(b"\n")
        process = subprocess.Popen([RSYSLOGD, "-n", "-f", str(settings), "-i", str(folder / "pid")])
        try:
            until = time.monotonic() + _WITHIN_S
            while records() < due:
                if time.monotonic() > until:
                    return f"rsyslogd did not send all lines within {_WITHIN_S:g} s"
                time.sleep(_LOOK_S)
            used = psutil.Process(process.pid).cpu_times()
        finally:
            process.terminate()
            process.wait(30)
    return {"rsyslogd": float(used.user + used.system)}


def compare(
    config: Config,
    url: str,
    name: str,
    lines: bytes,
    folder: Path,
    service_cpu_s: Callable[[], float],
) -> dict[str, Any]:
    """Return the CPU time per event of both ways in microseconds."""
    events = lines.count(b"\n")
    mine = ours(url, name, lines, folder / "ours", service_cpu_s)
    theirs = rsyslogd(config, name, lines, folder / "rsyslog")
    found: dict[str, Any] = {f"{part}_us": seconds / events * 1e6 for part, seconds in mine.items()}
    if isinstance(theirs, str):
        return {**found, "rsyslogd": theirs}
    us = theirs["rsyslogd"] / events * 1e6
    return {**found, "rsyslogd_us": us, "ratio_to_rsyslogd": sum(found.values()) / us}


def _drain(settings: Path) -> float:
    """Deliver all present lines with a tailer and return its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "hourmark", "tail", "--config", str(settings), "--drain"]
    subprocess.run(command, check=True, capture_output=True, timeout=_WITHIN_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextlib.contextmanager
def _records(config: Config, topic: str) -> Iterator[Callable[[], int]]:
    """Provide a function that returns how many offsets the topic has assigned."""
    consumer = Consumer(
        {
            "bootstrap.servers": config.kafka.edge.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions

    def ends() -> int:
        found = 0
        for partition in partitions:
            marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            assert marks is not None
            found += marks[1]
        return found

    try:
        yield ends
    finally:
        consumer.close()


def _settings(config: Config, topic: str, log: Path, folder: Path) -> str:
    brokers = ", ".join(f'"{one}"' for one in config.kafka.edge.bootstrap.split(","))
    return f"""\
global(workDirectory="{folder}")
module(load="imfile")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{log}" tag="app" ruleset="kafka")
ruleset(name="kafka" queue.type="linkedList" queue.size="200000" queue.dequeueBatchSize="2048") {{
    action(type="omkafka" broker=[{brokers}] topic="{topic}" template="line" partitions.auto="on" resubmitOnFailure="on"
        confParam=["compression.codec=lz4", "acks=all", "enable.idempotence=true", "linger.ms=5",
            "queue.buffering.max.messages=500000"])
}}
"""
