"""Our repositories under several versions of Hugging Face `kernels`: offline, in fresh processes without Warpsmith."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import exported, in_fresh_process
from tests.kinds import nightly_but
from tests.support.layer_ops import RMS, RMS_CPP, spec
from warpsmith.kernels_db.export import registry

pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

SHARED = """\
huggingface_hub==1.33.0 --hash=sha256:04e434b06e100eddbce9a6e817d72693a7884b10a79bd67ab48080d5c07eb899
tomlkit==0.15.2 --hash=sha256:05562412163a3037b94497385fb7f9204c637bc605af7a48199e41cf2272f437
tqdm==4.70.1 --hash=sha256:c293e525e6fef9c20e8728fd4612df02a0aa31bb5fe91ecd93e123b1b7bffa73
"""
"""What every version needs beside torch and what Warpsmith's own environment has."""
PINNED = {
    "0.17.2": "kernels==0.17.2 --hash=sha256:f4be3337070e6979bb419e513d9a51ddfbfe61a707afd6aa7f3cb6a61764a46a\n",
    "0.15.2": "kernels==0.15.2 --hash=sha256:2a66497d94152896b74c841089e3ee685708b8ddc21d4f4751a0505a0b693c91\n"
    "kernels-data==0.16.2 --hash=sha256:9526362517c7b128f7baec080301890875cc3f5284a0f125b082c19737e5c1d5\n",
    "0.13.0": "kernels==0.13.0 --hash=sha256:5d857ee4e06dc7496bcd59c4756e84eb71c019b34524dea58ccb0eaaae3bb6df\n",
}
"""Versions with the wheels that make them up; two are built for x86_64 alone. The interface broke between each two."""

BIAS_RELU: dict[str, Any] = {
    "schema_version": 1,
    "name": "bias_relu",
    "description": "max(x + bias, 0)",
    "axes": {"rows": {"kind": "var"}, "columns": {"kind": "var"}},
    "inputs": [
        {"name": "x", "shape": ["rows", "columns"], "dtype": "float32"},
        {"name": "bias", "shape": ["columns"], "dtype": "float32", "role": "weight"},
    ],
    "outputs": [{"name": "y", "shape": ["rows", "columns"], "dtype": "float32"}],
    "reference": "import torch\n\ndef run(x, bias):\n    return torch.relu(x + bias)\n",
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"rows": 40, "columns": 8}},
        {"id": "small", "role": "test", "axes": {"rows": 3, "columns": 8}},
    ],
}
BIAS_RELU_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void bias_relu(const float* x, const float* bias, float* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = std::fmax(x[r * columns + c] + bias[c], 0.0f);
}
""")


def run(x, bias, y):
    kernels.bias_relu(x, bias, y, x.shape[0], x.shape[1])
'''
WRONG_CPP = BIAS_RELU_CPP.replace("std::fmax", "7.0f + std::fmax")
"""The same op by a kernel whose results tell it apart."""

HEAD = """
import inspect, os, shutil, socket, sys
from pathlib import Path
import torch


def refuse(*arguments, **options):
    raise AssertionError("this process is offline")


socket.socket.connect = socket.getaddrinfo = refuse
import kernels
from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_forward_from_hub, use_kernel_mapping

FIRST, SECOND = map(Path, sys.argv[1:])


def accepted(function, **options):
    return {name: value for name, value in options.items() if name in inspect.signature(function).parameters}


def layer(repository):
    package = accepted(LocalLayerRepository, package_name=repository.name.replace("-", "_"))
    return LocalLayerRepository(repo_path=repository, layer_name="BiasRelu", **package)


@use_kernel_forward_from_hub("BiasRelu")
class BiasRelu(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.relu(x + self.bias)


def served():
    return sum(m.status()["served"]["kernel"] for n, m in list(sys.modules.items()) if n.endswith("._op"))


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), BiasRelu(8), torch.nn.Linear(8, 2))
x = torch.randn(40, 4)
expected = model(x).detach()
"""

KERNELIZE = (
    HEAD
    + """
with use_kernel_mapping({"BiasRelu": {"cpu": layer(FIRST)}}):
    ours = kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE, device="cpu")
with torch.no_grad():
    torch.testing.assert_close(ours(x), expected)
print(kernels.__version__, served())
ours(x).sum().backward()
found = model[1].bias.grad.clone()
model.zero_grad()
torch.nn.functional.linear(torch.relu(model[0](x) + model[1].bias), model[2].weight, model[2].bias).sum().backward()
torch.testing.assert_close(found, model[1].bias.grad)
with torch.no_grad():
    before = served()
    torch.testing.assert_close(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), expected)
    print(served() - before)
    torch.testing.assert_close(ours(torch.cat([x, x])), torch.cat([expected, expected]))
    print(served() - before)
"""
)

LOCAL_KERNELS = (
    HEAD
    + """
