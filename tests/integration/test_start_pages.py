"""docs/start/your-log-file.md and query-an-hour.md as a reader follows them, on one local stack, and
three-machines.md with three homes on one machine.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.documents import ROOT, code_blocks, console_commands, console_lines
from tests.support.page_shell import PageShell, page_shell
from tests.support.runbooks import Command
from tests.support.waiting import wait_for

from hourmark_infra.stack.layout import free_ports

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

START = ROOT / "docs" / "start"
HOUR = "2026-11-30T05:07"  # of the pages
TYPES = ("access", "app", "orders", "syslog")
LINES = 20
RUN_S = 600.0


def page(name: str) -> str:
    return (START / f"{name}.md").read_text()


def until(text: str, heading: str) -> str:
    """The page before a heading."""
    before, found, _ = text.partition(f"\n## {heading}\n")
    assert found, f"no heading {heading}"
    return before


def write_blocks(text: str, language: str, name_of: Callable[[str], Path]) -> None:
    """Write each code block whose first line is a comment with its file name."""
    for block in code_blocks(text, language):
        file = name_of(block.splitlines()[0].removeprefix("# "))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block)


def prints(shell: PageShell, command: str, output: str, hour: str = HOUR) -> str:
    """Run a command; each line that the page shows is in what it prints."""
    printed = shell.run(f"{command} 2>&1", timeout_s=RUN_S)
    shown = re.sub(rf"{HOUR}:\d\d\.000Z", f"{hour}:…", output).replace(HOUR, hour)
    wanted = Command(command, tuple(line for line in shown.splitlines() if line.strip("… ")))
    assert wanted.missing(printed) == [], printed
    return printed


class LogFiles:
    """The log files of your-log-file.md, delivered. `hours`: of each type, the bucket with its lines."""

    def __init__(self, shell: PageShell, hours: dict[str, str]) -> None:
        self.shell = shell
        self.hours = hours


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFiles]:
    """What the page does before its section Verify; its section Clean up at the end."""
    folder = tmp_path_factory.mktemp("your-log-file")
    for name in ("hourmark", ".venv"):  # the page is followed in a checkout
        (folder / name).symlink_to(ROOT / name)
    text = page("your-log-file")
    with page_shell(folder, folder / "home") as shell:
        printed = ""
        for command, output in console_commands(until(text, "Verify")):
            if command.startswith("for n in"):
                wait_for(lambda: dt.datetime.now(dt.UTC).second < 57, "a minute that goes on")
            if command.startswith("sed "):  # the declaration stands before it
                write_blocks(text, "toml", lambda name: folder / name)
            if command == "./hourmark run --once":
                printed = shell.run(command, timeout_s=RUN_S)
            else:
                prints(shell, command, output)
        found = re.findall(rf"^(\S+) (\S+): proved, {LINES} events$", printed, re.MULTILINE)
        hours = dict(found)
        assert tuple(sorted(hours)) == TYPES, printed
        assert "no line of this run became a dead letter" in printed
        yield LogFiles(shell, hours)
        for command in console_lines(text.partition("\n## Clean up\n")[2]):
            shell.run(command)


def test_the_lines_of_four_kinds_of_logs_are_in_closed_buckets(delivered: LogFiles) -> None:
    _, _, verify = until(page("your-log-file"), "Clean up").partition("\n## Verify\n")
    hour = delivered.hours["orders"]
    for command, output in console_commands(verify):
        if command == f"hour={HOUR}":
            delivered.shell.env["hour"] = hour
        else:
            prints(delivered.shell, command, output, hour)


def test_the_run_is_shown_as_it_is(delivered: LogFiles) -> None:
    """Its output in the page: a line for each type, in the order of the command."""
    (output,) = [
        output
        for command, output in console_commands(page("your-log-file"))
        if command == "./hourmark run --once"
    ]
    assert output.splitlines() == [
        *(f"{name} {HOUR}: proved, {LINES} events" for name in TYPES),
        "no line of this run became a dead letter",
        "…",
    ]


def query(delivered: LogFiles, selected: Callable[[str], bool]) -> list[str]:
    """Run the selected commands of query-an-hour.md, and those without which none works."""
    text, shell = page("query-an-hour"), delivered.shell
    hour = delivered.hours["access"]
    write_blocks(text, "python", lambda name: shell.folder / name)
    storage = tomllib.loads((shell.folder / "home" / "run" / "hourmark.toml").read_text())[
        "storage"
    ]
    day, _, clock = hour.partition("T")
    place = "/access/date={}/hour={}/minute={}".format(day, *clock.split(":"))
    replaced = {
        "/access/date=2026-11-30/hour=05/minute=07": place,
        "http://127.0.0.1:9870": storage["webhdfs"],
        "hdfs://127.0.0.1:8020/hourmark": storage["root"],
    }
    done = []
    for command, output in console_commands(text):
        if command == f"hour={HOUR}":
            shell.env["hour"] = hour
        elif command.endswith(".jsonl"):
            shell.run(command.replace(HOUR[:10], day))
        elif selected(command):
            for written, used in replaced.items():
                command = command.replace(written, used)
            prints(shell, command, output, hour)
            done.append(command)
    return done


def downloads(command: str) -> bool:
    """Whether a command needs the network."""
    return "--packages" in command


def is_of_other_environment(command: str) -> bool:
    """Whether a command needs packages that .venv does not have; see test_avro_readers.py."""
    return command.startswith("python ")


def test_a_closed_hour_is_queried_with_pandas_spark_and_an_avro_reader(
    delivered: LogFiles,
) -> None:
    done = query(delivered, lambda of: not downloads(of) and not is_of_other_environment(of))
    assert len(done) == 6
    copied = delivered.shell.folder / "hour"
    assert [file.name for file in copied.iterdir()].count("_SUCCESS") == 1
    assert list(copied.glob("part-*.avro"))


@pytest.mark.long
def test_a_closed_hour_is_queried_with_the_avro_package_of_spark(delivered: LogFiles) -> None:
    assert len(query(delivered, downloads)) == 1


MACHINES = {"etl.toml": "etl-1", "service.toml": "service-1", "tailer.toml": "log-1"}


class Machines:
    """The machines of three-machines.md as folders, with the page's servers replaced by a stack's."""

    def __init__(self, folder: Path, stack: Path) -> None:
        self._folder = folder
        servers = tomllib.loads(stack.read_text())
        port = free_ports(("service",))["service"]
        self._replaced = {
            "kafka-1:9092,kafka-2:9092,kafka-3:9092": servers["kafka"]["edge"]["bootstrap"],
            "http://registry-1:8081": servers["registry"]["url"],
            "hdfs://namenode-1:8020/hourmark": f"{servers['storage']['root']}/three-machines",
            "http://namenode-1:9870": servers["storage"]["webhdfs"],
            "service-1:8780": f"localhost:{port}",
            "port = 8780": f"port = {port}",
            "CN=service-1": "CN=localhost",
            "DNS:service-1": "DNS:localhost",
            "/var/log/nginx/access.log*": str(folder / "access.log*"),
        }
        for machine in MACHINES.values():
            for part in ("etc", "var"):
                (folder / machine / part).mkdir(parents=True)

    def etc(self, machine: str) -> Path:
        """The folder that stands for `/etc/hourmark` of a machine."""
        return self._folder / machine / "etc"

    def translated(self, machine: str, text: str) -> str:
        """Text of the page with the paths of a machine and the addresses of the stack."""
        for written, used in self._replaced.items():
            text = text.replace(written, used)
        text = text.replace("/etc/hourmark", str(self.etc(machine)))
        return text.replace("/var/lib/hourmark", str(self._folder / machine / "var"))

    def command(self, command: str) -> str:
        """A command of the page; the configuration that it names tells its machine."""
        named = re.search(r"/etc/hourmark/(\w+\.toml)", command)
        machine = MACHINES[named.group(1)] if named else "service-1"
        return re.sub(r"^hourmark ", f"{ROOT / 'hourmark'} ", self.translated(machine, command))

    def write_configurations(self, text: str) -> None:
        """Write the configuration files of the page."""
        for block in code_blocks(text, "toml"):
            machine, file = block.splitlines()[0].removeprefix("# ").split(": ")
            assert machine == MACHINES[Path(file).name]
            Path(self.translated(machine, file)).write_text(self.translated(machine, block))

    def copy(self, name: str, machine: str, to: str) -> None:
        """What the page copies by hand from `/etc/hourmark` of one machine to another."""
        (self.etc(to) / name).write_bytes((self.etc(machine) / name).read_bytes())


DAEMONS = (["tail", "--config"], ["etl", "run"])


@pytest.mark.long
def test_three_machines_close_a_bucket(tmp_path: Path) -> None:
    """Not executed: the installation (`sudo`). Buckets are minutes, with one DataNode."""
    text = page("three-machines")
    commands = console_lines(text)
    with page_shell(tmp_path, tmp_path / "home", str(ROOT / "hourmark")) as shell:
        shell.run(f"{ROOT / 'hourmark'} up --clusters 1 --bucket-seconds 60")
        machines = Machines(tmp_path, tmp_path / "home" / "stack" / "hourmark.toml")
        machines.write_configurations(text)
        now = f"{dt.datetime.now(dt.UTC):%d/%b/%Y:%H:%M:%S +0000}"
        line = f'192.0.2.1 - - [{now}] "GET / HTTP/1.1" 200 5'
        (tmp_path / "access.log").write_text(f"{line}\n")
        shell.run(
            f"{ROOT / 'hourmark'} init --yes --bucket-seconds 60 access.log "
            f"&& mv pipeline/types {machines.etc('etl-1')}"
        )
        shell.env |= {
            "HOURMARK_PARSING__BUCKET_SECONDS": "60",
            "HOURMARK_STORAGE__REPLICATION": "1",
        }
        started = {}
        for command in commands:
            words = shlex.split(command)
            used = machines.command(command)
            if words[:3] == ["hourmark", "tail", "--check"]:
                machines.copy("service.pem", "service-1", "log-1")
                machines.copy("log-1.token", "etl-1", "log-1")
                _until(shell, used, lambda _: True, "the service is ready")
            elif "status" in words:
                _until(shell, used, lambda _: True, "what was just started has reported")
            elif words[:2] == ["hourmark", "serve"] or words[1:3] in DAEMONS:
                started[words[1]] = shell.start(f"exec {used}")
            elif words[:3] == ["hourmark", "bucket", "ls"]:
                closed = re.compile(r"^access +\S+ +proved +1 ", re.MULTILINE)
                _until(shell, used, closed.search, "the line is in a closed bucket")
            elif words[:3] == ["hourmark", "tail", "--drain"]:
                shell.stop(started["tail"])
                assert "without a goodbye" in shell.output(started["tail"])
                shell.run(used)
            elif words[0] != "sudo":
                shell.run(used)
        assert started.keys() == {"serve", "tail", "etl"}


def _until(shell: PageShell, command: str, holds: Callable[[str], object], what: str) -> None:
    """Repeat a command until it succeeds and its output is as expected."""

    def succeeds() -> bool:
        printed = shell.run(f"{command} && echo succeeded", (0, 1, 2))
        return printed.endswith("succeeded\n") and bool(holds(printed))

    wait_for(succeeds, what, 400, 1.0)
