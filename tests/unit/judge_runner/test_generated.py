"""What is kept of the code that Inductor generates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.machine.channel import MAX_MESSAGE
from warpsmith.workers.judge.runner.generated import LONGEST, checked, cut, kernels_of

CPP = """
# AOT ID: ['0_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()

cpp_fused__softmax_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
#include "/tmp/torchinductor_somebody/ab/cab.h"
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{
    out_ptr0[0] = in_ptr0[0];
}
''')

async_compile.wait(globals())
def call(args):
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    cpp_fused__softmax_0(buf0, buf1)
"""
TRITON = """
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics

@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    filename=__file__,
    inductor_meta={'kernel_name': 'triton_poi_fused_add_0', 'backend_hash': 'ABC'},
)
@triton.jit
def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    # Source: /home/somebody/secret/reference.py:3
    xoffset = tl.program_id(0) * XBLOCK
''', device_str='cuda')
"""


def test_cpp_kernels_are_kept_without_headers_and_directories() -> None:
    found = kernels_of([CPP])
    assert found is not None
    assert found["language"] == "cpp"
    assert found["source"] == (
        "// between the kernels it calls: mm\n\n// cpp_fused__softmax_0\n"
        'extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)\n{\n    out_ptr0[0] = in_ptr0[0];\n}'
    )


def test_a_triton_kernel_begins_at_its_decorator() -> None:
    found = kernels_of([TRITON])
    assert found is not None
    assert found["language"] == "triton"
    assert found["source"].startswith("@triton.jit\ndef triton_poi_fused_add_0(")
    assert "/home" not in found["source"]
    assert "secret" not in found["source"]
    assert "backend_hash" not in found["source"]


def test_several_graphs_are_put_together() -> None:
    found = kernels_of([TRITON, TRITON.replace("add", "mul")])
    assert found is not None
    assert [line for line in found["source"].splitlines() if line.startswith("def")] == [
        "def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):",
        "def triton_poi_fused_mul_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):",
    ]


@pytest.mark.parametrize("code", ["", "not python (", "x = 1", "k = async_compile.triton()", "extern_kernels.mm(a)"])
def test_nothing_is_made_of_what_holds_no_kernel(code: str) -> None:
    assert kernels_of([code]) is None


def test_what_is_long_is_cut_and_fits_a_message() -> None:
    body = "\n".join(f"    line_{number} = '\u2603'" for number in range(5000))
    found = kernels_of([TRITON.replace("    xoffset", body + "\n    xoffset")])
    assert found is not None
    assert len(found["source"]) <= LONGEST
    assert len(found["source"].encode()) < MAX_MESSAGE
    assert "lines left out" in found["source"]
    assert found["source"].splitlines()[0] == "@triton.jit"


@given(st.text(), st.integers(100, 400))
def test_a_cut_text_is_within_its_limit(text: str, limit: int) -> None:
    found = cut(text, limit)
    assert len(found) <= limit
    assert found == text or "lines left out" in found


@pytest.mark.parametrize(
    "answer", [None, 3, "text", {}, {"language": "cpp"}, {"language": "sh", "source": "x"}, {"source": "x"}]
)
def test_an_answer_of_another_form_is_none(answer: Any) -> None:
    assert checked(answer) is None


def test_an_answer_is_bounded() -> None:
    found = checked({"language": "cpp", "source": "x" * 10**6, "more": 1})
    assert found is not None
    assert len(found["source"]) <= LONGEST
