"""What is built of each room, and what a machine has that installs it: its own commands, and
nothing that it does not need.
"""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.packaging.conftest import Built, Environment, must, other_text, rooms_of
from tests.packaging.rooms import ROOMS, ROOT, needs
from tests.support.buckets import EARLIER, HOUR, LATER, TYPE, usual_plan

from hourmark.cli import COMMANDS
from hourmark_etl.storage import LocalDisk

pytestmark = pytest.mark.slow

Place = Callable[[str], Environment]
Answer = subprocess.CompletedProcess[str]

PACKAGES_OF_A_LOG_HOST_MAX = 19
HEAVY = {"pyspark", "pyarrow", "pandas", "numpy"}
DATA = (  # the kinds of files that are no Python
    "hourmark/audit.avsc",
    "hourmark/audit_before_blanks.avsc",
    "hourmark/envelope.avsc",
    "hourmark/host_report.avsc",
    "hourmark_delivery_service/parsing/zone_data/2026.6.zip",
    "hourmark_delivery_service/parsing/vectors/1.json",
    "hourmark_delivery_service/parsing/vectors/2.json",
    "hourmark_infra/jars/jars.lock",
    "hourmark_infra/java/jdk.lock",
    "hourmark_etl/ledger/migrations/versions/v2.py",
)
# What is installed, its own commands, and what of HEAVY comes with it.
PLACES: dict[str, tuple[set[str], set[str]]] = {
    "hourmark-producer": ({"tail"}, set()),
    "hourmark-delivery-service": ({"serve"}, set()),
    "hourmark-mirror": ({"mirror"}, set()),
    "hourmark-etl": ({"etl", "ledger", "bucket"}, set()),
    "hourmark-etl[arrow]": ({"etl", "ledger", "bucket", "audit", "trace"}, {"numpy", "pyarrow"}),
    "hourmark-declare": ({"types", "doctor"}, set()),
    "hourmark-infra": ({"test", "bench", "up", "down", "purge"}, set()),
    "hourmark-infra[spark]": ({"test", "bench", "up", "down", "purge"}, {"pyspark"}),
    "hourmark-verify": ({"demo", "judge"}, {"numpy", "pyspark"}),
    "hourmark-evaluate": ({"evaluate", "size"}, {"numpy", "pyspark"}),
}
FULL = "hourmark-etl[spark]"
# Those in the suite: the small ones that log hosts and readers install, and the largest of ours.
SUITE = {"hourmark-producer", "hourmark-delivery-service", "hourmark-etl[arrow]"}
every_place = pytest.mark.parametrize(
    "asked",
    [
        pytest.param(place, marks=() if place in SUITE else pytest.mark.long)
        for place in (*PLACES, FULL)
    ],
)


def commands_of(asked: str) -> set[str]:
    return PLACES["hourmark-etl[arrow]" if asked == FULL else asked][0]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def in_the_tree(package: Path) -> dict[str, bytes]:
    files = [
        path for path in package.rglob("*") if path.is_file() and path.parent.name != "__pycache__"
    ]
    return {str(path.relative_to(package.parent)): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ROOMS)
def test_a_wheel_holds_its_package_with_every_file_and_no_other_name(
    name: str, built: dict[str, Built]
) -> None:
    room, found = ROOMS[name], contents(built[name].wheel)
    own = {path: content for path, content in found.items() if ".dist-info/" not in path}
    assert own == in_the_tree(room.folder / room.package)
    assert {path.partition("/")[0] for path in found} == {
        room.package,
        f"{room.package}-{room.project['version']}.dist-info",
    }


def test_the_compiled_module_is_in_the_wheel_and_serves_every_python_of_its_platform(
    built: dict[str, Built],
) -> None:
    wheel = built["hourmark-native"].wheel
    assert "-cp311-abi3-linux_" in wheel.name
    assert "hourmark_native/_native.abi3.so" in contents(wheel)


@pytest.mark.parametrize("name", ROOMS)
def test_the_wheel_of_an_sdist_is_the_wheel_of_the_tree(name: str, built: dict[str, Built]) -> None:
    assert contents(built[name].wheel_of_sdist) == contents(built[name].wheel)


@pytest.mark.long  # all that the rooms need, Spark among it
@pytest.mark.timeout(1200)
def test_sdists_are_built_and_installed_where_nothing_is_and_work(
    built: dict[str, Built], empty: Callable[[str], Environment]
) -> None:
    environment = empty("of-sdists")
    all_needed = needs(Requirement(name) for name in ROOMS)
    environment.install(
        [of.sdist for of in built.values()],
        [f"{name}=={version}" for name, version in all_needed.items()],
    )
    must(environment.check())
    assert {name for name in environment.distributions() if name.startswith("hourmark")} == {*ROOMS}
    for command in ("tail", "serve", "mirror", "etl", "types", "up"):  # one of each room
        assert f"Usage: hourmark {command}" in must(environment.run("hourmark", command, "--help"))
    compiled = "from hourmark_native import _native; print(_native.__file__)"
    assert must(environment.run("python", "-c", compiled)).startswith(str(environment.site)), (
        "compiled from its source"
    )
    assert environment.imported() == []


