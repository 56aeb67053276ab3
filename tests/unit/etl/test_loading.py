"""What a process loads before it needs it: a driver begins with six Python processes, and each
import of them all is a delay.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "alembic",
    "sqlalchemy",
    "pydantic",
    "confluent_kafka",
    "pyarrow.parquet",
    "hourmark_etl.staging.planner",
)
SOURCE = """
from pyspark import cloudpickle
from hourmark.config.loading import Config
from hourmark_etl.ledger.database import Lease
from hourmark_etl.staging.planner import StreamReader
from hourmark_etl.staging.source import kafka_source
reader = StreamReader(Config(kafka={"edge": {"bootstrap": "nobody:9092"}}), Lease("consumer", 1), "all", "0" * 32)
print(cloudpickle.dumps(kafka_source("all", reader)).hex())
"""
WORKERS = """
import os
from hourmark_etl import workers
workers.manager = lambda: print(sorted(set(workers._MODULES) - sys.modules.keys()))
workers.main([{module!r}])
"""


def run(code: str) -> str:
    """What a process of its own says."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def loaded_by(code: str) -> list[str]:
    """Of what is heavy."""
    found: list[str] = json.loads(
        run(f"{code}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))")
    )
    return found


@pytest.mark.slow
def test_an_open_ledger_needs_no_alembic_until_its_tables_are_changed() -> None:
    assert "alembic" not in loaded_by("import hourmark_etl.ledger.database")


@pytest.mark.slow
def test_processes_that_only_hand_the_source_on_load_nothing_of_it_and_who_reads_loads_all() -> (
    None
):
    """As Spark's `create_data_source` and `plan_data_source_read` do, which pickle what they
    unpickled.
    """
    source = run(SOURCE)
    hand_on = f"""
import pickle
from pyspark import cloudpickle
reader = pickle.loads(bytes.fromhex({source!r}))({{}}).streamReader(None)
reader = pickle.loads(cloudpickle.dumps(reader))
"""
    assert loaded_by(hand_on) == []
    assert loaded_by(f"{hand_on}reader.initialOffset()") == [m for m in HEAVY if m != "alembic"]


@pytest.mark.slow
def test_a_module_that_cannot_be_loaded_is_left_for_a_task_to_name() -> None:
    code = (
        "from hourmark_etl import workers\nworkers._MODULES = "
        "('nothing.here',)\nworkers.manager = lambda: print('forks')\n"
    )
    assert run(f"{code}workers.main(['pyspark.worker'])") == "forks"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "missing"),
    [("pyspark.worker", False), ("pyspark.sql.worker.create_data_source", True)],
)
def test_the_daemon_of_tasks_loads_what_they_need_before_it_forks_them_and_others_do_not(
    module: str, missing: bool
) -> None:
    assert bool(json.loads(run(WORKERS.format(module=module)).replace("'", '"'))) is missing
