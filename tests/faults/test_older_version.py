"""What 0.2.0 really does with each form that this version writes: its own code reads them, in an
environment of its own.

`hourmark.rollback.version` says what it does not read. What it reads, and what it refuses, is told
by it here, and not by us. So the programs that it runs import its modules, by the names of 0.2.0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_kept_formats import AUDIT_RECORD, HOST_ID, REPORT, RULES
from tests.support.known import setting_names
from tests.support.records import PARQUET_FILE, manifest
from tests.support.released import interpreter, why_not_there
from tests.support.tailer.spooled import spooled

from hourmark.process.alarms import Alarm, AlarmName
from hourmark.records.manifest import Manifest
from hourmark.rollback.settings import is_unknown
from hourmark.rollback.version import VERSIONS
from hourmark.rules.event_types import DEAD_LETTERS, EventType
from hourmark.rules.line_rule import LineRule
from hourmark.rules.revision import PARSER, ParserVersion, Rules, TypeVersion
from hourmark_delivery_service.parsing.parser_check import FOLDER, check_parser
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.downgrading import downgrade_ledger
from hourmark_mirror.verify.verification_state import TopicCheckpoint, VerificationState

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
OLDER = VERSIONS["0.2.0"]

Ask = Callable[[str, Any], Any]


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Runs lines of Python in 0.2.0's environment, with `given`; what they leave in `told`, or the
    error that they ended with.
    """
    if why := why_not_there(OLDER.name):
        pytest.skip(why)
    python = interpreter(OLDER.name)

    def asked(lines: str, given: Any) -> Any:
        program = (
            "import json, sys\ngiven = json.loads(sys.stdin.read())\ntry:\n"
            f"{textwrap.indent(textwrap.dedent(lines), '    ')}\n"
            "except Exception as error:\n    told = f'{type(error).__name__}: "
            "{error}'\nprint(json.dumps(told))"
        )
        done = subprocess.run(
            [python, "-c", program],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return json.loads(done.stdout)

    return asked


def read_marker(ask: Ask, told: Manifest) -> Any:
    lines = """
        from hourmark.manifest import Manifest
        told = Manifest.decode(given.encode()).events
    """
    return ask(lines, told.with_own_digest().encode().decode())


def test_a_marker_that_vouches_for_itself_is_read(ask: Ask) -> None:
    assert read_marker(ask, manifest(events=7)) == 7


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lost", {"app": 7}),
        ("unknown", {"app": 1}),
        ("unrepeatable", ["app"]),
        ("codec", "deflate"),
        ("parquet", [PARQUET_FILE]),
    ],
)
def test_a_marker_that_names_losses_is_refused(ask: Ask, field: str, value: Any) -> None:
    assert field in OLDER.no_marker_fields
    assert "not a manifest" in read_marker(ask, manifest(**{field: value}))


def test_audit_records_with_blank_lines_are_read(ask: Ask) -> None:
    lines = """
        from hourmark.audit import AuditRecord
        record = AuditRecord.decode(bytes.fromhex(given))
        told = [record.lines, record.promised[0].count, record.range_id.hex()]
    """
    sent = dataclasses.replace(AUDIT_RECORD, blanks=5)
    assert ask(lines, sent.encode().hex()) == [
        sent.lines,
        sent.promised[0].count,
        sent.range_id.hex(),
    ]


def test_host_reports_with_losses_of_unknown_size_are_read(ask: Ask) -> None:
    lines = """
        from hourmark.host_reports import HostReport
        report = HostReport.decode(bytes.fromhex(given))
        told = [report.sequence, report.sources[0].lost_bytes]
    """
    source = dataclasses.replace(REPORT.sources[0], unknown_losses=3, unrepeatable=True)
    sent = dataclasses.replace(REPORT, sources=(source,))
    assert ask(lines, sent.encode().hex()) == [sent.sequence, source.lost_bytes]


RULES_LINES = """
    from hourmark.rules import RulesBook
    from hourmark_delivery_service.parsing.compiled import CompiledRules
    book = RulesBook(tuple(record) for record in given)
    told = CompiledRules(book.latest).parser[0]
"""


def test_rules_of_a_parser_that_it_has_are_used(ask: Ask) -> None:
    types = {**RULES.types, DEAD_LETTERS.name: TypeVersion(DEAD_LETTERS, 2)}
    known = Rules(
        sequence=1,
        types=types,
        sources=RULES.sources,
        parsing=RULES.parsing,
        parser=ParserVersion(1, PARSER.zones),
    )
    assert OLDER.parsers == (1,)
    assert ask(RULES_LINES, list(known.records())) == 1
    later = dataclasses.replace(known, parser=PARSER)
    assert f"names the parser {PARSER.parser} " in ask(RULES_LINES, list(later.records()))


