"""Check that this package works as an op here: `python -m <package>.verify [--json]`.

What `selfcheck` says of the kernel's results is one of the checks; the others are what a PyTorch op owes its users.
A check is skipped, with its reason, where this machine lacks what it needs. Exit code 0: none failed.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import _compare, _control, _guard, _load, _math, _op, _reference, _spec, overhead, selfcheck
from ._calls import Skipped, device, other_dtypes, other_numbers, other_sizes, samples, sizes, strided, unaligned

package = importlib.import_module(__package__ or _spec.NAMESPACE)
function: Callable[..., Any] = getattr(package, _spec.NAME)


class Failed(Exception):  # noqa: N818 - an outcome
    """A check that found something wrong; the message says what."""


def expect(holds: bool, what: str) -> None:
    """Raise Failed with `what` was found unless it holds."""
    if not holds:
        raise Failed(what)


def elsewhere() -> str | None:
    """Why this machine is none that any kernel is for; None where it is."""
    reasons = [_guard.elsewhere(kernel) for kernel in _load.KERNELS]
    return None if None in reasons else "; ".join(dict.fromkeys(map(str, reasons)))


def needs_kernel() -> None:
    """Raise Skipped on a machine that no kernel is for, and Failed where one that is for it does not load."""
    reason = elsewhere()
    if reason is not None:
        raise Skipped(reason)
    for kernel in _load.KERNELS:
        expect(_guard.elsewhere(kernel) is not None or kernel.ready(), kernel.described())


def agrees(
    run: Callable[..., Any], arguments: list[Any], placed: Callable[[list[Any]], list[Any]] = _compare.clones
) -> _compare.Comparison:
    """Hold a call on copies of the arguments, where `placed` puts them, against PyTorch. Raises Failed where it is
    wrong.
    """
    expected = _compare.expected(arguments)
    mine = placed(arguments)
    compared = _compare.compare(_compare.written(run(*mine), mine), expected)
    expect(compared.agrees, f"error {compared.error:.2e}, limit {compared.limit:.2e}")
    return compared


@contextmanager
def kernel_serves() -> Iterator[None]:
    """Fail where no call inside the block was served by the kernel, on a machine where it can be."""
    before = _op.status()["served"]["kernel"]
    yield
    if elsewhere() is None:
        after = _op.status()
        expect(after["served"]["kernel"] > before, f"PyTorch served, expected the kernel ({after['kernel']})")


def served_by() -> str:
    """Who served, for a check's detail."""
    reason = elsewhere()
    return "served by the kernel" if reason is None else f"served by PyTorch: {reason}"


def check_import() -> str:
    """The op is there, and nothing of Warpsmith was needed."""
    expect(hasattr(getattr(torch.ops, _spec.NAMESPACE), _spec.NAME), "torch.ops has no such op")
    there = {name.split(".")[0] for name in sys.modules} & {"warpsmith", "kernels_db"}
    expect(not there, f"imported {', '.join(sorted(there))}, expected nothing of Warpsmith")
    return f"torch.ops.{_spec.NAMESPACE}.{_spec.NAME}"


def check_signature() -> str:
    """Names and defaults of the function, the op's schema and the reference say the same."""
    mine = inspect.signature(function).parameters
    expected = [parameter["name"] for parameter in _spec.PARAMETERS]
    schema = [
        argument.name for argument in getattr(getattr(torch.ops, _spec.NAMESPACE), _spec.NAME).default._schema.arguments
    ]
    expect(list(mine) == expected, f"the function takes {list(mine)}, expected {expected}")
    expect(schema == expected, f"the op takes {schema}, expected {expected}")
    theirs = list(inspect.signature(_reference.run).parameters.values())
    expect(len(theirs) >= len(expected), f"the reference takes {len(theirs)} arguments, expected {len(expected)}")
    followed = [True] * len(expected)  # whether all that come behind have defaults
    for position in reversed(range(len(expected) - 1)):
        followed[position] = (
            followed[position + 1] and mine[expected[position + 1]].default is not inspect.Parameter.empty
        )
    for name, parameter, possible in zip(expected, theirs, followed, strict=False):
        if possible and isinstance(parameter.default, bool | int | float | None):
            found = mine[name].default
            expect(found == parameter.default, f"{name} = {found!r}, expected {parameter.default!r}")
    return str(inspect.signature(function))


def check_opcheck() -> str:
    """PyTorch's own tests of a custom op: schema, mutation, fake implementation, autograd, tracing."""
    _, arguments = samples()[0]
    found = torch.library.opcheck(_op.op, tuple(_compare.clones(arguments)))
    if _op.inference_op is not _op.op:
        torch.library.opcheck(_op.inference_op, tuple(_compare.clones(arguments)))
    return ", ".join(found)


