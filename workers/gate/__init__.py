"""The candidate contract: what a candidate file may hold, checked before anything runs it.

    check(source, language, library_calls=(), parameters=None, scalars=(), kinds=None)   the problems, none if it passes
    own_kernels(source, language)     names of the kernels that a candidate defines
    kernel_sources(source)            the constant arguments of cpp.compile and cuda.compile, from the syntax tree
    normalised_digest(source)         SHA-256 of the syntax tree without comments, docstrings and formatting

`scalars` are the parameters that are numbers. Every other one counts as a tensor, which host code may view and pass on
and not compute with. `kinds` gives the kind of each parameter in every workload, so that a launch whose arguments do
not fit the kernel is refused here.
"""

from warpsmith.workers.gate.gate import Problem, check
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.sources import KernelSource, kernel_sources, own_kernels

__all__ = ["KernelSource", "Problem", "check", "kernel_sources", "normalised_digest", "own_kernels"]
