"""Chrome traces of a profiled run: the table, and what is left out of the trace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.gates.traces import LONGEST_NAME, MOST_EVENTS, MOST_ROWS, BadTrace, chrome, read, table

# As torch 2.11 writes them on an H200, shortened.
TRACE: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    "traceName": "/home/somebody/trace.json",
    "displayTimeUnit": "ms",
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "run", "pid": 4711, "tid": 4711, "ts": 1000.5, "dur": 90.0},
        {"ph": "X", "cat": "user_annotation", "name": "run", "pid": 4711, "tid": 4711, "ts": 1100.5, "dur": 70.0},
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cuLaunchKernelEx",
            "pid": 4711,
            "tid": 4711,
            "ts": 1001.5,
            "dur": 5.25,
            "args": {"cbid": 652, "correlation": 9},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "rms_norm",
            "pid": 0,
            "tid": 7,
            "ts": 1010.5,
            "dur": 40.0,
            "args": {
                "device": 0,
                "stream": 7,
                "registers per thread": 32,
                "shared memory": 16,
                "grid": [8192, 1, 1],
                "block": [128, 1, 1],
                "est. achieved occupancy %": 94,
                "file": "/home/somebody/candidate.py",
            },
        },
        {"ph": "X", "cat": "kernel", "name": "rms_norm", "pid": 0, "tid": 7, "ts": 1110.5, "dur": 44.0, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "fix_tail", "pid": 0, "tid": 7, "ts": 1160.5, "dur": 2.0, "args": {}},
        {"ph": "X", "cat": "python_function", "name": "/home/somebody/x.py(1): f", "ts": 1000.0, "dur": 1.0},
        {"ph": "M", "name": "process_name", "pid": 4711, "args": {"name": "python3 /home/somebody/secret"}},
        {"ph": "i", "cat": "kernel", "name": "mark", "ts": 3.0},
    ],
}


def test_the_table_counts_by_name_the_device_first() -> None:
    assert table(read(TRACE)) == [
        {
            "name": "rms_norm",
            "kind": "kernel",
            "count": 2,
            "total_us": 84.0,
            "mean_us": 42.0,
            "launch": {
                "grid": [8192, 1, 1],
                "block": [128, 1, 1],
                "registers": 32.0,
                "shared_bytes": 16.0,
                "occupancy": 94.0,
            },
        },
        {"name": "fix_tail", "kind": "kernel", "count": 1, "total_us": 2.0, "mean_us": 2.0},
        {"name": "run", "kind": "region", "count": 2, "total_us": 160.0, "mean_us": 80.0},
        {"name": "cuLaunchKernelEx", "kind": "driver", "count": 1, "total_us": 5.25, "mean_us": 5.25},
    ]


def test_a_trace_names_no_path_no_process_and_no_machine() -> None:
    text = json.dumps(chrome(read(TRACE)))
    assert "home" not in text
    assert "4711" not in text
    assert "NVIDIA" not in text
    events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert events[0]["ts"] == 0.0
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    assert {event["pid"] for event in events} == {0, 1}


@pytest.mark.parametrize("document", [None, [], {}, {"traceEvents": 3}, "text"])
def test_what_is_no_trace_is_told(document: object) -> None:
    with pytest.raises(BadTrace, match=r"trace.*expected"):
        read(document)


def test_a_trace_is_bounded() -> None:
    one = {"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": 1, "tid": 1}
    events = [{**one, "name": f"{number}" + "x" * 500} for number in range(3000)]
    kept = read({"traceEvents": events})
    assert len(kept) == MOST_EVENTS
    assert max(len(event["name"]) for event in kept) == LONGEST_NAME
    assert len(table(kept)) == MOST_ROWS


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
fields = st.sampled_from(["ph", "cat", "name", "ts", "dur", "pid", "tid", "args"])
event = st.fixed_dictionaries({"ph": st.just("X"), "cat": st.sampled_from(["kernel", "cpu_op", "other"])}).flatmap(
    lambda start: st.dictionaries(fields, anything, max_size=8).map(lambda more: {**more, **start})
)


@given(st.lists(event | anything, max_size=5))
def test_whatever_a_runner_writes_is_read_or_refused(events: list[Any]) -> None:
    kept = read({"traceEvents": events})
    rows = table(kept)
    assert sum(row["count"] for row in rows) == len(kept)
    json.dumps(chrome(kept), allow_nan=False)
