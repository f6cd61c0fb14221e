"""Timing of calls and bursts, and the physical limits that times must respect."""
