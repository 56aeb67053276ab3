"""Faults for the judge to find: each changes the tailer's own process as it begins."""

from __future__ import annotations

import dataclasses
import os
import pkgutil
import time
from collections.abc import Callable
from typing import Any, Final

FAULTS: Final[dict[str, Callable[[], None]]] = {}
SHOWN_BY: Final[
    dict[str, list[str]]
] = {}  # the actions that show it, where random ones would take long


def fault(*shown_by: str) -> Callable[[Callable[[], None]], None]:
    """A fault, under the function's name."""

    def add(plant: Callable[[], None]) -> None:
        FAULTS[plant.__name__] = plant
        SHOWN_BY[plant.__name__] = list(shown_by)

    return add


def _put(place: str, value: object) -> None:
    """Replace what `place`, the dotted name of a function, method or constant, stands for."""
    owner, _, name = place.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    assert hasattr(holder, name), f"{place} is not there: this fault would change nothing"
    setattr(holder, name, value)


def _now(place: str) -> Any:
    """What is there."""
    return pkgutil.resolve_name(place)


@fault("settle", *3 * ["take_a_service_down"], "append", "truncate")
def forgets_losses() -> None:
    """Nothing is ever counted as lost."""
    _put("hourmark_producer.checkpoint.database.add_loss", lambda _: [])
    _put("hourmark_producer.counters.Counters.add_loss", lambda *_: None)


@fault("append", "take_a_service_down", "append")
def claims_what_it_has_not_sent() -> None:
    """Every target is met at once."""
    _put("hourmark_producer.send.reports.AcknowledgmentTarget.is_met", lambda _: True)


