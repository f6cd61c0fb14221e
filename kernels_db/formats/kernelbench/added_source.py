"""Python source that follows a problem's own in a spec: its reference and its generators."""

from __future__ import annotations

CONSTRUCTED = '''

def _constructed(construct):
    """Construct as get_init_inputs() says, which JSON cannot."""

    def init(self, *arguments):
        construct(self, *(arguments or get_init_inputs()))

    return init


Model.__init__ = _constructed(Model.__init__)
'''
REGISTERED = '''

def _registered(construct):
    """Make buffers of the tensors that are kept as plain attributes: a spec's state can be given then."""
    import torch

    def init(self, *arguments):
        construct(self, *arguments)
        for part in list(self.modules()):
            for name, value in list(vars(part).items()):
                if isinstance(value, torch.Tensor):
                    delattr(part, name)
                    part.register_buffer(name, value, persistent=False)

    return init


Model.__init__ = _registered(Model.__init__)
'''
KEEPING = '''

def _keeping(compute):
    """Change copies of the module's own buffers in a call: a spec's state is only read."""

    def forward(self, {parameters}):
        for path in {owners}:
            part = self.get_submodule(path)
            for name, buffer in list(part.named_buffers(recurse=False)):
                setattr(part, name, buffer.clone())
        return compute(self, {parameters})

    return forward


Model.forward = _keeping(Model.forward)
'''
INPUT = """

def make(shape, dtype, generator):
    import torch
    from kernels_db.formats.stand_in import on

    torch.manual_seed(generator.initial_seed())
    with on(torch.device("cpu")):
        return get_inputs()[{number}].contiguous()
"""
STATE = """

def make(shape, dtype, generator):
    import torch
    from kernels_db.formats.stand_in import on

    torch.manual_seed(generator.initial_seed())
    with on(torch.device("cpu")), torch.no_grad():
        model = Model(*get_init_inputs())
        return dict([*model.named_parameters(), *model.named_buffers()])[{name!r}].detach().clone().contiguous()
"""
PLAIN = """

def make(shape, dtype, generator):
    import operator

    import torch
    from kernels_db.formats.stand_in import on

    torch.manual_seed(generator.initial_seed())
    with on(torch.device("cpu")), torch.no_grad():
        return operator.attrgetter({name!r})(Model(*get_init_inputs())).detach().clone().contiguous()
"""
