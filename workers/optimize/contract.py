"""The user's side: a Python file with `model()` and `example_inputs()`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from warpsmith.workers.optimize.compiled.inputs import Inputs

NAME = "warpsmith_model_file"
MODEL, INPUTS = "model", "example_inputs"


class NoModel(ValueError):  # noqa: N818 - named for what was found
    """The file is no model file; reads "FIELD: found ..., expected ..."."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found}, expected {expected}")
        self.field, self.found, self.expected = field, str(found), expected


@dataclass(frozen=True)
class UserModel:
    """The model of a file, on a device, and the inputs of one call."""

    path: Path
    module: nn.Module
    inputs: Inputs

    def call(self) -> Any:
        """Call the model and return its result; nothing is kept for gradients."""
        with torch.no_grad():
            return self.inputs.call(self.module)


def load(path: Path, device: torch.device) -> UserModel:
    """Run the file and make its model and its sample batch, both on `device`. Raises NoModel.

    The file is the user's own, and runs as Python would run it: its directory is first on the path.
    """
    specification = importlib.util.spec_from_file_location(NAME, path)
    if specification is None or specification.loader is None:
        raise NoModel("MODEL.py", path.name, "a Python file")
    file = importlib.util.module_from_spec(specification)
    sys.modules[NAME] = file  # for dataclasses and pickle, which look a class's module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        specification.loader.exec_module(file)
    except (Exception, SystemExit) as error:
        raise NoModel("MODEL.py", _raised(error, path), "a file that can be imported") from error
    module = _made(file, MODEL, path, "a torch.nn.Module")
    if not isinstance(module, nn.Module):
        raise NoModel(f"{MODEL}()", f"a {type(module).__name__}", "a torch.nn.Module")
    given = _made(file, INPUTS, path, "the arguments of one call: a tensor, a tuple, or a dict by name")
    inputs = Inputs.of(given)
    tensors = [leaf for leaf in inputs.leaves()[0] if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise NoModel(f"{INPUTS}()", "no tensor", "at least one among the arguments of the model")
    user = UserModel(path, module.to(device), inputs.to(device))
    try:
        user.call()
    except Exception as error:
        raise NoModel(f"{INPUTS}()", _raised(error, path), f"arguments that {MODEL}() can be called with") from error
    return user


def _made(file: Any, name: str, path: Path, expected: str) -> Any:
    """Return the result of the file's function of this name."""
    make: Callable[[], Any] | None = getattr(file, name, None)
    if not callable(make):
        found = "nothing" if make is None else f"a {type(make).__name__}"
        raise NoModel(f"{path.name}: {name}", found, f"a function without arguments that returns {expected}")
    try:
        return make()
    except Exception as error:
        raise NoModel(f"{path.name}: {name}()", _raised(error, path), expected) from error


def _raised(error: BaseException, path: Path) -> str:
    """Describe the error and the last line of the user's file that led to it."""
    line, at = None, error.__traceback__
    while at is not None:
        line = at.tb_lineno if at.tb_frame.f_code.co_filename == str(path) else line
        at = at.tb_next
    said = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {said}" + ("" if line is None else f" (line {line})")
