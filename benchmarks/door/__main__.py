"""Run the attacks and print a table: `python -m benchmarks.door`."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator

from benchmarks.door import connections, requests
from benchmarks.door.attack import Finding
from benchmarks.door.bodies import BODIES, BodyAttack
from benchmarks.door.server import PATIENCE_S, Bystander, Target, served

LONGEST_S = 1.0
"""Longest that a body may hold a worker thread."""


def main() -> int:
    """Run every attack whose name has one of the given words; 1 where one of them got through."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.door", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="only attacks with one of these words")
    words = [word.lower() for word in parser.parse_args().only]
    through = 0
    print(f"{'attack':44} {'seconds':>8} {'CPU':>6} {'others':>7} {'MB':>6}  {'':5} what happened", flush=True)
    for finding in _run(words):
        through += not finding.held
        print(finding.row(), flush=True)
    print(f"{through} got through")
    return 1 if through else 0


def _run(words: list[str]) -> Iterator[Finding]:
    bodies = deque(body for body in BODIES if _is_asked(body.name, words))
    while bodies:
        with served() as target:
            finding = _send(target, bodies.popleft())
            yield finding
            while bodies and finding.seconds < PATIENCE_S:  # a server that still works on the last is replaced
                finding = _send(target, bodies.popleft())
                yield finding
    for kind in (connections, requests):
        with served() as target:
            for name, attack in kind.list_attacks(target).items():
                if _is_asked(name, words):
                    yield attack()


def _is_asked(name: str, words: list[str]) -> bool:
    return not words or any(word in name.lower() for word in words)


def _send(target: Target, attack: BodyAttack) -> Finding:
    data = attack.make()
    before, cpu_before = target.memory_mb(), target.cpu_s()
    with Bystander(target) as others:
        answer = target.ask("POST", attack.path, data, {"Content-Type": attack.media_type})
    what = f"{answer.status or 'no answer'} to {len(data) / 2**20:.1f} MiB"
    cpu_s = target.cpu_s() - cpu_before
    # On a busy machine the seconds say more of others than of the server.
    held = 0 < answer.status < 500 and (others.longest_s if attack.sliced else min(answer.seconds, cpu_s)) <= LONGEST_S
    grown = target.memory_mb() - before
    return Finding(attack.name, held, what, answer.seconds, cpu_s, others.longest_s, grown)


if __name__ == "__main__":
    sys.exit(main())
