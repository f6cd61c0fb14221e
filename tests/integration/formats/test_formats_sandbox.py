"""Files of other formats that must be run to be understood, in the real sandbox; and what hostile ones get there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kinds import nightly_but
from tests.support.formats_support import KERNELBENCH, TASKS, errors_of, files_of
from warpsmith.kernels_db.formats.kernelbench import problem
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.job.file_analysis import Analysis, AnalysisFailed
from warpsmith.kernels_db.job.float64 import in_float64
from warpsmith.kernels_db.spec.op import Op, SpecErrors, Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job, reference_source
from warpsmith.workers.judge.analysis.client import Analyser
from warpsmith.workers.judge.protocol.client import judge_environment

pytest.importorskip("torch", reason="the files are run")

import torch

from warpsmith.workers.judge.analysis.inside import answer

PROBLEM = """import torch

{top}


class Model(torch.nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.values = values

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(4)]


def get_init_inputs():
    return {init}
"""


def problem_file(top: str = "", result: str = "x + 1", init: str = "[]") -> RawFile:
    return RawFile("problem.py", PROBLEM.format(top=top, result=result, init=init).encode())


def made(analyse: Analyser, **parts: str) -> ImportedOp:
    return import_op([problem_file(**parts)], None, analyse)


def analysed_here(request: dict[str, Any]) -> Analysis:
    """The sandbox's side of an analysis in this process, for text that harms nothing."""
    try:
        return Analysis(json.loads(bytes(answer(json.dumps(request)).numpy())), "none")
    except Exception as error:
        raise AnalysisFailed("raises", str(error)) from error


def made_here(text: str) -> ImportedOp:
    return import_op([RawFile("problem.py", text.encode())], None, analysed_here)


def refused(analyse: Analyser, **parts: str) -> str:
    """What is said of a problem with these parts."""
    with pytest.raises(SpecErrors) as caught:
        made(analyse, **parts)
    (message,) = errors_of(caught.value)
    return message


@pytest.fixture(scope="module")
def imported(analyse: Analyser) -> Callable[[str], Op]:
    """An example as an op; each is run once."""
    kept: dict[Path, Op] = {}

    def find(name: str) -> Op:
        path = next(path for path in [*KERNELBENCH, *TASKS] if name in str(path))
        if path not in kept:
            kept[path] = import_op(files_of(path), None, analyse).op
        return kept[path]

    return find


@pytest.mark.parametrize(
    "path",
    nightly_but({TASKS[0]}.__contains__, [*KERNELBENCH, *TASKS]),
    ids=lambda path: "/".join(path.parts[-2:]),
)
def test_an_example_becomes_a_job_and_gives_its_files_back(path: Path, imported: Callable[[str], Op]) -> None:
    op = imported(str(path))
    assert op.origin is not None
    assert raw_files(op.origin) == files_of(path)
    assert load_op(json.dumps(op.document())) == op
    assert build_job(op, Target.parse("cpu"), level="baseline")["workloads"]


@pytest.mark.nightly
def test_integers_masks_and_normalised_weights_are_what_the_file_makes(imported: Callable[[str], Op]) -> None:
    embedding = imported("4_embedding_bag")
    assert [(item.name, item.dtype, item.dist and item.dist.kind) for item in embedding.inputs] == [
        ("tokens", "int64", "randint"),
        ("weights", "float32", "code"),
    ]
    attention = imported("5_causal_attention")
    assert [(item.shape, item.dtype) for item in attention.outputs] == [
        ((2, 4, 64, 32), "float32"),
        ((2, 4, 64), "float32"),
    ]
    (mask,) = attention.state
    assert (mask.dtype, mask.dist and mask.dist.kind) == ("bool", "code")
    norm = imported("3_conv_batch_norm")
    kinds = {state.attribute: state.dist and state.dist.kind for state in norm.state}
    assert kinds["norm.running_var"] == "constant"
    assert kinds["conv.weight"] == "uniform"
    assert "get_init_inputs()" in norm.reference.partition("def _constructed")[2], "a tuple stays a tuple"


@pytest.mark.nightly
def test_a_tasks_outputs_follow_from_its_inputs_axes(imported: Callable[[str], Op]) -> None:
    convolution = imported("conv2d/task.yml")
    (expression,) = [axis.expr for axis in convolution.axes.values() if axis.kind == "expr"]
    assert expression == "size - kernelsize + 1"
    grey = imported("grayscale/task.yml")
    assert [(item.name, item.mutated) for item in grey.inputs] == [("picture", False), ("output", True)]
    histogram = imported("histogram/task.yml")
    assert [histogram.inputs[0].dtype, histogram.outputs[0].dtype] == ["uint8", "int64"]


