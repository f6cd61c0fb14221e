"""Ready-made experts, a module for each library: source texts that `spec.experts` reads and nothing imports.

A function takes an op's inputs and returns its outputs, imports its library itself, and needs nothing else of its
module: it is copied into a job as it stands.
"""
