"""The ledger is gone and the root holds buckets: every command says `ledger rebuild`, and none
makes an empty ledger there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.buckets import HOUR, TYPE, usual_plan

from hourmark.config.loading import Config, load_config
from hourmark.errors import Unavailable
from hourmark_declare.servers import open_targets
from hourmark_etl.cli import etl
from hourmark_etl.driver import run as run_job
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators.audit import audit
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.ledger import ledger
from hourmark_etl.storage import LocalDisk


def lost_by_a_file(config: Config, path: Path) -> None:
    """Nothing stands there."""


def lost_by_an_empty_file(config: Config, path: Path) -> None:
    path.touch()


def lost_by_a_start(config: Config, path: Path) -> None:
    """A start made a ledger, and stored nothing."""
    Database(config.etl.ledger).close()


LOSSES = [lost_by_a_file, lost_by_an_empty_file, lost_by_a_start]


def apply_types(file: Path) -> None:
    with open_targets(load_config(file), lambda _: None):
        pass


def invoke(command: object, *arguments: str) -> Callable[[Path], None]:
    def call(file: Path) -> None:
        result = CliRunner().invoke(command, [*arguments, "--config", str(file)])  # type: ignore[arg-type]
        if result.exception is not None:
            raise result.exception

    return call


COMMANDS: dict[str, Callable[[Path], None]] = {
    "etl run": lambda file: run_job(load_config(file), submitted=False),
    "etl set-aside ls": invoke(etl, "set-aside", "ls", TYPE),
    "types apply": apply_types,
    "bucket why": invoke(bucket, "why", TYPE, str(HOUR.next())),
    "bucket force": invoke(bucket, "force", TYPE, str(HOUR.next()), "--reason", "r", "--yes"),
    "audit": invoke(audit),
    "ledger check": invoke(ledger, "check"),
}


@pytest.mark.slow
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_with_buckets_on_the_root_a_ledger_that_is_gone_is_to_be_rebuilt(
    command: str, lose: Callable[[Config, Path], None], file: Path, tmp_path: Path
) -> None:
    usual_plan(LocalDisk(tmp_path / "root")).close()
    path = tmp_path / "ledger.sqlite"
    lose(load_config(file), path)
    stood = path.exists()
    with pytest.raises(Unavailable) as refused:
        COMMANDS[command](file)
    said = str(refused.value)
    assert (
        f"`hourmark ledger rebuild --into sqlite:///{path}`" in said and "types apply" not in said
    )
    assert str(path) in said and f"{tmp_path}/root" in said and TYPE in said
    assert path.exists() == stood, "no command makes one"


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"types apply"}))
def test_where_nothing_was_closed_yet_types_apply_makes_the_ledger(
    command: str, file: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        Unavailable, match=r"no ledger exists at .*`hourmark types apply --dir types` creates it"
    ):
        COMMANDS[command](file)
    assert not (tmp_path / "ledger.sqlite").exists()
    apply_types(file)
    assert (tmp_path / "ledger.sqlite").exists()


def test_a_ledger_that_knows_no_types_is_waited_for(file: Path) -> None:
    apply_types(file)
    with pytest.raises(
        Unavailable,
        match=r"the ledger has no event types yet; add them with `hourmark types apply --dir types`",
    ) as told:
        COMMANDS["etl run"](file)
    assert told.value.exit_code == 1, "a unit starts it again"


def test_where_storage_does_not_answer_it_is_said_that_nobody_can_tell(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between tries
    away = '[storage]\nroot = "hdfs://nowhere:8020/root"\nwebhdfs = "http://127.0.0.1:9"\n'
    file.write_text(away + file.read_text().partition("\n[etl]")[2].join(["[etl]", ""]))
    with pytest.raises(Unavailable, match="it is unknown whether it is lost") as refused:
        open_existing_ledger(load_config(file))
    assert "`hourmark ledger rebuild" in str(refused.value) and "`hourmark types apply" in str(
        refused.value
    )
    apply_types(file)
    assert (tmp_path / "ledger.sqlite").exists(), "a first ledger needs no storage"
    with pytest.raises(Unavailable, match=r"is empty, and it is unknown whether it is lost"):
        open_existing_ledger(load_config(file))
