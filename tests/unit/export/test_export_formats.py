"""What each format holds, what it refuses, and that nothing is overwritten."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported
from tests.support.formats_support import EXAMPLES
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.kernel import (
    RESERVED,
    attribute_source,
    check_name,
    export_version,
    module_name,
    write_project,
)
from warpsmith.kernels_db.spec.op import SpecErrors

SAID: dict[str, Any] = {
    **SCALED_ADD,
    "axes": {"rows": {"kind": "var"}, "columns": {"kind": "const", "value": 8}},
    "outputs": [{"name": "out", "shape": ["rows", 8], "dtype": "float32"}],
}
"""An op that every format can say but those for known layers, for imported tasks alone and for kernels in Triton."""

OTHERS = ("vllm", "robust-kbench", "gpu-mode-bare", "kernelbench-bare")
ANY_OP = [form for form in registry.FORMATS if form.name not in OTHERS]


def text_of(project: Path) -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(project.rglob("*")) if path.is_file())


@pytest.mark.parametrize("form", ANY_OP, ids=lambda form: form.name)
def test_each_format_carries_licence_evidence_and_provenance(form: registry.Format, tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    text = text_of(form.build(kernel, tmp_path))
    assert "Apache-2.0" in text
    for said in (kernel.id, kernel.source_digest, "one pass", "a test", "2.13.0"):
        assert said in text, said
    if form.name != "package":
        for said in ("a-model", "0" * 64, kernel.verified_at):
            assert said in text, said
    assert "x[i] + m * y[i]" in text
    assert "warpsmith.kernels_db.export" not in text


@pytest.mark.parametrize("form", ANY_OP, ids=lambda form: form.name)
def test_no_format_carries_the_words_of_a_baselines_fault(form: registry.Format, tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    rows = kernel.evidence["workloads"]
    reasons = {
        "compiled": "does not run: raises: no such file: /home/someone/.cache/inductor/x.py",
        "tuned": "does not run: /home/someone",
        "max": "a screen times the fastest baseline alone",
    }
    evidence = {
        **kernel.evidence,
        "workloads": [{**row, "not_timed": reasons} for row in rows],
        "notes": ["baseline compiled does not run on large (raises: /home/someone)", "a note of the referee"],
        "experts": {"liger": {"liger-kernel": "0.8.5"}, "mine": {}},
    }
    text = text_of(form.build(replace(kernel, evidence=evidence), tmp_path))
    assert "/home/someone" not in text
    if form.name == "package":
        assert "does not run: raises" in text
        assert "baseline compiled does not run on large: raises" in text
        assert "a note of the referee" in text
        assert "a screen times the fastest baseline alone" in text
        assert '"liger-kernel": "0.8.5"' in text


def test_a_package_shows_a_baseline_that_was_timed_on_some_workloads_alone(tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    (row,) = (row for row in kernel.evidence["workloads"] if row["role"] == "bench")
    beside = {name: {**row[name], "liger": value} for name, value in (("speedup", 2.0), ("time_us", 7.0))}
    other = {**row, **beside, "id": "other", "ci95": {**row["ci95"], "liger": [1.9, 2.1]}}
    evidence = {**kernel.evidence, "workloads": [*kernel.evidence["workloads"], other]}
    (package,) = (form for form in ANY_OP if form.name == "package")
    text = text_of(package.build(replace(kernel, evidence=evidence), tmp_path))
    head, first, second = (
        line for line in text.splitlines() if line.startswith(("| workload |", "| small", "| other"))
    )
    assert head.count("|") == first.count("|") == second.count("|")
    assert "| liger | speed-up over liger |" in head
    assert "| not timed | - |" in first
    assert "| 7.0 us | 2.00x [1.90, 2.10] |" in second


@pytest.mark.parametrize("form", ANY_OP, ids=lambda form: form.name)
def test_names_follow_the_content_and_nothing_is_overwritten(form: registry.Format, tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    first = form.build(kernel, tmp_path)
    kept = text_of(first)
    with pytest.raises(FileExistsError):
        form.build(kernel, tmp_path)
    other = form.build(exported(SAID, SCALED_ADD_CPP.replace("for (int64_t i", "for (long i")), tmp_path)
    assert other != first
    assert text_of(first) == kept


HOSTILE = 'x"""\nhostile()\x00\x1b[31m\\ ```\n```\nhostile()'


@pytest.mark.parametrize("form", ANY_OP, ids=lambda form: form.name)
def test_others_words_stay_words(form: registry.Format, tmp_path: Path) -> None:
    kernel = exported(SAID | {"description": HOSTILE.replace("\x00", "")}, SCALED_ADD_CPP)
    title = kernel.lineage[0] | {"idea": {"title": HOSTILE}}
    project = form.build(replace(kernel, lineage=[title]), tmp_path)
    for path in project.rglob("*.py"):
        names = [node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)]
        assert "hostile" not in names, path


