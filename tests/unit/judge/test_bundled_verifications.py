"""Which verification of a bundle its host does, by the verdicts on the screenings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import steps_support
from warpsmith.kernels_db.job.bundle import Scored, SignedVerification, digest
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.protocol.answers import BadDirectory, append_verdict
from warpsmith.workers.judge.protocol.contract import BrokenDocument
from warpsmith.workers.judge.protocol.directory import read_verifications
from warpsmith.workers.judge.protocol.verifications import (
    choose_verification,
    job_to_verify,
    limit_further,
    list_further,
    read_verification,
)

SOURCE = 'TUNE = {"N": [1, 2]}\nN = 1\n\n\ndef run(x, y, out):\n    return N\n'


def verification(number: int, champion: Scored | None = None) -> SignedVerification:
    job = build_job(
        steps_support.OP, steps_support.TARGET, level="verify", candidate={"language": "cpp", "source": SOURCE}
    )
    return {
        "nonce": f"v{number}",
        "bundle_id": "bn",
        "search_id": "sr",
        "attempt_id": "at",
        "job_digest": digest(job),
        "signature": "s",
        "job": job,
        "screening": f"s{number}",
        "champion": champion,
    }


def found(score: float | None, word: str = "accepted", level: str = "screen", **changes: Any) -> Verdict:
    interval = None if score is None else [score * 0.99, score * 1.01]
    return {**steps_support.verdict(level, word, score=score), "score_ci95": interval, **changes}  # type: ignore[typeddict-item]


def chosen(verdicts: dict[str, Verdict], champion: Scored | None = None, count: int = 3) -> str | None:
    one = choose_verification([verification(number, champion) for number in range(count)], verdicts)
    return None if one is None else one["nonce"]


def test_the_best_accepted_candidate_is_verified_and_then_the_next_if_that_fails() -> None:
    verdicts = {"s0": found(1.5), "s1": found(2.0), "s2": found(None, "rejected")}
    assert chosen(verdicts) == "v1"
    assert chosen({**verdicts, "v1": found(None, "rejected", "verify")}) == "v0"
    assert chosen({**verdicts, "v1": found(2.0, level="verify")}) is None
    assert chosen({**verdicts, "v1": found(1.2, level="verify")}) == "v0", "verified, it is slower than the next"
    rejected = {name: found(None, "rejected", "verify") for name in ("v0", "v1")}
    assert chosen({**verdicts, **rejected}) is None
    assert chosen({}) is None
    assert chosen({"s0": found(1.5)}) == "v0", "a screening that has no verdict holds nothing up"


@pytest.mark.parametrize(
    ("score", "interval", "worth"),
    [
        (1.0, [0.99, 1.01], True),
        (3.0, [2.97, 3.03], False),
        (1.99, [1.97, 2.01], False),  # a tie
        (1.99, [1.985, 1.995], True),
        (1.99, None, True),
    ],
)
def test_it_must_be_faster_than_the_champion_and_no_tie(
    score: float, interval: list[float] | None, worth: bool
) -> None:
    assert (chosen({"s0": found(2.0)}, {"score": score, "ci95": interval}) == "v0") is worth


def before(number: int, score: float, **changes: Any) -> SignedVerification:
    """The verification of a candidate that was screened before the bundle was made."""
    one = verification(number)
    one["screened"] = {"score": score, "ci95": [score * 0.99, score * 1.01]}
    return {**one, "screening": f"at{number}", **changes}  # type: ignore[typeddict-item]


def test_one_that_was_screened_before_counts_as_those_that_the_bundle_screens() -> None:
    lines = [verification(0), before(1, 1.8)]

    def choose(**verdicts: Verdict) -> str | None:
        one = choose_verification(lines, verdicts)
        return None if one is None else one["nonce"]

    assert choose(s0=found(1.5)) == "v1"
    assert choose(s0=found(2.0)) == "v0"
    assert choose(s0=found(None, "rejected")) == "v1"
    assert choose(s0=found(2.0), v0=found(2.0, level="verify")) is None
    assert choose(s0=found(2.0), v0=found(None, "rejected", "verify")) == "v1"


def test_those_that_tie_with_the_best_are_verified_with_it_as_far_as_the_policy_goes() -> None:
    verdicts = {"s0": found(2.0), "s1": found(2.01), "v1": found(2.01, level="verify")}

    def choose(together: int, *more: SignedVerification, **further: Verdict) -> str | None:
        lines = [{**one, "together": together} for one in (verification(0), verification(1), *more)]
        one = choose_verification(lines, {**verdicts, **further})  # type: ignore[arg-type]
        return None if one is None else one["nonce"]

    assert choose(1) is None
    assert choose(2) == "v0"
    assert choose(2, s0=found(1.5)) is None, "no tie"
    third = before(2, 1.995)
    assert choose(2, third, v0=found(2.0, level="verify")) is None
    assert choose(3, third, v0=found(2.0, level="verify")) == "v2"
    assert choose(2, third, v0=found(None, "rejected", "verify")) == "v2", "one that fell makes room"


def test_further_configurations_are_those_that_led_in_its_sweep_or_were_named() -> None:
    sweep = {
        "chosen": {"N": 1},
        "configurations": [
            {"values": {"N": 1}, "time_us": {"large": 10.0}, "rounds": 1},
            {"values": {"N": 2}, "time_us": {"large": 5.0}, "rounds": 1},
        ],
        "seconds": 1.0,
    }
    swept = found(2.0, sweep=sweep, sweep_seconds=3.0, seconds={"exclusive": 4.0})
    one = verification(0)
    assert list_further(one, swept) == (), "an earlier service asks for none"
    one["further"] = {"configurations": None, "sweep_s": 5.0, "device_s": None}
    assert list_further(one, swept) == ({"N": 2},)
    assert list_further(one, None) == ()
    assert limit_further(one["further"], swept, {}) == 2.0
    assert limit_further({**one["further"], "device_s": 4.5}, swept, {"s0": swept}) == 0.5
    assert limit_further({**one["further"], "sweep_s": None}, swept, {"s0": swept}) is None
    one["further"]["configurations"] = [{"N": 2}]
    assert list_further(one, None) == [{"N": 2}]


def test_a_candidate_is_verified_with_the_numbers_that_its_sweep_chose() -> None:
    one = verification(0)
    assert job_to_verify(one, found(2.0)) is one["job"]
    sweep = {"chosen": {"N": 2}, "configurations": [], "seconds": 1.0}
    candidate = job_to_verify(one, found(2.0, sweep=sweep))["candidate"]
    assert candidate is not None
    assert "\nN = 2\n" in candidate["source"]


def test_its_verdict_says_which_screening_it_is_based_on(tmp_path: Path) -> None:
    one, first, second = verification(0), found(2.0), found(2.1)
    with (tmp_path / "verdicts.jsonl").open("wb", buffering=0) as file:
        append_verdict(file, one, found(2.0, level="verify"), first)
        append_verdict(file, one, first)
    lines = [json.loads(text) for text in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert [text.get("screening_digest") for text in lines] == [digest(first), None]
    assert digest(first) != digest(second)


def test_a_line_that_verifies_nothing_is_refused() -> None:
    one = verification(0)
    assert read_verification(json.dumps(one)) == one
    for name, value in (("level", "screen"), ("candidate", None)):
        with pytest.raises(BrokenDocument, match=r"job\.level"):
            read_verification(json.dumps({**one, "job": {**one["job"], name: value}}))
    with pytest.raises(BrokenDocument, match="champion"):
        read_verification(json.dumps({**one, "champion": {"ci95": None}}))


def bundle_of(directory: Path, *lines: Any) -> list[SignedVerification]:
    """What is read of a bundle's verifications.jsonl with these lines."""
    (directory / "verifications.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_again(directory)


def read_again(directory: Path) -> list[SignedVerification]:
    """What is read of the verifications.jsonl that lies there, of a bundle of one screening."""
    screening: Any = {**verification(0), "nonce": "s0"}
    screening["job"] = {**screening["job"], "level": "screen"}
    header: Any = {"id": "bn", "target": str(steps_support.TARGET)}
    return read_verifications(directory, header, [screening])


def line(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {**verification(0)}
    found["job"] = {**found["job"], "id": "v0"}
    found["job_digest"] = digest(found["job"])
    return {**found, **changes}


def test_a_bundle_without_verifications_has_none(tmp_path: Path) -> None:
    assert read_verifications(tmp_path, {"id": "bn"}, []) == []  # type: ignore[typeddict-item]
    assert [one["nonce"] for one in bundle_of(tmp_path, line())] == ["v0"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"screening": "s1"}, "line 1, screening: found 's1', expected the nonce of a screening of jobs.jsonl"),
        ({"job_digest": "0"}, "line 1, job_digest: found '0'"),
        ({"bundle_id": "other"}, "line 1, bundle_id: found 'other', expected 'bn'"),
        ({"nonce": "s0", "job": {**line()["job"], "id": "s0"}}, "line 1, job_digest"),
        (
            {"further": {"configurations": [{"N": 3}], "sweep_s": None, "device_s": None}},
            "line 1, further.configurations[0]: found {'N': 3}, expected a configuration of the candidate",
        ),
        ({"further": {"configurations": None, "sweep_s": None}}, "line 1, further.device_s: found None"),
        ({"screened": {"score": "2", "ci95": None}}, "line 1, screened.score: found '2', expected a number"),
    ],
)
def test_a_line_that_is_none_of_the_bundle_is_told(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadDirectory) as told:
        bundle_of(tmp_path, line(**changes))
    assert message in str(told.value)


