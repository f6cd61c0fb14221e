"""The database: tables, transactions, records, lists and recorded pools.

    db.Database(url)      one for a process, safe for threads. `reading()` and `writing()` give a session; the second
                          commits at its end, rolls back on an error, and is BEGIN IMMEDIATE on SQLite
    upgrade(), revision() Alembic's head; (found, expected)
    ids.new_id("sr")      an id that sorts by time, "sr_01jd..."; the prefix tells the table
    listing               lists page by key: a Page has `items` and `next`, an opaque cursor or None

A pool (`pool_file`) is JSON lines: a header with "format": "warpsmith-pool", the op's semantic digest, target, language
and what it was recorded with; then one reply a line with its request's identity, ordinal, text, model, tokens and
latency. Nothing measured is in it.
"""
