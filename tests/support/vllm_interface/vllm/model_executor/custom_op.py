"""`CustomOp`: a layer that is dispatched by platform, and that a plugin may replace where it is made."""

import torch

from vllm import config

op_registry: dict = {}
op_registry_oot: dict = {}


class CustomOp(torch.nn.Module):
    """Making a class whose name a plugin registered makes the plugin's."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(op_registry_oot.get(cls.__name__, cls))

    def __init__(self, *, enforce_enable=False, compile_native=False):
        super().__init__()
        self._forward_method = self.dispatch_forward(enforce_enable)

    def forward(self, *args, **kwargs):
        return self._forward_method(*args, **kwargs)

    def forward_native(self, *args, **kwargs):
        raise NotImplementedError

    def forward_cuda(self, *args, **kwargs):
        raise NotImplementedError

    def forward_cpu(self, *args, **kwargs):
        return self.forward_native(*args, **kwargs)

    def forward_oot(self, *args, **kwargs):
        return self.forward_native(*args, **kwargs)

    def dispatch_forward(self, enforce_enable):
        if not (enforce_enable or self.enabled()):
            return self.forward_native
        return {"cpu": self.forward_cpu, "cuda": self.forward_cuda, "oot": self.forward_oot}[config.PLATFORM]

    @classmethod
    def enabled(cls):
        default = "all" in config.CUSTOM_OPS
        return (default or f"+{cls.name}" in config.CUSTOM_OPS) and f"-{cls.name}" not in config.CUSTOM_OPS

    @classmethod
    def register(cls, name):
        def decorator(op_cls):
            assert name not in op_registry, f"Duplicate op name: {name}"
            op_cls.name = name
            op_registry[name] = op_cls
            return op_cls

        return decorator

    @classmethod
    def register_oot(cls, _decorated_op_cls=None, name=None):
        def decorator(op_cls):
            taken = cls.__name__ if name is None else name
            assert taken not in op_registry_oot, f"Duplicate op name: {taken}"
            op_cls.name = taken
            op_registry_oot[taken] = op_cls
            return op_cls

        return decorator if _decorated_op_cls is None else decorator(_decorated_op_cls)