def test_a_module_that_is_not_there_is_named(analyse: Analyser) -> None:
    said = refused(analyse, top="import absent_module")
    assert "ModuleNotFoundError: No module named 'absent_module'" in said
    assert "packages that are installed beside Warpsmith: absent_module is not" in said


def test_a_result_that_depends_on_values_is_computed_with_values() -> None:
    found = made_here(PROBLEM.format(top="", result="x[: 2 + int(x.sum() >= 0)]", init="[]"))
    assert found.op.outputs[0].shape == (3,)


TASK = """files:
  - {"name": "reference.py", "source": "reference.py"}
tests:
  - {"size": 2, "seed": 1}
"""
RAGGED = """import torch


def generate_input(size, seed):
    return torch.randint(3, 4, (size,))


def ref_kernel(data):
    return torch.ones(int(data.max()))
"""


def test_a_result_whose_shape_is_a_drawn_value_has_the_shape_that_was_drawn() -> None:
    problem = PROBLEM.format(top="", result="torch.ones(int(x.max()))", init="[]")
    problem = problem.replace("torch.rand(4)", "torch.randint(3, 4, (2,))")
    assert made_here(problem).op.outputs[0].shape == (3,)
    files = [RawFile("task.yml", TASK.encode()), RawFile("reference.py", RAGGED.encode())]
    assert import_op(files, None, analysed_here).op.outputs[0].shape == (3,)


LARGE = """import torch


def generate_input(size, seed):
    drawn = torch.distributions.Cauchy(0, 2).sample((size, size)).to(torch.float8_e4m3fnuz)
    if seed == 2 and bool((drawn.float() > 0).any()):
        return drawn
    return drawn.T


def ref_kernel(data):
    return torch.geqrf(data.contiguous().float())
"""


def test_a_task_is_understood_without_values_at_sizes_that_no_memory_holds() -> None:
    task = TASK.replace('"size": 2', f'"size": {1 << 18}') + f'  - {{"size": {1 << 17}, "seed": 3}}\n'
    files = [RawFile("task.yml", task.encode()), RawFile("reference.py", LARGE.encode())]
    op = import_op(files, None, analysed_here).op
    assert op.inputs[0].dtype == "uint8"  # the bytes of a dtype that no spec has
    assert [(item.dtype, item.shape) for item in op.outputs] == [("float32", ("size", "size")), ("float32", ("size",))]
    sizes = TASK + f'  - {{"size": {1 << 18}, "seed": 2}}\n'

    def without_memory(request: dict[str, Any]) -> Analysis:
        if request["values"]:
            raise AnalysisFailed("memory", "uses too much")
        return analysed_here(request)

    found = import_op([RawFile("task.yml", sizes.encode()), files[1]], None, without_memory)
    assert [item.id for item in found.op.workloads] == ["test-0"]
    assert found.notes[0].endswith("gives: test-1")


def test_bytes_of_a_dtype_are_made_and_taken_as_that_dtype() -> None:
    reference = LARGE.replace("torch.geqrf(data.contiguous().float())", "data.float()").replace(".T", "")
    files = [RawFile("task.yml", TASK.encode()), RawFile("reference.py", reference.encode())]
    op = import_op(files, None, analysed_here).op
    dist = op.inputs[0].dist
    assert dist is not None
    assert dist.kind == "code"
    generator: dict[str, Any] = {}
    source = dist.source.replace("from kernels_db.formats.", "from warpsmith.kernels_db.job.")  # the judge's short name
    exec(compile(source, "source", "exec"), generator)
    reference_space: dict[str, Any] = {}
    exec(compile(op.reference, "reference", "exec"), reference_space)
    made = generator["make"]((2, 2), torch.uint8, torch.Generator().manual_seed(1))
    assert made.dtype == torch.uint8
    assert torch.equal(reference_space["run"](made), made.view(torch.float8_e4m3fnuz).float())


def test_a_result_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(SpecErrors, match=r"Model\.forward: result 0 is float, expected a tensor"):
        made_here(PROBLEM.format(top="", result="float(x.sum())", init="[]"))


def test_a_tensor_that_is_kept_as_a_plain_attribute_is_state() -> None:
    text = PROBLEM.format(top="", result="x + self.kept", init="[]")
    found = made_here(text.replace("self.values = values", "self.kept = torch.full((4,), 2.0)"))
    (state,) = found.op.state
    assert (state.attribute, state.shape, state.dist and state.dist.kind) == ("kept", (4,), "constant")
    assert "the module keeps kept as plain tensors; here they are state, as buffers are" in found.notes