def test_data_files_are_in_wheels_and_sdists(built: dict[str, Built]) -> None:
    for path in DATA:
        of = built[path.partition("/")[0].replace("_", "-")]
        with tarfile.open(of.sdist) as archive:
            member = archive.extractfile(f"{of.sdist.name.removesuffix('.tar.gz')}/{path}")
            assert member is not None
            content = member.read()
        assert content
        assert content == contents(of.wheel)[path] == (of.room.folder / path).read_bytes()


@every_place
def test_what_is_installed_suffices_and_is_no_more_than_asked(asked: str, place: Place) -> None:
    environment = place(asked)
    there = environment.distributions()
    assert {name for name in there if name.startswith("hourmark")} == rooms_of(Requirement(asked))
    assert there & HEAVY == (HEAVY if asked == FULL else PLACES[asked][1])
    must(environment.check())


def test_a_log_host_has_three_wheels_of_ours_few_others_and_no_client_of_kafka(
    place: Place,
) -> None:
    there = place("hourmark-producer").distributions()
    assert {name for name in there if name.startswith("hourmark")} == {
        "hourmark",
        "hourmark-native",
        "hourmark-producer",
    }
    assert not there & {"pyspark", "pyarrow", "confluent-kafka", "fastavro"}
    assert len(there) <= PACKAGES_OF_A_LOG_HOST_MAX


@pytest.fixture(scope="session")
def answers(place: Place) -> Callable[[str], dict[str, Answer]]:
    """What a place says to `--help` of each of its own commands, and of one command of each room
    that is not there.
    """
    kept: dict[str, dict[str, Answer]] = {}

    def get(asked: str) -> dict[str, Answer]:
        if asked not in kept:
            absent = {module.partition(".")[0]: name for name, (module, _) in COMMANDS.items()}
            for package in rooms_of(Requirement(asked)):
                absent.pop(package.replace("-", "_"), None)
            found = {
                name: place(asked).run("hourmark", name, "--help")
                for name in commands_of(asked) | {*absent.values()}
            }
            kept[asked] = found
        return kept[asked]

    return get


@every_place
def test_its_commands_answer_and_the_others_say_what_to_install(
    asked: str, answers: Callable[[str], dict[str, Answer]]
) -> None:
    for command, done in answers(asked).items():
        if command in commands_of(asked):
            assert (done.returncode, done.stderr) == (0, ""), command
            assert done.stdout.startswith(f"Usage: hourmark {command}")
        else:
            distribution = COMMANDS[command][0].partition(".")[0].replace("_", "-")
            assert done.returncode == 2, command
            assert f"pip install '{distribution}'" in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr


@every_place
def test_modules_of_other_people_are_left_alone(
    asked: str, place: Place, answers: Callable[[str], dict[str, Answer]]
) -> None:
    environment, others = place(asked), place(asked).others()
    assert answers(asked)
    assert environment.imported() == []
    assert {name: file.read_text() for name, file in others.items()} == {
        n: other_text(file) for n, file in others.items()
    }
    done = environment.run(
        "python", "-c", f"import {', '.join(others)}; print(etl.OWNER, infra.OWNER)"
    )
    try:
        assert done.stdout == "other people other people\n", done.stderr
        assert environment.imported() == list(others)
    finally:
        environment.forget_imports()


IMPORT_ALL = """
import importlib, pkgutil, sys
missing = set()
for package in sys.argv[1:]:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if module.name.startswith("hourmark.testing"):  # of the extra, for users' own tests
            continue
        if ".migrations." not in module.name and not module.name.endswith("__main__"):  # those act when imported
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                missing.add(error.name.partition(".")[0])
print(*sorted(missing))
"""
NO_SPARK = {"py4j", "pyspark", "prometheus_client"}
NO_ARROW = {"numpy", "pyarrow"}
NO_RECORDS = {"re2"}
NO_OBJECT_STORES = {"obstore"}
LACKING = {  # what some of its modules import that is not for this place
    "hourmark-producer": {"confluent_kafka", "fastavro", "prometheus_client", "xxhash"},
    "hourmark-mirror": NO_RECORDS,
    "hourmark-infra": NO_RECORDS | {"prometheus_client"},
    "hourmark-infra[spark]": NO_RECORDS | {"prometheus_client"},
    "hourmark-verify": NO_RECORDS | {"prometheus_client"},
    "hourmark-evaluate": NO_RECORDS | {"prometheus_client"},
    FULL: NO_RECORDS | NO_OBJECT_STORES,
    "hourmark-etl": NO_SPARK | NO_ARROW | NO_RECORDS | NO_OBJECT_STORES,
    "hourmark-etl[arrow]": NO_SPARK | NO_RECORDS | NO_OBJECT_STORES,
    "hourmark-declare": NO_SPARK - {"prometheus_client"} | NO_ARROW | NO_OBJECT_STORES,
}


