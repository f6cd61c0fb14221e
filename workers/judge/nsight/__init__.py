"""Nsight Compute metrics of a candidate, as text for readers."""
