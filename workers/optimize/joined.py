"""Join regions of a model into larger ones that one kernel could compute as well, without what lies between.

- products of one input: queries, keys and values; gate and up with the activation between them;
- a normalisation with the products that take its result;
- a product with the residual that is added to its result;
- half of a layer: a normalisation, products, the activation, the product back and the residual.

What is joined is proposed beside its parts: a search finds out which pays. Pure functions of a graph and its regions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from torch.fx import Graph, Node

from warpsmith.workers.optimize import labels
from warpsmith.workers.optimize.compiled.match import convex
from warpsmith.workers.optimize.operators import kind, name, tensor, weight
from warpsmith.workers.optimize.regions import Region, region_of

MOST_OUTPUTS = 4
"""Of a region that is joined: queries, keys, values and the sum before."""


def join(graph: Graph, found: Sequence[Region]) -> list[Region]:
    """Return the larger regions that can be made of those that were found, in the graph's order."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    known = {frozenset(_costly(region.nodes)) for region in found}
    joined = []
    for nodes in _proposed(graph, found):
        region = region_of(list(dict.fromkeys(nodes)), order, MOST_OUTPUTS) if convex(set(nodes)) else None
        if region is None or (costly := frozenset(_costly(region.nodes))) in known or not convex(set(region.nodes)):
            continue
        known.add(costly)
        parts = tuple(part for part in found if costly & set(part.nodes))
        joined.append(dataclasses.replace(region, parts=parts))
    return sorted(joined, key=lambda region: order[region.nodes[0]])


def bytes_saved(region: Region) -> int:
    """Return the bytes that the parts of a region write and read between them, which it does not.

    Of one call: what the parts take and give, less what the region takes and gives.
    """
    return max(0, sum(map(_traffic, region.parts)) - _traffic(region)) if region.parts else 0


def _traffic(region: Region) -> int:
    values = [value for node in (*region.inputs, *region.outputs) if (value := tensor(node)) is not None]
    return sum(value.numel() * value.element_size() for value in values)


def _proposed(graph: Graph, found: Sequence[Region]) -> Iterator[list[Node]]:
    products = {node: region for region in found for node in region.nodes if _is_linear(node)}
    for product, region in products.items():
        if (added := _residual(region, product)) and added[-1] not in region.nodes:
            yield [*region.nodes, *added]
    for source, siblings in _by_source(products).items():
        together = [node for product in siblings for node in products[product].nodes]
        norm = _normalisation(graph, source)
        if len(siblings) > 1:
            yield together
        if norm:
            yield [*norm, *together]
        yield from _half(norm, together, siblings, products)


def _half(
    norm: list[Node], together: list[Node], siblings: list[Node], products: dict[Node, Region]
) -> Iterator[list[Node]]:
    """Yield the half of a layer that goes on from sibling products, where all they give goes into one product."""
    ends = [node for node in dict.fromkeys(together) if any(user not in together for user in node.users)]
    ends = [node for node in ends if kind(node) not in ("view", "source") or _unviewed(node) in together]
    backs = {back for node in ends for back in _products_of(node)}
    back = next(iter(backs), None)
    if back is None or back in siblings or len(backs) != 1 or any(_products_of(node) != backs for node in ends):
        return
    region = products.get(back)
    if region is None:
        return
    whole = [*norm, *together, *region.nodes]
    yield whole
    if added := _residual(region, back):
        yield [*whole, *added]


def _products_of(node: Node) -> set[Node | None]:
    """Return the products by weights that take a node's result; None among them for anything else that does."""
    found: set[Node | None] = set()
    for user in node.users:
        if _is_linear(user):
            found.add(user)
        elif kind(user) == "view":
            found |= _products_of(user)
        else:
            found.add(None)
    return found


def _by_source(products: dict[Node, Region]) -> dict[Node, list[Node]]:
    """Return the products by what they take besides weights, without views."""
    found: dict[Node, list[Node]] = {}
    for product in products:
        taken = [node for node in product.all_input_nodes if not _from_weight(node)]
        if len(taken) == 1:
            found.setdefault(_unviewed(taken[0]), []).append(product)
    return found


def _normalisation(graph: Graph, node: Node) -> list[Node]:
    """Return the nodes of the normalisation whose result this is; none where it is none."""
    if not labels.is_norm(node):
        return []
    own = [each for each in graph.nodes if labels.of(each) == labels.of(node)]
    views = {user for each in own for user in each.users if kind(user) == "view"}
    inside = {*own, *(view for view in views if all(user in own for user in view.users))}
    if any(user not in inside for each in own if each is not node for user in each.users):
        return []
    return [each for each in graph.nodes if each in inside]


def _residual(region: Region, product: Node) -> list[Node]:
    """Return the addition of another tensor to all that a product's region gives, with the views before it."""
    if len(region.outputs) != 1:
        return []
    node, taken = region.outputs[0], []
    while True:
        if len(node.users) != 1:
            return []
        user = next(iter(node.users))
        taken.append(user)
        if kind(user) != "view":
            break
        node = user
    values = [tensor(each) for each in user.all_input_nodes]
    plain = name(user) == "add" and len(values) == 2 and kind(product) == "product"
    if not plain or any(value is None or value.shape != user.meta["val"].shape for value in values):
        return []
    return taken


def _is_linear(node: Node) -> bool:
    return kind(node) == "product" and labels.of(node)[0] == "linear"


def _from_weight(node: Node) -> bool:
    return weight(_unviewed(node)) is not None


def _unviewed(node: Node) -> Node:
    while kind(node) == "view" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _costly(nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if kind(node) not in ("view", "source")]
