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
from warpsmith.kernels_db.export.layer_facts import HostNumber, flattens, host_numbers, is_activation
from warpsmith.kernels_db.export.package import importable_files
from warpsmith.kernels_db.export.spec_module import scalar_type
from warpsmith.kernels_db.spec.op import Input, Op, Target

VERSION = 1
"""Of the repository: another kernel is another repository, so it never counts up."""


def build(kernel: ExportedKernel, directory: Path, *others: ExportedKernel, name: str | None = None) -> Path:
    """Write the repository into a new directory below `directory` and return that.

    It holds the other kernels as well, and where they are for several types of device, a variant for each. Raises
    FileExistsError where the directory exists, SpecErrors where the others are not of the same op.
    """
    kernels = joined([kernel, *others])
    op = kernels[0].op
    module = name or module_name(*kernels)
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
    replaces. An op that writes into its inputs or takes no activation is none, nor is one with an epsilon or the like
    that no constant of its reference says: no host could be held against it.
    """
    if host_numbers(op) is None:
        return None
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


def _said_of_host(op: Op) -> list[str]:
    lines = ["Further leading axes become rows of the op.", ""] if flattens(op) else []
    numbers = [f"{' or '.join(f'`{name}`' for name in item.names)} {item.value!r}" for item in _numbers(op)]
    said = f"A host module with other numbers than the op's ({', '.join(numbers)}), " if numbers else "A host module "
    lines += [
        f"{said}without a weight that the op takes or with one that it does not, and a call of another rank run the",
        "host's own `forward`.",
        "",
    ]
    return lines


def _numbers(op: Op) -> list[HostNumber]:
    found = host_numbers(op)
    assert found is not None  # then there is no layer
    return found


def _body(op: Op, arguments: Mapping[str, str], taken: Sequence[str]) -> list[str]:
    """Return the statements of `forward`.

    A host that is not the op, by its numbers or its weights, runs its own `forward`: `kernels` sets ours on the
    instance, so its class still has it. Models call such layers with more leading axes than the op has.
    """
    conditions = [_is_number(item) for item in _numbers(op)] + _held_alike(op)
    rows = flattens(op)
    activations = {item.name: len(item.shape or ()) for item in op.inputs if is_activation(item)}
    if rows:
        first, *others = activations
        lead = {name: f"{name}.shape[: {name}.dim() - {rank - 1}]" for name, rank in activations.items()}
        conditions.append(" and ".join(f"{name}.dim() >= {rank - 1}" for name, rank in activations.items()))
        conditions += [f"{lead[name]} == {lead[first]}" for name in others]
    else:
        conditions += [f"{name}.dim() == {rank}" for name, rank in activations.items()]
    lines = [
        f"        if not ({conditions[0]}"
        if len(conditions) == 1
        else f"        if not (\n            {conditions[0]}",
        *(f"            and {condition}" for condition in conditions[1:]),
    ]
    lines = [*lines[:-1], f"{lines[-1]}):"] if len(conditions) == 1 else [*lines, "        ):"]
    lines.append(f"            return type(self).forward(self, {', '.join(taken)})  # the host is not the op")
    if not rows:
        return [*lines, f"        return _op.call({', '.join(arguments.values())})"]
    named = {name: f"{name}.reshape(-1, *{name}.shape[{name}.dim() - {activations[name] - 1} :])" for name in taken}
    lines += [
        f"        leading = {lead[taken[0]]}",
        f"        found = _op.call({', '.join(named.get(value, value) for value in arguments.values())})",
    ]
    if len(op.outputs) == 1:
        return [*lines, "        return found.reshape(*leading, *found.shape[1:])"]
    return [*lines, "        return tuple(each.reshape(*leading, *each.shape[1:]) for each in found)"]


def _is_number(item: HostNumber) -> str:
    """Return the condition that the host has a number of the op, under one of its names."""
    found = repr(item.value) if item.optional else "None"
    for name in reversed(item.names):
        found = f'getattr(self, "{name}", {found})'
    return f"{found} {'is' if item.value is None else '=='} {item.value!r}"


def _held_alike(op: Op) -> list[str]:
    """Return the conditions that the host's weights are those that the op takes, of their ranks, and no others."""
    conditions = []
    held = [item for item in op.inputs if not is_activation(item)]
    for item in held:
        value = f'getattr(self, "{item.name}", None)'
        if item.shape is None:
            conditions.append(f"{value} is not None")
        else:
            conditions += [f"isinstance({value}, torch.Tensor)", f"self.{item.name}.dim() == {len(item.shape)}"]
    known = [item.name for item in held] + [state.attribute for state in op.state if "." not in state.attribute]
    own = f" and name not in {tuple(known)!r}" if known else ""
    return [*conditions, f"not [name for name, one in self._parameters.items() if one is not None{own}]"]


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
            *_said_of_host(op),
        ]
    else:
        reason = "one that writes into its inputs, or whose epsilon is no constant, cannot stand in for a module"
        lines += [f"The op has no layer: {reason}.", ""]
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
