"""Searches under a random mix of faults, held against the same searches without any.

    python -m benchmarks.chaos --minutes N --seed S [--broker redis|rabbitmq]

Every process is a real one: APIs, workers, reconcilers, beats, a PostgreSQL and a broker of the run's own. The model is
a recorded pool; the judge is a process that speaks the judge's protocol and answers with the outcome that was measured
for the candidate (`benchmarks/outcomes`), so that a tree depends on nothing but what is recorded.
"""
