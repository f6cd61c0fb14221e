"""Names for people of what a graph of operators computes: "rms_norm" for the six nodes that compute it.

An operator that was decomposed keeps its name, a product by a weight is `linear`, and an RMS normalisation that is
written out is one, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Graph, Node

from warpsmith.workers.optimize.operators import kind, name, tensor, weight

_LABEL = "label"
_FREE = ("view", "source", "other")
_SAID = {
    "native_layer_norm": "layer_norm",
    "_softmax": "softmax",
    "_to_copy": "to",
    "convert_element_type": "to",
    "_fused_rms_norm": "rms_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "convolution": "conv",
}
_CAST = "convert_element_type"

Label = tuple[str, int]
"""What is said of nodes, and the number of this occurrence in its graph."""


def label(graph: Graph) -> None:
    """Name each node of a graph, in its `meta`; nodes that compute one thing have one label."""
    for number, node in enumerate(graph.nodes):
        if kind(node) != "other":
            node.meta[_LABEL] = _of(node, number)
    _join(graph)
    for node in graph.nodes:
        if name(node) == "rsqrt" and (found := _rms_norm(node)):
            said = ("rms_norm", node.meta[_LABEL][1])
            for each in found:
                each.meta[_LABEL] = said


def of(node: Node) -> Label:
    """Return a node's label."""
    found: Label = node.meta.get(_LABEL) or (name(node), 0)
    return found


def is_norm(node: Node) -> bool:
    """Return whether a node is of a normalisation over the last axis."""
    return of(node)[0] in ("rms_norm", "layer_norm")


def _of(node: Node, number: int) -> Label:
    called = name(node)
    if kind(node) == "product" and any(weight(_unviewed(each)) for each in node.all_input_nodes):
        return ("conv" if called == "convolution" else "linear", number)
    if kind(node) == "attention":
        return "scaled_dot_product_attention", number
    made = _origin(node) if _is_part(node) else called
    return _SAID.get(made, made), number


def _join(graph: Graph) -> None:
    """Give the parts of one operator that was decomposed one label."""
    first: dict[Label, Label] = {}

    def root(label: Label) -> Label:
        while label in first:
            label = first[label]
        return label

    for node in graph.nodes:
        if not _is_part(node):
            continue
        for source in node.all_input_nodes:
            before = _unviewed(source) if name(source) == "getitem" else source
            if _is_part(before) and _origin(before) == _origin(node):
                one, other = root(before.meta[_LABEL]), root(node.meta[_LABEL])
                if one != other:
                    first[max(one, other, key=_number)] = min(one, other, key=_number)
    for node in graph.nodes:
        if _LABEL in node.meta:
            node.meta[_LABEL] = root(node.meta[_LABEL])


def _number(label: Label) -> int:
    return label[1]


def _is_part(node: Node) -> bool:
    """Return whether a node is what became of an operator that was decomposed."""
    return kind(node) not in ("view", "source", "product", "attention", "other") and _origin(node) != name(node)


def _origin(node: Node) -> str:
    """Return the name of the operator that a node was made of."""
    made = node.meta.get("original_aten")
    return str(made._schema.name).rpartition("::")[2] if isinstance(made, torch._ops.OpOverload) else name(node)


def _unviewed(node: Node) -> Node:
    """Return what a node is a view of."""
    while kind(node) == "view" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _rms_norm(node: Node) -> list[Node]:
    """Return the nodes of an RMS normalisation whose reciprocal root this is; none where it is no such."""
    chain = [node]
    for wanted in (("add",), ("mean",)):
        before = chain[-1].args[0]
        if not isinstance(before, Node) or name(before) not in wanted:
            return []
        chain.append(before)
    squares = chain[-1].args[0]
    if not isinstance(squares, Node) or name(squares) not in ("pow", "mul"):
        return []
    x = squares.args[0]
    scaled = [user for user in node.users if name(user) == "mul" and x in user.all_input_nodes]
    if not isinstance(x, Node) or not scaled:
        return []
    found = [*chain, squares, scaled[0]]
    if name(x) == _CAST and all(user in found for user in x.users):
        found.append(x)
    return found + _scales(x, scaled[0])


def _scales(x: Node, last: Node) -> list[Node]:
    """Return what multiplies a normalised tensor by a weight, or by a weight and a number, with the casts around it."""
    found: list[Node] = []
    dtype = x.all_input_nodes[0].meta["val"].dtype if name(x) == _CAST else None
    weighed = False
    while len(last.users) == 1:
        user = next(iter(last.users))
        by = [] if weighed else _weight_of(user, last)
        back = name(user) == _CAST and user.meta["val"].dtype == dtype
        if not by and not back:
            break
        found += [each for each in (user, *by) if weight(each) is None]
        weighed = weighed or bool(by)
        last = user
    return found


def _weight_of(node: Node, given: Node) -> list[Node]:
    """Return the weight of one axis that a node multiplies by, with what is made of it first, or nothing."""
    if name(node) != "mul":
        return []
    made: list[Node] = []
    for each in node.all_input_nodes:
        if each is given:
            continue
        made = [each]
        while weight(made[-1]) is None and name(made[-1]) in ("add", _CAST) and len(made[-1].all_input_nodes) == 1:
            if len(made[-1].users) > 1:
                return []
            made.append(made[-1].all_input_nodes[0])
    value = tensor(made[-1]) if made else None
    return made if value is not None and value.dim() == 1 and weight(made[-1]) is not None else []


def title(nodes: Sequence[Node]) -> str:
    """Return what nodes compute that costs something, each thing once, in order: "rms_norm + 3 linear"."""
    return " + ".join(said if count == 1 else f"{count} {said}" for said, count in counted(nodes))


def counted(nodes: Sequence[Node]) -> list[tuple[str, int]]:
    """Return what nodes compute that costs something, with how many of it are in a row."""
    found: list[tuple[str, int]] = []
    for said, _ in dict.fromkeys(of(node) for node in nodes if kind(node) not in _FREE):
        count = found.pop()[1] if found and found[-1][0] == said else 0
        found.append((said, count + 1))
    return found
