"""The Kubernetes manifests: valid, of the settings and commands that the code has, and able to do little."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import REPOSITORY, compose
from tests.unit.repository.test_observability_files import Served, find_unserved, served
from warpsmith.service.server import serve
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.queue_names import judge_queue
from warpsmith.workers.settings import Settings

__all__ = ["served"]

BASE = REPOSITORY / "kubernetes/base"
AUTOSCALING = REPOSITORY / "kubernetes/autoscaling"
OLDEST = "1.30"
"""Has a sleep before a container's end."""

REQUIRED = dict.fromkeys(("WARPSMITH_DB_PASSWORD", "WARPSMITH_REDIS_PASSWORD", "WARPSMITH_OPENAI_API_KEY"), "x")
WITH_A_JUDGE = ("worker-judge-gpu", "worker-judge-cpu", "worker-compile-cpu")
IN_COMPOSE = {"worker-judge-gpu": "worker-judge-gpu0"}
NAMES = ("api", "worker-model", *WITH_A_JUDGE, "reconciler", "beat", "migrate")

LEFT_TO_AN_OVERLAY = {"WARPSMITH_API_PROCESSES", "WARPSMITH_MODEL_PRICES", "WARPSMITH_OPENAI_BASE_URL"}
"""What compose sets and the manifests do not: replicas take the place of processes, endpoint and prices are yours."""


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


