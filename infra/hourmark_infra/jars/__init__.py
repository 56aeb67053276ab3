"""The servers' jars, locked by coordinate and SHA-256 digest and kept in a user cache.

No network is needed once the cache is complete. Reading order: `tools/jar_sets.py` (required
artifacts), `lockfile` (the exact files), `cache` (download and verification), `ivy` (the
downloader). To change a version, edit `tools/jar_sets.py`, run `python -m tools.lock_jars` and
commit `jars.lock`.
"""

from __future__ import annotations

from hourmark_infra.jars.cache import ensure

__all__ = ["ensure"]
