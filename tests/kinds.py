"""Three kinds of tests: those that share the machine, `alone` and `nightly`. `tests/conftest.py` loads these hooks.

An `alone` test measures time, or the judge that does: nothing runs beside it. A `nightly` test is slow: it runs with
`--nightly` only. `python -m tests` runs the kinds in two phases, and each phase counts into a file for it.
"""

from __future__ import annotations

import gc
import json
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

COUNTED_AS = {
    "passed": "passed",
    "xpassed": "passed",
    "failed": "failed",
    "error": "failed",
    "skipped": "skipped",
    "xfailed": "skipped",
}
"""What each of pytest's categories counts as; an error in set-up or tear-down is a failure."""

TOGETHER, ALONE = "together", "alone"

EXAMPLES, NIGHTLY_EXAMPLES = 40, 100
"""How many a property gets."""

gc.disable()  # until the collection of tests is over: what is imported stays

COLLECTED_AFTER = (20_000, 20, 100)
"""How many objects more, and how many collections of younger ones, let the garbage collector look through a generation.

Python's own numbers let it walk through all that torch and the others hold every few seconds.
"""

_SEEN = pytest.StashKey[dict[str, Any]]()
_MODULES = pytest.StashKey[frozenset[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--nightly`, and the options of the runner."""
    group = parser.getgroup("kinds of tests (tests/kinds.py)")
    group.addoption("--nightly", action="store_true", help="run the nightly tests too")
    group.addoption(
        "--phase", choices=[TOGETHER, ALONE], help="run only those not marked alone, or only those that are"
    )
    group.addoption("--counts", metavar="FILE", help="write to FILE, as JSON, what was run and what was left out")
    group.addoption("--modules", metavar="FILE", help="leave every test module unread that FILE (JSON) does not list")


def pytest_configure(config: pytest.Config) -> None:
    """Read which modules are wanted, and how many examples a property gets.

    A shell starts a background job with SIGINT ignored, and children inherit that: tests that end one by Ctrl-C would
    wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("hypothesispytest"):
        _set_examples(NIGHTLY_EXAMPLES if config.getoption("nightly") else EXAMPLES)
    if config.getoption("modules"):
        config.stash[_MODULES] = frozenset(json.loads(Path(config.getoption("modules")).read_text(encoding="utf-8")))


def _set_examples(number: int) -> None:
    # Imported here: the tests of this module start forty processes without properties, and it takes 0.2 s.
    from hypothesis import HealthCheck, settings  # noqa: PLC0415

    # How long an example takes says how busy the machine is.
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=number)
    settings.register_profile("warpsmith", patient)
    settings.load_profile("warpsmith")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what is collected: a million objects, all of which stay.

    To walk through them took a quarter of the collection, and a second at each full collection of a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a module unread in which the first phase found no test for this one: importing all of them takes longer
    than many of the tests."""
    wanted = config.stash.get(_MODULES, None)
    if wanted is None or collection_path.is_dir() or collection_path.suffix != ".py":
        return None
    return True if str(collection_path) not in wanted else None


@pytest.hookimpl(trylast=True)  # after -k and -m: what these leave out is not left out for its kind
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other kinds, and count them."""
    phase = config.getoption("phase")
    if phase is None and _is_worker(config):
        phase = TOGETHER  # a plain `pytest -n`: an alone test is never run beside others
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    nightly = other_phase = 0
    for item in items:
        if phase is not None and _is_alone(item) != (phase == ALONE):
            other_phase += 1
            left.append(item)
        elif item.get_closest_marker("nightly") and not config.getoption("nightly"):
            nightly += 1
            left.append(item)
        else:
            kept.append(item)
    seen = {
        "nightly": nightly,
        "other_phase": other_phase,
        "alone_in": sorted({str(item.path) for item in items if _is_alone(item)}),
        "paths_named": config.args_source is pytest.Config.ArgsSource.ARGS,
    }
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = _slow_ones_first(kept) if _is_worker(config) else kept
    config.stash[_SEEN] = seen
    if _is_worker(config):
        output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined] # of pytest-xdist
        output["kinds"] = seen


def nightly_but(kept: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """The cases of a parametrized test: those that are not `kept` become nightly."""
    return [case if kept(case) else pytest.param(case, marks=pytest.mark.nightly) for case in cases]


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker(ALONE) is not None


def _is_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def _slow_ones_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The order in which modules are handed out: those of unit tests last, and among the same the large ones first.

    A unit test takes milliseconds, so the modules that are left at the end are short and both workers end together.
    """
    size = Counter(item.path for item in items)
    return sorted(items, key=lambda item: ("unit" in item.path.parts, -size[item.path], str(item.path)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker counted: each collects everything, so one of them is enough."""
    seen = getattr(node, "workeroutput", {}).get("kinds")
    if seen is not None:
        seen["paths_named"] = node.config.args_source is pytest.Config.ArgsSource.ARGS
        node.config.stash[_SEEN] = seen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and count into the file of `--counts`."""
    seen = config.stash.get(_SEEN, None)
    if seen and seen["nightly"]:
        terminalreporter.write_line(f"{several(seen['nightly'], 'nightly test')} left out, --nightly runs them")
    if seen and seen["other_phase"] and config.getoption("phase") is None:
        terminalreporter.write_line(f"{several(seen['other_phase'], 'alone test')} left out: not beside others (-n)")
    if config.getoption("counts"):
        ended = dict.fromkeys(COUNTED_AS.values(), 0)
        for category, counted_as in COUNTED_AS.items():
            ended[counted_as] += len(terminalreporter.stats.get(category, []))
        unread = any(isinstance(found, pytest.CollectReport) for found in terminalreporter.stats.get("error", []))
        report = {"ended": ended, "seen": seen, "unread": unread}
        Path(config.getoption("counts")).write_text(json.dumps(report), encoding="utf-8")


def several(number: int, noun: str) -> str:
    """'1 test', '2 tests'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
