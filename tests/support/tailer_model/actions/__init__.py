"""What may happen to a log host, one thing at a time.

Each takes its choices from the world's generator.
"""

from tests.support.tailer_model.actions import (
    losing,
    receiving,
    rotation,
    running,
    services,
    writing,
)

__all__ = ["losing", "receiving", "rotation", "running", "services", "writing"]
