"""The candidate contract: what a candidate file may hold, before anything runs it."""

from warpsmith.workers.gate.gate import Problem, check
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.sources import KernelSource, kernel_sources, own_kernels

__all__ = ["KernelSource", "Problem", "check", "kernel_sources", "normalised_digest", "own_kernels"]
