"""`hourmark serve`."""

from __future__ import annotations

import click

from hourmark.config import Config, Port, config_option
from hourmark.log import set_up_logging


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here instead of service.port; 0 takes a free one.")
@config_option
def serve(config: Config, port: Port | None) -> None:
    """Run the Event Delivery Service: tailers and clients post to it, it acknowledges what Kafka holds.

    Listens on loopback, elsewhere only with TLS and tokens or clients' certificates, and prints its address; ends with SIGTERM,
    after everything under way is answered. SIGHUP reads certificates again.

    \b
    Examples:
      hourmark serve
      hourmark serve --config hourmark.toml --port 0
    """
    from hourmark_delivery_service.server import run  # Kafka's client is loaded only now

    set_up_logging(config.log_level)
    if port is not None:
        config = config.model_copy(update={"service": config.service.model_copy(update={"port": port})})
    run(config, click.echo)
