"""What a process and all it started have used: CPU seconds, reaped children included, and memory."""

from __future__ import annotations

import psutil


def cpu_seconds(pid: int) -> float:
    """User and system seconds of the process and of all below it, alive or ended and waited for.

    A child that ends between two looks moves from its own figures to its parent's, so nothing is lost or counted twice.
    """
    return sum(sum(process.cpu_times()[:4]) for process in _tree(pid))


def memory_mb(pid: int) -> float:
    """Proportional memory of the tree: pages that forked workers share count once."""
    total = 0.0
    for process in _tree(pid):
        try:
            total += process.memory_full_info().pss / 1e6
        except psutil.Error:
            continue  # it has just ended
    return total


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [p for p in (root, *root.children(recursive=True)) if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
