"""Write docs/candidates.md from the prompts: `python -m warpsmith.workers.llm.candidate_docs`.

Who writes a kernel by hand, for `warpsmith judge` or for an answer in agent mode, is held to what a model is told.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from warpsmith import prompts
from warpsmith.kernels_db.job.languages import LANGUAGES, of_device
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S
from warpsmith.kernels_db.runtime.flags import CPP_FLAGS, CUDA_FLAGS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "candidates.md"

_INTRODUCTION = """# Writing a candidate

What a kernel's source may hold, and what is asked of it: the same that a model is told in a search. For an op in
float32 with `math: ieee`; a prompt leaves out what does not concern its op. A file is one candidate of one language,
which is read from its imports: `warpsmith judge OP FILE` judges it, `warpsmith judge OP FILE --level compile` says
within seconds whether it keeps to these rules and compiles. A source that breaks one is rejected at gate `gate`, with
the line and what was expected; what only a run can show, such as memory that native code keeps from one call to the
next, is found when it is screened. The language `python` has none of these rules
([free Python](judge.md#free-python)). How each rule is kept is told in [the judge](judge.md), why in
[the threat model](threat-model.md).

`run` takes the op's inputs in their order, then its outputs, which it writes; it returns nothing. It writes outputs,
inputs that the op declares as mutated, and its own scratch alone. Outputs hold no meaningful values before. -0.0 and
0.0 are equal, and NaN is NaN, whatever its bits; a NaN that PyTorch passes on must be passed on. Scratch from
`torch.empty` holds what was left in it, which is spoilt before each call that is checked: write before you read.
"""


def page() -> str:
    """Return the page's text."""
    op = SimpleNamespace(has_float32=True, math="ieee", accuracy="componentwise")
    right = prompts.render(
        "_right.md.j2",
        op=op,
        brief=False,
        orders=True,
        derived_tolerance=True,
        output_dtypes=["float32"],
        tolerances=[],
        counterexamples="",
    )
    sections = [_INTRODUCTION, right]
    for language in (*of_device("cuda", gated=True), *of_device("cpu", gated=True)):
        flags: Sequence[str] = CUDA_FLAGS if language == "cuda" else CPP_FLAGS
        rules = prompts.render(
            f"languages/{language}.md.j2",
            op=op,
            arch="sm_90a",
            flags=list(flags),
            for_ideas=False,
            products=True,
            sweeps=True,
            sweep_s=f"{SWEEP_S:g}",
            sweep_timed=None,
            copies=True,
            dependent=True,
            has_isa=False,
            library_calls=[],
        )
        code = prompts.fenced(prompts.example(language), "python")
        sections.append(f"## {LANGUAGES[language].title}\n\n{rules}\nAn addition with a relu:\n\n{code}\n")
    return "\n".join(sections)


def main() -> int:
    """Write the page; returns the exit status."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
