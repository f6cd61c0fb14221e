"""Reports of compute-sanitizer, as its versions write them: what is found, where, and in whose kernels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.judge.sanitizers import report
from warpsmith.workers.judge.sanitizers.report import TOOLS

KERNELS = {"add", "softmax_rows"}

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at add(const float *, const float *, float *, long long)+0x90
=========     by thread (136,0,0) in block (19,0,0)
=========     Access at 0x7f6a4be04e20 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6a4be00000 of size 20,000 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at add(const float *, const float *, float *, long long)+0x90
=========     by thread (137,0,0) in block (19,0,0)
=========     Access at 0x7f6a4be04e24 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f6a4be00000 of size 20,000 bytes
=========
========= ERROR SUMMARY: 2 errors
"""
OLDER = """========= COMPUTE-SANITIZER
the candidate says =========
========= Invalid __shared__ read of size 16 bytes
=========     at 0x1b0 in /home/user/candidate.cu:12:softmax_rows(float const *, float *)
=========     by thread (0,0,0) in block (1,0,0)
=========     Address 0x7f0 is misaligned
=========
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at softmax_rows(float *, int)+0x140
=========     and Read access at softmax_rows(float *, int)+0x1a0 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
OLDER_RACE = """========= COMPUTE-SANITIZER
========= ERROR: Race reported between Read access at 0x6360 in /src/candidate.cu:123:add(pixel const*, int)
=========     and Write access at 0x1fe0 in /src/candidate.cu:63:add(pixel const*, int) [1088 hazards]
=========     and Write access at 0x26d0 in /src/candidate.cu:68:add(pixel const*, int) [64 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at add+0x1b0 in candidate.py:14
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 16 errors
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at gather(const float *)+0x70
=========     by thread (0,0,0) in block (17,0,0)
=========     Access at 0x7f4d5b004400
=========     Device Frame: add(float *, const float *)+0x120
=========
========= ERROR SUMMARY: 1 error
"""
FOREIGN = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 8 bytes
=========     at void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)+0x70
=========     by thread (0,0,0) in block (17,0,0)
=========     Access at 0x7f4d5b004400
=========
========= Host API memory access error at host access to 0x7fb7614c4e00 of size 16,000 bytes
=========     Uninitialized access at 0x7fb7614c4e00 on access by cudaMemcpy source
=========
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaFree.
=========
========= ERROR SUMMARY: 3 errors
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
REFUSALS = [
    "========= Error: Target application terminated before first instrumented API call",
    '========= Error: Device not supported. Please refer to the "Supported Devices" section of the documentation',
    "========= Error: process didn't terminate successfully",
    "========= Internal Memcheck Error: Initialization failed",
    "========= Error: No attachable process found. compute-sanitizer timed-out.",
]


@pytest.mark.parametrize(
    ("said", "count", "line"),
    [
        (
            MEMCHECK,
            2,
            "Invalid __global__ write of size 4 bytes; at add(const float *, const float *, float *, long long)",
        ),
        (OLDER, 1, "Invalid __shared__ read of size 16 bytes; at 0x1b0 in /home/user/candidate.cu:12:softmax_rows("),
        (
            RACECHECK,
            1,
            "Error: Race reported between Write access at softmax_rows(float *, int)+0x140; and Read access",
        ),
        (OLDER_RACE, 1, "ERROR: Race reported between Read access at 0x6360 in /src/candidate.cu:123:add(pixel const*"),
        (SYNCCHECK, 1, "Barrier error detected. Divergent thread(s) in block.; at add+0x1b0 in candidate.py:14"),
        (INITCHECK, 1, "Uninitialized __global__ memory read of size 4 bytes; at gather(const float *)+0x70"),
    ],
)
def test_a_finding_is_the_tools_own_lines(said: str, count: int, line: str) -> None:
    found = report.read(said.encode(), KERNELS)
    assert len(found.findings) == count
    assert found.findings[0].line.startswith(line)
    assert found.refused is None


@pytest.mark.parametrize("said", [CLEAN, FOREIGN])
def test_what_is_not_in_the_candidates_kernels_is_none_of_its_findings(said: str) -> None:
    assert report.read(said.encode(), KERNELS) == report.Report(())


def test_a_kernel_of_cute_dsl_is_known_by_its_function() -> None:
    named = MEMCHECK.replace("add(", "kernel_cutlass_add_tensorptrf32gmemo81_0(").replace(
        "add+", "kernel_cutlass_add_tensorptrf32gmemo81_0+"
    )
    assert report.read(named.encode(), {"add"}).findings != ()
    assert report.read(named.encode(), {"dd", "tensorptrf32gmemo81_0"}).findings == ()


def test_a_kernels_name_is_a_whole_word() -> None:
    assert report.read(MEMCHECK.encode(), {"dd", "ad", "add2"}).findings == ()
    assert report.read(MEMCHECK.replace("add(", "ns::add<4>(").encode(), {"add"}).findings != ()


@pytest.mark.parametrize("line", REFUSALS)
def test_a_tool_that_cannot_look_says_so(line: str) -> None:
    found = report.read(f"========= COMPUTE-SANITIZER\n{line}\n".encode(), KERNELS)
    assert found.findings == ()
    assert found.refused is not None
    assert found.refused in line


@pytest.mark.parametrize("said", [b"", b"Segmentation fault\n", MEMCHECK.encode()[:40]])
def test_a_report_without_an_end_is_no_clean_one(said: bytes) -> None:
    assert report.read(said, KERNELS).refused == "it wrote no summary"


def test_what_was_found_before_a_tool_fell_counts() -> None:
    found = report.read(MEMCHECK.partition("========= ERROR SUMMARY")[0].encode(), KERNELS)
    assert len(found.findings) == 2
    assert found.refused == "it wrote no summary"


def test_a_report_is_bounded() -> None:
    assert report.read(b"=" * (report.MOST_BYTES + 1), KERNELS).refused is not None
    many = report.read((MEMCHECK.partition("========= ERROR")[0] * 40).encode(), KERNELS)
    assert len(many.findings) == report.MOST_RECORDS


@given(st.text(alphabet="= \n:add()Invalid__global__ read of Error SUMMARY", max_size=400), st.binary(max_size=50))
@settings(max_examples=200)
def test_any_text_is_read(text: str, tail: bytes) -> None:
    found = report.read(text.encode() + tail, KERNELS)
    assert all(len(finding.title) <= report.LONGEST_LINE for finding in found.findings)


def test_every_tool_has_a_command_line_that_ends_with_the_program() -> None:
    for tool in TOOLS:
        line = report.command("/bin/compute-sanitizer", tool, "/tmp/report", ["python", "-m", "x"])
        assert line[:3] == ["/bin/compute-sanitizer", "--tool", tool]
        assert line[-3:] == ["python", "-m", "x"]


def hazard(thread: int, kind: str = "WAR", incoming: str = "?", kernel: str = "add") -> str:
    """Return a record of `racecheck --racecheck-report hazard`, as 2025.3.1 writes it."""
    return (
        f"========= Error: Potential {kind} hazard detected at __shared__ 0x404 in block (0,0,0) :\n"
        f"=========     Read Thread ({thread},0,0) at {kernel}+0x550\n"
        f"=========     Write Thread (128,0,0) at {kernel}+0x1620\n"
        f"=========     Current Value : 0, Incoming Value : {incoming}\n========= \n"
    )


RACE = report.Finding(
    "Error: Race reported between Write access at add+0x1620", ("and Read access at add+0x550 [124 hazards]",)
)
END = "========= RACECHECK SUMMARY: 124 hazards displayed (124 errors, 0 warnings)\n"


def lane_of(*records: str, races: tuple[report.Finding, ...] = (RACE,), end: str = END) -> int | None:
    return report.arriving_lane(("========= COMPUTE-SANITIZER\n" + "".join(records) + end).encode(), {"add"}, races)


@given(st.integers(0, 31), st.permutations(range(128)))
def test_the_lane_that_releases_for_its_warp_is_the_one_without_a_hazard(lane: int, threads: list[int]) -> None:
    assert lane_of(*(hazard(thread) for thread in threads if thread % 32 != lane)) == lane
    assert lane_of(*(hazard(thread) for thread in threads)) is None
    assert lane_of(*(hazard(thread) for thread in threads if thread % 32 not in (lane, (lane + 1) % 32))) is None


def test_no_lane_is_excused_from_a_hazard_of_another_kind() -> None:
    others = [hazard(thread) for thread in range(1, 32)]
    assert lane_of(*others) == 0
    assert lane_of(*others, hazard(5, kind="RAW")) is None
    assert lane_of(*others, hazard(5, incoming="7")) is None  # an ordinary store
    assert lane_of(*others, hazard(5).replace("(5,0,0)", "(5,1,0)")) is None
    assert lane_of(*others, hazard(32)) is None  # the first lane of another warp
    assert lane_of(*others, hazard(0, kernel="another")) == 0
    assert lane_of() is None
    assert report.arriving_lane(b"=" * (report.MOST_HAZARD_BYTES + 1), {"add"}, ()) is None


def test_no_lane_is_excused_by_a_list_that_is_not_whole() -> None:
    others = [hazard(thread) for thread in range(1, 32)]
    assert lane_of(*others, end="") is None, "the tool was ended before its summary"
    unseen = report.Finding("Error: Race reported between Write access at add+0x90", ("and Read access at add+0xa0",))
    assert lane_of(*others, races=(RACE, unseen)) is None, "the list was cut off before this pair"
    assert lane_of(*others, races=(RACE,) * report.MOST_RECORDS) is None, "there may be more pairs"


@given(st.text(alphabet="= \n:add()Potential WAR hazard detected at Read Thread 1,0 Incoming Value ?", max_size=400))
def test_any_list_of_hazards_is_read(text: str) -> None:
    report.arriving_lane(text.encode(), {"add"}, (RACE,))