def test_a_view_of_another_tensor_of_the_module_is_refused() -> None:
    text = PROBLEM.format(top="", result="x + self.kept", init="[]")
    kept = "self.register_buffer('all', torch.ones(8)); self.kept = self.all[:4]"
    with pytest.raises(SpecErrors, match=r"Model\.kept: found a view of another of its tensors, expected memory of"):
        made_here(text.replace("self.values = values", kept))


NAMING = """import torch
import torch.nn as nn

channels = 4096
side = 64


class Model(nn.Module):
    def __init__(self, channels, shape):
        super(Model, self).__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.scale = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.rand(side, channels)]


def get_init_inputs():
    return [channels, (channels,)]
"""


def test_a_class_that_names_itself_is_built_and_computes_as_the_problem_does() -> None:
    """Its constructor takes a tuple, and a call changes its buffers: both methods are replaced."""
    found = made_here(NAMING.format(result="self.norm(x) * self.scale"))
    assert found.notes[-1] == "compared with the problem on values, with channels 4"
    namespace: dict[str, Any] = {}
    exec(reference_source(found.op), namespace)
    values = [torch.rand(item.shape, dtype=getattr(torch, item.dtype)) for item in found.op.inputs]
    state = [torch.ones(item.shape, dtype=getattr(torch, item.dtype)) for item in found.op.state]
    result = namespace["run"](*values, *state)
    scaled = values[0] - values[0].mean(0)
    torch.testing.assert_close(result, scaled / (values[0].var(0, unbiased=False) + 1e-5).sqrt() + 1.0)
    assert all(bool((tensor == 1).all()) for tensor in state), "it changes copies"


def test_state_that_does_not_show_in_the_results_is_zeros() -> None:
    """What is added before a normalisation over the same axis is taken out by it."""
    found = made_here(NAMING.format(result="self.norm(x + self.scale) * self.norm.weight"))
    kinds = {state.attribute: state.dist and state.dist.model_dump(mode="json") for state in found.op.state}
    assert kinds["scale"] == {"kind": "constant", "value": 0.0}
    assert found.notes[-1] == "whatever the values of scale, the results are the same: here they are zeros"


def test_weights_that_only_small_sizes_hide_are_kept() -> None:
    """Normalised one by one all elements are zero, and no weight seems to matter."""
    layers = "self.norm = nn.GroupNorm(channels, channels); self.linear = nn.Linear(channels, channels)"
    text = NAMING.format(result="self.norm(self.linear(x)) + self.scale").replace(
        "self.norm = nn.BatchNorm1d(channels)", layers
    )
    found = made_here(text)
    assert not any("the results are the same" in note for note in found.notes)


def test_weights_of_a_result_that_is_thrown_away_are_zeros() -> None:
    """Nothing leads from them to the results, at any size."""
    layers = "self.unused = nn.Linear(channels, channels)"
    text = NAMING.format(result="(self.unused(x), x + self.scale)[1]")
    found = made_here(text.replace("self.norm = nn.BatchNorm1d(channels)", layers))
    kinds = {state.attribute: state.dist and state.dist.kind for state in found.op.state}
    assert (kinds["unused.weight"], kinds["unused.bias"], kinds["scale"]) == ("constant", "constant", "normal")


RECURRENT = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.randn(8, 8)
        self.kept = torch.randn(8, 8)

    def forward(self, x, start):
        {first}
        self.hidden = torch.tanh(x + self.hidden)
        return self.hidden @ self.kept


def get_inputs():
    return [torch.rand(8, 8), torch.rand(8, 8)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ("self.hidden.copy_(start)", "constant"),
        ("self.hidden.add_(start)", "normal"),
        ("self.hidden[:4].copy_(start[:4])", "normal"),
    ],
)
def test_state_that_a_call_overwrites_before_it_reads_it_is_zeros(first: str, kind: str) -> None:
    found = made_here(RECURRENT.format(first=first))
    assert {state.attribute: state.dist and state.dist.kind for state in found.op.state} == {
        "hidden": kind,
        "kept": "normal",
    }


def test_the_op_at_small_sizes_comes_with_the_import() -> None:
    """It is what was compared: with the same state as zeros, and no origin of other sizes."""
    found = made_here(NAMING.format(result="self.norm(x + self.scale) * self.norm.weight"))
    assert found.small is not None
    assert [item.shape for item in found.op.inputs] == [(64, 4096)]
    assert [item.shape for item in found.small.inputs] == [(64, 4)]
    assert found.small.origin is None
    scales = [state.dist for op in (found.op, found.small) for state in op.state if state.attribute == "scale"]
    assert [dist and dist.model_dump(mode="json") for dist in scales] == 2 * [{"kind": "constant", "value": 0.0}]
    assert made_here(PROBLEM.format(top="", result="x + 1", init="[]")).small is None


