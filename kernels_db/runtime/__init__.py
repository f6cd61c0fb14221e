"""The small launcher that candidates import and exports carry.

It needs the standard library alone; `cuda` imports NVIDIA's `cuda.core` when it first compiles. Imports inside are
relative, so that a copy of this directory works under any name.
"""

from .cache import Build
from .errors import CompileError, HostError
from .signatures import Parameter

__all__ = ["Build", "CompileError", "HostError", "Parameter"]
