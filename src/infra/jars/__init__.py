"""The servers' and Spark's jars: locked by coordinate and SHA-256, kept in a user cache, offline once complete.

A reader's path: `sets` (what is wanted) → `lockfile` (exactly which files that is) → `cache` (getting them) → `ivy` (how).
To change a version: edit `sets`, then `python -m infra.jars.lock`, and commit `jars.lock`.
"""

from __future__ import annotations

from infra.jars.cache import ensure, jar_paths

__all__ = ["ensure", "jar_paths"]
