"""Sanitizers: one run of a candidate under tools that report stray accesses, races and undefined behaviour.

C++: `build` and `driver` run the kernels in a build with each of `tools`: AddressSanitizer with
UndefinedBehaviorSanitizer, and ThreadSanitizer, for which `openmp` stands in for libgomp. On a GPU:
`sanitizer` finds compute-sanitizer and runs memcheck, racecheck, synccheck and initcheck, each on one call in a
process of its own; `report` reads what they wrote.
"""
