"""Closing: hour by hour, `open → frozen → sealed → published → closed` on each type's frontier row.

    readiness.py  which hours every live source is past; two live incarnations of one host (pure)
    cut.py        the cut: what must be on the central cluster, and staged, before an hour may freeze (a small state machine)
    edge.py       asks the edge, the mirror and the ledger for the cut
    forcing.py    the cut by an operator's order, which waits for nothing and names what it skipped
    sealing.py    a round: how many hours it takes on and what becomes of a proof (pure); proves and seals it
    engine.py     the port to the heavy work, and Spark behind it
    proof.py      promises against listed rows, for all types at once: by sums, or range by range
    evidence.py   what the proof reads, in tasks; promises.py: how it is compared (pure); surplus.py: what waits for a promise
    writing.py    deduplicated rows → Avro containers, as one Spark job for all types at once
    publishing.py writes what is sealed, many types at once; the attempt folder, read back; the one rename that publishes
    closer.py     drives them, and picks up whatever a crash left
    waiting.py    what each type waits for, in the ledger

The rule and its reasons: docs/architecture.md, "Closing".
"""
