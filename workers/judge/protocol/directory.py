"""`python -m warpsmith.workers.judge DIR...`: judge the jobs of bundles offline.

It runs where the service cannot reach. It reads bundle.json and jobs.jsonl (`job.bundle`), has a judge of its own
(`protocol.client`) judge every job that has no verdict yet, and appends each verdict to verdicts.jsonl the moment it is
there. Of the best that was screened it then judges the verification that came along (`protocol.verifications`), and
with a verification the further configurations of its candidate's sweep (`protocol.configurations`).
Several bundles share one judge: it starts once, and compiles for one while it times another. It may be killed at any
moment and started again: a line that was not finished is cut off, and its job judged anew. A job that could not be
judged gets a line in unjudged.jsonl that says why, and is tried again by the next run, which begins that file anew.

Nothing here is secret and nothing is vouched for: the service checks what comes back, and the owner of this host can
write anything into a verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from warpsmith.kernels_db.job.bundle import (
    FORMAT,
    HEADER,
    JOBS,
    UNJUDGED,
    VERDICTS,
    VERIFICATIONS,
    VERSION,
    BundleHeader,
    SignedJob,
    SignedVerification,
    digest,
)
from warpsmith.kernels_db.job.carried_builds import CarriedBuild
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.job.strict_json import read_strictly
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.judge.protocol.answers import (
    BadDirectory,
    append_unjudged,
    append_verdict,
    opened_unjudged,
    opened_verdicts,
    say,
)
from warpsmith.workers.judge.protocol.builds import add_build, read_builds
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError
from warpsmith.workers.judge.protocol.configurations import verify_configurations
from warpsmith.workers.judge.protocol.contract import BrokenDocument, check, short
from warpsmith.workers.judge.protocol.host import check_host
from warpsmith.workers.judge.protocol.verifications import (
    choose_verification,
    job_to_verify,
    limit_further,
    list_further,
    read_verification,
    split_lines,
)

DONE, SOME_LEFT, MISUSE = 0, 1, 2
JOB_TIMEOUT_S = 600.0
AT_ONCE_ON_A_GPU = 8
"""Jobs that are with the judge at once: it compiles some while it times one.

