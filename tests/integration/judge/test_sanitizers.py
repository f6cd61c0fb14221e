"""Sanitizers at verification: what results do not show is told with its line, and honest kernels pass."""

# ruff: noqa: E501 - a source on each line

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.redteam_catalogue.controls_cpp import TWO, TWO_RUN
from benchmarks.redteam_catalogue.text import ADD, ALL, add_cpp, cpp, run
from tests.judging import CPU, job, output, tensor, workload
from tests.kinds import nightly_but
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient

REFERENCE = "def run(x, y):\n    return x + y\n"
PLACES = [
    workload(str(n), role, [tensor("x", (n,)), tensor("y", (n,))], [output("out", (n,))])  # type: ignore[arg-type]
    for n, role in ((600, "test"), (37, "test"))
]
SCRATCH = 'extern "C" void sums(const float* x, const float* y, float* scratch, float* out, int64_t n) { BODY }'
SCRATCH_RUN = run(ADD, "n = out.numel()\nscratch = torch.empty(n)\nkernels.sums(x, y, scratch, out, n)")


def scratch(body: str) -> str:
    return cpp(SCRATCH.replace("BODY", body), SCRATCH_RUN, "import torch")


FOUND = {
    "an element after a tensor": (add_cpp(f"{ALL}\nvolatile float q = x[n]; (void)q;"), "heap-buffer-overflow, READ of size 4"),
    "an element before scratch": (scratch(f"{ALL}\nscratch[-1] = 0;"), "heap-buffer-overflow, WRITE of size 4"),
    "an element after a local": (add_cpp(f"{ALL}\nvolatile float q[5]; q[5 + (n < 0)] = 1;"), "stack-buffer-overflow|out of bounds"),
    "memory that was freed": (
        add_cpp(f"float* p = (float*)std::malloc(64); std::free(p);\n{ALL}\nvolatile float q = p[3]; (void)q;", "#include <cstdlib>\n"),
        "heap-use-after-free, READ",
    ),
    "a signed overflow": (add_cpp(f"volatile int q = 2147483647;\n{ALL}\nq = q + (n > 0);"), "signed integer overflow"),
    "a shift too far": (add_cpp(f"{ALL}\nvolatile int q = 40, r = 1; r = r << q;"), "shift exponent 40 is too large"),
    "a misaligned pointer": (
        add_cpp(f"{ALL}\nvolatile int q = *(const int*)((const char*)x + 1); (void)q;"),
        "load of misaligned address",
    ),
    "a maximum without a reduction": (
        add_cpp(
            "float most = 0;\n#pragma omp parallel for schedule(dynamic, 3)\nfor (int64_t i = 0; i < n; i++) {\n"
            "out[i] = x[i] + y[i];\nmost = std::fmax(most, out[i]);\n}\nif (most < -1) out[0] = most;"
        ),
        "data race, ",
    ),
    "a loop that does not wait for the one before it": (
        add_cpp(
            "#pragma omp parallel\n{\n#pragma omp for nowait\nfor (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];\n"
            "#pragma omp for\nfor (int64_t i = 0; i < n; i++) out[n - 1 - i] = x[n - 1 - i] + y[n - 1 - i];\n}"
        ),
        "data race, ",
    ),
    "one number under two names": (
        add_cpp(
            "double total = 0;\n#pragma omp parallel for\nfor (int64_t i = 0; i < n; i++) {\nout[i] = x[i] + y[i];\n"
            "if (i % 2) {\n#pragma omp critical(odd)\ntotal += 1;\n} else {\n#pragma omp critical(even)\ntotal += 1;\n}\n}\nif (total < 0) out[0] = 0;"
        ),
        "data race, ",
    ),
    "slots that a team of four never shares": (
        add_cpp(
            "std::vector<float> slots(8);\n#pragma omp parallel for schedule(dynamic, 1)\nfor (int64_t i = 0; i < n; i++) {\n"
            "slots[i % 8] = x[i];\nout[i] = x[i] + y[i];\n}\nif (slots[0] == 12345) out[0] = 0;",
            "#include <vector>\n",
        ),
        "data race, write of 4 bytes",
    ),
    "a neighbour's element is written too": (
        add_cpp(
            "#pragma omp parallel for\nfor (int64_t i = 0; i < n; i++) {\nout[i] = x[i] + y[i];\nif (i + 1 < n) out[i + 1] = x[i + 1] + y[i + 1];\n}"
        ),
        "write of 4 bytes; another thread's write of 4 bytes in line",
    ),
}  # fmt: skip
HONEST = {
    "two kernels through scratch": cpp(TWO, TWO_RUN, "import torch"),
    "a hash of unsigned numbers": add_cpp(
        f"volatile unsigned q = 2166136261u; for (int64_t i = 0; i < n; i++) q = (q ^ (unsigned)i) * 16777619u;\n{ALL}"
    ),
    "unaligned vectors": add_cpp(
        "typedef float loose __attribute__((vector_size(16), aligned(1), may_alias)); int64_t i = 0;\n"
        "for (; i + 4 <= n; i += 4) *(loose*)(out + i) = *(const loose*)(x + i) + *(const loose*)(y + i);\n"
        "for (; i < n; i++) { uint32_t bits; std::memcpy(&bits, (const char*)x + 4 * i, 4); float v; std::memcpy(&v, &bits, 4); out[i] = v + y[i]; }"
    ),
    "parallel regions": add_cpp(
        "float most = 0;\n#pragma omp parallel for reduction(max: most) schedule(dynamic, 3)\n"
        "for (int64_t i = 0; i < n; i++) { out[i] = x[i] + y[i]; most = std::fmax(most, out[i]); }\nif (most < -1) out[0] = most;"
    ),
    "every construct of OpenMP that orders": add_cpp(
        "double total = 0; int seen = 0, parts = 0;\n#pragma omp parallel reduction(+: total)\n{\n"
        "#pragma omp for schedule(guided)\nfor (int64_t i = 0; i < n; i++) out[i] = x[i];\n"
        "#pragma omp for collapse(2) schedule(runtime)\nfor (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < 1; j++) out[n - 1 - i] += y[n - 1 - i];\n"
        "#pragma omp single\nseen = 1;\n#pragma omp critical\nparts += 1;\n#pragma omp barrier\n#pragma omp atomic\nparts += seen;\n"
        "#pragma omp sections\n{\n#pragma omp section\ntotal += 1;\n#pragma omp section\ntotal += 2;\n}\n"
        "if (parts < 0) out[0] = 0;\n}\nif (total < 0) out[0] = 0;"
    ),
    "locks, and a number that one thread copies to all": add_cpp(
        "omp_lock_t locks[3]; for (auto& one : locks) omp_init_lock(&one); double sums[3] = {};\n#pragma omp parallel\n{\ndouble first;\n"
        "#pragma omp single copyprivate(first)\nfirst = x[0];\n#pragma omp for\nfor (int64_t i = 0; i < n; i++) {\nout[i] = x[i] + y[i];\n"
        "omp_set_lock(&locks[i % 3]);\nsums[i % 3] += first;\nomp_unset_lock(&locks[i % 3]);\n}\n}\nif (sums[0] == 12345.678) out[0] = 0;",
        "#include <omp.h>\n",
    ),
    "partial sums by thread": add_cpp(
        "std::vector<double> sums(omp_get_max_threads());\n#pragma omp parallel\n{\nconst int t = omp_get_thread_num(), all = omp_get_num_threads();\n"
        "for (int64_t i = n * t / all; i < n * (t + 1) / all; i++) { out[i] = x[i] + y[i]; sums[t] += out[i]; }\n}\n"
        "double total = 0;\nfor (double one : sums) total += one;\nif (total == 12345.678) out[0] = 0;",
        "#include <omp.h>\n#include <vector>\n",
    ),
    "intrinsics": add_cpp(
        "int64_t i = 0;\n#if defined(__AVX__)\nfor (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));\n#endif\n"
        "for (; i < n; i++) out[i] = x[i] + y[i];"
    ),
}  # fmt: skip


