"""What an expert imports, and where that lies."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from tests import judging
from warpsmith.kernels_db.spec.experts import expert_source
from warpsmith.workers.judge.protocol.lines import BrokenJob, _check_baselines
from warpsmith.workers.judge.reference import expert_packages

NUMPY = "import json\n\ndef run(x):\n    from numpy.linalg import norm\n    import torch.nn\n    return norm(x)\n"


def test_imports_anywhere_count_and_those_of_python_do_not() -> None:
    assert expert_packages.imported(NUMPY) == ["numpy", "torch"]
    assert expert_packages.imported("def run(:") == []
    assert expert_packages.imported(expert_source("liger.softmax(x)", ["x"])) == ["liger_kernel", "torch"]


def test_a_verdict_tells_the_version_of_every_package_but_torch() -> None:
    place = judging.layer_norm_workload("bench", "bench", 4, 8)
    experts = {"numpy": NUMPY, "absent": "import no_such_package_here\n"}
    op = judging.job(judging.LAYER_NORM, [place], experts=experts)["op"]
    assert expert_packages.versions(op) == {"numpy": {"numpy": metadata.version("numpy")}, "absent": {}}


def test_a_package_has_one_name_however_its_wheel_spells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "Expert_Of.Mine-1.2.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: Expert_Of.Mine\nVersion: 1.2\n")
    (told / "top_level.txt").write_text("expert_of_mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(expert_packages, "_owners", metadata.packages_distributions)
    place = judging.layer_norm_workload("bench", "bench", 4, 8)
    op = judging.job(judging.LAYER_NORM, [place], experts={"mine": "import expert_of_mine\n"})["op"]
    assert expert_packages.versions(op) == {"mine": {"expert-of-mine": "1.2"}}


def test_a_package_lies_where_python_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "expert_of_mine").mkdir()
    (tmp_path / "expert_of_mine" / "__init__.py").write_text("raise RuntimeError('nobody imports this here')\n")
    (tmp_path / "expert_alone.py").write_text("")
    (tmp_path / "no_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    source = "import expert_of_mine.kernels, expert_alone, no_package, no_such_package_here\n"
    assert expert_packages.places(source) == [str(tmp_path / "expert_alone.py"), str(tmp_path / "expert_of_mine")]


@pytest.mark.parametrize(
    ("baselines", "experts", "field"),
    [
        (["eager", "liger"], {}, "op.baselines[1]"),
        (["liger"], {"liger": NUMPY}, "op.baselines"),
        (["eager", "probe"], {"probe": NUMPY}, "op.experts.probe"),
        (["eager", "a b"], {"a b": NUMPY}, "op.experts.a b"),
        (["eager"], {f"e{n}": NUMPY for n in range(9)}, "op.experts"),
    ],
)
def test_a_job_with_bad_experts_is_refused(baselines: list[str], experts: dict[str, str], field: str) -> None:
    place = judging.layer_norm_workload("bench", "bench", 4, 8)
    op = judging.job(judging.LAYER_NORM, [place], baselines=baselines)["op"]
    with pytest.raises(BrokenJob) as refused:
        _check_baselines({**op, "experts": experts})
    assert refused.value.field == field
