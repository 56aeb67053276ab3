"""One HTTP client for all tests, because creating one reads the machine's certificates: 40 ms of CPU
time, which `httpx.get` spends on each call.

Each request opens a new connection, because tests kill and restart servers.
"""

from __future__ import annotations

from typing import Final

import httpx

HTTP: Final = httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
