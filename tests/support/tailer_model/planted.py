"""Faults for the judge to find: each changes the tailer's own process as it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

FAULTS: Final[dict[str, Callable[[], None]]] = {}
SHOWN_BY: Final[dict[str, list[str]]] = {}  # the actions that show it, where random ones would take long


def fault(*shown_by: str) -> Callable[[Callable[[], None]], None]:
    """A fault, under the function's name."""

    def add(plant: Callable[[], None]) -> None:
        FAULTS[plant.__name__] = plant
        SHOWN_BY[plant.__name__] = list(shown_by)

    return add


@fault("settle", "take_a_service_down", "take_a_service_down", "take_a_service_down", "append", "truncate")
def forgets_losses() -> None:
    """Nothing is ever counted as lost."""
    from hourmark_producer import follower, retirement

    follower.changes.lose = retirement.changes.lose = lambda _: []  # type: ignore[assignment]
    from hourmark_producer.counters import Counters

    Counters.lost = lambda *_: None  # type: ignore[method-assign,assignment]


@fault("append", "take_a_service_down", "append")
def claims_what_it_has_not_sent() -> None:
    """Every target is met at once."""
    from hourmark_producer.caught_up import Target

    Target.is_met = lambda _: True  # type: ignore[method-assign,assignment]


@fault("append", "append", "append", "append", "append")
def claims_with_an_own_clock() -> None:
    """The machine's clock for the services'."""
    from hourmark_producer.service_client import ServiceLink

    before: Callable[[ServiceLink], Any] = ServiceLink.clocks_ms

    def own(link: ServiceLink) -> dict[str, int]:
        import time

        return dict.fromkeys(before(link), time.time_ns() // 1_000_000)

    ServiceLink.clocks_ms = own  # type: ignore[method-assign]


@fault("settle", *3 * ["take_a_service_down"], "append", "append", "append", "kill")
def moves_on_before_it_is_durable() -> None:
    """The spool keeps nothing: what was on its way is not sent again after a kill."""
    from hourmark_producer import follower

    follower.changes.spool = lambda *_: ("SELECT 1", ())  # type: ignore[assignment]


@fault("settle", "kill", "start")
def reads_again_from_the_start_after_each_kill() -> None:
    """Positions are never written down, and each start takes another file id."""
    from hourmark_producer import scanner

    import os

    real = scanner.file_id
    salt = os.getpid()
    scanner.file_id = lambda device, inode, birth_ns: real(device, inode, birth_ns ^ salt)  # type: ignore[assignment]
    scanner.Files.match = lambda *_: None  # type: ignore[method-assign,assignment]


@fault("settle", "rotate_out_of_the_pattern", "append_to_an_older_one", "append_to_an_older_one")
def follows_names_only() -> None:
    """What is renamed away from the pattern is left alone."""
    from hourmark_producer.scanner import Scanner

    def forget(self: Scanner, _: object) -> None:
        for file in self.files:
            if file not in self._found:
                file.retired = True

    Scanner._follow_unfound = forget  # type: ignore[method-assign,assignment]


@fault("settle", "truncate_and_grow", "settle")
def takes_growth_for_growth() -> None:
    """Fingerprints are not looked at: a file that was truncated and grew beyond its old size goes on."""
    import hourmark_producer.files as files

    files.Account.next = (  # type: ignore[method-assign]
        lambda self, size, _found, _position: files.Account(max(self.high, size), self.shrinks, self.head)
    )
    import hourmark_producer.follower as follower
    import hourmark_producer.looking as looking

    looking.is_anchored = follower.is_anchored = lambda *_: True  # type: ignore[assignment]


@fault("settle", "truncate")
def counts_losses_twice() -> None:
    """False pages at night."""
    import dataclasses

    from hourmark_producer import follower, retirement

    real = follower.changes.lose
    twice: Callable[[Any], Any] = lambda loss: real(dataclasses.replace(loss, bytes=2 * loss.bytes + 1))  # noqa: E731
    follower.changes.lose = retirement.changes.lose = twice


@fault("settle", "copy_and_truncate", "settle")
def sends_copies_again() -> None:
    """A copy is a file like any other."""
    from hourmark_producer import follower

    follower.origin_of = lambda *_: None


@fault("settle", "append", "settle", "kill", *3 * ["damage_the_checkpoint", "kill"])
def trusts_a_damaged_log() -> None:
    """What a database gives is taken, though the end of its log is gone."""
    from hourmark_producer import checkpoint

    checkpoint.what_is_missing = lambda _: ""


@fault("settle", "kill", "lose_the_checkpoint", "settle")
def begins_anew_without_a_word() -> None:
    """Without its checkpoint all is read again, though nobody said so."""
    from hourmark_producer import cli, installation

    real: Callable[..., Any] = installation.open_installation
    cli.open_installation = lambda folder, **given: real(folder, **{**given, "reread": True})


@fault("append", "begin_a_line", "settle", "append", "settle")
def sends_what_has_no_end() -> None:
    """A last line without an end is a line."""
    from hourmark_producer import cutting, source_cutting

    real: Callable[..., Any] = cutting.cut

    def cut(read: Any, limits: Any, **given: Any) -> Any:
        found = real(read, limits, **given)
        if isinstance(found, cutting.Pending) and (rest := read(0, 1 << 16)):
            return cutting.Cut(rest, cutting.Part.LINES)
        return found

    cutting.cut = source_cutting.cut = cut
