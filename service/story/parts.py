"""The parts of a story: what was asked, tried, found; what it cost, who steered, how it ended.

Each is a pure function of the facts to a section, None where there is nothing to tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from warpsmith.service.documents.escaping import quoted, said
from warpsmith.service.documents.figures import BASELINE_NAMES, duration, limits, microseconds, ratio, share
from warpsmith.service.documents.workloads import WorkloadTimes
from warpsmith.service.story.facts import Section, Steer, StoryFacts, StoryNode
from warpsmith.service.story.words import (
    LANGUAGES,
    LONGEST_TITLE,
    best_of,
    called,
    count,
    listed,
    named,
    placed,
    span,
    standing,
)

MOST_ROUNDS = 8
MOST_ANCESTORS = 6
MOST_WORKLOADS = 5
MOST_STEERS = 8
MOST_TECHNIQUES = 2
LONGEST_MECHANISM = 420
FAR_FROM_THE_LIMIT = 0.01
LONGEST_REASON = 300


def asked(facts: StoryFacts) -> Section:
    """The task, the budget and the time to beat."""
    search = facts.search
    policy = said(str(search.policy.get("name") or "unknown").replace("_", " "), 40)
    language = LANGUAGES.get(search.language, said(search.language, 20))
    bounds = f"may use at most {limits(search.budget)}" if any(search.budget.values()) else "has no budget"
    sentences = [
        f"Search {said(search.id)} looks for {language} kernels of {said(search.op_name)} that beat PyTorch on "
        f"{said(search.target)}. It follows the policy {policy} and {bounds}."
    ]
    if facts.branched_from is not None:
        old, seq = facts.branched_from
        sentences.append(f"It was branched from #{seq} of search {said(old)}.")
    bench = [workload for workload in search.baselines if workload.role == "bench" and workload.time_us]
    if bench:
        sentences.append(f"The time to beat: {listed([_to_beat(item) for item in bench[:MOST_WORKLOADS]])}.")
    return Section("What was asked", " ".join(sentences))


def _to_beat(workload: WorkloadTimes) -> str:
    name, time = min(workload.time_us.items(), key=lambda item: item[1])
    return f"{microseconds(time)} us on {said(workload.id)} ({BASELINE_NAMES.get(name, said(name))})"


def tried(facts: StoryFacts) -> Section | None:
    """Ideas and candidates, round by round."""
    nodes = facts.candidates
    if not nodes:
        return None
    coded, ideas = sum(node.coded for node in nodes), _ideas(nodes)
    rounds = sorted({node.round for node in nodes})
    played = len([number for number in rounds if number])
    paragraph = f"{count(ideas, 'idea')} in {count(played, 'round')}, and {count(coded, 'candidate')} written for them."
    if not ideas:
        paragraph = f"{count(coded, 'candidate')} in {count(played, 'round')}, written without ideas in prose."
    size = math.ceil(len(rounds) / MOST_ROUNDS)
    groups = [rounds[start : start + size] for start in range(0, len(rounds), size)]
    return Section("What was tried", paragraph, tuple(_rounds(facts, group) for group in groups))


def _rounds(facts: StoryFacts, numbers: Sequence[int]) -> str:
    nodes = [node for node in facts.candidates if node.round in numbers]
    right = sum(node.right for node in nodes)
    when = f"round {numbers[0]}" if len(numbers) == 1 else f"rounds {numbers[0]} to {numbers[-1]}"
    if numbers == [0]:
        when, what = "to begin with", count(len(nodes), "candidate from elsewhere", "candidates from elsewhere")
    elif not _ideas(nodes):
        what = count(len(nodes), "candidate")
    else:
        techniques = Counter(node.technique for node in _first_of_each(nodes))
        common = sorted(techniques.items(), key=lambda item: (-item[1], item[0] or ""))
        rest = sum(number for _, number in common[MOST_TECHNIQUES:])
        named_ones = [f"{called(name)} {number}" for name, number in common[:MOST_TECHNIQUES]]
        shown = ", ".join(named_ones + ([f"others {rest}"] if rest else []))
        what = f"{count(_ideas(nodes), 'idea')} ({shown})"
    best = best_of(nodes)
    waits = any(node.state in ("planned", "coding", "coded", "judging") for node in nodes) and not facts.ended
    none = "none right yet" if waits else "none right"
    outcome = none if best is None else f"{right} right, the best #{best.seq} at {ratio(best.score, None)}"
    return f"{when}: {what}; {outcome}"


def _first_of_each(nodes: Sequence[StoryNode]) -> list[StoryNode]:
    """One node for each idea."""
    ideas = {(node.technique, node.title, node.mechanism): node for node in reversed(nodes) if node.title is not None}
    return list(ideas.values())


def _ideas(nodes: Sequence[StoryNode]) -> int:
    return len(_first_of_each(nodes))


def worked(facts: StoryFacts) -> Section | None:
    """How many were right and faster, and the line of ideas to the best."""
    nodes = facts.candidates
    if not any(node.right for node in nodes):
        return None
    right = [node for node in nodes if node.right]
    faster, repaired = sum(node.surely_faster for node in right), sum(node.repairs > 0 for node in right)
    sentences = [
        f"{len(right)} of {count(sum(node.coded for node in nodes), 'candidate')} {'is' if len(right) == 1 else 'are'} "
        f"right, and {faster} surely faster than PyTorch's fastest."
    ]
    if repaired:
        sentences.append(f"{count(repaired, 'candidate')} came right only after repairs.")
    bests = {node.technique: best_of(item for item in right if item.technique == node.technique) for node in right}
    ranked = sorted((best for best in bests.values() if best is not None), key=lambda node: -(node.score or 0.0))
    if len(ranked) > 1:
        shown = listed([f"{called(node.technique)} {ratio(node.score, None)}" for node in ranked[:4]])
        sentences.append(f"The best by technique: {shown}.")
    line = facts.lineage
    if line:
        sentences.append("The line that led to the best:")
    items = [_step(node, parent) for node, parent in zip(line, [None, *line], strict=False)]
    if len(items) > MOST_ANCESTORS:
        left_out = len(items) - MOST_ANCESTORS
        items[2 : 2 + left_out] = [f"{count(left_out, 'step')} between them"]
    return Section("What worked", " ".join(sentences), tuple(items))


def _step(node: StoryNode, parent: StoryNode | None) -> str:
    text = f"{named(node)} ({placed(node)}): {standing(node)}"
    if parent is not None and parent.score and node.score:
        gain = node.score / parent.score
        text += f", {gain:.2f} times as fast as #{parent.seq}"
    return text


def winner(facts: StoryFacts) -> Section | None:
    """What the best candidate does, on what ideas it stands, and how far it is from the limit."""
    search, best = facts.search, facts.search.best
    line = facts.lineage
    if best is None or not line:
        return None
    node = line[-1]
    sentences = [
        f"{named(node)} ({called(node.technique)}) does this: {quoted(_sentence(node.mechanism), LONGEST_MECHANISM)}."
    ]
    if not node.mechanism:
        sentences = [f"It is {named(node)}; no idea in prose was recorded for it."]
    if len(line) > 1:
        sentences.append(f"It stands on {listed([named(each) for each in line[:-1][-MOST_ANCESTORS:]])}.")
    fraction = best.limit_fraction
    if fraction is None:
        sentences.append("No physical limit is known for it.")
    elif fraction < FAR_FROM_THE_LIMIT:
        sentences.append("It is so far from the physical limit that something else holds it back.")
    elif fraction < 1:
        left = f"{1 / fraction:.2f} times as fast again is the most that is left"
        sentences.append(f"It reaches {share(fraction)} of the physical limit: {left}.")
    else:
        sentences.append(f"It reaches the physical limit ({share(fraction)} of it).")
    passed = "It passed the full verification." if best.verified else "It has not been verified in full."
    sentences.append(passed)
    if search.kernels:
        sentences.append(f"It is kept as kernel {listed([said(kernel) for kernel in search.kernels])}.")
    bench = [workload for workload in best.workloads if workload.role == "bench"]
    items = [_timed(workload) for workload in bench[:MOST_WORKLOADS] if _is_timed(workload)]
    if len(bench) > MOST_WORKLOADS:
        items.append(f"and {count(len(bench) - MOST_WORKLOADS, 'workload')} more")
    heading = "The best so far"
    if search.state == "finished":
        heading = "The winner" if search.kernels else "The best candidate"
    return Section(heading, " ".join(sentences), tuple(items))


def _sentence(text: str | None) -> str:
    return (text or "").strip().rstrip(".")


def _is_timed(workload: WorkloadTimes) -> bool:
    return "candidate" in workload.time_us and bool(workload.speedup)


def _timed(workload: WorkloadTimes) -> str:
    fastest = min(workload.speedup, key=lambda name: workload.speedup[name])
    against = BASELINE_NAMES.get(fastest, said(fastest))
    before = f", where {against} takes {microseconds(workload.time_us.get(fastest))} us"
    gain = ratio(workload.speedup[fastest], workload.ci95.get(fastest))
    limit = "" if workload.limit_fraction is None else f", {share(workload.limit_fraction)} of the limit"
    return f"{said(workload.id)}: {microseconds(workload.time_us['candidate'])} us{before}: {gain}{limit}"


def cost(facts: StoryFacts) -> Section:
    """Calls, tokens, dollars, the judge's time and the clock's."""
    spend = facts.search.spend
    sentences = ["No model was asked."]
    if spend.model_calls:
        calls, tokens = count(spend.model_calls, "model call"), count(spend.tokens, "token")
        sentences = [f"{calls} took {tokens} and {_dollars(facts)}."]
    answers = [f"{_who(item.provider, item.model)} ({item.calls})" for item in facts.answers if item.calls]
    if answers:
        sentences.append(f"Answered by {listed(answers)}.")
    held = f" and held the device for {span(facts.device_s)} of them" if facts.device_s else ""
    sentences.append(f"The judge worked for {span(facts.judge_s)}{held}.")
    sentences.append(f"The search ran for {span(spend.wall_clock_s)}, pauses left out.")
    return Section("What it cost", " ".join(sentences))


def _dollars(facts: StoryFacts) -> str:
    spent = f"cost ${sum(item.cost_usd for item in facts.answers):.2f}"
    unpriced = sum(item.unpriced for item in facts.answers if item.provider != "replay")
    if not unpriced:
        return spent
    if unpriced == sum(item.calls for item in facts.answers):
        return "their cost is unknown: they have no price"
    return f"{spent}, without {unpriced} whose price is unknown"


def _who(provider: str, model: str | None) -> str:
    return "a recording" if provider == "replay" else said(model or provider, 60)


def steered(facts: StoryFacts) -> Section | None:
    """What people did, in order."""
    if not facts.steers and not facts.branches:
        return None
    items = [_steer(steer) for steer in facts.steers[:MOST_STEERS]]
    if len(facts.steers) > MOST_STEERS:
        items.append(f"and {count(len(facts.steers) - MOST_STEERS, 'more step', 'more steps')}")
    if facts.branches:
        shown = listed([said(branch) for branch in facts.branches[:4]])
        more = f" and {len(facts.branches) - 4} more" if len(facts.branches) > 4 else ""
        items.append(f"branched into {shown}{more}")
    return Section("Who steered", "By hand, counted from the search's beginning:", tuple(items))


def _steer(steer: Steer) -> str:
    who = said(steer.by, 60) if steer.by else "somebody"
    node = f"#{steer.seq}"
    match steer.kind:
        case "idea.added":
            done = f"added the idea {quoted(steer.text, LONGEST_TITLE)} ({node})"
        case "budget.changed":
            done = f"changed the budget to {said(steer.text)}"
        case "search.paused":
            done = "paused it"
        case "search.cancelled":
            done = "cancelled it"
        case _:
            done = f"{said(steer.kind.removeprefix('node.'), 20)} {node}"
    return f"after {duration(steer.after_s)} {who} {done}"


def ended(facts: StoryFacts) -> Section:
    """Why it ended, or where it stands."""
    search = facts.search
    reason = f": {said(search.reason, LONGEST_REASON)}" if search.reason else ""
    if facts.ended:
        text = f"It {'was cancelled' if search.state == 'cancelled' else search.state}{reason}."
        if search.problem is not None:
            problem = search.problem
            found, expected = said(problem.found, LONGEST_REASON), said(problem.expected, LONGEST_REASON)
            text += f" {said(problem.field)}: found {found}; expected {expected}."
        return Section("Why it ended", text)
    waiting = "; ".join(said(item.detail, 160) for item in search.waiting_for)
    text = f"It is {search.state}, in round {search.round}."
    return Section("Where it stands", text + (f" Now: {waiting}." if waiting else ""))
