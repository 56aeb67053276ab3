"""The servers' jars: locked by coordinate and SHA-256, kept in a user cache, offline once complete.

A reader's path: `tools/jar_sets.py` (what is wanted) → `lockfile` (which files that is) → `cache`
(getting them) → `ivy` (how). To change a version: edit `tools/jar_sets.py`, then `python -m
tools.lock_jars`, and commit `jars.lock`.
"""

from __future__ import annotations

from hourmark_infra.jars.cache import ensure

__all__ = ["ensure"]
