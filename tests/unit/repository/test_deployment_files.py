"""docker-compose.yml and the Dockerfiles: what a production deployment must have, checked in the files themselves."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
from typer.testing import CliRunner

from tests import REPOSITORY, compose, images
from warpsmith.service.api.options import list_providers
from warpsmith.service.cli.connection import service_url
from warpsmith.service.cli.options import Url
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.llm.providers.cost import Prices
from warpsmith.workers.queue import celery_app
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue_names import (
    DUE_TASK,
    MODEL_QUEUE,
    REVERIFY_TASK,
    compile_queue,
    judge_queue,
    role_of,
    target_of,
)
from warpsmith.workers.settings import Settings

REQUIRED = {"WARPSMITH_DB_PASSWORD": "db-secret", "WARPSMITH_REDIS_PASSWORD": "redis-secret"}
WITH_KEY = {**REQUIRED, "WARPSMITH_OPENAI_API_KEY": "model-secret"}
JUDGES = ("worker-judge-gpu0", "worker-judge-gpu1", "worker-judge-cpu", "worker-compile-cpu")
OURS = ("migrate", "api", "worker-model", "reconciler", "beat", *JUDGES)
DOCKERFILES = ("docker/service.Dockerfile", "docker/judge.Dockerfile")
FIXED = {
    *("home", "judge_cache", "database_url", "broker_url", "log_format", "host", "port", "openai_key_at_workers"),
    "url",  # of commands, which no process reads
    "judge_compiles",  # of the processor's judge, beside which a worker compiles
}
"""Settings that are the deployment's own business."""

SWITCHED_ON = {"reverify_interval_s": "600"}
OF_THE_API = {"api_processes": "2"}
"""Settings with another default here, which the host may change; the second are those of the API alone."""

AT_THE_MODEL = {"openai_api_key": ("worker-model",), "openai_base_url": ("api", "worker-model")}
"""Settings of the model's endpoint, and who gets them: without a key the API must know that the endpoint needs none."""

PATCH_RELEASE = re.compile(r"^[a-z]+:\d+(\.\d+){1,2}-bookworm(@sha256:[0-9a-f]{64})?$")


@pytest.fixture
def services() -> dict[str, Any]:
    services: dict[str, Any] = compose.load(REQUIRED)["services"]
    return services


def test_nothing_is_there_that_these_tests_do_not_know(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "redis", *OURS, "prometheus", "grafana"}


@pytest.mark.parametrize("name", REQUIRED)
def test_secrets_are_required(name: str) -> None:
    with pytest.raises(compose.MissingVariableError, match=name):
        compose.load({key: value for key, value in REQUIRED.items() if key != name})


def test_no_secret_stands_in_the_file() -> None:
    text = compose.COMPOSE_FILE.read_text(encoding="utf-8")
    for line in text.splitlines():
        if re.search(r"(PASSWORD|KEY|AUTH): *[^ ]", line) and not line.lstrip().startswith("#"):
            assert "${" in line, line


def test_redis_keeps_messages_and_throws_none_away(services: dict[str, Any]) -> None:
    command = services["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--requirepass") + 1] == "redis-secret"
    assert "redis:/data" in services["redis"]["volumes"]


def test_databases_keep_their_data_and_are_not_published(services: dict[str, Any]) -> None:
    assert any(volume.endswith(":/var/lib/postgresql/data") for volume in services["postgres"]["volumes"])
    for name in ("postgres", "redis"):
        assert "ports" not in services[name]
        assert services[name]["networks"] == ["internal"]
        assert services[name]["healthcheck"]["test"]


def test_the_internal_network_has_no_way_out() -> None:
    assert compose.load(REQUIRED)["networks"]["internal"] == {"internal": True}


