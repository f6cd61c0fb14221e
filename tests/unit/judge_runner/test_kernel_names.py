"""Which device kernels are a candidate's own, by their names as traces give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.runner.kernel_names import base_name, foreign

FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)
STRIDED_COPY = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}> >"
)
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
LIBRARIES = [
    ADD,
    "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, false>(float*)",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize2x1x1_execute_segment_k_off_kernel",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>(Params)",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>(...)",
    "ampere_sgemm_128x64_tn",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(...)",
    "void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(...)",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(...)",
    "implicit_convolve_sgemm",
]
SCRATCH = [FILL, STRIDED_COPY, "Memset (Device)", "Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pageable -> Device)"]


def test_a_kernel_of_cute_dsl_is_known_by_its_function() -> None:
    added = "kernel_cutlass_add_relu_tensorptrf32gmemalign16o81_tensorptrf32gmemalign16o81_0"
    assert foreign([added], {"add_relu"}) == []
    assert foreign([added], {"add", "relu", "kernel"}) == [] == foreign([added], {"add"})
    assert foreign([added], {"relu"}) == [added]
    assert foreign(["kernel_cutlass_", "cutlass_add_relu_0"], {"add_relu"}) == ["kernel_cutlass_", "cutlass_add_relu_0"]


def test_the_candidates_own_kernels_and_its_scratch_are_not_foreign() -> None:
    ran = ["add_relu", "void add_relu(float*, long)", "rows_kernel", *SCRATCH, "Context Sync"]
    assert foreign(ran, {"add_relu", "rows_kernel"}) == []


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_foreign_unless_the_op_allows_its_calls(name: str) -> None:
    assert foreign(["own", name, name], {"own"}) == [name]
    assert foreign(["own", name], {"own"}, ["torch.mm"]) == []


@pytest.mark.parametrize("name", ["triton_poi_fused_add_0", "matmul_kernel", "own_2", "owned", "_own"])
def test_a_kernel_of_another_name_is_foreign_whatever_the_op_allows(name: str) -> None:
    assert foreign([name], {"own"}, ["torch.mm"]) == [name]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("add", "add"),
        ("add(float*, int)", "add"),
        ("void add<4, float>(float*)", "add"),
        ("void ns::add<4>(x)", "ns::add"),
        ("", ""),
    ],
)
def test_the_plain_name_of_a_kernel(name: str, plain: str) -> None:
    assert base_name(name) == plain


@given(st.lists(st.text(max_size=30)), st.sets(st.text(max_size=30)), st.lists(st.text(max_size=5), max_size=2))
def test_what_is_foreign_ran_and_is_not_own(ran: list[str], own: set[str], calls: list[str]) -> None:
    found = foreign(ran, own, calls)
    assert len(set(found)) == len(found)
    assert set(found) <= set(ran)
    assert not {base_name(name) for name in found} & own
    assert foreign(found, own, calls) == found
    assert set(foreign(ran, own, ["mm"])) <= set(foreign(ran, own))
