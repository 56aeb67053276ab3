"""`hourmark canary run`: posts one event per minute, exactly once, through the delivery service.

It uses the tailer's settings for services, token and TLS.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading

import click

from hourmark.clock import Clock, SystemClock
from hourmark.commands.canary import CANARY, INTERVAL_S, PATIENCE_S
from hourmark.config.loading import Config, config_option
from hourmark.errors import HourmarkError
from hourmark.log import set_up_logging
from hourmark.process.stopping import stop_on_signals
from hourmark_producer.report.metrics import render_canary_metrics
from hourmark_producer.report.probes import serve_probes
from hourmark_producer.send.client import DeliveryServiceClient, NoServiceAvailable, RequestRefused

_LOG = logging.getLogger(__name__)

RETRY_S = 5.0


class CanaryPoster:
    """Posts canary events, and repeats each event until a delivery service acknowledges it.

    A canary event is a test event with the current time. `hourmark canary check` follows it through
    the system. A repeated event has the same id and time, so it does not create a duplicate. Not
    thread-safe.

    Args:
        client: Client for the delivery services.
        site: Value of the field `site` of each event, and prefix of its event id.
        clock: Clock of this host.
    """

    def __init__(self, client: DeliveryServiceClient, site: str, clock: Clock) -> None:
        self._client, self._site, self._clock = client, site, clock
        self._steady_s = (
            clock.monotonic_s()
        )  # when the latest event was acknowledged, or of the start
        self._acknowledged_ms = 0
        self._body: bytes | None = None  # the event that is not acknowledged yet
        self._failed = False

    def post(self) -> bool:
        """Post the current event once.

        If no service acknowledges the event, the next call posts the same event again. Failures are
        not raised. The first of several consecutive failures is logged.

        Returns:
            True if a service acknowledged the event. False if no service acknowledged it, or if it
            was stored as a dead letter (an invalid event). After a dead letter, the next call posts
            a new event.
        """
        try:
            if self._body is None:
                self._body = self._event(self._client.current_reading().clock_ms)
            response = self._client.post_events(CANARY, self._body)
        except (NoServiceAvailable, RequestRefused) as error:
            return self._log_failure(error)
        sent, self._body = self._body, None
        if letters := response.get("dead_letters"):
            _LOG.error(
                "the canary became a dead letter (%s): check the declaration of %s",
                response,
                CANARY,
            )
        else:
            self._steady_s, self._acknowledged_ms = self._clock.monotonic_s(), self._clock.now_ms()
            _LOG.info("acknowledged: %s", sent.decode())
            if self._failed:
                _LOG.warning("canaries are acknowledged again")
        self._failed = bool(letters)
        return not letters

    def render_metrics(self) -> bytes:
        """Return the body of the response to `/metrics`, in the Prometheus text format."""
        return render_canary_metrics(self._acknowledged_ms / 1000)

    def unhealthy_reasons(self) -> list[str]:
        """Return the reason why the poster is unhealthy.

        It is unhealthy if no event was acknowledged for more than `PATIENCE_S` seconds. The time is
        measured from the latest acknowledgement, or from the creation of this object.

        Returns:
            A list with one message; empty if the poster is healthy.
        """
        silent_s = self._clock.monotonic_s() - self._steady_s
        return [f"no canary was acknowledged for {silent_s:.0f} s"] if silent_s > PATIENCE_S else []

    def _event(self, now_ms: int) -> bytes:
        return json.dumps(
            {
                "event_id": f"{self._site}/{now_ms}",
                "event_time": now_ms,
                "site": self._site,
                "sent_at": now_ms,
            }
        ).encode()

    def _log_failure(self, error: HourmarkError) -> bool:
        if not self._failed:
            _LOG.error("no canary is acknowledged: %s", error)
        self._failed = True
        return False


@click.command()
@config_option
@click.option("--site", help="Value of the field site in the events. Default: kafka.edge_alias.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port for /metrics and /healthz; with 0, neither is served.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="Address for --metrics-port; there is no authentication.",
)
def run(config: Config, site: str | None, metrics_port: int, metrics_host: str) -> None:
    """Post one event of the type hourmark-canary per minute, until SIGTERM.

    The command sends the events to the services in tailer.service_urls, with tailer.token_file and
    tailer.tls. Run it on a separate host, as you would run a tailer. It stores no state on disk. To
    find out how far the latest event has been processed, use `hourmark canary check`.

    \b
    Example:
      hourmark canary run --config /etc/hourmark/hourmark.toml
    """
    set_up_logging(config.log_level)
    clock, stopping = SystemClock(), threading.Event()
    stop_on_signals(lambda _: stopping.set())
    with contextlib.closing(DeliveryServiceClient(config.tailer, clock)) as link:
        posting = CanaryPoster(link, site or config.kafka.edge_alias, clock)
        with serve_probes(posting, metrics_host, metrics_port, "--metrics-port"):
            while not stopping.is_set():
                began_s = clock.monotonic_s()
                pause_s = INTERVAL_S if posting.post() else RETRY_S
                stopping.wait(max(0.0, began_s + pause_s - clock.monotonic_s()))
