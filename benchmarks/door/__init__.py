"""Attacks on the API's door, run against a real server: what each one costs, and who else waits.

python -m benchmarks.door [--only WORDS] [--seconds N]
"""
