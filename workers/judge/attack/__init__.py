"""Counterexample search: the input on which a candidate is worst against what PyTorch eager gets right.

A *recipe* says how to make one question's values: a seed for the declared distributions, then changes, each a *move*
on one input. `build` makes the values, `openings` the first recipes, `search` better ones, `shrink` the simplest that
still fails. An `oracle` asks: it runs the references and the candidate and holds the result to the `measure`. Nothing
here imports the gates; `gates.attack` binds an oracle to a job.
"""
