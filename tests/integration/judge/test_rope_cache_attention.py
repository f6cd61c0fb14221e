"""The kernel of a decode step's attention chooses, of two positions of nearly equal scores, the one that is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import runpy, sys, types
from pathlib import Path
from contextlib import ExitStack
import torch
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.workers.judge.runner.interpreter.launches import run_like_a_device

SPEC, KERNEL = sys.argv[1:]
reference = types.ModuleType("reference")
exec(load_op(Path(SPEC)).reference, vars(reference))
bf16, heads, cache, at = torch.bfloat16, 4, 128, 5
query, key, value = torch.zeros(1, heads, 1, 64), torch.ones(1, 1, 1, 64) / 8, torch.full((1, 1, 1, 64), 3.0)
keys, values = torch.zeros(1, 1, cache, 64), torch.full((1, 1, cache, 64), 7.0)
# The first head, rotated: 255.25 beside two numbers that bfloat16 holds. Rounded, 255.25 is 255.
query[0, 0, 0, 0], query[0, 0, 0, 32], query[0, 0, 0, 1], query[0, 0, 0, 2] = 256.0, 0.75, 8.0, 8.0
keys[0, 0, 20, 0], values[0, 0, 20] = 64.0, 1.0  # scores 2042, rounded 2040
keys[0, 0, 90, 1], keys[0, 0, 90, 2], values[0, 0, 90] = 2040.0, 1.0, -1.0  # scores 2041 both ways
given = [each.to(bf16) for each in (query, key, value, torch.ones(1, 1, 64), torch.ones(1, 1, 64), keys, values)]
length, mask = torch.tensor(at), torch.ones(1, 1, 1, cache, dtype=torch.bool)
wide = [each.double() for each in given]
expected = reference.run(*wide, length.clone(), mask)
out = torch.full((1, heads, 1, 64), float("nan"), dtype=bf16)
with ExitStack() as until:
    run_like_a_device(until)
    runpy.run_path(KERNEL)["run"](*given, length, mask, out)
assert int(length) == at + 1
for found, right in zip([out, given[5], given[6]], [expected, wide[5], wide[6]], strict=True):
    torch.testing.assert_close(found.double(), right, rtol=2**-7, atol=2**-7)
print("right", round(float(out[0, 0, 0, 0]), 2))
"""


def test_scores_come_of_a_query_that_was_not_rounded() -> None:
    """Rounded to bfloat16 the second position had the higher score, and the result the other sign."""
    (kernel,) = (ROOT / "kernels_db" / "library").glob("rope_cache_attention_triton_sm_90_*/candidate.py")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "examples" / "rope_cache_attention.yaml"), str(kernel)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    assert (ended.returncode, ended.stdout) == (0, "right 0.46\n"), ended.stderr
