"""The candidate contract: what a candidate file may hold, before anything runs it."""
