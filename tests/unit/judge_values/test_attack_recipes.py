"""Recipes of a counterexample search: they round-trip, keep within what an input may hold, and are told in words."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.jobs import output, scalar, tensor, workload
from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.workers.judge.attack.bounds import bounds_of, integers_of
from warpsmith.workers.judge.attack.openings import EQUAL, MEETING, certain, openings
from warpsmith.workers.judge.attack.oracle import Answer
from warpsmith.workers.judge.attack.recipe import MOVES, BadRecipe, build, check_recipe, describe, moves_for, variant
from warpsmith.workers.judge.attack.search import drawn, mutated, search
from warpsmith.workers.judge.attack.shrink import rounded
from warpsmith.workers.judge.values.inputs import InputSource

EVERY = workload(
    "every",
    "test",
    [
        tensor("x", (6, 10)),
        tensor("half", (4, 3), dtype="float16", kind="normal"),
        tensor("bf", (5,), dtype="bfloat16", kind="normal", mean=-2.0, std=0.1),
        tensor("scale", (7, 2), kind="uniform", low=0.5, high=1.5),
        {**tensor("share", (3, 3), kind="uniform", high=0.1), "values": {"finite": True, "range": [0.0, 0.1]}},
        tensor("fixed", (8,), kind="constant", value=3.0),
        tensor("index", (5, 4), dtype="int64", kind="randint", low=2, high=9),
        tensor("mask", (4, 5), dtype="bool", kind="bernoulli"),
        tensor("order", (3, 6), dtype="int32", kind="permutation"),
        tensor("offsets", (5,), dtype="int32", kind="indptr", total=12),
        tensor("ends", (4,), dtype="int32", kind="ends", total=9),
        tensor("spd", (4, 4), dtype="float64", kind="spd"),
        tensor("point", ()),
        scalar("m", 0.75),
    ],
    [output("y", (6, 10))],
)
INPUTS = {item["name"]: item for item in EVERY["inputs"]}


def declared(seed: int) -> list[torch.Tensor | None]:
    return InputSource(EVERY["inputs"], seed, lambda *_: torch.empty(0)).draw()


def recipe(seed: int, changes: int) -> Recipe:
    rng = random.Random(seed)
    return {"workload": "every", "seed": seed, "changes": [drawn(EVERY, rng) for _ in range(changes)]}


@given(st.integers(0, 2**62 - 1), st.integers(0, 4))
def test_a_recipe_gives_the_same_values_after_json_and_keeps_within_its_inputs(seed: int, changes: int) -> None:
    made = recipe(seed, changes)
    again = json.loads(json.dumps(made, allow_nan=False))
    assert again == made
    check_recipe(again, EVERY)
    values, others = build(made, EVERY, declared(seed)), build(again, EVERY, declared(seed))
    for item, value, other in zip(EVERY["inputs"], values, others, strict=True):
        if value is None:
            continue
        assert torch.equal(torch.nan_to_num(value), torch.nan_to_num(other))
        assert (list(value.shape), value.dtype) == (item["shape"], getattr(torch, item["dtype"]))
        if value.is_floating_point():
            bounds, wide = bounds_of(item), value.double()
            finite = wide[torch.isfinite(wide)]
            assert bool((finite >= bounds.low).all()), item["name"]
            assert bool((finite <= bounds.high).all()), item["name"]
            assert not bounds.finite or len(finite) == wide.numel()
            assert bounds.side == 0 or not bool((wide * bounds.side < 0).any())
    structured = {name: value for name, value in zip(INPUTS, values, strict=True) if value is not None}
    low, high = integers_of(INPUTS["index"])
    assert (low, high) == (2, 8)
    assert int(structured["index"].min()) >= low
    assert int(structured["index"].max()) <= high
    assert bool((structured["order"].sort(-1).values == torch.arange(6)).all())
    offsets = structured["offsets"]
    assert (int(offsets[0]), int(offsets[-1])) == (0, 12)
    assert bool((offsets.diff() >= 0).all())
    ends = structured["ends"]
    assert (int(ends[0]) >= 0, int(ends[-1])) == (True, 9)
    assert bool((ends.diff() >= 0).all())
    assert torch.equal(structured["spd"], structured["spd"].mT)


INTEGER_MOVES = ("all equal", "ends", "skew", "count")


@example("int64", -(2**63), 2**63 - 1, 0)
@example("int64", 0, 2**63 - 1, 3)
@given(
    st.sampled_from(["int8", "int32", "int64"]),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**31),
)
def test_integers_are_asked_over_all_that_their_values_say(dtype: str, one: int, other: int, seed: int) -> None:
    ends = torch.iinfo(getattr(torch, dtype))
    low, high = (max(ends.min, min(ends.max, end)) for end in sorted((one, other)))
    item = tensor("index", (40,), dtype=dtype, kind="randint", low=low, high=low + 1)
    assert integers_of(item) == (low, low), "nothing is said of it: what its distribution gives"
    item["values"] = {"range": [low, high]}
    assert integers_of(item) == (low, high)
    where = workload("integers", "test", [item], [output("y", (40,))])
    for move in INTEGER_MOVES:
        change = {"input": "index", "move": move, **MOVES[move].draw(item, random.Random(seed))}
        for told in [change, {**change, "at": 1.0}] if move == "all equal" else [change]:
            [value] = build({"workload": "integers", "seed": 1, "changes": [told]}, where, [torch.full((40,), low)])
            assert value is not None
            assert low <= int(value.min()) <= int(value.max()) <= high
            if move == "ends":
                assert set(value.tolist()) <= {low, high}


@given(st.integers(0, 2**62 - 1))
def test_mutations_and_rounder_parameters_are_recipes_too(seed: int) -> None:
    rng = random.Random(seed)
    change = drawn(EVERY, rng)
    for other in (mutated(change, EVERY, rng), *rounded(change)):
        check_recipe({"workload": "every", "seed": 1, "changes": [other]}, EVERY)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MOVE_NAMES = sorted({move.name for item in EVERY["inputs"] for move in moves_for(item)})


@given(
    st.sampled_from(MOVE_NAMES),
    st.dictionaries(st.sampled_from(["axis", "low", "number", "value", "where", "share"]), JSON),
)
def test_describing_never_fails_and_a_bad_recipe_is_refused_by_field(move: str, parameters: dict[str, object]) -> None:
    bad: Recipe = {"workload": "every", "seed": 1, "changes": [{"input": "x", "move": move, **parameters}]}
    assert describe(bad).startswith("x: ")
    with suppress(BadRecipe):  # by chance it is a good one
        check_recipe(bad, EVERY)
        build(bad, EVERY, declared(1))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"input": "z", "move": "scale", "exponent": 1}, "recipe.changes[0].input: found 'z'"),
        (
            {"input": "index", "move": "scale", "exponent": 1},
            "recipe.changes[0].move: found 'scale', expected one of all",
        ),
        ({"input": "x", "move": "scale", "exponent": 1.5}, "recipe.changes[0].exponent: found 1.5"),
        ({"input": "x", "move": "scale", "exponent": True}, "recipe.changes[0].exponent: found True"),
        ({"input": "x", "move": "scale", "exponent": 1, "to": 2}, "recipe.changes[0].to: found it, expected exponent"),
        ({"input": "x", "move": "fill", "number": float("nan")}, "recipe.changes[0].number: found nan"),
    ],
)
def test_a_bad_change_is_refused_with_what_was_found(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadRecipe) as refused:
        check_recipe({"workload": "every", "seed": 1, "changes": [change]}, EVERY)
    assert str(refused.value).startswith(says)


def test_openings_ask_every_move_of_every_input() -> None:
    asked = {
        (change["input"], change["move"]) for one in openings(EVERY, 1, random.Random(1)) for change in one["changes"]
    }
    assert asked >= {(item["name"], move.name) for item in EVERY["inputs"] for move in moves_for(item)}


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_every_opening_can_be_made_in_every_dtype_and_without_axes(dtype: str) -> None:
    inputs = [tensor("x", (3, 4), dtype=dtype, kind="normal"), tensor("point", (), dtype=dtype, kind="normal")]
    small = workload("small", "test", inputs, [output("y", (3, 4))])
    base = InputSource(inputs, 1, lambda *_: torch.empty(0)).draw()
    for made in openings(small, 1, random.Random(1)):
        check_recipe(made, small)
        for value, item in zip(build(made, small, base), inputs, strict=True):
            assert value is not None
            assert (list(value.shape), value.dtype) == (item["shape"], getattr(torch, dtype))


def test_a_scalar_changes_the_workload() -> None:
    changed = variant(
        EVERY, {"workload": "every", "seed": 1, "changes": [{"input": "m", "move": "number", "number": 2}]}
    )
    assert [item["value"] for item in changed["inputs"] if item["name"] == "m"] == [2]
    assert variant(EVERY, {"workload": "every", "seed": 1, "changes": []}) is EVERY


def test_leaving_a_change_out_alters_no_other() -> None:
    two = recipe(5, 0)
    two["changes"] = [
        {"input": "half", "move": "scale", "exponent": 2},
        {"input": "x", "move": "spread", "low": -3, "high": 3, "draw": 7},
    ]
    one: Recipe = {**two, "changes": two["changes"][1:]}
    assert torch.equal(build(two, EVERY, declared(5))[0], build(one, EVERY, declared(5))[0])


def test_describing_names_what_was_done() -> None:
    made: Recipe = {
        "workload": "every",
        "seed": 1,
        "changes": [
            {"input": "x", "move": "grade", "axis": 1, "low": -20, "high": 20, "draw": 1},
            {"input": "x", "move": "plant", "value": "nan", "where": "one", "axis": 0, "draw": 1},
        ],
    }
    assert describe(made).splitlines() == [
        "x: each slice of axis 1 scaled by a power of two from 2^-20 to 2^20",
        "x: one element set to NaN",
    ]


def asked_without_time(*, chief: bool) -> list[Recipe]:
    asked: list[Recipe] = []

    def ask(recipe: Recipe) -> Answer:
        asked.append(recipe)
        return Answer(recipe, None)

    search(EVERY, ask, random.Random(1), 0.0, chief=chief)
    return asked


def test_special_values_of_every_input_are_asked_however_little_time_there_is() -> None:
    asked = asked_without_time(chief=False)
    may = ["x", "half", "bf", "scale", "fixed", "point"]
    assert [one["changes"][0]["input"] for one in asked] == [name for name in may for _ in range(2)]
    for one, ends in zip(asked[::2], asked[1::2], strict=True):
        assert [change["value"] for change in one["changes"]] == ["nan", "inf", "-inf"]
        assert [(change["value"], change["where"]) for change in ends["changes"]] == [("nan", "ends")]


def test_the_chief_workload_is_asked_masked_rows_and_equal_large_numbers_too() -> None:
    others, asked = asked_without_time(chief=False), asked_without_time(chief=True)
    more = [one for one in asked if one not in others and one["changes"][0]["input"] == "x"]
    more, met = [one for one in more if not meets(one)], [one for one in more if meets(one)]
    assert len(met) == len(MEETING)
    places = [one["changes"][0].get("where") for one in more]
    assert places[:2] == ["slice", "first half"]
    assert len(more) == 2 + len(EQUAL)
    for one in more[2:]:
        value = build(one, EVERY, declared(one["seed"]))[0]
        assert value is not None
        assert torch.equal(value, value[:, :1].expand_as(value)), "equal along every axis but the first"
        assert len(value[:, 0].unique()) == len(value)


def meets(one: Recipe) -> bool:
    return one["changes"][-1]["input"] != one["changes"][0]["input"]


@pytest.mark.parametrize("shape", [(6, 10), (10,), ()])
def test_special_values_of_two_inputs_meet_in_an_element(shape: tuple[int, ...]) -> None:
    pair = workload("pair", "test", [tensor("a", (6, 10)), tensor("b", shape)], [output("y", (6, 10))])
    found = [one for one in openings(pair, 3, random.Random(1)) if meets(one)][: len(MEETING)]
    drawn_values = InputSource(pair["inputs"], 3, lambda *_: torch.empty(0)).draw()
    for one, (first, second) in zip(found, MEETING, strict=True):
        a, b = build(one, pair, drawn_values)
        assert a is not None
        assert b is not None
        places = (a == float(first)) & (b == float(second)).expand_as(a)
        assert int(places.sum()) == 1
        assert certain(pair, chief=True) >= openings(pair, 3, random.Random(1)).index(one)
    finite = tensor("f", (6,))
    finite["values"] = {"finite": True}
    alone = workload("alone", "test", [tensor("a", (6, 10)), finite], [])
    assert not [one for one in openings(alone, 3, random.Random(1))[: certain(alone, chief=True)] if meets(one)]


def test_the_places_of_special_values() -> None:
    for where, places in (
        ("ends", [0, 59]),
        ("first half", [row * 10 + column for row in range(6) for column in range(5)]),
    ):
        change = {"input": "x", "move": "plant", "value": "nan", "where": where, "axis": 1, "draw": 1}
        value = build({"workload": "every", "seed": 1, "changes": [change]}, EVERY, declared(1))[0]
        assert value is not None
        assert value.reshape(-1).isnan().nonzero().reshape(-1).tolist() == places
