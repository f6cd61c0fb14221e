"""The compiler flags that a candidate may choose: those that change how its own kernels are optimised, and nothing
else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .errors import CompileError

_DEFINE = r"-D[A-Za-z_]\w{0,63}(=[\w.+-]{0,64})?"

CPP_FLAGS = (
    "-O1",
    "-O2",
    "-O3",
    "-Ofast",
    "-ffast-math",
    "-funsafe-math-optimizations",
    "-fassociative-math",
    "-freciprocal-math",
    "-ffinite-math-only",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-ffp-contract=off",
    "-funroll-loops",
    "-funroll-all-loops",
    "-fno-tree-vectorize",
    "-fno-unroll-loops",
    "-fprefetch-loop-arrays",
    "-fopenmp-simd",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fomit-frame-pointer",
    "-fvect-cost-model=unlimited",
    "-fvect-cost-model=dynamic",
    "-mprefer-vector-width=128",
    "-mprefer-vector-width=256",
    "-mprefer-vector-width=512",
    "-DNAME=VALUE",
)
CUDA_FLAGS = (
    "--use_fast_math",
    "--fmad=true",
    "--fmad=false",
    "--ftz=true",
    "--ftz=false",
    "--prec-div=true",
    "--prec-div=false",
    "--prec-sqrt=true",
    "--prec-sqrt=false",
    "--extra-device-vectorization",
    "--restrict",
    "--device-as-default-execution-space",
    "--device-int128",
    "--std=c++17",
    "--std=c++20",
    "--maxrregcount=N",
    "--ptxas-options=-ON",
    "--ptxas-options=-dlcm=ca",
    "--ptxas-options=-dlcm=cg",
    "-DNAME=VALUE",
)
_PATTERNS = {
    "-DNAME=VALUE": _DEFINE,
    "--maxrregcount=N": r"--maxrregcount=[1-9][0-9]{0,2}",
    "--ptxas-options=-ON": r"--ptxas-options=-O[0-3]",
}
_REMEDIES = (
    (r"--?(gpu-)?(arch|architecture|code|gencode)\b.*|-m(arch|tune|cpu)=.*", "none: the target says the architecture"),
    (r"--?(I|include).*|-i(system|quote).*|--?(L|l)\w.*", "none: the toolchain's headers are there, and no library is"),
    (r"-O[0-9s]?|-fast", "none: kernels are optimised"),
    (r"-use_fast_math", "'--use_fast_math'"),
    (r"-std=c\+\+(17|20)", "'--std=c++17' or '--std=c++20'"),
    (r"-Xptxas.*", "'--ptxas-options=-ON' or '--ptxas-options=-dlcm=cg'"),
)
"""What to write instead of flags that are known from elsewhere."""


def allowed(flag: object, language: str) -> bool:
    """Whether a candidate in `language` ("cpp" or "cuda") may pass `flag`."""
    known = CPP_FLAGS if language == "cpp" else CUDA_FLAGS
    return isinstance(flag, str) and any(
        re.fullmatch(_PATTERNS.get(entry) or re.escape(entry), flag) for entry in known
    )


def expected(flag: object, language: str) -> str:
    """What may stand where `flag` does."""
    known = ", ".join(CPP_FLAGS if language == "cpp" else CUDA_FLAGS)
    for pattern, remedy in _REMEDIES:
        if isinstance(flag, str) and re.fullmatch(pattern, flag):
            return f"{remedy} ({known} are known)"
    return f"one of {known}"


def checked(flags: Iterable[str], language: str) -> tuple[str, ...]:
    """`flags` as a tuple.

    Raises:
        CompileError: one of them is not allowed.
    """
    if isinstance(flags, str):
        raise CompileError(f"flags: found the string {flags!r}, expected a tuple of strings")
    chosen = tuple(flags)
    for flag in chosen:
        if not allowed(flag, language):
            raise CompileError(f"flags: found {flag!r}, expected {expected(flag, language)}")
    return chosen