@fault("settle", *8 * ["append"])
def claims_with_an_own_clock() -> None:
    """The machine's clock for the services'."""
    before = _now("hourmark_producer.send.client.DeliveryServiceClient.clocks_ms")
    _put(
        "hourmark_producer.send.client.DeliveryServiceClient.clocks_ms",
        lambda link: dict.fromkeys(before(link), time.time_ns() // 1_000_000),
    )


@fault("settle", *3 * ["take_a_service_down"], *3 * ["append"], "kill")
def moves_on_before_it_is_durable() -> None:
    """The spool keeps nothing: what was on its way is not sent again after a kill."""
    _put("hourmark_producer.send.range_spooler.add_to_spool", lambda *_: ("SELECT 1", ()))


@fault("settle", "kill", "start")
def reads_again_from_the_start_after_each_kill() -> None:
    """No file is known again, and each start takes another file id."""
    real, salt = _now("hourmark_producer.watch.scanner.file_id"), os.getpid()
    _put(
        "hourmark_producer.watch.scanner.file_id",
        lambda device, inode, birth_ns: real(device, inode, birth_ns ^ salt),
    )
    _put("hourmark_producer.files.tracked_file.TrackedFiles.match", lambda *_: None)


@fault("settle", "rotate_out_of_the_pattern", *2 * ["append_to_an_older_one"])
def follows_names_only() -> None:
    """What is renamed away from the pattern is left alone."""

    def forget(scanner: Any, _: object) -> None:
        for file in scanner.files:
            if file not in scanner._found:
                file.retired = True

    _put("hourmark_producer.watch.scanner.FileScanner._follow_unfound", forget)


@fault("settle", "truncate_and_grow", "settle")
def takes_growth_for_growth() -> None:
    """Fingerprints are not looked at: a file that was truncated and grew beyond its old size goes
    on.
    """
    account = _now("hourmark_producer.files.tracked_file.FileAccount")
    _put(
        "hourmark_producer.files.tracked_file.FileAccount.after_scan",
        lambda now, size, *_: account(max(now.high, size), now.shrinks, now.head),
    )
    _put("hourmark_producer.files.examination.is_anchored", lambda *_: True)
    _put("hourmark_producer.cut.range_cutter.is_anchored", lambda *_: True)


@fault("settle", "truncate")
def counts_losses_twice() -> None:
    """False pages at night."""
    real = _now("hourmark_producer.checkpoint.database.add_loss")
    _put(
        "hourmark_producer.checkpoint.database.add_loss",
        lambda loss: real(dataclasses.replace(loss, bytes=2 * loss.bytes + 1)),
    )


@fault("settle", "copy_and_truncate", "settle")
def sends_copies_again() -> None:
    """A copy is a file like any other."""
    _put("hourmark_producer.history.match.find_origin", lambda *_: None)


@fault("settle", "append", "settle", "kill", *3 * ["damage_the_checkpoint", "kill"])
def trusts_a_damaged_log() -> None:
    """What a database gives is taken, though the end of its log is gone."""
    _put("hourmark_producer.checkpoint.database.find_log_damage", lambda _: "")


@fault("settle", "kill", "lose_the_checkpoint", "settle")
def begins_anew_without_a_word() -> None:
    """Without its checkpoint all is read again, though nobody said so."""
    real = _now("hourmark_producer.cli.open_installation")
    _put(
        "hourmark_producer.cli.open_installation",
        lambda folder, **given: real(folder, **{**given, "reread": True}),
    )


@fault("append", "begin_a_line", "settle", "append", "settle")
def sends_what_has_no_end() -> None:
    """A last line without an end is a line."""
    real, pending, made, lines = (
        _now("hourmark_producer.cut.lines.cut_lines"),
        _now("hourmark_producer.cut.lines.NoCompleteLine"),
        _now("hourmark_producer.cut.lines.RangeCut"),
        _now("hourmark_producer.cut.lines.Part.LINES"),
    )

    def cut(read: Any, limits: Any, **given: Any) -> Any:
        found = real(read, limits, **given)
        rest = read(0, 1 << 16) if isinstance(found, pending) else b""
        return made(rest, lines) if rest else found

    _put("hourmark_producer.cut.sources.cut_lines", cut)


@fault("settle", *3 * ["refuse_one_of_several", *4 * ["append"], "kill", "settle"])
def forgets_a_range_once_a_later_one_is_taken() -> None:
    """The spool lets go of all that was on its way."""
    unspool = _now("hourmark_producer.checkpoint.spooled_ranges.remove_from_spool")

    def acknowledged(file: Any) -> list[Any]:
        sent = file.progress.in_flight
        return (
            [unspool(one.sequence) for one in sent] if any(one.acknowledged for one in sent) else []
        )

    def on_their_way(progress: Any) -> tuple[Any, ...]:
        sent = progress.in_flight
        return () if any(one.acknowledged for one in sent) else sent

    _put("hourmark_producer.send.file_shipper.removal_changes", acknowledged)
    _put("hourmark_producer.send.acknowledgments.removal_changes", acknowledged)
    _put("hourmark_producer.files.tracked_file.FileProgress.unacknowledged", property(on_their_way))


@fault("settle", "ask_to_wait", "take_a_service_down", *40 * ["append"])
def does_not_wait_when_it_is_asked_to() -> None:
    """Retry-After says nothing."""
    _put("hourmark_producer.send.client._retry_after_s", lambda _: 0.0)


@fault(
    "settle",
    "kill",
    "rotate_and_compress_the_one_before",
    "append",
    "rotate",
    "append",
    "compress",
    "compress",
    "settle",
)
def passes_over_what_is_packed() -> None:
    """A packed file that appears is nobody's."""
    _put(
        "hourmark_producer.watch.packed_files.NewCompressedFiles._start_examination",
        lambda *_: True,
    )


@fault(
    "settle",
    *3 * ["append", "rotate_by_date", "compress", "settle"],
    "kill",
    "rotate",
    "compress",
    "compress",
    "settle",
)
def takes_what_is_packed_for_unread() -> None:
    """Nothing tells that it was read."""
    unread = _now("hourmark_producer.history.read_state.ReadStateResult")(
        _now("hourmark_producer.history.read_state.ReadState.UNREAD")
    )
    _put("hourmark_producer.history.match.determine_read_state", lambda *_: unread)
    _put("hourmark_producer.checkpoint.archives.save_departed", lambda *_: [])


@fault("settle", *4 * ["write_records"])
def cuts_records_at_lines() -> None:
    """Each line is a record."""
    cut = _now("hourmark_producer.cut.lines.cut_lines")
    _put(
        "hourmark_producer.cut.sources.cut_records",
        lambda read, limits, _, *, in_record, flush: cut(read, limits, in_line=in_record),
    )


@fault("settle", *4 * ["write_in_a_container"])
def cuts_between_a_partial_line_and_its_end() -> None:
    """P and F say nothing."""
    cut = _now("hourmark_producer.cut.lines.cut_lines")
    _put(
        "hourmark_producer.cut.sources.cut_cri",
        lambda read, limits, *, in_record, after_line_end, flush: cut(
            read, limits, in_line=in_record
        ),
    )


@fault("write_in_a_container")
def does_not_know_whose_container_it_is() -> None:
    """Paths of containers' logs are like any other."""
    _put("hourmark_producer.cut.sources.container_fields", lambda _: {})


@fault("settle", "reload_what_is_not_in_order", "settle")
def takes_any_configuration() -> None:
    """It begins anew, whether or not it can."""

    def ask(reloading: Any) -> None:
        reloading._restart_requested = True
        reloading._stop()

    _put("hourmark_producer.reloading.ReloadHandler.request_reload", ask)


@fault("settle", "reload_what_a_start_refuses", "settle")
def takes_what_a_start_refuses() -> None:
    """Settings are looked at, and nothing else."""
    _put("hourmark_producer.cli.check_reload", lambda *_: None)


@fault(
    "settle",
    "reserve",
    "append",
    "settle",
    "append",
    "settle",
    *2 * ["reserve", "append", "append", "settle"],
)
def searches_once_for_the_end_of_a_line() -> None:
    """NULs at the end of a file are content like any other."""
    _put("hourmark_producer.files.examination.content_end", lambda _, size, __: size)


@fault("append", "rotate_by_date", "settle", "stop", "delete_and_put_something_else", "settle")
def opens_what_has_the_inode_of_a_log() -> None:
    """Whatever has it is opened, to see which file it is."""
    _put("hourmark_producer.watch.scanner.FileScanner._is_at", lambda *_: True)


@fault("settle", *6 * ["append"], "settle", "kill", "copy_up_and_start", "settle")
def knows_files_by_birth_time_alone() -> None:
    """What was read of a file does not tell it."""
    _put(
        "hourmark_producer.watch.scanner.FileScanner._match",
        lambda scanner, _, identity: scanner.files.match(identity),
    )


@fault("settle", *4 * ["append", "set_its_time_back", "settle"])
def takes_what_is_older_for_unchanged() -> None:
    """A file changes only as its time goes on."""
    observe = _now("hourmark_producer.watch.scanner.FileScanner._observe")

    def observe_newer(scanner: Any, file: Any, status: os.stat_result, at_s: float) -> None:
        if status.st_mtime_ns >= file.observed.mtime_ns:
            observe(scanner, file, status, at_s)

    _put("hourmark_producer.watch.scanner.FileScanner._observe", observe_newer)


@fault("settle", "reload", *3 * ["settle", "append"], "settle")
def ends_where_it_should_begin_anew() -> None:
    """SIGHUP is as SIGTERM."""
    _put("hourmark_producer.reloading.ReloadHandler.is_restart_requested", False)


@fault("settle", *5 * ["append", "append", "copy_and_truncate", "settle"])
def takes_a_copy_in_the_making_for_whole() -> None:
    """What the copier adds later is the copy's own."""
    _put("hourmark_producer.files.waits.COPYING_S", -1.0)


@fault("settle", "kill", "append", "append", "rotate", "pack_and_cut_off", "settle")
def takes_what_is_cut_off_for_whole() -> None:
    """A packed file ends where it ends."""
    read, cut_off = (
        _now("hourmark_producer.files.compressed.DecompressedReader.read"),
        _now("hourmark_producer.files.compressed.CompressedFileIncomplete"),
    )

    def read_on(plain: Any, count: int) -> Any:
        try:
            return read(plain, count)
        except cut_off:
            return b""

    _put("hourmark_producer.files.compressed.DecompressedReader.read", read_on)


@fault(
    "settle",
    *3 * ["take_a_service_down"],
    *3 * ["append", "append", "copy_and_truncate", "append"],
    "settle",
)
def calls_lost_what_copies_hold() -> None:
    """After several truncations nobody looks for what each took."""
    _put("hourmark_producer.history.lost_content.LostContentSearch.__call__", lambda *_: 0)


@fault(
    "settle",
    "write_to_the_journal",
    "settle",
    "kill",
    "write_to_the_journal",
    *3 * ["vacuum_the_journal"],
    "settle",
)
def takes_the_first_entry_that_is_left_for_the_next() -> None:
    """It is not looked at whether the entry that was read last is there."""
    real = _now("hourmark_producer.receive.journal.JournalInput._start")

    def start(journal: Any, *, follow: bool) -> None:
        real(journal, follow=follow)
        journal._awaited = ""

    _put("hourmark_producer.receive.journal.JournalInput._start", start)


@fault(
    "settle",
    "write_to_the_journal",
    "settle",
    "kill",
    "make_the_journal_again",
    "write_to_the_journal",
    "settle",
)
def does_not_read_a_journal_that_was_made_again() -> None:
    """Loss is counted, and reading goes on behind a place that is nowhere."""

    def read_on(journal: Any) -> None:
        journal._receiver.losses.add("gone", unknown=1)
        journal._is_lost = True
        journal._start(follow=True)

    _put("hourmark_producer.receive.journal.JournalInput._read_all", read_on)
    _put("hourmark_producer.receive.journal.JournalInput._is_known", lambda *_: True)


@fault(
    "settle",
    "write_to_the_journal",
    "settle",
    "rotate_the_journal",
    "kill",
    "write_to_the_journal",
    "settle",
)
def reads_the_journal_from_its_start_each_time() -> None:
    """No cursor is known."""
    _put("hourmark_producer.receive.journal.line_cursor", lambda _: "")


@fault("settle", "send_datagrams", "settle", "flood_with_datagrams", "settle")
def does_not_ask_the_kernel_what_it_dropped() -> None:
    """Datagrams that came are all there were."""
    _put("hourmark_producer.receive.sockets.SyslogDatagramInput._count_dropped", lambda _: None)


@fault("settle", "send_datagrams", "settle", "stop", "settle")
def does_not_say_that_nobody_listened() -> None:
    """A start is as the first."""
    _put("hourmark_producer.receive.segments.SegmentStore.was_left_open", lambda _: False)


@fault("settle", *3 * ["append", "set_the_clock"])
def measures_time_by_the_wall_clock() -> None:
    """What it waits for comes when the clock does."""
    _put("hourmark_producer.cli.SystemClock.monotonic_s", lambda clock: clock.now_ms() / 1000)
