"""A program that takes the place of `ncu` where there is none: it is called as `ncu` is, runs its command, and answers
in the form of Nsight Compute 2025. What it does besides stands in a file `mode` beside it.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

VALUED = {
    *("--page", "--log-file", "--metrics", "--kernel-name-base", "--launch-skip", "--launch-count"),
    *("--target-processes", "--profile-from-start", "--clock-control", "--replay-mode"),
}
HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
HEAD += ["Device", "CC"]
VALUES = {
    "gpu__time_duration.sum": ("usecond", "1,052.25"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "23.40"),
    "dram__bytes_read.sum": ("Mbyte", "134.22"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "14.25"),
    "l1tex__t_sector_hit_rate.pct": ("%", "n/a"),
}


def arguments(given: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options, and the program that stands after them."""
    options: dict[str, str] = {}
    rest = list(given)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        options[name] = rest.pop(0) if name in VALUED else ""
    return options, rest


def main() -> int:
    """Do as the mode says."""
    beside = Path(sys.argv[0]).resolve().parent
    mode = (beside / "mode").read_text()
    options, program = arguments(sys.argv[1:])
    log = Path(options["--log-file"])
    with (beside / "calls").open("a") as file:
        file.write(json.dumps({"options": options, "program": program, "environment": sorted(os.environ)}) + "\n")
    if mode == "permission":
        log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access the counters\n")
        return 1
    if mode == "hang":
        leaving = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (beside / "hangs").write_text(f"{os.getpid()} {leaving.pid}")
        time.sleep(600)
    for absent in ("lts__throughput", "l1tex__throughput"):
        found = [name for name in options["--metrics"].split(",") if name.startswith(absent)]
        if mode == "old" and found:
            log.write_text(f"==ERROR== Failed to find metric {found[0]}\n")
            return 1
    status = subprocess.run(program, check=False).returncode
    with log.open("w") as file:
        file.write(f"==PROF== Connected to process 1 ({program[0]})\n")
        if status != 0:
            file.write("==WARNING== No kernels were profiled.\n")
            return status
        names = options["--metrics"].split(",")
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([*HEAD, *names])
        writer.writerow([*[""] * len(HEAD), *(VALUES.get(name, ("%", ""))[0] for name in names)])
        for number, kernel in enumerate(("fill", "norm(float *, long long)", "norm(float *, long long)")):
            place = [
                str(number),
                "1",
                "python3",
                "127.0.0.1",
                kernel,
                "1",
                "7",
                "(256, 1, 1)",
                "(64, 1, 1)",
                "0",
                "9.0",
            ]
            writer.writerow([*place, *(VALUES.get(name, ("%", "1.00"))[1] for name in names)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
