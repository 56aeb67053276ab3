"""Finds the bucket folders of an event type, and reads their markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import fastavro

from hourmark_reading.errors import (
    DamagedAvroFile,
    InvalidMarker,
    UnknownColumns,
    UnknownEventType,
)
from hourmark_reading.hours import HOUR_S, bucket_folder, from_seconds, parse_label
from hourmark_reading.markers import (
    MARKER_BYTES_MAX,
    MARKER_NAME,
    REMOVED_FOLDER,
    BucketMarker,
    parse_marker,
    parse_tombstone,
)
from hourmark_reading.store import BucketStore

_TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,99}")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TOMBSTONE_BYTES_MAX: Final = 1 << 30  # markers of one day
_PARALLEL_READS: Final = 16  # of markers, which are small


class BucketIndex:
    """Index of the buckets below a root.

    Closed buckets never change, so markers are kept in memory after they were read. Folders are
    listed each time.

    Args:
        store: The root of the buckets.
    """

    def __init__(self, store: BucketStore) -> None:
        self._store = store
        self._markers: dict[tuple[str, int], BucketMarker] = {}

    def types(self) -> list[str]:
        """Return the names of all event types with a folder, in alphabetical order."""
        return [n for n in self._store.list_folders("") or () if _TYPE_NAME.fullmatch(n)]

    def bucket_seconds(self, event_type: str) -> int:
        """Return the length of the type's buckets; that of an hour if no bucket is closed.

        Raises:
            UnknownEventType: The type has no folder.
            InvalidMarker: The marker of its last bucket is damaged.
        """
        known = [marker for (name, _), marker in self._markers.items() if name == event_type]
        if known:
            return known[0].length_s
        dates = self._dates(event_type)
        for length_s in (HOUR_S, 60):
            for start_s in self._descending(event_type, dates, length_s):
                if (marker := self._read_marker(event_type, start_s, length_s)) is not None:
                    return marker.length_s
        return HOUR_S

    def starts_from(self, event_type: str, from_s: int, length_s: int) -> Iterator[int]:
        """Yield the starts of all bucket folders from a time on, in ascending order.

        Days are listed when they are needed. A bucket whose folder exists may not be closed.

        Args:
            event_type: Name of the event type.
            from_s: Lowest start to yield, in Unix seconds.
            length_s: Length of a bucket in seconds.
        """
        first_date = from_seconds(from_s).strftime("%Y-%m-%d")
        for date in self._dates(event_type):
            if date >= first_date:
                for start_s in self._starts_on(event_type, date, length_s):
                    if start_s >= from_s:
                        yield start_s

    def read_markers(
        self, event_type: str, starts: Iterable[int], length_s: int
    ) -> dict[int, BucketMarker]:
        """Return the markers of closed buckets by the start of their hour in Unix seconds.

        Args:
            event_type: Name of the event type.
            starts: Starts of the hours in Unix seconds. Hours without a marker are left out.
            length_s: Length of a bucket in seconds.

        Raises:
            InvalidMarker: A marker is damaged, or belongs to a bucket of another length.
        """
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(lambda s: self._read_marker(event_type, s, length_s), starts)
            markers = {marker.start_s: marker for marker in found if marker is not None}
        for marker in markers.values():
            if marker.length_s != length_s:
                raise InvalidMarker(
                    f"the bucket of {event_type} at {from_seconds(marker.start_s)} has a length of "
                    f"{marker.length_s} s, but other buckets of the type have {length_s} s; use "
                    "one root for each length"
                )
        return markers

    def read_removed(
        self, event_type: str, first_s: int, end_s: int, length_s: int
    ) -> dict[int, BucketMarker]:
        """Return the markers of removed buckets by the start of their hour in Unix seconds.

        Args:
            event_type: Name of the event type.
            first_s: Start of a span in Unix seconds.
            end_s: End of the span.
            length_s: Length of a bucket in seconds.

        Returns:
            At least the removed buckets in the span, and the first one after it.

        Raises:
            InvalidMarker: A tombstone is damaged.
        """
        first_date, last_date = (from_seconds(s).strftime("%Y-%m-%d") for s in (first_s, end_s))
        names = self._store.list_files(f"{event_type}/{REMOVED_FOLDER}")
        dates = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        inside = [date for date in dates if first_date <= date <= last_date]
        after = [date for date in dates if date > last_date][:1]
        found: dict[int, BucketMarker] = {}
        for date in inside + after:
            path = f"{event_type}/{REMOVED_FOLDER}/{date}.json"
            content = self._store.read_start(path, _TOMBSTONE_BYTES_MAX)
            if content is not None:
                where = self._store.full_url(path)
                markers = parse_tombstone(content, event_type, length_s, where)
                found |= {marker.start_s: marker for marker in markers}
        return found

    def newest_schema(
        self, event_type: str, files: Iterable[tuple[int, str]], length_s: int
    ) -> str:
        """Return the newest schema of some files, as JSON.

        Schema ids ascend, and the schema registry accepts only schemas that can read the data of
        all earlier ones, so the schema with the greatest id reads all files.

        Args:
            event_type: Name of the event type.
            files: Schema id and path of each file. If there is none, the schema is that of the
                type's last bucket with events.
            length_s: Length of a bucket in seconds.

        Raises:
            UnknownColumns: No bucket of the type has events.
            DamagedAvroFile: The file is missing, or its header cannot be decoded.
        """
        _, path = max(files, default=None) or self._file_of_last_bucket(event_type, length_s)
        try:
            with self._store.open(path) as file:
                reader: Any = fastavro.reader(file)
                schema: str = reader.metadata["avro.schema"]
        except FileNotFoundError as error:
            raise missing_file(self._store.full_url(path)) from error
        except OSError:
            raise  # of the store
        except Exception as error:  # damaged bytes make a decoder raise anything
            raise DamagedAvroFile(
                f"{self._store.full_url(path)} has no valid header ({type(error).__name__}: {error}); "
                "`hourmark bucket verify` lists the problems of a bucket"
            ) from error
        return schema

    def _file_of_last_bucket(self, event_type: str, length_s: int) -> tuple[int, str]:
        for start_s in self._descending(event_type, self._dates(event_type), length_s):
            marker = self._read_marker(event_type, start_s, length_s)
            if marker is not None and marker.files:
                newest = max(marker.files, key=lambda file: file.schema_id)
                folder = bucket_folder(event_type, start_s, length_s)
                return newest.schema_id, f"{folder}/{newest.name}"
        raise UnknownColumns(f"no bucket of {event_type} has events, so its fields are not known")

    def _dates(self, event_type: str) -> list[str]:
        valid = _TYPE_NAME.fullmatch(event_type) is not None
        names = self._store.list_folders(event_type) if valid else None
        if names is None:
            raise UnknownEventType(
                f"there is no event type {event_type!r:.120} below {self._store.url}; the types "
                f"are {', '.join(self.types()) or 'none'}"
            )
        dates = (name.removeprefix("date=") for name in names if name.startswith("date="))
        return [date for date in dates if _DATE.fullmatch(date)]

    def _starts_on(self, event_type: str, date: str, length_s: int) -> list[int]:
        prefixes = ("hour=",) if length_s == HOUR_S else ("hour=", "minute=")
        starts = []
        for clock in self._store.walk_levels(f"{event_type}/date={date}", prefixes):
            try:
                starts.append(parse_label(f"{date}T{':'.join(clock)}", length_s))
            except ValueError:
                continue  # not the folder of a bucket
        return sorted(starts)

    def _descending(self, event_type: str, dates: list[str], length_s: int) -> Iterator[int]:
        for date in reversed(dates):
            yield from reversed(self._starts_on(event_type, date, length_s))

    def _read_marker(self, event_type: str, start_s: int, length_s: int) -> BucketMarker | None:
        key = (event_type, start_s)
        if key not in self._markers:
            path = f"{bucket_folder(event_type, start_s, length_s)}/{MARKER_NAME}"
            content = self._store.read_start(path, MARKER_BYTES_MAX + 1)
            if content is None:
                return None
            where = self._store.full_url(path)
            if len(content) > MARKER_BYTES_MAX:
                raise InvalidMarker(f"{where} is larger than {MARKER_BYTES_MAX} bytes")
            self._markers[key] = parse_marker(content, event_type, start_s, where)
        return self._markers[key]


def missing_file(url: str) -> DamagedAvroFile:
    """Return the exception for a file that a marker lists and that does not exist."""
    return DamagedAvroFile(
        f"{url} does not exist, but the marker of its bucket lists it; if the bucket was removed "
        "meanwhile, read the range again, otherwise restore the file from a copy"
    )
