"""The search: pure functions of a tree and a budget."""
