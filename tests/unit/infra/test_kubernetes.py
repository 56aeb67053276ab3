"""The manifests of infra/kubernetes are what Kubernetes' API takes, by its schemas, and fit
together. No cluster has run them.
"""

from __future__ import annotations

import copy
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from tests.support.documents import resolved

from hourmark.config.loading import load_config

FOLDER: Final = Path(__file__).resolve().parents[3] / "infra" / "kubernetes"
OBJECTS: Final[list[dict[str, Any]]] = [
    found
    for file in sorted(FOLDER.glob("*.yaml"))
    for found in yaml.safe_load_all(file.read_text())
]
BY_NAME: Final = {f"{o['kind']}/{o['metadata']['name']}": o for o in OBJECTS}
VERSIONS: Final = ("1.27", kubernetes_validate.latest_version())
EXECUTOR: Final[dict[str, Any]] = yaml.safe_load(
    BY_NAME["ConfigMap/etl-executor"]["data"]["executor.yaml"]
)
WORKLOADS: Final = {name: o for name, o in BY_NAME.items() if "template" in o.get("spec", {})}
SECRETS: Final = {
    "delivery-tls",
    "tailer-token",
    "ledger",
}  # that docs/how-to/kubernetes.md has made


def pod(workload: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def containers() -> Iterator[Any]:
    for name, workload in WORKLOADS.items():
        for container in pod(workload)["containers"]:
            yield pytest.param(container, id=f"{name}-{container['name']}")
    yield pytest.param(EXECUTOR["spec"]["containers"][0], id="executor")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", BY_NAME)
def test_the_api_takes_it_and_knows_every_field(name: str, version: str) -> None:
    kubernetes_validate.validate(BY_NAME[name], version, strict=True)


def test_each_part_has_its_manifest() -> None:
    assert {
        "Deployment/delivery",
        "HorizontalPodAutoscaler/delivery",
        "PodDisruptionBudget/delivery",
        "DaemonSet/tailer",
        "StatefulSet/mirror",
        "StatefulSet/mirror-watch",
        "Deployment/etl-driver",
    } <= BY_NAME.keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_spark_is_given_a_pod_that_the_api_takes(version: str) -> None:
    whole = copy.deepcopy(EXECUTOR)
    whole["metadata"]["name"] = "made-by-spark"
    kubernetes_validate.validate(whole, version, strict=True)


@pytest.mark.parametrize("planted", ["mistyped", "misspelt", "unknown version"])
def test_what_the_api_would_refuse_is_noticed(planted: str) -> None:
    broken = copy.deepcopy(BY_NAME["Deployment/delivery"])
    if planted == "mistyped":
        broken["spec"]["minReadySeconds"] = "soon"
    elif planted == "misspelt":
        pod(broken)["containers"][0]["livenesProbe"] = {}
    else:
        broken["apiVersion"] = "apps/v7"
    with pytest.raises(
        (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError)
    ):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_all_is_in_one_namespace() -> None:
    assert {o["metadata"]["namespace"] for o in OBJECTS if o["kind"] != "Namespace"} == {"hourmark"}


def test_selectors_find_the_pods_that_they_are_for() -> None:
    labels = {
        name: workload["spec"]["template"]["metadata"]["labels"]
        for name, workload in WORKLOADS.items()
    }
    for name, workload in WORKLOADS.items():
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
    for o in OBJECTS:
        wanted = (
            o.get("spec", {}).get("selector")
            if o["kind"] in ("Service", "PodDisruptionBudget")
            else None
        )
        if wanted is not None:
            chosen = wanted.get("matchLabels", wanted)
            assert (
                len([name for name, found in labels.items() if chosen.items() <= found.items()])
                == 1
            ), o["metadata"]
    scaled = BY_NAME["HorizontalPodAutoscaler/delivery"]["spec"]["scaleTargetRef"]
    assert f"{scaled['kind']}/{scaled['name']}" in WORKLOADS


def test_every_volume_that_is_mounted_comes_from_something_that_is_there() -> None:
    for workload in WORKLOADS.values():
        volumes = {v["name"]: v for v in pod(workload)["volumes"]}
        claimed = {c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", [])}
        for container in pod(workload)["containers"]:
            assert {m["name"] for m in container["volumeMounts"]} == volumes.keys() | claimed
            ports = {p["name"] for p in container["ports"]}
            for probe in (container.get("readinessProbe", {}), container.get("livenessProbe", {})):
                assert {
                    probe[how]["port"] for how in ("httpGet", "tcpSocket") if how in probe
                } <= ports
        for volume in volumes.values():
            if "configMap" in volume:
                assert f"ConfigMap/{volume['configMap']['name']}" in BY_NAME
            if "secret" in volume:
                assert volume["secret"]["secretName"] in SECRETS


@pytest.mark.parametrize("container", list(containers()))
def test_a_container_is_closed(container: Mapping[str, Any]) -> None:
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"]["drop"] == ["ALL"]


@pytest.mark.parametrize("container", list(containers()))
def test_a_command_is_one_that_hourmark_has(container: Mapping[str, Any]) -> None:
    """Words are parsed by the command itself, scripts by bash."""
    words: list[str] = container["command"]
    if words[:2] == ["bash", "-c"]:
        assert (
            subprocess.run(["bash", "-n", "-c", words[2]], capture_output=True, text=True).stderr
            == ""
        )
        words = next(
            (shlex.split(line) for line in words[2].splitlines() if "-m hourmark " in line), []
        )
    if words:
        command, arguments = resolved(words[words.index("-m") + 2 :])
        with command.make_context(
            command.name, [a for a in arguments if a != "--config" and not a.endswith(".toml")]
        ):
            pass


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pods_configuration_is_right_by_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files that a setting names only the ledger's password is read, and that by the ETL
    alone.
    """
    file = tmp_path / "hourmark.toml"
    file.write_text(BY_NAME["ConfigMap/hourmark"]["data"]["hourmark.toml"])
    (tmp_path / "password").write_text("planted\n")
    for variable in pod(WORKLOADS[name])["containers"][0].get("env", []):
        if variable["name"].startswith("HOURMARK_"):
            value = variable.get("value", "node-1").replace(
                "/secrets/password", str(tmp_path / "password")
            )
            monkeypatch.setenv(variable["name"], value.replace("$(POD)", "mirror-0"))
    read = load_config(file)
    assert read.service.tokens_required and read.service.tls.certificate is not None
    assert ("planted" in read.etl.ledger) == (name == "Deployment/etl-driver")
    if name == "StatefulSet/mirror":
        assert read.mirror.rest_host == "mirror-0.mirror.hourmark.svc"
    if name == "StatefulSet/mirror-watch":
        assert read.mirror.workers == BY_NAME["StatefulSet/mirror"]["spec"]["replicas"]