On a CPU compilers would disturb it.
"""


class _Interrupted(Exception):  # noqa: N818 - no error
    """Raised in the threads that wait for verdicts when the run is to end."""


@dataclass(frozen=True)
class _Bundle:
    """A bundle that is held.

    Its directory and header, its jobs without a verdict, the verifications that it carries, the builds that came along
    and the verdicts so far by nonce, and the file of these.
    """

    directory: Path
    header: BundleHeader
    waiting: list[SignedJob]
    verifications: list[SignedVerification]
    builds: dict[str, CarriedBuild]
    judged: dict[str, Verdict]
    verdicts: BinaryIO

    def next_verification(self) -> tuple[SignedVerification, Verdict | None] | None:
        """Return the verification that the verdicts so far make worth it, with the one on its screening here."""
        chosen = choose_verification(self.verifications, self.judged)
        if chosen is None:
            return None
        screened = self.judged.get(chosen["screening"])
        return (chosen if screened is None else {**chosen, "job": job_to_verify(chosen, screened)}), screened


@dataclass(frozen=True)
class _Asked:
    """One job, its bundle, and the file for the reason where it cannot be judged.

    screened: of a verification that came along, the verdict on its screening in the same bundle.
    """

    bundle: _Bundle
    job: SignedJob
    unjudged: BinaryIO
    screened: Verdict | None = None


def judge_directories(directories: Sequence[Path], cache: Path, timeout_s: float) -> int:
    """Judge what has no verdict yet, at most `timeout_s` seconds a job; returns the exit status.

    DONE: every job has its verdict. SOME_LEFT: some could not be judged. MISUSE: a bad directory, or the wrong host;
    then nothing was judged in any of them.
    """
    try:
        with ExitStack() as files:
            bundles = [_held(directory, files, several=len(directories) > 1) for directory in _different(directories)]
            waiting = [bundle for bundle in bundles if bundle.waiting or bundle.next_verification() is not None]
            for target in sorted({bundle.header["target"] for bundle in waiting}):
                check_host(target, cache)
            opened = [(bundle, files.enter_context(opened_unjudged(bundle.directory / UNJUDGED))) for bundle in bundles]
            left = _judge_all(opened, cache, timeout_s) if waiting else 0
    except BadDirectory as error:
        say(f"error: {error}")
        return MISUSE
    if left:
        say(f"no verdict on {_jobs(left)} ({UNJUDGED}): run this again, or merge what there is")
        return SOME_LEFT
    named = " ".join(str(directory) for directory in directories)
    say(f"every job has its verdict, in {VERDICTS}; take it back and: warpsmith merge {named}")
    return DONE


def _different(directories: Sequence[Path]) -> Sequence[Path]:
    """Check that no directory is named twice. Raises BadDirectory."""
    seen: set[Path] = set()
    for directory in directories:
        if (resolved := directory.resolve()) in seen:
            raise BadDirectory(f"DIR: found {directory} twice, expected every directory once")
        seen.add(resolved)
    return directories


def _held(directory: Path, files: ExitStack, *, several: bool) -> _Bundle:
    """Return a bundle, its file of verdicts held until `files` closes.

    Raises BadDirectory, which names the directory where there are several.
    """
    try:
        return _opened(directory, files)
    except BadDirectory as error:
        raise BadDirectory(f"{directory}: {error}" if several else str(error)) from None


def _opened(directory: Path, files: ExitStack) -> _Bundle:
    header, jobs = read_bundle(directory)
    verifications = read_verifications(directory, header, jobs)
    builds = read_builds(directory, [*jobs, *verifications])
    verdicts, judged = files.enter_context(opened_verdicts(directory / VERDICTS))
    unknown = judged.keys() - {job["nonce"] for job in (*jobs, *verifications)}
    if unknown:
        raise BadDirectory(f"{VERDICTS}: found a verdict on {min(unknown)}, expected jobs of {header['id']}")
    waiting = [job for job in jobs if job["nonce"] not in judged]
    say(f"bundle {header['id']}: {_jobs(len(jobs))} for {header['op']} on {header['target']}")
    if judged:
        say(f"judged before: {_jobs(len(judged))}; to go: {len(waiting)}")
    return _Bundle(directory, header, waiting, verifications, builds, judged, verdicts)


def read_bundle(directory: Path) -> tuple[BundleHeader, list[SignedJob]]:
    """Read the bundle's header and jobs. Raises BadDirectory."""
    if not directory.is_dir():
        raise BadDirectory(f"DIR: found no directory {directory}, expected one that `warpsmith bundle` wrote")
    header = _read_header(_text_of(directory / HEADER))
    jobs: list[SignedJob] = []
    wrong: list[str] = []
    seen: set[str] = set()
    for number, line in enumerate(_text_of(directory / JOBS).removesuffix("\n").split("\n"), 1):
        try:
            job = _read_job(line, header)
            if job["nonce"] in seen:
                raise BrokenDocument("nonce", job["nonce"], "one that no other line has")
        except (BrokenDocument, ValueError) as error:
            wrong.append(f"{JOBS}: line {number}, {error}")
            continue
        seen.add(job["nonce"])
        jobs.append(job)
    if not wrong and len(jobs) != header["count"]:
        wrong.append(f"{JOBS}: found {len(jobs)} jobs, expected the {header['count']} that {HEADER} counts")
    if wrong:
        raise BadDirectory("\n".join(wrong))
    return header, jobs


def read_verifications(directory: Path, header: BundleHeader, jobs: Sequence[SignedJob]) -> list[SignedVerification]:
    """Read the verifications that the bundle carries for its screenings; none without their file, or in an empty one.

    A last line that was cut off, as by a copy that was killed, is told and left out: its candidate is screened all the
    same, and verified by the service. Raises BadDirectory for any other line that is none.
    """
    text = _text_of(directory / VERIFICATIONS) if (directory / VERIFICATIONS).is_file() else ""
    lines, cut_off = split_lines(text)
    if cut_off:
        found_there = f"found {len(cut_off)} characters that end within a line, expected a whole one"
        remedy = "left out; copy the file again to have that candidate verified here"
        say(f"{VERIFICATIONS}: line {len(lines) + 1}, {found_there}: {remedy}")
    screenings = {job["nonce"] for job in jobs if job["job"]["level"] == "screen"}
    seen = {job["nonce"] for job in jobs}
    found: list[SignedVerification] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            one = read_verification(line)
            _check_job(one, header)
            if one["nonce"] in seen:
                raise BrokenDocument("nonce", one["nonce"], "one that no other line has")
            if "screened" not in one and one["screening"] not in screenings:
                raise BrokenDocument("screening", short(one["screening"]), f"the nonce of a screening of {JOBS}")
        except (BrokenDocument, ValueError) as error:
            wrong.append(f"{VERIFICATIONS}: line {number}, {error}")
            continue
        seen.add(one["nonce"])
        found.append(one)
    if wrong:
        raise BadDirectory("\n".join(wrong))
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadDirectory(f"{path.name}: found none in {path.parent}, expected a bundle's") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadDirectory(f"{path.name}: found what cannot be read ({error}), expected text") from None


def _read_header(text: str) -> BundleHeader:
    try:
        document = read_strictly(text)
        check(dict, document, "(document)")
        for name, expected in (("format", FORMAT), ("version", VERSION)):
            if document.get(name) != expected:
                raise BrokenDocument(name, short(document.get(name)), repr(expected))
        check(BundleHeader, document, "")
    except (BrokenDocument, ValueError) as error:
        raise BadDirectory(f"{HEADER}: {error}") from None
    return cast("BundleHeader", document)