def check_eager() -> str:
    """The kernel's results are PyTorch's, on every verified workload."""
    needs_kernel()
    rows = [selfcheck.check(workload, 1) for workload in selfcheck.checked_here()]
    if not rows:
        raise Skipped(f"every verified workload is above the {_compare.most_bytes() >> 20} MiB that memory allows")
    for row in rows:
        expect(
            row["agrees"], f"{row['workload']}: error {row['error']:.2e}, limit {row['limit']:.2e}; {row['served_by']}"
        )
    worst = max(rows, key=lambda row: row["error"])
    absent = sorted({kernel.name for kernel in _load.KERNELS} - {row["kernel"] for row in rows})
    beside = f"; not for this machine: {', '.join(absent)}" if absent else ""
    found = f"worst error {worst['error']:.1e} (limit {worst['limit']:.1e}, {worst['workload']})"
    return f"{len(rows)} workloads, {found}{beside}"


def check_compile() -> str:
    """`torch.compile(fullgraph=True)` with Inductor gives the same."""
    torch._dynamo.reset()
    _, arguments = samples()[0]
    with kernel_serves():
        agrees(torch.compile(function, fullgraph=True), arguments)
    return f"fullgraph, {served_by()}"


def check_dynamic() -> str:
    """One compilation serves every shape."""
    torch._dynamo.reset()
    compiled = 0

    def count(graph: Any, _inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    varied = {shape: arguments for _, arguments in samples() if (shape := sizes(arguments))}
    if len(varied) < 2:  # PyTorch serves the others, which the compiler need not know
        varied |= {shape: arguments for _, arguments in other_sizes() if (shape := sizes(arguments))}
    # Of two shapes one is a verified workload: from the last one, where it has an axis of size 1, one grows at most.
    if len(varied) < 2:
        raise Skipped("the op has no two shapes with every size above 1, which the compiler could take as one")
    run = torch.compile(function, fullgraph=True, dynamic=True, backend=count)
    with kernel_serves():
        for arguments in varied.values():
            agrees(run, arguments)
    expect(compiled == 1, f"compiled {compiled} times for {len(varied)} shapes, expected once")
    return f"one compilation for {len(varied)} shapes"


def check_cuda_graph() -> str:
    """A call can be captured in a CUDA graph and replayed on new values; shadow mode stays out of it."""
    if "cuda" not in _spec.DEVICES:
        raise Skipped("the kernel is for the CPU")
    if not torch.cuda.is_available():
        raise Skipped("there is no GPU here")
    needs_kernel()
    on_gpu = [workload for workload in selfcheck.checked_here() if device(workload) == "cuda"]
    if not on_gpu:
        raise Skipped("no kernel is for this GPU")
    workload = min(on_gpu, key=lambda each: each["min_bytes"])
    arguments = selfcheck.draw(workload, 1)
    held = _compare.clones(arguments)
    function(*_compare.clones(arguments))
    graph = torch.cuda.CUDAGraph()
    with kernel_serves(), shadowed(), torch.cuda.graph(graph):
        result = function(*held)
    fresh = selfcheck.draw(workload, 2)

    def replay(*values: Any) -> Any:
        for place, value in zip(held, values, strict=True):
            if isinstance(place, torch.Tensor):
                place.copy_(value)
        graph.replay()
        for position in _spec.MUTATED:
            values[position].copy_(held[position])
        return result

    agrees(replay, fresh)
    return "captured, and replayed on new values"


def check_fallback() -> str:
    """A call outside the envelope gets PyTorch's result."""
    done = []
    for what, arguments in (*other_dtypes(), *other_sizes(), *other_numbers()):
        served = _op.explain(*arguments)
        expect(served.startswith("PyTorch"), f"{what}: {served}, expected PyTorch")
        expected = _compare.clones(arguments)
        try:
            right = _compare.reference(expected)
        except Exception:  # noqa: BLE001, S112 - the reference itself takes no such call
            continue
        mine = _compare.clones(arguments)
        for found, wanted in zip(_compare.written(function(*mine), mine), right, strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True)
        done.append(what)
    if not done:
        raise Skipped("the reference takes no call outside of the envelope")
    return ", ".join(done)


def check_strided() -> str:
    """Inputs that are not contiguous, or lie askew in memory, give PyTorch's result."""
    _, arguments = samples()[-1]
    agrees(function, arguments, lambda values: [strided(a) for a in values])
    values = [unaligned(a) for a in arguments]
    askew = {
        _spec.PARAMETERS[position]["name"]: _guard.may_be_copied(position, values[position])
        for position, alignment in _spec.ALIGNMENTS
        if isinstance(values[position], torch.Tensor) and values[position].data_ptr() % alignment
    }
    if askew and elsewhere() is None:
        needs_kernel()
        kept = next((name for name, copied in askew.items() if not copied), None)
        wanted = "kernel" if kept is None else f"PyTorch: {kept} does not start at a multiple of"
        served = _op.explain(*values)
        expect(served.startswith(wanted), f"{', '.join(askew)} askew: {served}, expected {wanted}")
    agrees(function, arguments, lambda values: [unaligned(a) for a in values])
    return "strided, unaligned" if askew else "strided; verified at any address"


def check_gradients() -> str:
    """Gradients are those of the reference."""
    if _spec.MUTATED:
        raise Skipped("the op works in place: a call that needs gradients goes to PyTorch")
    _, arguments = samples()[0]

    def gradients(run: Callable[..., Any]) -> list[Any]:
        mine = [
            a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
            for a in _compare.clones(arguments)
        ]
        total = sum(o.double().sum() for o in _compare.outputs_of(run(*mine)) if o.requires_grad)
        if not isinstance(total, torch.Tensor):
            raise Skipped("nothing of the result can be differentiated")
        total.backward()
        return [a.grad for a in mine if isinstance(a, torch.Tensor) and a.requires_grad]

    for found, wanted in zip(gradients(function), gradients(_reference.run), strict=True):
        expect((found is None) == (wanted is None), "a gradient is missing, or there is one too many")
        if wanted is not None:
            torch.testing.assert_close(found, wanted)
    return "recomputed by PyTorch"


def check_control() -> str:
    """The kernel can be switched off and on, and shadow mode finds nothing."""
    _, arguments = samples()[0]
    with package.disabled():
        served = _op.explain(*arguments)
        expect(served.startswith("PyTorch"), f"inside disabled(): {served}")
        agrees(function, arguments)
    if len(_load.KERNELS) > 1:
        check_single(arguments)
    before = _op.status()["shadow"]
    with shadowed():
        agrees(function, arguments)
    after = _op.status()["shadow"]
    expect(after["mismatches"] == before["mismatches"], "shadow mode found a mismatch")
    if elsewhere() is None:
        expect(after["checked"] == before["checked"] + 1, f"shadow mode checked nothing: {_op.status()['notes']}")
    return "off, on, shadow"


def check_single(arguments: list[Any]) -> None:
    """Each kernel serves alone, or PyTorch does, where the others are off."""
    for name in _control.NAMES:
        with package.disabled(), package.enabled(name):
            served = _op.explain(*arguments)
            expect(served.startswith((f"kernel {name}:", "PyTorch: ")), f"with {name} alone: {served}")
            agrees(function, arguments)


def check_overhead() -> str:
    """A measurement, which no figure fails; skipped where it finds none."""
    needs_kernel()
    measured = overhead.measured()
    said, launches = measured.describe_overhead(), measured.launches
    if not measured.is_told:
        raise Skipped(said)
    how = f"; replayed by a plan of {launches} launch{'es' * (launches > 1)}" if launches else ""
    how += ", as a CUDA graph" if measured.graphs else ""
    return f"{said}{how}"


@contextmanager
def shadowed() -> Iterator[None]:
    """Every call is checked inside the block."""
    package.shadow(every=1)
    try:
        yield
    finally:
        package.enable()


CHECKS: dict[str, Callable[[], str]] = {
    "import": check_import,
    "signature": check_signature,
    "opcheck": check_opcheck,
    "eager": check_eager,
    "compile": check_compile,
    "dynamic shapes": check_dynamic,
    "CUDA graph": check_cuda_graph,
    "fallback": check_fallback,
    "strided inputs": check_strided,
    "gradients": check_gradients,
    "control": check_control,
    "dispatch overhead": check_overhead,
}


def run(name: str) -> dict[str, Any]:
    """One check's outcome: passed, failed or skipped, with a sentence."""
    begun = time.perf_counter()
    try:
        with _math.setting(), _control.unwatched():
            outcome, detail = "passed", CHECKS[name]()
    except Skipped as reason:
        outcome, detail = "skipped", str(reason)
    except Exception as error:  # noqa: BLE001 - whatever a check runs into is its outcome
        said = str(error).strip() or type(error).__name__
        outcome, detail = "failed", said if isinstance(error, Failed) else f"{type(error).__name__}: {said[:2000]}"
    return {"check": name, "outcome": outcome, "detail": detail, "seconds": round(time.perf_counter() - begun, 2)}


def environment() -> dict[str, Any]:
    """Where the checks ran."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": gpu or platform.machine(),
        "notes": _op.status()["notes"],
    }


def main() -> int:
    """Print a line a check; exit 0 when none failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    _control.enable()
    rows = []
    for name in CHECKS:
        if options.json:
            print(name, file=sys.stderr, flush=True)  # tells what a process that dies was at
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first fallback warns, as it should
            rows.append(run(name))
        if not options.json:
            print(f"{rows[-1]['outcome']:8} {name}: {rows[-1]['detail']}", flush=True)
    failed = any(row["outcome"] == "failed" for row in rows)
    if options.json:
        print(json.dumps({"package": _spec.NAMESPACE, "checks": rows, "environment": environment()}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
