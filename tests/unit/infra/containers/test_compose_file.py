"""docker-compose.yml, the Containerfile, and the roles of containers say the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hourmark.commands.canary import CANARY
from hourmark.rules.event_types import read_declarations
from hourmark_infra.containers.roles import KINDS, prepare_declarations, role_kind
from hourmark_infra.containers.settings import TYPES
from hourmark_infra.containers.site import BALANCER, read_site
from hourmark_infra.containers.site_setup import DELIVERY_SERVICES
from hourmark_infra.stack.layout import CLUSTERS

ROOT = Path(__file__).parents[4]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONTAINERFILE = (ROOT / "infra" / "containers" / "Containerfile").read_text()
SMALL, FULL = ROOT / "infra" / "containers" / "small.env", ROOT / ".env"
OWN_IMAGE = ("postgres", BALANCER)  # their images do no other work
each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def environment(file: Path) -> dict[str, str]:
    return dict(
        line.split("=", 1)
        for line in file.read_text().splitlines()
        if line and not line.startswith("#")
    )


def started(file: Path) -> set[str]:
    """The services that compose starts with these settings."""
    chosen = set(environment(file)["COMPOSE_PROFILES"].split(","))
    return {
        name
        for name, service in SERVICES.items()
        if not service.get("profiles") or chosen & {*service["profiles"]}
    }


@each_service
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["tmpfs"] == ["/tmp"]
    assert service["user"] == "10001:10001" and service["cap_drop"] == ["ALL"]
    assert (
        service["security_opt"] == ["no-new-privileges:true"]
        and "privileged" not in service
        and "ports" not in service
    )


@each_service
def test_a_service_that_stays_has_a_health_check_and_is_started_again(name: str) -> None:
    service = SERVICES[name]
    if service["restart"] == "no":
        assert name in ("setup", "types", "operator")
        return
    assert service["restart"] == "unless-stopped"
    test = service["healthcheck"]["test"]
    assert name in OWN_IMAGE or test[1:] == [
        "/opt/hourmark/.venv/bin/python",
        "-m",
        "hourmark_infra.containers",
        "--ask",
        name,
    ]


BUILDERS = {name: service for name, service in SERVICES.items() if "build" in service}


@each_service
def test_a_service_has_a_limit_of_memory_which_is_that_of_its_role(name: str) -> None:
    limit = SERVICES[name]["mem_limit"]
    assert re.fullmatch(r"\d+[mg]", limit)
    role = re.sub(r"-\d+$", "", name)
    assert {limit} == {
        service["mem_limit"]
        for other, service in SERVICES.items()
        if re.sub(r"-\d+$", "", other) == role
    }


@each_service
def test_the_image_of_a_service_is_a_target_of_the_containerfile_with_a_version(name: str) -> None:
    image = SERVICES[name]["image"]
    version = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]["version"]
    target = re.fullmatch(rf"hourmark-(\w+):{re.escape(version)}", image)
    assert target is not None
    assert re.search(rf"^FROM \S+ AS {target[1]}$", CONTAINERFILE, re.MULTILINE)
    (builder,) = (service for service in BUILDERS.values() if service["image"] == image)
    assert builder["build"]["target"] == target[1]
    assert (ROOT / builder["build"]["dockerfile"]).is_file()


@each_service
def test_one_service_builds_an_image_and_the_others_neither_build_nor_pull_it(name: str) -> None:
    service = SERVICES[name]
    assert ("build" in service) != (service.get("pull_policy") == "never")


def test_images_are_built_one_after_the_other() -> None:
    # podman-compose builds at the same time what does not name another service as a context.
    order = [name for name in BUILDERS if "additional_contexts" not in BUILDERS[name]["build"]]
    assert len(order) == 1
    while len(order) < len(BUILDERS):
        (following,) = (
            name
            for name, service in BUILDERS.items()
            if service["build"].get("additional_contexts") == {"before": f"service:{order[-1]}"}
        )
        order.append(following)
    stages = re.findall(r"^FROM \S+ AS (\w+)$", CONTAINERFILE, re.MULTILINE)
    targets = [BUILDERS[name]["build"]["target"] for name in order]
    # podman 4.3 also builds the stages before a target that the target does not need.
    assert targets == sorted(targets, key=stages.index) and stages[-1] == targets[-1]


@pytest.mark.parametrize("file", [SMALL, FULL], ids=["small", "full"])
def test_each_size_of_the_site_builds_all_images(file: Path) -> None:
    assert BUILDERS.keys() <= started(file)


def test_images_are_made_from_debian_and_run_as_another_user_than_root() -> None:
    stages = dict(
        re.findall(r"^FROM (?:\S+) AS (\w+)\n((?:(?!^FROM).*\n)*)", CONTAINERFILE, re.MULTILINE)
    )
    bases = dict(
        reversed(pair) for pair in re.findall(r"^FROM (\S+) AS (\w+)$", CONTAINERFILE, re.MULTILINE)
    )
    assert {base for base in bases.values() if base not in bases} == {"debian:bookworm-slim"}
    for target in {service["build"]["target"] for service in BUILDERS.values()}:
        assert re.findall(r"^USER (.*)$", stages[target], re.MULTILINE)[-1:] == ["hourmark"], target


@each_service
def test_a_service_is_a_role_that_its_host_is_named_by(name: str) -> None:
    service = SERVICES[name]
    assert service["hostname"] == name
    if name in OWN_IMAGE:
        return
    if name == "operator":
        assert service["entrypoint"][-1] == name
        return
    assert service["command"] == [name]
    assert name == "setup" or role_kind(name) in KINDS


@pytest.mark.parametrize("file", [SMALL, FULL], ids=["small", "full"])
def test_what_is_started_is_what_the_site_is_said_to_have(file: Path) -> None:
    site = read_site(environment(file))
    layout = site.layout(Path("/h"))
    servers = {f"{cluster}-{node}" for cluster in CLUSTERS for node in layout.nodes(cluster)} | {
        *layout.shape.datanodes
    }
    numbered = {
        name for name in started(file) if re.fullmatch(r"(edge|central|datanode)-\d+", name)
    }
    assert numbered == servers
    on_cluster = {name for name in started(file) if name.startswith("spark-")}
    assert bool(on_cluster) == site.spark_master.startswith("spark://")

    assert (
        len([name for name in started(file) if re.fullmatch(r"mirror-\d+", name)]) == site.mirrors
    )
    assert "mirror-watch" in started(file), "where a mirror is run, its watch is"
    assert site.canary and {"canary", "canary-check"} <= started(file)


def test_without_its_profile_there_is_no_canary(tmp_path: Path) -> None:
    assert {
        name for name, service in SERVICES.items() if "canary" in service.get("profiles", ())
    } == {"canary", "canary-check"}
    assert not read_site({"COMPOSE_PROFILES": "full"}).canary
    types = ROOT / TYPES.relative_to("/opt/hourmark")
    assert CANARY not in {
        event_type.name
        for event_type in read_declarations(
            prepare_declarations(types, tmp_path, canary=False)
        ).types
    }
    for _ in range(2):  # its container may be started again
        assert CANARY in {
            event_type.name
            for event_type in read_declarations(
                prepare_declarations(types, tmp_path / "own", canary=True)
            ).types
        }


def test_the_full_site_is_the_one_that_defaults_say() -> None:
    assert read_site(environment(FULL)) == read_site({"COMPOSE_PROFILES": "full,canary"})
    assert environment(FULL).keys() == environment(SMALL).keys()
    defaults = dict(
        re.findall(r"\$\{(SITE_\w+):-(.*?)\}", (ROOT / "docker-compose.yml").read_text())
    )
    assert defaults == {
        name: value for name, value in environment(FULL).items() if name.startswith("SITE_")
    }


def test_the_balancer_knows_the_delivery_services() -> None:
    told = re.findall(
        r"^    server (\S+) (\S+):8780$",
        (ROOT / "infra/containers/haproxy.cfg").read_text(),
        re.MULTILINE,
    )
    assert told == [(name, name) for name in DELIVERY_SERVICES]
    assert {*DELIVERY_SERVICES} == {name for name in SERVICES if name.startswith("delivery-")}


def test_what_a_service_keeps_is_its_own_and_only_two_write_what_is_shared() -> None:
    writers: dict[str, list[str]] = {}
    for name, service in SERVICES.items():
        for volume in service["volumes"]:
            source, _, *mode = volume.split(":")
            assert source in COMPOSE["volumes"]
            if mode != ["ro"]:
                writers.setdefault(source, []).append(name)
    assert writers.pop("site") == ["setup", "types"]
    assert writers.pop("logs") == ["application"]
    assert all(names == [volume] for volume, names in writers.items())


def test_the_declarations_are_in_the_image() -> None:
    assert (ROOT / TYPES.relative_to("/opt/hourmark") / "sources.toml").is_file()
    assert "examples" not in (ROOT / ".dockerignore").read_text()


def test_credentials_of_package_indexes_are_secrets_of_the_build_alone() -> None:
    assert "ARG" not in {line.split(" ")[0] for line in CONTAINERFILE.splitlines()}
    named = {*COMPOSE["secrets"]}
    assert named == {"pip_index_url", "uv_default_index", "build_ca"}
    for service in BUILDERS.values():
        assert "args" not in service["build"] and set(service["build"]["secrets"]) == named
    assert not any("secrets" in service for service in SERVICES.values())
    assert set(re.findall(r"--mount=type=secret,id=(\w+)", CONTAINERFILE)) == named


def test_images_state_what_they_are_and_which_ports_they_listen_at() -> None:
    version = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]["version"]
    assert f'org.opencontainers.image.version="{version}"' in CONTAINERFILE
    for service in BUILDERS.values():
        target = service["build"]["target"]
        stage = CONTAINERFILE.split(f" AS {target}\n")[1].split("\nFROM ")[0]
        assert f'org.opencontainers.image.title="hourmark-{target}"' in stage
        assert "org.opencontainers.image.description=" in stage
        assert re.search(r"^EXPOSE \d+", stage, re.MULTILINE)


@pytest.mark.parametrize("ca", [None, "-----BEGIN CERTIFICATE-----\nown\n"])
def test_a_step_of_a_build_sees_the_secrets_and_keeps_nothing(
    tmp_path: Path, ca: str | None
) -> None:
    secrets, temporary = tmp_path / "secrets", tmp_path / "tmp"
    secrets.mkdir()
    temporary.mkdir()
    (secrets / "pip_index_url").write_text("https://me:hidden@index.example/simple")
    (secrets / "uv_default_index").write_text("")  # as engines do where it is not set
    if ca is not None:
        (secrets / "build_ca").write_text(ca)
    command = (
        str(ROOT / "infra" / "containers" / "with_build_secrets.sh"),
        "sh",
        "-c",
        'env; cat "$SSL_CERT_FILE"; [ "$PIP_CERT" = "$SSL_CERT_FILE" ]; exit 7',
    )
    clean = {"PATH": os.environ["PATH"], "BUILD_SECRETS": str(secrets), "TMPDIR": str(temporary)}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert "PIP_INDEX_URL=https://me:hidden@index.example/simple\n" in done.stdout
    assert "UV_DEFAULT_INDEX" not in done.stdout
    assert (ca is not None) == ("\nown\n" in done.stdout)
    assert not list(temporary.iterdir())


def test_pages_of_the_ledger_have_checksums() -> None:
    assert "--data-checksums" in (ROOT / "infra" / "containers" / "postgres.sh").read_text()


def test_roles_without_java_need_no_spark() -> None:
    blocked = "import sys; sys.modules['pyspark'] = sys.modules['pandas'] = None; "
    modules = "hourmark_infra.containers.__main__, hourmark_infra.containers.health_checks"
    subprocess.run([sys.executable, "-c", f"{blocked}import {modules}"], check=True)
