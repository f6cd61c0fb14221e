"""The `hf-kernels` format: a repository that Hugging Face `kernels` loads, offline too.

Layout and metadata: https://huggingface.co/docs/kernels. The variant's directory is the package itself; beside it stand
`layers.py`, where the op is like a layer, and `_ops.py`. `id` holds the content's hash, because loading two
repositories that share an op namespace would silently change the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from warpsmith.kernels_db.export.evidence import LICENSE_HEADER, license_text, provenance, summary
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import (
    ExportedKernel,
    attribute_source,
    module_name,
    runtime_needs,
    write_project,
)
from warpsmith.kernels_db.export.layer_facts import epsilons, flattens, is_activation
from warpsmith.kernels_db.export.package import importable_files
from warpsmith.kernels_db.export.spec_module import scalar_type
from warpsmith.kernels_db.spec.op import Input, Op, Target, parse_op

VERSION = 1
"""Of the repository: another kernel is another repository, so it never counts up."""


def build(kernel: ExportedKernel, directory: Path, *others: ExportedKernel) -> Path:
    """Write the repository into a new directory below `directory` and return that.

    It holds the other kernels as well, and where they are for several types of device, a variant for each. Raises
    FileExistsError where the directory exists, SpecErrors where the others are not of the same op.
    """
    kernels = joined([kernel, *others])
    op = parse_op(kernels[0].spec)
    module = module_name(*kernels)
    devices = devices_of(kernels)
    files: dict[str, str] = {}
    for device in devices:
        content = _variant(kernels, op, module, device)
        files |= {f"build/torch-{device}/{name}": text for name, text in content.items()}
    files["README.md"] = _readme(kernels, op, module, devices)
    files["LICENSE"] = license_text()
    return write_project(directory, repository_name(module), files)


def devices_of(kernels: Sequence[ExportedKernel]) -> list[str]:
    """Return the types of device that the kernels are for."""
    return list(dict.fromkeys(Target.parse(kernel.target).device for kernel in kernels))


def repository_name(module: str) -> str:
    """Return the repository's name: `kernels` takes lower case letters, digits and hyphens."""
    return module.lower().replace("_", "-")


def layer_name(op: Op) -> str | None:
    """Return the layer's class, or None where the op is nothing like a layer.

    A layer's `forward` takes activations and returns outputs; weights and numbers it reads from the module that it
    replaces. An op that writes into its inputs or takes no activation is none.
    """
    arguments = [*op.inputs, *(state.as_input() for state in op.state)]
    if any(item.mutated or item.name == "self" for item in arguments) or not any(
        is_activation(item) for item in op.inputs
    ):
        return None
    return "".join(part[:1].upper() + part[1:] for part in op.name.split("_"))


def _variant(kernels: Sequence[ExportedKernel], op: Op, module: str, device: str) -> dict[str, str]:
    files = importable_files(kernels, module)
    name = layer_name(op)
    if name is not None:
        files["__init__.py"] += "\nfrom . import layers  # noqa: E402,F401 - `kernels` looks for layers here\n"
        files["layers.py"] = _layers(op, name)
    files["_ops.py"] = _ops(module)
    files["metadata.json"] = json.dumps(_metadata(kernels, module, device), indent=1, sort_keys=True)
    return files


def _metadata(kernels: Sequence[ExportedKernel], module: str, device: str) -> dict[str, object]:
    """Return a variant's metadata, with the kernels' origin under a key of our own.

    `kernels` ignores keys that it does not know.
    """
    return {
        "name": repository_name(module),
        "id": module,
        "version": VERSION,
        "license": "apache-2.0",
        "python-depends": [],
        "backend": {"type": device},
        "warpsmith": provenance(*kernels),
    }


def _ops(module: str) -> str:
    return f'''{LICENSE_HEADER}"""The op's namespace, as `kernels` has it."""

import torch

from . import _op  # noqa: F401 - registers the op

ops = torch.ops.{module}


def add_op_namespace_prefix(op_name: str) -> str:
    """The op's full name."""
    return f"{module}::{{op_name}}"
'''


