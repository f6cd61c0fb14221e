"""Nsight Compute's command line, its answer as a table, and the table in words."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job import nsight_metrics
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.nsight import access
from warpsmith.workers.judge.nsight import metrics as nsight

SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
READ = "dram__bytes_read.sum"
LONG = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
HEAD += ["Device", "CC"]
CHATTER = """==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "vectorized_elementwise_kernel" - 0: 0%....50%....100% - 9 passes
==WARNING== Found outstanding GPU clock reset, trying to revert...Success.
==PROF== Disconnected from process 4711
"""


def row(number: int, kernel: str, *values: str) -> list[str]:
    plain = [str(number), "4711", "python3.12", "127.0.0.1", kernel, "1", "7", "(256, 1, 1)", "(16384, 1, 1)"]
    return [*plain, "0", "9.0", *values]


def page(names: list[str], units: list[str], *rows: list[str], chatter: str = CHATTER) -> bytes:
    """What `ncu --csv --page raw` writes: its own words, the names, their units, a row for each launch."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([[*HEAD, *names], [*[""] * len(HEAD), *units], *rows])
    return (chatter + text.getvalue()).encode()


def test_the_command_asks_for_two_dozen_metrics_of_what_is_marked_alone() -> None:
    told = nsight.command("/opt/ncu", "log.csv", ["python", "-m", "x"])
    assert told[0] == "/opt/ncu"
    assert told[-3:] == ["python", "-m", "x"]
    names = told[told.index("--metrics") + 1].split(",")
    assert names == [metric.name for metric in nsight_metrics.METRICS]
    assert 20 <= len(set(names)) == len(names) <= 30
    assert told[told.index("--clock-control") + 1] == "none"
    assert told[told.index("--profile-from-start") + 1] == "off"
    fewer = nsight.command("ncu", "log.csv", [], without=[SM])
    assert SM not in fewer[fewer.index("--metrics") + 1]


def test_launches_of_a_kernel_become_their_mean_in_plain_units() -> None:
    said = page(
        [nsight_metrics.TIME, READ, SM, "launch__registers_per_thread", "not__asked.sum"],
        ["usecond", "Mbyte", "%", "register/thread", "byte"],
        row(0, "void at::native::vectorized_elementwise_kernel<4>(int)", "1.50", "0.1", "1", "10", "9"),
        row(1, "norm(float *, float *, long long)", "1,234.50", "33.60", "41.25", "32", "1"),
        row(2, "small<int, 3>(float *)", "2.00", "n/a", "", "16", "1"),
        row(3, "norm(float *, float *, long long)", "1,235.50", "33.40", "n/a", "32", "1"),
    )
    first, second = nsight.read(said)
    assert (first["name"], first["launches"]) == ("norm(float *, float *, long long)", 2)
    assert first["metrics"] == {
        nsight_metrics.TIME: 1235.0,
        READ: 33.5e6,
        SM: 41.25,
        "launch__registers_per_thread": 32.0,
    }
    assert second["name"] == "small<int, 3>(float *)"
    assert second["metrics"] == {nsight_metrics.TIME: 2.0, "launch__registers_per_thread": 16.0}


@pytest.mark.parametrize(
    ("unit", "value", "expected"), [("ns", "2,500", 2.5), ("nsecond", "10", 0.01), ("ms", "3", 3000), ("s", "1", 1e6)]
)
def test_units_of_old_and_new_versions_are_read(unit: str, value: str, expected: float) -> None:
    assert (
        nsight.read(page([nsight_metrics.TIME], [unit], row(1, "k", value)))[0]["metrics"][nsight_metrics.TIME]
        == expected
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
            "NVIDIA GPU Performance Counters on the target device 0.",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", "LibraryNotLoaded"),
        ("", "ncu gave no table"),
        ("Segmentation fault", "ncu gave no table"),
    ],
)
def test_without_a_table_the_reason_is_told(said: str, reason: str) -> None:
    with pytest.raises(nsight.NoMetrics, match="ncu") as error:
        nsight.read(said.encode())
    assert reason in str(error.value)
    assert error.value.unknown == ()


@pytest.mark.parametrize(
    "said",
    [
        f"==ERROR== Failed to find metric {SM}\n",
        r"==ERROR== Failed to find metric regex:^sm__throughput\.avg\.pct_of_peak_sustained_elapsed(\.(sum|min|max))?$",
    ],
)
def test_a_metric_that_this_device_has_not_is_named(said: str) -> None:
    with pytest.raises(nsight.NoMetrics) as error:
        nsight.read(said.encode())
    assert error.value.unknown == (SM,)


def test_the_profilers_own_launch_is_no_kernel_of_the_candidates() -> None:
    with pytest.raises(nsight.NoMetrics, match=r"no kernel of the candidate's was profiled.*clock reset"):
        nsight.read(page([nsight_metrics.TIME], ["us"], row(0, "fill", "1.0")))


