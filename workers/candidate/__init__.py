"""The candidate contract: what a candidate file may hold, before anything runs it."""

from workers.candidate.gate import Problem, check
from workers.candidate.normalise import normalised_digest
from workers.candidate.sources import KernelSource, kernel_sources, own_kernels

__all__ = ["KernelSource", "Problem", "check", "kernel_sources", "normalised_digest", "own_kernels"]