def _read_job(line: str, header: BundleHeader) -> SignedJob:
    """Read a line as a job. Raises BrokenDocument, ValueError.

    Only the service can tell whether the signature is right.
    """
    document = read_strictly(line)
    check(SignedJob, document, "")
    job = cast("SignedJob", document)
    _check_job(job, header)
    return job


def _check_job(job: SignedJob, header: BundleHeader) -> None:
    """Raise BrokenDocument where a line's job is none of this bundle, or not the one that its ticket names."""
    found = digest(job["job"])
    for field, value, expected in (
        ("bundle_id", job["bundle_id"], header["id"]),
        ("job_digest", job["job_digest"], found),
        ("job.id", job["job"]["id"], job["nonce"]),
        ("job.target", job["job"]["target"], header["target"]),
    ):
        if value != expected:
            whose = ", the digest of the job on this line" if field == "job_digest" else ""
            raise BrokenDocument(field, short(value), f"{expected!r}{whose}")
    candidate, further = job["job"]["candidate"], job.get("further")
    for position, values in enumerate((further and further["configurations"]) or ()):
        try:
            specialise("" if candidate is None else candidate["source"], values)
        except (SyntaxError, ValueError):
            path = f"further.configurations[{position}]"
            raise BrokenDocument(path, short(values), "a configuration of the candidate") from None


def _judge_all(opened: Sequence[tuple[_Bundle, BinaryIO]], cache: Path, timeout_s: float) -> int:
    """Judge the jobs, then the verifications that are worth it, and write their verdicts, or why there is none.

    Each bundle comes with its file for the latter. Returns how many got none.
    """
    on_a_gpu = any(bundle.header["target"].startswith("cuda") for bundle, _ in opened)
    width = AT_ONCE_ON_A_GPU if on_a_gpu else 1
    ending = threading.Event()

    def stop_when_ending() -> None:
        if ending.is_set():
            raise _Interrupted

    with JudgeClient(cache=cache) as client, ThreadPoolExecutor(width, thread_name_prefix="bundle") as pool:

        def judge(one: _Asked) -> tuple[Verdict, float]:
            stop_when_ending()
            began = time.monotonic()
            build = one.bundle.builds.get(one.job["nonce"])
            job = add_build(one.job["job"], build)

            def ask(asked: Job, left_s: float) -> Verdict:
                return client.judge(asked, left_s, on_wait=stop_when_ending)

            verdict = ask(job, timeout_s)
            further = one.job.get("further")
            if further is not None and build is None:  # a build is of one configuration alone
                verify_configurations(
                    job,
                    verdict,
                    list_further(one.job, one.screened),
                    device_s=limit_further(further, one.screened, one.bundle.judged),
                    judge=ask,
                    timeout_s=timeout_s,
                    began=began,
                )
            return verdict, time.monotonic() - began

        def judge_these(asked: Sequence[_Asked]) -> list[_Bundle]:
            """Judge the jobs; returns the bundle of each that got no verdict."""
            without: list[_Bundle] = []
            futures = {pool.submit(judge, one): one for one in asked}
            for number, future in enumerate(as_completed(futures), 1):
                one = futures[future]
                place = f"[{number}/{len(asked)}] {one.job['nonce']}"
                try:
                    verdict, seconds = future.result()
                except JudgeError as error:
                    without.append(one.bundle)
                    append_unjudged(one.unjudged, one.job, error)
                    say(f"{place}: no verdict: {error}")
                    continue
                append_verdict(one.bundle.verdicts, one.job, verdict, one.screened)
                one.bundle.judged[one.job["nonce"]] = verdict
                say(f"{place}: {one.bundle.header['op']}, {_summary(verdict)} ({seconds:.1f} s)")
            return without

        try:
            left = len(judge_these([_Asked(bundle, job, file) for bundle, file in opened for job in bundle.waiting]))
            going = list(opened)
            while asked := [
                _Asked(bundle, found[0], file, screened=found[1])
                for bundle, file in going
                if (found := bundle.next_verification()) is not None
            ]:  # each turn verifies another candidate, or leaves its bundle out
                failed = judge_these(asked)
                left += len(failed)
                going = [(bundle, file) for bundle, file in going if not any(bundle is one for one in failed)]
        except BaseException:
            ending.set()
            raise
    return left


def _summary(verdict: Verdict) -> str:
    score = verdict["score"]
    what = f"{score:.2f}x the fastest baseline" if score is not None else verdict["reason"]
    return f"{verdict['level']}: {verdict['verdict']} at {verdict['gate']}: {what}"


def _jobs(count: int) -> str:
    return f"{count} job" + ("" if count == 1 else "s")
