"""The ledger lost, put back as it was some time ago, and its database killed in the middle of a
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.faults.chaos.faults.fault import Fault, Heal, NotInjected
from tests.faults.chaos.faults.processes import CLIENTS, LEDGER, hit, named
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.operator import closed_until_ms
from tests.faults.chaos.victims import Database

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_TOUCHES: Final = frozenset(
    ("ledger", "driver", "hdfs", "central", "mirror", "edge", "registry")
)  # a rebuild asks all of them
_GOES_ON: Final = CLIENTS | {Flow.MIRROR}
_HOLD_S: Final = (5.0, 20.0)
_RESTORED_S: Final = (70.0, 100.0)
_CLOSED_S: Final = 300.0
_REBUILT_S: Final = 300.0
_REFUSED_S: Final = 300.0  # a driver begins with Spark, beside all that goes on
_TRANSACTION_S: Final = 60.0


def _lost(world: World, _pick: float) -> Heal:
    """An empty database in its place. The operator rebuilds it from storage and topics."""
    world.hit.add("etl")
    world.victims["etl"].kill()
    _database(world).empty()
    return lambda: _rebuild(world)


def _restored(world: World, _pick: float) -> Heal:
    """A copy is made now, and put back once buckets are closed that it does not know: the driver
    must refuse it.

    The operator rebuilds.
    """
    world.hit.add("etl")
    world.victims["etl"].kill()
    _database(world).copy()
    closed_ms = closed_until_ms(world)
    world.victims["etl"].come_back()
    world.hit.discard("etl")

    def heal() -> None:
        world.wait(
            lambda: closed_until_ms(world) > closed_ms,
            "buckets to be closed that the copy does not know",
            _CLOSED_S,
        )
        world.hit.add("etl")
        world.victims["etl"].kill()
        _database(world).put_back()
        world.victims["etl"].start()
        world.wait(
            lambda: not world.victims["etl"].is_alive(),
            "the driver to refuse an old copy of its ledger",
            _REFUSED_S,
        )
        _database(world).empty()
        _rebuild(world)

    return heal


def _rebuild(world: World) -> None:
    world.center.run("ledger", "rebuild", "--into", world.config.etl.ledger, seconds=_REBUILT_S)
    world.victims["etl"].come_back()
    world.hit.discard("etl")


def _database(world: World) -> Database:
    assert world.database is not None, "a run with such a fault is refused"
    return world.database


def _killed_in_a_transaction(world: World, pick: float) -> Heal:
    """SIGQUIT for the database while somebody writes."""
    until_s = world.clock.monotonic_s() + _TRANSACTION_S
    while not _database(world).is_written_to():
        if world.clock.monotonic_s() >= until_s:
            raise NotInjected(f"nobody wrote to the ledger for {_TRANSACTION_S:.0f} s")
    return hit(named(LEDGER), lambda v: v.kill(), lambda v: v.come_back(), world, pick)


FAULTS: Final[Sequence[Fault]] = (
    Fault("ledger-lost", _TOUCHES, _GOES_ON, _HOLD_S, _lost, needs_postgres=True),
    Fault("ledger-restored", _TOUCHES, _GOES_ON, _RESTORED_S, _restored, needs_postgres=True),
    Fault(
        "ledger-killed-in-a-transaction",
        frozenset(("ledger",)),
        _GOES_ON,
        _HOLD_S,
        _killed_in_a_transaction,
        needs_postgres=True,
    ),
)
