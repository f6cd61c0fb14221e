"""Checks of the C++ or CUDA text inside a candidate: headers, preprocessor lines, assembly.

This keeps honest sources portable and closes the plainest ways to read files at compile time. It is no boundary: native
code runs only under the judge's sandbox, and compilers under limits.
"""

from __future__ import annotations

import re
from itertools import pairwise

from warpsmith.kernels_db.runtime.ctext import Directive, directives, tokens
from warpsmith.kernels_db.runtime.nvrtc_headers import HEADERS
from warpsmith.workers.gate.allowed import names
from warpsmith.workers.gate.problems import Problem

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
    cooperative_groups.h cuda_awbarrier.h cuda_awbarrier_primitives.h cuda_bf16.h cuda_fp16.h cuda_fp4.h cuda_fp6.h
    cuda_fp8.h cuda_pipeline.h cuda_pipeline_primitives.h cuda_runtime.h device_functions.h device_launch_parameters.h
    math_constants.h mma.h vector_functions.h vector_types.h
    """
) | frozenset(HEADERS)
_CUDA_FAMILY = re.compile(r"(cooperative_groups|cuda|cub)(/[a-z_]+)*/[A-Za-z0-9_]+(\.h|\.hpp|\.cuh)?")
_CUB_ON_HOST = re.compile(r"cub/(cub|config|version)\.cuh|cub/device/.*|thrust/.*")
_CODE = names("define elif if ifdef ifndef undef")
_DIRECTIVES = names("define elif else endif error if ifdef ifndef include pragma undef warning")
_PRAGMA = re.compile(
    r"omp\b.*|once|(no)?unroll\b.*|nv_diag\w*\b.*|STDC\s.*"
    r"|GCC\s+(ivdep|unroll|optimize|target|push_options|pop_options|reset_options|diagnostic)\b.*"
)
_PRAGMAS = "omp, once, unroll or GCC optimize, target, unroll, ivdep"
_ASSEMBLY = frozenset({"asm", "__asm", "__asm__"})
_OBSERVERS = re.compile(
    r"\w*(SANITIZE|no_sanitize|no_address_safety|sanitizer_instrumentation)\w*|__has_feature"
    r"|__(PIE|pie|PIC|pic)__|__INCLUDE_LEVEL__|__OPTIMIZE\w*|__NO_INLINE__|_+(USE_)?FORTIFY\w*|__SSP\w*"
)
"""Words by which a source tells a build with sanitizers from another, or keeps a function out of their sight."""
_CLOCKS = re.compile(
    r"_*(builtin_ia32_)?rd(tscp?|rand|seed|pid|pmc|pru)(\d+|_u\d+)?(_step|_di)?|__builtin_readcyclecounter|_+(builtin_)?(arm_)?rsr\w*"
    r"|omp_get_wti(me|ck)|__(TIME|DATE|TIMESTAMP)__"
)
"""What reads a clock, a counter, chance or the processor: the same inputs would not give the same bits."""
_OF_THE_HOST = "omp_get_num_procs"
"""With it a kernel would tell a call with as many threads as cores from the others."""


def source_problems(source: str, language: str, line: int) -> list[Problem]:
    """List what `source` holds and may not; `line` is where it begins in the candidate."""
    problems = []
    lines = directives(source)
    for directive in lines:
        expected = _refused(directive, language)
        if expected is not None:
            found = directive.text[:80] if directive.name in _DIRECTIVES else ""
            spelled = f"#{directive.name} {found}".strip()
            problems.append(Problem(line + directive.line - 1, f"{spelled} is not allowed: expected {expected}"))
    # The body of a macro is code as well, and a condition chooses code.
    read = [directive for directive in lines if directive.name in _CODE]
    streams = [tokens(source), *(tokens(directive.text) for directive in read)]
    places = [line, *(line + directive.line - 1 for directive in read)]
    for place, stream in zip(places, streams, strict=True):
        if language == "cpp":
            problems += [
                Problem(place, f"`{word}` is not allowed: expected intrinsics, since an assembler can read files")
                for word in sorted(_ASSEMBLY.intersection(stream))
            ]
            problems += [Problem(place, message) for message in _bad_words(stream)]
        problems += [Problem(place, message) for message in _bad_pragmas(stream)]
    return problems


def _refused(directive: Directive, language: str) -> str | None:
    """Say what is expected in place of a preprocessor line; None where the line is allowed."""
    name, text = directive.name, directive.text
    if name and name not in _DIRECTIVES:
        return ", ".join(f"#{known}" for known in sorted(_DIRECTIVES))
    if name == "include" and not _known_header(text, language):
        return _headers(text, language)
    if name == "pragma" and not _PRAGMA.fullmatch(text):
        return _PRAGMAS
    if name in ("if", "elif") and not all(_known_header(asked, language) for asked in _asked(text)):
        return "__has_include of " + _headers("", language)
    if name == "define" and language == "cpp" and _pastes(text):
        return "names written out, or templates: what `##` makes cannot be read here"
    return None


def _asked(condition: str) -> list[str]:
    """Return the files a condition asks for: arguments of its __has_include and __has_embed."""
    return [match[1].strip() for match in re.finditer(r"__has_(?:include(?:_next)?|embed)\s*\(([^)]*)\)?", condition)]


def _pastes(macro: str) -> bool:
    """Check whether a macro's body pastes tokens together."""
    return ("#", "#") in pairwise(tokens(macro)) or "%:%:" in macro


