"""Problems as KernelBook has them: a module of any name, constructed by a list and a dict."""

from __future__ import annotations

import pytest

from tests.integration.formats.test_formats_sandbox import analysed_here
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.spec.op import SpecErrors

pytest.importorskip("torch", reason="the files are run")

NET = '''import torch


class Scaled(torch.nn.Linear):
    """A linear layer, scaled."""

    def __init__(self, width, *, by=1.0, config=None):
        super(Scaled, self).__init__(width, width)
        self.by = by if config is None else config.by

    def forward(self, x, more=None):
        return super().forward(x) * self.by


class Net(Scaled):
    pass


def get_inputs():
    return [torch.rand([4, 4])]


def get_init_inputs():
    return [[4], {'by': 3.0}]
'''
HELPER = "from _paritybench_helpers import _mock_config\n"


def made(text: str, path: str = "12_Net.py") -> ImportedOp:
    return import_op([RawFile(path, text.encode())], None, analysed_here)


@pytest.mark.parametrize(
    "text",
    [
        NET,
        NET.replace("Scaled", "Model").replace("class Net(Model):\n    pass\n", ""),
        HELPER + NET.replace("{'by': 3.0}", "{'config': _mock_config(by=3.0)}"),
    ],
    ids=["Net", "Model", "helper"],
)
def test_a_module_of_any_name_is_constructed_as_the_problem_says(text: str) -> None:
    found = made(text)
    op = found.op
    assert (found.format, op.name) == ("kernelbench", "net")
    assert [(item.name, item.shape) for item in op.inputs] == [("x", (4, 4))]
    assert [(item.attribute, item.shape) for item in op.state] == [("weight", (4, 4)), ("bias", (4,))]
    assert "compared with the problem on values, with its own sizes" in found.notes
    assert op.origin is not None
    assert raw_files(op.origin)[0].data == text.encode()


@pytest.mark.parametrize(
    ("path", "description"),
    [("7_Scaled.py", "A linear layer, scaled."), ("7_Net.py", ""), ("problem.py", "")],
)
def test_the_files_name_says_which_class_it_is_about(path: str, description: str) -> None:
    assert made(NET, path).op.description == description


def test_a_module_without_a_forward_of_its_own_takes_what_get_inputs_gives() -> None:
    text = "import torch\n\n\nclass Last(torch.nn.ReLU):\n    pass\n" + NET.partition("    pass\n")[2]
    op = made(text.replace("[[4], {'by': 3.0}]", "[[], {}]")).op
    assert [(item.name, item.shape) for item in op.inputs] == [("x_0", (4, 4))]


def test_a_file_without_a_class_is_refused() -> None:
    with pytest.raises(SpecErrors, match="no class Model"):
        made("import torch\n" + NET.partition("    pass\n")[2])


def test_a_problem_of_kernelbench_whose_model_takes_a_list_and_a_dict_stays_one() -> None:
    init = "def __init__(self, widths, options):\n        super(Model, self).__init__(widths[0], options['out'])\n"
    text = NET.replace("Scaled", "Model").replace("class Net(Model):\n    pass\n", "")
    before, _, after = text.partition("def __init__")
    forward = "    def forward(self, x):\n        return super().forward(x)\n"
    text = f"{before}{init}\n{forward}\n\n{after[after.index('def get_inputs') :]}"
    op = made(text.replace("[[4], {'by': 3.0}]", "[[4], {'out': 2}]")).op
    assert [(item.attribute, item.shape) for item in op.state] == [("weight", (2, 4)), ("bias", (2,))]
