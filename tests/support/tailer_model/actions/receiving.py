"""What becomes of systemd's journal, and of syslog that comes over UDP."""

from __future__ import annotations

import signal
import socket
from typing import Final

from tests.support.tailer_model.actions.weights import hard, plain
from tests.support.tailer_model.receiving import JOURNAL, SYSLOG
from tests.support.tailer_model.truth import now_ms
from tests.support.tailer_model.world import World

_FLOOD: Final = 500  # datagrams; the kernel keeps about a hundred


@plain(4)
def write_to_the_journal(world: World) -> None:
    with world.services.lock:
        count = world.rng.choice((1, 3, 40))
        journal = world.services.received[JOURNAL]
        world.in_journal += range(journal.count, journal.count + count)
        world.journal.add(*journal.texts(count))
        journal.wrote(count, now_ms())


@plain(1)
def rotate_the_journal(world: World) -> None:
    """Its entries go to another file, as journald does where one is large enough; perhaps a new
    sequence begins with it.
    """
    world.journal.rotate()
    if world.rng.random() < 0.5:
        world.journal.begin_a_sequence()


@hard(2)
def vacuum_the_journal(world: World) -> None:
    """Its oldest entries go; of those that nobody read yet only while no tailer runs."""
    with world.services.lock:
        oldest = [
            n
            for n in world.in_journal
            if not world.is_running or n not in world.services.received[JOURNAL].awaited
        ]
        if oldest:
            left = len(world.in_journal) - world.rng.randrange(1, len(oldest) + 1)
            world.journal.vacuum(left=left)
            _are_gone(world, len(world.in_journal) - left)


@hard(1)
def make_the_journal_again(world: World) -> None:
    """As where it is kept in memory, and the host was booted; not before all is read while a tailer
    runs.
    """
    with world.services.lock:
        if not (world.is_running and world.services.received[JOURNAL].awaited):
            world.journal.make_again()
            _are_gone(world, len(world.in_journal))


def _are_gone(world: World, count: int) -> None:
    """The oldest entries.

    Whether they were read nobody knows, once the one is gone that was read last.
    """
    journal = world.services.received[JOURNAL]
    gone, world.in_journal = world.in_journal[:count], world.in_journal[count:]
    if not any(number in journal.came for number in world.in_journal):
        world.journal_is_in_doubt = True
    unread = [number for number in gone if journal.awaited.pop(number, None) is not None]
    if unread and journal.came:
        journal.owe(1, now_ms(), unless_come=unread)


@plain(3)
def send_datagrams(world: World) -> None:
    """Few enough for the kernel."""
    _send(world, world.rng.choice((1, 3, 20)))


@hard(2)
def flood_with_datagrams(world: World) -> None:
    """More than the kernel keeps while the tailer is busy otherwise: it drops the rest, and counts
    them.
    """
    if world.can_receive:
        world.tell(signal.SIGSTOP)
        try:
            _send(world, _FLOOD)
        finally:
            world.tell(signal.SIGCONT)


def _send(world: World, count: int) -> None:
    with world.services.lock:
        if not world.can_receive:
            return
        syslog = world.services.received[SYSLOG]
        before = world.dropped_datagrams() or 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for text in syslog.texts(count):
                sender.sendto(text.encode(), ("127.0.0.1", world.port))
        dropped = (world.dropped_datagrams() or 0) - before
        syslog.wrote(count, now_ms())
        syslog.dropped += dropped
        syslog.unknown_max += dropped
        if dropped:
            syslog.owe(dropped, now_ms())