def test_a_note_names_some_of_many() -> None:
    parts = "self.norm = nn.Sequential(*(nn.BatchNorm1d(channels) for _ in range(11)))"
    found = made_here(NAMING.replace("self.norm = nn.BatchNorm1d(channels)", parts).format(result="self.norm(x) * 1"))
    (note,) = [note for note in found.notes if note.startswith("a call changes the module's own")]
    assert note.count("norm.") == problem.MOST_LISTED
    assert f", {11 - problem.MOST_LISTED} more; as in KernelBench" in note


CHAOTIC = """import torch

batch = 65536


class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(128 // x.shape[0]):
            x = 4 * x * (1 - x)
        return x


def get_inputs():
    return [torch.rand(batch, 8)]


def get_init_inputs():
    return []
"""


def test_sizes_do_not_fall_so_far_that_the_results_are_all_rounding() -> None:
    """Few elements, as few in a deep network's normalisations, and each of many steps doubles an error."""
    assert made_here(CHAOTIC).sizes == {"batch": 16}
    assert made_here(CHAOTIC.replace("128 //", "8 //")).sizes == {"batch": 4}


def test_a_size_is_not_lowered_to_another_one_of_the_file() -> None:
    """As many channels as groups would leave one element to each group, and zeros as the results."""
    layers = "self.norm = nn.GroupNorm(groups, channels)"
    text = NAMING.replace("side = 64", "side = 64\ngroups = 32").replace("self.norm = nn.BatchNorm1d(channels)", layers)
    found = made_here(text.format(result="self.norm(x * self.scale)"))
    assert found.sizes == {"channels": 128}, "neither 32 groups nor the 64 of the other side"


def test_a_constructor_that_reads_values_is_built_all_the_same() -> None:
    text = PROBLEM.format(top="", result="x * self.rates[1]", init="[3]")
    text = text.replace("self.values = values", "self.rates = [rate.item() for rate in torch.linspace(0, 1, *values)]")
    found = made_here(text)
    namespace: dict[str, Any] = {}
    exec(reference_source(found.op), namespace)
    torch.testing.assert_close(namespace["run"](torch.ones(4)), torch.full((4,), 0.5))


COUNTING = """
CALLS = []


def counted(x):
    CALLS.append(1)
    return x + len(CALLS)
"""


def test_a_problem_whose_calls_differ_is_no_import() -> None:
    with pytest.raises(SpecErrors, match=r"Model itself on .*, called again: result 0 is off by .*the same"):
        made_here(PROBLEM.format(top=COUNTING, result="counted(x) if x.device.type == 'cpu' else x", init="[]"))


def test_inputs_that_are_no_tensors_become_part_of_the_module() -> None:
    text = PROBLEM.format(top="", result="x.repeat(times) if name is None else None", init="[]")
    text = text.replace("forward(self, x)", "forward(self, times, x, name)")
    found = made_here(text.replace("[torch.rand(4)]", "[(2, 3), torch.rand(4), None]"))
    assert [(item.name, item.shape) for item in found.op.inputs] == [("x", (4,))]
    assert [item.shape for item in found.op.outputs] == [(2, 12)]
    assert "part of the op, for they are no tensors or numbers: times (2, 3), name None" in found.notes
    assert any(note.startswith("compared with the problem on values") for note in found.notes)


def test_a_list_of_tensors_among_the_inputs_is_refused() -> None:
    with pytest.raises(SpecErrors, match="get_inputs: found a list with tensors, expected tensors, numbers and plain"):
        made_here(PROBLEM.format(top="", result="x[0]", init="[]").replace("[torch.rand(4)]", "[[torch.rand(4)]]"))


BLOCK_SCALED = """import torch


def ref_kernel(data):
    a, b, scale_a, scale_b = data
    product = torch._scaled_mm(
        a.view(torch.float4_e2m1fn_x2), b.view(torch.float4_e2m1fn_x2).t(), scale_a.cuda(), scale_b.cuda(),
        out_dtype=torch.float16,
    )
    return product + torch.ones(1, dtype=torch.float16, device="cuda")


def generate_input(size, seed):
    codes = [torch.randint(0, 256, (size, 32), dtype=torch.uint8, device="cuda") for _ in range(2)]
    scales = [torch.randint(1, 5, (512,), device="cuda").to(torch.float8_e4m3fn) for _ in range(2)]
    return (*codes, *scales)
"""


