"""What the doctor says of the model: what a worker would find, and nothing better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from warpsmith.service.local.service_checks import check_service
from warpsmith.service.settings import ServiceSettings

OPENAI = "https://api.openai.com/v1"
OWN = "http://gpu7:8000/v1"
NAMED = {"openai_base_url": OWN, "model_keys": {OWN: "KEY_OF_GPU7"}}


@pytest.mark.parametrize(
    ("given", "state", "said"),
    [
        ({}, "note", f"no key for {OPENAI}"),
        ({"openai_base_url": OPENAI}, "note", f"no key for {OPENAI}"),
        ({"openai_base_url": f"{OPENAI}/"}, "note", f"no key for {OPENAI}"),
        ({"openai_api_key": "k"}, "ok", f"gpt-5 at {OPENAI}"),
        ({"openai_key_at_workers": True}, "ok", f"gpt-5 at {OPENAI}, with a key at the model workers"),
        ({"openai_base_url": OWN}, "ok", f"gpt-5 at {OWN}, without a key"),
        (NAMED, "note", f"no key for {OWN}: KEY_OF_GPU7 is not set here"),
    ],
)
def test_the_doctor_says_whether_the_model_can_be_asked(
    given: dict[str, Any], state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "no setting of Warpsmith's")
    found = check_service(ServiceSettings(home=tmp_path, **given))[-1]
    assert (found.name, found.state, found.found) == ("model", state, said)
    assert (found.fix is None) == (state == "ok")


def test_a_key_by_the_name_that_the_settings_give_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_GPU7", "k")
    found = check_service(ServiceSettings(home=tmp_path, **NAMED))[-1]  # type: ignore[arg-type] # as JSON has it
    assert (found.state, found.found) == ("ok", f"gpt-5 at {OWN}")
