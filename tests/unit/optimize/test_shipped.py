"""Packages of kernels that ship: an entry is read and built once, and again when its files change; a package is
imported where its op has a place.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export.library import FILES
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.library import SHIPPED, Entry, read_entry
from warpsmith.workers.optimize import building, shipped
from warpsmith.workers.optimize.compiled.kernel import Kernel
from warpsmith.workers.optimize.compiled.served import Served

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

TARGET = "cuda:sm_90"
ENTRY = "softmax_cuda_sm_90_852615fa"


def test_an_entry_is_read_and_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    library = tmp_path / "library"
    shutil.copytree(SHIPPED / ENTRY, library / ENTRY)
    monkeypatch.setattr(shipped, "SHIPPED", library)
    read: list[Path] = []
    own = read_entry

    def counted(directory: Path) -> Entry:
        read.append(directory)
        return own(directory)

    monkeypatch.setattr(building, "read_entry", counted)
    for stray in ("left/.DS_Store", "__pycache__/__init__.cpython-311.pyc.140234"):
        (library / stray).parent.mkdir()
        (library / stray).touch()
    (first,) = shipped._directories(TARGET)
    (again,) = shipped._directories(TARGET)
    assert again == first
    assert read == [library / ENTRY]
    assert list(shipped._directories("cuda:sm_80")) == []
    with (library / ENTRY / "LINEAGE.md").open("a") as lineage:
        lineage.write("\n")
    assert len(list(shipped._directories(TARGET))) == 1
    assert len(read) == 3, "one more for the other target, and one for the file that changed"
    (tmp_path / "packages" / "built.cuda_sm_90.json").write_text("[]")
    assert len(list(shipped._directories(TARGET))) == 1
    assert len(read) == 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the first test builds every kernel that ships; the next finds them there."""
    return tmp_path_factory.mktemp("kernels")


def test_a_later_process_imports_nothing_that_builds(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes it as long as finding the places of a whole model."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(built))
    assert list(shipped._directories(TARGET))
    code = "import sys; from warpsmith.workers.optimize import shipped; print(len(shipped.shipped_of(sys.argv[1]))); "
    code += "print([name for name in sys.modules if name.partition('.')[0] in ('jinja2', 'pydantic')])"
    ran = subprocess.run([sys.executable, "-c", code, TARGET], capture_output=True, text=True, check=True)
    many, imported = ran.stdout.splitlines()
    assert int(many) > 40
    assert imported == "[]"


def test_every_kernel_that_ships_builds(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not would end every model's first call, for its op is looked for in all."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(built))
    entries = [read_entry(directory) for directory in sorted(SHIPPED.iterdir()) if (directory / "op.json").exists()]
    mine = [entry for entry in entries if entry.target == TARGET]
    assert len(mine) > 40
    found = list(shipped._directories(TARGET))
    assert len(found) == len(mine)
    (own,) = (place for place in found if "fp8_linear" in place.name)
    assert "(by the op's own tolerance) |" in (own.parent / "README.md").read_text("utf-8")


def package(name: str, directory: Path) -> Path:
    """Export an op under a name that no other test imports; returns the package itself."""
    written = build(exported(SCALED_ADD | {"name": name}, SCALED_ADD_CPP), directory)
    return written / written.name


def test_a_package_is_imported_for_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    kernel = Kernel(package("add_by_and_by", tmp_path))
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    served = Served(kernel)
    axes = served.axes([x, y])
    assert isinstance(axes, dict)
    assert axes["rows"] == 3
    assert served.pattern((3,), torch.device("cpu")) is not None
    assert kernel.off() is None
    assert kernel.name not in sys.modules
    torch.testing.assert_close(served.call(x, y, 0.5), x + 0.5 * y)
    assert kernel.name in sys.modules
    assert str(tmp_path / kernel.name) not in sys.path
    kernel.package.disable()
    assert kernel.off() == "the kernel is switched off by disable()"


def compiled_anew(own: Path) -> set[str]:
    """Return the modules of a package that another process would compile if it imported all."""
    found = set()

    def compiled(_: SourceFileLoader, data: Any, path: str) -> Any:
        found.add(Path(path).stem)
        return compile(data, path, "exec")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceFileLoader, "source_to_code", compiled)
        for file in own.rglob("*.py"):
            SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    return found


def test_a_package_is_compiled_to_bytecode_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python is told to write none, as in many containers: every process would compile its modules anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own = package("add_compiled_once", tmp_path)
    assert {"_spec", "_op", "_guard"} <= compiled_anew(own)
    kernel = Kernel(own)
    anew = compiled_anew(own)
    assert not {"_spec", "_reference"} & anew
    assert "_op" in anew, "most packages have no place"
    _ = kernel.call
    assert compiled_anew(own) == set()


def test_what_a_package_imports_is_not_compiled_to_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' modules stay as Python is told, and what Python is told stays meanwhile, for other threads as well."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    own = package("add_with_others", tmp_path)
    (tmp_path / "site").mkdir()
    other = tmp_path / "site" / "imported_by_a_package.py"
    other.write_text("import sys\nWRITES_NONE = sys.dont_write_bytecode\n", "utf-8")
    with (own / "__init__.py").open("a", encoding="utf-8") as written:
        written.write("from imported_by_a_package import WRITES_NONE\n")
    assert Kernel(own).package.WRITES_NONE
    assert not list(tmp_path.glob("site/__pycache__/*"))


def test_a_package_that_cannot_be_written_to_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own = package("add_in_a_full_cache", tmp_path)
    (own / "__pycache__").write_text("no directory can be made here", "utf-8")
    assert Kernel(own).call is not None


class Watched(ModuleType):
    """A module that counts how often it is asked for its file."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "__file__":
            Watched.asked += 1
            return "watched.py"
        return super().__getattribute__(name)


def test_an_op_registers_without_a_search_of_all_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = package("add_registered", tmp_path)
    kernel = Kernel(own)
    monkeypatch.setitem(sys.modules, "watched", Watched("watched"))
    inspect.getmodule(compile("", str(tmp_path / "none.py"), "exec"))
    before = Watched.asked
    assert before, "a search asks each module; from now on inspect knows those of PyTorch"
    _ = kernel.call
    assert Watched.asked == before


def test_what_makes_launch_plans_is_imported_for_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    kernel = Kernel(package("add_unplanned", tmp_path))
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    with kernel.unwatched():
        for _ in range(2):
            kernel.call(x, y, 0.5)
        assert f"{kernel.name}._runtime.launch_plan" not in sys.modules
        assert kernel.package.status()["plans"]["recorded"] == 0
        kernel.call(x, y, 0.5)
    assert kernel.package.status()["plans"]["recorded"] == 1


def test_a_package_that_the_environment_switches_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNELS", "off")
    kernel = Kernel(package("add_never", tmp_path))
    assert kernel.off() == "the kernel is switched off by WARPSMITH_KERNELS"


def test_the_files_of_an_entry_are_those_that_the_library_writes() -> None:
    assert set(shipped.ENTRY) == set(FILES)
