"""The proof against a plain oracle: proved if and only if every promise is kept, by sums and by
join.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from tests.support.memory_storage import MemoryStorage
from tests.support.proving import FIRST, Range, Site
from tests.support.rules import ledger_of_click

from hourmark_etl.closing.proof import evidence, promises, proof
from hourmark_etl.closing.proof.unaudited import UnauditedCleaner, find_leftover_files
from hourmark_etl.ledger.closed import read_unaudited_files
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import AuditOffsets
from hourmark_etl.storage import StorageError

LAST_HOUR = 4


@dataclasses.dataclass(frozen=True)
class Send:
    """`rows`: None for all; `extra` makes the record differ from others of the range."""

    range: Range
    rows: tuple[int, ...] | None = None
    audit: bool = True
    extra: int = 0


STAGE, CLOSE = "stage", "close"
FAULTS = ("lossy", "differs")
Action = Send | str


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(
        tempfile.mkdtemp(prefix="hourmark-proof-", dir=memory if memory.is_dir() else None)
    )
    ledger_of_click(f"sqlite:///{folder}/template.sqlite", FIRST).close()
    logging.disable(logging.CRITICAL)
    yield folder
    logging.disable(logging.NOTSET)
    shutil.rmtree(folder)


_NUMBERS = itertools.count()


@contextlib.contextmanager
def site(
    template: Path, ranges_here_max: int = 1_000_000, unit_bytes_max: int = 1 << 20
) -> Iterator[Site]:
    path = template / f"{next(_NUMBERS)}.sqlite"
    shutil.copy(template / "template.sqlite", path)
    database = Database(f"sqlite:///{path}")
    try:
        yield Site(MemoryStorage(), database, ranges_here_max, unit_bytes_max)
    finally:
        database.close()
        path.unlink()


@st.composite
def histories(draw: DrawFn, faults: bool = True) -> list[Action]:
    """Ranges that share events (cut anew), sent once or again, whole or in part, with one record or
    several.
    """
    events = [(draw(st.integers(0, 2)), n) for n in range(5)]
    ranges = [
        Range(n, tuple(sorted(draw(st.sets(st.sampled_from(events), min_size=1, max_size=4)))))
        for n in range(3)
    ]
    history: list[Action] = []
    for _ in range(draw(st.integers(1, 10))):
        kinds = ["whole", "whole", "partly", "close", "close", "stage", *(FAULTS if faults else ())]
        kind = draw(st.sampled_from(kinds))
        sent = draw(st.sampled_from(ranges))
        some = draw(st.lists(st.integers(0, len(sent.events) - 1), max_size=len(sent.events)))
        actions: dict[str, Action] = {
            "whole": Send(sent),
            "partly": Send(sent, tuple(some), audit=False),
            "lossy": Send(sent, tuple(some)),
            "differs": Send(sent, extra=1),
            "close": CLOSE,
            "stage": STAGE,
        }
        history.append(actions[kind])
    return history


def violations(
    template: Path, history: list[Action], backs: tuple[int, ...], faults: bool, **limits: int
) -> list[str]:
    """What is wrong with the proofs of this history."""
    wrong: list[str] = []
    with site(template, **limits) as at:
        closes = 0
        for action in [*history, *[CLOSE] * LAST_HOUR]:
            if isinstance(action, Send):
                at.send(action.range, action.rows, action.audit, action.extra)
                continue
            if action == STAGE or closes == LAST_HOUR:
                at.stage()
                continue
            found, expected = at.close(backs[closes % len(backs)])
            closes += 1
            proved = not found.findings
            if proved and not expected.inside:
                wrong.append(
                    f"hour {closes - 1} is proved by {found.method}, but a promised event "
                    "is in no bucket"
                )
            if expected.kept and not proved:
                wrong.append(
                    f"hour {closes - 1} is not proved, but every promise is kept: {found.findings}"
                )
            if proved and not expected.kept and (found.method == "join" or not faults):
                wrong.append(
                    f"hour {closes - 1} is proved by {found.method}, but a promise is not kept"
                )
            if found.unaudited != expected.unaudited and (found.method != "sums" or not faults):
                wrong.append(
                    f"hour {closes - 1}: unaudited {found.unaudited}, should be "
                    f"{expected.unaudited} ({found.method})"
                )
            if found.unaudited != (found.unaudited_file.rows if found.unaudited_file else 0):
                wrong.append(
                    f"hour {closes - 1}: {found.unaudited} of unaudited rows, kept "
                    f"{found.unaudited_file}"
                )
            if (found.promised, found.unaudited) != (
                sum(b.promised for b in found.books),
                sum(b.unaudited for b in found.books),
            ):
                wrong.append(f"hour {closes - 1}: the books {found.books} do not add up to {found}")
    return wrong


BACKS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
QUIET = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@given(histories(), BACKS, st.sampled_from([1, 1_000_000]))
@QUIET
def test_an_hour_is_proved_if_and_only_if_every_promise_is_kept(
    template: Path, history: list[Action], backs: tuple[int, ...], ranges_here_max: int
) -> None:
    assert (
        violations(
            template, history, backs, True, ranges_here_max=ranges_here_max, unit_bytes_max=1 << 20
        )
        == []
    )


@pytest.mark.slow
@given(histories(faults=False), BACKS, st.sampled_from([8, 1 << 20]))
@QUIET
def test_without_loss_unaudited_is_exact_by_sums_too_and_units_do_not_matter(
    template: Path, history: list[Action], backs: tuple[int, ...], unit_bytes_max: int
) -> None:
    assert violations(template, history, backs, False, unit_bytes_max=unit_bytes_max) == []


def _counts_only(listed: Any, promised: Any) -> proof.Proof | None:
    if sum(s.events for s in listed.values()) == sum(s.events for s in promised.values()):
        return proof.Proof(method="sums", audit_records=0, promised=0, unaudited=0)
    return None


def _duplicates_count(rows: Any) -> Any:
    return rows.select(promises.ROWS.names)


TWO = Range(1, ((0, 1), (0, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "planted", "history"),
    [
        (proof, "prove_by_sums", _counts_only, [Send(TWO, (0, 0))]),
        (
            proof,
            "read_unaudited_files",
            lambda _: [],
            [Send(TWO, audit=False), CLOSE, Send(TWO, ())],
        ),
        (promises, "distinct_rows", _duplicates_count, [Send(TWO), Send(TWO, (0,), audit=False)]),
        (
            proof,
            "_split_settled",
            lambda unmet, _: (list(unmet), []),
            [Send(TWO), CLOSE, Send(TWO, ())],
        ),
        (
            evidence.PromiseFilter,
            "select_counting",
            lambda self, rows, site: promises.PROMISED.empty_table(),
            [Send(TWO, (0,))],
        ),
    ],
    ids=[
        "counts only",
        "unaudited forgotten",
        "duplicates count",
        "second copies must be kept anew",
        "promises not read",
    ],
)
def test_a_planted_fault_turns_a_history_red(
    template: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    planted: Any,
    history: list[Action],
) -> None:
    assert violations(template, history, (0,), True) == []
    monkeypatch.setattr(module, name, planted)
    assert violations(template, history, (0,), True) != []


@pytest.fixture
def at(template: Path) -> Iterator[Site]:
    with site(template) as made:
        yield made


FIRST_HALF, WHOLE = Range(1, ((0, 1), (0, 2))), Range(2, ((0, 3), (1, 4)))
DAY_MS = 24 * 3600 * 1000


def kept(at: Site) -> str:
    """Where the unaudited rows of the hour that is closed now are."""
    file = at.close()[0].unaudited_file
    assert file is not None
    return file.path


def test_rows_without_a_record_are_unaudited_and_settle_the_record_that_comes_later(
    at: Site,
) -> None:
    at.send(FIRST_HALF, audit=False)
    first, _ = at.close()
    assert (first.method, first.unaudited, first.findings) == ("join", 2, ())
    at.send(Range(9, ()))
    at.send(FIRST_HALF, ())
    second, _ = at.close()
    assert (second.method, second.promised, second.unaudited, second.findings) == ("join", 2, 0, ())
    assert [b.hour_s for b in second.books] == [FIRST.start_s]


def test_a_range_listed_half_here_and_half_there_is_whole_for_its_record(at: Site) -> None:
    at.send(FIRST_HALF, rows=[0], audit=False)
    assert at.close()[0].unaudited == 1
    at.send(FIRST_HALF, rows=[1])
    late, _ = at.close()
    assert (late.method, late.promised, late.unaudited, late.findings) == ("join", 2, 0, ())


def test_a_range_sent_again_is_proved_whether_or_not_its_second_record_has_rows_of_its_own(
    at: Site,
) -> None:
    at.send(FIRST_HALF)
    assert at.close()[0].method == "sums"
    at.send(FIRST_HALF, rows=[0], audit=False)
    copies, _ = at.close()
    assert (copies.method, copies.unaudited, copies.findings) == (
        "join",
        0,
        (),
    )  # copies of what a record explains
    at.send(FIRST_HALF, ())
    second, _ = at.close()
    assert (second.method, second.audit_records, second.promised, second.findings) == (
        "join",
        0,
        0,
        (),
    )


def test_what_is_missing_is_named_up_to_a_limit_and_counted_beyond(at: Site) -> None:
    for n in range(proof.FINDINGS_MAX + 3):
        at.send(Range(n, ((0, n),)), rows=[])
    found, _ = at.close()
    assert len(found.findings) == proof.FINDINGS_MAX + 1
    assert (
        found.findings[0].endswith("1 events of 2027-01-15T08 promised, 0 found")
        and "range of web: /log" in found.findings[0]
    )
    assert found.findings[-1] == "and 3 more ranges"


def test_of_two_records_that_differ_one_is_not_kept_by_the_rows_there_are(at: Site) -> None:
    at.send(FIRST_HALF)
    at.send(FIRST_HALF, extra=1)
    found, _ = at.close()
    assert [
        f.endswith("2 events of 2027-01-15T08 promised, 2 found, but others")
        for f in found.findings
    ] == [True]
    at.send(WHOLE)
    assert at.close()[0].findings == ()
    at.send(WHOLE, extra=1)  # the first one is settled already
    assert [f.endswith("found, but others") for f in at.close()[0].findings] == [True, True], (
        "of each of its two hours"
    )


def test_rows_that_did_not_keep_their_record_keep_no_later_one(at: Site) -> None:
    at.send(FIRST_HALF, extra=1)
    assert [f.endswith("2 found, but others") for f in at.close()[0].findings] == [True], (
        "and its deadline closed it"
    )
    at.send(FIRST_HALF, ())
    assert [
        f.endswith("2 events of 2027-01-15T08 promised, 0 found") for f in at.close()[0].findings
    ] == [True]
    at.send(FIRST_HALF, ())
    assert at.close()[0].findings == (), "both are settled by now"


def test_unaudited_files_go_when_promised_or_old_and_leftovers_are_swept(at: Site) -> None:
    at.send(FIRST_HALF, audit=False)
    at.send(WHOLE, audit=False)
    path = kept(at)
    cleaner = UnauditedCleaner(at.storage, at.database, keep_ms=DAY_MS)
    assert cleaner.clean(at.lease, now_ms=DAY_MS) == 0 and at.storage.exists(path)
    at.send(FIRST_HALF, ())
    at.close()
    assert cleaner.clean(at.lease, now_ms=DAY_MS) == 0  # one of its two ranges is settled
    at.send(WHOLE, ())
    at.close()
    assert cleaner.clean(at.lease, now_ms=DAY_MS) == 2 and not at.storage.exists(
        path
    )  # and WHOLE's of the second hour
    at.send(Range(3, ((0, 9),)), audit=False)
    abandoned = kept(at)
    assert cleaner.clean(at.lease, now_ms=DAY_MS) == 0 and [
        f.path for f in read_unaudited_files(at.database)
    ] == [abandoned]
    assert (
        cleaner.clean(at.lease, now_ms=DAY_MS + 2) == 1 and read_unaudited_files(at.database) == []
    )
    assert not at.storage.exists(abandoned)
    at.storage.write_new("_unaudited/click/left-over.parquet", b"x")
    assert find_leftover_files(at.storage, at.database) == ["_unaudited/click/left-over.parquet"]


def test_unaudited_whose_promises_cannot_be_read_stays_and_cleaning_goes_on(at: Site) -> None:
    at.send(WHOLE, audit=False)
    path = kept(at)
    at.send(WHOLE, ())
    at.close()
    for folder in at.storage.list("_staging"):
        for entry in at.storage.list(f"_staging/{folder.name}"):
            if entry.name.startswith("audit"):
                at.storage.delete(f"_staging/{folder.name}/{entry.name}")
    assert (
        UnauditedCleaner(at.storage, at.database, keep_ms=DAY_MS).clean(at.lease, now_ms=DAY_MS)
        == 0
    )
    assert at.storage.exists(path)


def test_unaudited_that_cannot_be_read_for_now_stays(
    at: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.send(WHOLE, audit=False)
    path = kept(at)
    at.send(FIRST_HALF, ())
    at.close()
    opened = at.storage.open

    def lost(asked: str) -> BinaryIO:
        if asked == path:
            raise StorageError(asked, asked, "BlockMissingException")
        return opened(asked)

    monkeypatch.setattr(at.storage, "open", lost)
    with pytest.raises(StorageError, match="BlockMissing"):
        UnauditedCleaner(at.storage, at.database, keep_ms=DAY_MS).clean(at.lease, now_ms=DAY_MS)
    assert at.storage.exists(path) and path in [f.path for f in read_unaudited_files(at.database)]


@pytest.mark.slow
def test_both_kinds_of_ledger_give_the_same_proofs(ledger_url: str) -> None:
    database = ledger_of_click(ledger_url, FIRST)
    at = Site(MemoryStorage(), database)
    at.send(WHOLE)
    at.send(FIRST_HALF, audit=False)
    assert (
        at.close()[0].method,
        at.prover.prove([at.frontier()], AuditOffsets.from_offsets(1))[0].method,
    ) == ("join", "join")
    for _ in range(2):
        at.send(FIRST_HALF, ())
    late, _ = at.close(back=1)  # the cut lies within a staged file of audit records
    assert (late.method, late.audit_records, late.promised, late.findings) == ("join", 2, 3, ())
    at.send(Range(3, ((2, 5), (2, 6))))
    second, _ = at.close()
    assert second.method == "join" and second.findings == ()  # FIRST_HALF's second record
    assert at.close()[0].method == "empty"
    database.close()