def _bad_words(stream: list[str]) -> list[str]:
    """List the errors of words by which a kernel would do one thing when it is looked at and another when it is not."""
    found = []
    for word in sorted(set(stream)):
        if _OBSERVERS.fullmatch(word):
            found.append(f"`{word}` is not allowed: expected the same code with and without sanitizers")
        elif _CLOCKS.fullmatch(word):
            found.append(f"`{word}` is not allowed: expected results that inputs alone decide, not a clock or chance")
        elif word == _OF_THE_HOST:
            found.append(f"`{word}` is not allowed: expected omp_get_max_threads(), the same code on every host")
    return found


def _bad_pragmas(stream: list[str]) -> list[str]:
    """List the errors of each `_Pragma("...")`, which is a pragma in the midst of code."""
    found = []
    for i, lexeme in enumerate(stream):
        if lexeme == "_Pragma":
            literal = stream[i + 2] if stream[i + 1 : i + 2] == ["("] and len(stream) > i + 2 else ""
            text = literal[1:-1].replace('\\"', '"')
            if not literal.startswith('"') or not _PRAGMA.fullmatch(text):
                found.append(f"_Pragma({literal[:80]}) is not allowed: expected a string with {_PRAGMAS}")
    return found


def _known_header(text: str, language: str) -> bool:
    match = re.fullmatch(r"<\s*([A-Za-z0-9_./]+)\s*>", text) or re.fullmatch(r'"([A-Za-z0-9_./]+)"', text)
    if match is None or ".." in match[1]:
        return False
    header = match[1]
    if language == "cuda":
        in_family = _CUDA_FAMILY.fullmatch(header) is not None and not _CUB_ON_HOST.fullmatch(header)
        return header in _CUDA or in_family
    return header in _STANDARD or header in _INTRINSICS


def _headers(text: str, language: str) -> str:
    """Name the headers that may be included, and what to include instead of `text`."""
    name = text.strip('<>" ')
    if language == "cuda":
        if _CUB_ON_HOST.fullmatch(name):
            return "block- and warp-wide headers (cub/block/block_reduce.cuh, cub/warp/...): the others launch kernels"
        if name in _STANDARD:
            return f"cuda/std/{name.removesuffix('.h')} or none: NVRTC has no host headers"
        return "a header of CUDA (cuda_fp16.h, cuda_bf16.h, mma.h, cooperative_groups.h, cuda/...) by its plain name"
    return "a computing header of C++ (cmath, algorithm, ...), omp.h or the processor's intrinsics by its plain name"
