"""`benchmarks.gate_seconds`: a row's ratio, and the table."""

from __future__ import annotations

from benchmarks.gate_seconds import GATES, Row, table


def test_a_row_says_how_much_longer_a_verification_takes() -> None:
    plain, full = dict.fromkeys(GATES, 1.0), dict.fromkeys(GATES, 1.0) | {"verify": 3.5}
    row = Row("softmax", plain, full, 120)
    assert row.ratio == 1.5
    head, rule, line = table([row]).splitlines()
    assert head.count("|") == rule.count("|") == line.count("|") == len(GATES) + 5
    assert "| 1.0 / 3.5 | 1.0 / 1.0 | 5.0 / 7.5 | 1.50 | 120 |" in line