KUSTOMIZATION: dict[str, Any] = documents(BASE / "kustomization.yaml")[0]
MANIFESTS = [document for name in KUSTOMIZATION["resources"] for document in documents(BASE / name)]
WORKLOADS = {
    manifest["metadata"]["name"].removeprefix("warpsmith-"): manifest
    for manifest in MANIFESTS
    if manifest["kind"] in {"Deployment", "Job"}
}
SCALED = [one for name in ("keda.yaml", "hpa.yaml") for one in documents(AUTOSCALING / name)]


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = WORKLOADS[name]["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


def title(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


@pytest.fixture(scope="module")
def schemas() -> Any:
    """The package of Kubernetes' schemas: a second to import, in every process that collects tests."""
    return importlib.import_module("kubernetes_validate")


@pytest.mark.parametrize("age", ["oldest", "newest"])
def test_manifests_are_of_kubernetes_schemas(schemas: Any, age: str) -> None:
    version = OLDEST if age == "oldest" else schemas.latest_version()
    secret = documents(BASE / "secret.example.yaml")
    for manifest in [*MANIFESTS, *secret, *(one for one in SCALED if one["apiVersion"] != "keda.sh/v1alpha1")]:
        schemas.validate(manifest, version, strict=True)


def test_a_wrong_manifest_would_be_found(schemas: Any) -> None:
    wrong = {**MANIFESTS[0], "spec": {**MANIFESTS[0]["spec"], "backoffLimits": 1}}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, OLDEST, strict=True)


def test_every_file_is_applied() -> None:
    aside = {"kustomization.yaml", "secret.example.yaml"}
    assert {path.name for path in BASE.iterdir()} - aside == set(KUSTOMIZATION["resources"])
    assert set(WORKLOADS) == set(NAMES)


def test_kustomize_builds_it() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl, whose `kustomize` builds the manifests")
    built = subprocess.run([kubectl, "kustomize", str(BASE)], check=True, capture_output=True, text=True, timeout=60)
    found = list(yaml.safe_load_all(built.stdout))
    assert {title(one) for one in MANIFESTS} < {title(one) for one in found}
    assert {one["metadata"]["namespace"] for one in found} == {"warpsmith"}


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_images_are_those_of_compose(name: str) -> None:
    service = compose.load(REQUIRED)["services"][IN_COMPOSE.get(name, name)]
    ours = [part.replace("judge-gpu0@", "judge-gpu@") for part in service["command"]]
    assert container(name)["command"] == ours
    assert container(name)["image"] == service["image"]


@pytest.mark.parametrize("name", NAMES)
def test_containers_can_do_little(name: str) -> None:
    limits = pod(name)["securityContext"]
    assert (limits["runAsNonRoot"], limits["runAsUser"], limits["runAsGroup"]) == (True, 10001, 10001)
    assert limits["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(name)["automountServiceAccountToken"] is False
    assert container(name)["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
    assert {"/tmp", "/var/lib/warpsmith"} <= set(writable.values())
    assert {volume["name"] for volume in pod(name)["volumes"]} == set(writable)
    assert all("emptyDir" in volume for volume in pod(name)["volumes"])
    assert container(name)["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_is_a_setting_and_secrets_are_none_of_the_files(name: str) -> None:
    (keys,) = (one["stringData"] for one in documents(BASE / "secret.example.yaml"))
    fields = {f"WARPSMITH_{field.upper()}" for field in ServiceSettings.model_fields} | {"WARPSMITH_URL"}
    secret = {"WARPSMITH_DATABASE_URL", "WARPSMITH_BROKER_URL", "WARPSMITH_OPENAI_API_KEY", "WARPSMITH_BUNDLE_KEY"}
    for variable in container(name)["env"]:
        assert variable["name"] in fields
        assert ("valueFrom" in variable) == (variable["name"] in secret)
        if "valueFrom" in variable:
            assert variable["valueFrom"]["secretKeyRef"]["name"] == "warpsmith"
            assert variable["valueFrom"]["secretKeyRef"]["key"] in keys
    assert container(name)["envFrom"] == [{"configMapRef": {"name": "warpsmith"}}]


@pytest.mark.parametrize("name", NAMES)
def test_what_compose_sets_is_set(name: str) -> None:
    environment = compose.load(REQUIRED)["services"][IN_COMPOSE.get(name, name)]["environment"]
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    ours = {literal.partition("=")[0] for literal in generator["literals"]}
    ours |= {variable["name"] for variable in container(name)["env"]}
    # Only in its own container is the API within reach of a command: the network policy lets no other pod ask it.
    apart = set() if name == "api" else {"WARPSMITH_URL"}
    assert {variable for variable, value in environment.items() if value} - ours - LEFT_TO_AN_OVERLAY == apart


def test_commands_beside_the_api_ask_it() -> None:
    (url,) = (variable["value"] for variable in container("api")["env"] if variable["name"] == "WARPSMITH_URL")
    assert url == f"http://127.0.0.1:{container('api')['ports'][0]['containerPort']}"


def test_settings_of_every_process_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    (generator,) = KUSTOMIZATION["configMapGenerator"]
    for literal in generator["literals"]:
        variable, _, value = literal.partition("=")
        assert variable.removeprefix("WARPSMITH_").lower() in Settings.model_fields
        monkeypatch.setenv(variable, value)
    for variable in container("api")["env"]:
        if "value" in variable:
            monkeypatch.setenv(variable["name"], variable["value"])
    settings = ServiceSettings()
    assert settings.keys_required
    assert [{"name": "http", "containerPort": settings.port}] == container("api")["ports"]


def test_the_models_key_and_the_way_out_are_the_model_workers_alone() -> None:
    holders = [name for name in NAMES if "openai-api-key" in str(container(name)["env"])]
    assert holders == ["worker-model"]
    policies = {one["metadata"]["name"]: one["spec"] for one in MANIFESTS if one["kind"] == "NetworkPolicy"}
    every = policies.pop("warpsmith")
    assert every["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "warpsmith"}
    assert every["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in every
    ports = {port["port"] for rule in every["egress"] for port in rule["ports"]}
    assert ports == {53, 5432, 6379, 4318}
    out = [
        spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for spec in policies.values()
        if "egress" in spec
    ]
    assert out == ["worker-model"]
    for name in NAMES:
        labels = WORKLOADS[name]["spec"]["template"]["metadata"]["labels"]
        assert labels == {"app.kubernetes.io/name": "warpsmith", "app.kubernetes.io/component": name}


def test_what_ends_has_the_time_that_its_work_may_take() -> None:
    settings = Settings()
    grace = {name: pod(name)["terminationGracePeriodSeconds"] for name in NAMES}
    for name in WITH_A_JUDGE:
        assert grace[name] >= settings.judge_job_timeout_s + 60
    assert grace["worker-model"] >= settings.model_timeout_s * (settings.model_retries + 1)
    slept = container("api")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert grace["api"] > slept + serve.SHUTDOWN_GRACE_S


def test_the_api_is_asked_whether_it_lives_and_is_ready() -> None:
    api, settings = container("api"), ServiceSettings()
    assert api["livenessProbe"]["httpGet"] == api["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert api["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert api["readinessProbe"]["timeoutSeconds"] > max(settings.database_timeout_s, settings.broker_timeout_s)


def test_a_gpu_has_one_judge() -> None:
    resources = container("worker-judge-gpu")["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "1"
    cpu = container("worker-judge-cpu")["resources"]
    assert cpu["requests"] == cpu["limits"]  # of the class Guaranteed, whose whole cores are its own
    for name in WITH_A_JUDGE:
        mounts = {mount["mountPath"] for mount in container(name)["volumeMounts"]}
        assert {"/dev/shm", "/var/cache/warpsmith"} <= mounts


def test_disruptions_leave_something() -> None:
    budgets = {
        one["metadata"]["name"].removeprefix("warpsmith-"): one["spec"] for one in MANIFESTS if "Budget" in one["kind"]
    }
    assert set(budgets) == {"api", "worker-model", "worker-judge-gpu", "worker-judge-cpu"}
    for name, spec in budgets.items():
        assert spec["selector"] == WORKLOADS[name]["spec"]["selector"]
    assert budgets["api"] == {**budgets["api"], "minAvailable": 1}
    assert WORKLOADS["api"]["spec"]["replicas"] > 1


@pytest.mark.parametrize("scaled", SCALED, ids=title)
def test_workers_are_scaled_by_their_own_queue(scaled: dict[str, Any], served: Served) -> None:
    spec = scaled["spec"]
    name = spec["scaleTargetRef"]["name"].removeprefix("warpsmith-")
    command = container(name)["command"]
    queue = command[command.index("-Q") + 1]
    assert queue in {"model", judge_queue("cuda:sm_90")}
    slots = command[command.index("-c") + 1]
    if scaled["kind"] == "HorizontalPodAutoscaler":
        (metric,) = (one["external"] for one in spec["metrics"])
        assert metric["metric"]["selector"]["matchLabels"] == {"queue": queue}
        assert find_unserved(f'{metric["metric"]["name"]}{{queue="{queue}"}}', served) == []
        assert metric["target"] == {"type": "AverageValue", "averageValue": slots}
        return
    assert set(spec) <= {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "cooldownPeriod", "triggers"}
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "prometheus"
    assert set(trigger["metadata"]) == {"serverAddress", "query", "threshold"}
    assert find_unserved(trigger["metadata"]["query"], served) == []
    assert trigger["metadata"]["query"].count(f'queue="{queue}"') == 2
    assert trigger["metadata"]["threshold"] == slots