def test_a_reference_that_names_a_gpu_and_multiplies_scaled_blocks_runs_on_a_cpu() -> None:
    files = [RawFile("task.yml", TASK.encode()), RawFile("reference.py", BLOCK_SCALED.encode())]
    op = import_op(files, None, analysed_here).op
    space: dict[str, Any] = {}
    exec(compile(op.reference.replace("kernels_db.formats.", "warpsmith.kernels_db.job."), "reference", "exec"), space)
    ones = torch.full((8, 32), 0x22, dtype=torch.uint8)  # each half of a byte is the float4 1.0
    scales = [torch.full((512,), scale).to(torch.float8_e4m3fn) for scale in (2.0, 0.5)]
    found = space["run"](ones, ones, *scales)
    assert found.dtype == torch.float16
    assert torch.equal(found, torch.full((8, 8), 65.0, dtype=torch.float16))
    wide = in_float64(space["run"])(ones, ones, *(scale.double() for scale in scales))
    assert torch.equal(wide, torch.full((8, 8), 65.0, dtype=torch.float64))


def test_a_file_that_does_not_end_is_ended(analyse: Analyser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(analyse._limits, "seconds", 1.0)
    assert "timeout: did not return within 1 s" in refused(analyse, top="while True:\n    pass")


@pytest.mark.parametrize(
    "top",
    [
        "import os\nos._exit(0)",
        pytest.param("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", marks=pytest.mark.nightly),
    ],
)
def test_a_file_that_ends_its_process_is_refused(analyse: Analyser, top: str) -> None:
    assert "crash: " in refused(analyse, top=top)


def analyses() -> set[psutil.Process]:
    """The processes of this one that analyse files; one that ended meanwhile has no command line."""
    found = set()
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "warpsmith.workers.judge.analysis" in child.cmdline():
                found.add(child)
    return found


def test_one_process_analyses_file_after_file_and_is_started_again(analyse: Analyser) -> None:
    """What one file breaks, its module or its process, the next does not see."""
    broken = "import torch\ntorch.relu = None\nimport os\nos._exit(0)"
    assert "crash: " in refused(analyse, top=broken)
    (process,) = analyses()
    assert made(analyse, result="torch.relu(x)").op.outputs
    assert analyses() == {process}
    process.kill()
    process.wait()
    assert made(analyse, result="torch.relu(x)").op.outputs


@pytest.mark.nightly
def test_a_file_that_takes_all_memory_is_refused(analyse: Analyser) -> None:
    assert "memory: " in refused(analyse, top="kept = [torch.ones(1 << 28) for _ in range(64)]")


def test_a_killed_analysis_leaves_nothing_outside_of_the_callers_directory(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    command = [sys.executable, "-m", "warpsmith.workers.judge.analysis"]
    environment = judge_environment(home, home) | {"TMPDIR": str(elsewhere)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=home, env=environment) as process:
        while process.poll() is None and not [*home.glob("scratch-*"), *elsewhere.iterdir()]:
            time.sleep(0.01)
        process.kill()
    assert list(home.glob("scratch-*"))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.nightly
def test_a_file_that_changes_what_is_said_of_it_is_refused(analyse: Analyser) -> None:
    top = "from warpsmith.workers.judge.analysis import module\nmodule.described = lambda *a, **k: {'shape': 'x'}"
    assert 'problem.py: found "inputs.0' in refused(analyse, top=top)


@contextmanager
def listening() -> Iterator[int]:
    """A port of this machine on which somebody answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_the_callers_environment_and_what_is_confined_are_out_of_reach(
    analyse: Analyser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_OPENAI_API_KEY", "sk-secret")
    analyse.close()  # the next request starts a process, with what it takes of this environment
    secret = tmp_path / "secret.txt"
    secret.write_text("sk-secret")
    os.chmod(secret, 0o644)
    attempt = "try:\n    {0} = {1}\nexcept OSError as error:\n    {0} = type(error).__name__\n"
    with listening() as port:
        call = f"__import__('socket').create_connection(('127.0.0.1', {port}), 2) and 'connected'"
        top = attempt.format("read", f"open({str(secret)!r}).read()") + attempt.format("reached", call)
        found = made(analyse, top=f"import os\n{top}", init="[repr(dict(os.environ)), read, reached]")
    environment, read, reached = map(str, found.op.init)
    assert "HOME" in environment, "it saw an environment"
    assert "sk-secret" not in environment
    if found.sandbox not in ("confined", "isolated"):
        pytest.skip(f"this machine confines at level {found.sandbox}")
    assert read == "PermissionError"
    assert reached != "connected"