def test_the_migration_runs_once_and_everybody_waits_for_it(services: dict[str, Any]) -> None:
    migrate = services["migrate"]
    assert migrate["command"] == ["warpsmith", "db", "upgrade"]
    assert migrate["restart"] == "no"
    assert migrate["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in set(OURS) - {"migrate"}:
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name
        assert services[name]["depends_on"]["redis"] == {"condition": "service_healthy"}, name


def test_the_api_is_healthy_when_it_is_ready(services: dict[str, Any]) -> None:
    api = services["api"]
    assert any("/readyz" in part for part in api["healthcheck"]["test"])
    compile(api["healthcheck"]["test"][3], "healthcheck", "exec")
    assert api["ports"] == ["127.0.0.1:8420:8420"]


@pytest.mark.parametrize("name", OURS)
def test_commands_in_a_container_ask_the_api(
    services: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their home, the image's, has no service: without an address they would find none."""
    service, api = services[name], services["api"]
    home = re.search(r"WARPSMITH_HOME=(\S+)", (REPOSITORY / service["build"]["dockerfile"]).read_text(encoding="utf-8"))
    assert home is not None
    for variable, value in {"WARPSMITH_HOME": home[1], **service["environment"]}.items():
        monkeypatch.setenv(variable, value)
    address = urlsplit(given_url())
    assert services[address.hostname or ""] is api
    assert str(address.port) == api["environment"]["WARPSMITH_PORT"]
    assert set(service["networks"]) & set(api["networks"]), "they share no network"


def given_url() -> str:
    """The service that a command asks where none is named."""
    asked: list[str] = []
    app = typer.Typer()

    @app.command()
    def ask(url: Url = None) -> None:
        asked.append(service_url(url))

    assert CliRunner().invoke(app).exit_code == 0
    return asked[0]


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_do_little(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == "10001:10001"
    assert service["pids_limit"] > 0
    assert not service.get("privileged")
    assert "docker.sock" not in str(service)
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize(("name", "user"), [("postgres", "postgres"), ("redis", "redis")])
def test_servers_are_not_root_and_write_to_their_volume_alone(services: dict[str, Any], name: str, user: str) -> None:
    service = services[name]
    assert service["user"] == user
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in service["tmpfs"]
    assert service["pids_limit"] > 0


def test_only_the_model_worker_has_the_models_key() -> None:
    services = compose.load(WITH_KEY)["services"]
    holders = [name for name, service in services.items() if "model-secret" in str(service)]
    assert holders == ["worker-model"]


def told(field: str) -> dict[str, str | None]:
    """What every service gets for a setting that is set to `x-7` on the host."""
    name = f"WARPSMITH_{field.upper()}"
    services = compose.load({**REQUIRED, name: "x-7"})["services"]
    return {service: services[service]["environment"].get(name) for service in OURS}


@pytest.mark.parametrize("field", sorted(set(Settings.model_fields) - FIXED - set(AT_THE_MODEL) - {"model_prices"}))
def test_every_shared_setting_reaches_every_process(field: str) -> None:
    assert told(field) == dict.fromkeys(OURS, "x-7")


@pytest.mark.parametrize("field", sorted(set(ServiceSettings.model_fields) - set(Settings.model_fields) - FIXED))
def test_every_setting_of_the_api_reaches_it_alone(field: str) -> None:
    assert told(field) == {name: "x-7" if name == "api" else None for name in OURS}


@pytest.mark.parametrize("field", sorted(AT_THE_MODEL))
def test_every_setting_of_the_endpoint_reaches_those_who_need_it(field: str) -> None:
    given = {name: value for name, value in told(field).items() if value == "x-7"}
    assert tuple(given) == AT_THE_MODEL[field]


@pytest.mark.parametrize(
    ("given", "ready"),
    [
        ({}, False),
        ({"WARPSMITH_OPENAI_API_KEY": "model-secret"}, True),
        ({"WARPSMITH_OPENAI_BASE_URL": "http://gpu7:8000/v1"}, True),
    ],
)
def test_the_api_knows_whether_there_is_a_model(
    given: dict[str, str], ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in compose.load({**REQUIRED, **given})["services"]["api"]["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WARPSMITH_MODEL_PRICES")  # a file of the container
    assert {each.name: each.ready for each in list_providers(ServiceSettings())} == {
        "openai": ready,
        "agent": True,
        "replay": True,
    }


def test_what_is_not_set_on_the_host_is_left_to_its_default(services: dict[str, Any]) -> None:
    for name in OURS:
        ours = {key for key in services[name]["environment"] if key.startswith("WARPSMITH_")}
        own = set(OF_THE_API) if name == "api" else set()
        fields = FIXED | set(AT_THE_MODEL) | {"model_prices"} | set(SWITCHED_ON) | own
        assert ours <= {f"WARPSMITH_{field.upper()}" for field in fields}, name
    told = services["api"]["environment"]
    assert {field: told[f"WARPSMITH_{field.upper()}"] for field in OF_THE_API} == OF_THE_API


def test_stored_kernels_are_judged_anew(services: dict[str, Any]) -> None:
    assert services["beat"]["command"] == ["python", "-P", "-m", "warpsmith.workers.queue", "beat"]
    for name in OURS:
        environment = services[name]["environment"]
        assert {field: environment[f"WARPSMITH_{field.upper()}"] for field in SWITCHED_ON} == SWITCHED_ON
    assert make_app(Settings()).conf.beat_schedule == {}  # `warpsmith up` leaves it off
    sent = make_app(Settings(reverify_interval_s=float(SWITCHED_ON["reverify_interval_s"]))).conf.beat_schedule
    assert [(entry["task"], entry["schedule"], entry["options"]["queue"]) for entry in sent.values()] == [
        (DUE_TASK, 600.0, MODEL_QUEUE)
    ]
    # A model queue that is behind by more than the interval still brings looks.
    assert [entry["options"]["expires"] for entry in sent.values()] == [86400.0]
    importlib.import_module("warpsmith.workers.queue.tasks")
    assert {DUE_TASK, REVERIFY_TASK} <= set(celery_app.app.tasks)


@pytest.mark.parametrize("given", [None, "/srv/prices.toml"])
def test_prices_are_mounted_where_they_are_read(given: str | None) -> None:
    services = compose.load({**REQUIRED, **({"WARPSMITH_MODEL_PRICES": given} if given else {})})["services"]
    readers = [name for name in OURS if "WARPSMITH_MODEL_PRICES" in services[name]["environment"]]
    assert readers == ["api", "worker-model"]
    for name in readers:
        inside = services[name]["environment"]["WARPSMITH_MODEL_PRICES"]
        assert services[name]["volumes"] == [f"{given or '/dev/null'}:{inside}:ro"]
    assert Prices.load(Path("/dev/null")).cost("gpt-5", 1, 1) == Prices.load(None).cost("gpt-5", 1, 1) is not None


def test_what_the_deployment_fixes_is_set() -> None:
    dockerfiles = "".join((REPOSITORY / path).read_text(encoding="utf-8") for path in DOCKERFILES)
    told = {name for service in OURS for name in compose.load(REQUIRED)["services"][service]["environment"]}
    for field in FIXED:
        name = f"WARPSMITH_{field.upper()}"
        assert name in told or f"{name}=" in dockerfiles, name


def test_the_guide_has_every_setting_with_its_default() -> None:
    guide = (REPOSITORY / "docs/guide.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `WARPSMITH_(\w+)` \| (\S[^|]*?) \|", guide, re.MULTILINE)
    assert dict(rows) == {name.upper(): default_of(name) for name in ServiceSettings.model_fields}
    assert len(rows) == len(dict(rows))


def default_of(field: str) -> str:
    """A setting's default as the guide has it."""
    if field == "home":
        return "`~/.warpsmith`"
    default = ServiceSettings.model_fields[field].get_default(call_default_factory=True)
    if default in (None, [], {}):
        return "-"
    return (
        f"`{default:g}`" if isinstance(default, float) else f"`{str(default).lower() if default is False else default}`"
    )


@pytest.mark.parametrize("name", JUDGES)
def test_judges_reach_nothing_but_database_and_broker(services: dict[str, Any], name: str) -> None:
    assert services[name]["networks"] == ["internal"]
    assert "ports" not in services[name]
    assert services[name]["image"].startswith("warpsmith-judge:")


def test_each_gpu_has_one_judge_of_its_own(services: dict[str, Any]) -> None:
    reserved = []
    for name in ("worker-judge-gpu0", "worker-judge-gpu1"):
        devices = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert len(devices) == 1
        assert devices[0]["driver"] == "nvidia"
        assert devices[0]["capabilities"] == ["gpu"]
        assert "count" not in devices[0]
        reserved.append(devices[0]["device_ids"])
        assert services[name]["command"][-4:] == ["--pool", "threads", "-c", "8"]
    assert services["worker-judge-cpu"]["command"][-4:] == ["--pool", "prefork", "-c", "1"]
    assert reserved == [["0"], ["1"]]
    assert "deploy" not in services["worker-judge-cpu"]


def test_workers_serve_the_queues_that_the_code_names(services: dict[str, Any]) -> None:
    queues = {}
    for name, service in services.items():
        if name.startswith("worker-"):
            command = service["command"]
            assert command[:5] == ["python", "-P", "-m", "warpsmith.workers.queue", "worker"]
            # Threads share their worker's judge; elsewhere a step has a process of its own.
            shared = "gpu" in name or "compile" in name
            assert command[command.index("--pool") + 1] == ("threads" if shared else "prefork")
            queues[name] = command[command.index("-Q") + 1]
    assert role_of(queues["worker-model"]) == "model"
    assert target_of(queues["worker-judge-gpu0"]) == "cuda:sm_90"
    assert queues["worker-judge-gpu0"] == queues["worker-judge-gpu1"] == judge_queue("cuda:sm_90")
    assert queues["worker-judge-cpu"] == judge_queue("cpu:x86_64")
    assert queues["worker-compile-cpu"] == compile_queue("cpu:x86_64")


def test_what_compiles_beside_a_processors_judge_shares_its_lock(services: dict[str, Any]) -> None:
    judge, compiler = services["worker-judge-cpu"], services["worker-compile-cpu"]
    assert judge["volumes"] == compiler["volumes"]
    assert judge["environment"]["WARPSMITH_JUDGE_COMPILES"] == "false"
    assert "WARPSMITH_JUDGE_COMPILES" not in compiler["environment"]


def test_judges_may_run_what_they_compile(services: dict[str, Any]) -> None:
    # Docker mounts a tmpfs noexec unless told otherwise, and a shared library there cannot be loaded.
    for name in JUDGES:
        assert all(":exec" in mount for mount in services[name]["tmpfs"])
        assert any(volume.endswith(":/var/cache/warpsmith") for volume in services[name]["volumes"])


def test_images_are_pinned(services: dict[str, Any]) -> None:
    for name in ("postgres", "redis"):
        assert PATCH_RELEASE.match(services[name]["image"]), services[name]["image"]
    for name in OURS:
        assert not services[name]["image"].endswith((":latest", "warpsmith-service", "warpsmith-judge"))
        assert (REPOSITORY / services[name]["build"]["dockerfile"]).is_file()


def test_every_image_has_a_version_and_one_digest_where_it_has_any() -> None:
    references = images.list_references()
    assert {reference.partition(":")[0] for reference in references} > {*images.OURS, "postgres", "redis", "python"}
    assert images.list_problems(references, digests=False) == []


def test_a_release_names_every_image_without_a_digest() -> None:
    one, other = (f"python:3.11.11-slim@sha256:{digit * 64}" for digit in "ab")
    for reference in ("redis", "redis:latest", "redis:7", f"redis@sha256:{'a' * 64}", "redis:7.4.2@sha256:abc"):
        (problem,) = images.list_problems({reference: ["compose"]}, digests=False)
        assert problem.startswith(f"compose: found {reference}, expected NAME:VERSION")
    assert images.list_problems({one: ["a"], "warpsmith-judge:0.1.0": ["b"]}, digests=True) == []
    assert "expected a digest" in images.list_problems({"redis:7.4.2": ["a"]}, digests=True)[0]
    for second in (other, "python:3.11.11-slim"):
        assert "that other lines have" in images.list_problems({one: ["a"], second: ["b"]}, digests=False)[0]


@pytest.mark.parametrize("path", DOCKERFILES)
def test_dockerfiles_are_pinned_and_not_root(path: str) -> None:
    lines = (REPOSITORY / path).read_text(encoding="utf-8").splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases
    assert all(re.fullmatch(r"python:3\.1[123]\.\d+-slim-bookworm(@sha256:[0-9a-f]{64})?", base) for base in bases)
    text = "\n".join(lines)
    assert "-c constraints.txt" in text
    assert "USER 10001:10001" in text
    assert text.index("USER 10001:10001") > text.rindex("RUN ")
    assert "ADD " not in text
    assert "curl" not in text


@pytest.mark.parametrize("path", DOCKERFILES)
def test_what_dockerfiles_copy_exists_and_is_sent_to_the_build(path: str) -> None:
    sent = {
        line.removeprefix("!")
        for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    for line in (REPOSITORY / path).read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (REPOSITORY / source).exists(), source
                assert source in sent, source


def test_only_the_judges_image_has_torch() -> None:
    assert '".[worker,otel]"' in (REPOSITORY / "docker/judge.Dockerfile").read_text(encoding="utf-8")
    assert '".[service,otel]"' in (REPOSITORY / "docker/service.Dockerfile").read_text(encoding="utf-8")


def test_ci_reads_as_bash_and_needs_no_terminal() -> None:
    script = REPOSITORY / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n", str(script)], check=True)


@pytest.mark.nightly
def test_make_sbom_writes_a_valid_list_of_what_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "sbom.cdx.json"
    make = shutil.which("make")
    assert make is not None
    plan = subprocess.run(
        [make, "--no-print-directory", "-n", "sbom", f"SBOM_OF={sys.executable}"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.replace("\\\n", " ")
    command = next(line for line in plan.splitlines() if "cyclonedx_py" in line).split()
    command = [sys.executable, *command[1:]]
    command[command.index("dist/sbom.cdx.json")] = str(file)
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)  # --validate: the schema holds
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "warpsmith"
    versions = {item["name"].lower(): item["version"] for item in found["components"]}
    assert versions["celery"] == importlib.metadata.version("celery")
    assert all(item["purl"].startswith("pkg:pypi/") for item in found["components"] if "purl" in item)


def test_make_installs_with_the_pins() -> None:
    make = shutil.which("make")
    assert make is not None
    options = [f"PYTHON={sys.executable}", "VENV=no-such-environment", "ARGS=--exit"]
    plan = subprocess.run(
        [make, "--no-print-directory", "-n", "run", *options],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert '-c constraints.txt -e ".[worker,cute,tilelang,dev,models]"' in plan
    assert plan.rstrip().endswith("python -m warpsmith.service.demo --exit")
