#!/usr/bin/env python3
"""An executable model of how Hourmark closes buckets, without servers: docs/internals/closing.md, as
arithmetic.

One type, hours are integers, logs are lists. Random histories of hosts, services, mirror, consumer,
closers, lost ledgers and damaged files run against it; the promise is checked at every bucket and
at the end. Change the rule here first.

    python tests/simulation/model/closing_model.py                 2,000 histories, prints what they covered
    python tests/simulation/model/closing_model.py --seed 17 -v    one history, step by step
    python tests/simulation/model/closing_model.py --break NAME    plants a fault in the design; must fail (--break list)
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.simulation.model.judge import World
from tests.simulation.model.parts import Broken

BREAKS = {
    "stage-into-frozen": "staging gives a group its bucket at once, also while that bucket is frozen",
    "no-cross-bucket": "late events are not looked up in closed buckets",
    "mirror-gap": (
        "source retention overtakes the mirror, which skips ahead, and nobody compares log starts"
    ),
    "zombie-closer": "publishing overwrites what is there",
    "cut-by-time": (
        "the closer does not wait until the ledger reaches the central ends taken after the mirror"
    ),
    "count-only": (
        "a mirror that drops and doubles, and a proof that counts rows instead of distinct "
        "ids with a digest"
    ),
    "no-proof": "the same mirror, and hours are closed when the offsets arrived",
    "recut-new-id": "a lost checkpoint makes new ids",
    "unknown-is-a-number": "a cluster that has no leader gives -1 as the end of the promises",
    "written-not-counted": (
        "a damaged staged file gives fewer rows, and nothing between proof and bucket "
        "compares their digest"
    ),
    "reseal-loses": "a sealed hour whose file is gone is written without it, under the grade that it had",
    "index-trusted": "a damaged index of a closed bucket's ids is believed",
    "older-copy-accepted": (
        "no bucket is compared with the ledger, so a copy is taken although one was closed since"
    ),
    "copy-of-replaced-ledger": "a copy from before a rebuild is taken, whose files were deleted since as nobody's",
    "rebuild-covers-below-marker": "a rebuild takes a marker's offsets to cover all below, later hours too",
    "rebuild-by-sequence": "a rebuild orders staged files by the numbers of their batches",
    "missing-file-passed-over": "a rebuild passes over promises that neither logs nor intact files hold",
    "unaudited-forgotten": "a rebuild forgets the unaudited rows of closed buckets",
    "needed-by-settled": (
        "a rebuild needs no promises below the last marker's, though they are of the "
        "frontier hour too"
    ),
    "needed-by-the-cut's-begin": (
        "a rebuild tells what a marker has read by when its cut began, though it read "
        "promises later"
    ),
    "no-margin-ahead": (
        "lost promises concern only hours that have begun, though a host's clock may be "
        "minutes ahead"
    ),
    "orphans-swept": (
        "staged files that the ledger does not know are deleted although its offsets lie "
        "before the logs"
    ),
    "back-fill-reopens": "back-fill begins at an older hour although later ones are closed",
    "skip-unlooked": "hours before the first one are skipped although they hold something",
    "promises-cleaned-early": (
        "promises are deleted once they are settled, though a rebuild may need them for the "
        "frontier hour"
    ),
}

# What happens beside the flow of events, one kind of history after the other: nothing; all; nothing
# that destroys; much.
FAULTS = (
    (),
    ("retention", "damage", "damage", "damage", "back_up", "restore", "lose_ledger", "clean"),
    ("retention", "back_up", "restore", "lose_ledger", "expire_and_lose", "clean"),
    ("retention", "damage", "disaster", "clean", "mirror_rests", "tick"),
)
GENTLE = 2
# More of what a fault needs to show.
MORE = {
    "older-copy-accepted": ("back_up", "restore", "restore"),
    "unaudited-forgotten": (
        "expire_and_lose",
        "clean",
        "stage",
        "stage",
        "close_step",
        "close_step",
    ),
    "orphans-swept": ("retention", "retention", "clean", "clean", "restore"),
    "promises-cleaned-early": ("retention", "retention", "clean", "clean", "lose_ledger"),
    "needed-by-settled": ("disaster", "tick"),
    "no-margin-ahead": ("disaster", "disaster", "tick"),
}


def promises_read_late(w: World) -> None:
    """A cut waits hours for the mirror, and so reads promises of hours after it began; then those,
    and their rows, are lost.
    """
    w.hour = 1
    w.close_step()
    w.hour = 3
    w.cut_range()
    while not all(x.acked for x in w.ranges.values()):
        w.send()
    while w.ledger.frontier < 3 or any(w.ledger.offsets[p] < log.end for p, log in w.edge.items()):
        for step in (w.mirror, w.stage, w.close_step, w.wake_zombie):
            step()
    for file in w.store.files.values():
        file.damaged = w.destroyed = True
    w.expire_and_lose()


def history(
    seed: int, breaks: str | None = None, verbose: bool = False
) -> collections.Counter[str]:
    """Play one; Broken where the promise does not hold. Returns what it covered."""
    w = World(seed, breaks, verbose)
    closing = [w.close_step] * 10 + [w.stage] * 5 + [w.mirror] * 8
    steps = (
        closing
        + [w.cut_range] * 4
        + [w.send] * 8
        + [w.tick, w.lose_checkpoint, w.host_dies, w.wake_zombie, w.order]
    )
    w.gentle = seed % len(FAULTS) == GENTLE
    faults = FAULTS[seed % len(FAULTS)]
    steps += [
        getattr(w, name)
        for name in (*faults, *MORE.get(breaks or "", ()))
        if name in faults or not w.gentle
    ]
    try:
        if seed % 16 == 3:
            promises_read_late(w)
        for _ in range(400):
            w.rnd.choice(steps)()
        w.hour = 12
        for _ in range(8000):  # no new work: everything drains, every hour closes
            w.rnd.choice(closing + [w.send] * 3 + [w.wake_zombie, w.order])()
            if w.ledger.frontier >= 12:
                break
        else:
            raise Broken(
                f"hangs: hour {w.ledger.frontier} never closes ({w.ledger.state}, {w.trouble})"
            )
        w.check_end()
    except StopIteration:
        w.note("an alarm that is right")
    return w.seen


def main() -> int:
    """The command line."""
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--histories", type=int, default=2000)
    ap.add_argument("--seed", type=int)
    ap.add_argument("--break", dest="breaks", choices=["list", *BREAKS], metavar="NAME")
    ap.add_argument("-v", "--verbose", action="store_true")
    a = ap.parse_args()
    if a.breaks == "list":
        for name, what in BREAKS.items():
            print(f"{name:28} {what}")
        return 0
    total: collections.Counter[str] = collections.Counter()
    for seed in [a.seed] if a.seed is not None else range(a.histories):
        try:
            total += history(seed, a.breaks, a.verbose)
        except Broken as error:
            print(f"seed {seed}: {error}")
            return 1
    for what, count in sorted(total.items()):
        print(f"{count:9} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
