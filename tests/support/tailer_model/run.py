"""Many histories in the background: a line of JSON for each, and on with the next after a stop.

nice python -m tests.support.tailer_model.run FIRST_SEED COUNT LOG
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.tailer_model.histories import play, random_history
from tests.support.tailer_model.spawner import Spawner


def main(first: int, count: int, log: Path) -> int:
    """Play the histories of these seeds that the log does not have yet; return how many of all had
    findings.
    """
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    played, violations = {one["seed"] for one in known}, sum(bool(one["findings"]) for one in known)
    spawner = Spawner()
    try:
        for seed in range(first, first + count):
            if seed in played:
                continue
            folder = Path(tempfile.mkdtemp(prefix=f"histories-{seed}-"))
            world = play(random_history(random.Random(seed)), seed, folder, spawner)
            one = {"seed": seed, "findings": world.services.findings}
            if world.services.findings:  # its folder is kept
                violations += 1
                one |= {"done": world.done, "doubts": sorted(world.doubts), "folder": str(folder)}
            else:
                shutil.rmtree(folder)
            with log.open("a") as file:
                file.write(json.dumps(one) + "\n")
    finally:
        spawner.close()
    return violations


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