def test_formats_of_one_kernel_stand_beside_each_other(tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    assert len({form.build(kernel, tmp_path) for form in ANY_OP}) == len(ANY_OP)


def changed(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda spec: {**spec, **fields}


def with_input(position: int, **fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(spec: dict[str, Any]) -> dict[str, Any]:
        inputs = [dict(item) for item in spec["inputs"]]
        inputs[position].update(fields)
        return {**spec, "inputs": inputs}

    return change


CODE = {
    "kind": "code",
    "source": "import torch\ndef make(shape, dtype, generator):\n    return torch.ones(shape)\n",
}
OVERRIDE = [*SAID["workloads"][:1], {**SAID["workloads"][1], "inputs": {"m": {"value": 2.0}}}]
TWO = [{"name": "out", "shape": ["rows", 8], "dtype": "float32"}, {"name": "too", "shape": [8], "dtype": "float32"}]
REFUSALS = [
    ("kernelbench", changed(outputs=TWO), "outputs", "one"),
    ("kernelbench", with_input(0, mutated=True), "inputs[0].mutated", "false"),
    ("kernelbench", with_input(0, dist=CODE), "inputs.x.dist.kind", "another distribution"),
    ("kernelbench", with_input(0, strides=[0, 1]), "inputs.x.strides", "no broadcast axis"),
    ("flashinfer-bench", changed(axes=SCALED_ADD["axes"]), "axes.half", "const or var"),
    ("flashinfer-bench", with_input(0, mutated=True), "inputs[0].mutated", "false"),
    ("flashinfer-bench", with_input(0, strides=[8, 1]), "inputs[0].strides", "contiguous"),
    ("flashinfer-bench", with_input(0, dtype="float64"), "inputs[0].dtype", "one of"),
    ("flashinfer-bench", with_input(0, dist={"kind": "uniform"}), "inputs[0].dist", "normal distribution"),
    ("flashinfer-bench", with_input(1, optional=True), "inputs[1].optional", "false"),
    ("gpu-mode", with_input(0, dist=CODE), "inputs[0].dist.kind", "another distribution"),
    ("gpu-mode", with_input(0, strides=[0, 1]), "inputs[0].strides", "no broadcast axis"),
    ("gpu-mode", changed(workloads=OVERRIDE), "workloads.large.inputs", "none"),
]


@pytest.mark.parametrize(("form", "change", "field", "expected"), REFUSALS)
def test_what_a_format_cannot_say_is_refused_by_name(
    form: str, change: Callable[[dict[str, Any]], dict[str, Any]], field: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecErrors) as caught:
        registry.named(form).build(exported(change(SAID), SCALED_ADD_CPP), tmp_path / "out")
    assert [error for error in caught.value.errors if error.field == field and expected in error.expected], caught.value
    assert not (tmp_path / "out").exists()


def origin(form: str, **files: str) -> dict[str, Any]:
    """What anybody may write into a spec as its origin."""
    return {"format": form, "files": [{"path": name.replace("_", "."), "text": text} for name, text in files.items()]}


def test_sol_execbench_gets_a_problem_a_solution_and_traces(tmp_path: Path) -> None:
    project = registry.named("sol-execbench").build(exported(SAID, SCALED_ADD_CPP), tmp_path)
    definition, solution = (json.loads((project / f"{name}.json").read_text()) for name in ("definition", "solution"))
    traces = json.loads((project / "traces.json").read_text())
    workloads = [json.loads(line) for line in (project / "workload.jsonl").read_text().splitlines()]
    assert solution["definition"] == definition["name"] == traces[0]["definition"]
    spec = solution["spec"]
    assert (spec["languages"], spec["target_hardware"], spec["entry_point"]) == (["pytorch"], ["LOCAL"], "main.py::run")
    assert spec["entry_point"].partition("::")[0] in {source["path"] for source in solution["sources"]}
    assert "language" not in spec
    assert [trace["workload"] for trace in traces] == workloads
    assert {trace["evaluation"]["status"] for trace in traces} == {"PASSED"}
    assert traces[0]["evaluation"]["performance"]["latency_ms"] == 0.002


def test_robust_kbench_gets_times_by_the_name_of_the_configuration(tmp_path: Path) -> None:
    task = EXAMPLES / "robust-kbench" / "biased_tanh"
    files = {f"a/{name}": (task / name).read_text() for name in ("func_backward.py", "config_backward.json")}
    given = {"format": "robust-kbench", "files": [{"path": path, "text": text} for path, text in files.items()]}
    kernel = exported(SAID | {"origin": given}, SCALED_ADD_CPP)
    project = registry.named("robust-kbench").build(kernel, tmp_path)
    assert (project / "func_backward.py").read_text() == files["a/func_backward.py"]
    setting = "init_method_random_features_96_batch_size_48_features_96"
    own = json.loads((project / "kernel" / "eval_results" / "time_results.json").read_text())
    native = json.loads((project / "eval_results" / "backward" / "torch_native_results.json").read_text())
    assert own["eval_settings"][setting]["median_time"] == own["summary"]["avg_mean_time"] == 0.002
    assert native["summary"]["avg_mean_time"] / own["summary"]["avg_mean_time"] == 2.0
    assert native["summary"]["all_configs_str"] == [setting]
    assert json.loads((project / "kernel" / "provenance.json").read_text())["kernels"][0]["kernel"] == kernel.id
    also = {"b/config_backward.json": "{}", "b/note.md": "kept"}
    beside = [{"path": path, "text": text} for path, text in (files | also).items()]
    other = exported(SAID | {"origin": {**given, "files": beside}}, SCALED_ADD_CPP)
    again = registry.named("robust-kbench").build(other, tmp_path / "beside")
    assert (again / "config_backward.json").read_text() == files["a/config_backward.json"]
    untimed = replace(kernel, evidence={**kernel.evidence, "workloads": []})
    for other, field in ((exported(SAID, SCALED_ADD_CPP), "origin.format"), (untimed, "evidence.workloads")):
        with pytest.raises(SpecErrors) as caught:
            registry.named("robust-kbench").build(other, tmp_path / "other")
        assert [error.field for error in caught.value.errors] == [field]


def test_a_workload_that_draws_in_a_way_of_its_own_goes_into_no_dataset(tmp_path: Path) -> None:
    definition = {"name": "d", "op_type": "e", "axes": {}, "inputs": {}, "outputs": {}}
    workload = {"uuid": "axes", "axes": {}, "inputs": {"i": {"type": "drawn", "dist": {"kind": "permutation"}}}}
    spec = SAID | {"origin": origin("flashinfer-bench", d_json=json.dumps(definition), w_jsonl=json.dumps(workload))}
    for form in ("flashinfer-bench", "sol-execbench"):
        with pytest.raises(SpecErrors) as caught:
            registry.named(form).build(exported(spec, SCALED_ADD_CPP), tmp_path / "out")
        assert [error.field for error in caught.value.errors] == ["workloads.axes.inputs.i.dist"]


def test_an_imported_definitions_names_stay_inside_the_export(tmp_path: Path) -> None:
    definition = {"name": "../../../outside", "op_type": "/etc", "axes": {}, "inputs": {}, "outputs": {}}
    spec = SAID | {"origin": origin("flashinfer-bench", d_json=json.dumps(definition))}
    project = registry.named("flashinfer-bench").build(exported(spec, SCALED_ADD_CPP), tmp_path / "a" / "b" / "out")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(path.is_relative_to(project) for path in files)


def test_no_file_is_written_outside_of_the_new_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one inside"):
        write_project(tmp_path, "new", {"../old": "text"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "spec", "field"),
    [
        ("flashinfer-bench", {"origin": origin("flashinfer-bench", d_json="[1, 2")}, "d.json"),
        ("gpu-mode", {"origin": origin("gpu-mode", task_yml="files: []")}, "reference"),
        (
            "gpu-mode",
            {
                "origin": origin("gpu-mode", task_yml="files: []"),
                "reference": "def run(x, y, m):\n    found = _ref((x, y, m))\n    return found[1000000000000]\n",
            },
            "reference",
        ),
    ],
)
def test_an_origin_that_nobody_imported_is_refused_by_its_field(
    form: str, spec: dict[str, Any], field: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecErrors) as caught:
        registry.named(form).build(exported(SAID | spec, SCALED_ADD_CPP), tmp_path)
    assert [error.field for error in caught.value.errors] == [field]
    assert list(tmp_path.iterdir()) == []


def test_an_origin_that_is_no_problem_leaves_the_spec_to_say_it(tmp_path: Path) -> None:
    spec = SAID | {"origin": origin("kernelbench", a_py="def Model(:")}
    [file] = registry.named("kernelbench").build(exported(spec, SCALED_ADD_CPP), tmp_path).iterdir()
    assert "class Model(torch.nn.Module):" in file.read_text()


def test_an_op_in_place_has_no_layer(tmp_path: Path) -> None:
    repository = registry.named("hf-kernels").build(exported(IN_PLACE, IN_PLACE_CPP), tmp_path)
    variant = repository / "build" / "torch-cpu"
    assert not (variant / "layers.py").exists()
    assert "layers" not in (variant / "__init__.py").read_text()


def test_metadata_is_what_kernels_reads(tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    repository = registry.named("hf-kernels").build(kernel, tmp_path)
    metadata = json.loads((repository / "build" / "torch-cpu" / "metadata.json").read_text())
    assert metadata["name"] == repository.name
    assert metadata["id"].isidentifier()
    assert metadata["id"].replace("_", "-") == metadata["name"]
    assert metadata["backend"] == {"type": "cpu"}
    assert metadata["python-depends"] == []
    assert metadata["warpsmith"]["kernels"][0]["source_digest"] == kernel.source_digest


def test_cases_of_a_task_have_names_that_its_harness_reads(tmp_path: Path) -> None:
    spec = {
        **SAID,
        "axes": {"seq_len2": {"kind": "var"}, "i_f": {"kind": "var"}, "columns": {"kind": "const", "value": 8}},
        "inputs": [{**item, "shape": item["shape"] and ["seq_len2", "i_f"]} for item in SAID["inputs"]],
        "outputs": [{"name": "out", "shape": ["seq_len2", 8], "dtype": "float32"}],
        "workloads": [{"id": "only", "role": "bench", "axes": {"seq_len2": 4, "i_f": 8}}],
    }
    project = registry.named("gpu-mode").build(exported(spec, SCALED_ADD_CPP), tmp_path)
    task = yaml.safe_load((project / "task.yml").read_text())
    assert task["tests"] == task["benchmarks"] == [{"seqlenc": 4, "ifx": 8, "seed": 1000}]
    assert "def generate_input(seqlenc: int, ifx: int, seed: int):" in (project / "reference.py").read_text()


def test_where_a_module_keeps_its_state() -> None:
    assert attribute_source("linear.weight") == "self.linear.weight"
    assert attribute_source("layers.0.bias") == "getattr(self.layers, '0').bias"


NAMED = [form for form in ANY_OP if form.importable]


@pytest.mark.parametrize("form", NAMED, ids=lambda form: form.name)
def test_a_given_name_takes_the_place_of_the_one_with_a_hash(form: registry.Format, tmp_path: Path) -> None:
    kernel = exported(SAID, SCALED_ADD_CPP)
    project = form.write([kernel], tmp_path, "warpsmith_scaled")
    assert project.name.replace("-", "_").startswith("warpsmith_scaled")
    assert module_name(kernel) not in text_of(project)
    assert "warpsmith_scaled" in text_of(project)
    assert form.write([kernel], tmp_path).name != project.name


def test_a_later_kernel_is_a_later_version_of_the_same_name(tmp_path: Path) -> None:
    first = exported(SAID, SCALED_ADD_CPP)
    later = replace(
        exported(SAID, SCALED_ADD_CPP.replace("for (int64_t i", "for (long i")),
        verified_at="2026-11-22T01:02:03+02:00",
    )
    old, new, both = export_version(first), export_version(later), export_version(first, later)
    assert re.fullmatch(r"2026\.11\.21\.43200\+[0-9a-f]{8}", old)
    assert re.fullmatch(r"2026\.11\.21\.82923\+[0-9a-f]{8}", new)
    assert Version(old) < Version(new)
    assert both.partition("+")[0] == new.partition("+")[0]
    assert export_version(replace(first, verified_at="")) == f"0+{module_name(first)[-8:]}"
    project = registry.named("package").write([first], tmp_path, "warpsmith_scaled")
    provenance = json.loads((project / "warpsmith_scaled" / "provenance.json").read_text())
    assert provenance["version"] == old
    assert f'version = "{old}"' in (project / "pyproject.toml").read_text()
    assert f'__version__ = "{old}"' in (project / "warpsmith_scaled" / "__init__.py").read_text()


@pytest.mark.parametrize(
    "name",
    ["torch", "gelu", "warpsmith", "warpsmith_", "warpsmith__x", "warpsmith_A", "warpsmith_a-b", "warpsmith_x\n"],
)
def test_a_name_that_could_be_anothers_is_refused(name: str) -> None:
    assert "warpsmith_ and then" in (check_name(name) or "")


def test_a_name_whose_variable_is_taken_is_refused() -> None:
    static = Path(registry.__file__).parent
    runtime = static.parent / "runtime"
    files = [*(static / "package_files").glob("*.py"), *runtime.glob("*.py")]
    variables = {found for file in files for found in re.findall(r'"WARPSMITH_([A-Z_]+)"', file.read_text("utf-8"))}
    assert {name.lower() for name in variables} == RESERVED
    assert check_name("warpsmith_watch") == "another name: WARPSMITH_WATCH is a variable that every export reads"
    assert check_name(f"warpsmith_{'a' * 70}") is None
    assert check_name(f"warpsmith_{'a' * 71}") is not None
