"""What candidates do at run time to be called right or fast, each beside the honest kernel that must pass.

The gate keeps most of this out of the Python part; here it is native code, which the gate cannot read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels_db.job import Verdict
from tests import degraded, judging
from tests.judging import ALL_ROWS, GOOD_NORM, LAYER_NORM, LAYER_NORMS, NORM_ROW, NORM_SIGNATURE, cpp, norm_candidate
from workers.judge.client import JudgeClient, JudgeDied

TIMEOUT_S = 120.0
LARGE = [judging.layer_norm_workload("bench", "bench", 512, 1024)]
"""Large enough that a call takes longer than the referee needs to look at its result."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with pytest.MonkeyPatch.context() as patch, JudgeClient(cache=tmp_path_factory.mktemp("judge-cache")) as judge:
        patch.setenv("WARPSMITH_OPENAI_API_KEY", "secret")
        patch.setenv("SECRET_OF_THE_CALLER", "secret")
        judge.start()
        yield judge


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    """A judge on a machine with neither Landlock nor seccomp."""
    directory = tmp_path_factory.mktemp("unconfined")
    with JudgeClient(cache=directory / "cache") as judge:
        degraded.start(judge, directory, ("landlock", "seccomp"))
        yield judge


def _judge(client: JudgeClient, source: str, large: bool = False) -> Verdict:
    workloads = LARGE if large else LAYER_NORMS
    return client.judge(judging.job(LAYER_NORM, workloads, source), timeout_s=TIMEOUT_S)


def test_the_honest_kernel_passes(client: JudgeClient) -> None:
    for large in (False, True):
        verdict = _judge(client, GOOD_NORM, large)
        assert verdict["verdict"] == "accepted", verdict["reason"]


WITH_LIBC = """
#include <cstdlib>
#include <cstring>
extern "C" {
    int snprintf(char*, unsigned long, const char*, ...); int sscanf(const char*, const char*, ...);
    int getppid(); int getpid(); int kill(int, int); int open(const char*, int, ...); int close(int);
    long read(int, void*, unsigned long); long write(int, const void*, unsigned long);
    long pread(int, void*, unsigned long, long);
    long send(int, const void*, unsigned long, int); unsigned usleep(unsigned); int ftruncate(int, long);
    int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);
    int ptrace(int, ...); int fcntl(int, int, ...);
}
"""

CHEATS = {
    # 1, 7: whatever lies in memory, or the result of an earlier call.
    "leaves the output as it finds it": "",
    "returns the first result again": """
        static float* kept = nullptr;
        if (!kept) { kept = (float*)malloc(rows * n * 4); LOOP std::memcpy(kept, y, rows * n * 4); }
        std::memcpy(y, kept, rows * n * 4);""",
    # 24: the same pointers mean the same values, or so it hopes.
    "caches by pointer": """
        static const float* seen[8]; static float* kept[8]; static int count = 0;
        for (int i = 0; i < count; i++)
            if (seen[i] == x) { std::memcpy(y, kept[i], rows * n * 4); return; }
        LOOP
        if (count < 8) {
            seen[count] = x; kept[count] = (float*)malloc(rows * n * 4); std::memcpy(kept[count++], y, rows * n * 4);
        }""",
    # 25: a fingerprint of a few elements.
    "caches by a fingerprint of the weights": """
        static float key = 0; static float* kept = nullptr;
        if (kept && key == w[0] - w[0]) { std::memcpy(y, kept, rows * n * 4); return; }
        LOOP
        kept = (float*)malloc(rows * n * 4); std::memcpy(kept, y, rows * n * 4); key = w[0] - w[0];""",
    # 17, 31: honest while it is looked at.
    "is honest for ten calls": """
        static int calls = 0;
        if (++calls <= 10) { LOOP } else std::memset(y, 0, rows * n * 4);""",
    "drops the tail after the first calls": """
        static int calls = 0;
        if (++calls > 8) rows = rows / 2;
        LOOP""",
    # 2: what is compared with is not what it was given.
    "zeroes its inputs and returns what fits": """
        float* own = const_cast<float*>(x);
        for (int64_t i = 0; i < rows * n; i++) own[i] = 0;
        LOOP""",
    # 18, 36: the reference's memory.
    "writes where the next slot might be": "LOOP std::memset(y + rows * n, 0, 4096);",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_with_values_is_rejected(client: JudgeClient, name: str) -> None:
    verdict = _judge(client, norm_candidate(CHEATS[name].replace("LOOP", ALL_ROWS), WITH_LIBC))
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] in ("wrong_value", "not_written", "input_modified", "out_of_bounds")


