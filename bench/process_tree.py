"""CPU time and memory of a process and all its descendants, including those that have exited."""

from __future__ import annotations

import threading

import psutil

SAMPLE_S = 0.1
_LOOKS_PER_MEMORY = 10  # asking for memory costs more than asking for times


class ProcessTree:
    """A monitor of the process tree below a process.

    PySpark's daemon does not wait for exited workers, so the system does not add their CPU time to
    any other process; the tree is therefore sampled from its start on. The CPU time of a process
    after its last sample, a twentieth of a second on average, is missed.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._used: dict[tuple[int, float], float] = {}  # by process id and start
        self._kinds: dict[tuple[int, float], str] = {}
        self._memory_mb_peak = 0.0
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu_seconds(self) -> float:
        """Return user and system seconds of every process that was observed in the tree so far."""
        self._look()
        with self._guard:
            return sum(self._used.values())

    def cpu_by_kind(self) -> dict[str, float]:
        """Return CPU seconds by kind: driver (the root process), jvm, workers (all others)."""
        self._look()
        found = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
        with self._guard:
            for key, used in self._used.items():
                found[self._kinds[key]] += used
        return found

    def memory_mb_peak(self) -> float:
        """Return the peak memory since the last call in megabytes, sampled once a second.

        It is the proportional set size, so pages that workers share are counted once.
        """
        peak = max(self._memory_mb_peak, self._memory_mb())
        self._memory_mb_peak = 0.0
        return peak

    def close(self) -> None:
        """Stop monitoring."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        while not self._over.wait(SAMPLE_S):
            self._look()
            looks += 1
            if not looks % _LOOKS_PER_MEMORY:
                self._memory_mb_peak = max(self._memory_mb_peak, self._memory_mb())

    def _look(self) -> None:
        for process in self._processes():
            try:
                times = process.cpu_times()
                key = (process.pid, process.create_time())
                kind = (
                    "driver"
                    if process == self._root
                    else "jvm"
                    if process.name() == "java"
                    else "workers"
                )
            except psutil.Error:
                continue
            with self._guard:
                self._kinds[key] = (
                    kind  # the last one: a process becomes another program after its start
                )
                self._used[key] = max(self._used.get(key, 0.0), times.user + times.system)

    def _memory_mb(self) -> float:
        total = 0.0
        for process in self._processes():
            try:
                total += process.memory_full_info().pss / 1e6
            except psutil.Error:
                continue  # it has just ended
        return total

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []
