"""The op of the overhead measurements: as small as possible, with the eager baseline alone."""

from __future__ import annotations

from warpsmith.kernels_db.spec.op import Target, load_op

SPEC = """
schema_version: 1
name: scale_shift
axes:
  n: {kind: var}
inputs:
  - {name: x, shape: [n], dtype: float32}
outputs:
  - {name: "y", shape: [n], dtype: float32}
reference: |
  def run(x):
      return x * 2 + 1
workloads:
  - {id: even, role: bench, axes: {n: 4096}}
objective: {rank: geomean, baselines: [eager]}
"""

OP = load_op(SPEC)
TARGET = Target.parse("cpu")

CANDIDATE = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void scale_shift(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
""")


def run(x, y):
    kernels.scale_shift(x, y, x.numel())
'''