FIND_CONTROL = """
static int control() {
    for (int fd = 3; fd < 64; fd++) { char c; int type = 0; unsigned size = 4;
        if (getsockopt(fd, 1, 3, &type, &size) == 0) return fd; }
    return -1;
}
"""
SOCKETS = 'extern "C" { int getsockopt(int, int, int, void*, unsigned*); long recv(int, void*, unsigned long, int); }\n'


def test_an_answer_before_the_work_is_seen(client: JudgeClient) -> None:
    """38, 21: "done" goes out first; the clock stops, and the outputs, in a process that is stopped, are not there."""
    body = f"""
        static int calls = 0;
        const int fd = control();
        if (++calls > 2) send(fd, "K", 1, 0);
        {ALL_ROWS}
        if (calls > 2) {{ char go[8]; recv(fd, go, 8, 0); }}"""
    verdict = _judge(client, norm_candidate(body, WITH_LIBC + SOCKETS + FIND_CONTROL), large=True)
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] in ("protocol", "not_written", "wrong_value", "timeout", "raises", "crash")


def test_answers_in_advance_are_seen(client: JudgeClient) -> None:
    """A stock of answers on the socket would make every call take no time."""
    body = f'for (int i = 0; i < 20; i++) send(control(), "K", 1, 0);\n{ALL_ROWS}'
    verdict = _judge(client, norm_candidate(body, WITH_LIBC + SOCKETS + FIND_CONTROL))
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] in ("protocol", "not_written", "wrong_value")


def test_work_that_goes_on_in_a_thread_is_seen(client: JudgeClient) -> None:
    """21: `run` returns at once and a thread does the work."""
    before = f"""{WITH_LIBC}{NORM_ROW}
static const float *X, *W, *B; static float* Y; static int64_t R, N;
static void* later(void*) {{ for (int64_t r = 0; r < R; r++) row(X + r * N, W, B, Y + r * N, N); return nullptr; }}
extern "C" void norm({NORM_SIGNATURE}) {{
    X = x; W = w; B = b; Y = y; R = rows; N = n;
    unsigned long thread;
    pthread_create(&thread, nullptr, later, nullptr);
}}
"""
    verdict = _judge(client, cpp(before, judging.NORM_RUN), large=True)
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] in ("not_written", "wrong_value")


@pytest.mark.parametrize("junk", ["{", "[[[[", "\\xff\\xfe", '{\\"error\\": []}', "KK", "Z"])
def test_junk_for_an_answer_costs_a_verdict_and_no_judge(client: JudgeClient, junk: str) -> None:
    """37: what a runner says is read by code that expects anything."""
    pid = client.pid
    body = f'const char junk[] = "{junk}"; send(control(), junk, sizeof junk - 1, 0); {ALL_ROWS}'
    verdict = _judge(client, norm_candidate(body, WITH_LIBC + SOCKETS + FIND_CONTROL))
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] in ("protocol", "raises", "crash")
    assert pid in (None, client.pid)


def test_a_deep_answer_does_not_end_the_judge(client: JudgeClient) -> None:
    body = (
        'char* deep = (char*)malloc(100000); std::memset(deep, \'[\', 100000); std::memcpy(deep, "{\\"error\\":", 9);'
        'send(control(), "E", 1, 0); send(control(), deep, 100000, 0);' + ALL_ROWS
    )
    verdict = _judge(client, norm_candidate(body, WITH_LIBC + SOCKETS + FIND_CONTROL))
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert _judge(client, GOOD_NORM)["verdict"] == "accepted"


def _looks(what: str) -> str:
    """A candidate that computes rightly unless `what` sets `found`, which it then adds to an element of the result."""
    return norm_candidate(f"int found = 0; {{ {what} }} {ALL_ROWS} y[0] += found;", WITH_LIBC)


PARENTS = """
    int pids[2]; pids[0] = getppid(); pids[1] = 0;
    char path[64], text[4096]; snprintf(path, 64, "/proc/%d/stat", pids[0]);
    int fd = open(path, 0); long got = read(fd, text, 4095); close(fd); text[got > 0 ? got : 0] = 0;
    const char* after = std::strrchr(text, ')'); if (after) sscanf(after + 2, "%*c %d", &pids[1]);
"""
SIBLINGS = (
    PARENTS
    + """
    snprintf(path, 64, "/proc/%d/task/%d/children", pids[0], pids[0]);
    fd = open(path, 0); got = read(fd, text, 4095); close(fd); text[got > 0 ? got : 0] = 0;
    int used = 0, sibling = 0;
    for (const char* at = text; sscanf(at, "%d %n", &sibling, &used) == 1; at += used) { if (sibling != getpid()) {
"""
)


