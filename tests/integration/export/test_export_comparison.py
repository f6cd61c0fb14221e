"""What a package compares with: the numbers that were verified, the spec's arithmetic, and float64 throughout."""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from tests.gate import GATE, GATE_CPP
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

Importer = Callable[..., ModuleType]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(with_plans(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def imported(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    """Export a kernel and import the package. A spec is used once here, so a package's name is its test's own."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(cache))
    monkeypatch.setenv("WARPSMITH_SHADOW_DIR", str(tmp_path / "shadow"))

    def use(spec: dict[str, Any], source: str = SCALED_ADD_CPP, **options: Any) -> ModuleType:
        project = build(exported(spec, source, **options), tmp_path / "exports")
        monkeypatch.syspath_prepend(project)
        return importlib.import_module(project.name)

    return use


def part(package: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{package.__name__}.{name}")


def tensors(rows: int = 40) -> tuple[Any, Any]:
    return torch.randn(rows, 8), torch.randn(rows, 8)


OVERRIDE = [SCALED_ADD["workloads"][0], SCALED_ADD["workloads"][1] | {"inputs": {"m": {"value": 2.0}}}]  # type: ignore[index]


def test_a_number_that_was_not_verified_goes_to_pytorch(imported: Importer) -> None:
    package = imported(SCALED_ADD | {"description": "numbers", "workloads": OVERRIDE})
    x, y = tensors()
    for value in (0.5, 2.0, 2):
        assert package.explain(x, y, value).startswith("kernel")
    for value in (1.0, -0.5, float("nan"), True):
        reason = "PyTorch: m: found another value than was verified (0.5 or 2.0)"
        assert package.explain(x, y, value) == reason
    guard = part(package, "_guard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = len(guard._remembered)
        for value in (step + 0.25 for step in range(50)):
            torch.testing.assert_close(package.scaled_add(x, y, value), x + value * y)
    assert len(guard._remembered) == before, "a number that varies fills no memory"
    status = package.status()
    assert status["served"] == {"kernel": 0, "pytorch": 50}
    assert len(status["fallbacks"]) == 1


def test_numbers_are_verified_together(imported: Importer) -> None:
    second = {"name": "k", "shape": None, "dtype": "float32", "value": 1.0}
    both = {"m": {"value": 2.0}, "k": {"value": 3.0}}
    package = imported(
        SCALED_ADD
        | {
            "inputs": [*SCALED_ADD["inputs"], second],  # type: ignore[misc]
            "reference": "def run(x, y, m, k):\n    return k * x + m * y\n",
            "workloads": [OVERRIDE[0], OVERRIDE[1] | {"inputs": both}],
        },
        SCALED_ADD_CPP.replace("float m,", "float m, float k,")
        .replace("= x[i]", "= k * x[i]")
        .replace("y, m", "y, m, k"),
    )
    x, y = tensors()
    torch.testing.assert_close(package.scaled_add(x, y, 2.0, 3.0), 3 * x + 2 * y)
    assert package.status()["served"] == {"kernel": 1, "pytorch": 0}
    assert package.explain(x, y, 0.5, 3.0) == (
        "PyTorch: m, k: found another value than was verified (0.5, 1.0 or 2.0, 3.0)"
    )


def test_the_packages_own_checks_try_another_number(imported: Importer) -> None:
    package = imported(SCALED_ADD | {"description": "another number"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = part(package, "verify").run("fallback")
    assert (row["outcome"], row["detail"]) == ("passed", "torch.float64, rows = 42, m = 0.75")


NARROW = SCALED_ADD | {
    "reference": "import torch\n\n\ndef run(x, y, m):\n"
    "    scale = torch.ones(8) * m\n"
    "    return (x.to(torch.bfloat16) + scale.to(torch.bfloat16) * y.bfloat16()).float()\n"
}


def test_a_narrow_reference_does_not_make_an_exact_kernel_wrong(imported: Importer) -> None:
    package = imported(NARROW)
    package.shadow(every=1)
    package.scaled_add(*tensors(), 0.5)
    assert package.status()["shadow"] == {"every": 1, "checked": 1, "mismatches": 0, "unchecked": 0}
    selfcheck = part(package, "selfcheck")
    row = selfcheck.check(selfcheck.workloads()[1], 1)
    assert row["agrees"]
    assert row["error"] < 1e-6 < 1e-4 < row["pytorch_error"]


def test_float64_holds_where_the_reference_makes_constants(imported: Importer) -> None:
    reference = (
        "import torch\n\n\ndef run(x, y, m):\n    return x + torch.full((8,), 0.1) * m * y.float().to(x.dtype)\n"
    )
    package = imported(SCALED_ADD | {"reference": reference})
    x, y = tensors()
    [exact] = part(package, "_compare").exact((x, y, 0.5))
    torch.testing.assert_close(exact, x.double() + 0.1 * 0.5 * y.double(), rtol=1e-15, atol=1e-15)


ON_A_GPU = {"source": "def run(x, y, m, out):\n    pass\n", "language": "cuda", "target": "cuda:sm_90"}


TF32_CPP = SCALED_ADD_CPP.replace("m * y[i];", "m * rounded(y[i]);").replace(
    'extern "C" void',
    """static float rounded(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  bits = (bits + (HALF)) & ~(2 * (HALF) - 1);
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
extern "C" void""",
)


@pytest.mark.parametrize(
    ("math", "half", "mismatches"),
    [("tf32", "1 << 12", 0), ("tf32", "1 << 17", 1), ("ieee", "1 << 12", 1)],
    ids=["tf32", "five bits of fraction", "tf32 in an op under ieee"],
)
def test_an_op_under_tf32_may_round_its_operands_where_pytorch_does_not(
    imported: Importer, math: str, half: str, mismatches: int
) -> None:
    """As cuDNN does for some shapes and not for the next: on a CPU PyTorch never does."""
    package = imported(SCALED_ADD | {"math": math}, TF32_CPP.replace("HALF", half))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package.scaled_add(*tensors(), 0.5)
    watch = package.status()["watch"]
    assert (watch["checked"], watch["mismatches"], watch["unchecked"]) == (1, mismatches, 0)


@pytest.fixture
def arithmetic() -> Iterator[Callable[[], tuple[str, bool]]]:
    """PyTorch's setting, as this process was found, and put back."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield lambda: (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(("math", "inside"), [("ieee", ("highest", False)), ("tf32", ("high", True))])
def test_the_specs_arithmetic_is_set_and_put_back(
    imported: Importer, math: str, inside: tuple[str, bool], arithmetic: Callable[[], tuple[str, bool]]
) -> None:
    package = imported(SCALED_ADD | {"math": math}, **ON_A_GPU)
    setting = part(package, "_math").setting
    for outside in (("highest", True), ("high", False), inside):
        torch.set_float32_matmul_precision(outside[0])
        torch.backends.cudnn.allow_tf32 = outside[1]
        with setting():
            assert arithmetic() == inside
        assert arithmetic() == outside
        with pytest.raises(KeyError), setting():
            raise KeyError
        assert arithmetic() == outside


@pytest.fixture
def another_thread() -> Iterator[None]:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    yield
    done.set()
    other.join()


@pytest.mark.usefixtures("another_thread")
@pytest.mark.parametrize(("math", "outside"), [("ieee", ("high", True)), ("tf32", ("highest", False))])
def test_shadow_mode_leaves_the_arithmetic_of_other_threads(
    imported: Importer, math: str, outside: tuple[str, bool], arithmetic: Callable[[], tuple[str, bool]]
) -> None:
    package = imported(SCALED_ADD | {"math": math, "description": "of threads"}, **ON_A_GPU)
    torch.set_float32_matmul_precision(outside[0])
    torch.backends.cudnn.allow_tf32 = outside[1]
    with part(package, "_math").setting(cautious=True):
        assert arithmetic() == outside
    wanted = part(package, "_shadow").wanted
    assert wanted(tensors()) == (math == "ieee"), "a wider limit calls no kernel wrong"
    status = package.status()
    assert status["watch"]["unchecked"] == (math == "tf32")
    assert [note for note in status["notes"] if "its other threads would notice a change" in note] == status["notes"]
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    assert wanted(tensors())


def test_on_a_cpu_the_setting_changes_nothing(imported: Importer, arithmetic: Callable[[], tuple[str, bool]]) -> None:
    package = imported(SCALED_ADD | {"math": "tf32", "description": "of a CPU"})
    before = arithmetic()
    with part(package, "_math").setting():
        assert arithmetic() == before


def test_what_memory_does_not_hold_is_not_compared(
    imported: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workload is held many times over: beyond a share of the free memory it would take the machine down."""
    package = imported(SCALED_ADD | {"description": "memory"})
    compare, selfcheck = part(package, "_compare"), part(package, "selfcheck")
    assert selfcheck.workloads()
    limit, used = tmp_path / "memory.max", tmp_path / "memory.current"
    monkeypatch.setattr(compare, "_LIMITED", limit)
    monkeypatch.setattr(compare, "_USED", used)
    for said, most in (("max", compare._free_bytes()), (str(100 * compare.COPIES), 99), ("1", 0)):
        limit.write_text(said)
        used.write_text(str(compare.COPIES))
        compare.most_bytes.cache_clear()
        assert compare.most_bytes() <= most
    assert selfcheck.workloads() == []
    with pytest.raises(part(package, "_calls").Skipped, match="above the 0 MiB that memory allows"):
        part(package, "verify").check_eager()


def test_a_call_beside_the_envelope_is_made_of_the_smallest_sample(
    imported: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = imported(SCALED_ADD | {"description": "beside"})
    calls, compare = part(package, "_calls"), part(package, "_compare")
    drawn = [arguments for _, arguments in calls.samples()]
    found = list(calls.other_sizes())
    assert found
    for name, arguments in found:
        axis = name.split(" = ")[0]
        made = sum(a.nbytes for a in arguments if isinstance(a, torch.Tensor))
        assert made == min(calls._grown_bytes(values, axis) for values in drawn)
        assert package.explain(*arguments).startswith("PyTorch: ")
    monkeypatch.setattr(compare, "most_bytes", lambda: 0)
    monkeypatch.setattr(calls, "samples", lambda: [({}, drawn[0])])
    assert list(calls.other_sizes()) == []


def test_indices_of_equal_values_are_right_where_their_order_is_open(imported: Importer) -> None:
    """PyTorch promises no order of equals: a gate's logits in half precision have some in most of their rows."""
    package = imported(GATE | {"name": "gate_with_equals"}, GATE_CPP)
    compare = part(package, "_compare")
    logits = torch.randn(33, 60).round().to(torch.bfloat16)
    arguments = [logits, 4]
    expected = compare.expected(arguments)
    eager = expected.eager
    weights, chosen = package.gate_with_equals(*arguments)
    assert package.status()["served"]["kernel"] == 1
    assert int((chosen != eager[1]).sum()) > 0, "the kernel takes equals as PyTorch does, and this test asks nothing"
    assert compare.compare([weights, chosen], expected).agrees

    with torch.inference_mode():  # PyTorch's own operators are other ones there
        assert compare.compare([weights, chosen], compare.expected(arguments)).agrees

    def agrees(changed: Any) -> bool:
        found: bool = compare.compare([weights, changed], expected).agrees
        return found

    rows = torch.arange(len(logits))
    least = logits.argmin(-1).to(torch.int32)
    for wrong in (
        chosen.flip(-1),
        chosen[:, :1].expand(-1, 4),
        chosen + 60,
        chosen - 60,
        chosen.index_fill(1, rows[3:4], 0),
    ):
        assert not agrees(wrong.contiguous())
    assert not agrees(torch.cat([chosen[:, :3], least[:, None]], 1))


@pytest.mark.parametrize("check", [{"kind": "exact"}, {"kind": "indices", "ties": "first"}])
def test_indices_of_equal_values_are_wrong_where_the_op_says_so(imported: Importer, check: dict[str, str]) -> None:
    weights, chosen = GATE["outputs"]
    name = f"gate_that_is_{check['kind']}"
    package = imported(GATE | {"name": name, "outputs": [weights, chosen | {"check": check}]}, GATE_CPP)
    compare, arguments = part(package, "_compare"), [torch.zeros(7, 60, dtype=torch.bfloat16), 4]
    expected = compare.expected(arguments)
    eager = expected.eager
    assert compare.compare(compare.clones(eager), expected).agrees
    other = [eager[0], eager[1].flip(-1)]
    assert not compare.compare(other, expected).agrees


BIASED = """
import torch

def run(logits, k):
    scores = logits.float().sigmoid()
    offset = (torch.arange(scores.shape[-1]) % 2).float()
    chosen = torch.topk(torch.round(scores) + 4 * offset, k, dim=-1).indices
    return scores.gather(-1, chosen), chosen.to(torch.int32)
"""
TWICE = """
import torch

def run(logits, k):
    weights, chosen = torch.topk(torch.softmax(logits, dim=-1, dtype=torch.float32), k, dim=-1)
    torch.topk(torch.zeros_like(logits), k, dim=-1)
    return weights, chosen.to(torch.int32)
"""


def compared(package: ModuleType, arguments: Any) -> tuple[Any, Callable[[Any], bool]]:
    """What PyTorch writes, and whether the package takes results for right."""
    compare = part(package, "_compare")
    expected = compare.expected(arguments)
    return expected.eager, lambda found: compare.compare(found, expected).agrees


def test_indices_by_which_the_op_gathers_are_pytorchs_own(imported: Importer) -> None:
    """What is equal for `topk` may differ elsewhere: weights of one expert, the index of another."""
    package = imported(GATE | {"name": "gate_with_bias", "reference": BIASED}, GATE_CPP)
    logits = torch.linspace(0.5, 3.0, 60).repeat(5, 1).to(torch.bfloat16)
    eager, agrees = compared(package, [logits, 4])
    assert agrees([each.clone() for each in eager])
    others = torch.tensor([each for each in range(1, 60, 2) if each not in eager[1][0]][:4], dtype=torch.int32)
    assert not agrees([eager[0], others.expand(5, 4).contiguous()]), "weights of other experts than the indices name"


def test_indices_that_two_calls_gave_select_equals_of_both(imported: Importer) -> None:
    """What is equal for the one need not be for the other, whichever the op returns."""
    package = imported(GATE | {"name": "gate_by_two", "reference": TWICE}, GATE_CPP)
    logits = torch.zeros(3, 60, dtype=torch.bfloat16)
    logits[:, torch.topk(logits, 4).indices[0]] = torch.tensor([8.0, 7.0, 6.0, 5.0], dtype=torch.bfloat16)
    eager, agrees = compared(package, [logits, 4])
    assert agrees([each.clone() for each in eager])
    changed = eager[1].clone()
    changed[:, 3] = next(each for each in range(60) if each not in changed[0])
    assert not agrees([eager[0], changed])
