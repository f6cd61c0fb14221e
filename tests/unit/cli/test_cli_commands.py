"""The command line's manners: one JSON document under --json, errors that say what to do, exit codes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer.main
from sqlalchemy import text

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.cli import make_app, run
from warpsmith.service.cli.commands import doctor
from warpsmith.service.cli.commands.judge import describe_failure
from warpsmith.service.client.http import Client
from warpsmith.service.client.kernels import choose_best_kernel
from warpsmith.service.local.finding import Finding
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine
from warpsmith.workers.judging.candidates import language_of

EXAMPLE = "examples/layer_norm.yaml"
CPP = "from kernels_db.runtime import cpp\n"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in this process; returns exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "200")

    def run_it(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


def commands() -> list[str]:
    """Every command and subcommand."""
    root: Any = typer.main.get_command(make_app())
    names = []
    for name, command in root.commands.items():
        subcommands = getattr(command, "commands", None)
        names += [f"{name} {below}" for below in subcommands] if subcommands else [name]
    return names


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_and_json(name: str, said: Any) -> None:
    code, out, err = said(*name.split(), "--help")
    assert code == 0, err
    assert "--json" in out


@pytest.mark.parametrize("group", ["", "ops", "pools", "keys", "teams", "db", "workers"])
def test_lists_of_commands_cut_no_sentence_short(group: str, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = said(*([group] if group else []), "--help")
    assert code == 0, err
    listed = out.partition("Commands:")[2]
    assert listed.strip()
    assert "..." not in listed
    assert max(map(len, out.splitlines())) <= 80


def test_the_commands_of_the_design_are_there() -> None:
    wanted = {"up", "search", "tree", "judge", "kernels", "export", "import", "ask", "tell", "db upgrade", "doctor"}
    more = {"searches", "pause", "resume", "cancel", "pools import", "pools export", "ops validate", "keys create"}
    assert (wanted | more) <= set(commands())


@pytest.mark.parametrize(
    ("alive", "target", "expected"),
    [
        (["cpu:x86_64"], None, "kn_cpu"),
        (["cpu:x86_64", "cuda:sm_90"], None, "kn_gpu"),
        ([], None, "kn_gpu"),
        (["cpu:x86_64"], "cuda:sm_90", "kn_gpu"),
    ],
)
def test_an_ops_best_kernel_is_one_for_what_the_service_judges_on(
    alive: list[str], target: str | None, expected: str
) -> None:
    kept = [
        SimpleNamespace(
            id="kn_slow", op_id="op_1", op_name="layer_norm", target="cpu:x86_64", score=1.1, reverification=None
        ),
        SimpleNamespace(
            id="kn_cpu", op_id="op_1", op_name="layer_norm", target="cpu:x86_64", score=1.3, reverification=None
        ),
        SimpleNamespace(
            id="kn_gpu", op_id="op_1", op_name="layer_norm", target="cuda:sm_90", score=1.4, reverification=None
        ),
    ]
    gone = SimpleNamespace(target="cuda:sm_90", alive=False)
    workers = [gone, *(SimpleNamespace(target=each, alive=True) for each in [*alive, None])]

    class Service:
        def kernels(self, op: str, target: str | None) -> list[SimpleNamespace]:
            return [each for each in kept if each.op_name == op and target in (None, each.target)]

        def workers(self) -> list[SimpleNamespace]:
            return workers

    assert choose_best_kernel(cast("Client", Service()), "layer_norm", target).id == expected


@pytest.mark.parametrize(
    "arguments",
    [["no-such-command"], ["judge"], ["search", EXAMPLE, "--no-such-option"], ["up", "--port", "70000"], []],
)
def test_misuse_is_exit_code_2_without_a_traceback(arguments: list[str], said: Any) -> None:
    code, out, err = said(*arguments)
    assert code == 2
    assert "Traceback" not in out + err


def test_a_bad_spec_names_every_bad_field(said: Any, tmp_path: Path) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text("schema_version: 1\nname: bad\naxes: {n: {kind: vr}}\n")
    code, out, err = said("ops", "validate", str(spec), "--json")
    assert code == 2
    errors = {error["field"]: error for error in json.loads(out)["error"]["errors"]}
    assert errors["axes.n.kind"]["found"] == "vr"
    assert "reference" in errors
    assert "axes.n.kind (line 3): found 'vr', expected one of const, var, expr; did you mean var?" in err


def test_a_good_spec_shows_its_workloads(said: Any) -> None:
    code, out, _ = said("ops", "validate", EXAMPLE, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["name"] == "layer_norm"
    assert {item["role"] for item in document["workloads"]} == {"bench", "test", "holdout"}
    assert said("ops", "validate", EXAMPLE)[1].startswith("layer_norm is valid")


def test_examples_are_listed(said: Any) -> None:
    code, out, _ = said("ops", "examples", "--json")
    assert code == 0
    assert {"layer_norm", "fused_add_mul_relu", "attention"} <= {item["name"] for item in json.loads(out)}


def test_examples_are_a_line_each_as_wide_as_the_terminal(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said("ops", "examples")[1].splitlines()
    [softmax] = [line for line in lines if line.startswith("softmax ")]
    assert softmax.split()[1] == "examples/softmax.yaml"  # as it is typed here
    assert len({line.index("examples/") for line in lines}) == 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "90")
    lines = said("ops", "examples")[1].splitlines()
    assert max(map(len, lines)) <= 90
    assert any(line.endswith("...") for line in lines)


def test_a_file_that_is_not_there(said: Any) -> None:
    code, _, err = said("ops", "validate", "nothing.yaml")
    assert code == 2
    expected = "a spec file that exists, or the id (op_...) or name of an op"
    assert err == f"error: OP: found 'nothing.yaml', expected {expected}\n"


@pytest.mark.parametrize("command", ["searches", "kernels", "ask", "pools list", "tree sr_1", "export layer_norm"])
def test_without_a_service_every_command_says_how_to_get_one(command: str, said: Any) -> None:
    code, out, err = said(*command.split(), "--url", "http://127.0.0.1:9", "--json")
    assert code == 1
    assert "warpsmith up" in json.loads(out)["error"]["message"]
    assert "warpsmith up" in err


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("WARPSMITH_LEASE_S", "-1", "more than 0"),
        ("WARPSMITH_OTLP_ENDPOINT", "zebra", "the address of a collector, such as http://collector:4318"),
    ],
)
def test_a_setting_that_is_wrong_is_named(
    said: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    code, _, err = said("db", "upgrade")
    assert code == 2
    assert f"{variable}: found '{value}', expected {expected}" in err


def test_the_database_is_upgraded_once(said: Any) -> None:
    assert said("db", "revision", "--json")[0] == 1
    code, out, _ = said("db", "upgrade", "--json")
    assert code == 0
    first = json.loads(out)
    assert first["before"] is None
    again = json.loads(said("db", "upgrade", "--json")[1])
    assert again["before"] == again["revision"] == first["revision"]
    assert said("db", "revision")[0] == 0


def test_a_schema_of_a_newer_program_is_left_alone(said: Any) -> None:
    said("db", "upgrade")
    db = Database(ServiceSettings().database)
    with db.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    db.dispose()
    code, _, err = said("db", "upgrade")
    assert code == 1
    assert re.fullmatch(r"error: database schema: found revision 9999, expected \d{4}: upgrade this program\n", err)


def test_a_database_of_another_kind_is_refused(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_DATABASE_URL", "mysql://root:secret@localhost/x")
    code, out, err = said("db", "upgrade")
    assert code == 2
    assert "WARPSMITH_DATABASE_URL: found mysql://, expected sqlite:// or postgresql://" in err
    assert "secret" not in out + err


def test_keys_are_made_listed_and_revoked(said: Any) -> None:
    assert "db upgrade" in said("keys", "create", "ci")[2]
    said("db", "upgrade")
    code, out, _ = said("keys", "create", "ci", "--json")
    assert code == 0
    key = json.loads(out)["key"]
    (listed,) = json.loads(said("keys", "list", "--json")[1])
    assert listed["name"] == "ci"
    assert listed["revoked_at"] is None
    assert key.split("_")[2] not in json.dumps(listed)
    assert said("keys", "revoke", listed["prefix"])[0] == 0
    assert json.loads(said("keys", "list", "--json")[1])[0]["revoked_at"] is not None
    code, _, err = said("keys", "revoke", listed["prefix"])
    assert code == 2
    assert "keys list" in err


def test_teams_have_keys_and_quotas(said: Any) -> None:
    said("db", "upgrade")
    assert said("teams", "create", "vision", "--candidates", "20", "--cost", "1.5")[0] == 0
    for wrong in (("create", "vision"), ("create", "A b"), ("set", "nobody"), ("set", "vision", "--cost", "much")):
        assert said("teams", *wrong)[0] == 2, wrong
    assert "--cost: found 'much'" in said("teams", "set", "vision", "--cost", "much")[2]
    changed = json.loads(said("teams", "set", "vision", "--shared", "--cost", "none", "--json")[1])
    limits = {each["quota"]: each["limit"] for each in changed["quotas"]}
    assert (changed["visibility"], limits["candidates_a_day"], limits["cost_usd_a_day"]) == ("shared", 20, None)
    assert "0 of 20 candidates today" in said("teams", "list")[1]
    assert said("keys", "create", "ci", "--team", "nobody")[0] == 2
    assert "found write" in said("keys", "create", "ci", "--scope", "write")[2]
    said("keys", "create", "ci", "--team", "vision", "--scope", "steer", "--scope", "read")
    (listed,) = json.loads(said("keys", "list", "--json")[1])
    assert (listed["team"], listed["scopes"]) == ("vision", ["read", "steer"])


def test_the_doctor_says_what_to_do(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = said("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 0
    assert {"python", "home", "torch", "compiler", "broker", "database", "gpu", "cpp", "triton", "cuda"} <= set(checks)
    assert checks["database"] == {
        "name": "database",
        "state": "note",
        "found": checks["database"]["found"],
        "fix": "warpsmith db upgrade (`warpsmith up` does it too)",
    }
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler" in said("doctor")[1]


def test_the_doctor_says_whether_nsight_compute_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**changes: Any) -> list[Finding]:
        settings = ServiceSettings(database_url=f"sqlite:///{tmp_path / 'x.db'}", **changes)
        return [item for item in doctor.examine(settings) if item.name == "nsight"]

    monkeypatch.setattr(machine, "gpus", list)
    assert found() == []
    monkeypatch.setattr(machine, "gpus", lambda: [machine.Gpu(0, "Example", "9.0", "GPU-aa11")])
    (absent,) = found(ncu=str(tmp_path / "ncu"))
    assert (absent.state, absent.fix is not None) == ("note", True)
    (off,) = found(ncu="off")
    assert (off.state, off.fix) == ("note", None)
    (tmp_path / "ncu").write_text("")
    (tmp_path / "ncu").chmod(0o700)
    monkeypatch.setattr("warpsmith.workers.judge.nsight.access.permission", lambda: "refused")
    (refused,) = found(ncu=str(tmp_path / "ncu"))
    assert "ERR_NVGPUCTRPERM" in refused.found
    assert refused.fix is not None
    assert "NVreg_RestrictProfilingToAdminUsers=0" in refused.fix
    monkeypatch.setattr("warpsmith.workers.judge.nsight.access.permission", lambda: "everybody")
    assert [item.state for item in found(ncu=str(tmp_path / "ncu"))] == ["ok"]


def test_the_doctor_finds_a_broker_that_does_not_answer(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_BROKER_URL", "redis://:secret@127.0.0.1:9/0")
    code, out, _ = said("doctor", "--json")
    broker = next(check for check in json.loads(out)["checks"] if check["name"] == "broker")
    assert code == 1
    assert broker["state"] == "bad"
    assert "secret" not in out


def test_the_doctor_finds_a_schema_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServiceSettings(database_url=f"sqlite:///{tmp_path / 'old.db'}")
    monkeypatch.setattr(Database, "revision", lambda _: ("0000", "0001"))
    database = next(item for item in doctor.examine(settings) if item.name == "database")
    assert (database.state, database.fix) == ("bad", "warpsmith db upgrade")


def test_a_machine_without_torch_says_what_to_install(
    said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CPP)
    installed = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: name != "torch" and installed(name))
    code, _, err = said("judge", EXAMPLE, str(candidate))
    assert code == 2
    assert "torch is not installed" in err
    assert "[judge]" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--level", "fast"], "--level: found 'fast', expected one of compile, screen, verify"),
        (
            ["--language", "rust"],
            "--language: found 'rust', expected one of cpp, triton, cuda, gluon, cute, tilelang, python",
        ),
        (["--target", "tpu"], "target: found 'tpu'"),
        (["--workload", "none"], "workload: found 'none', expected one of images"),
    ],
)
def test_judge_refuses_bad_arguments(arguments: list[str], message: str, said: Any, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CPP)
    code, _, err = said("judge", EXAMPLE, str(candidate), *arguments)
    assert code == 2
    assert message in err


def test_the_language_is_read_from_the_imports() -> None:
    assert language_of(CPP, "c.py") == "cpp"
    assert language_of("from kernels_db.runtime import cuda\n", "c.py") == "cuda"
    assert language_of("import triton\nimport triton.language as tl\n", "c.py") == "triton"
    for source in ("import torch\n", CPP + "import triton\n"):
        with pytest.raises(SpecError, match="exactly one: cpp, triton, cuda"):
            language_of(source, "c.py")
    with pytest.raises(SpecError, match="expected a Python file"):
        language_of("def (", "c.py")


def test_a_failure_says_which_element_expected_and_found() -> None:
    lines = describe_failure(
        {
            "kind": "wrong_value",
            "message": "",
            "workload": "images",
            "tensor": "y",
            "index": [3, 5],
            "expected": 0.5,
            "found": 0.25,
            "limit": 1e-6,
            "wrong_elements": 1234,
            "elements": 4096,
        }
    )
    assert lines == [
        "workload  images",
        "element   y[3, 5]",
        "expected  0.5",
        "found     0.25",
        "limit     1e-06",
        "wrong     1,234 of 4,096 elements",
    ]


def test_the_version_is_the_distributions(said: Any) -> None:
    code, out, _ = said("--version")
    assert code == 0
    assert out.startswith("warpsmith 0.")