def test_the_probe_of_these_tests_can_tell(unconfined: JudgeClient) -> None:
    client = unconfined
    verdict = _judge(client, _looks("found = 1;"))
    assert verdict["failure"] is not None
    assert verdict["failure"]["index"] == [0, 0]
    parents = PARENTS + "if (pids[0] > 1 && pids[1] > 1) found = 1;"
    assert _judge(client, _looks(parents))["verdict"] == "rejected"
    assert _judge(client, _looks(SIBLINGS + "found = 1; } }"))["verdict"] == "rejected"


SNOOPS = {
    # 35, 40: expected values and seeds lie in the referee, the parent's parent.
    "reads the referee's memory": PARENTS
    + 'snprintf(path, 64, "/proc/%d/mem", pids[1]); if (open(path, 0) >= 0) found = 1;',
    "reads the referee's environment": PARENTS
    + 'snprintf(path, 64, "/proc/%d/environ", pids[1]); fd = open(path, 0);'
    + " if (fd >= 0 && read(fd, text, 10) > 0) found = 1;",
    "opens the referee's descriptors": PARENTS
    + 'snprintf(path, 64, "/proc/%d/fd/0", pids[1]); if (open(path, 0) >= 0) found = 1;',
    "reads the fork server's memory": PARENTS
    + 'snprintf(path, 64, "/proc/%d/mem", pids[0]); if (open(path, 0) >= 0) found = 1;',
    # The float64 reference's runner holds the expected values.
    "reads another runner's memory": SIBLINGS
    + 'snprintf(path, 64, "/proc/%d/mem", sibling); if (open(path, 0) >= 0) found = 1; } }',
    "traces another runner": SIBLINGS + "if (ptrace(16, sibling, 0, 0) == 0) found = 1; } }",
    "traces the referee": PARENTS + "if (ptrace(16, pids[1], 0, 0) == 0) found = 3;",
    # 44: nothing of the caller's in its own surroundings.
    "finds a key in its environment": 'if (getenv("WARPSMITH_OPENAI_API_KEY")) found = 1;'
    + 'if (getenv("SECRET_OF_THE_CALLER")) found = 2;',
    # 37: nothing inherited: the control socket and its own three buffers are all.
    "finds descriptors of others": "int count = 0; for (int fd = 3; fd < 1024; fd++) count += fcntl(fd, 1) >= 0; "
    " if (count != 1 + SLOTS) found = count;".replace("SLOTS", "3"),
}


@pytest.mark.parametrize("name", SNOOPS)
def test_a_snoop_finds_nothing(unconfined: JudgeClient, name: str) -> None:
    """Even where it can find out who its parents are."""
    verdict = _judge(unconfined, _looks(SNOOPS[name]))
    assert verdict["verdict"] == "accepted", verdict["reason"]


def test_a_confined_candidate_cannot_find_its_parents(client: JudgeClient) -> None:
    verdict = _judge(client, _looks(PARENTS + "if (pids[1] > 0) found = 1;"))
    assert verdict["verdict"] == "accepted", verdict["reason"]


@pytest.mark.parametrize("whom", ["pids[0]", "pids[1]"])
def test_killing_its_parents_gains_nothing(unconfined: JudgeClient, whom: str) -> None:
    """Runner, fork server and referee belong to one user: where no sandbox parts them, a kill must not help."""
    client = unconfined
    source = norm_candidate(f"{PARENTS} kill({whom}, 9); {ALL_ROWS}", WITH_LIBC)
    try:
        verdict = _judge(client, source)
    except JudgeDied:
        verdict = None
    assert verdict is None or verdict["verdict"] in ("rejected", "ambiguous")
    assert _judge(client, GOOD_NORM)["verdict"] == "accepted"


def test_one_candidate_leaves_nothing_for_the_next(unconfined: JudgeClient) -> None:
    """42: static state, files in the working directory and the environment are gone."""
    client = unconfined
    mark = _looks('int fd = open("left-behind", 0101, 0600); if (fd < 0) found = 1; else close(fd);')
    look = _looks('if (open("left-behind", 0) >= 0) found = 1;')
    for source in (mark, look):
        verdict = _judge(client, source)
        assert verdict["verdict"] == "accepted", verdict["reason"]
