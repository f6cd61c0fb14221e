"""A stand-in for vLLM: the part of its interface, as published, that an out-of-tree layer meets. It holds no model.

Versions 0.16 and 0.17 of vLLM's documentation and source were read for it: how `CustomOp` makes, registers, switches
and dispatches layers, and what RMSNorm, SiluAndMul and NewGELU take and return. The code is our own.
"""
