"""Faults in markers and in the chains they make, and in what lies beside buckets."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.judged.world import BucketPlan, World
from tests.unit.verify.judge.planting import FAULTS


def edit(marker: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what a marker says: in place, or by an answer with what is to be changed."""
    said = json.loads(marker.read_bytes())
    said |= change(said) or {}
    marker.write_text(json.dumps(said))


# Markers: they are written, then one is changed.
def on_marker(
    name: str,
    change: Callable[[dict[str, Any]], Any],
    fits: Callable[[BucketPlan], bool] = lambda _: True,
) -> None:
    """A fault in one marker: `change` does it in place, or answers what is to be changed."""

    def fault(world: World, chance: random.Random) -> bool:
        fit = [plan for plan in world.plans if fits(plan)]
        world.write()
        if not fit:
            return False
        edit(world.folder(chance.choice(fit)) / "_SUCCESS", change)
        world.chain()  # so that it is this fault that is found
        return True

    FAULTS[f"marker_{name}"] = fault


def full(plan: BucketPlan) -> bool:
    """Whether it has events."""
    return bool(plan.rows or plan.late)


def evidence(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """A change in the evidence."""
    return lambda said: said["evidence"].update(changes)


def of_file(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """A change in the first file."""
    return lambda said: said["files"][0].update(changes)


def more(name: str) -> Callable[[dict[str, Any]], Any]:
    """One more of it."""
    return lambda said: {name: said[name] + 1}


def book(**changes: int) -> Callable[[dict[str, Any]], Any]:
    """So much more in the first book."""

    def change(said: dict[str, Any]) -> None:
        of = next(iter(said["books"].values()))
        of.update({name: of[name] + count for name, count in changes.items()})

    return change


def doubled_promise(said: dict[str, Any]) -> None:
    """More promised than there is, in books and evidence alike."""
    book(promised=1)(said)
    said["evidence"] |= {"promised": said["evidence"]["promised"] + 1, "method": "join"}


on_marker("empty_over_events", evidence(method="empty"), full)
on_marker(
    "empty_over_events_and_promises", evidence(method="empty", promised=0, audit_records=0), full
)
on_marker("proved_with_waive", evidence(waived=["host x had not caught up"]))
on_marker(
    "forced", lambda said: said["evidence"].update(waived=["forced by x"]) or {"grade": "forced"}
)
on_marker("forced_without_waive", lambda _: {"grade": "forced"})
on_marker("grade_of_no_kind", lambda _: {"grade": "banana"})
on_marker("promised_less", evidence(promised=0), full)
on_marker("promised_without_records", evidence(audit_records=0), full)
on_marker("promised_more_than_there_is", doubled_promise, full)
on_marker("cut_early", evidence(cut_at_ms=0))
on_marker("closed_early", lambda _: {"closed_at_ms": 1})
on_marker("events", more("events"))
on_marker("duplicates", more("duplicates_removed"))
on_marker("unaudited", more("unaudited"))
on_marker("book_rows", book(rows=1), full)
on_marker("book_events", book(events=1), full)
on_marker("book_promised", book(promised=1), full)
on_marker("book_unaudited", book(unaudited=1), full)
on_marker(
    "book_of_another_hour",
    lambda said: {"books": {"2025-11-20T23:59": next(iter(said["books"].values()))}},
    full,
)
on_marker("no_books", lambda _: {"books": {}}, full)
on_marker("late", lambda said: {"late": {**said["late"], "2025-11-20T00:00": 1}})
on_marker("id_sum", lambda said: {"id_sum": f"{int(said['id_sum'], 16) ^ 1:016x}"})
on_marker("type", lambda _: {"type": "other"})
on_marker("hour", lambda _: {"hour": "2025-11-21T01:00"})
on_marker("bucket_seconds", lambda _: {"bucket_seconds": 120})
on_marker("format", lambda _: {"format": 2})
on_marker("unknown_key", lambda _: {"hello": 1})
on_marker("unrepeatable_as_counts", lambda _: {"unrepeatable": {"net": 1}})
on_marker("number_as_float", lambda said: {"events": float(said["events"])})
on_marker("no_offsets", lambda _: {"offsets": []}, full)
on_marker(
    "offsets_of_another_type",
    lambda said: {"offsets": [{**o, "topic": "edge.events.other"} for o in said["offsets"]]},
)
on_marker("attempt", lambda _: {"attempt": ""})
on_marker("ledger_commit", lambda _: {"ledger_commit": -1})
on_marker("file_records", of_file(records=77), full)
on_marker("file_bytes", of_file(bytes=77), full)
on_marker("file_digest", of_file(blake2b="0" * 32), full)
on_marker("file_name", of_file(name="part-00009.avro"), full)
on_marker("schema_fingerprint", of_file(schema_fingerprint="0" * 16), full)
on_marker(
    "codec_of_other_files",
    lambda said: {"codec": None if said.get("codec") else "deflate"},
    full,
)
on_marker("codec_without_files", lambda _: {"codec": "deflate"}, lambda plan: not full(plan))
on_marker("codec_of_no_kind", lambda _: {"codec": "zstandard"}, full)
on_marker(
    "file_twice", lambda said: {"files": said["files"] * 2, "events": said["events"] * 2}, full
)


def chain(world: World, at_least: int) -> list[BucketPlan]:
    """The buckets of a type that has so many, in turn."""
    types = sorted({plan.event_type for plan in world.plans})
    chains = [
        sorted((p for p in world.plans if p.event_type == t), key=lambda p: p.hour) for t in types
    ]
    return next((found for found in chains if len(found) >= at_least), [])


def in_chain(change: Callable[[list[Path]], None]) -> None:
    """A fault in the markers of a type that has three buckets."""

    def fault(world: World, chance: random.Random) -> bool:
        world.write()
        found = chain(world, 3)
        if found:
            change([world.folder(plan) / "_SUCCESS" for plan in found])
            if change.__name__.startswith("ledger"):
                world.chain()
        return bool(found)

    FAULTS[change.__name__] = fault


def in_second(name: str, **changes: Any) -> None:
    """A fault in the second of three markers."""

    def change(markers: list[Path]) -> None:
        edit(markers[1], lambda _: changes)

    change.__name__ = name
    in_chain(change)


in_second("ledger_that_comes_back", ledger="other")
in_second("ledger_commit_that_falls", ledger_commit=1)
in_second("marker_that_follows_another", previous={"hour": "2025-11-21T00:00", "blake2b": "0" * 32})
in_second("second_marker_that_says_it_is_the_first", previous=None)


def in_later(name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """A fault in the second of three markers and the third: digests of markers are right."""

    def fault(world: World, chance: random.Random) -> bool:
        world.write()
        found = chain(world, 3)
        for plan in found[1:3]:
            edit(world.folder(plan) / "_SUCCESS", change)
        if found:
            world.chain()
        return bool(found)

    FAULTS[f"marker_{name}"] = fault


def of_offsets(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """A change in all offsets of events."""
    return lambda said: {"offsets": [o | changes for o in said["offsets"]]}


in_later("offsets_that_go_back", of_offsets(next=999_999))
in_later("offsets_of_a_topic_made_again", of_offsets(topic_id="another"))
in_later("audit_offsets_that_go_back", evidence(audit_next={"0": 0}))


@in_chain
def markers_that_name_none_before_them(markers: list[Path]) -> None:
    for marker in markers[0].parents[3].rglob("_SUCCESS"):
        edit(marker, lambda said: said.pop("previous") and None)


@in_chain
def hour_missing_in_the_chain(markers: list[Path]) -> None:
    shutil.rmtree(markers[1].parent)


# What lies beside buckets.
def beside(change: Callable[[Path], None]) -> None:
    """A fault beside a bucket that is not empty."""

    def fault(world: World, chance: random.Random) -> bool:
        world.write()
        fit = [plan for plan in world.plans if plan.rows]
        if fit:
            change(world.folder(chance.choice(fit)))
        return bool(fit)

    FAULTS[change.__name__] = fault


@beside
def file_unlisted(folder: Path) -> None:
    shutil.copy(folder / "part-00000.avro", folder / "part-00009.avro")


@beside
def file_unlisted_and_hidden(folder: Path) -> None:
    (folder / "_leftover").touch()


@beside
def folder_unlisted(folder: Path) -> None:
    (folder / "sub").mkdir()


@beside
def attempt_in_a_bucket(folder: Path) -> None:
    shutil.copytree(folder, folder / "attempt-1")


@beside
def attempt_named_like_a_bucket(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("minute=00.attempt"))


@beside
def attempt_in_a_type(folder: Path) -> None:
    shutil.copytree(folder, folder.parents[2] / "attempt-1")


@beside
def folder_without_marker(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("minute=59"))
    (folder.with_name("minute=59") / "_SUCCESS").unlink()


@beside
def marker_gone(folder: Path) -> None:
    (folder / "_SUCCESS").unlink()


@beside
def file_in_the_root(folder: Path) -> None:
    shutil.copy(folder / "part-00000.avro", folder.parents[3])


@beside
def hour_closed_above_its_minutes(folder: Path) -> None:
    shutil.copy(folder / "_SUCCESS", folder.parent / "_SUCCESS")


@beside
def byte_of_a_file_flipped(folder: Path) -> None:
    file = folder / "part-00000.avro"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
