"""Record counts from the brokers' own metrics, read through JMX.

Kafka's JmxTool, part of the brokers' jars, is the JMX client.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourmark.errors import Unavailable

ASK_SECONDS: Final = 60.0
_TOOL: Final = "org.apache.kafka.tools.JmxTool"
_END: Final = re.compile(
    r"^kafka\.log:type=Log,name=LogEndOffset,topic=(?P<topic>[^,]+),partition=(?P<partition>\d+):Value=(?P<n>\d+)$"
)
_IN: Final = re.compile(
    r"^kafka\.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=(?P<topic>[^,:]+):Count=(?P<n>\d+)$"
)


@dataclass(frozen=True, slots=True)
class Told:
    """The metrics of one broker for the requested topics.

    Attributes:
        messages_in: By topic, the number of records received since the broker started.
        log_ends: By (topic, partition), the log end offset of the broker's replica.
    """

    messages_in: dict[str, int]
    log_ends: dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jmx:
    """The JMX endpoints of all edge brokers.

    Attributes:
        addresses: HOST:PORT of each broker's JMX endpoint.
        java: Function that returns the path of the Java executable.
        jars: Function that returns the directory of Kafka's jars.
        user: JMX user name; "" if no authentication is required.
        password: Password of the user.
    """

    addresses: tuple[str, ...]
    java: Callable[[], Path]
    jars: Callable[[], Path]
    user: str = ""
    password: str = ""

    def ask(self, topics: Sequence[str]) -> list[Told]:
        """Return the metrics of each broker for these topics, in the order of `addresses`.

        Raises:
            Unavailable: A broker's JMX endpoint reports an error or does not answer within 60 s.
        """
        return [self._ask(address, topics) for address in self.addresses]

    def _ask(self, address: str, topics: Sequence[str]) -> Told:
        names = [
            name
            for topic in topics
            for name in (
                f"kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic={topic}",
                f"kafka.log:type=Log,name=LogEndOffset,topic={topic},partition=*",
            )
        ]
        command = [str(self.java()), "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars()}/*", _TOOL]
        command += [
            "--jmx-url",
            f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi",
            "--one-time",
            "--report-format",
            "properties",
        ]
        command += ["--jmx-auth-prop", f"{self.user}={self.password}"] if self.user else []
        command += [word for name in names for word in ("--object-name", name)] + [
            "--attributes",
            "Count,Value",
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=ASK_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"JMX at {address} did not answer within {ASK_SECONDS:.0f} s"
            ) from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise Unavailable(f"JMX at {address} did not answer: {last}")
        return told(done.stdout)


def told(text: str) -> Told:
    """Parse the output of Kafka's JmxTool for one broker.

    Args:
        text: Lines of the form `object name:attribute=value`. Lines other than `MessagesInPerSec`
            counts and `LogEndOffset` values are ignored.

    Returns:
        The metrics; both mappings are empty if no line matches.
    """
    ends, came = {}, {}
    for line in text.splitlines():
        if match := _END.match(line):
            ends[match["topic"], int(match["partition"])] = int(match["n"])
        elif match := _IN.match(line):
            came[match["topic"]] = int(match["n"])
    return Told(came, ends)
