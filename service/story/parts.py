"""The parts of a story: task, attempts, successes, winner, cost, steering, end.

Each is a pure function from the facts to a section, None where there is nothing to tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.service.documents.escaping import mark_foreign, quote_foreign
from warpsmith.service.documents.figures import (
    BASELINE_NAMES,
    format_attack,
    format_duration,
    format_limits,
    format_microseconds,
    format_ratio,
    format_share,
)
from warpsmith.service.documents.workloads import WorkloadTimes
from warpsmith.service.story.facts import Section, Steer, StoryFacts, StoryNode
from warpsmith.service.story.words import (
    LONGEST_TITLE,
    choose_best,
    count,
    describe_place,
    format_span,
    format_standing,
    join_words,
    name_node,
    name_technique,
)

MOST_ROUNDS = 8
MOST_ANCESTORS = 6
MOST_WORKLOADS = 5
MOST_STEERS = 8
MOST_TECHNIQUES = 2
LONGEST_MECHANISM = 420
FAR_FROM_THE_LIMIT = 0.01
LONGEST_REASON = 300


def tell_task(facts: StoryFacts) -> Section:
    """Tell the task, the budget and the time to beat."""
    search = facts.search
    policy = mark_foreign(str(search.policy.get("name") or "unknown").replace("_", " "), 40)
    known = LANGUAGES.get(search.language)
    language = known.title if known else mark_foreign(search.language, 20)
    bounds = f"may use at most {format_limits(search.budget)}" if any(search.budget.values()) else "has no budget"
    sentences = [
        f"Search {mark_foreign(search.id)} looks for {language} kernels of {mark_foreign(search.op_name)} that beat "
        f"PyTorch on {mark_foreign(search.target)}. It follows the policy {policy} and {bounds}."
    ]
    if facts.branched_from is not None:
        old, seq = facts.branched_from
        sentences.append(f"It was branched from #{seq} of search {mark_foreign(old)}.")
    bench = [workload for workload in search.baselines if workload.role == "bench" and workload.time_us]
    if bench:
        sentences.append(
            f"The time to beat: {join_words([_describe_time_to_beat(item) for item in bench[:MOST_WORKLOADS]])}."
        )
    return Section("What was asked", " ".join(sentences))


def _describe_time_to_beat(workload: WorkloadTimes) -> str:
    name, time = min(workload.time_us.items(), key=lambda item: item[1])
    baseline = BASELINE_NAMES.get(name, mark_foreign(name))
    return f"{format_microseconds(time)} us on {mark_foreign(workload.id)} ({baseline})"


def tell_attempts(facts: StoryFacts) -> Section | None:
    """Tell the ideas and candidates, round by round."""
    nodes = facts.candidates
    if not nodes:
        return None
    coded, ideas = sum(node.coded for node in nodes), _count_ideas(nodes)
    rounds = sorted({node.round for node in nodes})
    played = len([number for number in rounds if number])
    paragraph = f"{count(ideas, 'idea')} in {count(played, 'round')}, and {count(coded, 'candidate')} written for them."
    if not ideas:
        paragraph = f"{count(coded, 'candidate')} in {count(played, 'round')}, written without ideas in prose."
    if (judged := facts.search.spend.candidates) != coded:
        paragraph += f" The budget counts {judged}: each candidate and each repair that was judged, and no duplicate."
    if (tried := facts.tries).tries:
        paragraph += (
            f" {count(tried.tries, 'try', 'tries')} before answers, for {count(tried.nodes, 'node')}: {tried.right} "
            f"right, {format_span(tried.device_s)} on the device."
        )
    size = math.ceil(len(rounds) / MOST_ROUNDS)
    groups = [rounds[start : start + size] for start in range(0, len(rounds), size)]
    return Section("What was tried", paragraph, tuple(_describe_rounds(facts, group) for group in groups))


def _describe_rounds(facts: StoryFacts, numbers: Sequence[int]) -> str:
    nodes = [node for node in facts.candidates if node.round in numbers]
    right = sum(node.right for node in nodes)
    when = f"round {numbers[0]}" if len(numbers) == 1 else f"rounds {numbers[0]} to {numbers[-1]}"
    if numbers == [0]:
        when, what = "to begin with", count(len(nodes), "candidate from elsewhere", "candidates from elsewhere")
    elif not _count_ideas(nodes):
        what = count(len(nodes), "candidate")
    else:
        techniques = Counter(node.technique for node in _choose_one_per_idea(nodes))
        common = sorted(techniques.items(), key=lambda item: (-item[1], item[0] or ""))
        rest = sum(number for _, number in common[MOST_TECHNIQUES:])
        named_ones = [f"{name_technique(name)} {number}" for name, number in common[:MOST_TECHNIQUES]]
        shown = ", ".join(named_ones + ([f"others {rest}"] if rest else []))
        what = f"{count(_count_ideas(nodes), 'idea')} ({shown})"
    best = choose_best(nodes)
    waits = any(node.state in ("planned", "coding", "coded", "judging") for node in nodes) and not facts.ended
    none = "none right yet" if waits else "none right"
    outcome = none if best is None else f"{right} right, the best #{best.seq} at {format_ratio(best.score, None)}"
    return f"{when}: {what}; {outcome}"


def _choose_one_per_idea(nodes: Sequence[StoryNode]) -> list[StoryNode]:
    """Choose one node for each idea."""
    ideas = {(node.technique, node.title, node.mechanism): node for node in reversed(nodes) if node.title is not None}
    return list(ideas.values())


def _count_ideas(nodes: Sequence[StoryNode]) -> int:
    return len(_choose_one_per_idea(nodes))


def tell_successes(facts: StoryFacts) -> Section | None:
    """Tell how many were right and faster, and the line of ideas to the best."""
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
    bests = {node.technique: choose_best(item for item in right if item.technique == node.technique) for node in right}
    ranked = sorted((best for best in bests.values() if best is not None), key=lambda node: -(node.score or 0.0))
    if len(ranked) > 1:
        shown = join_words(
            [f"{name_technique(node.technique)} {format_ratio(node.score, None)}" for node in ranked[:4]]
        )
        sentences.append(f"The best by technique: {shown}.")
    line = facts.lineage
    if line:
        sentences.append("The line that led to the best:")
    items = [_describe_step(node, parent) for node, parent in zip(line, [None, *line], strict=False)]
    if len(items) > MOST_ANCESTORS:
        left_out = len(items) - MOST_ANCESTORS
        items[2 : 2 + left_out] = [f"{count(left_out, 'step')} between them"]
    return Section("What worked", " ".join(sentences), tuple(items))


def _describe_step(node: StoryNode, parent: StoryNode | None) -> str:
    text = f"{name_node(node)} ({describe_place(node)}): {format_standing(node)}"
    if parent is not None and parent.score and node.score:
        gain = node.score / parent.score
        text += f", {gain:.2f} times as fast as #{parent.seq}"
    return text


def tell_winner(facts: StoryFacts) -> Section | None:
    """Tell how the best candidate works, the ideas below it, and its distance from the limit."""
    search, best = facts.search, facts.search.best
    line = facts.lineage
    if best is None or not line:
        return None
    node = line[-1]
    mechanism = quote_foreign(_trim_sentence(node.mechanism), LONGEST_MECHANISM)
    sentences = [f"{name_node(node)} ({name_technique(node.technique)}) does this: {mechanism}."]
    if not node.mechanism:
        sentences = [f"It is {name_node(node)}; no idea in prose was recorded for it."]
    if len(line) > 1:
        sentences.append(f"It stands on {join_words([name_node(each) for each in line[:-1][-MOST_ANCESTORS:]])}.")
    fraction = best.limit_fraction
    if fraction is None:
        sentences.append("No physical limit is known for it.")
    elif fraction < FAR_FROM_THE_LIMIT:
        sentences.append("It is so far from the physical limit that something else holds it back.")
    elif fraction < 1:
        left = f"{1 / fraction:.2f} times as fast again is the most that is left"
        sentences.append(f"It reaches {format_share(fraction)} of the physical limit: {left}.")
    else:
        sentences.append(f"It reaches the physical limit ({format_share(fraction)} of it).")
    passed = "It passed the full verification." if best.verified else "It has not been verified in full."
    sentences.append(passed)
    if facts.attack is not None:
        sentences.append(f"Its {mark_foreign(format_attack(facts.attack), LONGEST_REASON)}.")
    if search.kernels:
        sentences.append(f"It is kept as kernel {join_words([mark_foreign(kernel) for kernel in search.kernels])}.")
    bench = [workload for workload in best.workloads if workload.role == "bench"]
    items = [_describe_times(workload) for workload in bench[:MOST_WORKLOADS] if _is_timed(workload)]
    if len(bench) > MOST_WORKLOADS:
        items.append(f"and {count(len(bench) - MOST_WORKLOADS, 'workload')} more")
    heading = "The best so far"
    if search.state == "finished":
        heading = "The winner" if search.kernels else "The best candidate"
    return Section(heading, " ".join(sentences), tuple(items))


def _trim_sentence(text: str | None) -> str:
    return (text or "").strip().rstrip(".")


def _is_timed(workload: WorkloadTimes) -> bool:
    return "candidate" in workload.time_us and bool(workload.speedup)


def _describe_times(workload: WorkloadTimes) -> str:
    fastest = min(workload.speedup, key=lambda name: workload.speedup[name])
    against = BASELINE_NAMES.get(fastest, mark_foreign(fastest))
    before = f", where {against} takes {format_microseconds(workload.time_us.get(fastest))} us"
    gain = format_ratio(workload.speedup[fastest], workload.ci95.get(fastest))
    limit = "" if workload.limit_fraction is None else f", {format_share(workload.limit_fraction)} of the limit"
    return (
        f"{mark_foreign(workload.id)}: {format_microseconds(workload.time_us['candidate'])} us{before}: {gain}{limit}"
    )


def tell_cost(facts: StoryFacts) -> Section:
    """Tell calls, tokens, dollars, the judge's time and the running time."""
    spend = facts.search.spend
    sentences = ["No model was asked."]
    if spend.model_calls:
        calls, tokens = count(spend.model_calls, "model call"), count(spend.tokens, "token")
        sentences = [f"{calls} took {tokens} and {_describe_cost(facts)}."]
    answers = [f"{_name_model(item.provider, item.model)} ({item.calls})" for item in facts.answers if item.calls]
    if answers:
        sentences.append(f"Answered by {join_words(answers)}.")
    held = f" and held the device for {format_span(facts.device_s)} of them" if facts.device_s else ""
    swept = f", {format_span(spend.sweep_seconds)} for sweeps over tunables" if spend.sweep_seconds else ""
    sentences.append(f"The judge worked for {format_span(facts.judge_s)}{held}{swept}.")
    sentences.append(f"The search ran for {format_span(spend.wall_clock_s)}, pauses left out.")
    return Section("What it cost", " ".join(sentences))


