"""A producer that sends at a given rate in its own thread. A trial never restarts it.

Its settings are those of the delivery service's producer
(`hourmark_delivery_service/queue/kafka_queue.py`) except for the delivery timeout. The timeout is
longer than any outage of a trial, so that the trial shows whether the client recovers. The producer
never creates a topic: a deleted topic would otherwise appear again at the end of the trial.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from hourmark.clock import Clock
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import client_settings, librdkafka_logger
from hourmark_evaluate.accounting import Flags, Floats
from hourmark_evaluate.record_format import RecordFormat, RecordPlacement

TICK_S: Final = 0.01
MAX_DELAY_S: Final = 0.2
IN_FLIGHT_MAX: Final = 400_000  # limit on unacknowledged records, like the delivery service's

Rate = Callable[[float], float]  # seconds since the load started -> events per second


def constant_rate(rate: float) -> Rate:
    """Return a load curve that has the same rate at all times.

    Args:
        rate: Events per second.

    Returns:
        A function that takes the seconds since the start and returns `rate`.
    """
    return lambda _: rate


class LoadProducer:
    """A Kafka producer that sends numbered records at a given rate from its own thread.

    While the thread runs, other threads may use only `sent`, `acknowledged`, `now_s` and
    `has_recovered_since`. The other results are valid after `stop`.

    Args:
        cluster: Connection settings.
        record_format: Format of the records.
        placement: The topic and partition of each record.
        rate: Events per second as a function of the seconds since the start.
        clock: Source of time.
        delivery_timeout_s: Delivery timeout of a record, in seconds.

    Attributes:
        placement: The topic and partition of each record.
        fatal_error: Message of the error that stopped the producer permanently; "" if none did.
        first_error: Error message of the first record that failed; "" if none failed.
        acknowledged: Number of records acknowledged so far.
        began_s: Monotonic time of the start, in seconds.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        record_format: RecordFormat,
        placement: RecordPlacement,
        rate: Rate,
        clock: Clock,
        delivery_timeout_s: float,
    ) -> None:
        self.placement = placement
        self.fatal_error = ""
        self.first_error = ""
        self.acknowledged = 0
        self._format, self._rate, self._clock, self._delivery_s = (
            record_format,
            rate,
            clock,
            delivery_timeout_s,
        )
        settings = client_settings(
            cluster, delivery_timeout_ms=int(delivery_timeout_s * 1000), **_SETTINGS
        )
        self._producer = Producer(
            {**settings, "error_cb": self._on_error}, logger=librdkafka_logger()
        )
        self._sent_s, self._answered_s, self._flags = array("d"), array("d"), bytearray()
        self._first_open = 0
        self._newest_s = -1.0  # send time of the newest acknowledged record
        self._stopping, self._aborted = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.began_s = clock.monotonic_s()

    def start(self) -> None:
        """Start the thread that sends records. Call this method only once."""
        self.began_s = self._clock.monotonic_s()
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait until each record is acknowledged or has failed.

        The wait ends after the delivery timeout at the latest. Further calls have no effect.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def abort(self) -> None:
        """Stop sending at once, discard unacknowledged records, and wait for the thread to end."""
        self._aborted = True
        self.stop()

    @property
    def now_s(self) -> float:
        """Seconds since the load started, on the monotonic clock."""
        return self._clock.monotonic_s() - self.began_s

    @property
    def sent(self) -> int:
        """Number of records that were passed to the Kafka client, acknowledged or not."""
        return len(self._flags)

    def has_recovered_since(self, since_s: float) -> bool:
        """Return whether the load has recovered from a fault that ended at a given time.

        Args:
            since_s: End of the fault, in seconds since the start of the load.

        Returns:
            True if every record sent before `since_s` was acknowledged or has failed, and at least
            one record sent since then was acknowledged.
        """
        while (
            self._first_open < self.sent
            and self._answered_s[self._first_open] == self._answered_s[self._first_open]
        ):
            self._first_open += 1
        open_s = self._sent_s[self._first_open] if self._first_open < self.sent else since_s
        return open_s >= since_s and self._newest_s >= since_s

    def outcome_arrays(self) -> tuple[Floats, Floats, Flags]:
        """Return the times and outcomes of all records, as three arrays indexed by record number.

        Returns:
            In this order: send time, in seconds since the start of the load; time at which the
            record was acknowledged or failed (NaN if neither happened); whether it was
            acknowledged.
        """
        sent = self.sent
        return (
            np.array(self._sent_s[:sent]),
            np.array(self._answered_s[:sent]),
            np.frombuffer(bytes(self._flags[:sent]), dtype=np.uint8).astype(np.bool_),
        )

    def _run(self) -> None:
        before_s, due = self.now_s, 0.0
        while not self._stopping.is_set() and not self.fatal_error:
            now_s = self.now_s
            rate = self._rate(now_s)
            # Records missed for longer than LATE_S are not sent later. A slow load always keeps one
            # record due.
            due = min(due + (now_s - before_s) * rate, max(1.0, rate * MAX_DELAY_S))
            before_s = now_s
            while due >= 1.0 and self._producer_accepts():
                self._send(now_s)
                due -= 1.0
            self._producer.poll(TICK_S)
        until_s = self.now_s + self._delivery_s
        while (
            len(self._producer) and self.now_s < until_s and not (self.fatal_error or self._aborted)
        ):
            self._producer.flush(0.2)
        self._producer.purge()
        self._producer.flush(1.0)

    def _producer_accepts(self) -> bool:
        return len(self._producer) < IN_FLIGHT_MAX

    def _send(self, now_s: float) -> None:
        number = self.sent
        topic, partition = self.placement.assign(number)
        self._sent_s.append(now_s)
        self._answered_s.append(float("nan"))
        self._flags.append(0)
        try:
            self._producer.produce(
                topic,
                self._format.encode(number),
                partition=partition,
                on_delivery=partial(self._on_delivery, number),
            )
        except (
            BufferError,
            KafkaException,
        ) as error:  # the producer did not accept it: it failed at once
            self._answered_s[number] = now_s
            self.first_error = self.first_error or str(error)
            if isinstance(error, KafkaException) and error.args[0].fatal():
                self.fatal_error = str(error)
        if number % 500 == 0:
            self._producer.poll(0)

    def _on_delivery(self, number: int, error: KafkaError | None, _: Any) -> None:
        self._answered_s[number] = self.now_s
        if error is None:
            self._flags[number] = 1
            self.acknowledged += 1
            self._newest_s = max(self._newest_s, self._sent_s[number])
            return
        self.first_error = self.first_error or error.str()
        if error.fatal():
            self.fatal_error = str(error)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:
            self.fatal_error = str(error)


_SETTINGS: Final[dict[str, Any]] = {
    "acks": "all",
    "enable_idempotence": True,
    "compression_type": "lz4",
    "linger_ms": 5,
    "queue_buffering_max_messages": 500_000,
    "queue_buffering_max_kbytes": 512 * 1024,
    "allow_auto_create_topics": False,
    "request_timeout_ms": 10_000,
    "reconnect_backoff_max_ms": 1000,
    "topic_metadata_refresh_interval_ms": 60_000,
}