def test_an_answer_beyond_bounds_is_refused() -> None:
    with pytest.raises(nsight.NoMetrics, match="expected no more"):
        nsight.read(b" " * (nsight.MOST_BYTES + 1))
    with pytest.raises(nsight.NoMetrics, match="no CSV"):
        nsight.read(b'"ID","Process ID"\n"' + b"x" * 200_000 + b'"')
    with pytest.raises(nsight.NoMetrics, match="expected one with the kernels' names"):
        nsight.read(b'"ID","Process ID","Other"\n')


def test_more_kernels_than_are_kept_are_left_out() -> None:
    rows = [row(number, f"k{number}", str(number)) for number in range(1, 100)]
    found = nsight.read(page([nsight_metrics.TIME], ["us"], *rows))
    assert [kernel["name"] for kernel in found] == [
        f"k{number}" for number in range(nsight.MOST_LAUNCHES, nsight.MOST_LAUNCHES - nsight.MOST_KERNELS, -1)
    ]


@pytest.mark.parametrize(
    ("said", "capable", "expected"),
    [
        ("RmProfilingAdminOnly: 0\nOther: 1\n", "0", "everybody"),
        ("RmProfilingAdminOnly: 1\n", "0", "refused"),
        ("RmProfilingAdminOnly: 1\n", "200000", "administrator"),
        ("nothing of the kind", "0", "everybody"),  # trying tells
        (None, "200000", "administrator"),
    ],
)
def test_who_may_read_the_counters(
    said: str | None, capable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "params"
    if said is not None:
        file.write_text(said)
    monkeypatch.setattr(process_control, "status", lambda _: {"CapEff": capable})
    assert access.permission(file) == expected


names = st.sampled_from([metric.name for metric in nsight_metrics.METRICS])
cells = st.one_of(st.floats().map(str), st.integers().map(lambda n: f"{n:,}"), st.text(max_size=20), st.just("n/a"))


@given(
    st.lists(names, max_size=5),
    st.lists(st.sampled_from(["us", "Gbyte", "%", ""]), max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.text(max_size=300), st.lists(cells, max_size=6)), max_size=30),
    st.binary(max_size=50),
)
def test_whatever_comes_is_a_bounded_table_or_no_metrics(
    columns: list[str], units: list[str], launches: list[tuple[int, str, list[str]]], noise: bytes
) -> None:
    said = page(columns, units, *(row(number, kernel, *values) for number, kernel, values in launches)) + noise
    try:
        found = nsight.read(said)
    except nsight.NoMetrics:
        return
    assert 1 <= len(found) <= nsight.MOST_KERNELS
    for kernel in found:
        assert len(kernel["name"]) <= nsight.LONGEST_NAME
        assert 1 <= kernel["launches"] <= nsight.MOST_LAUNCHES
        assert set(kernel["metrics"]) <= set(columns)
        assert all(abs(value) < 1e31 for value in kernel["metrics"].values())
    told = nsight_metrics.lines(found)
    assert 1 <= len(told) <= nsight_metrics.MOST_LINES
    assert all("\n" not in line and len(line) < 600 for line in told)


@given(st.binary(max_size=400))
def test_noise_raises_its_own_error_alone(noise: bytes) -> None:
    for said in (noise, b'"ID","Process ID","Kernel Name"\n' + noise):
        try:
            nsight.read(said)
        except nsight.NoMetrics:
            continue


def test_the_words_begin_with_what_explains_most() -> None:
    metrics = {
        nsight_metrics.TIME: 52.25,
        SM: 23.4,
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": 71.0,
        READ: 134.2e6,
        LONG: 14.25,
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 1.5,
        "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 0.01,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 25.0,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 48.5,
        "launch__registers_per_thread": 64.0,
        "launch__occupancy_limit_registers": 4.0,
        "launch__occupancy_limit_shared_mem": 8.0,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 0.0,
    }
    kernels = [{"name": "norm(float *)", "launches": 2, "metrics": metrics}]
    assert nsight_metrics.lines(kernels) == [  # type: ignore[arg-type]  # the literal is one
        "kernel norm(float *), mean of 2 launches:",
        "  time 52.25 us",
        "  of its peak: multiprocessors 23.4 %, device memory 71 %",
        "  stalls: 14.2 warps an issue waiting for global or local memory (long_scoreboard)",
        "  stalls: 1.5 warps an issue waiting for a dependent instruction of fixed latency (wait)",
        "  device memory: read 134.2 MB",
        "  bytes used of each sector: loads 25 %",
        "  achieved occupancy 48.5 %, 64 registers a thread, 4 blocks a multiprocessor, by registers",
    ]


def test_many_kernels_stay_within_the_lines() -> None:
    metrics = {metric.name: 50.0 for metric in nsight_metrics.METRICS}
    kernels = [{"name": f"k{number}", "launches": 1, "metrics": metrics} for number in range(5)]
    told = nsight_metrics.lines(kernels)  # type: ignore[arg-type]  # the literal is one
    assert len(told) <= nsight_metrics.MOST_LINES
    assert told[-1] == "shorter kernels, not shown: k2, k3, k4"
