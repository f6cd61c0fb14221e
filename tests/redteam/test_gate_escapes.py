"""Ways out of the candidate contract, each beside an honest sibling that must pass.

A case is (language, escape, sibling). Both are written into the same candidate, so that what differs is what the gate must tell apart.
`MODULE` stands at module level, `RUN` at the start of `run(x, y, out)`; a case gives both as one text, split by `---`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from warpsmith.workers.gate.gate import check

PARAMETERS = ["x", "y", "out"]

CPP = '''
import math
import torch
from kernels_db.runtime import cpp
{module}
kernels = cpp.compile(r"""
extern "C" void add(const float* x, const float* y, float* out, int64_t n) {{
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}}
""")

def run(x, y, out):
{run}
    kernels.add(x, y, out, out.numel())
'''
TRITON = """
import math
import torch
import triton
import triton.language as tl
{module}
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{kernel}
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)

def run(x, y, out):
{run}
    n = out.numel()
    add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""
CUDA = '''
import torch
from kernels_db.runtime import cuda
{module}
kernels = cuda.compile(r"""
extern "C" __global__ void add(const float* x, const float* y, float* out, long long n) {{
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}}
""")

def run(x, y, out):
{run}
    n = out.numel()
    kernels.add[(n + 255) // 256, 256](x, y, out, n)
'''

GLUON = """
import math
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
{module}
@gluon.jit
def add(x, y, out, n, BLOCK: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
{kernel}
    gl.store(out + i, gl.load(x + i, i < n) + gl.load(y + i, i < n), i < n)

def run(x, y, out):
{run}
    n = out.numel()
    add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""

CUTE = """
import math
import torch
import cutlass
import cutlass.cute as cute
from kernels_db.runtime import cutedsl
{module}
@cute.kernel
def add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
{kernel}
    if i < n:
        out[i] = x[i] + y[i]

@cute.jit
def added(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Constexpr):
{host}
    add(x, y, out, n).launch(grid=[cute.ceil_div(n, 256), 1, 1], block=[256, 1, 1])

launch = cutedsl.compile(added)

def run(x, y, out):
{run}
    launch(x, y, out, out.numel())
