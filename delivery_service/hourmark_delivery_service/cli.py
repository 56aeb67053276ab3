"""The command `hourmark serve`."""

from __future__ import annotations

import click

from hourmark.config.groups import Port
from hourmark.config.loading import Config, config_option, given_config_file, load_config
from hourmark.log import set_up_logging


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on, instead of service.port; 0 selects a free port.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Number of worker processes that share the port, instead of service.workers.",
)
@config_option
def serve(config: Config, port: Port | None, workers: int | None) -> None:
    """Run the event delivery service, which accepts events over HTTP and stores them in Kafka.

    The service acknowledges data after Kafka has stored it. When it starts, it prints its URL. By
    default, it listens on the loopback address. Any other address requires TLS, and tokens or
    client certificates.

    On SIGTERM, the service answers all requests in flight and exits. On SIGHUP, it reloads the
    certificates. If it has several workers, it instead replaces them one by one with workers that
    use the current configuration.

    \b
    Examples:
      hourmark serve
      hourmark serve --config hourmark.toml --port 0
      hourmark serve --workers 4
    """
    from hourmark_delivery_service.process.server import run  # Kafka's client is loaded only now

    set_up_logging(config.log_level)
    file = given_config_file()
    given = {
        name: value for name, value in (("port", port), ("workers", workers)) if value is not None
    }

    def with_options(config: Config) -> Config:
        return config.model_copy(update={"service": config.service.model_copy(update=given)})

    run(with_options(config), click.echo, lambda: with_options(load_config(file)))