def _layers(op: Op, name: str) -> str:
    """Return the source of one layer class.

    `kernels` allows no constructor in it, no helper, and only bare annotations for the host's attributes.
    """
    arguments = {item.name: item.name if is_activation(item) else f"self.{item.name}" for item in op.inputs}
    arguments |= {state.name: attribute_source(state.attribute) for state in op.state}
    taken = [item.name for item in op.inputs if is_activation(item)]
    held = {item.name: _held_type(item) for item in op.inputs if not is_activation(item)}
    for state in op.state:
        head, _, rest = state.attribute.partition(".")
        held[head] = "torch.nn.Module" if rest else "torch.Tensor"
    outputs = ["torch.Tensor"] * len(op.outputs)
    returns = outputs[0] if len(outputs) == 1 else f"tuple[{', '.join(outputs)}]"
    lines = [
        LICENSE_HEADER.rstrip("\n"),
        f'"""{op.name} as a layer for `kernelize`."""',
        "",
        "import torch",
        "",
        "from . import _op",
        "",
        "",
        f"class {name}(torch.nn.Module):",
        f'    """Stands in for a module whose `forward` takes {", ".join(taken)}'
        + (f' and which has {", ".join(held)}."""' if held else '."""'),
        "",
        "    has_backward = True",
        "    can_torch_compile = True",
        *([""] if held else []),
        *(f"    {attribute}: {kind}" for attribute, kind in held.items()),
        "",
        f"    def forward(self, {', '.join(f'{item}: torch.Tensor' for item in taken)}) -> {returns}:",
        *_body(op, arguments, taken),
    ]
    return "\n".join(lines) + "\n"


def _said_of_rows(op: Op) -> list[str]:
    lines = ["Further leading axes become rows of the op.", ""] if flattens(op) else []
    if found := epsilons(op):
        said = "the layer looks at `variance_epsilon` and `eps`, and lets PyTorch serve another one"
        other = "the layer does not look whether the host module has another one"
        shown = ", ".join(map(repr, found))
        lines += [f"The op's epsilon is {shown}: {said if op.name == 'rms_norm' else other}.", ""]
    return lines


def _body(op: Op, arguments: Mapping[str, str], taken: Sequence[str]) -> list[str]:
    """Return the statements of `forward`.

    Models call such layers with more leading axes than the op has, and with an epsilon of their own.
    """
    lines = []
    found = epsilons(op)
    if op.name == "rms_norm" and len(found) == 1 and len(arguments) == 2:
        x, weight = (arguments[item.name] for item in op.inputs)
        lines += [
            f"        epsilon = getattr(self, 'variance_epsilon', getattr(self, 'eps', {found[0]!r}))",
            f"        if epsilon != {found[0]!r}:  # another op than the kernel's: PyTorch serves it",
            f"            return torch.nn.functional.rms_norm({x}, {weight}.shape, {weight}, epsilon)",
        ]
    if not flattens(op):
        return [*lines, f"        return _op.call({', '.join(arguments.values())})"]
    rows = {name: f"{name}.reshape(-1, {name}.shape[-1])" for name in taken}
    lines += [
        f"        leading = {taken[0]}.shape[:-1]",
        f"        found = _op.call({', '.join(rows.get(value, value) for value in arguments.values())})",
    ]
    if len(op.outputs) == 1:
        return [*lines, "        return found.reshape(*leading, found.shape[-1])"]
    return [*lines, "        return tuple(each.reshape(*leading, each.shape[-1]) for each in found)"]


def _held_type(item: Input) -> str:
    name = scalar_type(item.dtype) if item.shape is None else "torch.Tensor"
    return f"{name} | None" if item.optional else name


def _readme(kernels: Sequence[ExportedKernel], op: Op, module: str, devices: list[str]) -> str:
    repository, name = repository_name(module), layer_name(op)
    lines = [
        "---",
        "license: apache-2.0",
        "tags: [kernels]",
        "---",
        "",
        f"# {repository}",
        "",
        f"`{op.name}`: {' '.join(op.description.split())}",
        "",
        "```python",
        "from pathlib import Path",
        "from kernels import get_local_kernel",
        "",
        f'kernel = get_local_kernel(Path("{repository}"))',
        f"kernel.{op.name}(...)          # kernel.explain(...) says which implementation serves a call, and why",
        "```",
        "",
    ]
    if name is not None:
        lines += [
            f"`LocalLayerRepository(repo_path=Path(...), layer_name={name!r})` puts it into a model with `kernelize`.",
            "The host module's `forward` has to take the same arguments in the same order: `kernels` compares their",
            "number and kind, not their names. See `layers.py`.",
            "",
            *_said_of_rows(op),
        ]
    else:
        lines += ["It has no layer: an op that writes into its inputs cannot stand in for a module.", ""]
    needed = runtime_needs(kernels)
    if needed:
        lines += [
            f"The export needs {' and '.join(needed)}, which `kernels` lets no repository declare; without it PyTorch",
            "serves every call.",
            "",
        ]
    if "cpu" in devices:
        lines += ["The kernel for the CPU is compiled at its first call, by `g++` or what `CXX` names, and cached.", ""]
    said = [line.replace("```", "'''") for line in summary(*kernels)]
    return "\n".join([*lines, "```text", *said, "```", ""])