from kernels import get_kernel

options = accepted(get_kernel, version=1, trust_remote_code=True)
first, second = get_kernel("org/first", **options), get_kernel("org/second", **options)
again = get_kernel("org/first", **options)
x, bias = torch.randn(3, 8), torch.randn(8)
right = torch.relu(x + bias)
for name, kernel, expected in (("first", first, right), ("second", second, right + 7), ("again", again, right)):
    torch.testing.assert_close(kernel.bias_relu(x, bias), expected)
    print(name, kernel.explain(x, bias), kernel.layers.BiasRelu.__name__)
with use_kernel_mapping({"BiasRelu": {"cpu": layer(SECOND)}}):
    ours = kernelize(torch.nn.Sequential(BiasRelu(8)), mode=Mode.INFERENCE, device="cpu")
with torch.no_grad():
    torch.testing.assert_close(ours(x), torch.relu(x + ours[0].bias) + 7)
    torch.testing.assert_close(first.bias_relu(x, bias), right)
"""
)


LLAMA = (
    HEAD.partition("@use_kernel")[0].replace('layer_name="BiasRelu"', 'layer_name="RmsNorm"')
    + """
@use_kernel_forward_from_hub("RMSNorm")
class LlamaRMSNorm(torch.nn.Module):
    'As transformers has it: called with batches of sequences, with an epsilon of its own.'

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        wide = hidden_states.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (wide * scale).to(hidden_states.dtype)


def served():
    return sum(m.status()["served"]["kernel"] for n, m in list(sys.modules.items()) if n.endswith("._op"))


torch.manual_seed(0)
model = torch.nn.Sequential(LlamaRMSNorm(64), LlamaRMSNorm(64, eps=1e-3))
x = torch.randn(2, 3, 64) / 30
with torch.no_grad():
    expected, own = model(x), model[0](x)
    with use_kernel_mapping({"RMSNorm": {"cpu": layer(FIRST)}}):
        ours = kernelize(model, mode=Mode.INFERENCE | Mode.TORCH_COMPILE, device="cpu")
    torch.testing.assert_close(ours[0](x), own)
    print(served())
    torch.testing.assert_close(ours(x), expected)
    print(served())
    torch.testing.assert_close(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), expected)
    print(served())
"""
)

LAYER_NORM = spec(
    "layer_norm",
    ["x", "weight", "bias"],
    "    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)\n",
)
LAYER_NORM["inputs"][2] |= {"shape": ["hidden"], "role": "weight"}
LAYER_NORM_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void norm(const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double s = 0, v = 0;
    for (int64_t i = 0; i < n; ++i) s += x[i];
    for (int64_t i = 0; i < n; ++i) v += (x[i] - s / n) * (x[i] - s / n);
    const double scale = 1 / std::sqrt(v / n + 1e-5);
    for (int64_t i = 0; i < n; ++i) y[i] = float((x[i] - s / n) * scale * w[i] + b[i]);
  }
}
""")


def run(x, weight, bias, y):
    kernels.norm(x, weight, bias, y, x.shape[0], x.shape[1])
