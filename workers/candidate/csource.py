"""The C++ or CUDA text inside a candidate: which headers, preprocessor lines and assembly it may have.

This keeps honest sources portable and closes the plainest ways to read files at compile time. It is no boundary: native
code runs only under the judge's sandbox, and compilers under limits.
"""

from __future__ import annotations

import re

from kernels_db.runtime.ctext import directives, tokens
from workers.candidate.allowed import names
from workers.candidate.problems import Problem

_STANDARD = names(
    """
    algorithm array atomic bit bitset cassert cctype cfenv cfloat climits cmath compare complex concepts cstddef cstdint
    cstdlib cstring functional initializer_list iterator limits memory new numbers numeric optional span tuple
    type_traits utility vector assert.h complex.h fenv.h float.h limits.h math.h stddef.h stdint.h stdlib.h string.h
    omp.h
    """
)
_INTRINSICS = names(
    """
    immintrin.h x86intrin.h xmmintrin.h emmintrin.h pmmintrin.h tmmintrin.h smmintrin.h nmmintrin.h arm_neon.h arm_sve.h
    arm_bf16.h
    """
)
_CUDA = names(
    """
    cooperative_groups.h cuda.h cuda_awbarrier.h cuda_awbarrier_primitives.h cuda_bf16.h cuda_fp16.h cuda_fp4.h
    cuda_fp6.h cuda_fp8.h cuda_pipeline.h cuda_pipeline_primitives.h cuda_runtime.h device_functions.h math_constants.h
    mma.h vector_types.h
    """
)
_CUDA_FAMILY = re.compile(r"(cooperative_groups|cuda|cub|cute|cutlass)(/[a-z_]+)*/[A-Za-z0-9_]+(\.h|\.hpp|\.cuh)?")
_DIRECTIVES = names("define elif else endif error if ifdef ifndef include pragma undef warning")
_PRAGMA = re.compile(
    r"omp\b.*|once|(no)?unroll\b.*|nv_diag\w*\b.*|STDC\s.*"
    r"|GCC\s+(ivdep|unroll|optimize|target|push_options|pop_options|reset_options|diagnostic)\b.*"
)
_ASSEMBLY = frozenset({"asm", "__asm", "__asm__"})


def source_problems(source: str, language: str, line: int) -> list[Problem]:
    """What `source` may not hold; `line` is where it begins in the candidate."""
    problems = []
    for directive in directives(source):
        found = directive.text[:80]
        expected = None
        if directive.name and directive.name not in _DIRECTIVES:
            found, expected = "", ", ".join(f"#{name}" for name in sorted(_DIRECTIVES))
        elif directive.name == "include" and not _known_header(directive.text, language):
            expected = _headers(language)
        elif directive.name == "pragma" and not _PRAGMA.fullmatch(directive.text):
            expected = "omp, once, unroll or GCC optimize, target, unroll, ivdep"
        if expected is not None:
            spelled = f"#{directive.name} {found}".strip()
            problems.append(Problem(line + directive.line - 1, f"{spelled} is not allowed: expected {expected}"))
    if language == "cpp":
        problems += [
            Problem(line, f"`{word}` is not allowed: expected intrinsics, since an assembler can read files")
            for word in sorted(_ASSEMBLY.intersection(tokens(source)))
        ]
    return problems


def _known_header(text: str, language: str) -> bool:
    match = re.fullmatch(r"<\s*([A-Za-z0-9_./]+)\s*>", text) or re.fullmatch(r'"([A-Za-z0-9_./]+)"', text)
    if match is None or ".." in match[1]:
        return False
    header = match[1]
    if language == "cuda":
        return header in _STANDARD or header in _CUDA or _CUDA_FAMILY.fullmatch(header) is not None
    return header in _STANDARD or header in _INTRINSICS


def _headers(language: str) -> str:
    if language == "cuda":
        return "a header of CUDA (cuda_fp16.h, cuda_bf16.h, mma.h, cooperative_groups.h, cuda/...) by its plain name"
    return "a computing header of C++ (cmath, algorithm, ...), omp.h or the processor's intrinsics by its plain name"
