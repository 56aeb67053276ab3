"""Evaluates PostgreSQL settings and privileges. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, passed_result

CHECK: Final = "ledger"
SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    # setting: (consequence of off, remedy)
    "fsync": (
        "what was committed is lost, or damaged, when its machine stops",
        "set fsync = on, then reload",
    ),
    "full_page_writes": (
        "a page half written when its machine stops stays damaged",
        "set full_page_writes = on, then reload",
    ),
    "synchronous_commit": (
        "the last commits are lost when its server stops",
        "set synchronous_commit = on, then reload",
    ),
    "data_checksums": (
        "what its disk damages is read as if it were right",
        "stop the server, and run pg_checksums --enable",
    ),
}

VERSION: Final = "server_version_num"
VERSION_MIN: Final = 10  # psycopg 3 supports no older version
RIGHTS: Final[Mapping[str, tuple[str, str]]] = {
    # query: (consequence of false, remedy)
    "has_schema_privilege(current_schema(), 'CREATE')": (
        (
            "this user may make no tables: `hourmark types apply` cannot make the ledger, "
            "and no later version can migrate it"
        ),
        "GRANT CREATE ON SCHEMA … TO its user, as the schema's owner",
    ),
    "has_database_privilege(current_database(), 'CREATE')": (
        (
            "this user may make no schema, in which the ledger is copied before it is "
            "migrated: a later version will not start"
        ),
        "GRANT CREATE ON DATABASE … TO its user, as the database's owner",
    ),
}


def evaluate_postgresql(settings: Mapping[str, str]) -> Iterator[DoctorCheckResult]:
    """Check whether PostgreSQL is recent enough, commits durably and detects disk corruption.

    Args:
        settings: Names and values of PostgreSQL settings, as reported by the server, including
            `server_version_num`.

    Yields:
        A finding if the version is too old. A finding for each durability setting that is `off`, or
        a passed result if there are none.
    """
    major = int(settings.get(VERSION, "0")) // 10_000
    if 0 < major < VERSION_MIN:
        yield finding_result(
            CHECK,
            "PostgreSQL",
            f"version {major}, needed is {VERSION_MIN}",
            "upgrade it, by pg_upgrade or a dump",
        )
    off = [name for name in SETTINGS if settings.get(name) == "off"]
    for name in off:
        comes_of, to_do = SETTINGS[name]
        yield finding_result(CHECK, "PostgreSQL", f"{name} = off: {comes_of}", to_do)
    if not off:
        yield passed_result(CHECK, "PostgreSQL", f"version {major}; {', '.join(SETTINGS)} are on")


def evaluate_privileges(answers: Mapping[str, bool]) -> Iterator[DoctorCheckResult]:
    """Check whether the database user may create tables and schemas in PostgreSQL.

    Args:
        answers: Maps each SQL expression that tests a privilege (a key of `RIGHTS`) to whether the
            user has this privilege.

    Yields:
        A finding for each missing privilege, or one passed result if none are missing.
    """
    lacking = [question for question in RIGHTS if not answers[question]]
    for question in lacking:
        comes_of, to_do = RIGHTS[question]
        yield finding_result(CHECK, "PostgreSQL", comes_of, to_do)
    if not lacking:
        yield passed_result(CHECK, "PostgreSQL", "this user may make tables and schemas")