@pytest.fixture
def client(judge: JudgeClient) -> JudgeClient:
    return judge


def judged(client: JudgeClient, source: str) -> Verdict:
    document = job(REFERENCE, PLACES, source, level="verify", language="cpp", target=CPU, time_s=0.05)
    return client.judge(document, 120.0)


def often(name: str) -> bool:
    return name in (
        "an element after a tensor",
        "a signed overflow",
        "a maximum without a reduction",
        "partial sums by thread",
    )


@pytest.mark.parametrize("name", nightly_but(often, FOUND))
def test_what_results_do_not_show_is_told_with_its_line(client: JudgeClient, name: str) -> None:
    source, problem = FOUND[name]
    verdict = judged(client, source)
    failure = verdict["failure"]
    assert failure is not None, verdict["reason"]
    assert (verdict["verdict"], verdict["gate"], failure["kind"]) == ("rejected", "verify", "sanitizer")
    assert any(part in str(failure["found"]) for part in problem.split("|")), failure["found"]
    lines = source.splitlines()
    number = int(failure["message"].removeprefix("line ").partition(":")[0])
    assert lines[number - 1].strip()[:12] in failure["message"]
    assert "Shadow bytes" not in failure["log"]
    assert str(Path("/tmp")) + "/" not in failure["log"]


@pytest.mark.parametrize("name", nightly_but(often, HONEST))
def test_honest_kernels_pass(client: JudgeClient, name: str) -> None:
    verdict = judged(client, HONEST[name])
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert "anitizer" not in verdict["reason"]


TASKS = "\n#pragma omp parallel\n#pragma omp single\n#pragma omp task\nout[0] = x[0] + y[0];\n"
FLUSH = "\n#pragma omp parallel\n{\n#pragma omp flush\n}\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (TASKS, "undefined reference to `GOMP_task'"),
        (FLUSH, "no ThreadSanitizer: it does not see what `omp flush` orders"),
    ],
)
def test_threads_that_are_not_looked_at_are_noted(client: JudgeClient, body: str, words: str) -> None:
    verdict = judged(client, add_cpp(f"{ALL}{body}"))
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert words in verdict["reason"]
