"""The table of languages: what names them in types, judge, prompts and dashboard agrees with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from tests import REPOSITORY
from warpsmith import prompts
from warpsmith.kernels_db.job import languages
from warpsmith.kernels_db.job.documents import CandidateLanguage, tier_of
from warpsmith.kernels_db.job.languages import GATED, LANGUAGES
from warpsmith.workers.gate import allowed
from warpsmith.workers.judge.languages import _LANGUAGES as PREPARED

PROMPTS = Path(prompts.__file__).parent


def test_every_seam_has_every_language() -> None:
    assert set(get_args(CandidateLanguage)) == set(LANGUAGES) == set(PREPARED)
    assert set(allowed.IMPORTS) == set(GATED)
    assert {path.name.partition(".")[0] for path in (PROMPTS / "languages").iterdir()} == set(GATED)
    for name in GATED:
        assert prompts.example(name)
        assert tier_of(name) == "gated"
    dashboard = (REPOSITORY / "service/dashboard/src/app/languages.ts").read_text(encoding="utf-8")
    named = re.findall(r'^  (\w+): \{ title: "(.+)", device: "(\w+)" \}', dashboard, re.MULTILINE)
    assert sorted(named) == sorted((one.name, one.title, one.devices[0]) for one in map(LANGUAGES.get, GATED) if one)


def test_a_device_is_offered_its_languages_the_default_first() -> None:
    assert languages.of_device("cpu", gated=True) == ("cpp",)
    assert languages.of_device("cuda", gated=True) == ("triton", "cuda", "gluon", "cute", "tilelang")
    assert "python" in languages.of_device("cuda")


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        ({"triton", "triton.language"}, ["triton"]),
        ({"triton", "triton.experimental.gluon"}, ["gluon"]),
        ({"triton.experimental.gluon.language.nvidia.hopper.tma"}, ["gluon"]),
        ({"kernels_db.runtime.cpp", "torch"}, ["cpp"]),
        ({"kernels_db.runtime.cuda", "triton"}, ["triton", "cuda"]),
        ({"cutlass", "cutlass.cute", "kernels_db.runtime.cutedsl", "torch"}, ["cute"]),
        ({"tilelang.language", "kernels_db.runtime.tilelang"}, ["tilelang"]),
        ({"cutlassy", "torch"}, []),
        ({"tritonless", "torch"}, []),
    ],
)
def test_imports_name_the_language(modules: set[str], found: list[str]) -> None:
    assert languages.imported_languages(modules) == found
