"""Closing: hour by hour, `open → frozen → sealed → published → closed` on each type's frontier row.

    readiness.py  which hours every live source is past (pure)
    cut.py        the cut: what must be on the central cluster, and staged, before an hour may freeze (a small state machine)
    edge.py       asks the edge and the mirror for the cut
    engine.py     the port to the heavy work, and Spark behind it
    proof.py      promises against listed rows, for all types at once: by sums, or range by range
    evidence.py   what the proof reads, in tasks; promises.py: how it is compared (pure); surplus.py: what waits for a promise
    writing.py    deduplicated rows → Avro containers, as one Spark job for all types at once
    publishing.py the attempt folder, read back; the one rename that publishes
    closer.py     drives them, and picks up whatever a crash left

The rule and its reasons: docs/architecture.md, "Closing".
"""