def _describe_cost(facts: StoryFacts) -> str:
    spent = f"cost ${sum(item.cost_usd for item in facts.answers):.2f}"
    unpriced = sum(item.unpriced for item in facts.answers if item.provider != "replay")
    if not unpriced:
        return spent
    if unpriced == sum(item.calls for item in facts.answers):
        return "their cost is unknown: they have no price"
    return f"{spent}, without {unpriced} whose price is unknown"


def _name_model(provider: str, model: str | None) -> str:
    return "a recording" if provider == "replay" else mark_foreign(model or provider, 60)


def tell_steering(facts: StoryFacts) -> Section | None:
    """Tell the actions of people, in order."""
    if not facts.steers and not facts.branches:
        return None
    items = [_describe_steer(steer) for steer in facts.steers[:MOST_STEERS]]
    if len(facts.steers) > MOST_STEERS:
        items.append(f"and {count(len(facts.steers) - MOST_STEERS, 'more step', 'more steps')}")
    if facts.branches:
        shown = join_words([mark_foreign(branch) for branch in facts.branches[:4]])
        more = f" and {len(facts.branches) - 4} more" if len(facts.branches) > 4 else ""
        items.append(f"branched into {shown}{more}")
    return Section("Who steered", "By hand, counted from the search's beginning:", tuple(items))