'''

HOSTS = (
    HEAD.partition("@use_kernel")[0].replace('layer_name="BiasRelu"', 'layer_name="LayerNorm"')
    + """


@use_kernel_forward_from_hub("LayerNorm")
class Norm(torch.nn.LayerNorm):
    pass


@use_kernel_forward_from_hub("LayerNorm")
class Strange(torch.nn.Module):
    'An epsilon under a name that nobody knows.'

    def __init__(self):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.randn(64)), torch.nn.Parameter(torch.randn(64))
        self.tiny = 0.5

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, (64,), self.weight, self.bias, self.tiny)


@use_kernel_forward_from_hub("LayerNorm")
class Scaled(torch.nn.LayerNorm):
    'A parameter that the op does not take.'

    def __init__(self):
        super().__init__(64)
        self.gain = torch.nn.Parameter(torch.randn(64))

    def forward(self, x):
        return super().forward(x) * self.gain


def served():
    return sum(m.status()["served"]["kernel"] for n, m in list(sys.modules.items()) if n.endswith("._op"))


torch.manual_seed(0)
hosts = {
    "alike": Norm(64), "another epsilon": Norm(64, eps=0.5), "without bias": Norm(64, bias=False),
    "without weights": Norm(64, elementwise_affine=False), "over two axes": Norm((4, 64)),
    "epsilon elsewhere": Strange(), "a further parameter": Scaled(),
}
for host in hosts.values():
    for parameter in host.parameters():
        torch.nn.init.normal_(parameter)
inputs = {
    "alike": [torch.randn(2, 64), torch.randn(64)[None], torch.randn(2, 4, 5, 64), torch.randn(64)],
    "over two axes": [torch.randn(2, 3, 4, 64)],
}
model = torch.nn.ModuleDict({name.replace(" ", "_"): host for name, host in hosts.items()})
with use_kernel_mapping({"LayerNorm": {"cpu": layer(FIRST)}}):
    ours = kernelize(model, mode=Mode.INFERENCE | Mode.TORCH_COMPILE, device="cpu")
for name in hosts:
    module, before = ours[name.replace(" ", "_")], served()
    with torch.no_grad():
        for x in inputs.get(name, [torch.randn(4, 64)]):
            torch.testing.assert_close(module(x), type(module).forward(module, x))
            torch._dynamo.reset()
            compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=False)
            torch.testing.assert_close(compiled(x), type(module).forward(module, x))
    print(name, served() - before)
"""
)


@pytest.fixture(scope="session")
def wheels(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the versions are installed: pytest's own cache directory keeps such files between sessions, where there is
    one (`-p no:cacheprovider`)."""
    cache: pytest.Cache | None = getattr(pytestconfig, "cache", None)
    return tmp_path_factory.mktemp("hf_kernels") if cache is None else Path(cache.mkdir("hf_kernels"))


@pytest.fixture(scope="session", params=nightly_but("0.17.2".__eq__, PINNED))
def library(request: pytest.FixtureRequest, wheels: Path) -> Path:
    """A directory with one version of `kernels` and what it needs. Skips where the index cannot be reached."""
    pins = SHARED + PINNED[request.param]
    place = wheels / f"{request.param}-{sha256(f'{pins}{sys.version}'.encode()).hexdigest()[:12]}"
    if not place.is_dir():
        if platform.machine() != "x86_64":
            pytest.skip(f"the pinned wheels of kernels are for x86_64, this machine is {platform.machine()}")
        installed = wheels / f"{place.name}.{os.getpid()}"
        requirements = wheels / f"{place.name}.txt"
        requirements.write_text(pins)
        command = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command += ["--retries", "8"]  # for about a minute: an index that hiccups is no fault of an export's
        done = subprocess.run(
            [sys.executable, *command, "--target", str(installed), "-r", str(requirements)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(installed, ignore_errors=True)
            reason = f"kernels {request.param} could not be fetched from the package index: {done.stderr[-500:]}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        installed.rename(place)
    return place


Ops = Sequence[tuple[dict[str, Any], str]]
BIAS_RELUS: Ops = [(BIAS_RELU, BIAS_RELU_CPP), (BIAS_RELU, WRONG_CPP)]


def used(script: str, library: Path, tmp_path: Path, ops: Ops = BIAS_RELUS) -> list[str]:
    """The lines that the script prints, given two repositories."""
    out = tmp_path / "out"
    build = registry.named("hf-kernels").build
    repositories = [build(exported(document, source), out) for document, source in ops]
    (tmp_path / "script.py").write_text(script)
    arguments = [str(tmp_path / "script.py"), *map(str, repositories)]
    variables = {
        "HF_HUB_OFFLINE": "1",
        "WARPSMITH_WATCH": "off",  # it would put PyTorch in the place of the kernel that is told by its wrong results
        "LOCAL_KERNELS": f"org/first={repositories[0]}:org/second={repositories[1]}",
    }
    done = in_fresh_process(out / "none", *arguments, home=tmp_path, paths=[library], variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_kernelize_puts_the_layer_into_a_model(library: Path, tmp_path: Path) -> None:
    first, compiled, outside = used(KERNELIZE, library, tmp_path)
    assert first == f"{library.name.rpartition('-')[0]} 1"
    assert compiled == "1"
    assert outside == "1"  # 80 rows were not verified: PyTorch served


def test_two_exports_of_one_op_keep_apart(library: Path, tmp_path: Path) -> None:
    lines = used(LOCAL_KERNELS, library, tmp_path)
    assert lines == [
        f"{name} kernel: inside the envelope (a verified shape) BiasRelu" for name in ("first", "second", "again")
    ]


def test_a_layer_of_transformers_is_served_in_its_batches(library: Path, tmp_path: Path) -> None:
    """Leading axes are rows; a layer with another epsilon is not the op, and PyTorch serves it."""
    assert used(LLAMA, library, tmp_path, [(RMS, RMS_CPP), (BIAS_RELU, BIAS_RELU_CPP)]) == ["1", "2", "3"]


def test_a_host_that_is_not_the_op_runs_its_own_forward(library: Path, tmp_path: Path) -> None:
    """By its numbers or by its weights; further leading axes, or none, are rows."""
    assert used(HOSTS, library, tmp_path, [(LAYER_NORM, LAYER_NORM_CPP), (BIAS_RELU, BIAS_RELU_CPP)]) == [
        "alike 4",  # each eager and compiled: of 2 rows and of 40; 1 row was not verified
        "another epsilon 0",
        "without bias 0",
        "without weights 0",
        "over two axes 0",
        "epsilon elsewhere 0",
        "a further parameter 0",
    ]