def test_ranges_that_name_its_rules_are_parsed_the_same_by_both(ask: Ask) -> None:
    lines = """
        import hashlib
        from hourmark_delivery_service.parsing.parser_check import FOLDER, check_parser
        check_parser()
        told = hashlib.sha256((FOLDER / "1.json").read_bytes()).hexdigest()
    """
    check_parser()  # what either gives for the same vectors is what was kept
    assert ask(lines, None) == hashlib.sha256((FOLDER / "1.json").read_bytes()).hexdigest()


def test_a_declaration_of_later_forms_is_refused(ask: Ask) -> None:
    declared = EventType(
        name="click", fields=[{"name": "n", "type": "long"}], line=LineRule(payload="logfmt")
    )
    rules = dataclasses.replace(RULES, types={"click": TypeVersion(declared, 1)})
    assert "is not usable" in ask(RULES_LINES, list(rules.records()))


CHECKPOINT_LINES = """
    from pathlib import Path
    from hourmark_producer.checkpoint import Checkpoint
    checkpoint, host_id = Checkpoint.open(Path(given))
    told = [host_id, len(checkpoint.files())]
    checkpoint.close()
"""


def test_a_checkpoint_of_one_range_a_file_is_gone_on_with_and_one_of_several_is_refused(
    ask: Ask, tmp_path: Path
) -> None:
    assert OLDER.checkpoints == (1,)
    one, several = tmp_path / "one", tmp_path / "several"
    one.mkdir()
    several.mkdir()
    assert ask(CHECKPOINT_LINES, str(spooled(one))) == [HOST_ID, 1]
    assert "format" in ask(CHECKPOINT_LINES, str(spooled(several, several=True)))


@pytest.mark.parametrize(
    ("field", "value"), [("record_start", "^x"), ("fields", '{"a":"b"}'), ("format", "cri")]
)
def test_a_spooled_range_that_says_more_is_refused(
    ask: Ask, tmp_path: Path, field: str, value: str
) -> None:
    assert field in OLDER.no_range_fields
    assert field in ask(CHECKPOINT_LINES, str(spooled(tmp_path, several=False, **{field: value})))


def test_what_the_mirror_remembers_is_read_and_alarms_are_forgotten(
    ask: Ask, tmp_path: Path
) -> None:
    lines = """
        from pathlib import Path
        from hourmark_mirror.checks import Checks
        checks = Checks(Path(given), "edge")
        told = checks.ids
        checks.save()
    """
    checks = VerificationState(tmp_path, "edge")
    checks.topics["events.click"] = TopicCheckpoint("topic-id", {0: 17})
    checks.raise_alarms(
        [
            Alarm(
                AlarmName.OVERTAKEN,
                "events.click-0",
                "offsets 3 to 7 may be missing",
                "events.click",
            )
        ]
    )
    checks.save()
    assert ask(lines, str(tmp_path)) == {"events.click": "topic-id"}
    after = VerificationState(tmp_path, "edge")
    assert (after.topics, after.alarms) == (
        checks.topics,
        [],
    )  # which is why alarms that stand are in the way


def test_a_ledger_is_opened_once_it_stepped_down(ask: Ask, tmp_path: Path) -> None:
    lines = """
        from hourmark_etl.ledger.database import Database
        with Database(given) as database:
            told = database.identity()[0]
    """
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Database(url) as database:
        uuid = database.identity()[0]
    assert "this software knows 2" in ask(lines, url)
    downgrade_ledger(url, OLDER.ledger)
    assert ask(lines, url) == uuid


def test_settings_that_it_does_not_know_are_those_that_it_refuses(ask: Ask) -> None:
    lines = """
        import typing
        from pydantic import BaseModel
        from hourmark.config import Config
        def names(model, before=""):
            for name, field in model.model_fields.items():
                kinds = (field.annotation, *typing.get_args(field.annotation))
                groups = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
                yield from names(groups[0], f"{before}{name}.") if groups else [before + name]
        told = sorted(names(Config))
    """
    known = set(ask(lines, None))
    unknown = {name for name in setting_names() if is_unknown(name, OLDER)}
    assert unknown == set(setting_names()) - known


def test_its_version_is_the_one_that_is_told(ask: Ask) -> None:
    assert (
        ask("from importlib.metadata import version\ntold = version('hourmark')", None)
        == OLDER.name
    )
