"""The extension that replays plans and a stand-in of CUDA's driver, which it has opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stand_in_driver import Driver
from tests.support.plans import with_plans
from warpsmith.kernels_db.runtime import plan_build


@pytest.fixture(scope="session")
def plan_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(with_plans(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def extension(plan_cache: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPSMITH_KERNEL_CACHE", str(plan_cache))
        plan_build.extension.cache_clear()
        yield plan_build.extension()
        plan_build.extension.cache_clear()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, extension: Any) -> Driver:
    made = Driver(tmp_path_factory.mktemp("driver"))
    assert extension.open_driver(str(made.path))
    return made
