"""The canary's own record of what it sent: its log."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from hourmark.commands.canary import CANARY

# Its type, in the judge's words.
EXPECTED: Final[dict[str, Any]] = {
    "content": "json",
    "fields": [{"name": "site", "type": "string"}, {"name": "sent_at", "type": "long"}],
}


def acknowledged(log: str) -> list[dict[str, Any]]:
    """As the judge is told what was posted."""
    sent = [json.loads(text) for text in re.findall(r"acknowledged: (\{.*\})", log)]
    return [
        {
            "type": CANARY,
            "client": "api",
            "position": 0,
            "event_id": event["event_id"],
            "time_ms": event["event_time"],
            "fields": {"site": event["site"], "sent_at": event["sent_at"]},
        }
        for event in sent
    ]
