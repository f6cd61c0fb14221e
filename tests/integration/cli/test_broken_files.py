"""What the command line says of broken files: the file by its name, the field, what was found and what was expected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from warpsmith.service.cli import main

SPEC = (REPOSITORY / "examples" / "add_relu.yaml").read_text()
PROBLEM = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
TASK = 'files:\n  - {"name": "reference.py", "source": "referense.py"}\ntests:\n  - {"n": 4}\n'
DEFINITION = '{"name": "m", "op_type": "a", "axes": {}, "inputs": {}, "outputs": {}, "reference": ""}'
PLAIN = "import torch\n\n\ndef run(x, y, out):\n    out.copy_(torch.relu(x + y))\n"
"""A candidate that imports no kernel language."""

CASES = [
    (
        ["ops", "check", "a.yaml"],
        {"a.yaml": "name: x\n  inputs: [a\n"},
        "a.yaml: found 'mapping values are not allowed",
    ),
    (["ops", "check", "a.yaml"], {"a.yaml": ""}, "a.yaml: found nothing, expected a mapping with the fields of an op"),
    (["ops", "check", "a.yaml"], {"a.yaml": "\udcc6"}, "a.yaml: found 'byte 0xc6 at offset 0', expected UTF-8 text"),
    (
        ["ops", "check", "a.yaml"],
        {"a.yaml": SPEC.replace("\naxes:", "\naxis:")},
        "inputs[0].shape[0] (line 9): found 'rows', expected a number, for the spec declares no axes",
    ),
    (
        ["ops", "check", "a.yaml"],
        {"a.yaml": SPEC.replace("role:", "rule:", 1)},
        "inputs[1].rule (line 10): found 'rule', expected one of the fields name, shape",
    ),
    (["judge", "a.py", "a.yaml"], {"a.py": PLAIN, "a.yaml": SPEC}, "OP: found 'a.py', expected an op spec"),
    (
        ["judge", "a.yaml", "a.py"],
        {"a.py": PLAIN, "a.yaml": SPEC},
        "a.py: imports: found 'no kernel language', expected an import of exactly one: cpp, triton",
    ),
    (["import", "a.py"], {"a.py": PROBLEM}, "format: found 'a.py: of no known format', expected kernelbench: a Python"),
    (["import", "a.yaml"], {"a.yaml": SPEC}, "format: found 'a.yaml: an op spec', expected a problem of another"),
    (["import", "task.yml"], {"task.yml": TASK}, "task.yml: files, reference.py: found 'no file referense.py'"),
    (["import", "d.json", "--axes", "n=4"], {"d.json": DEFINITION}, "a scalar input: the Definition has neither"),
]


@pytest.mark.parametrize(("arguments", "files", "said"), CASES, ids=lambda value: " ".join(value)[:30])
def test_a_broken_file_is_named_with_what_was_expected(
    arguments: list[str],
    files: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WARPSMITH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        Path(name).write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(sys, "argv", ["warpsmith", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    found = capsys.readouterr().err
    assert ended.value.code == 2, found
    assert said in " ".join(found.split())
