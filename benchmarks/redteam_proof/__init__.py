"""Proofs that the cheats of the catalogue cheat: `python -m benchmarks.redteam --prove`.

`defences` says what catches each, `undefended` switches it off in a judge of its own, `naive` is an evaluator that has
no such defence, `proof` shows that the cheat works there.
"""
