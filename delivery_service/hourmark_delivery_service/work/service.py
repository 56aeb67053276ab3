"""The delivery service without its HTTP layer: admission of requests and delivery to the queue.

The delivery guarantee depends on the order of three steps: first all events and dead letters are on
all in-sync replicas, then the audit record, then the client gets its response. If a step fails,
nothing is acknowledged, and a retry produces the same records again.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.kafka.topic_names import AUDIT, HOSTS, event_type_of_topic, events_topic
from hourmark.records.host_reports import HostReport
from hourmark.records.ranges import ByteRange
from hourmark.records.wire import OBSERVED_AT_HEADER, TOPIC_UNAVAILABLE
from hourmark_delivery_service.access.grants import AccessControl
from hourmark_delivery_service.errors import QueueError, ServiceUnavailable, TopicUnavailable
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import TIME_MS_END, Batch, CompiledRules, Parser, Slice
from hourmark_delivery_service.queue.port import Queue
from hourmark_delivery_service.work.body import BodyReader
from hourmark_delivery_service.work.duplicates import RequestCoalescer, SharedWork
from hourmark_delivery_service.work.framing import Framing
from hourmark_delivery_service.work.inflight import InflightRequest, InflightRequests
from hourmark_delivery_service.work.missing_topics import MissingTopics
from hourmark_delivery_service.work.peer import ClientPeer
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_delivery_service.work.turns import Job
from hourmark_delivery_service.work.workers import (
    LONG_BYTES,
    LONG_RECORDS,
    FairExecutor,
    has_long_line,
    is_large,
)

P = TypeVar("P", bound=Parser)

AHEAD_MS_MAX: Final = 15 * 60_000  # how far `observed_at` may be ahead of this service's clock
OBSERVED_AT_MS_MIN: Final = (
    946_684_800_000  # 2000-01-01: seconds, taken for milliseconds, lie before it
)
_APPEND_RECORDS: Final = 4096  # given to the queue at once: a usual range is one append
_APPEND_BYTES: Final = 4 << 20
# what a parser keeps of each record for the audit, as measured; a short line has far fewer itself
_RECORD_BYTES: Final = 176


def check_observed_at(observed_at_ms: int) -> None:
    """Check that an observation time is plausible as Unix milliseconds.

    The check rejects times in other units, such as seconds. It does not limit the age of the data.

    Args:
        observed_at_ms: Observation time of the data.

    Raises:
        ValueError: If the time is before the year 2000 or after 8999.
    """
    if not OBSERVED_AT_MS_MIN <= observed_at_ms < TIME_MS_END:
        raise ValueError(f"{OBSERVED_AT_HEADER} must be Unix milliseconds, from 2000 to 8999")


def _parsing_bytes(records: int, body: bytes) -> int:
    # What a parser keeps of short lines beyond the memory that their body has reserved.
    return max(0, records * _RECORD_BYTES - len(body))


def clock_problem(now_ms: int) -> str:
    """Return the reason why a clock reading is not plausible, or an empty string if it is.

    A reading is plausible if it is in the years 2000 to 8999. Tailers copy the service's time into
    their requests, and the service rejects requests with an implausible time.

    Args:
        now_ms: Clock reading in Unix milliseconds.
    """
    try:
        check_observed_at(now_ms)
    except ValueError:
        return (
            f"this machine's clock shows {now_ms} ms, which is outside the years 2000 to 8999; "
            "correct the clock"
        )
    return ""


class DeliveryService:
    """The core of one service process: it admits requests, parses bodies and delivers records.

    All HTTP endpoints share one instance in one event loop.

    A host report states the time up to which the service has answered all requests. An audit record
    contains the event counts of one byte range of a file.

    Args:
        config: Configuration with the group `service`.
        clock: Source of the current time.
        queue: Durable queue for the records.
        rules: Declared event types and sources, as read from Kafka.
        metrics: Prometheus metrics of this process.

    Attributes:
        framing: Prefixes with schema ids for audit records and host reports. None until the schema
            registry has returned the ids.
        framing_error: Reason why the schema ids are not known yet, or an empty string.
        first_report_sent: Whether the first host report of this process is in the queue. Until
            then, no events are accepted, because hours could be closed without them.
        missing_topics: Creates missing topics of event types. None if this service must not create
            topics.
    """

    def __init__(
        self, config: Config, clock: Clock, queue: Queue, rules: RulesStore, metrics: ServiceMetrics
    ) -> None:
        self.settings = config.service
        self.clock = clock
        self.queue = queue
        self.rules = rules
        self.metrics = metrics
        self.inflight = InflightRequests(clock, config.service.inflight_bytes_max, metrics)
        self.access = AccessControl(clock, metrics, required=config.service.tokens_required)
        self.framing: Framing | None = None  # known once the registry has answered
        self.framing_error = ""  # why it is not known
        self.first_report_sent = (
            False  # whether this incarnation's first report is in the queue: it precedes all events
        )
        self.missing_topics: MissingTopics | None = None  # creates them, where it may
        self.executor = FairExecutor()
        self.bodies = BodyReader(self.inflight, self.executor, self.settings.body_seconds)
        self._twins: RequestCoalescer[Parser] = RequestCoalescer()

    def check_accepting(self) -> None:
        """Check that the service can accept events now.

        The service can accept events if its clock is plausible, the declared event types are known,
        the schema ids were found, the tokens were read, and the first host report was sent.

        Raises:
            ServiceUnavailable: If the service is not ready. The message lists all reasons. The
                client should retry.
        """
        if waits := self._waits(lacks_framing=self.framing is None):
            raise ServiceUnavailable("not_ready", "; ".join(waits))

    def not_ready_reasons(self) -> list[str]:
        """Return the reasons why the service currently cannot accept all valid requests.

        A request may still be accepted if a reason concerns only other rules revisions (versions of
        the declared event types). Use `check_accepting` to decide about a request.

        Returns:
            Messages for the operator, or an empty list if the service is ready.
        """
        return self._waits(lacks_framing=self.lacks_framing())

    def _waits(self, *, lacks_framing: bool) -> list[str]:
        clock = clock_problem(self.clock.now_ms())
        return [
            text
            for missing, text in (
                (bool(clock), clock),
                (
                    not self.rules.caught_up,
                    f"the rules topic has not been read to its end yet{self.rules.read_error}",
                ),
                (self.rules.caught_up and self.rules.latest is None, self.rules.not_ready_reason()),
                (
                    lacks_framing,
                    f"the schema ids of audit records are unknown so far{self.framing_error}",
                ),
                (
                    not self.first_report_sent,
                    "the service's first host report has not been stored in Kafka yet",
                ),
            )
            if missing
        ] + self.access.not_ready_reasons()

    def lacks_framing(self) -> bool:
        """Return whether schema ids for audit records or host reports are still missing.

        The ids are looked up in the schema registry in the background. Until they are found,
        requests that need them are rejected.
        """
        return self.framing is None or not self.rules.counting_blanks <= self.framing.audit.keys()

    def set_framing_error(self, error: str) -> None:
        """Record why the lookup of schema ids for audit records and host reports failed.

        The reason is appended to a message of `not_ready_reasons`.

        Args:
            error: Reason, which must start with a colon and a space.
        """
        self.framing_error = error

    def check_range_clock(self, observed_at_ms: int) -> None:
        """Check that the observation time of a byte range is not too far ahead of the current time.

        The observation time is the time at which a tailer read the range, according to the clock of
        a delivery service. It cannot be corrected later, because event ids depend on it. Therefore,
        a limited difference is accepted.

        Args:
            observed_at_ms: Observation time of the range, in Unix milliseconds.

        Raises:
            ServiceUnavailable: If the time is more than `service.range_ahead_seconds` ahead. The
                client should retry after 10 seconds.
        """
        ahead_s = (observed_at_ms - self.clock.now_ms()) / 1000
        if ahead_s > self.settings.range_ahead_seconds:
            message = (
                f"the range was stamped by a clock that is {ahead_s:.0f} s ahead of this "
                "service's; if this service's clock is right, raise service.range_ahead_seconds "
                "above this value until these ranges are delivered"
            )
            raise ServiceUnavailable("clock_behind", message, retry_after_s=10)

    def check_clock(self, observed_at_ms: int) -> None:
        """Check that this service's clock is not far behind the time of a batch of events.

        Args:
            observed_at_ms: Time of the batch in Unix milliseconds, according to the client.

        Raises:
            ServiceUnavailable: If the clock is more than 15 minutes behind. The client should retry
                after 10 seconds.
        """
        behind_ms = observed_at_ms - self.clock.now_ms()
        if behind_ms > AHEAD_MS_MAX:
            message = (
                f"this service's clock is {behind_ms} ms behind the time in the request or its key"
            )
            raise ServiceUnavailable("clock_behind", message, retry_after_s=10)

    def rules_for(self, revision: str) -> CompiledRules:
        """Return a rules revision, compiled for parsing.

        A rules revision is one version of the declared event types and sources.

        Args:
            revision: Id of the revision, as in the request.

        Raises:
            ServiceUnavailable: If the revision is unknown or cannot be used, or if the schema id of
                its audit records is not known yet. Requests with other revisions are not affected.
        """
        rules = self.rules.get(revision)
        if rules is None:
            raise ServiceUnavailable("rules_unknown", self.rules.unavailable_reason(revision))
        if self.framing is None or rules.parser.counts_blanks not in self.framing.audit:
            raise ServiceUnavailable(
                "not_ready",
                f"the schema ids of audit records are unknown so far{self.framing_error}",
            )
        return rules

    async def deliver(
        self,
        key: ByteRange | Batch,
        parser: P,
        body: bytes,
        request: InflightRequest,
        peer: ClientPeer,
    ) -> P:
        """Parse a request body, and append its records and then its audit record to the queue.

        The call returns once all in-sync replicas have the records. The request can then be
        acknowledged. If an identical request is already being delivered, the call waits for the
        result of that delivery.

        Args:
            key: Byte range or batch of the body.
            parser: Parser of the body. It is not used if an identical request is being delivered.
            body: Decompressed request body.
            request: In-flight entry of the request, which accounts for its memory.
            peer: Client that waits for the result.

        Returns:
            The parser that performed the delivery, with its counts of events and dead letters
            (records of invalid lines).

        Raises:
            ServiceUnavailable: If the queue did not store all records, or if there is not enough
                memory. The request must then not be acknowledged.
            ClientDisconnect: If the client disconnects before the delivery is complete.
        """
        done = await self._twins.join(
            key, body, lambda work: self._work(work, parser, body, request), peer
        )
        assert isinstance(done, type(parser)), "the same was sent"
        return done

    async def _work(
        self, work: SharedWork[Parser], parser: Parser, body: bytes, request: InflightRequest
    ) -> Parser:
        with self.inflight.transfer(request) as held:
            records = parser.max_records(body)
            async with self.executor.admit(records):
                if not is_large(records):  # one large one at a time needs no other bound
                    self.inflight.reserve(held, _parsing_bytes(records, body))
                await self._deliver(work, parser, body, held)
            return parser

    async def _deliver(
        self, work: SharedWork[Parser], parser: Parser, body: bytes, held: InflightRequest
    ) -> None:
        try:
            await self._append_all(work, parser, body, held)
            work.must_finish = True
            assert self.framing is not None, "check_accepting comes first"
            records = parser.event_count + parser.dead_letter_count
            audit = (
                await self.executor.run_in_thread(Job(), parser.audit)
                if records > LONG_RECORDS
                else parser.audit()
            )
            assert audit.lines == parser.event_count + parser.dead_letter_count + parser.blanks, (
                "each line is one of the three"
            )
            value = self.framing.audit[audit.blanks is not None] + audit.encode(
                with_checksums=self.framing.has_checksums
            )
            await self.queue.append({AUDIT: [{"key": audit.range_id, "value": value}]})
        except TopicUnavailable as error:
            raise self._topic_unavailable(error) from error
        except QueueError as error:
            raise ServiceUnavailable("queue", f"nothing was acknowledged: {error}") from error
        for event_type, count in parser.events.items():
            self.metrics.events.labels(event_type).inc(count)
        for (claimed_type, reason), count in parser.refused.items():
            self.metrics.count_dead_letters(claimed_type, parser.declared_source, reason, count)
        self.metrics.blank_lines.inc(parser.blanks)
        self.metrics.received_bytes.inc(len(body))

    def _topic_unavailable(self, error: TopicUnavailable) -> ServiceUnavailable:
        event_type = event_type_of_topic(error.topic)
        message = f"nothing was acknowledged: {error}"
        if self.missing_topics is not None and error.is_missing and event_type is not None:
            self.missing_topics.report(event_type)
            if why := self.missing_topics.creation_error(event_type):
                message += f"; this service could not create it: {why}"
        return ServiceUnavailable(TOPIC_UNAVAILABLE, message)

    async def append_report(self, report: HostReport) -> None:
        """Append a host report to the queue and count it in the metrics.

        A host report states the time up to which a host has sent all its data. The call returns
        once all in-sync replicas have stored the report.

        Args:
            report: Report of a tailer or of this service, with its time of receipt.

        Raises:
            QueueError: If the queue did not store the report.
            ServiceUnavailable: If the schema id of host reports is not known yet.
        """
        if self.framing is None:
            raise ServiceUnavailable(
                "not_ready",
                f"the schema ids of audit records are unknown so far{self.framing_error}",
            )
        value = self.framing.hosts + report.encode(
            with_unknown_losses=self.framing.with_unknown_losses
        )
        await self.queue.append({HOSTS: [{"key": report.host_id.encode(), "value": value}]})
        self.metrics.reports.labels(report.kind).inc()

    async def _append_all(
        self, work: SharedWork[Parser], parser: Parser, body: bytes, held: InflightRequest
    ) -> None:
        # Memory is reserved if values are larger than the body, because omitted fields take their
        # defaults.
        slices, job, turn = parser.slices(), Job(), self._turns_for(parser, body)
        waiting, counted = Slice(), len(body)
        while True:
            part = await turn(job, functools.partial(next, slices, None))
            if part is None:
                break
            waiting.merge(part)
            if waiting.size > counted:
                self.inflight.reserve(held, waiting.size - counted)
                counted = waiting.size
            if waiting.count >= _APPEND_RECORDS or waiting.size >= _APPEND_BYTES:
                await self._append(work, waiting)
                waiting = Slice()
        if waiting.count:
            await self._append(work, waiting)

    async def parse_only(self, parser: Parser, body: bytes, peer: ClientPeer) -> None:
        """Parse a request body without delivering it, to find its invalid events.

        Args:
            parser: Parser of the body. It stores the counts and the rejected events.
            body: Decompressed request body.
            peer: Client that waits for the result.

        Raises:
            ServiceUnavailable: If the body is large and too many large requests are waiting.
            ClientDisconnect: If the client disconnects first.
        """
        async with self.executor.admit(parser.max_records(body)):
            slices, job, turn = parser.slices(), Job(), self._turns_for(parser, body)
            while await turn(job, functools.partial(next, slices, None)) is not None:
                peer.check_connected()

    async def validate(
        self, parser: Parser, body: bytes, request: InflightRequest, peer: ClientPeer
    ) -> None:
        """Parse a request body with the limits of `deliver`, but append nothing to the queue.

        Args:
            parser: Parser of the body. It stores the counts and the rejected events.
            body: Decompressed request body.
            request: In-flight entry of the request, which accounts for its memory.
            peer: Client that waits for the result.

        Raises:
            ServiceUnavailable: If there is not enough memory, or if the body is large and too many
                large requests are waiting.
            ClientDisconnect: If the client disconnects first.
        """
        records = parser.max_records(body)
        if not is_large(records):
            self.inflight.reserve(request, _parsing_bytes(records, body))
        await self.parse_only(parser, body, peer)

    def _turns_for(
        self, parser: Parser, body: bytes
    ) -> Callable[[Job, Callable[[], Slice | None]], Awaitable[Slice | None]]:
        is_long = has_long_line(body) or (parser.joins_lines and len(body) > LONG_BYTES)
        return self.executor.run_in_thread if is_long else self.executor.run_in_loop

    async def _append(self, work: SharedWork[Parser], some: Slice) -> None:
        work.must_finish = True
        await self.queue.append(
            {events_topic(event_type): messages for event_type, messages in some.messages.items()}
        )
