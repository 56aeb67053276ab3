"""The real driver and real workers, which die when a test orders it: `python -m
tests.support.crashing_driver FILE`.

Its clock is off when a test orders that (`shifted_clock`); its workers' is not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support import crash, shifted_clock

from hourmark.config.loading import load_config
from hourmark.log import set_up_logging


def main(file: Path) -> None:
    """As `hourmark etl run --config FILE`."""
    os.environ[crash.DRIVER_VARIABLE] = str(os.getpid())
    from hourmark_etl.driver import run

    crash.install()
    if shifted_clock.OFFSET_VARIABLE in os.environ:
        shifted_clock.install()
    config = load_config(file)
    conf = {**config.etl.spark_conf, "spark.python.daemon.module": "tests.support.crashing_workers"}
    config = config.model_copy(update={"etl": config.etl.model_copy(update={"spark_conf": conf})})
    set_up_logging(config.log_level)
    run(config, submitted=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
