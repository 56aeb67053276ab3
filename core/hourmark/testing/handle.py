"""The operations of a test on a running stack: post, write, wait and read."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from hourmark.clock import Clock, SystemClock
from hourmark.errors import Finding, Unavailable
from hourmark.records.event_id import client_event_id

Event = Mapping[str, Any]
CLOSED_S: Final = 300.0  # a bucket of one minute closes within three; a loaded machine is slower
_POST_S: Final = 60.0
_ANSWER_S: Final = 30.0
_RETRY_S: Final = 1.0
_POLL_S: Final = 3.0  # between polls, each of which costs the container one second of CPU
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOURMARK: Final = "/opt/hourmark/hourmark"
_CONFIG: Final = "/var/lib/hourmark/run/hourmark.toml"
_APPEND: Final = 'printf "%s\\n" "$@" >> "$0"'


class Posted(NamedTuple):
    """Events of one type that were posted by a test and acknowledged by the delivery service.

    Attributes:
        event_type: Name of the event type.
        ids: Ids of the events in posting order, as in the field `event_id` of buckets.
    """

    event_type: str
    ids: tuple[str, ...]


class Placed(NamedTuple):
    """An event, and the closed bucket that contains it.

    Attributes:
        bucket: The hour of the bucket, such as 2026-11-21T05:07.
        event: The event as printed by `hourmark bucket cat --json`.
    """

    bucket: str
    event: Event


@dataclass(frozen=True)
class Stack:
    """A running Hourmark stack on this machine for tests, without passwords or TLS.

    Attributes:
        kafka: Bootstrap servers of the cluster that services write to.
        service_url: URL of the Event Delivery Service; see docs/reference/http-api.md.
        registry_url: URL of the schema registry, with Confluent's API.
        run: Function that runs a command in the container and returns its output. The path of
            `hourmark` in the container is /opt/hourmark/hourmark.
        clock: The clock for time limits.
    """

    kafka: str
    service_url: str
    registry_url: str
    run: Callable[..., str]
    clock: Clock = field(default_factory=SystemClock)
    _read: dict[tuple[str, str], list[Event]] = field(
        default_factory=dict
    )  # closed buckets never change

    def post(self, event_type: str, *events: Event) -> Posted:
        """Post events to the delivery service, and wait until it acknowledges them.

        The request is retried for 60 s. Retries create no duplicates.

        Args:
            event_type: Name of the event type.
            events: The events, with values by field name. A missing `event_time` is set to the
                current time, and a missing `event_id` to a random id.

        Returns:
            The ids of the events, for `wait_for`.

        Raises:
            Finding: An event is invalid and was stored as a dead letter, or the service rejects the
                request.
            Unavailable: The service did not accept the events in time.
        """
        now_ms = self.clock.now_ms()
        named = [{"event_time": now_ms, "event_id": str(uuid.uuid4()), **event} for event in events]
        answer = self._post_until_acknowledged(
            event_type, "\n".join(map(json.dumps, named)).encode(), now_ms
        )
        if answer["dead_letters"]:
            raise Finding(
                f"some of {len(events)} events of {event_type} became dead letters: "
                f"{answer['dead_letter_reasons']}; compare them with the type's declaration "
                "(docs/reference/dead-letter-reasons.md)"
            )
        ids = (
            client_event_id(_milliseconds(event["event_time"]), event_type, event["event_id"])
            for event in named
        )
        return Posted(event_type, tuple(map(str, ids)))

    def write(self, *lines: str, source: str = "app") -> None:
        """Append lines to the log file of a source, which the File Tailer of the stack follows.

        The function returns before the lines are sent. Use `wait_until` to wait for their events.

        Args:
            lines: Lines without line feeds.
            source: Name of a log source that is declared in the stack's types.

        Raises:
            Unavailable: The lines could not be written.
        """
        self.run("sh", "-c", _APPEND, f"/var/log/app/{source}.log", *lines)

    def closed(self, event_type: str) -> list[str]:
        """Return the hours of an event type's closed buckets that contain events.

        Args:
            event_type: Name of the event type.

        Returns:
            Hours such as 2026-11-21T05:07, oldest first. Empty if no bucket with events is closed.

        Raises:
            Unavailable: The command `hourmark bucket ls` failed in the container.
        """
        rows = self.hourmark("bucket", "ls", event_type)
        return sorted(row["hour"] for row in rows if row["state"] == "closed" and row["events"])

    def read(self, event_type: str, bucket: str) -> list[Event]:
        """Return all events of a closed bucket.

        The events of a bucket are read once and then cached, because closed buckets do not change.

        Args:
            event_type: Name of the event type.
            bucket: The hour of the bucket, such as 2026-11-21T05:07.

        Returns:
            Events as printed by `hourmark bucket cat --json`.

        Raises:
            Unavailable: The bucket does not exist or cannot be read.
        """
        key = event_type, bucket
        if key not in self._read:
            lines = self.run(
                _HOURMARK, "bucket", "cat", event_type, bucket, "--json", "--config", _CONFIG
            ).splitlines()
            self._read[key] = list(map(json.loads, lines))
        return self._read[key]

    def wait_for(self, posted: Posted, seconds: float = CLOSED_S) -> list[Placed]:
        """Wait until all events of a `post` are in closed buckets.

        Each bucket covers one minute of event time and is closed after this minute.

        Args:
            posted: The result of `post`.
            seconds: Time limit in seconds.

        Returns:
            The events with their buckets, in posting order.

        Raises:
            Unavailable: The time limit was reached before all events were in closed buckets. The
                message states what the open buckets are waiting for.
        """
        ids = set(posted.ids)
        placed = self.wait_until(
            posted.event_type, lambda event: event["event_id"] in ids, len(ids), seconds
        )
        by_id = {one.event["event_id"]: one for one in placed}
        return [by_id[event_id] for event_id in posted.ids]

    def wait_until(
        self,
        event_type: str,
        wanted: Callable[[Event], bool],
        count: int = 1,
        seconds: float = CLOSED_S,
    ) -> list[Placed]:
        """Wait until closed buckets contain at least `count` events that satisfy a condition.

        Args:
            event_type: The type's name.
            wanted: Function that returns whether an event satisfies the condition.
            count: Minimum number of events.
            seconds: Time limit in seconds.

        Returns:
            All events that satisfy the condition, with their buckets.

        Raises:
            Unavailable: The time limit was reached first. The message states what the open buckets
                are waiting for.
        """
        until = self.clock.monotonic_s() + seconds
        while True:
            buckets = self.closed(event_type)
            found = [
                Placed(bucket, event)
                for bucket in buckets
                for event in self.read(event_type, bucket)
                if wanted(event)
            ]
            if len(found) >= count:
                return found
            if self.clock.monotonic_s() > until:
                raise Unavailable(
                    f"{len(found)} of {count} events of {event_type} in closed buckets "
                    f"after {seconds:g} s; {self._describe_open_buckets()}"
                )
            self.clock.sleep(_POLL_S)

    def hourmark(self, *arguments: str) -> Any:
        """Run a Hourmark command with the option `--json` in the container.

        Args:
            arguments: Name and arguments of the command, such as "dead-letters", "ls".

        Returns:
            The output of the command as parsed JSON.

        Raises:
            Unavailable: The command failed. The message contains the end of its output.
        """
        return json.loads(self.run(_HOURMARK, *arguments, "--json", "--config", _CONFIG))

    def _describe_open_buckets(self) -> str:
        waits = [
            f"{row['type']} {row['hour']}: {row['waits_for']}"
            for row in self.hourmark("bucket", "ls")
            if row["state"] != "closed"
        ]
        dead = self.run(_HOURMARK, "dead-letters", "ls", "--config", _CONFIG)
        return f"next buckets: {'; '.join(waits)}\n{dead}"

    def _post_until_acknowledged(self, event_type: str, body: bytes, now_ms: int) -> Any:
        headers = {"Idempotency-Key": str(uuid.uuid4()), "Hourmark-Observed-At": str(now_ms)}
        request = urllib.request.Request(  # noqa: S310
            f"{self.service_url}/v1/events/{event_type}", body, headers
        )
        until = self.clock.monotonic_s() + _POST_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                reason = error.read().decode(errors="replace")
                if error.code not in (429, 503):
                    raise Finding(
                        f"the service rejects events of {event_type}: {error.code} {reason}"
                    ) from error
            except OSError as error:
                reason = str(error)
            if self.clock.monotonic_s() > until:
                raise Unavailable(
                    f"the service accepted no events of {event_type} in {_POST_S:g} s: {reason}"
                )
            self.clock.sleep(_RETRY_S)


def _milliseconds(event_time: int | str) -> int:
    if isinstance(event_time, int):
        return event_time
    return (datetime.fromisoformat(event_time) - _EPOCH) // timedelta(milliseconds=1)
