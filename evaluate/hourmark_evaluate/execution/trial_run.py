"""The course of one trial: create topics, run a load, disturb servers, and compute the result.

However a trial ends, including by an error or Ctrl-C, every operation on a server is undone and the
trial's topics are deleted.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal

from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka.topic_names import central_topic
from hourmark_evaluate import accounting
from hourmark_evaluate.clients.broker_metrics import compare_with_metrics
from hourmark_evaluate.clients.cluster import EvaluatedCluster
from hourmark_evaluate.clients.load_producer import LoadProducer, Rate
from hourmark_evaluate.clients.mirror_observer import MirroredLoadObserver
from hourmark_evaluate.clients.readers import GroupConsumer, read_all
from hourmark_evaluate.execution.environment import TrialEnvironment
from hourmark_evaluate.record_format import RecordPlacement
from hourmark_evaluate.results import (
    BacklogResult,
    CpuUsage,
    Disturbance,
    LeaderTakeover,
    MetricComparison,
    RecordCounts,
    TrialResult,
)

# Time limit for a server to become unavailable. A group notices a killed member after ten seconds.
EFFECT_SECONDS: Final = 30.0
RECOVERY_SECONDS: Final = 180.0  # time limit for servers to recover; 15 s are usual
RETRY_S: Final = 15.0  # a broker that found no controller in time exits, so it is started again
NO_PROGRESS_SECONDS: Final = (
    120.0  # a mirror or consumer without progress for this long will not reach the end
)

Victim = Literal["producer", "mirror"]


@dataclass(frozen=True, slots=True)
class _CompletedFault:
    what: str
    victim: Victim
    began_s: float
    healed_s: float
    gave_up_s: float


class RecoveryFailed(Unavailable):
    """The error that servers did not recover, or that sent records cannot be read back."""


class TrialRun:
    """One running trial: its load, its disturbances, and what was observed so far.

    Create it with `on_stage`, which starts the load and cleans up at the end.

    Attributes:
        world: The clusters, the operations on servers, and the user's options.
        load: The running producer.
        watch: The observer of the mirror; None if the trial does not use a mirror.
        notes: Remarks for the report.
        takeovers: Attempts to remove the mirror's leading worker, with their outcome.
        group: The consumer group of the trial; None until `join_group` is called.
        backlog: The result of a backlog measurement; None if there was none.
    """

    def __init__(
        self,
        world: TrialEnvironment,
        name: str,
        title: str,
        load: LoadProducer,
        watch: MirroredLoadObserver | None,
    ) -> None:
        self.world, self.load, self.watch = world, load, watch
        self.notes: list[str] = []
        self.takeovers: list[LeaderTakeover] = []
        self.group: GroupConsumer | None = None
        self.backlog: BacklogResult | None = None
        self._name, self._title = name, title
        self._done: list[_CompletedFault] = []
        self._in_vain: list[str] = []  # disturbances that were not tried, with reasons
        self._metered_from: tuple[float, float, dict[int, float] | None] | None = None

    def say(self, what: str) -> None:
        """Report a line of progress, prefixed with the name of the trial."""
        self.world.say(f"{self._name}: {what}")

    def pause(self, seconds: float) -> None:
        """Wait for this many seconds while the load continues, and poll the mirror meanwhile."""
        self.world.wait(lambda: False, seconds, self.look)

    def look(self) -> None:
        """Poll the mirror once; do nothing if the trial does not use a mirror."""
        if self.watch is not None:
            self.watch.look()

    def disturb(
        self,
        what: str,
        hurt: Callable[[], None],
        heal: Callable[[], None],
        away_s: float,
        back: Callable[[], bool] = lambda: True,
        victim: Victim = "producer",
        gone: Callable[[], bool] = lambda: True,
        last: Callable[[], None] = lambda: None,
    ) -> bool:
        """Disturb servers, undo the disturbance, and wait for the load or mirror to recover.

        A completed disturbance is added to the result of the trial. If `hurt`, `gone` or `last`
        fails, or if `gone` does not become true within 30 s, the disturbance is undone and recorded
        as not tried.

        Args:
            what: Description of the disturbance for the report.
            hurt: Function that starts the disturbance, for example stops a broker.
            heal: Function that undoes it. It must be idempotent: it is called again after an error
                and every 15 s until `back` returns True.
            away_s: Seconds between the time when `gone` becomes true and the call of `heal`.
            back: Function that returns whether the servers have recovered.
            victim: Component to wait for. "mirror" also requires that all records sent are copied.
            gone: Function that returns whether the disturbance is effective.
            last: Function called immediately before `heal` if `gone` is still true.

        Returns:
            True if the disturbance took place, even if the victim did not recover in time; False if
            it was recorded as not tried.

        Raises:
            NotBack: The servers did not recover within 180 s; the trial cannot continue.
        """
        self.say(what)
        began_s, hindered = self.load.now_s, ""
        try:
            hurt()
            if self.world.wait(gone, EFFECT_SECONDS, self.look):
                self.pause(away_s)
                if gone():
                    last()
                else:
                    self.notes.append(f"{what}: back by itself, before it was started again")
            else:
                hindered = f"not all were away {EFFECT_SECONDS:.0f} s after it"
        except HourmarkError as error:
            hindered = str(error)
        except BaseException:  # including Ctrl-C: no server stays down
            try_to_undo(heal)
            raise
        self._bring_back(what, heal, back)
        if hindered:
            self.not_tried(what, hindered)
            return False
        healed_s, number = self.load.now_s, self.load.sent

        def over() -> bool:
            if victim == "mirror" and not self._copied(number):
                return False
            return self.load.through(healed_s) or bool(self.load.fatal)

        self.world.wait(over, self.world.wish.recovery_s, self.look)
        self._done.append(_CompletedFault(what, victim, began_s, healed_s, self.load.now_s))
        return True

    def not_tried(self, what: str, why: str) -> None:
        """Record that a disturbance was not tried.

        If no disturbance of the trial was tried, the whole trial counts as not tried.

        Args:
            what: Description of the disturbance.
            why: Reason for the report.
        """
        self._in_vain.append(f"{what} was not tried: {why}")

    def meter(self) -> None:
        """Start to measure CPU time and acknowledged events, until `conclude` is called."""
        self._metered_from = (self.load.now_s, _cpu_s(), self._broker_cpu())

    def conclude(self) -> TrialResult:
        """Stop the load, read all records back, and return the result of the trial.

        If the trial shows nothing, for example because no disturbance was possible, the result
        contains only the reason in `not_tried`.

        Raises:
            NotBack: The records cannot be read back from the edge cluster.
        """
        self.load.stop()
        spent = self._cost()
        sent_s, answered_s, acknowledged = self.load.arrays()
        if reason := self._why_not(bool(acknowledged.any())):
            return TrialResult(name=self._name, title=self._title, not_tried=reason)
        readings = self._read()
        counts = [accounting.count_records("edge", self.load.plan, acknowledged, readings)]
        copied_s = self._count_others(counts, acknowledged)
        compared, not_compared = self._compared(
            {at: len(numbers) for at, numbers in readings.numbers.items()}
        )
        if refused := int((~acknowledged & (answered_s == answered_s)).sum()):
            self.notes.append(
                f"{refused:,} records were refused, the first as: {self.load.refused}"
            )
        return TrialResult(
            name=self._name,
            title=self._title,
            seconds=round(self.load.now_s, 1),
            counts=tuple(counts),
            disturbances=tuple(
                self._account(done, sent_s, answered_s, acknowledged, copied_s)
                for done in self._done
            ),
            takeovers=tuple(self.takeovers),
            claims=self.watch.claims() if self.watch else None,
            backlog=self.backlog,
            fatal=self.load.fatal,
            comparisons=compared,
            not_compared=not_compared,
            cost=spent,
            timeline=accounting.timeline(sent_s, answered_s, acknowledged),
            notes=(*self.notes, *self._in_vain),
        )

    def join_group(self) -> GroupConsumer:
        """Start a consumer group that reads the topics of this trial from the beginning.

        Returns:
            The running group, also available as `group`.
        """
        self.group = GroupConsumer(
            self.world.edge.settings, self.world.form, self.load.plan.topics, self._group
        )
        self.group.start()
        return self.group

    def leave_group(self) -> None:
        """Stop the trial's consumer group and delete it from the cluster.

        Does nothing if `join_group` was not called. If the group cannot be deleted, a message is
        reported and no error is raised.
        """
        if self.group is None:
            return
        with contextlib.suppress(Unavailable):  # reported where the group's error is checked
            self.group.stop()
        try:
            self.world.edge.forget_group(self._group)
        except Unavailable as error:
            self.say(
                f"{error}; it is empty, and brokers forget it by themselves in time "
                "(offsets.retention.minutes)"
            )

    @property
    def _group(self) -> str:
        return f"{self.world.wish.prefix}{self.world.run}-{self._name}"

    def _bring_back(self, what: str, heal: Callable[[], None], back: Callable[[], bool]) -> None:
        until_s = self.world.clock.monotonic_s() + RECOVERY_SECONDS
        failed = try_to_undo(heal)
        while failed or not self.world.wait(back, RETRY_S, self.look):
            if self.world.clock.monotonic_s() >= until_s:
                why = f" ({failed})" if failed else ""
                raise RecoveryFailed(
                    f"after “{what}” the servers were not back within {RECOVERY_SECONDS:.0f} "
                    f"s{why}; see to them first"
                )
            if failed:
                self.pause(RETRY_S)
            failed = try_to_undo(heal)

    def _why_not(self, acknowledged: bool) -> str:
        """Return why this trial shows nothing; "" if it has a result."""
        if self._done:
            return ""
        if self._in_vain:
            return "; ".join(self._in_vain)
        return (
            f"the edge took no record: {self.load.refused}"
            if self.load.refused and not acknowledged
            else ""
        )

    def _read(self) -> accounting.ReadRecords:
        topics, partitions = self.load.plan.topics, self.world.wish.partitions
        try:
            return read_all(self.world.edge.cluster, self.world.form, topics, partitions)
        except Unavailable as error:
            raise RecoveryFailed(f"what was sent could not be read: {error}") from error

    def _copied(self, number: int) -> bool:
        """Return whether the target cluster has all records up to and including this number."""
        return self.watch is not None and self.watch.through(number + 1)

    def _count_others(
        self, counts: list[RecordCounts], acknowledged: accounting.Flags
    ) -> accounting.Floats | None:
        """Append the counts of the consumer group and the target cluster, if the trial uses them.

        Both have time to reach the end of the topics before they are counted.

        Args:
            counts: The list to extend; its first item must be the counts of the edge cluster.
            acknowledged: By record number, whether the record was acknowledged.

        Returns:
            By record number, seconds from the start of the load until the record was first read
            from the target cluster, NaN if never; None if the trial does not use a mirror.
        """
        if (group := self.group) is not None:
            self.world.wait_while_it_moves(
                lambda: group.read >= counts[0].distinct, lambda: group.read, NO_PROGRESS_SECONDS
            )
            group.stop()
            counts.append(
                accounting.count_records("consumer", self.load.plan, acknowledged, group.readings)
            )
        if (watch := self.watch) is None:
            return None
        wanted = counts[0].distinct
        self.world.wait_while_it_moves(
            lambda: watch.arrived >= wanted, lambda: watch.arrived, NO_PROGRESS_SECONDS, watch.look
        )
        self.world.wait(lambda: False, 2.0, watch.look)  # duplicates arrive last
        counts.append(
            accounting.count_records("central", watch.plan, acknowledged, watch.follower.readings)
        )
        return watch.copied.of(len(acknowledged))

    def _account(
        self,
        done: _CompletedFault,
        sent_s: accounting.Floats,
        answered_s: accounting.Floats,
        acknowledged: accounting.Flags,
        copied_s: accounting.Floats | None,
    ) -> Disturbance:
        ends_s = answered_s
        if done.victim == "mirror":
            assert copied_s is not None
            sent_s, ends_s, acknowledged = (
                sent_s[acknowledged],
                copied_s[acknowledged],
                acknowledged[acknowledged],
            )
        took_s = accounting.recovery_seconds(
            sent_s, ends_s, acknowledged, done.healed_s, done.gave_up_s
        )
        return Disturbance(
            what=done.what,
            victim=done.victim,
            began_s=round(done.began_s, 1),
            healed_s=round(done.healed_s, 1),
            longest_wait_s=round(
                accounting.longest_wait_seconds(sent_s, ends_s, done.began_s, done.healed_s), 2
            ),
            recovered_s=None if took_s is None else round(took_s, 2),
        )

    def _compared(
        self, read: dict[tuple[str, int], int]
    ) -> tuple[tuple[MetricComparison, ...], str]:
        jmx, edge = self.world.jmx, self.world.edge
        if jmx is None:
            return (
                (),
                (
                    "the brokers' metrics were not asked: needs --jmx HOST:PORT for each "
                    "broker of the edge"
                ),
            )
        if len(jmx.addresses) != len(edge.ids):
            return (
                (),
                (
                    f"--jmx names {len(jmx.addresses)} of {len(edge.ids)} brokers of the "
                    "edge; all are needed for a sum"
                ),
            )
        self.world.wait(lambda: edge.all_there(self.load.plan.topics), RECOVERY_SECONDS)
        try:
            asked = jmx.ask(self.load.plan.topics)
        except HourmarkError as error:  # JMX does not answer, or its tool is not available
            return (), str(error)
        everywhere = {
            (t, n): read.get((t, n), 0)
            for t in self.load.plan.topics
            for n in range(self.load.plan.partitions)
        }
        return compare_with_metrics(
            everywhere, asked, edge.replication, undisturbed=not self._done
        ), ""

    def _cost(self) -> CpuUsage | None:
        if self._metered_from is None:
            return None
        began_s, cpu_s, before = self._metered_from
        _, answered_s, acknowledged = self.load.arrays()
        metered = acknowledged & (answered_s >= began_s)
        after = self._broker_cpu()
        same = before is not None and after is not None and before.keys() == after.keys()
        return CpuUsage(
            events=int(metered.sum()),
            seconds=round(float(answered_s[metered].max(initial=began_s)) - began_s, 2),
            client_cpu_s=round(_cpu_s() - cpu_s, 3),
            broker_cpu_s=round(sum((after or {}).values()) - sum((before or {}).values()), 3)
            if same
            else None,
        )

    def _broker_cpu(self) -> dict[int, float] | None:
        return self.world.broker_cpu() if self.world.broker_cpu else None


@contextlib.contextmanager
def start_trial_run(
    world: TrialEnvironment,
    name: str,
    title: str,
    rate: Rate,
    *,
    shares: tuple[int, ...] = (1,),
    mirrored: bool = False,
) -> Iterator[TrialRun]:
    """Create a trial's topics, start its load, and yield the running trial.

    On exit, in this order: delete the trial's consumer group, abort the load, close the observer of
    the mirror, and delete the topics.

    Args:
        world: The clusters and the user's options.
        name: Short name of the trial, part of its topic names.
        title: Title of the trial for the report.
        rate: The load's events per second as a function of the seconds since its start.
        shares: Relative share of the load per topic; one topic is created for each item.
        mirrored: Whether a mirror copies the topics. If so and if there is a central cluster, the
            copies are created there and observed too.

    Raises:
        Unavailable: A cluster does not answer or did not create a topic.
    """
    prefix = world.wish.mirrored_prefix if mirrored else world.wish.prefix
    topics = tuple(f"{prefix}{world.run}-{name}-{n}" for n in range(1, len(shares) + 1))
    partitions = world.wish.partitions
    with ExitStack() as at_the_end:
        watch, central = None, world.central if mirrored else None
        if central is not None:
            remote = [central_topic(topic, world.alias) for topic in topics]
            at_the_end.callback(_delete, central, remote)
            central.make(remote, partitions)
        at_the_end.callback(_delete, world.edge, topics)
        world.edge.make(topics, partitions)
        load = LoadProducer(
            world.edge.settings,
            world.form,
            RecordPlacement(topics, shares, partitions),
            rate,
            world.clock,
            world.wish.delivery_s,
        )
        if central is not None:
            watch = MirroredLoadObserver(central, world.alias, world.form, load)
            at_the_end.callback(watch.close)
        at_the_end.callback(load.abandon)
        stage = TrialRun(world, name, title, load, watch)
        at_the_end.callback(stage.leave_group)
        load.start()
        yield stage


def try_to_undo(heal: Callable[[], None]) -> str:
    """Call `heal` and return the message of its error, "" if it succeeded.

    On Ctrl-C, `heal` is called a second time before `KeyboardInterrupt` continues. Errors other
    than `HourmarkError` propagate.
    """
    try:
        heal()
    except HourmarkError as error:
        return str(error)
    except KeyboardInterrupt:
        heal()
        raise
    return ""


def _delete(brokers: EvaluatedCluster, topics: Sequence[str]) -> None:
    # If this fails, for example when a run is interrupted during an outage, `run` deletes them at
    # its end.
    with contextlib.suppress(Unavailable):
        brokers.delete(topics)


def _cpu_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime
