"""Several kernels of one op in one package: which serves a call, each switched by itself, and checked by itself."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.exporting import (
    IN_PLACE,
    IN_PLACE_CPP,
    SCALED_ADD,
    SCALED_ADD_CPP,
    SCALED_ADD_TRITON,
    exported,
    in_fresh_process,
)
from tests.support.plans import with_plans
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.kernel import ExportedKernel, kernel_name
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.exports import verify_export

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")


def of_dtype(dtype: str) -> dict[str, Any]:
    tensors = [{**item, "dtype": dtype} for item in SCALED_ADD["inputs"][:2]]  # type: ignore[index]
    return SCALED_ADD | {
        "inputs": [*tensors, SCALED_ADD["inputs"][2]],  # type: ignore[index]
        "outputs": [{**SCALED_ADD["outputs"][0], "dtype": dtype}],  # type: ignore[index]
    }


LARGER = [{"id": "huge", "role": "bench", "axes": {"rows": 100}}, {"id": "small", "role": "test", "axes": {"rows": 30}}]
SHORT = exported(SCALED_ADD, SCALED_ADD_CPP, name="kn_short", times_us={"small": 1.0, "large": 9.0})
LONG = exported(
    SCALED_ADD, SCALED_ADD_CPP.replace("= 0; i", "= 0L; i"), name="kn_long", times_us={"small": 3.0, "large": 4.0}
)
BEYOND = exported(
    SCALED_ADD | {"workloads": LARGER}, SCALED_ADD_CPP.replace("i < n", "i != n"), name="kn_beyond", times_us={}
)
DOUBLE = exported(of_dtype("float64"), SCALED_ADD_CPP.replace("float*", "double*"), name="kn_double")
GPU = exported(SCALED_ADD, SCALED_ADD_TRITON, "triton", target="cuda:sm_90", name="kn_gpu")
UNTIMED = 0.0
FASTEST = {"small": 0.1, "large": 0.1}
KERNELS = {kernel.id: kernel for kernel in (SHORT, LONG, BEYOND, DOUBLE, GPU)}
NAMES = {kernel.id: kernel_name(kernel) for kernel in KERNELS.values()}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(GPU, tmp_path_factory.mktemp("several"), DOUBLE, BEYOND, LONG, SHORT)


@pytest.fixture(scope="module")
def imported(project: Path) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(project.parent / "cache"))
        patch.setenv("WARPSMITH_SHADOW_DIR", str(project.parent / "shadow"))
        patch.syspath_prepend(project)
        yield importlib.import_module(project.name)


@pytest.fixture
def package(imported: ModuleType) -> Iterator[ModuleType]:
    yield imported
    imported.enable()


def tensors(rows: int, dtype: str = "float32") -> tuple[Any, Any]:
    return tuple(torch.randn(rows, 8, dtype=getattr(torch, dtype)) for _ in range(2))  # type: ignore[return-value]


def serving(package: ModuleType, rows: int, dtype: str = "float32") -> str:
    """The id of the kernel that serves a call, as its count says; empty for PyTorch."""
    x, y = tensors(rows, dtype)
    before = {name: each["served"] for name, each in package.status()["kernels"].items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    after = package.status()["kernels"]
    served = [each["id"] for name, each in after.items() if each["served"] > before[name]]
    assert len(served) <= 1
    return served[0] if served else ""


@pytest.mark.parametrize(
    ("rows", "dtype", "kernel"),
    [
        (3, "float32", "kn_short"),
        (7, "float32", "kn_short"),
        (20, "float32", "kn_long"),
        (40, "float32", "kn_beyond"),  # twice the limit at 30 rows and at 100, the other four times at 40
        (100, "float32", "kn_beyond"),
        (101, "float32", ""),
        (3, "float64", "kn_double"),
        (3, "float16", ""),
    ],
)
def test_dtype_envelope_and_the_nearest_time_choose(package: ModuleType, rows: int, dtype: str, kernel: str) -> None:
    assert serving(package, rows, dtype) == kernel


def test_what_is_remembered_of_a_call_holds_no_memory(package: ModuleType) -> None:
    x = torch.randn(10, 8)
    package.scaled_add(x, x, 0.5)
    guard = importlib.import_module(f"{package.__name__}._guard")
    (first, *_) = guard.admit((x, x, 0.5))
    assert [like.untyped_storage().nbytes() for like in first.outputs] == [0]
    (made,) = first.allocate()
    assert (made.shape, made.is_contiguous(), made.untyped_storage().nbytes()) == (x.shape, True, x.nbytes)


def test_explain_says_why_one_was_preferred(package: ModuleType) -> None:
    said = package.explain(*tensors(7), 0.5)
    assert said == (
        f"kernel {NAMES['kn_short']}: inside the envelope (between verified shapes); fewest octaves from this call to "
        "a timed shape, then fastest there for its size: 1.0 us at {'rows': 3}, within 2 octaves; "
        f"{NAMES['kn_long']} 3.0 us at {{'rows': 3}}, within 2 octaves"
    )
    alone = package.explain(*tensors(3, "float64"), 0.5)
    assert alone.endswith("(a verified shape); no other kernel here admits the call")
    outside = package.explain(*tensors(101), 0.5)
    assert f"{NAMES['kn_beyond']}: rows is 101, verified from 30 to 100" in outside
    assert f"{NAMES['kn_gpu']}: x is on cpu, verified on cuda" in outside


@pytest.fixture(scope="module")
def octaves_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The guard of a package of two kernels: one timed at 3 and 640 rows, the other at 40 alone and half as well."""
    sizes = {"small": ("bench", 3), "huge": ("test", 640)}
    wide = [{"id": name, "role": role, "axes": {"rows": rows}} for name, (role, rows) in sizes.items()]
    kernels = [
        exported(SCALED_ADD | {"workloads": wide}, SCALED_ADD_CPP, name="kn_wide"),
        exported(SCALED_ADD, LONG.source, name="kn_here", times_us={"small": UNTIMED, "large": 4.0}),
    ]
    project = build(kernels[0], tmp_path_factory.mktemp("octaves"), kernels[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(project)
        yield importlib.import_module(f"{project.name}._guard")


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        (3, "kn_wide kn_here"),
        (6, "kn_wide kn_here"),  # twice the size is one octave, and kn_here is timed three away
        (12, "kn_wide kn_here"),  # two octaves each: the figures decide
        (40, "kn_here kn_wide"),  # the call's own shape goes before a better figure four octaves away
        (20, "kn_here kn_wide"),
    ],
)
def test_a_time_near_the_call_goes_before_a_better_one_far_away(
    octaves_apart: ModuleType, rows: int, order: str
) -> None:
    found = octaves_apart.admit((*tensors(rows), 0.5))
    assert " ".join(each.kernel.id for each in found) == order


def test_one_kernel_serves_alone(package: ModuleType) -> None:
    package.disable()
    assert serving(package, 3) == ""
    package.enable(NAMES["kn_long"])
    assert (serving(package, 3), serving(package, 100)) == ("kn_long", "")
    status = package.status()
    assert status["mode"] == "on"
    assert [each["id"] for each in status["kernels"].values() if each["enabled"]] == ["kn_long"]
    package.enable(NAMES["kn_short"])
    assert serving(package, 3) == "kn_short"
    package.disable(NAMES["kn_short"])
    assert "the kernel is switched off by disable()" in package.explain(*tensors(3), 0.5)
    assert serving(package, 3) == "kn_long"


def test_blocks_name_kernels_too_and_nest(package: ModuleType) -> None:
    with package.disabled(NAMES["kn_short"]):
        assert serving(package, 3) == "kn_long"
        with package.disabled(), package.enabled(NAMES["kn_short"]):
            assert serving(package, 3) == "kn_short"
        with package.disabled(NAMES["kn_long"]):
            assert serving(package, 3) == ""
    assert serving(package, 3) == "kn_short"


def test_a_name_that_no_kernel_has_is_refused(package: ModuleType) -> None:
    for switch in (package.enable, package.disable, lambda name: package.enabled(name).__enter__()):
        with pytest.raises(ValueError, match=f"found the kernel 'kn_short', expected one of .*{NAMES['kn_short']}"):
            switch("kn_short")
    assert package.status()["mode"] == "on"


def test_a_kernel_that_is_given_up_leaves_its_calls_to_the_next(package: ModuleType) -> None:
    control = importlib.import_module(f"{package.__name__}._control")
    with pytest.warns(
        RuntimeWarning, match=f"the kernel {NAMES['kn_short']} serves no call from now on, because of it"
    ):
        control.trip(NAMES["kn_short"], "of it")
    assert serving(package, 3) == "kn_long"
    status = package.status()
    assert (status["given_up"], status["kernels"][NAMES["kn_short"]]["given_up"]) == (None, "of it")
    package.enable(NAMES["kn_long"])
    assert serving(package, 3) == "kn_long"
    package.enable(NAMES["kn_short"])
    assert serving(package, 3) == "kn_short"


def test_a_kernel_that_does_not_load_is_told_once_and_the_next_serves(imported: ModuleType, tmp_path: Path) -> None:
    broken = exported(SCALED_ADD, SCALED_ADD_CPP.replace("m * y[i]", "m * z[i]"), name="kn_broken", times_us=FASTEST)
    project = build(SHORT, tmp_path, broken, GPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(project)
        package = importlib.import_module(project.name)
    x, y = tensors(3)
    said = f"the kernel {kernel_name(broken)} serves no call, because the kernel did not load: "
    with pytest.warns(RuntimeWarning, match=said) as caught:
        package.scaled_add(x, y, 0.5)
    package.scaled_add(x, y, 0.5)
    assert len(caught) == 1, "the kernel for a GPU is for another machine, and nothing to warn of"
    status = package.status()
    assert {each["id"]: each["served"] for each in status["kernels"].values()} == {
        "kn_broken": 0,
        "kn_gpu": 0,
        "kn_short": 2,
    }
    assert status["fallbacks"] == {}


def test_one_kernel_that_is_off_mutes_no_warning_of_other_calls(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = importlib.import_module(f"{package.__name__}._control")
    monkeypatch.setattr(control, "_warned", False)
    package.disable(NAMES["kn_double"])
    x, y = tensors(3, "float64")
    package.scaled_add(x, y, 0.5)  # asked for, and no warning
    x, y = tensors(101)
    with pytest.warns(RuntimeWarning, match="PyTorch serves this call, because .*rows is 101"):
        package.scaled_add(x, y, 0.5)


def test_shadow_mode_counts_the_calls_of_each_kernel(package: ModuleType) -> None:
    package.shadow(every=2)
    checked = package.status()["shadow"]["checked"]
    found = []
    for _ in range(3):
        assert [serving(package, rows) for rows in (3, 20)] == ["kn_short", "kn_long"]
        found.append(package.status()["shadow"]["checked"] - checked)
    assert found == [2, 2, 4], "the first call of each, and its third"


def test_shadow_mode_leaves_off_what_is_off_by_name_unless_all_are(package: ModuleType) -> None:
    package.disable(NAMES["kn_short"])
    package.shadow()
    assert serving(package, 3) == "kn_long"
    package.disable(*NAMES.values())
    package.shadow()
    assert serving(package, 3) == "kn_short"


def test_a_compiled_function_takes_whichever_kernel(package: ModuleType) -> None:
    compiled = torch.compile(
        lambda x, y: package.scaled_add(x, y, 0.5) * 2, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    before = {each["id"]: each["served"] for each in package.status()["kernels"].values()}
    with torch.compiler.set_stance("default"):
        for rows in (4, 20, 90):
            x, y = tensors(rows)
            torch.testing.assert_close(compiled(x, y), 2 * (x + 0.5 * y))
    after = {each["id"]: each["served"] for each in package.status()["kernels"].values()}
    assert {name for name in after if after[name] > before[name]} == {"kn_short", "kn_long", "kn_beyond"}


def test_each_kernel_is_checked_by_itself(project: Path, tmp_path: Path) -> None:
    done = in_fresh_process(project, "-m", f"{project.name}.selfcheck", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = json.loads(done.stdout)["workloads"]
    assert {row["kernel"] for row in rows} == {NAMES[each] for each in NAMES if each != "kn_gpu"}, "that has no GPU"
    assert all(row["served_by"].startswith(f"kernel {row['kernel']}:") for row in rows)


def test_a_wrong_kernel_is_found_behind_a_faster_one(tmp_path: Path) -> None:
    wrong = exported(SCALED_ADD, SCALED_ADD_CPP.replace("x[i] + m", "x[i] - m"), times_us={"small": 9.0, "large": 9.0})
    project = build(SHORT, tmp_path / "out", wrong)
    done = in_fresh_process(project, "-m", f"{project.name}.selfcheck", home=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert {line.split(":")[0].rpartition(" ")[2] for line in lines if "DIFFERS" in line} == {kernel_name(wrong)}


@pytest.mark.nightly
def test_every_kernel_is_verified(project: Path) -> None:
    report = verify_export(project)
    assert report.passed, report.text()
    rows = {row.check: row for row in report.rows}
    assert all(kernel.source_digest in rows["evidence"].detail for kernel in KERNELS.values())
    assert rows["build for the target"].detail.count("cpp for cpu:") == 4
    assert "triton for cuda:sm_90" in rows["build for the target"].detail
    assert "8 workloads" in rows["eager"].detail
    if not torch.cuda.is_available():
        assert f"not for this machine: {NAMES['kn_gpu']}" in rows["eager"].detail
    assert all(kernel in report.kernel for kernel in KERNELS)
    assert "raw launch" in rows["dispatch overhead"].detail
    assert "kn_short" in (project / "VERIFICATION.md").read_text()


def test_the_project_names_every_kernel(project: Path) -> None:
    readme = (project / "README.md").read_text()
    for kernel in KERNELS.values():
        for said in (kernel.id, kernel.source_digest, kernel_name(kernel)):
            assert said in readme, said
        package = project / project.name
        assert json.loads((package / f"evidence_{kernel_name(kernel)}.json").read_text()) == kernel.evidence
    assert "closest to the physical limit" in readme
    assert 'triton = ["triton"]' in (project / "pyproject.toml").read_text(), "who has no GPU need not install it"


def test_evidence_of_any_kernel_for_another_source_is_refused(tmp_path: Path) -> None:
    project = build(SHORT, tmp_path, LONG)
    source = project / project.name / f"_kernel_{NAMES['kn_long']}.py"
    source.write_text(source.read_text() + "X = 1\n")
    rows = {row.check: row for row in verify_export(project).rows}
    assert f"{source.name} was changed" in rows["contents"].detail
    assert f"{source.name} has the digest" in rows["evidence"].detail
    assert rows["op"].outcome == "skipped"


def test_several_kernels_in_one_file(tmp_path: Path) -> None:
    directory = registry.named("module").write([LONG, SHORT, DOUBLE], tmp_path / "out")
    [file] = directory.iterdir()
    script = (
        f"import sys; sys.path.insert(0, {str(directory)!r})\nimport torch, {file.stem} as p\n"
        "for rows, dtype in ((3, torch.float32), (40, torch.float32), (3, torch.float64)):\n"
        "    x = torch.randn(rows, 8, dtype=dtype)\n"
        "    torch.testing.assert_close(p.scaled_add(x, x, 0.5), 1.5 * x)\n"
        "print(*sorted(each['id'] for each in p.status()['kernels'].values() if each['served'] == 1))\n"
    )
    done = in_fresh_process(tmp_path / "out" / "none", "-c", script, home=tmp_path)
    assert done.stdout.split() == ["kn_double", "kn_long", "kn_short"], done.stderr


def test_kernels_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "cache"))
    kernels = [
        exported(IN_PLACE, IN_PLACE_CPP.replace("= 0; i", start), name=name, times_us={"small": time, "large": time})
        for name, start, time in (("kn_a", "= 0; i", 3.0), ("kn_b", "= 0L; i", 2.0))
    ]
    project = build(kernels[0], tmp_path / "out", kernels[1])
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    x, y = tensors(40)
    mine = x.clone()
    package.scaled_add_(mine, y, 0.5)
    torch.testing.assert_close(mine, x + 0.5 * y)
    assert {each["id"]: each["served"] for each in package.status()["kernels"].values()} == {"kn_a": 0, "kn_b": 1}


def test_kernels_in_any_order_are_one_package(tmp_path: Path) -> None:
    def content(kernels: list[ExportedKernel], place: str) -> dict[str, bytes]:
        project = build(kernels[0], tmp_path / place, *kernels[1:])
        return {str(p.relative_to(tmp_path / place)): p.read_bytes() for p in project.rglob("*") if p.is_file()}

    assert content([SHORT, GPU, LONG], "one") == content([LONG, SHORT, GPU], "other")