"""

TILELANG = """
import math
import torch
import tilelang.language as T
from kernels_db.runtime import tilelang
N = T.dynamic("n")
{module}
@T.prim_func
def add(x: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32"), out: T.Tensor((N,), "float32")):
    with T.Kernel(T.ceildiv(N, 256), threads=256) as block:
        for j in T.Parallel(256):
            i = block * 256 + j
        {kernel}
            out[i] = x[i] + y[i]

launch = tilelang.compile(add)

def run(x, y, out):
{run}
    launch(x, y, out)
"""


class Case(NamedTuple):
    """An escape and its honest sibling; `said` must stand in a problem's message."""

    name: str
    escape: str
    sibling: str
    said: str
    language: str = "cpp"
    place: str = "run"


# ruff: noqa: E501, RUF001  one case a line reads as a table; full-width letters are one of the cases
# fmt: off
CASES = [
    # The library under another spelling.
    Case("operator", "t = x + y", "t = x.numel() + y.numel()", "arithmetic on a tensor"),
    Case("operator_through_a_view", "t = x.view(-1) * 2", "t = x.view(-1).numel() * 2", "arithmetic on a tensor"),
    Case("operator_through_a_tuple", "a, b = (x, y)\n    t = a + b", "a, b = x.shape[0], y.shape[0]\n    t = a + b", "arithmetic on a tensor"),
    Case("operator_through_a_loop", "for t in (x, y):\n        u = -t", "for t in (1, 2):\n        u = -t", "an operator on a tensor"),
    Case("operator_through_scratch", "t = torch.empty_like(x)\n    t += 1", "t = torch.empty_like(x).numel()\n    t += 1", "arithmetic on a tensor"),
    Case("operator_in_a_helper", "def both(a, b):\n    return a + b\n---t = both(x, y)", "def both(a, b):\n    return a + b\n---t = both(x.numel(), 1)", "arithmetic on a tensor", place="both"),
    Case("helper_that_returns_a_tensor", "def same(a):\n    return a\n---t = same(x) * 2", "def same(a):\n    return a\n---t = same(3) * 2", "arithmetic on a tensor", place="both"),
    Case("matmul_operator", "t = x @ y", "t = x.shape[0] * y.shape[0]", "`@` is a library op"),
    Case("in_place_operator", "out += x", "n = 1\n    n += x.numel()", "arithmetic on a tensor"),
    Case("comparison", "t = x > y", "t = x.numel() > y.numel()", "a comparison of tensors"),
    Case("sum_builtin", "t = sum((x, y))", "t = sum((x.numel(), y.numel()))", "`sum` of a tensor"),
    Case("max_builtin", "t = max(x, y)", "t = max(x.numel(), y.numel())", "`max` of a tensor"),
    Case("power_by_math", "t = math.exp(x)", "t = math.exp(1.5)", "`math.exp` of a tensor"),
    Case("method", "t = x.relu()", "t = x.view(-1)", "method `.relu()`"),
    Case("copying_method", "out.copy_(x)", "out.zero_()", "method `.copy_()`"),
    Case("torch_function", "t = torch.add(x, y)", "t = torch.empty(x.shape, dtype=x.dtype)", "`torch.add`"),
    Case("scratch_that_computes", "torch.empty(x.shape, out=y)", "torch.empty(x.shape, dtype=torch.float32)", "keyword 'out'"),
    Case("functional_import", "import torch.nn.functional as F\n---t = F.relu(x)", "from torch import empty_like\n---t = empty_like(x)", "import of `torch.nn.functional`", place="both"),
    Case("torch_ops", "t = torch.ops.aten.add(x, y)", "t = torch.zeros(4)", "`torch.ops.aten.add`"),
    Case("renamed_module", "import torch as math2\n---t = math2.add(x, y)", "import math as math2\n---t = math2.floor(2.5)", "`torch.add`", place="both"),
    Case("fallback_in_try", "try:\n        t = 1\n    except Exception:\n        t = x", "t = 1 if x.is_contiguous() else 2", "try is not allowed"),
    Case("fallback_at_import", "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n", "try:\n    import math as m\nexcept ImportError:\n    m = None\n", "import of `numpy`", place="module"),
    Case("data_on_the_host", "t = x.item()", "t = x.data_ptr() % 16", "method `.item()`"),
    Case("data_as_list", "t = x.tolist()", "t = list(x.shape)", "method `.tolist()`"),
    Case("value_branch", "if x[0]:\n        t = 1", "if x.shape[0]:\n        t = 1", "the truth of a tensor"),
    Case("values_in_text", "t = f'{x}'", "t = f'{x.shape}'", "printing a tensor"),
    # Reaching the interpreter.
    Case("dunder_attribute", "t = x.__class__", "t = x.dtype", "attribute `.__class__`"),
    Case("dunder_of_a_literal", "t = ().__class__.__base__.__subclasses__()", "t = ()", "`.__subclasses__()`"),
    Case("dunder_name", "t = __builtins__", "t = 1", "name `__builtins__`"),
    Case("builtin_open", "t = open('/etc/passwd')", "t = len('/etc/passwd')", "call of `open`"),
    Case("builtin_eval", "t = eval('x')", "t = int('1')", "call of `eval`"),
    Case("builtin_exec", "exec('import os')", "range(3)", "call of `exec`"),
    Case("builtin_getattr", "t = getattr(x, 'add')", "t = min(x.shape)", "call of `getattr`"),
    Case("builtin_setattr", "setattr(torch, 'empty', None)", "t = sorted(x.shape)", "call of `setattr`"),
    Case("builtin_vars", "t = vars(torch)", "t = list(x.shape)", "call of `vars`"),
    Case("builtin_globals", "t = globals()", "t = tuple(x.shape)", "call of `globals`"),
    Case("builtin_print", "print(x)", "t = len(x.shape)", "call of `print`"),
    Case("import_builtin", "t = __import__('os')", "t = abs(-1)", "call of `__import__`"),
    Case("import_in_run", "import os", "pass", "import is not allowed"),
    Case("import_of_the_system", "import os\n", "import math\n", "import of `os`", place="module"),
    Case("import_of_ctypes", "import ctypes\n", "from math import ceil\n", "import of `ctypes`", place="module"),
    Case("import_of_inner_modules", "from kernels_db.runtime.cpp import ctypes\n", "from kernels_db.runtime import cpp\n", "import of", place="module"),
    Case("import_by_path", "from kernels_db.runtime import cache\n", "from math import inf\n", "import of", place="module"),
    Case("relative_import", "from . import judge\n", "from torch import float32\n", "import of", place="module"),
    Case("star_import", "from math import *\n", "from math import ceil, floor\n", "import of `math.*`", place="module"),
    Case("module_as_value", "m = torch", "m = torch.float32", "module `torch` is not a value"),
    Case("builtin_as_value", "f = max\n    t = f(1, 2)", "f = max(1, 2)", "`max` is not a value"),
    Case("kernels_as_value", "k = kernels", "k = 1", "`kernels` is not a value"),
    Case("kernel_as_value", "k = kernels.add", "k = x.shape", "kernel `kernels.add` is not a value"),
    Case("call_of_a_local", "f = x.view\n    f(-1)", "f = x.view(-1)", "attribute `.view`"),
    Case("call_of_a_parameter", "x(1)", "x.size(1)", "call of the local `x`"),
    Case("call_of_a_subscript", "t = (max, min)[0](1, 2)", "t = (1, 2)[0]", "is not allowed"),
    Case("call_of_a_lambda", "t = (lambda a: a)(x)", "t = x", "a call of a lambda"),
    Case("format_method", "t = '{0.__class__}'.format(x)", "t = '{0}'", "method `.format()`"),
    Case("text_attribute", "t = f'{x.__class__}'", "t = f'{x.dtype}'", "attribute `.__class__`"),
    Case("private_module", "t = torch._C._cuda_clearCublasWorkspaces()", "t = torch.empty(1)", "`torch._C"),
    Case("sys_modules", "t = torch.sys.modules", "t = torch.int32", "`torch.sys.modules`"),
    Case("math_loader", "t = math.__loader__", "t = math.pi", "`math.__loader__`"),
    Case("frame", "t = x.gi_frame", "t = x.device", "attribute `.gi_frame`"),
    Case("threads", "import threading\n", "import torch\n", "import of `threading`", place="module"),
    # State that outlives a call.
    Case("global_state", "global t\n    t = 1", "t = 1", "global is not allowed"),
    Case("table_as_cache", "TABLE = {}\n---TABLE[x.data_ptr()] = out", "TABLE = {1: 2}\n---t = TABLE.get(1)", "assignment to Subscript", place="both"),
    Case("list_as_cache", "SEEN = []\n---SEEN.append(x)", "SEEN = [1]\n---t = SEEN[0]", "method `.append()`", place="both"),
    Case("default_as_cache", "def keep(a, seen=[]):\n    return a\n", "def keep(a, seen=(1, 2)):\n    return a\n", "a default value lives", place="module"),
    Case("function_attribute", "run.seen = x", "seen = x", "assignment to `run.seen`"),
    Case("lru_cache", "import functools\n@functools.lru_cache\ndef keep(a):\n    return a\n", "def keep(a):\n    return a\n", "decorator", place="module"),
    Case("scratch_of_the_module", "SCRATCH = torch.empty(1024)\n", "SCRATCH = 1024\n", "call of `torch.empty`", place="module"),
    Case("patched_torch", "torch.empty = None", "empty = None", "assignment to `torch.empty`"),
    Case("patched_kernels", "kernels.add = None", "add = None", "assignment to `kernels.add`"),
    Case("rebound_module", "torch = x", "torch2 = x", "hides a name of the module"),
    Case("rebound_at_module_level", "torch = math\n", "math_pi = math.pi\n", "defined twice", place="module"),
    Case("rebound_in_a_comprehension", "t = [math for math in (1, 2)]", "t = [m for m in (1, 2)]", "hides a name of the module"),
    Case("deleted", "del x", "x = None", "del is not allowed"),
    Case("tensor_write", "out[0] = 1", "first = out[0]", "assignment to Subscript"),
    Case("class_definition", "class Tensor:\n    pass\n", "def tensor():\n    pass\n", "ClassDef", place="module"),
    Case("nested_function", "def inner():\n        return x", "inner = x", "a function inside a function"),
    Case("walrus", "t = (u := 1)", "t = u = 1", ":="),
    Case("generator", "yield x", "if x is None:\n        return", "is not allowed"),
    Case("async_comprehension", "t = [a async for a in x]", "t = [a for a in x.shape]", "comprehension"),
    Case("with_block", "with torch.no_grad():\n        pass", "if True:\n        pass", "a with block"),
    Case("match", "match x:\n        case _:\n            pass", "if x is None:\n        pass", "match is not allowed"),
    Case("hidden_keywords", "kernels.add(**{'x': x})", "kernels.add(x, y, out, 1)", "`**`"),
    Case("raise_of_another", "raise SystemExit", "if x is None:\n        raise ValueError('shape')", "raise: found"),
    Case("dunder_main", "if __name__ == '__main__':\n    pass\n", "pass\n", "If is not allowed", place="module"),
    Case("import_of_a_loop", "for i in range(3):\n    pass\n", "I = 3\n", "For is not allowed", place="module"),
    Case("annotation", "def helper(a: open('/x')):\n    return a\n", "def helper(a: int):\n    return a\n", "annotation", place="module"),
    Case("annotated_constant", "A: exec('1') = 1\n", "A: int = 1\n", "annotation", place="module"),
    Case("full_width_letters", "t = ｅｖａｌ('1')", "t = ｉｎｔ('1')", "call of `eval`"),
    # The source that is checked is the source that is compiled.
    Case("computed_source", "EXTRA = cpp.compile('extern' + ' \"C\" void f() {}')\n", "EXTRA = cpp.compile('extern \"C\" void f() {}')\n", "one constant string", place="module"),
    Case("source_swapped", "S = 'extern \"C\" void f() {}'\nE = cpp.compile(S)\nS = ''\n", "S = 'extern \"C\" void f() {}'\nE = cpp.compile(S)\n", "defined twice", place="module"),
    Case("compile_in_run", "t = cpp.compile('')", "t = 1", "once, at module level"),
    Case("flag", "E = cpp.compile('extern \"C\" void f() {}', flags=('-fplugin=/tmp/x.so',))\n", "E = cpp.compile('extern \"C\" void f() {}', flags=('-funroll-loops',))\n", "flags: found", place="module"),
    Case("file_by_include", "E = cpp.compile('#include \"/etc/passwd\"')\n", "E = cpp.compile('#include <cmath>')\n", "#include", place="module"),
    Case("file_by_computed_include", "E = cpp.compile('''#define F </etc/passwd>\n#include F''')\n", "E = cpp.compile('''#define F 1\n#include <cmath>''')\n", "#include", place="module"),
    Case("file_by_split_include", "E = cpp.compile('''#inc\\\\\nlude </etc/passwd>''')\n", "E = cpp.compile('''#inc\\\\\nlude <cmath>''')\n", "#include", place="module"),
    Case("file_by_assembly", "E = cpp.compile('asm(\".incbin \\\\\"/etc/passwd\\\\\"\");')\n", "E = cpp.compile('// asm is not used')\n", "`asm`", place="module"),
    Case("file_by_assembly_in_a_macro", "E = cpp.compile('''#define READ asm\nREAD(\".incbin \\\\\"/etc/passwd\\\\\"\");''')\n", "E = cpp.compile('''#define READ(x) (x)\n// asm''')\n", "`asm`", place="module"),
    Case("file_by_pasted_assembly", "E = cpp.compile('''#define J(a, b) a##b\nJ(as, m)(\".incbin \\\\\"/etc/passwd\\\\\"\");''')\n", "E = cpp.compile('''#define J(a, b) a + b\nint f() { return J(1, 2); }''')\n", "names written out", place="module"),
    Case("file_by_pasted_assembly_in_digraphs", "E = cpp.compile('''%:define J(a, b) a%:%:b''')\n", "E = cpp.compile('''%:define J(a, b) a % b''')\n", "names written out", place="module"),
    Case("file_asked_for", "E = cpp.compile('''#if __has_include(</etc/passwd>)\n#endif''')\n", "E = cpp.compile('''#if __has_include(<immintrin.h>)\n#endif''')\n", "__has_include of", place="module"),
    Case("file_asked_for_by_a_macro", "E = cpp.compile('''#define F <x>\n#if __has_include(F)\n#endif''')\n", "E = cpp.compile('''#if defined(__has_include)\n#endif''')\n", "__has_include of", place="module"),
    Case("file_embedded", "E = cpp.compile('''#embed </etc/passwd>''')\n", "E = cpp.compile('''#undef F''')\n", "#embed is not allowed", place="module"),
    Case("pragma_in_code", "E = cpp.compile('_Pragma(\"GCC pch_preprocess \\\\\"/tmp/x\\\\\"\")')\n", "E = cpp.compile('_Pragma(\"omp parallel for\")')\n", "_Pragma(", place="module"),
    Case("pragma_in_a_macro", "E = cpp.compile('''#define P(x) _Pragma(#x)''')\n", "E = cpp.compile('''#define P _Pragma(\"GCC unroll 4\")''')\n", "_Pragma(", place="module"),
    Case("thread_header", "E = cpp.compile('#include <thread>')\n", "E = cpp.compile('#include <omp.h>')\n", "#include", place="module"),
    Case("unknown_kernel", "kernels.mul(x, y)", "kernels.add(x, y, out, 0)", "no kernel named 'mul'"),
    Case("kernel_keywords", "kernels.add(x, y, out, n=1)", "kernels.add(x, y, out, 1)", "keyword 'n'"),
    # Triton.
    Case("clock", "    t = tl.extra.cuda.globaltimer()", "    t = tl.num_programs(0)", "globaltimer", "triton", "kernel"),
    Case("kernel_print", "    tl.device_print('x', i)", "    tl.static_assert(BLOCK > 0)", "device_print", "triton", "kernel"),
    Case("kernel_dunder", "    t = i.__class__", "    t = i.dtype", "attribute `.__class__`", "triton", "kernel"),
    Case("kernel_handle", "    t = i.handle", "    t = i.shape", "attribute `.handle`", "triton", "kernel"),
    Case("kernel_host_call", "    t = torch.empty(1)", "    t = tl.zeros((1,), tl.float32)", "`torch.empty` is not allowed in a kernel", "triton", "kernel"),
    Case("kernel_builtin", "    t = open('x')", "    t = min(1, 2)", "call of `open`", "triton", "kernel"),
    Case("kernel_core", "    t = tl.core.builtins", "    t = tl.math.exp(1.0)", "triton.language.core", "triton", "kernel"),
    Case("kernel_comprehension", "    t = [a for a in (1, 2)]", "    t = (1, 2)", "ListComp", "triton", "kernel"),
    Case("kernel_import", "    import os", "    pass", "import is not allowed", "triton", "kernel"),
    Case("enum_of_the_language", "    t = tl.PropagateNan", "    t = tl.maximum(i, 0, propagate_nan=tl.PropagateNan.ALL)", "`triton.language.PropagateNan` is not allowed", "triton", "kernel"),
    Case("enum_members", "    t = tl.PropagateNan.__members__", "    t = tl.PropagateNan.NONE", "`triton.language.PropagateNan.__members__`", "triton", "kernel"),
    Case("attribute_of_a_member", "    t = tl.PropagateNan.ALL.__class__", "    t = tl.minimum(i, 0, tl.PropagateNan.ALL)", "`triton.language.PropagateNan.ALL.__class__`", "triton", "kernel"),
    Case("member_called", "    t = tl.PropagateNan.ALL(1)", "    t = tl.PropagateNan.ALL", "it is a value", "triton", "kernel"),
    Case("hook_of_a_config", "C = triton.Config({}, pre_hook=run)\n", "C = triton.Config({}, num_warps=4)\n", "keyword 'pre_hook'", "triton", "module"),
    Case("hook_of_a_launch", "add.add_pre_run_hook(run)", "n = 1", "is not allowed", "triton"),
    Case("library_of_a_launch", "add[(1,)](x, y, out, 1, BLOCK=16, extern_libs={'a': '/x'})", "add[(1,)](x, y, out, 1, BLOCK=16, num_warps=4)", "keyword 'extern_libs'", "triton"),
    Case("kernel_internals", "t = add.fn", "t = x.shape", "attribute `.fn`", "triton"),
    Case("kernel_call", "add(x, y, out, 1, 16)", "add[(1,)](x, y, out, 1, 16)", "called like a function", "triton"),
    Case("allocator", "triton.set_allocator(run)", "t = triton.cdiv(3, 2)", "`triton.set_allocator`", "triton"),
    Case("knobs", "triton.knobs.runtime.interpret = True", "t = triton.next_power_of_2(3)", "assignment to `triton.knobs", "triton"),
    Case("grid_lambda", "g = lambda meta: (open('x'),)\n    add[g](x, y, out, 1, 16)", "g = lambda meta: (meta['BLOCK'],)\n    add[g](x, y, out, 1, 16)", "call of `open`", "triton"),
    Case("lambda_kept", "t = [lambda m: m]", "t = lambda meta: (1,)", "a lambda stands only", "triton"),
    Case("heuristic", "@triton.heuristics({'B': lambda a: eval('1')})\n@triton.jit\ndef f(x, B: tl.constexpr):\n    pass\n", "@triton.heuristics({'B': lambda a: a['x'].numel()})\n@triton.jit\ndef f(x, B: tl.constexpr):\n    pass\n", "call of `eval`", "triton", "module"),
    Case("heuristic_computes", "@triton.heuristics({'s': lambda a: a['x'] + a['y']})\n@triton.jit\ndef f(x, y, s):\n    pass\n---f[(1,)](x, y)", "@triton.heuristics({'s': lambda a: a['n'] + a['m']})\n@triton.jit\ndef f(x, n, m, s):\n    pass\n---f[(1,)](x, 2, m=3)", "arithmetic on a tensor", "triton", "both"),
    Case("heuristic_computes_in_a_helper", "def least(t):\n    return t['x'] - t['y']\n@triton.heuristics({'s': lambda a: least(a)})\n@triton.jit\ndef f(x, y, s):\n    pass\n---f[(1,)](x, y)", "def least(n):\n    return n - 1\n@triton.heuristics({'s': lambda a: least(a['n'])})\n@triton.jit\ndef f(x, n, s):\n    pass\n---f[(1,)](x, 2)", "arithmetic on a tensor", "triton", "both"),
    Case("heuristic_reads_a_value", "@triton.heuristics({'B': lambda a: 1 if a['x'][0] else 2})\n@triton.jit\ndef f(x, B: tl.constexpr):\n    pass\n---f[(1,)](x=x)", "@triton.heuristics({'B': lambda a: 1 if a['x'].shape[0] else 2})\n@triton.jit\ndef f(x, B: tl.constexpr):\n    pass\n---f[(1,)](x=x)", "the truth of a tensor", "triton", "both"),
    Case("grid_reads_a_value", "g = lambda meta: (1 if meta['x'][0] > 7 else 2,)\n    add[g](x, y, out, 1, BLOCK=16)", "g = lambda meta: (1 if meta['n'] > 7 else meta['BLOCK'],)\n    add[g](x, y, out, 1, BLOCK=16)", "a comparison of tensors", "triton"),
    Case("grid_helper_computes", "def blocks(meta):\n    return ((meta['x'] + meta['y']).numel(),)\n---add[blocks](x, y, out, 1, BLOCK=16)", "def blocks(meta):\n    return (triton.cdiv(meta['x'].numel() + meta['n'], meta['BLOCK']),)\n---add[blocks](x, y, out, 1, BLOCK=16)", "arithmetic on a tensor", "triton", "both"),
    Case("grid_helper_computes_under_another_name", "def blocks(meta):\n    t = meta\n    return ((t['x'] * t['y']).numel(),)\n---add[blocks](x, y, out, 1, BLOCK=16)", "def blocks(meta):\n    t = meta['n']\n    return (t * 2,)\n---add[blocks](x, y, out, 1, BLOCK=16)", "arithmetic on a tensor", "triton", "both"),
    Case("grid_helper_hands_on_its_table", "def double(t):\n    return (t['x'] * 2).numel()\ndef blocks(meta):\n    return (double(meta),)\n---add[blocks](x, y, out, 1, BLOCK=16)", "def double(n):\n    return n * 2\ndef blocks(meta):\n    return (double(meta['n']),)\n---add[blocks](x, y, out, 1, BLOCK=16)", "arithmetic on a tensor", "triton", "both"),
    Case("grid_helper_reads_a_value", "def blocks(meta):\n    return (1 if meta['x'][0] > 7 else 2,)\n---add[blocks](x, y, out, 1, BLOCK=16)", "def blocks(meta):\n    return (1 if meta['x'].shape[0] > 7 else 2,)\n---add[blocks](x, y, out, 1, BLOCK=16)", "a comparison of tensors", "triton", "both"),
    Case("grid_helper_of_two_kernels", "@triton.jit\ndef f(n, a):\n    pass\ndef blocks(meta):\n    return (meta['n'] * 2,)\n---add[blocks](x, y, out, 1, BLOCK=16)\n    f[blocks](x, out)", "@triton.jit\ndef f(n, a):\n    pass\ndef blocks(meta):\n    return (meta['n'] * 2,)\n---add[blocks](x, y, out, 1, BLOCK=16)\n    f[blocks](2, out)", "arithmetic on a tensor", "triton", "both"),
    Case("grid_helper_called_with_tensors", "def blocks(m):\n    return ((m[0] + m[1]).numel(),)\n---t = blocks((x, y))\n    add[blocks](x, y, out, 1, BLOCK=16)", "def blocks(m):\n    return (m[0] + m[1],)\n---t = blocks((1, 2))\n    add[(1,)](x, y, out, 1, BLOCK=16)", "arithmetic on a tensor", "triton", "both"),
    Case("lambda_named_like_a_tuple", "m = (x, y)\n    t = m[0] + m[1]\n    g = lambda m: (1,)\n    add[g](x, y, out, 1, BLOCK=16)", "m = (1, 2)\n    t = m[0] + m[1]\n    g = lambda m: (1,)\n    add[g](x, y, out, 1, BLOCK=16)", "arithmetic on a tensor", "triton"),
    Case("grid_helper_returns_a_tensor", "def blocks(meta):\n    return (meta['n'],)\n---add[blocks](x, y, out, x, BLOCK=16)", "def blocks(meta):\n    return (meta['n'],)\n---add[blocks](x, y, out, 1, BLOCK=16)", "a launch grid", "triton", "both"),
    Case("grid_lambda_returns_a_tensor", "add[lambda meta: (meta['n'],)](x, y, out, x, BLOCK=16)", "add[lambda meta: (meta['n'],)](x, y, out, 1, BLOCK=16)", "a launch grid", "triton"),
    Case("named_grid_lambda_returns_a_tensor", "g = lambda meta: meta['x'].view(-1)\n    add[g](x, y, out, 1, BLOCK=16)", "g = lambda meta: meta['x'].view(-1).shape\n    add[g](x, y, out, 1, BLOCK=16)", "a launch grid", "triton"),
    Case("grid_is_a_tensor", "add[(x[0],)](x, y, out, 1, BLOCK=16)", "add[(x.shape[0],)](x, y, out, 1, BLOCK=16)", "a launch grid", "triton"),
    Case("heuristic_hands_on_a_tensor", "@triton.heuristics({'s': lambda a: a['x'], 'r': lambda a: a['s'] + a['s']})\n@triton.jit\ndef f(x, s, r):\n    pass\n---f[(1,)](x)", "@triton.heuristics({'s': lambda a: a['x'].numel(), 'r': lambda a: a['s'] + a['s']})\n@triton.jit\ndef f(x, s, r):\n    pass\n---f[(1,)](x)", "arithmetic on a tensor", "triton", "both"),
    Case("grid_lambda_keeps_a_tensor", "add[lambda meta, *, t=x: ((t + t).numel(),)](x, y, out, 1, BLOCK=16)", "add[lambda meta, *, t=7: (t + t,)](x, y, out, 1, BLOCK=16)", "arithmetic on a tensor", "triton"),
    Case("pruning_hook", "@triton.autotune(configs=[], key=[], prune_configs_by={'early_config_prune': run})\n@triton.jit\ndef f(x):\n    pass\n", "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef f(x):\n    pass\n", "keyword 'prune_configs_by'", "triton", "module"),
    Case("another_language", "from kernels_db.runtime import cpp\n", "import math\n", "import of `kernels_db.runtime.cpp`", "triton", "module"),
    Case("compiled_decorator", "@torch.compile\ndef f(a):\n    return a\n", "def f(a):\n    return a\n", "decorator `torch.compile`", "triton", "module"),
    # CUDA.
    Case("cpp_tells_sanitizers", 'E = cpp.compile("""#if defined(__SANITIZE_THREAD__)\n#endif""")\n', 'E = cpp.compile("""#if defined(__AVX2__)\n#endif""")\n', "with and without sanitizers", "cpp", "module"),
    Case("cpp_hides_from_sanitizers", 'E = cpp.compile("""#define OWN __attribute__((__no_sanitize_address__))""")\n', 'E = cpp.compile("""#define OWN __attribute__((noinline))""")\n', "with and without sanitizers", "cpp", "module"),
    Case("cpp_reads_the_cycle_counter", 'E = cpp.compile("""static long t() { unsigned a; return __rdtscp(&a); }""")\n', 'E = cpp.compile("""static long rdtime() { return 1; }""")\n', "not a clock or chance", "cpp", "module"),
    Case("cpp_asks_openmps_clock", 'E = cpp.compile("""static double t() { return omp_get_wtick(); }""")\n', 'E = cpp.compile("""static double t() { return omp_get_max_threads(); }""")\n', "not a clock or chance", "cpp", "module"),
    Case("cpp_tells_the_cores", 'E = cpp.compile("""static int t() { return omp_get_num_procs(); }""")\n', 'E = cpp.compile("""static int t() { return omp_get_num_threads(); }""")\n', "expected omp_get_max_threads()", "cpp", "module"),
    Case("cpp_tells_where_it_is_included", 'E = cpp.compile("""#if __INCLUDE_LEVEL__ > 0\n#endif""")\n', 'E = cpp.compile("""#if __LINE__ > 0\n#endif""")\n', "with and without sanitizers", "cpp", "module"),
    Case("cpp_tells_sanitizers_by_a_flag", 'E = cpp.compile("""#if S\n#endif""", flags=("-O3", "-DS=__SANITIZE_ADDRESS__"))\n', 'E = cpp.compile("""#if S\n#endif""", flags=("-O3", "-DS=__AVX2__"))\n', "with and without sanitizers", "cpp", "module"),
    Case("cpp_assembles_by_a_flag", 'E = cpp.compile("""int t;""", flags=("-DA=asm",))\n', 'E = cpp.compile("""int t;""", flags=("-DA=assume",))\n', "an assembler can read files", "cpp", "module"),
    Case("cpp_draws_a_number", 'E = cpp.compile("""static int t() { unsigned a; _rdrand32_step(&a); return a; }""")\n', 'E = cpp.compile("""static int t() { unsigned rand = 1; return rand; }""")\n', "not a clock or chance", "cpp", "module"),
    Case("cuda_host_header", "E = cuda.compile('#include <vector>')\n", "E = cuda.compile('#include <cuda/std/array>')\n", "NVRTC has no host headers", "cuda", "module"),
    Case("cuda_device_wide_header", "E = cuda.compile('#include <cub/device/device_reduce.cuh>')\n", "E = cuda.compile('#include <cub/block/block_reduce.cuh>')\n", "the others launch kernels", "cuda", "module"),
    Case("cuda_architecture_flag", "E = cuda.compile('', flags=('--gpu-architecture=sm_100a',))\n", "E = cuda.compile('', flags=('--restrict', '--ptxas-options=-O3'))\n", "the target says the architecture", "cuda", "module"),
    Case("cuda_asked_for_file", "E = cuda.compile('''#if __has_include(</etc/passwd>)\n#endif''')\n", "E = cuda.compile('''#if __has_include(<cuda_fp8.h>)\n#endif''')\n", "__has_include of", "cuda", "module"),
    Case("cuda_internals", "t = kernels.add._program", "t = x.shape", "attribute `._program`", "cuda"),
    Case("cuda_launch_option", "kernels.add.launch(1, 1, x, y, out, 1, stream=0)", "kernels.add.launch(1, 1, x, y, out, 1, cooperative=True)", "keyword 'stream'", "cuda"),
    Case("cuda_other_method", "kernels.add.compile(x)", "kernels.add.launch(1, 1, x, y, out, 1)", "method `.compile()`", "cuda"),
    Case("streams", "torch.cuda.Stream()", "t = torch.cuda.get_device_properties(x.device).multi_processor_count", "`torch.cuda.Stream`", "cuda"),
    # Gluon.
    Case("gluon_prints", "    gl.static_print(i)", "    gl.static_assert(BLOCK > 0)", "static_print", "gluon", "kernel"),
    Case("gluon_of_blackwell", "from triton.experimental.gluon.language.nvidia.blackwell import tcgen05_mma\n", "from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma\n", "blackwell.tcgen05_mma` is not allowed", "gluon", "module"),
    Case("gluon_of_amd", "    t = gl.amd.cdna3.mfma(i, i, i)", "    gl.nvidia.hopper.fence_async_shared()", "expected a function of gluon.language, its nvidia.ampere and nvidia.hopper,", "gluon", "kernel"),
    Case("gluon_python_while_compiling", "@gluon.constexpr_function\ndef f(a):\n    return a\n", "@gluon.jit\ndef f(a):\n    return a\n", "decorator `gluon.constexpr_function`", "gluon", "module"),
    Case("gluon_runs_triton", "@triton.jit\ndef f(a):\n    return a\n", "@gluon.jit(noinline=True)\ndef f(a):\n    return a\n", "decorator `triton.jit`", "gluon", "module"),
    Case("gluon_hooks", "@gluon.jit(launch_metadata=run)\ndef f(a):\n    return a\n", "@gluon.jit(do_not_specialize=['a'])\ndef f(a):\n    return a\n", "keyword 'launch_metadata'", "gluon", "module"),
    Case("gluon_language_below", "    t = tl.load(x)", "    t = gl.load(x)", "`triton.language.load` is not allowed", "gluon", "kernel"),
    Case("gluon_internals", "    t = gl._core.builtin", "    t = gl.num_warps()", "gluon.language._core.builtin", "gluon", "kernel"),
    Case("gluon_runtime", "from triton.experimental.gluon._runtime import GluonASTSource\n", "from triton.experimental.gluon import jit\n", "import of", "gluon", "module"),
    Case("gluon_layout_internals", "    t = gl.BlockedLayout([1], [32], [4], [0]).__class__", "    t: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])", "attribute `.__class__`", "gluon", "kernel"),
    Case("gluon_layout_on_the_host", "t = gl.SliceLayout.__subclasses__()", "t = gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0]))", "`triton.experimental.gluon.language.SliceLayout.__subclasses__`", "gluon"),
    Case("gluon_module_constant", "A = gl.load(1)\n", "A = gl.constexpr(gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16))\n", "call of `gl.load`", "gluon", "module"),
    Case("gluon_descriptor_base", "d = TensorDescriptor.from_tensor(x, [64], gl.NVMMASharedLayout(0, 32, 1))\n    t = d.base", "d = TensorDescriptor.from_tensor(x, [64], gl.NVMMASharedLayout(0, 32, 1))\n    t = d.shape", "attribute `.base`", "gluon"),
    Case("gluon_descriptor_arithmetic", "t = TensorDescriptor.from_tensor(x + y, [64], gl.NVMMASharedLayout(0, 32, 1))", "t = TensorDescriptor.from_tensor(x.view(-1), [64], gl.NVMMASharedLayout(0, 32, 1))", "arithmetic on a tensor", "gluon"),
    # CuTe DSL: what runs while a kernel is compiled, and what its package has besides kernels.
    Case("cute_compiles_by_itself", "    t = cute.compile(added, x, y, out, n)", "    t = cute.size(x)", "`cutlass.cute.compile` is not allowed", "cute", "host"),
    Case("cute_foreign_memory", "from cutlass.cute.runtime import from_dlpack\n", "from cutlass.cute.nvgpu import cpasync\n", "import of `cutlass.cute.runtime.from_dlpack`", "cute", "module"),
    Case("cute_pointer_of_a_number", "    t = cute.make_ptr(cutlass.Float32, 4096, cute.AddressSpace.gmem)", "    t = cute.recast_ptr(x.iterator, dtype=cutlass.Int32)", "`cutlass.cute.make_ptr` is not allowed", "cute", "kernel"),
    Case("cute_foreign_function", "t = cute.ffi(name='system', params_types=[], return_type=None)\n", "t = (1, 2)\n", "call of `cute.ffi`", "cute", "module"),
    Case("cute_extern", "@cute.extern\ndef system(a):\n    pass\n", "@cute.jit\ndef system(a):\n    return a\n", "decorator `cute.extern`", "cute", "module"),
    Case("cute_prints", "    cute.printf('i', i)", "    cute.arch.sync_warp()", "`cutlass.cute.printf` is not allowed", "cute", "kernel"),
    Case("cute_prints_in_python", "    print(i)", "    t = max(i, 1)", "call of `print`", "cute", "kernel"),
    Case("cute_clock", "    t = cute.arch.clock64()", "    t = cute.arch.lane_idx()", "`cutlass.cute.arch.clock64` is not allowed", "cute", "kernel"),
    Case("cute_timer", "    t = cute.arch.globaltimer()", "    t = cute.arch.warp_idx()", "`cutlass.cute.arch.globaltimer` is not allowed", "cute", "kernel"),
    Case("cute_inline_ptx", "    cute.arch.inline_ptx('exit;')", "    cute.arch.sync_threads()", "`cutlass.cute.arch.inline_ptx` is not allowed", "cute", "kernel"),
    Case("cute_mlir", "from cutlass._mlir import ir\n", "from cutlass.cute.nvgpu import warpgroup\n", "import of `cutlass._mlir.ir`", "cute", "module"),
    Case("cute_dsl_internals", "    t = cutlass.base_dsl.env_manager", "    t = cutlass.Int32(1)", "`cutlass.base_dsl.env_manager` is not allowed", "cute", "host"),
    Case("cute_object_internals", "    t = x.iterator.__class__", "    t = x.iterator.alignment", "attribute `.__class__`", "cute", "host"),
    Case("cute_value_internals", "    t = x.ir_value()", "    t = x.load()", "attribute `.ir_value`", "cute", "kernel"),
    Case("cute_enum_internals", "    t = cute.ReductionOp.ADD.__class__", "    t = cute.ReductionOp.ADD", "ReductionOp.ADD.__class__` is not allowed", "cute", "kernel"),
    Case("cute_other_stream", "    add(x, y, out, n).launch(grid=[1, 1, 1], block=[1, 1, 1], stream=1)", "    add(x, y, out, n).launch(grid=[1, 1, 1], block=[1, 1, 1], cluster=[1, 1, 1])", "keyword 'stream' is not allowed", "cute", "host"),
    Case("cute_launch_of_another", "    x.iterator.launch(grid=[1, 1, 1])", "    t = x.iterator.alignment", "launch: expected kernel(...).launch", "cute", "host"),
    Case("cute_keeps_in_a_list", "A = [1]\n---    A[0] = A[0] + 1", "A = [1]\n---    t = 1", "expected a number, dtype, string or tuple", "cute", "used"),
    Case("cute_annotation_that_runs", "@cute.jit\ndef f(a: \"cutlass.Constexpr if __import__('os').getcwd() else 0\"):\n    return a\n", "@cute.jit\ndef f(a: \"cutlass.Constexpr\"):\n    return a\n", "annotation", "cute", "module"),
    Case("cute_annotation_inside_an_annotation", "@cute.jit\ndef f(a: \"'__import__()'\"):\n    return a\n", "@cute.jit\ndef f(a: \"cutlass.Constexpr\"):\n    return a\n", "a string inside a string", "cute", "module"),
    Case("cute_annotation_inside_a_tuple", "@cute.jit\ndef f(a: \"tuple['int']\"):\n    return a\n", "@cute.jit\ndef f(a: \"tuple[int]\"):\n    return a\n", "a string inside a string", "cute", "module"),
    Case("cute_annotation_in_a_string_in_a_tuple", "@cute.jit\ndef f(a: tuple[\"'__import__()'\"]):\n    return a\n", "@cute.jit\ndef f(a: tuple[\"int\"]):\n    return a\n", "a string inside a string", "cute", "module"),
    Case("cute_annotation_that_runs_by_keyword", "@cute.jit\ndef f(a, *, b: \"cutlass.Constexpr if __import__('os').getcwd() else 0\" = 1):\n    return a\n", "@cute.jit\ndef f(a, b: \"cutlass.Constexpr\" = 1):\n    return a\n", "annotation", "cute", "module"),
    Case("cute_result_annotation_that_runs", "@cute.kernel\ndef f(a: cute.Tensor) -> \"__import__('os').getcwd()\":\n    a[0] = 1\n", "@cute.kernel\ndef f(a: cute.Tensor) -> None:\n    a[0] = 1\n", "annotation", "cute", "module"),
    Case("cute_ptx_in_a_word", "    t = cute.arch.warp_redux_sync(cutlass.Float32(1.0), 'or.b32 $0, $1, $2; mov.b32 $0, %clock; //', -1)", "    t = cute.arch.warp_reduction_sum(cutlass.Float32(1.0))", "`cutlass.cute.arch.warp_redux_sync` is not allowed", "cute", "kernel"),
    Case("cute_keeps_in_a_list_by_another_name", "A = [1]\nB = A\n---    t = B\n    t[0] = t[0] + 1", "A = 1\nB = A\n---    t = B", "expected a number, dtype, string or tuple", "cute", "used"),
    Case("cute_keeps_in_a_list_of_a_tuple", "A = [1]\nB = (A, 1)\n---    t = B[0]\n    t[0] = t[0] + 1", "A = 2 * 3\nB = (A, 1)\n---    t = B[0]", "expected a number, dtype, string or tuple", "cute", "used"),
    Case("cute_keeps_in_a_table", "A = {}\nB = A\n---    t = B\n    t[0] = 1", "A = cutlass.Float32\nB = A\n---    t = B", "expected a number, dtype, string or tuple", "cute", "used"),
    Case("cute_writes_to_the_module", "    add.kept = i", "    kept = i", "assignment to `add.kept`", "cute", "kernel"),
    Case("cute_writes_to_a_constant", "A = (1, 2)\n---    A[0] = i", "A = (1, 2)\n---    t = A[0]", "expected an element of a local tensor", "cute", "used"),
    Case("cute_struct", "@cute.struct\nclass Shared:\n    pass\n", "SHARED = 1024\n", "ClassDef is not allowed", "cute", "module"),
    Case("cute_python_callback", "    t = cute.find_if((1, 2), pred_fn=print)", "    t = cute.size((1, 2))", "`cutlass.cute.find_if` is not allowed", "cute", "host"),
    Case("cute_lambda", "    t = lambda: i", "    t = i", "a lambda stands only", "cute", "kernel"),
    Case("cute_device_queries", "    t = cutlass.utils.HardwareInfo().size", "    t = cutlass.utils.get_smem_capacity_in_bytes('sm_90')", "`cutlass.utils.HardwareInfo` is not allowed", "cute", "host"),
    Case("cute_decorator_options", "@cute.jit(preprocess=False)\ndef f(a):\n    return a\n", "@cute.jit()\ndef f(a):\n    return a\n", "keyword 'preprocess'", "cute", "module"),
    Case("cute_compiles_a_kernel", "other = cutedsl.compile(add)\n", "other = cutedsl.compile(added)\n", "expected one @cute.jit function", "cute", "module"),
    Case("cute_compiles_what_is_none", "other = cutedsl.compile(print)\n", "other = 2\n", "expected one @cute.jit function", "cute", "module"),
    Case("cute_compiles_in_run", "t = cutedsl.compile(added)", "t = x.numel()", "is called inside a function", "cute"),
    Case("cute_reaches_into_what_it_compiled", "t = launch.function", "t = x.shape", "attribute `.function`", "cute"),
    Case("cute_passes_what_it_compiled", "t = (launch, x)", "t = (x, y)", "`launch` is not a value", "cute"),
    Case("cute_host_calls_the_dsl", "t = cute.make_layout(4)", "t = math.ceil(4.5)", "call of `cutlass.cute.make_layout`", "cute"),
    Case("tilelang_foreign_function", "    T.call_extern('int32', 'system', 1)", "    T.sync_threads()", "`tilelang.language.call_extern` is not allowed", "tilelang", "kernel"),
    Case("tilelang_imports_source", "    T.import_source('__device__ int kept;')", "    T.use_swizzle(10)", "`tilelang.language.import_source` is not allowed", "tilelang", "kernel"),
    Case("tilelang_source_before_the_kernel", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1, threads=32, prelude='__device__ int kept;') as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1, threads=32) as b:\n        x[0] = 1.0\n", "keyword 'prelude' is not allowed", "tilelang", "module"),
    Case("tilelang_clusters", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1, threads=32, cluster_dims=2) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1, 2, threads=32) as (a, b):\n        x[0] = 1.0\n", "keyword 'cluster_dims' is not allowed", "tilelang", "module"),
    Case("tilelang_two_kernels", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "found 2 `with T.Kernel(...)`, expected one", "tilelang", "module"),
    Case("tilelang_a_kernel_in_a_macro", "@T.macro\ndef f(x):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.macro\ndef f(x):\n    x[0] = 1.0\n", "none in a @T.macro", "tilelang", "module"),
    Case("tilelang_a_tensor_at_an_address", "    p = T.reinterpret(x[0], 'handle')\n            t = T.Tensor((4,), 'float32', p)", "    t = T.reinterpret(x[0], 'int32')", "`tilelang.language.Tensor` is not allowed", "tilelang", "kernel"),
    Case("tilelang_a_parameter_at_an_address", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32', 4096)):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor(shape=(N,), dtype='float32')):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "as arguments of T.Tensor, expected shape and dtype", "tilelang", "module"),
    Case("tilelang_another_with", "@T.macro\ndef f(x):\n    with open('/etc/passwd') as b:\n        x[0] = 1.0\n", "@T.macro\ndef f(x):\n    x[0] = 1.0\n", "a with block is not allowed in a kernel", "tilelang", "module"),
    Case("tilelang_kernel_as_a_value", "    t = T.Kernel(1, threads=32)", "    t = T.ceildiv(1, 32)", "T.Kernel is not allowed here", "tilelang", "kernel"),
    Case("tilelang_tensor_of_an_address", "    t = T.make_tensor_from_addr(4096, (1,), 'float32')", "    t = T.alloc_local((1,), 'float32')", "make_tensor_from_addr` is not allowed", "tilelang", "kernel"),
    Case("tilelang_pointer_type", "@T.prim_func\ndef f(x: T.Tensor((N,), T.ptr)):\n    with T.Kernel(1) as b:\n        x[0] = 1\n", "@T.prim_func\ndef f(x: T.Tensor((N,), T.int64)):\n    with T.Kernel(1) as b:\n        x[0] = 1\n", "`tilelang.language.ptr` is not allowed", "tilelang", "module"),
    Case("tilelang_memory_that_outlives", "    t = T.alloc_global((4,), 'float32')", "    t = T.alloc_fragment((4,), 'float32')", "`tilelang.language.alloc_global` is not allowed", "tilelang", "kernel"),
    Case("tilelang_waits_for_the_grid", "    T.sync_grid()", "    T.sync_warp()", "`tilelang.language.sync_grid` is not allowed", "tilelang", "kernel"),
    Case("tilelang_annotations", "    T.copy(x[0:4], y[0:4], annotations=dict)", "    T.copy(x[0:4], y[0:4], disable_tma=True)", "keyword 'annotations' is not allowed", "tilelang", "kernel"),
    Case("tilelang_tables", "    T.annotate = {}", "    t = (1, 2)", "assignment to `T.annotate`", "tilelang", "kernel"),
    Case("tilelang_a_table_by_position", "    T.gemm(x, y, out, False, False, 0, True, {'a': 1})", "    T.gemm(x, y, out, False, False, T.GemmWarpPolicy.Square, True)", "Dict is not allowed in a kernel", "tilelang", "kernel"),
    Case("tilelang_text_in_a_word", "    t = T.alloc_shared((4,), 'float32', 'shared; asm volatile(exit)')", "    t = T.alloc_shared((4,), 'float32')", "is not allowed in a kernel: expected a dtype's name", "tilelang", "kernel"),
    Case("tilelang_prints", "    T.print(x[0])", "    t = x[0]", "`tilelang.language.print` is not allowed", "tilelang", "kernel"),
    Case("tilelang_prints_in_python", "    print(i)", "    t = max(i, 1)", "call of `print`", "tilelang", "kernel"),
    Case("tilelang_inline_ptx", "    T.ptx_init_barrier_thread_count(0, 1)", "    T.sync_threads()", "is not allowed in a kernel", "tilelang", "kernel"),
    Case("tilelang_object_internals", "    t = x.data", "    t = x.shape", "attribute `.data`", "tilelang", "kernel"),
    Case("tilelang_scope_of_a_buffer", "    t = x.scope()", "    t = x.dtype", "attribute `.scope`", "tilelang", "kernel"),
    Case("tilelang_writes_to_the_module", "    add.kept = i", "    kept = i", "assignment to `add.kept`", "tilelang", "kernel"),
    Case("tilelang_keeps_in_a_list", "A = [1]\n---    A[0] = 1", "A = [1]\n---    t = 1", "expected an element of a local tensor", "tilelang", "used"),
    Case("tilelang_reads_a_list", "A = [1]\n---    t = A", "A = (1,)\n---    t = A", "expected a number, dtype, dtype's name or tuple", "tilelang", "used"),
    Case("tilelang_annotation_that_runs", "@T.prim_func\ndef f(x: \"T.Tensor((N,), __import__('os').getcwd())\"):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "an annotation is a string", "tilelang", "module"),
    Case("tilelang_annotation_inside_an_annotation", "@T.macro\ndef f(a: \"'__import__()'\"):\n    return a\n", "@T.macro\ndef f(a: T.int32):\n    return a\n", "an annotation is a string", "tilelang", "module"),
    Case("tilelang_annotation_inside_a_tuple", "@T.macro\ndef f(a: tuple['int']):\n    return a\n", "@T.macro\ndef f(a: tuple[int]):\n    return a\n", "an annotation is a string", "tilelang", "module"),
    Case("tilelang_annotation_of_a_local", "    t: 'int' = 1", "    t: int = 1", "an annotation is a string", "tilelang", "kernel"),
    Case("tilelang_text_of_a_constant", "A = '4>();} __device__ int kept; //'\n---    T.use_swizzle(A)", "A = 'float32'\n---    t = T.alloc_local((4,), A)", "expected a number, dtype, dtype's name or tuple", "tilelang", "used"),
    Case("tilelang_text_of_a_constant_of_a_constant", "A = ('int32', '4>();}')\nB = A\n---    T.use_swizzle(B[1])", "A = ('int32', 4)\nB = A\n---    T.use_swizzle(B[1])", "expected a number, dtype, dtype's name or tuple", "tilelang", "used"),
    Case("tilelang_text_of_an_unpacked_constant", "A, B = 'a b', 4\n---    T.use_swizzle(A)", "A, B = 'int32', 4\n---    T.use_swizzle(B)", "expected a number, dtype, dtype's name or tuple", "tilelang", "used"),
    Case("tilelang_scope_by_position", "    t = T.alloc_local((4,), 'int32', 'global')", "    t = T.alloc_local((4,), 'int32')", "as arguments of T.alloc_local, expected shape and dtype", "tilelang", "kernel"),
    Case("tilelang_shared_scope_by_position", "    t = T.alloc_shared((4,), 'int32', 'global')", "    t = T.alloc_shared((4,), dtype='int32')", "as arguments of T.alloc_shared, expected shape and dtype", "tilelang", "kernel"),
    Case("tilelang_fragment_scope_by_position", "    t = T.alloc_fragment((4,), 'int32', 'global')", "    t = T.alloc_fragment((4,), 'int32')", "as arguments of T.alloc_fragment, expected shape and dtype", "tilelang", "kernel"),
    Case("tilelang_scope_of_an_imported_function", "from tilelang.language import alloc_local\n---    t = alloc_local((4,), 'int32', 'global')", "from tilelang.language import alloc_local\n---    t = alloc_local((4,), 'int32')", "as arguments of alloc_local, expected shape and dtype", "tilelang", "used"),
    Case("tilelang_scope_by_a_star", "    t = T.alloc_local(*((4,), 'int32', 'global'))", "    t = T.max(*(4, 5))", "as arguments of T.alloc_local, expected shape and dtype", "tilelang", "kernel"),
    Case("tilelang_scope_of_a_variable", "    t = T.alloc_var('int32', 'global')", "    t = T.alloc_var('int32', init=1)", "as arguments of T.alloc_var, expected dtype", "tilelang", "kernel"),
    Case("tilelang_scope_of_a_variable_by_a_name", "A = 'global'\n---    t = T.alloc_var('int32', A)", "A = 'int32'\n---    t = T.alloc_var(A)", "as arguments of T.alloc_var, expected dtype", "tilelang", "used"),
    Case("tilelang_a_parameter_at_an_address_by_a_star", "@T.prim_func\ndef f(x: T.Tensor(*((N,), 'float32', 4096))):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), dtype='float32')):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "as arguments of T.Tensor, expected shape and dtype", "tilelang", "module"),
    Case("tilelang_without_an_annotation", "@T.prim_func\ndef f(x):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32')):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "x: expected an annotation", "tilelang", "module"),
    Case("tilelang_a_default", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32'), n: T.int32 = 3):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "@T.prim_func\ndef f(x: T.Tensor((N,), 'float32'), n: T.int32):\n    with T.Kernel(1) as b:\n        x[0] = 1.0\n", "expected plain ones", "tilelang", "module"),
    Case("tilelang_name_of_a_size", "M = T.dynamic('m; asm')\n", "M = T.dynamic('m')\n", "expected the name of one size", "tilelang", "module"),
    Case("tilelang_sizes_of_a_name", "A = 'm'\nM = T.dynamic(A)\n", "A = 'm'\nM = T.dynamic('m')\n", "expected the name of one size", "tilelang", "module"),
    Case("tilelang_dynamic_in_run", "t = T.dynamic('m')", "t = x.numel()", "call of `tilelang.language.dynamic`", "tilelang"),
    Case("tilelang_compiles_a_macro", "@T.macro\ndef f(a):\n    return a\nother = tilelang.compile(f)\n", "@T.macro\ndef f(a):\n    return a\nother = tilelang.compile(add)\n", "expected one @T.prim_func", "tilelang", "module"),
    Case("tilelang_compiles_in_run", "t = tilelang.compile(add)", "t = x.numel()", "is called inside a function", "tilelang"),
    Case("tilelang_jits_by_itself", "import tilelang.jit\n", "import math\n", "import of `tilelang.jit`", "tilelang", "module"),
    Case("tilelang_itself", "import tilelang\n", "import torch\n", "import of `tilelang` is not allowed", "tilelang", "module"),
    Case("tilelang_tvm", "import tvm\n", "import math\n", "import of `tvm`", "tilelang", "module"),
    Case("tilelang_of_another_backend", "import tilelang.rocm.language as R\n", "import math\n", "import of `tilelang.rocm.language`", "tilelang", "module"),
    Case("tilelang_reaches_into_what_it_compiled", "t = launch.function", "t = x.shape", "attribute `.function`", "tilelang"),
    Case("tilelang_passes_what_it_compiled", "t = (launch, x)", "t = (x, y)", "`launch` is not a value", "tilelang"),
    Case("tilelang_a_function_inside", "    def f(): return 1", "    t = 1", "a function inside a function", "tilelang", "kernel"),
    Case("tilelang_lambda", "    t = lambda: i", "    t = i", "a lambda stands only", "tilelang", "kernel"),
    Case("cuda_runs_tilelang", "import tilelang.language\n", "import math\n", "import of `tilelang.language`", "cuda", "module"),
    Case("cuda_runs_cute", "import cutlass\n", "import math\n", "import of `cutlass`", "cuda", "module"),
    Case("triton_runs_gluon", "from triton.experimental import gluon\n", "from triton import cdiv\n", "import of `triton.experimental.gluon`", "triton", "module"),
    Case("graphs", "torch.cuda.CUDAGraph()", "t = torch.empty(4, device=x.device)", "`torch.cuda.CUDAGraph`", "cuda"),
    # Values that outlive a call.
    Case("kept_list", "SEEN = []\n---c = SEEN\n    c += [0]", "SIZES = [4, 8]\n---c = list(SIZES)\n    c += [0]\n    c = SIZES[0]\n    c *= 2", "outlives the call", place="both"),
    Case("kept_list_times", "SEEN = [1]\n---c = SEEN\n    c *= 2", "ONE = 1\n---c = ONE\n    c *= 2", "outlives the call", place="both"),
    Case("kept_table", "SEEN = {}\n---d = SEEN\n    d |= {x.data_ptr(): 1}", "---d = {}\n    d |= {x.data_ptr(): 1}", "outlives the call", place="both"),
    Case("kept_inside", "SEEN = {1: [0]}\n---c = SEEN[1]\n    c += [0]", "SIZES = {1: 4}\n---c = SIZES[1]\n    c += 1", "outlives the call", place="both"),
    Case("kept_by_get", "SEEN = {1: [0]}\n---c = SEEN.get(1)\n    c += [0]", "SIZES = {1: 4}\n---c = SIZES.get(1)\n    c += 1", "outlives the call", place="both"),
    Case("kept_in_a_loop", "SEEN = ([0], [0])\n---for c in SEEN:\n        c += [0]", "SIZES = (4, 8)\n---for c in SIZES:\n        c += 1", "outlives the call", place="both"),
    Case("kept_in_a_helper", "SEEN = []\ndef count(c):\n    c += [0]\n    return len(c)\n---t = count(SEEN)", "SIZES = [4]\ndef count(c):\n    c += [0]\n    return len(c)\n---t = count([1]) + count(sorted(SIZES))", "outlives the call", place="both"),
    Case("kept_that_a_helper_returns", "SEEN = []\ndef seen():\n    return SEEN\n---c = seen()\n    c += [0]", "def fresh():\n    return []\n---c = fresh()\n    c += [0]", "outlives the call", place="both"),
    Case("kept_by_a_builtin", "SEEN = [[0]]\n---c = max(SEEN)\n    c += [0]", "SIZES = [4]\n---c = max(SIZES)\n    c += 1", "outlives the call", place="both"),
    Case("kept_by_a_sum", "SEEN = [0]\n---c = sum([], SEEN)\n    c += [0]", "SIZES = [4]\n---c = sum(SIZES)\n    c += 1", "outlives the call", place="both"),
    Case("kept_by_a_choice", "SEEN = []\n---c = SEEN if x.ndim else []\n    c += [0]", "---c = [1] if x.ndim else []\n    c += [0]", "outlives the call", place="both"),
    Case("kept_in_a_default", "SEEN = []\ndef count(c=SEEN):\n    c += [0]\n    return 0\n---t = count()", "ONE = 1\ndef count(c=ONE):\n    c += 1\n    return 0\n---t = count()", "outlives the call", place="both"),
    Case("kept_bare", "SEEN = []\n---SEEN += [0]", "SEEN = []\n---c = [*SEEN]", "outlives the call", place="both"),
    Case("kept_inside_a_default", "def count(c=([],)):\n    return 0\n---t = count()", "def count(c=((1, 2), 3)):\n    return 0\n---t = count()", "a default value lives", place="both"),
    Case("kept_by_a_comprehension", "SEEN = [0]\n---t = [0 for SEEN[0] in (1,)]", "SEEN = [0]\n---t = [0 for i, (j, *k) in ((1, (2, 3)),)]", "assignment to Subscript", place="both"),
    Case("kept_iterator", "SEEN = (i for i in range(30))\n---t = any(SEEN)", "SIZES = tuple(i for i in range(30))\n---t = any(SIZES)", "an iterator at module level", place="both"),
    Case("kept_zip", "SEEN = [zip((1, 2), (3, 4))]\n---t = list(SEEN[0])", "PAIRS = [a + b for a, b in zip((1, 2), (3, 4))]\n---t = list(PAIRS)", "an iterator at module level", place="both"),
    Case("kept_behind_an_import", "SEEN = []\ntry:\n    import math as m\nexcept ImportError:\n    SEEN = None\n---c = SEEN\n    c += [0]", "ONE = 1\n---c = ONE\n    c += 1", "outlives the call", place="both"),
    Case("flags_of_an_unpacked_name", 'FLAGS, ONE = ("-fplugin=a.so",), 1\nother = cpp.compile(r"""extern "C" void f(float* x) {{}}""", flags=FLAGS)\n', 'FLAGS = ("-O2",)\nother = cpp.compile(r"""extern "C" void f(float* x) {{}}""", flags=FLAGS)\n', "flags: found", place="module"),
    Case("kept_in_a_kernel", "SEEN = []\n@triton.jit\ndef f(x):\n    c = SEEN\n    c += [0]\n---pass", "ONE, TWO = tl.constexpr(1), 2\n@triton.jit\ndef f(x):\n    c = ONE\n    c += 1\n    x += c\n---pass", "outlives the call", "triton", "both"),
    Case("kept_through_a_launch", "SEEN = []\n@triton.jit\ndef f(c):\n    c += [0]\n---f[(1,)](SEEN)", "@triton.jit\ndef f(c):\n    c += 1\n---f[(1,)](x)", "outlives the call", "triton", "both"),
    Case("kept_by_heuristics", "SEEN = []\n@triton.heuristics({'C': lambda args: SEEN})\n@triton.jit\ndef f(x, C: tl.constexpr):\n    C += [0]\n---f[(1,)](x)", "@triton.heuristics({'C': lambda args: triton.next_power_of_2(args['x'])})\n@triton.jit\ndef f(x, C: tl.constexpr):\n    C += 1\n---f[(1,)](x.numel())", "outlives the call", "triton", "both"),
    Case("kept_by_autotune", "@triton.autotune(configs=[triton.Config({'C': []})], key=[])\n@triton.jit\ndef f(x, C: tl.constexpr):\n    C += [0]\n---f[(1,)](x)", "CONFIGS = [triton.Config({'C': c}) for c in (1, 2)]\n@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit\ndef f(x, C: tl.constexpr):\n    n = C * 2\n    n += 1\n    x += n\n---f[(1,)](x)", "outlives the call", "triton", "both"),
    Case("kept_by_autotune_under_a_known_name", "c = 1\nCONFIGS = [triton.Config({'C': c}) for c in ([],)]\n@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit\ndef f(x, C: tl.constexpr):\n    C += [0]\n---f[(1,)](x)", "CONFIGS = [triton.Config({'C': c}, num_warps=w) for c, w in [[1, 4], [2, 8]]]\n@triton.autotune(configs=CONFIGS, key=[])\n@triton.jit\ndef f(x, C: tl.constexpr):\n    x += C * 2\n---f[(1,)](x)", "outlives the call", "triton", "both"),
    Case("kept_in_a_grid", "SEEN = []\ndef blocks(c):\n    c += [0]\n    return len(c)\n---g = lambda meta, c=SEEN: (blocks(c),)\n    add[g](x, y, out, 1, BLOCK=1024)", "def blocks(n, b):\n    c = triton.cdiv(n, b)\n    c += 1\n    return c\n---g = lambda meta: (blocks(64, meta['BLOCK']),)\n    add[g](x, y, out, 1, BLOCK=1024)", "outlives the call", "triton", "both"),
    Case("kept_in_a_layout", "C = gl.PaddedSharedLayout([[2, 1]], [[1]], [], [8])\n---c = C.shape\n    c += [0]", "C = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))\n---c = x.shape[0]\n    c += 1", "outlives the call", "gluon", "both"),
    Case("layout_prints_a_tensor", "t = f'{gl.SliceLayout(x.view(-1)[0], 0)}'", "t = f'{gl.SliceLayout(x.shape[0], 0)}'", 'SliceLayout` of a tensor', 'gluon'),
    Case("layouts_compare_tensors", 't = gl.SliceLayout(x.view(-1)[0], 0) == gl.SliceLayout(y.view(-1)[0], 0)', 't = gl.SliceLayout(x.ndim, 0) == gl.SliceLayout(y.ndim, 0)', 'SliceLayout` of a tensor', 'gluon'),
    Case("layout_changes_a_tensor", 't = gl.NVMMASharedLayout.get_default_for([8, 8], gl.float32, cga_layout=[[x.view(-1)[0], 0]])', 't = gl.NVMMASharedLayout.get_default_for([8, 8], gl.float32, cga_layout=[[x.ndim, 0]])', 'get_default_for` of a tensor', 'gluon'),
    Case("layout_of_a_starred_tensor", 't = gl.SliceLayout(*(x, 0))', 't = gl.SliceLayout(*(1, 0))', 'SliceLayout` of a tensor', 'gluon'),
    Case("cdiv_of_tensors", 't = triton.cdiv(x, y)', 't = triton.cdiv(x.numel(), y.numel())', '`triton.cdiv` of a tensor', 'triton'),
    Case("next_power_of_2_of_a_tensor", 't = triton.next_power_of_2(n=x)', 't = triton.next_power_of_2(n=x.numel())', '`triton.next_power_of_2` of a tensor', 'triton'),
    Case("descriptor_prints", "from triton.tools.tensor_descriptor import TensorDescriptor\n---d = TensorDescriptor.from_tensor(x, [64])\n    t = f'{d}'", "from triton.tools.tensor_descriptor import TensorDescriptor\n---d = TensorDescriptor.from_tensor(x, [64])\n    t = f'{d.shape}'", 'printing a tensor', 'triton', 'both'),
    Case("descriptor_of_a_tensor_as_stride", "from triton.tools.tensor_descriptor import TensorDescriptor\n---d = TensorDescriptor(x, [64], [y[0]], [64])", "from triton.tools.tensor_descriptor import TensorDescriptor\n---d = TensorDescriptor(base=x, shape=[64], strides=[y.stride(0)], block_shape=[64])", "a tensor in the shape", "triton", "both"),
    Case("descriptors_compare", 'from triton.tools.tensor_descriptor import TensorDescriptor\n---d = TensorDescriptor.from_tensor(x, [64])\n    t = d == TensorDescriptor.from_tensor(y, [64])', 'from triton.tools.tensor_descriptor import TensorDescriptor\n---d = TensorDescriptor.from_tensor(x, [64])\n    t = d.shape == y.shape', 'a comparison of tensors', 'triton', 'both'),
    Case("gluon_descriptor_prints", "d = TensorDescriptor.from_tensor(x, [64], gl.NVMMASharedLayout(0, 32, 1))\n    t = f'{d}'", "d = TensorDescriptor.from_tensor(x, [64], gl.NVMMASharedLayout(0, 32, 1))\n    t = f'{d.shape}'", 'printing a tensor', 'gluon'),
    Case("tensor_as_a_size", "t = torch.empty(x[0]).shape", "t = torch.empty(x.shape[0]).shape", "a tensor as a size"),
    Case("tensor_as_a_view_size", "t = x.narrow(0, 0, y[0]).shape", "t = x.narrow(0, 0, y.shape[0]).view_as(y)", "a tensor as a size"),
    Case("tensor_as_a_slice", "t = x[: y[0]].shape", "t = x[: y.shape[0]].shape", "indexing by a tensor"),
]
# fmt: on


def gluon_of(case: Case) -> Case:
    """The same escape and sibling in Gluon."""

    def spelled(text: str) -> str:
        text = text.replace("@triton.jit", "@gluon.jit").replace("tl.math.", "tl.")
        return re.sub(r"\btl\.(?!PropagateNan)", "gl.", text)

    said = case.said.replace("triton.language.core", "triton.experimental.gluon.language.core")
    name = f"{case.name}_in_gluon"
    return Case(name, spelled(case.escape), spelled(case.sibling), said, "gluon", case.place)


def in_host_code(case: Case, language: str) -> Case:
    """The same escape and sibling in the host code of a language whose kernels are functions that are called."""
    return Case(f"{case.name}_in_{language}", case.escape, case.sibling, case.said, language, case.place)


CASES += [
    in_host_code(case, language)
    for language in ("cute", "tilelang")
    for case in CASES
    # what host code may not do in C++; the rest of those cases is about C++'s sources
    if case.language == "cpp" and not re.search("cpp|kernel", case.escape + case.sibling + case.said)
]

CASES += [
    gluon_of(case)
    for case in CASES
    # what host code may not do in C++ it may not do in Gluon; the rest of those cases is about C++'s sources
    # Gluon has no interpreter, and compiled `c += d` is `c = c + d`.
    # Its descriptors take a layout too, and have cases of their own.
    if (
        case.language == "triton"
        and case.said != "outlives the call"
        and not re.search("import gluon|tensor_descriptor import", case.escape)
    )
    or (case.language == "cpp" and not re.search("cpp|kernel", case.escape + case.sibling + case.said))
]


def candidate(case: Case, text: str) -> str:
    """The candidate of the case's language with `text` in its place."""
    module, _, run = text.partition("---") if case.place == "both" else ("", "", "")
    parts = {"module": module, "run": f"    {run or 'pass'}", "kernel": "    pass", "host": "    pass"}
    if case.place == "used":  # a constant, and what a kernel does with it
        parts["module"], _, parts["kernel"] = text.partition("---")
    elif case.place == "run":
        parts["run"] = f"    {text}"
    elif case.place != "both":
        parts[case.place] = text
    return {"cpp": CPP, "triton": TRITON, "cuda": CUDA, "gluon": GLUON, "cute": CUTE, "tilelang": TILELANG}[
        case.language
    ].format(**parts)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_escape_is_refused_where_it_stands(case: Case) -> None:
    source = candidate(case, case.escape)
    problems = check(source, case.language, parameters=PARAMETERS)
    assert problems, source
    assert any(case.said in problem.message for problem in problems), problems
    assert all(1 <= problem.line <= source.count("\n") + 1 for problem in problems)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_honest_sibling_passes(case: Case) -> None:
    assert check(candidate(case, case.sibling), case.language, parameters=PARAMETERS) == []


SOURCES = {
    language: candidate(Case("plain", "", "", "", language, "module"), "")
    for language in ("cpp", "triton", "cuda", "gluon", "cute", "tilelang")
}
ENDS = [chr(code) for code in range(0x10000) if len(f"a{chr(code)}b".splitlines()) > 1 and code != ord("\n")]
"""What ends a line to `str.splitlines()`, and a comment with it, beside the line feed."""
COOKIES = [
    "# coding: raw_unicode_escape",
    "# -*- coding: unicode_escape -*-",
    "#!/usr/bin/python\n# vim: set fileencoding=utf-7 :",
    "\n \t# encoding=latin-1",
    "# coding: utf-16 coding: utf-8",
    "#\r\n# coding: utf_8_sig",
    "#\r#\r# coding: utf-7",  # the first line, to `tokenize`
    "#\r# coding: utf-7",  # the second one, to `compile`
    "x = 1  #\r# coding: utf-7",
]


@pytest.mark.parametrize("language", SOURCES)
def test_what_ends_a_line_for_some_readers_alone_is_refused(language: str) -> None:
    honest = SOURCES[language].replace("import torch\n", 'import torch  # note\nTEXT = "{}"\n')
    assert len(ENDS) == 9
    for end in ENDS:
        escape = ascii(end)[1:-1]
        assert check(honest.replace("{}", escape), language, parameters=PARAMETERS) == [], escape
        assert check(honest.replace("\n", "\r\n"), language, parameters=PARAMETERS) == []
        for place in ("note", "{}"):
            (problem,) = check(honest.replace(place, f"{place}{end} t = eval('1')"), language, parameters=PARAMETERS)
            assert f"found U+{ord(end):04X}: expected" in problem.message
            found = honest.split("\n")[problem.line - 1]
            assert place in found


@pytest.mark.parametrize("language", SOURCES)
@pytest.mark.parametrize("cookie", COOKIES)
def test_another_encoding_than_utf_8_is_refused(language: str, cookie: str) -> None:
    problems = check(f"{cookie}\n{SOURCES[language]}", language, parameters=PARAMETERS)
    assert any(problem.message.startswith("encoding: found") for problem in problems), problems


@pytest.mark.parametrize("language", SOURCES)
def test_utf_8_may_be_named_and_other_lines_may_say_what_they_like(language: str) -> None:
    for head in ("# coding: utf-8", "# -*- coding: UTF_8 -*-", "# decoding", "#\n#\n# coding: utf-7"):
        assert check(f"{head}\n{SOURCES[language]}", language, parameters=PARAMETERS) == [], head


@pytest.mark.parametrize("language", SOURCES)
def test_a_byte_order_mark_is_refused(language: str) -> None:
    """Python takes it away from a file, and not from a text."""
    (problem,) = check(f"\ufeff{SOURCES[language]}", language, parameters=PARAMETERS)
    assert "U+FEFF" in problem.message


def test_there_are_enough_cases_and_no_doubles() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40
