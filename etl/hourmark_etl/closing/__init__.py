"""Closing: hour by hour, `open → frozen → sealed → published → closed` on each type's frontier row.

    closer.py      drives all that follows, and picks up whatever a crash left; blockers.py: what each type waits for
    cut/           may an hour close: readiness.py (who has reported; pure), cut.py (what must be on the central cluster, and
                   staged, before an hour may freeze), clusters.py (asks edge, mirror and ledger),
                   forced.py (an operator's override)
    proof/         is it complete: proof.py (promises against listed rows, for all types at once), evidence.py (what it reads, in
                   tasks), promises.py (how it is compared; pure), unaudited.py (what waits for a promise), readings.py and
                   copies.py (two readings of one range)
    sealing.py     a round: how many hours it takes on and what becomes of a proof (pure); proves and seals it
    engine.py      the port to the heavy work, and Spark behind it; units.py: what one task reads; runner.py: where tasks run
    write/         deduplicated rows → Avro containers, as one Spark job for all types at once
    publishing.py  writes what is sealed, many types at once; the attempt folder, read back; the one rename that publishes
    cleanup.py     deletes what nothing needs any more

The rule and its reasons: docs/closing.md.
"""