@every_place
def test_every_module_loads_but_for_what_is_known(asked: str, place: Place) -> None:
    packages = sorted(ROOMS[name].package for name in rooms_of(Requirement(asked)))
    assert {*must(place(asked).run("python", "-c", IMPORT_ALL, *packages)).split()} == LACKING.get(
        asked, set()
    )
    assert place(asked).imported() == []


LEDGER = """
import pkgutil, sys, importlib
import hourmark_etl.ledger as ledger
for module in pkgutil.walk_packages(ledger.__path__, "hourmark_etl.ledger."):
    if ".migrations." not in module.name:  # Alembic runs those
        importlib.import_module(module.name)
from hourmark_etl.ledger.database import Database
with Database("sqlite:///" + sys.argv[1]) as database:
    print(database.identity()[1])
print(sorted({"pyspark", "pyarrow", "numpy"} & sys.modules.keys()))
"""


def test_the_ledger_is_made_without_spark_arrow_or_numpy(place: Place, tmp_path: Path) -> None:
    done = place("hourmark-etl").run("python", "-c", LEDGER, str(tmp_path / "ledger.sqlite"))
    assert done.stdout.splitlines()[1:] == ["[]"], done.stderr
    assert (tmp_path / "ledger.sqlite").stat().st_size > 0


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Closed buckets and an empty ledger."""
    usual_plan(LocalDisk(tmp_path / "storage")).close()
    return {
        "HOURMARK_STORAGE__ROOT": f"file://{tmp_path}/storage",
        "HOURMARK_ETL__LEDGER": f"sqlite:///{tmp_path}/ledger.sqlite",
    }


def test_buckets_are_read_without_spark_arrow_or_numpy(
    place: Place, settings: dict[str, str]
) -> None:
    environment = place("hourmark-etl")
    for command, said in (
        ("ls", f"{TYPE}  {HOUR}"),
        ("show", "35 events"),
        ("cat", '"line": "a line"'),
        ("why", "closed as proved"),
    ):
        hour = () if command == "ls" else (TYPE, str(HOUR))
        assert said in must(environment.run("hourmark", "bucket", command, *hour, **settings))


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("bucket", "verify"), "arrow"),
        (("ledger", "check"), "arrow"),
        (("ledger", "rebuild", "--into", "sqlite:////tmp/never-made.sqlite"), "arrow"),
        (("audit",), "arrow"),
        (("trace", "events.click:0:1"), "arrow"),
        (("etl", "run"), "spark"),
        (("etl", "skip-unreadable", "edge.events.click", "0"), "spark"),
    ],
)
def test_what_needs_an_extra_names_it(
    command: tuple[str, ...], extra: str, place: Place, settings: dict[str, str]
) -> None:
    done = place("hourmark-etl").run("hourmark", *command, **settings)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'hourmark-etl[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_buckets_and_books_are_checked_with_arrow_and_without_spark(
    place: Place, settings: dict[str, str], tmp_path: Path
) -> None:
    environment = place("hourmark-etl[arrow]")
    verified = environment.run("hourmark", "bucket", "verify", TYPE, str(HOUR), **settings)
    assert f"{TYPE} {HOUR}: 35 events" in verified.stdout, verified.stderr
    must(environment.run("python", "-c", LEDGER, str(tmp_path / "ledger.sqlite")))
    audited = environment.run("hourmark", "audit", **settings)
    assert audited.returncode == 1 and "`hourmark ledger rebuild" in audited.stderr, (
        "buckets stand that this ledger never closed"
    )
    rooms = (
        "import hourmark_etl.staging.unreadable, hourmark_etl.recovery.rebuild, "
        "hourmark_etl.operators.reconciled_ranges"
    )
    must(environment.run("python", "-c", rooms))


READ = """
import sys
import hourmark_reading
events = hourmark_reading.open_buckets(sys.argv[1]).read(*sys.argv[2:])
print(events.to_table().num_rows)
print(sorted({"pyspark", "pandas", "numpy"} & sys.modules.keys()))
"""


def test_the_reader_library_reads_buckets_without_any_other_distribution_of_ours(
    place: Place, tmp_path: Path
) -> None:
    usual_plan(LocalDisk(tmp_path)).close()
    environment = place("hourmark-reading")
    there = environment.distributions()
    assert {name for name in there if name.startswith("hourmark")} == {"hourmark-reading"}
    assert there & HEAVY == {"pyarrow"}
    must(environment.check())
    assert must(environment.run("python", "-c", IMPORT_ALL, "hourmark_reading")).split() == []
    arguments = (f"file://{tmp_path}", TYPE, str(EARLIER), str(LATER))
    read = must(environment.run("python", "-c", READ, *arguments))
    assert read.splitlines() == ["35", "[]"]
    assert environment.imported() == []


def test_types_are_checked_without_spark(place: Place) -> None:
    checked = place("hourmark-declare").run(
        "hourmark", "types", "check", "--dir", str(ROOT / "examples" / "types")
    )
    assert "declared correctly" in must(checked)


def test_what_needs_a_checkout_says_so(place: Place) -> None:
    done = place("hourmark-infra").run("hourmark", "test")
    assert done.returncode == 2
    assert "use a checkout" in done.stderr
