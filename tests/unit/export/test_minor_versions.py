"""Packages in Gluon, CuTe DSL and TileLang require the version of the compiler that they were verified with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.exporting import SCALED_ADD, exported
from warpsmith import prompts
from warpsmith.kernels_db.export.kernel import ExportedKernel, runtime_needs


def gluon(**versions: str) -> ExportedKernel:
    kernel = exported(SCALED_ADD, prompts.example("gluon"), "gluon", target="cuda:sm_90")
    return replace(kernel, envelope={**kernel.envelope, "versions": {"torch": "2.11.0", **versions}})


def cute(**versions: str) -> ExportedKernel:
    kernel = exported(SCALED_ADD, prompts.example("cute"), "cute", target="cuda:sm_90")
    return replace(kernel, envelope={**kernel.envelope, "versions": {"torch": "2.11.0", **versions}})


def tilelang(**versions: str) -> ExportedKernel:
    kernel = exported(SCALED_ADD, prompts.example("tilelang"), "tilelang", target="cuda:sm_90")
    return replace(kernel, envelope={**kernel.envelope, "versions": {"torch": "2.11.0", **versions}})


BESIDE_TILELANG = ["cuda-core", "nvidia-cuda-nvrtc", "nvidia-cuda-cccl"]


@pytest.mark.parametrize(
    ("kernel", "needs"),
    [
        (cute(**{"nvidia-cutlass-dsl": "4.8.1"}), ["nvidia-cutlass-dsl==4.8.*", "cuda-core"]),
        (cute(), ["nvidia-cutlass-dsl", "cuda-core"]),
        (tilelang(tilelang="0.1.15"), ["tilelang==0.1.15.*", *BESIDE_TILELANG]),
        (tilelang(), ["tilelang", *BESIDE_TILELANG]),
        (gluon(triton="3.6.0"), ["triton==3.6.*"]),
        (gluon(), ["triton"]),
        (exported(SCALED_ADD, prompts.example("triton"), "triton", target="cuda:sm_90"), ["triton"]),
        (
            exported(SCALED_ADD, prompts.example("cuda"), "cuda", target="cuda:sm_90"),
            ["cuda-core", "nvidia-cuda-nvrtc"],
        ),
    ],
    ids=["cute", "cute of no version", "tilelang", "tilelang of no version", "gluon", "unknown", "triton", "cuda"],
)
def test_what_a_package_requires(kernel: ExportedKernel, needs: list[str]) -> None:
    assert runtime_needs([kernel]) == needs


def test_kernels_of_several_versions_require_none_of_them() -> None:
    older, newer = gluon(triton="3.6.0"), gluon(triton="3.7.1")
    plain = exported(SCALED_ADD, prompts.example("triton"), "triton", target="cuda:sm_90")
    assert runtime_needs([older, newer]) == ["triton"]
    assert runtime_needs([older, gluon()]) == ["triton"]
    assert runtime_needs([older, gluon(triton="3.6.2"), plain]) == ["triton==3.6.*"]
