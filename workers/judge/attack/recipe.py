"""Recipes: read them strictly, make their values, say in plain words what they are.

The same recipe on the same workload gives the same values on every machine of one device type: the declared values
come from the recipe's seed, and every change that draws has a number of its own, so that leaving one change out alters
no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedWorkload
from warpsmith.workers.judge.attack.bounds import keep_within, kind_of
from warpsmith.workers.judge.attack.float_moves import FLOAT_MOVES
from warpsmith.workers.judge.attack.move import Change, Move, Parameter, Target
from warpsmith.workers.judge.attack.other_moves import OTHER_MOVES
from warpsmith.workers.judge.values.inputs import broadcast, input_spec
from warpsmith.workers.judge.values.workload_specs import Values

MOVES: dict[str, Move] = {move.name: move for move in (*FLOAT_MOVES, *OTHER_MOVES)}

MOST_CHANGES = 8
_ALWAYS = frozenset({"input", "move"})
_GOLDEN = 0x9E3779B97F4A7C15

DrawBase = Callable[[int], Values]
"""Draws a workload's declared values under a seed."""


class BadRecipe(ValueError):  # noqa: N818 - named for what it is
    """A recipe that cannot be asked; the message names the field, what was found and what was expected."""


def check_recipe(recipe: Recipe, workload: ResolvedWorkload, field: str = "recipe") -> None:
    """Raise BadRecipe unless a recipe can be made on a workload."""
    if not -(2**63) <= recipe["seed"] < 2**63:
        raise BadRecipe(f"{field}.seed: found {recipe['seed']}, expected a whole number of at most 64 bits")
    if len(recipe["changes"]) > MOST_CHANGES:
        raise BadRecipe(f"{field}.changes: found {len(recipe['changes'])}, expected at most {MOST_CHANGES}")
    items = {item["name"]: item for item in workload["inputs"]}
    for position, change in enumerate(recipe["changes"]):
        _check_change(change, items, f"{field}.changes[{position}]")


def _check_change(change: Change, items: dict[str, ResolvedInput], field: str) -> None:
    name, move = change.get("input"), MOVES.get(str(change.get("move")))
    if not isinstance(name, str) or name not in items:
        raise BadRecipe(f"{field}.input: found {name!r}, expected one of {', '.join(items)}")
    kind = kind_of(items[name])
    if move is None or kind not in move.kinds:
        able = ", ".join(sorted(one.name for one in MOVES.values() if kind in one.kinds))
        raise BadRecipe(f"{field}.move: found {change.get('move')!r}, expected one of {able or 'none for ' + name}")
    for parameter, allowed in move.parameters.items():
        if not _suits(change.get(parameter), allowed):
            found = repr(change.get(parameter))[:100]
            raise BadRecipe(f"{field}.{parameter}: found {found}, expected {_expected(allowed)}")
    if unknown := sorted(map(str, change.keys() - _ALWAYS - move.parameters.keys())):
        raise BadRecipe(
            f"{field}.{unknown[0][:100]}: found it, expected {', '.join(move.parameters) or 'no parameters'}"
        )


def _suits(value: Any, allowed: Parameter) -> bool:
    if isinstance(allowed[0], str):
        return isinstance(value, str) and value in allowed
    if isinstance(value, bool) and allowed != (-1e300, 1e300):
        return False
    kinds = (int,) if isinstance(allowed[0], int) else (int, float)
    return isinstance(value, kinds) and allowed[0] <= value <= allowed[1]


def _expected(allowed: Parameter) -> str:
    if isinstance(allowed[0], str):
        return f"one of {', '.join(map(str, allowed))}"
    what = "a whole number" if isinstance(allowed[0], int) else "a number"
    return f"{what} from {allowed[0]:g} to {allowed[1]:g}"


def describe(recipe: Recipe) -> str:
    """Say in plain words, a line for each change, what the values of a recipe are. Never fails."""
    lines = []
    for change in recipe["changes"]:
        move = MOVES.get(str(change.get("move")))
        try:
            said = f"changed by {change.get('move')}" if move is None else move.says(change)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):  # a document of somebody else's
            said = f"changed by {change.get('move')}"
        lines.append(f"{change.get('input')}: {said}")
    return "\n".join(lines) or "the declared values"


def variant(workload: ResolvedWorkload, recipe: Recipe) -> ResolvedWorkload:
    """Return the workload with the scalars of a recipe; itself where it changes none."""
    numbers = {change["input"]: change["number"] for change in recipe["changes"] if change["move"] == "number"}
    if not numbers:
        return workload
    inputs: list[ResolvedInput] = [
        {**item, "value": numbers.get(item["name"], item["value"])} for item in workload["inputs"]
    ]
    return {**workload, "inputs": inputs}


def build(recipe: Recipe, workload: ResolvedWorkload, base: Values) -> list[torch.Tensor | None]:
    """Return the values of a recipe; `base` are the declared ones under its seed."""
    values = list(base)
    places = {item["name"]: place for place, item in enumerate(workload["inputs"])}
    touched: dict[int, torch.Tensor] = {}
    for change in recipe["changes"]:
        place = places[change["input"]]
        item, value = workload["inputs"][place], values[place]
        if value is None:
            continue
        wide = touched.get(place)
        if wide is None:
            wide = value.to(torch.float64) if value.is_floating_point() else value
            wide = wide.reshape(1) if wide.dim() == 0 else wide  # moves want an axis
        generator = torch.Generator(wide.device).manual_seed(_seed(recipe["seed"], change))
        touched[place] = MOVES[change["move"]].apply(Target(wide, item, generator), change)
    for place, wide in touched.items():
        item = workload["inputs"][place]
        shaped = wide.reshape(item["shape"] or [])
        kept = keep_within(shaped, item) if shaped.is_floating_point() else shaped
        values[place] = broadcast(kept.to(getattr(torch, item["dtype"])).contiguous(), input_spec(item))
    return values


def _seed(seed: int, change: Change) -> int:
    return (seed ^ (int(change.get("draw", 0)) * _GOLDEN)) & (2**62 - 1)


def moves_for(item: ResolvedInput) -> Sequence[Move]:
    """Return the moves that suit an input."""
    kind = kind_of(item)
    return [move for move in MOVES.values() if kind in move.kinds]
