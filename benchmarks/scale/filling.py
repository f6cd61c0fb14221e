"""Fill a PostgreSQL database with searches that were never run, made by the server itself: a million nodes in minutes.

Searches of 500 nodes, 1,000 a day up to now, and one of 10,000. The latest ones run, with 10,000 nodes under way at
most. Each node has what a candidate leaves: a model call, two attempts, a verdict, events; each search a kernel, some
for a target that no search is for, as kernels that ship are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import text

from benchmarks.op import OP, TARGET
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.tallies import recount

NODES_A_SEARCH = 500
LARGE = 10_000
"""Nodes of the one large search."""
MOST_OPEN = 10_000
SECONDS_A_SEARCH = 86.4
TABLES = ("searches", "nodes", "attempts", "model_calls", "verdicts", "events", "kernels")

_ID = "lpad(({0})::text, 26, '0')"
_CODE = "repeat(md5(n::text) || md5((n + 1)::text) || md5((n + 2)::text), {times})"

_OF_SEARCH = "(CASE WHEN n < :large THEN 0 ELSE 1 + (n - :large) / :per END)"
_SEQ = "(CASE WHEN n < :large THEN n ELSE (n - :large) % :per END)"
_FIRST = "(CASE WHEN n < :large THEN 0 ELSE :large + (n - :large) / :per * :per END)"
_AT = f"(:began + {_OF_SEARCH} * :every + {_SEQ})"

_STATEMENTS = (
    f"""INSERT INTO searches (id, op_id, target, language, policy, budget, model, state, best_node_id, round, next_seq,
            candidates, model_calls, tokens, cost_usd, active_s, running_since, created_at, updated_at)
        SELECT 'sr_' || {_ID.format("s")}, :op, :target, 'cpp', '{{"name": "idea_beam"}}', '{{"candidates": 500}}',
            '{{"provider": "openai", "model": "gpt-5"}}',
            CASE WHEN s > :searches - :running THEN 'running' WHEN s % 20 = 0 THEN 'failed'
                WHEN s % 20 = 1 THEN 'cancelled' ELSE 'finished' END,
            'nd_' || {_ID.format("CASE WHEN s = 0 THEN 2 ELSE :large + (s - 1) * :per + 2 END")},
            10, :per, :per - 1, :per - 1, 1000 * :per, s % 97, 60.0,
            CASE WHEN s > :searches - :running THEN :began + s * :every END,
            :began + s * :every, :began + s * :every + 60
        FROM generate_series(0, :searches) AS s""",
    f"""INSERT INTO nodes (id, search_id, seq, parent_id, round, technique, state, repairs, verdict, gate, score,
            ci_low, ci_high, limit_fraction, ideation, ideated, verification, variant, language, source_digest,
            created_at, updated_at, idea, reason, source)
        SELECT 'nd_' || {_ID.format("n")}, 'sr_' || {_ID.format(_OF_SEARCH)}, {_SEQ},
            CASE WHEN {_SEQ} > 0 THEN 'nd_' || {_ID.format(f"{_FIRST} + ({_SEQ} - 1) / 4")} END,
            (1 + {_SEQ} / 50), (ARRAY['memory_access', 'parallelism', 'compute', 'fusion'])[1 + n % 4],
            CASE WHEN n >= :nodes - :open THEN 'judging' ELSE 'judged' END, 0,
            CASE WHEN n < :nodes - :open THEN (ARRAY['accepted', 'rejected'])[1 + n % 2] END, 'time',
            CASE WHEN n % 2 = 0 THEN 0.5 + (n % 2500 * 7919 % 2500) / 1000.0 END, 0.5, 3.0, 0.3, 'none', 0, 'none', 0,
            'cpp', md5(n::text) || md5((n + 1)::text), {_AT}, {_AT} + 1,
            jsonb_build_object('technique', 'compute', 'title', 'idea ' || n, 'mechanism', md5(n::text)), 'as measured',
            {_CODE.format(times=30)}
        FROM generate_series(0, :nodes - 1) AS n""",
    f"""INSERT INTO attempts (id, search_id, node_id, kind, ordinal, params, state, owner, tries, deferrals, not_before,
            sent_at, created_at, started_at, finished_at)
        SELECT 'at_' || {_ID.format("2 * n + k")}, 'sr_' || {_ID.format(_OF_SEARCH)}, 'nd_' || {_ID.format("n")},
            (ARRAY['code', 'judge'])[1 + k], 0, '{{"calls": 3}}',
            CASE WHEN k = 1 AND n >= :nodes - :open THEN 'pending' ELSE 'succeeded' END, 'judge@host:1:abcdef',
            1, 0, 0, {_AT}, {_AT}, {_AT}, CASE WHEN k = 0 OR n < :nodes - :open THEN {_AT} + 1 END
        FROM generate_series(0, :nodes - 1) AS n, generate_series(0, 1) AS k""",
    f"""INSERT INTO model_calls (id, search_id, node_id, attempt_id, kind, request, ordinal, provider, model, messages,
            reply, prompt_tokens, completion_tokens, cost_usd, latency_s, created_at)
        SELECT 'mc_' || {_ID.format("n")}, 'sr_' || {_ID.format(_OF_SEARCH)}, 'nd_' || {_ID.format("n")},
            'at_' || {_ID.format("2 * n")}, 'code', md5(n::text) || md5((n + 1)::text), 0, 'openai', 'gpt-5',
            jsonb_build_array(jsonb_build_object('role', 'user', 'content', {_CODE.format(times=80)})),
            {_CODE.format(times=30)}, 4000, 1500, 0.02, 20.0, {_AT}
        FROM generate_series(0, :nodes - 1) AS n""",
    f"""INSERT INTO verdicts (id, search_id, node_id, attempt_id, level, verdict, gate, source, document, created_at)
        SELECT 'vd_' || {_ID.format("n")}, 'sr_' || {_ID.format(_OF_SEARCH)}, 'nd_' || {_ID.format("n")},
            'at_' || {_ID.format("2 * n + 1")}, CASE WHEN {_SEQ} = 0 THEN 'baseline' ELSE 'screen' END,
            (ARRAY['accepted', 'rejected'])[1 + n % 2], 'time', {_CODE.format(times=30)},
            jsonb_build_object('level', 'screen', 'verdict', 'accepted', 'gate', 'time', 'workloads', '[]'::jsonb,
                'compile', jsonb_build_object('digest', md5(n::text)), 'fingerprint', 'present',
                'samples', {_CODE.format(times=40)}), {_AT} + 1
        FROM generate_series(0, :nodes - 1 - :open) AS n""",
    f"""INSERT INTO events (search_id, node_id, type, payload, created_at)
        SELECT 'sr_' || {_ID.format(_OF_SEARCH)}, 'nd_' || {_ID.format("n")},
            (ARRAY['node.created', 'node.coded', 'node.judged'])[k],
            jsonb_build_object('seq', {_SEQ}, 'reason', 'as measured', 'round', 1, 'score', n % 7), {_AT} + k
        FROM generate_series(0, :nodes - 1) AS n, generate_series(1, 3) AS k""",
    f"""INSERT INTO kernels (id, op_id, target, search_id, node_id, language, source, source_digest, score, ci_low,
            ci_high, limit_fraction, envelope, evidence, lineage, created_at, verified_at)
        SELECT 'kn_' || {_ID.format("s")}, :op, CASE WHEN s % 50 = 1 THEN 'cuda:sm_75' ELSE :target END,
            'sr_' || {_ID.format("s")},
            'nd_' || {_ID.format("CASE WHEN s = 0 THEN 2 ELSE :large + (s - 1) * :per + 2 END")}, 'cpp',
            repeat(md5(s::text), 90), md5(s::text) || md5((s + 1)::text), 1.0 + (s % 2000 * 7919 % 2000) / 1000.0, 1.0,
            3.0, 0.4, '{{}}', '{{"workloads": [], "device": {{}}, "versions": {{}}, "fingerprint": ""}}', '[]',
            :began + s * :every, :began + s * :every
        FROM generate_series(0, :searches - :running) AS s""",
)

_BEST = """UPDATE searches SET best_score = coalesce(nodes.score, -1), best_limit = coalesce(nodes.limit_fraction, -1)
    FROM nodes WHERE nodes.id = searches.best_node_id"""


@dataclass(frozen=True)
class Filled:
    """What the database holds: ids of rows to ask for, and bytes a node of each table with its indices."""

    nodes: int
    searches: int
    large_search: str
    running_search: str
    node: str
    kernel: str
    seconds: float
    bytes_a_node: dict[str, float]


def fill(db: Database, nodes: int) -> Filled:
    """Fill an empty, migrated database; its user must be a superuser, so that no foreign key is checked row by row."""
    began = time.monotonic()
    with db.writing() as session:
        op = add_op(session, OP, 0.0)[0].id
    large = min(LARGE, nodes // 2)
    searches = max(1, (nodes - large) // NODES_A_SEARCH)
    nodes = large + searches * NODES_A_SEARCH
    still_open = min(MOST_OPEN, searches // 2 * NODES_A_SEARCH)
    numbers = {
        "op": op,
        "target": str(TARGET),
        "nodes": nodes,
        "searches": searches,
        "running": still_open // NODES_A_SEARCH,
        "open": still_open,
        "large": large,
        "per": NODES_A_SEARCH,
        "every": SECONDS_A_SEARCH,
        "began": time.time() - (searches + 1) * SECONDS_A_SEARCH,
    }
    with db.writing() as session:
        session.execute(text("SET LOCAL session_replication_role = replica"))
        session.execute(text("SET LOCAL default_toast_compression = lz4"))  # a tenth of the time of the default
        for statement in _STATEMENTS:
            session.execute(text(_with_literals(statement, numbers)))
        session.execute(text(_BEST))  # no trigger fired
        recount(session)
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    sizes = text("SELECT pg_total_relation_size(CAST(:name AS text))")
    with db.reading() as session:
        bytes_a_node = {name: session.scalars(sizes, {"name": name}).one() / nodes for name in TABLES}
    last = f"{searches:026d}"
    return Filled(
        nodes=nodes,
        searches=searches + 1,
        large_search=f"sr_{0:026d}",
        running_search=f"sr_{last}",
        node=f"nd_{1:026d}",
        kernel=f"kn_{0:026d}",
        seconds=time.monotonic() - began,
        bytes_a_node=bytes_a_node,
    )


def _with_literals(statement: str, numbers: dict[str, object]) -> str:
    """Write the benchmark's own numbers into a statement: arithmetic on parameters needs a cast at each place."""
    for name in sorted(numbers, key=len, reverse=True):
        value = numbers[name]
        statement = statement.replace(f":{name}", f"'{value}'" if isinstance(value, str) else str(value))
    return statement.replace(":", "\\:")