def test_a_nonce_is_one_line_s_alone(tmp_path: Path) -> None:
    with pytest.raises(BadDirectory, match="line 2, nonce: found 'v0'"):
        bundle_of(tmp_path, line(), line())


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_verifies_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "verifications.jsonl").write_text(text)
    assert read_verifications(tmp_path, {"id": "bn"}, []) == []  # type: ignore[typeddict-item]


def test_of_a_file_that_was_cut_off_each_whole_line_counts_and_the_last_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle_of(tmp_path, line())
    whole = (tmp_path / "verifications.jsonl").read_text()
    (tmp_path / "verifications.jsonl").write_text(whole + whole[:70])
    assert [one["nonce"] for one in read_again(tmp_path)] == ["v0"]
    told = capsys.readouterr().err
    assert "verifications.jsonl: line 2, found 70 characters that end within a line, expected a whole one" in told
    assert "copy the file again" in told
    (tmp_path / "verifications.jsonl").write_text(whole.removesuffix("\n"))
    assert [one["nonce"] for one in read_again(tmp_path)] == ["v0"], "it lacks its line break alone"
    assert capsys.readouterr().err == ""
    (tmp_path / "verifications.jsonl").write_text(whole[:70] + "\n" + whole)
    with pytest.raises(BadDirectory, match="line 1, found text that is not JSON"):
        read_again(tmp_path)
