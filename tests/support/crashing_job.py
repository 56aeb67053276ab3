"""`etl/job.py`, whose driver dies when a test orders it: what a test gives spark-submit instead."""

from __future__ import annotations

import os

from tests.support import crash

if __name__ == "__main__":
    os.environ[crash.DRIVER_VARIABLE] = str(os.getpid())
    from hourmark_etl.driver import main

    crash.install()
    main()
