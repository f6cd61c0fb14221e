"""The names that a built C++ kernel may take from the libraries of its language.

A kernel computes. What it takes is the mathematics, memory and strings of the C library, the standard library's
templates and exceptions, OpenMP's regions and the compiler's own helpers; not files, processes, threads of its own,
sockets, clocks, maps of memory or the environment, and nothing in which a number could be left for the next call. This
is no boundary, since native code may search memory for a library by hand: the sandbox is. It keeps a library call from
passing as a kernel, and says at the compile gate what the sandbox would say by a crash.

Source of the names: the headers that `workers.gate.csource` lets a candidate include.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warpsmith.workers.judge.machine.elf import OBJECT, TLS, Symbol

LIBRARIES = re.compile(r"(libc|libm|libmvec|libstdc\+\+|libgcc_s|libgomp|ld-linux[\w-]*|libc\+\+|libomp)\.so(\.\d+)*")
"""Libraries that a kernel may need."""

_TOOLCHAIN = frozenset(
    {
        "__cxa_finalize",
        "__gmon_start__",
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
        "__stack_chk_fail",
        "__stack_chk_guard",
    }
)
"""What every shared library of this compiler has, weak or not."""
_C = re.compile(
    r"(__)?(mem(cpy|move|set|cmp|chr|rchr|mem|pcpy)|str(n?len|n?cmp|n?cpy|n?cat|r?chr|str|spn|cspn|pbrk)|bcmp)(_chk)?"
    r"|malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|memalign"
    r"|abort|__assert(_perror)?_fail|l{0,2}abs|l{0,2}div|qsort|bsearch"
    r"|is(alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)|to(lower|upper)"
)
"""Functions of the C library that neither reach out of their process nor remember."""
_OF_OPENMP = re.compile(
    r"(GOMP|__kmpc)_(?!target|offload)\w+"
    r"|omp_(?!set_(?!(nest_)?lock|lock)|display|control|get_wti(me|ck)|get_num_procs)\w+"
)
"""Neither settings, nor clocks, nor what tells the host's cores from the threads that a kernel has."""
_MANGLED = re.compile(r"_Z(n[aw]|d[al])[\w]*|_ZN?[KVO]*S\w+|_ZT[ISV]N?\w+|_ZN?K?9__gnu_cxx\w+|_ZNK?10__cxxabiv1\w+")
_EXCEPTIONS = re.compile(
    r"__cxa_(begin_catch|end_catch|throw|rethrow|(allocate|free|init_primary)_(dependent_)?exception|call_unexpected"
    r"|get_exception_ptr|pure_virtual|deleted_virtual|throw_bad_array_(new_)?length|bad_(cast|typeid)"
    r"|guard_(acquire|release|abort)|atexit)|__gxx_personality_v0|__dynamic_cast"
)
_KEPT_BY_STANDARD = re.compile(r"_ZSt\d+[sg]et_(new_handler|terminate|unexpected)\w*")
"""Functions in which the standard library keeps a pointer for whoever asks later."""
_REACHES_OUT = re.compile(
    r"_ZNK?St(6thread|7jthread|10filesystem|3__fs|13random_device|6chrono|6locale|8ios_base|9basic_ios"
    r"|\d+basic_\w*(stream|buf))\w*|_ZNSt10filesystem\w*|_ZSt(4cout|3cin|4cerr|4clog)"
)
_TEMPLATE = re.compile(r"_ZN?K?S|_ZT[ISV]|__gthr|__gthrw|__pthread_key_create|pthread_|_ZGV")
"""Weak names of the standard library's own templates and of its wrapper of threads."""
_CONSTANT = re.compile(r"_ZT[ISVT]\w+|_ZSt7nothrow|_ZNSt\w+E|__stack_chk_guard|__libc_single_threaded")
"""Data of other libraries that cannot be written to; shared pointers ask for the last, one byte that can."""


def foreign(symbols: Iterable[Symbol]) -> list[str]:
    """Return the undefined names by which a library would reach what a kernel needs not, sorted."""
    return sorted({one.name for one in symbols if one.section == 0 and one.name and not _allowed(one)})


def _allowed(one: Symbol) -> bool:
    name = one.name
    if name in _TOOLCHAIN:
        return True
    if one.kind in (OBJECT, TLS):  # memory of another library, in which a number could be left
        return one.kind == OBJECT and _CONSTANT.fullmatch(name) is not None
    if one.weak:
        return _TEMPLATE.match(name) is not None
    library = one.library.partition(".so")[0]
    if library in ("libm", "libmvec", "libgcc_s"):
        return True
    if _KEPT_BY_STANDARD.fullmatch(name) or _REACHES_OUT.match(name):
        return False
    own = (_C, _OF_OPENMP, _MANGLED, _EXCEPTIONS)
    return any(pattern.fullmatch(name) for pattern in own)
