"""What Triton's autotuner took: recorded from the real tuner around a launch that only counts, and checked."""

from __future__ import annotations

from typing import Any

import pytest

from warpsmith.workers.judge.runner import tuned_configurations

triton = pytest.importorskip("triton", reason="Triton is not installed")
autotuner = pytest.importorskip("triton.runtime.autotuner", reason="Triton is not installed")


class Launch:
    """What a tuner launches, in place of a kernel: notes with what."""

    def __init__(self) -> None:
        self.took: list[dict[str, Any]] = []

        def product(x: Any, n: int, BLOCK: int) -> None: ...  # noqa: N803 - as kernels name it

        self.fn = product

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Note the arguments by name."""
        self.took.append(kwargs)


def tuner(*blocks: int) -> Any:
    """A tuner whose memory has the last configuration for a key of 8 and the first for every other."""
    configs = [triton.Config({"BLOCK": block}, num_warps=2) for block in blocks]
    made = autotuner.Autotuner(Launch(), ["x", "n", "BLOCK"], configs, ["n"], None, None)
    made.cache = {(8,): configs[-1], (9,): configs[0]}
    return made


def test_each_key_is_recorded_once_with_what_it_took() -> None:
    made = tuner(16, 32)
    with tuned_configurations.recorded() as found:
        for n in (8, 9, 8):
            made.run(None, n)
    made.run(None, 8)
    assert [one["key"] for one in found] == [[8], [9]]
    assert [one["configuration"]["BLOCK"] for one in found] == [32, 16]
    assert found[0] == {"kernel": "product", "key": [8], "configuration": made.configs[1].all_kwargs()}
    assert tuned_configurations.checked(found) == found


def test_a_single_configuration_is_none_to_record() -> None:
    with tuned_configurations.recorded() as found:
        tuner(16).run(None, 8)
    assert found == []


@pytest.mark.parametrize(
    "found",
    [
        None,
        ["product"],
        [{"kernel": "product", "key": [8]}],
        [{"kernel": "product", "key": [[8]], "configuration": {}}],
        [{"kernel": "product", "key": [8], "configuration": {"BLOCK": None}}],
        [{"kernel": "p" * 300, "key": [8], "configuration": {}}],
        [{"kernel": "product", "key": [8] * 60, "configuration": {}}],
        [{"kernel": "product", "key": [8], "configuration": {}}] * 60,
    ],
)
def test_what_a_runner_tells_otherwise_is_refused(found: object) -> None:
    with pytest.raises(TypeError, match="expected at most 50 of kernel, key and configuration"):
        tuned_configurations.checked(found)
