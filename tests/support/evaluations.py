"""Results of `hourmark evaluate` as they are where all is well; tests plant faults in them."""

from __future__ import annotations

from hourmark_evaluate.results import (
    BacklogResult,
    CpuUsage,
    Disturbance,
    Evaluation,
    LeaderTakeover,
    MetricComparison,
    MirrorPositionResult,
    RecordCounts,
    TimelinePoint,
    TrialResult,
)

GOOD_COUNTS = RecordCounts(
    place="edge",
    sent=1000,
    acknowledged=1000,
    read=1000,
    lost=0,
    doubled=0,
    phantom=0,
    disordered=0,
    unacknowledged=0,
)
GOOD_DISTURBANCE = Disturbance(
    what="broker 2 killed",
    victim="producer",
    began_s=3.0,
    healed_s=8.0,
    longest_wait_s=6.5,
    recovered_s=0.4,
)
GOOD_TRIAL = TrialResult(
    name="leaders",
    title="leaders killed",
    seconds=12.0,
    counts=(GOOD_COUNTS,),
    disturbances=(GOOD_DISTURBANCE,),
    takeovers=(LeaderTakeover(how="killed", workers=2, another_led_s=11.5),),
    claims=MirrorPositionResult(samples=20, false_records=0, waiting_max=300),
    backlog=BacklogResult(records=500, piled_s=5.0, caught_up_s=1.0, read_per_s=700.0),
    comparisons=(MetricComparison(what="records, by log ends", ours=1000, brokers=1000),),
    cost=CpuUsage(events=1000, seconds=10.0, client_cpu_s=0.01, broker_cpu_s=0.03),
    timeline=(
        TimelinePoint(at_s=0, sent=500, acknowledged=400),
        TimelinePoint(at_s=1, sent=500, acknowledged=600),
    ),
    notes=("the mirror ran with 2 workers",),
)
NOT_TRIED = TrialResult(
    name="producers",
    title="brokers come and go",
    not_tried="needs --stop-broker and --start-broker",
)


def evaluation(*trials: TrialResult) -> Evaluation:
    """One run of these."""
    return Evaluation(
        version="0.2.0",
        began="2026-11-25T12:00:00Z",
        seconds=480.0,
        where="the local stack",
        command="hourmark evaluate",
        cores=2,
        load_average=(0.5, 3.0),
        edge_brokers=3,
        central_brokers=1,
        replication=3,
        peak_rate=10_000,
        event_bytes=250,
        trials=trials,
    )
