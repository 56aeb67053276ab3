"""One ETL and one ledger for two sites with mirrors of their own: a bucket holds events of both,
and waits for both.

Edges, the central cluster and the mirrors are this test's own; of the stack it uses the schema
registry.
"""

from __future__ import annotations

import signal
import time
import tomllib
import uuid
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from tests.integration.delivered import ids_in, ids_of, times
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.mirror_workers import Pair, own_broker, site
from tests.support.waiting import wait_for

from hourmark.config.toml_text import render_toml
from hourmark.records.hours import Hour
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import blockers
from hourmark_etl.operators.audit import audit
from hourmark_etl.operators.ledger import ledger
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

CLICK = f"click-{uuid.uuid4().hex[:8]}"
WITHIN_S = (
    600.0  # a driver takes a quarter of a minute to begin, and many times that on a busy machine
)
FIRST = Hour.containing(time.time_ns() // 1_000_000 - 1_200_000, 60)
WEST_SERVICE = "6" * 32


class TwoSites:
    """The run, its sites, and who delivers at each."""

    def __init__(self, run: EtlRun, east: Pair, west: Pair) -> None:
        self.run, self.west_mirror = run, west.workers["first"]
        at_east, at_west = (
            run.config.model_copy(update={"kafka": kafka}) for kafka in run.config.kafka.sites
        )
        self.east, self.west = DirectDelivery(at_east), DirectDelivery(at_west)

    def report(self, hour: Hour) -> None:
        """A service of each site has acknowledged all of the hour."""
        self.east.report(hour.end_ms)
        self.west.report(hour.end_ms, host_id=WEST_SERVICE)

    def waits_for(self) -> str:
        """What the type's hour waits for."""
        with Database(self.run.config.etl.ledger) as database:
            found = blockers(database, 60).get(CLICK)
            return " ".join(found.what) if found is not None else ""

    def asked(self, command: object, *arguments: str) -> None:
        """A command finds nothing wrong."""
        result = CliRunner().invoke(command, [*arguments, "--config", str(self.run.file)])  # type: ignore[arg-type]
        assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def sites(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    folder = tmp_path_factory.mktemp("two-sites")
    with (
        own_broker(stack.programs, folder / "central") as central,
        site(stack.programs, folder / "east", central, alias="east") as east,
        site(stack.programs, folder / "west", central, alias="west") as west,
    ):
        settings = tomllib.loads(stack.layout.config_file.read_text())
        settings["kafka"] = {
            "edge": east.edge.model_dump(),
            "edge_alias": "east",
            "central": central.model_dump(),
            "further_edges": {"west": west.edge.model_dump()},
        }
        given = folder / "given.toml"
        given.write_text(render_toml(settings))
        run = EtlRun(
            given, folder / "etl", [CLICK], FIRST, root=f"file://{folder}/root", cluster="both"
        )
        for pair in (east, west):
            pair.workers["first"].start()
        with run:
            yield TwoSites(run, east, west)


def test_a_bucket_holds_the_events_of_both_sites_each_once(sites: TwoSites) -> None:
    here = sites.east.make(CLICK, times(FIRST, 60))
    there = sites.west.make(CLICK, [t + 1 for t in times(FIRST, 40)])
    sites.east.deliver(here)
    sites.west.deliver(there)
    sites.west.deliver(here)  # its tailer heard nothing from the first site, and tried the other
    sites.report(FIRST)
    manifest = sites.run.closed(CLICK, FIRST, WITHIN_S)
    assert ids_in(sites.run, CLICK, FIRST) == ids_of(here, there)
    assert (manifest.events, manifest.duplicates_removed, manifest.unaudited) == (100, 60, 0)
    assert manifest.grade.value == "proved"
    assert (
        manifest.evidence.audit_next.keys() == {"0", "west"}
        and manifest.evidence.audit_next["west"] > 0
    )
    assert {o.topic for o in manifest.offsets} == {
        f"{alias}.events.{CLICK}" for alias in ("east", "west")
    }
    assert verify_bucket(sites.run.storage, CLICK, FIRST).findings == ()
    sites.asked(audit, "--ranges")
    sites.asked(ledger, "check")


def test_a_site_that_is_cut_off_keeps_the_bucket_open_until_it_is_back(sites: TwoSites) -> None:
    sites.run.closed(CLICK, FIRST, WITHIN_S)
    hour = FIRST.next()
    sites.west_mirror.signal(signal.SIGSTOP)
    here = sites.east.make(CLICK, times(hour, 30))
    there = sites.west.make(CLICK, [t + 1 for t in times(hour, 20)])
    sites.east.deliver(here)
    sites.west.deliver(there)
    sites.report(hour)
    sites.east.report(
        hour.end_ms, host_id=WEST_SERVICE
    )  # all that is known says that the hour is over
    wait_for(
        lambda: "west: mirror" in sites.waits_for(),
        f"the hour waits for the west (see {sites.run.log})",
        WITHIN_S,
    )
    assert sites.run.manifest(CLICK, hour) is None
    sites.west_mirror.signal(signal.SIGCONT)
    manifest = sites.run.closed(CLICK, hour, WITHIN_S)
    assert ids_in(sites.run, CLICK, hour) == ids_of(here, there)
    assert (manifest.grade.value, manifest.unaudited, manifest.late) == ("proved", 0, {})
    sites.asked(audit, "--ranges")
