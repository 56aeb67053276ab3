"""Closing of hours, one after the other: `open → frozen → sealed → published → closed`.

The state is stored in each type's frontier row of the ledger.

    closer.py      runs all steps and resumes after a crash; blockers.py: records what each type waits for
    cut/           decides whether an hour may close: readiness.py (who has reported; pure), cut.py (what must be on the
                   central cluster and staged before an hour may freeze), clusters.py (queries edge, mirror and ledger),
                   forced.py (a cut by an operator's override)
    proof/         decides whether an hour is complete: proof.py (promises against listed rows, for all types at once),
                   evidence.py (what tasks read), promises.py (the comparison; pure), unaudited.py (rows that wait for a
                   promise), readings.py and copies.py (ranges that were parsed twice with different results)
    sealing.py     a round: plans its hours and grades each proof (pure); proves and seals them
    engine.py      the interface to the expensive work; units.py: what one task reads; runner.py: where tasks run
    write/         writes deduplicated rows into Avro containers, as one Spark job for all types
    publishing.py  writes and publishes sealed hours, many types in parallel
    attempts.py    publishes one bucket: attempt folder, read-back, one rename; bucket_manifest.py: its marker (pure)
    ownership.py   checks that the buckets on storage belong to this ledger
    cleanup.py     deletes files that are no longer needed

The rule and its reasons: docs/internals/closing.md.
"""