def _describe_steer(steer: Steer) -> str:
    who = mark_foreign(steer.by, 60) if steer.by else "somebody"
    node = f"#{steer.seq}"
    match steer.kind:
        case "idea.added":
            done = f"added the idea {quote_foreign(steer.text, LONGEST_TITLE)} ({node})"
        case "budget.changed":
            done = f"changed the budget to {mark_foreign(steer.text)}"
        case "search.paused":
            done = "paused it"
        case "search.cancelled":
            done = "cancelled it"
        case _:
            done = f"{mark_foreign(steer.kind.removeprefix('node.'), 20)} {node}"
    return f"after {format_duration(steer.after_s)} {who} {done}"


def tell_end(facts: StoryFacts) -> Section:
    """Tell why it ended, or its present state."""
    search = facts.search
    reason = f": {mark_foreign(search.reason, LONGEST_REASON)}" if search.reason else ""
    if facts.ended:
        text = f"It {'was cancelled' if search.state == 'cancelled' else search.state}{reason}."
        if search.problem is not None:
            problem = search.problem
            found, expected = (
                mark_foreign(problem.found, LONGEST_REASON),
                mark_foreign(problem.expected, LONGEST_REASON),
            )
            text += f" {mark_foreign(problem.field)}: found {found}; expected {expected}."
        return Section("Why it ended", text)
    waiting = "; ".join(mark_foreign(item.detail, 160) for item in search.waiting_for)
    text = f"It is {search.state}, in round {search.round}."
    return Section("Where it stands", text + (f" Now: {waiting}." if waiting else ""))
